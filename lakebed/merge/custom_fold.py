"""Custom mergers: fold the versions of all repeated keys in rounds.

Round i merges the i-th version of every key that has one with the result of the rounds before, so a merger is called as
often as the longest key has versions, on tables of as many rows as there are such keys. A delete ends a key; a
version after it starts from nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.merge.arrow_numpy import Bools, Ints, index_array, index_array_with_nulls
from lakebed.merge.fold import Groups, Verdict
from lakebed.merge.record_merger import RecordMerger
from lakebed.merge.window import Window, marked
from lakebed.model.concat import concat, concat_chunks
from lakebed.model.nested_cast import cast_column


@dataclass(frozen=True, slots=True)
class MergedRows:
    """The verdict, and the merged row of every key (the rows of deleted keys are undefined)."""

    verdict: Verdict
    rows: pa.RecordBatch


def fold_custom(window: Window, groups: Groups, names: list[str], merger: RecordMerger) -> MergedRows:
    """Run the merger over all versions of every repeated key."""
    rule = window.facts.rule
    ended = groups.last(groups.deleted)
    first = ended + 1
    first = np.where(ended < 0, groups.starts, first)
    versions = np.maximum(groups.ends - first + 1, 0)
    gone = versions == 0
    helpers = [name for name in sorted(window.facts.wanted) if name not in names and window.has(name)]
    columns = names + helpers
    so_far = _rows(window, columns, np.where(gone, groups.rows[groups.ends], groups.rows[np.where(gone, 0, first)]))
    empty = gone.copy()
    for number in range(1, int(versions.max(initial=0))):
        keys = np.flatnonzero(versions > number)
        at = first[keys] + number
        newer = _rows(window, columns, groups.rows[at])
        older = so_far.take(index_array(keys))
        newer = _fill_absent(window, groups.runs[at], older, newer, ~empty[keys])
        merging = np.flatnonzero(~empty[keys])
        merged = _call(merger, older.take(index_array(merging)), newer.take(index_array(merging)), rule.key)
        dead = marked(merged, rule)
        merged = _shape(merged, newer.schema)
        replaced = np.arange(len(groups.starts))
        replaced[keys] = len(replaced) + merged.num_rows + np.arange(len(keys))  # a deleted key starts from nothing
        replaced[keys[merging]] = len(groups.starts) + np.arange(len(merging))
        so_far = pa.concat_tables([so_far, merged, newer]).take(index_array(replaced))
        empty[keys] = False
        empty[keys[merging]] = dead
    batch = pa.RecordBatch.from_arrays([concat_chunks(column) for column in so_far.columns], schema=so_far.schema)
    tombstone = np.where(ended < 0, groups.ends, ended)
    barrier = np.where(gone | (ended < 0), -1, ended)
    return MergedRows(Verdict(np.where(gone, tombstone, groups.ends), gone | empty, barrier), batch)


def _rows(window: Window, names: list[str], rows: Ints) -> pa.Table:
    return pa.table([window.take(name, rows) for name in names], names=names)


def _fill_absent(window: Window, runs: Ints, older: pa.Table, newer: pa.Table, live: Bools) -> pa.Table:
    """Columns that a partial log does not have are taken from the older row before the merger sees them."""
    facts = window.facts
    partial = facts.is_partial[runs] & live
    if not partial.any():
        return newer
    columns = []
    for name in newer.schema.names:
        has = np.array([name in present for present in facts.columns], np.bool_)
        absent = partial & ~has[runs]
        if absent.any():
            both = concat([concat_chunks(older.column(name)), concat_chunks(newer.column(name))])
            at = np.where(absent, np.arange(len(runs)), len(runs) + np.arange(len(runs)))
            columns.append(both.take(index_array_with_nulls(at)).cast(newer.schema.field(name).type))
        else:
            columns.append(newer.column(name))
    return pa.table(columns, schema=newer.schema)


def _call(merger: RecordMerger, older: pa.Table, newer: pa.Table, key: str) -> pa.Table:
    merged = merger.merge_batch(older, newer)
    if merged.num_rows != newer.num_rows or key not in merged.schema.names:
        raise InvalidRequest(
            f"{type(merger).__name__}.merge_batch answered {merged.num_rows} rows to {newer.num_rows} pairs of rows"
            if key in merged.schema.names
            else f"{type(merger).__name__}.merge_batch dropped the key column {key}"
        )
    if merged.num_rows and not pc.all(pc.equal(merged.column(key), newer.column(key))).as_py():
        raise InvalidRequest(f"{type(merger).__name__}.merge_batch changed record keys or their order")
    return merged


def _shape(merged: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        if field.name in merged.schema.names:
            columns.append(cast_column(merged.column(field.name), field.type))
        else:
            columns.append(pa.nulls(merged.num_rows, field.type))
    return pa.table(columns, schema=schema)
