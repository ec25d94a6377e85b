"""Rows on their way into a file: meta columns, tombstones, and counting the rows that they replace.

A row of the write has the write's requested time as its commit time, which distinguishes it from existing rows;
sequence numbers are assigned last, when it is known which rows are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.datafile.column_encoding import constant
from lakebed.merge.arrow_numpy import index_array
from lakebed.merge.key_index import KeyIndex
from lakebed.merge.record_merger import MergeRule, Op
from lakebed.merge.runs import OP_COLUMN
from lakebed.model.concat import concat, values
from lakebed.model.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY

OpenRows = Callable[[int], Iterator[pa.RecordBatch]]


def with_meta_columns(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, requested_time: str
) -> Iterator[pa.RecordBatch]:
    """Rows with the write's requested time as their commit time."""
    time = pa.scalar(requested_time, pa.string())
    for batch in batches:
        added = {COMMIT_TIME: constant(time, batch.num_rows), COMMIT_SEQNO: pa.nulls(batch.num_rows, pa.string())}
        columns = [added[name] if name in added else batch.column(name) for name in schema.names]
        yield pa.RecordBatch.from_arrays(columns, names=schema.names)


@dataclass(slots=True)
class SequenceNumbers:
    """Sequence numbers `<requested time>_<task>_<n>` for the rows of this write."""

    requested_time: str
    task: int
    used: int = 0

    def is_new(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows are of this write."""
        times, requested_time = batch.column(COMMIT_TIME), pa.scalar(self.requested_time, pa.string())
        if pa.types.is_dictionary(times.type):
            return pc.equal(times.dictionary, requested_time).take(times.indices)
        return pc.equal(times, requested_time)

    def stamp(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a number for every new row; other rows keep theirs."""
        index = batch.schema.get_field_index(COMMIT_SEQNO)
        if index < 0:
            return batch
        count = batch.num_rows
        numbers = index_array(np.arange(self.used, self.used + count, dtype=np.int64)).cast(pa.string())
        self.used += count
        texts = pc.binary_join_element_wise(f"{self.requested_time}_{self.task}", numbers, "_")
        is_new = self.is_new(batch)
        kept = texts if is_new.true_count == count else pc.if_else(is_new, texts, values(batch.column(index)))
        return batch.set_column(index, batch.schema.field(index).with_type(kept.type), kept)


# ---------------------------------------------------------------------- tombstones
@dataclass(frozen=True, slots=True)
class LogRows:
    """A merged batch with tombstones, split up as a log stores it."""

    rows: pa.RecordBatch
    deletes: pa.RecordBatch
    earlier: pa.RecordBatch
    """Deletes followed by a row or delete of the same key: they apply before it."""


def log_rows(batches: Iterator[pa.RecordBatch], rule: MergeRule, columns: list[str]) -> Iterator[LogRows]:
    """Batches of a merge that kept its tombstones, split into rows and deletes.

    A delete at the end of a batch is held until the next key is known, and then returned as a batch of its own: text
    columns may be dictionary-encoded in one batch of a merge and plain in another, so batches are never concatenated.
    """
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if held is not None:
            yield _split(held, rule, columns, batch.column(rule.key)[0])
            held = None
        if batch.column(OP_COLUMN)[-1].as_py() == Op.DELETE:  # its key may go on in the next batch
            held, batch = batch.slice(batch.num_rows - 1), batch.slice(0, batch.num_rows - 1)
        if batch.num_rows:
            following = held.column(rule.key)[0] if held is not None else None
            yield _split(batch, rule, columns, following)
    if held is not None:
        yield _split(held, rule, columns, None)


def _split(batch: pa.RecordBatch, rule: MergeRule, columns: list[str], following: pa.Scalar | None) -> LogRows:
    ops = batch.column(OP_COLUMN)
    is_row = pc.equal(ops, int(Op.ROW))
    rows = batch.filter(is_row).select(columns)
    if rows.num_rows == batch.num_rows:
        none = _tombstones(batch.slice(0, 0), rule)
        return LogRows(rows, none, none)
    keys = batch.column(rule.key)
    last = pa.array([following.as_py() if following is not None else None], keys.type)
    after = concat([keys.slice(1), last])
    is_earlier = pc.fill_null(pc.and_(pc.equal(ops, int(Op.DELETE)), pc.equal(keys, after)), False)
    is_delete = pc.and_not(pc.invert(is_row), is_earlier)
    return LogRows(rows, _tombstones(batch.filter(is_delete), rule), _tombstones(batch.filter(is_earlier), rule))


def _tombstones(batch: pa.RecordBatch, rule: MergeRule) -> pa.RecordBatch:
    """Key and ordering values of deletes; one without an ordering value has nulls there."""
    ordered = pc.equal(batch.column(OP_COLUMN), int(Op.DELETE_WITH_ORDERING))
    names = [rule.key, *rule.ordering]
    columns = [batch.column(rule.key)]
    for name in rule.ordering:
        column = batch.column(name)
        columns.append(pc.if_else(ordered, column, pa.scalar(None, column.type)))
    return pa.RecordBatch.from_arrays(columns, names=names)


# ---------------------------------------------------------------------- counting
class Replaced:
    """How many rows of a base file the write updates and deletes, counted while the base file is streamed.

    With more than `most` bytes of keys the counts are estimated from the numbers of removed and added rows.
    """

    def __init__(self, opens: list[OpenRows], most: int) -> None:
        keys = _all_keys(opens, most)
        self._index = KeyIndex(keys) if keys is not None else None
        self._known = np.zeros(len(keys) if keys is not None else 0, np.bool_)
        self.base_rows = 0
        self.fresh = 0
        self._updates = 0
        self._kept = 0

    def watching(self, open_rows: OpenRows) -> OpenRows:
        """The base file's rows, recorded as they are read."""

        def watched(wanted: int) -> Iterator[pa.RecordBatch]:
            self.base_rows = 0
            for batch in open_rows(wanted):
                self.base_rows += batch.num_rows
                if self._index is not None:
                    found = self._index.find(batch.column(RECORD_KEY))
                    self._known[found[found >= 0]] = True
                yield batch

        return watched

    def add(self, merged: pa.RecordBatch, is_new: pa.Array) -> None:
        """Count a merged batch; all base rows of its keys must have been read."""
        new = is_new.true_count
        self.fresh += new
        self._kept += merged.num_rows - new
        if self._index is not None and new:
            found = self._index.find(merged.column(RECORD_KEY).filter(is_new))
            self._updates += int(self._known[found[found >= 0]].sum())

    @property
    def updates(self) -> int:
        gone = self.base_rows - self._kept
        return min(self._updates if self._index is not None else min(gone, self.fresh), self.fresh)

    @property
    def inserts(self) -> int:
        return self.fresh - self.updates

    @property
    def deletes(self) -> int:
        return max(0, self.base_rows - self._kept - self.updates)


def _all_keys(opens: list[OpenRows], most: int) -> pa.Array | None:
    held: list[pa.Array] = []
    size = 0
    for open_rows in opens:
        for batch in open_rows(1 << 16):
            keys = pc.unique(batch.column(RECORD_KEY))  # a copy: a column alone would keep its whole batch in memory
            size += keys.nbytes
            if size > most:
                return None
            held.append(keys)
    return pc.unique(concat(held)) if held else pa.array([], pa.string())
