"""The merge for runs that are not sorted: base rows stream in file order, log versions are looked up by key.

All log rows are held in memory, by key (`log_versions.py`); every base batch is looked up among the distinct keys, and
the keys that no base row has come last, as inserts. The fold is the same as in the sorted merge, from the base
upward; of a key that the base file repeats, the merged row takes the position of its first row. Logs merged among
themselves (log compaction) have no base row to look up: every key is folded from its versions, in key order. When the
logs outgrow the memory limit, everything goes through the sorted merge instead, which spills; then rows come in key
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakebed.config.memory_plan import READ_BUFFER, MergeMemory
from lakebed.errors import InvalidRequest
from lakebed.merge.arrow_numpy import Ints, index_array
from lakebed.merge.keys import Keys
from lakebed.merge.log_versions import Loaded, LogVersions, load_versions
from lakebed.merge.materialise import output_schema
from lakebed.merge.record_merger import MergeRule, require_among_logs
from lakebed.merge.row_order import RowOrder
from lakebed.merge.runs import Run, in_fold_order
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.merge.spill import gather_runs
from lakebed.merge.window import RowRange, RunFacts, Window
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
    """Merge the runs of a file group, base rows in base order and new keys after them.

    With `keep_deletes` there is no base, tombstones are kept as in `sorted_merge`, and rows come in key order.
    """
    ordered = in_fold_order(runs)
    bases = [run for run in ordered if run.is_base]
    if len(bases) > 1:
        raise InvalidRequest("a file slice has one base file at most")
    if keep_deletes and not bases:
        yield from _merge_logs(ordered, rule, schema, memory=memory, read_buffer=read_buffer)
        return
    if len(ordered) < 2 or not bases or keep_deletes:
        yield from sorted_merge(runs, rule, schema, memory=memory, read_buffer=read_buffer, keep_deletes=keep_deletes)
        return
    facts = RunFacts(ordered, rule, schema)
    shares = MergeMemory(memory)
    window_bytes = min(read_buffer, shares.window)
    rows = max(1, window_bytes // (bases[0].row_bytes or guess_row_bytes(schema)))
    loaded = load_versions(ordered, facts, limit=shares.log_versions, rows=rows)
    if loaded is None:
        yield from sorted_merge(runs, rule, schema, memory=memory, read_buffer=read_buffer)
        return
    merge = WindowMerge(facts, output_schema(schema, pa.field(rule.key, pa.string()), [], False), keep_deletes=False)
    for batch in bases[0].open(rows):
        if batch.num_rows:
            yield from _merge_base(merge, loaded, facts.conform(batch, 0), facts)
    for start in range(0, len(loaded.versions.starts), rows):
        groups = start + np.flatnonzero(~loaded.base.met[start : start + rows])
        if len(groups):
            yield from _merge_rest(merge, loaded.versions, groups, facts)


def _merge_logs(
    ordered: list[Run], rule: MergeRule, schema: pa.Schema, *, memory: int, read_buffer: int
) -> Iterator[pa.RecordBatch]:
    require_among_logs(ordered, rule)
    facts = RunFacts(ordered, rule, schema)
    shares = MergeMemory(memory)
    held = gather_runs(list(enumerate(ordered)), facts, shares.log_versions)
    if held is None:
        yield from sorted_merge(ordered, rule, schema, memory=memory, read_buffer=read_buffer, keep_deletes=True)
        return
    versions = LogVersions(held, facts)
    del held
    known = {field.name: field for field in versions.batch.schema}
    helpers = [known.get(name, pa.field(name, pa.null())) for name in (rule.key, *rule.ordering)]
    merge = WindowMerge(facts, output_schema(schema, helpers[0], helpers[1:], True), keep_deletes=True)
    rows = max(1, min(read_buffer, shares.window) // guess_row_bytes(schema))
    for start in range(0, len(versions.starts), rows):
        yield from _merge_rest(merge, versions, np.arange(start, min(start + rows, len(versions.starts))), facts)


def _merge_base(merge: WindowMerge, loaded: Loaded, batch: pa.RecordBatch, facts: RunFacts) -> Iterator[pa.RecordBatch]:
    logs = loaded.versions
    group, later = loaded.base.look_up(batch.column(facts.rule.key))
    if later.any():  # these are among the versions already
        keep = np.flatnonzero(~later)
        batch, group = batch.take(index_array(keep)), group[keep]
    base = RowRange(batch, Keys(batch.column(facts.rule.key)), 0)
    hits = np.flatnonzero(group >= 0)
    claimed = group[hits]
    if not len(hits):
        yield from merge.merge(Window([[base]], [True], facts))
        return
    versions = logs.batch.take(index_array(logs.rows_of(claimed)))
    row_range = RowRange(versions, Keys(versions.column(facts.rule.key)), None)
    window = Window([[base], [row_range]], [True, False], facts)
    slots = np.repeat(hits + 1, logs.sizes[claimed]) + np.arange(versions.num_rows)
    first = np.ones(window.num_rows, np.bool_)
    first[slots] = False
    order = np.empty(window.num_rows, np.int64)
    order[slots] = batch.num_rows + np.arange(versions.num_rows)
    order[first] = np.arange(batch.num_rows)
    yield from merge.merge_ordered(window, RowOrder(order, first), window.deleted())


def _merge_rest(merge: WindowMerge, logs: LogVersions, groups: Ints, facts: RunFacts) -> Iterator[pa.RecordBatch]:
    versions = logs.batch.take(index_array(logs.rows_of(groups)))
    row_range = RowRange(versions, Keys(versions.column(facts.rule.key)), None)
    window = Window([[row_range]], [False], facts)
    first = np.zeros(window.num_rows, np.bool_)
    sizes = logs.sizes[groups]
    first[np.cumsum(sizes) - sizes] = True
    yield from merge.merge_ordered(window, RowOrder(np.arange(window.num_rows), first), window.deleted())
