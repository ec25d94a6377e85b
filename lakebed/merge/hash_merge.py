"""The merge for runs that are not sorted: base rows stream through in their own order, log versions are looked up.

All log rows are held in memory, sorted by key so that the versions of a key stand together; every base batch is looked
up among the distinct keys (`key_index.py`), and the keys that no base row claimed come last, as inserts. The fold is
the same as in the sorted merge, from the base upward. When the logs outgrow the memory given, everything goes through
the sorted merge instead, which spills; then rows come in key order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.merge.key_index import KeyIndex
from lakebed.merge.keys import Keys, check_keys
from lakebed.merge.materialise import output_schema
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.row_order import RowOrder
from lakebed.merge.runs import Run, in_fold_order
from lakebed.merge.sorted_merge import READ_BUFFER, sorted_merge
from lakebed.merge.spill import Spill, sort_runs
from lakebed.merge.vectors import Bools, Ints, index_array, truths
from lakebed.merge.window import Piece, RunFacts, Window
from lakebed.merge.window_merge import WindowMerge
from lakebed.merge.windows import guess_row_bytes


def hash_merge(
    runs: Sequence[Run],
    rule: MergeRule,
    schema: pa.Schema,
    *,
    memory: int,
    read_buffer: int = READ_BUFFER,
    keep_deletes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Merge the runs of a file group, base rows in base order and new keys after them."""
    ordered = in_fold_order(runs)
    bases = [run for run in ordered if run.is_base]
    if len(bases) > 1:
        raise InvalidRequest("a file slice has one base file at most")
    if len(ordered) < 2 or not bases or keep_deletes:
        yield from sorted_merge(runs, rule, schema, memory=memory, read_buffer=read_buffer, keep_deletes=keep_deletes)
        return
    facts = RunFacts(ordered, rule, schema)
    logs = _load(ordered, facts, memory // 2)
    if logs is None:
        yield from sorted_merge(runs, rule, schema, memory=memory, read_buffer=read_buffer)
        return
    merge = WindowMerge(facts, output_schema(schema, pa.field(rule.key, pa.string()), [], False), keep_deletes=False)
    window_bytes = max(1, min(read_buffer, memory // 6))
    rows = max(1, window_bytes // (bases[0].row_bytes or guess_row_bytes(schema)))
    for batch in bases[0].open(rows):
        if batch.num_rows:
            batch = facts.conform(batch, 0)
            check_keys(batch.column(rule.key), bases[0].name)
            yield from _merge_base(merge, logs, batch, facts)
    for start in range(0, len(logs.starts), rows):
        yield from _merge_rest(merge, logs, start, start + rows, facts)


class _Logs:
    """All log rows by (key, age), and the distinct keys among them."""

    def __init__(self, batch: pa.RecordBatch, key: str) -> None:
        self.batch = batch
        keys = batch.column(key)
        first = np.ones(len(keys), np.bool_)
        if len(keys) > 1:
            same = truths(_neighbours_equal(keys))
            first[1:] = ~same
        self.starts: Ints = np.flatnonzero(first)
        self.sizes: Ints = np.diff(np.append(self.starts, len(keys)))
        self.index = KeyIndex(keys.take(index_array(self.starts)))
        self.claimed: Bools = np.zeros(len(self.starts), np.bool_)

    def rows_of(self, groups: Ints) -> Ints:
        """The rows of some keys, key after key."""
        sizes = self.sizes[groups]
        before = np.cumsum(sizes) - sizes
        return np.repeat(self.starts[groups] - before, sizes) + np.arange(int(sizes.sum()))


def _neighbours_equal(keys: pa.Array) -> pa.Array:
    return pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))


def _load(ordered: list[Run], facts: RunFacts, limit: int) -> _Logs | None:
    """The logs in memory, sorted; None if they are too many."""
    unsorted = [(number, run) for number, run in enumerate(ordered) if not run.is_base]
    with Spill() as spill:
        for piece in sort_runs(unsorted, facts, spill, buffer_bytes=limit, keep_bytes=limit):
            if piece.nbytes > limit or spill.files:
                return None
            return _Logs(next(piece.open(max(piece.num_rows, 1))), facts.rule.key)
    empty = pa.RecordBatch.from_pylist([], pa.schema([(facts.rule.key, pa.string())]))
    return _Logs(empty, facts.rule.key)


def _merge_base(merge: WindowMerge, logs: _Logs, batch: pa.RecordBatch, facts: RunFacts) -> Iterator[pa.RecordBatch]:
    keys = batch.column(facts.rule.key)
    group = logs.index.find(keys)
    hits = np.flatnonzero(group >= 0)
    _, leaders = np.unique(group[hits], return_index=True)
    fresh = np.zeros(len(hits), np.bool_)
    fresh[leaders] = True
    fresh &= ~logs.claimed[group[hits]]
    if not fresh.all():  # a base file may repeat a key; once a log has a say, the first row stands for all
        keep = np.ones(batch.num_rows, np.bool_)
        keep[hits[~fresh]] = False
        batch = batch.take(index_array(np.flatnonzero(keep)))
        keys = batch.column(facts.rule.key)
        group = group[keep]
        hits = np.flatnonzero(group >= 0)
    claimed = group[hits]
    logs.claimed[claimed] = True
    base = Piece(batch, Keys(keys), 0)
    if not len(hits):
        yield from merge.merge(Window([[base]], [True], facts))
        return
    versions = logs.batch.take(index_array(logs.rows_of(claimed)))
    piece = Piece(versions, Keys(versions.column(facts.rule.key)), None)
    window = Window([[base], [piece]], [True, False], facts)
    slots = np.repeat(hits + 1, logs.sizes[claimed]) + np.arange(versions.num_rows)
    first = np.ones(window.num_rows, np.bool_)
    first[slots] = False
    order = np.empty(window.num_rows, np.int64)
    order[slots] = batch.num_rows + np.arange(versions.num_rows)
    order[first] = np.arange(batch.num_rows)
    yield from merge.merge_ordered(window, RowOrder(order, first), window.deleted())


def _merge_rest(merge: WindowMerge, logs: _Logs, start: int, end: int, facts: RunFacts) -> Iterator[pa.RecordBatch]:
    groups = start + np.flatnonzero(~logs.claimed[start:end])
    if not len(groups):
        return
    versions = logs.batch.take(index_array(logs.rows_of(groups)))
    piece = Piece(versions, Keys(versions.column(facts.rule.key)), None)
    window = Window([[piece]], [False], facts)
    first = np.zeros(window.num_rows, np.bool_)
    sizes = logs.sizes[groups]
    first[np.cumsum(sizes) - sizes] = True
    yield from merge.merge_ordered(window, RowOrder(np.arange(window.num_rows), first), window.deleted())
