"""Merge rules: which version of a key wins, as a value, and the interface for custom mergers.

The rule is applied as a fold from the oldest version of a key to the newest, so that the answer is what copy-on-write
would hold (fold.py and partial_fold.py do it for the built-in modes). A custom merger takes one of two
forms: `merge_batch` gets two tables of equal length, row i of the one older than row i of the other, and answers with
a table of as many rows; `FunctionMerger` wraps a plain Python function of two rows, which is easy to write and slow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from lakebed.config.merge_settings import MergeMode, PartialUpdateMode
from lakebed.errors import InvalidRequest
from lakebed.merge.runs import IS_DELETED, OPERATION, Run


class Op(IntEnum):
    """The extra column of merges that keep tombstones."""

    ROW = 0
    DELETE_WITH_ORDERING = 1
    DELETE = 2


@runtime_checkable
class RecordMerger(Protocol):
    """A custom merge rule, over many keys at once."""

    def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Row i of the answer replaces row i of both; a row that carries the table's delete mark ends the key."""
        ...


_MERGERS: dict[str, Callable[[], RecordMerger]] = {}


def register_merger(name: str, merger: Callable[[], RecordMerger]) -> None:
    """Register a merger under the name that tables record (class name or strategy id)."""
    _MERGERS[name] = merger


def merger_for(name: str | None) -> RecordMerger:
    """A new merger of that name."""
    found = _MERGERS.get(name or "")
    if found is None:
        known = ", ".join(sorted(_MERGERS)) or "none"
        raise InvalidRequest(
            f"the table merges records with {name!r}, which is not registered (known: {known})",
            hint="Register it with lakebed.merge.record_merger.register_merger before reading.",
        )
    return found()


@dataclass(frozen=True, slots=True)
class FunctionMerger:
    """The slow form: `merge(older, newer)` on rows as dictionaries; None deletes the key."""

    merge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]

    def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Row by row, in Python."""
        rows = []
        for old, new in zip(older.to_pylist(), newer.to_pylist(), strict=True):
            merged = self.merge(old, new)
            rows.append({**old, IS_DELETED: True} if merged is None else {**merged, IS_DELETED: False})
        schema = newer.schema
        if IS_DELETED not in schema.names:
            schema = schema.append(pa.field(IS_DELETED, pa.bool_()))
        return pa.Table.from_pylist(rows, schema=schema)


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How a table merges, from its properties."""

    mode: MergeMode = MergeMode.COMMIT_TIME
    key: str = "_hoodie_record_key"
    ordering: tuple[str, ...] = ()
    delete_field: str | None = None
    delete_marker: str | None = None
    partial_update: PartialUpdateMode | None = None
    unavailable_value: str | None = None
    merger: str | None = None
    column_defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by_event_time(self) -> bool:
        """Event time without ordering fields is commit time."""
        return self.mode is MergeMode.EVENT_TIME and bool(self.ordering)

    @property
    def picks_whole_records(self) -> bool:
        """One version of a key survives as it is, so that one bit per row describes the result."""
        return self.mode is not MergeMode.CUSTOM and self.partial_update is None


def why_not_among_logs(runs: list[Run], rule: MergeRule) -> str | None:
    """Why merging these runs without the older ones below them could change the final answer; None if it cannot.

    Folding from the base upward and folding the logs first agree for whole records (with an unconditional delete kept
    before what follows it), for partial rows that all bring the same columns, and for fills by commit time. Once a late
    version may fill a winner, or rows bring different columns, they do not: which version counts as late depends on
    the older versions below.
    """
    if rule.mode is MergeMode.CUSTOM:
        merger = merger_for(rule.merger)
        if not getattr(merger, "associative", False):
            return f"the custom merger {rule.merger} does not declare itself associative"
    if any(run.is_partial for run in runs):
        brought = {run.brings for run in runs if not run.is_delete}
        reason = why_not_partial(rule, brought, deletes=any(run.is_delete for run in runs))
        if reason is not None:
            return reason
    if rule.by_event_time and rule.partial_update is not None:
        return f"{rule.partial_update} by event time depends on the base below"
    return None


DIFFERENT_COLUMNS = "partial updates share a log only with those that bring the same columns"


def why_not_partial(rule: MergeRule, brought: Collection[frozenset[str] | None], *, deletes: bool) -> str | None:
    """Why logs of partial updates cannot be folded among themselves; None if they can.

    `brought` are the columns of each log of rows, None for whole rows. A column that one of two rows does not bring
    would have to come from below if the older row loses there, and from the older row if not; and in one log, "does not
    bring" looks the same as null. A delete by event time decides what the columns not brought are: those below where
    it loses, null where it wins; which of the two is known only below.
    """
    if not rule.picks_whole_records:
        return "partial updates under a rule that combines rows depend on the base below"
    if len(brought) != 1 or None in brought:
        return DIFFERENT_COLUMNS
    columns = frozenset[str]().union(*(names for names in brought if names is not None))
    if not rule.by_event_time:
        return None
    if not columns.issuperset(rule.ordering):
        return "partial updates without ordering value depend on the base below"
    if deletes or columns.intersection([IS_DELETED, OPERATION, rule.delete_field or IS_DELETED]):
        return "deletes beside partial updates by event time depend on the base below"
    return None


def require_among_logs(runs: list[Run], rule: MergeRule) -> None:
    """`InvalidRequest` where these runs, none of them a base file, must not be merged by themselves."""
    reason = why_not_among_logs(runs, rule)
    if reason is not None:
        raise InvalidRequest(f"logs cannot be merged without their base: {reason}", hint="Compact fully instead.")
