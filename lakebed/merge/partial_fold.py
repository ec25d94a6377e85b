"""Merges that mix the columns of several versions: partial logs, IGNORE_DEFAULTS and FILL_UNAVAILABLE.

Folding from the base upward, a version either wins over what has been gathered so far or loses against it:

    wins     its columns replace, except those without a value (absent in a partial log, or default / unavailable)
    loses    nothing, except that with a fill mode its columns replace those without a value in the winner
    deletes  a delete that wins ends the key; what comes after fills nothing from before it

As segments: let `start` be the first winning row after the last winning delete. A column then comes from the last
winner that has a value, else from the first loser that has one (it filled the gap and nothing replaced it), else it
stays empty.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.merge_settings import PartialUpdateMode
from lakebed.merge.arrow_numpy import Bools, Ints, is_text, truths, valid
from lakebed.merge.fold import Groups, Verdict, event_time
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.window import Window


@dataclass(frozen=True, slots=True)
class MixedColumns:
    """The verdict, and per column the row each repeated key takes it from (-1: null) where that is not the winner."""

    verdict: Verdict
    picks: dict[str, Ints]


def mix_columns(window: Window, groups: Groups, names: list[str]) -> MixedColumns:
    """Fold the columns of every repeated key."""
    rule, facts = window.facts.rule, window.facts
    at = np.arange(len(groups.rows))
    winning, barrier = _winning(window, groups)
    ended = np.maximum(groups.last(winning & groups.deleted), barrier)
    start = groups.first(winning & ~groups.deleted & (at > ended[groups.group]))
    gone = start < 0
    live = ~groups.deleted & ~gone[groups.group] & (at >= start[groups.group])
    won, lost = live & winning, live & ~winning
    winner = np.where(gone, ended, groups.last(won))

    partial = facts.is_partial[groups.runs]
    picks: dict[str, Ints] = {}
    for name in names:
        if name == rule.key:
            continue
        present = ~partial
        if partial.any():
            has = np.array([name in columns for columns in facts.columns], np.bool_)
            present |= has[groups.runs]
        if fills(rule, window, name):
            column = window.take(name, groups.rows)
            has_value = present & ~is_missing(column, name, rule)
            pick = groups.last(won & has_value)
            for fallback in (
                groups.first(lost & has_value),
                groups.last(lost & present),
                groups.first(won & present),
            ):
                pick = np.where(pick < 0, fallback, pick)
        elif partial.any():
            pick = groups.last(won & present)
        else:
            continue
        picks[name] = np.where(pick < 0, -1, groups.rows[pick])
    kept = np.where(gone | (ended < 0), -1, ended)
    return MixedColumns(Verdict(winner, gone, kept), picks)


def _winning(window: Window, groups: Groups) -> tuple[Bools, Ints]:
    """Versions that win over everything before them in their key, and per key the last unconditional delete (or -1)."""
    if not window.facts.rule.by_event_time:
        return np.ones(len(groups.rows), np.bool_), groups.last(groups.unconditional)
    times = event_time(window, groups)
    dense = np.unique(times.ranks, return_inverse=True)[1].astype(np.int64) + 1
    dense[~times.counts] = 0
    climb = groups.group * (int(dense.max(initial=0)) + 1) + dense
    return times.counts & (climb == np.maximum.accumulate(climb)), times.barrier


def fills(rule: MergeRule, window: Window, name: str) -> bool:
    """Whether a missing value of this column is filled from the other version."""
    if rule.partial_update is PartialUpdateMode.FILL_UNAVAILABLE:
        return rule.unavailable_value is not None and is_text(window.column(name).type)
    return rule.partial_update is PartialUpdateMode.IGNORE_DEFAULTS


def is_missing(column: pa.Array, name: str, rule: MergeRule) -> Bools:
    """Values that count as missing: null or the schema's default, or the marker of a value the source did not send."""
    if rule.partial_update is PartialUpdateMode.FILL_UNAVAILABLE:
        assert rule.unavailable_value is not None
        marker = pa.scalar(rule.unavailable_value.encode(), pa.binary()).cast(column.type)
        return truths(pc.equal(column, marker))
    empty = ~valid(column)
    default = rule.column_defaults.get(name)
    if default is not None:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested: null only
            empty |= truths(pc.equal(column, pa.scalar(default, column.type)))
    return empty
