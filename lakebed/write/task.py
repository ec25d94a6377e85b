"""The body of a write task: rows of one file group in, one sorted file out.

    CREATE   rows ──► fold of repeated keys ──► base file                    (the group's first slice)
    MERGE    base file + rows ──► fold ──► new base file                     (copy-on-write, small files)
    APPEND   rows ──► fold, tombstones kept ──► log: data and deletes        (merge-on-read)

The fold is the table's own merge rule, so that what a batch says twice means what two batches would have said. A row
that this write brought carries the write's begin time; every other row keeps its commit time and sequence number. The
same function runs in a thread here and in a Spark task; nothing in it knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.log_writer import LogSpec, LogWriter
from lakebed.datafile.log_writer_v1 import InlineLogWriter
from lakebed.datafile.log_writer_v2 import NativeLogWriter
from lakebed.datafile.writers import BaseFileWriter, FileSchema, RollingBaseWriter, WriteTarget, WrittenFile
from lakebed.format.names import PARTITION_METAFILE, MarkerType
from lakebed.format.table_files import PartitionMetafile, render_partition_metafile
from lakebed.merge.file_group_reader import FileGroupReader, TableShape
from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.record_merger import MergeRule, Op
from lakebed.merge.runs import OP_COLUMN, Run
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.merge.vectors import index_array
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.schema import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME
from lakebed.storage.storage import Storage, joined
from lakebed.write.marked import marking

NEVER = 1 << 62
OpenRows = Callable[[int], Iterator[pa.RecordBatch]]


class Target(StrEnum):
    """What becomes of the rows of a group."""

    CREATE = "create"
    MERGE = "merge"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """One file group of a write. `slice` is what is there before, None for a new group."""

    file_group: FileGroupId
    kind: Target
    slice: FileSlice | None = None
    may_roll: bool = False
    """Whether rows past the file size may go into further groups: not where a hash says which group a key is in."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What all tasks of one write share; picklable."""

    storage: Storage
    shape: TableShape
    schema: FileSchema
    begin_time: str
    options: WriteOptions
    native_logs: bool = True
    fold: bool = True
    """Fold repeated keys of the batch; without it inserts keep their duplicates (default layout only)."""
    partial: bool = False
    bloom_filter: bool = False
    memory: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a write brings to one group: rows in order of arrival, and keys to delete. A key is in one of the two."""

    rows: OpenRows | None = None
    deletes: OpenRows | None = None


def write_group(
    context: WriteContext, target: GroupTarget, incoming: Incoming, task: int, token: str
) -> list[WrittenFile]:
    """Write what came for one group; what was written, for the commit."""
    write = {Target.CREATE: _create, Target.MERGE: _merge, Target.APPEND: _append}[target.kind]
    return write(context, target, incoming, _Numbers(context.begin_time, task), token)


def ensure_partition(context: WriteContext, partition_path: str) -> None:
    """Leave the file by which readers know a folder as a partition; whoever comes first writes it."""
    path = joined(partition_path, PARTITION_METAFILE)
    depth = len(partition_path.split("/")) if partition_path else 0
    if context.storage.stat(path) is None:
        metafile = PartitionMetafile(commit_time=context.begin_time, depth=depth)
        context.storage.put_if_absent(path, render_partition_metafile(metafile, ["partition metadata"]))


# ---------------------------------------------------------------------- the three targets
def _create(
    context: WriteContext, target: GroupTarget, incoming: Incoming, numbers: _Numbers, token: str
) -> list[WrittenFile]:
    if incoming.rows is None:
        return []
    ensure_partition(context, target.file_group.partition_path)
    is_sorted = context.fold
    if context.fold:
        runs = [_rows_run(context, incoming.rows)]
        merged = sorted_merge(runs, _batch_rule(context.shape.rule), context.schema.arrow, memory=context.memory)
    else:
        merged = _stamped(context, incoming.rows(context.options.row_group_rows))
    options = context.options if target.may_roll else replace(context.options, max_file_size=NEVER)
    writer = RollingBaseWriter(lambda number: _open_base(context, target, token, number, is_sorted), options)
    try:
        for batch in merged:
            writer.write(numbers.stamp(batch), inserts=batch.num_rows)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _merge(
    context: WriteContext, target: GroupTarget, incoming: Incoming, numbers: _Numbers, token: str
) -> list[WrittenFile]:
    piece = target.slice
    if piece is None or piece.base_file is None:
        return _create(context, target, incoming, numbers, token)
    reader = FileGroupReader(context.storage, context.shape, ReadOptions(memory=context.memory), context.schema.arrow)
    runs = reader.runs(piece, context.schema.arrow)
    with_batch = [*runs, *_incoming_runs(context, incoming, len(runs))]
    merge = sorted_merge if context.fold and context.shape.layout == "lsm_tree" else hash_merge
    is_sorted = merge is sorted_merge
    base_rows = _Counter()
    with_batch[0] = replace(runs[0], open=base_rows.counting(runs[0].open))
    kept = fresh = 0
    with _open_base(context, target, token, 0, is_sorted, io_type=MarkerType.MERGE) as writer:
        for batch in merge(with_batch, context.shape.rule, context.schema.arrow, memory=context.memory):
            new = pc.sum(numbers.is_new(batch)).as_py() or 0
            fresh += new
            kept += batch.num_rows - new
            writer.write(numbers.stamp(batch))
        gone = base_rows.rows - kept
        updates = min(gone, fresh)
        writer.counts.updates = updates
        writer.counts.inserts = fresh - updates
        writer.counts.deletes = gone - updates
        return [writer.close()]


def _append(
    context: WriteContext, target: GroupTarget, incoming: Incoming, numbers: _Numbers, token: str
) -> list[WrittenFile]:
    rule = _batch_rule(context.shape.rule)
    runs = _incoming_runs(context, incoming, 1)
    merged = sorted_merge(runs, rule, context.schema.arrow, memory=context.memory, keep_deletes=True)
    ensure_partition(context, target.file_group.partition_path)
    writer = _open_log(context, target, token)
    try:
        for batch in merged:
            ops = batch.column(OP_COLUMN)
            is_row = pc.equal(ops, int(Op.ROW))
            data = batch.filter(is_row)
            if data.num_rows:
                writer.write_rows(numbers.stamp(data.select(context.schema.arrow.names)))
            if data.num_rows < batch.num_rows:
                writer.write_deletes(_tombstones(batch.filter(pc.invert(is_row)), rule))
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _tombstones(batch: pa.RecordBatch, rule: MergeRule) -> pa.RecordBatch:
    """Key and ordering values of deletes; one without an ordering value has nulls there."""
    ordered = pc.equal(batch.column(OP_COLUMN), int(Op.DELETE_WITH_ORDERING))
    names = [rule.key, *rule.ordering]
    columns = [batch.column(rule.key)]
    for name in rule.ordering:
        column = batch.column(name)
        columns.append(pc.if_else(ordered, column, pa.scalar(None, column.type)))
    return pa.RecordBatch.from_arrays(columns, names=names)


# ---------------------------------------------------------------------- pieces
def _rows_run(context: WriteContext, rows: OpenRows, age: int = 1) -> Run:
    return Run(
        age=age,
        is_sorted=False,
        open=lambda wanted: _stamped(context, rows(wanted)),
        is_partial=context.partial,
        instant_time=context.begin_time,
        label="the incoming rows",
    )


def _incoming_runs(context: WriteContext, incoming: Incoming, age: int) -> list[Run]:
    """The rows and the deletes of a write, above everything that is there."""
    runs = [] if incoming.rows is None else [_rows_run(context, incoming.rows, age)]
    if incoming.deletes is not None:
        deletes = incoming.deletes
        runs.append(
            Run(age + 1, False, deletes, is_delete=True, instant_time=context.begin_time, label="the incoming deletes")
        )
    return runs


def _stamped(context: WriteContext, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the write's begin as their commit time; sequence numbers come when it is known which rows stay."""
    for batch in batches:
        time = pa.repeat(pa.scalar(context.begin_time, pa.string()), batch.num_rows)
        empty = pa.nulls(batch.num_rows, pa.string())
        given = {COMMIT_TIME: time, COMMIT_SEQNO: empty, FILE_NAME: empty}
        names = context.schema.arrow.names
        columns = [given[name] if name in given else batch.column(name) for name in names]
        yield pa.RecordBatch.from_arrays(columns, schema=context.schema.arrow)


def _batch_rule(rule: MergeRule) -> MergeRule:
    """Within a batch whole records compete; filling one version from another waits until they meet in the table."""
    return replace(rule, partial_update=None)


def _open_base(
    context: WriteContext,
    target: GroupTarget,
    token: str,
    number: int,
    is_sorted: bool,
    io_type: MarkerType = MarkerType.CREATE,
) -> BaseFileWriter:
    group = target.file_group
    if number:
        stem = group.file_id.rpartition("-")[0]
        group = FileGroupId(group.partition_path, f"{stem}-{number}")
    previous = target.slice.base_file.instant_time if target.slice and target.slice.base_file else None
    where = WriteTarget(group, context.begin_time, token, previous)
    return BaseFileWriter(
        marking(context.storage, context.begin_time, io_type),
        where,
        context.schema,
        context.options,
        is_sorted=is_sorted,
        bloom_filter=context.bloom_filter,
    )


def _open_log(context: WriteContext, target: GroupTarget, token: str) -> LogWriter:
    ordering = tuple(context.schema.arrow.field(name) for name in context.shape.rule.ordering)
    spec = LogSpec(context.schema, ordering, is_partial=context.partial)
    base = target.slice.base_file if target.slice else None
    where = WriteTarget(target.file_group, context.begin_time, token, base.instant_time if base else None)
    storage = marking(context.storage, context.begin_time, MarkerType.CREATE)
    if context.native_logs:
        return NativeLogWriter(storage, where, spec, context.options)
    return InlineLogWriter(storage, where, spec, context.options)


class _Counter:
    """Counts the rows of a run while it is read."""

    def __init__(self) -> None:
        self.rows = 0

    def counting(self, open_rows: OpenRows) -> OpenRows:
        def counted(wanted: int) -> Iterator[pa.RecordBatch]:
            self.rows = 0
            for batch in open_rows(wanted):
                self.rows += batch.num_rows
                yield batch

        return counted


@dataclass(slots=True)
class _Numbers:
    """Sequence numbers `<begin>_<task>_<n>` for the rows that this write brought."""

    begin_time: str
    task: int
    given: int = 0

    def is_new(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.equal(batch.column(COMMIT_TIME), pa.scalar(self.begin_time, pa.string()))

    def stamp(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a number for every new row; other rows keep theirs."""
        index = batch.schema.get_field_index(COMMIT_SEQNO)
        if index < 0:
            return batch
        count = batch.num_rows
        numbers = index_array(np.arange(self.given, self.given + count, dtype=np.int64)).cast(pa.string())
        self.given += count
        texts = pc.binary_join_element_wise(f"{self.begin_time}_{self.task}", numbers, "_")
        kept = pc.if_else(self.is_new(batch), texts, batch.column(index))
        return batch.set_column(index, batch.schema.field(index), kept)
