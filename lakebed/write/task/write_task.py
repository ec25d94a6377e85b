"""The body of a write task: rows of one file group in, one sorted file out.

    CREATE   rows ──► fold of repeated keys ──► base file                    (the group's first slice)
    MERGE    base file + rows ──► fold ──► new base file                     (copy-on-write, small files)
    APPEND   rows ──► fold, tombstones kept ──► log: data and deletes        (merge-on-read)

The fold is the table's own merge rule, so that two rows of one key in a batch have the same result as in two batches. A
row of this write gets the write's requested time; every other row keeps its commit time and sequence number. The same
function runs in a thread of this process and in a Spark task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from lakebed.config.memory_plan import WriteTaskMemory
from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.log_writer import LogSpec, LogWriter
from lakebed.datafile.log_writer_v1 import InlineLogWriter
from lakebed.datafile.log_writer_v2 import NativeLogWriter
from lakebed.datafile.writers import (
    STATES_UNIQUE,
    BaseFileWriter,
    FileSchema,
    RollingBaseWriter,
    WriteTarget,
    WrittenFile,
    without_place,
)
from lakebed.format.names import PARTITION_METAFILE, MarkerType
from lakebed.format.table_files import PartitionMetafile, render_partition_metafile
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.reader_context import LSM_TREE, ReaderContext
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.merge.spill import Spill
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.schema import IS_DELETED
from lakebed.storage.storage import Storage, joined
from lakebed.write.rows.batch_fold import batch_rule, folded_runs
from lakebed.write.task.marking_storage import marking
from lakebed.write.task.meta_columns import OpenRows, Replaced, SequenceNumbers, log_rows, with_meta_columns

NEVER = 1 << 62


class Target(StrEnum):
    """How the rows of a group are written."""

    CREATE = "create"
    MERGE = "merge"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """One file group of a write. `slice` is its latest file slice before the write, None for a new group."""

    file_group: FileGroupId
    kind: Target
    slice: FileSlice | None = None
    may_roll: bool = False
    """Whether rows past the file size may go into further groups: not where a hash determines the group of a key."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What all tasks of one write share; picklable."""

    storage: Storage
    reader_context: ReaderContext
    schema: FileSchema
    requested_time: str
    options: WriteOptions
    memory: WriteTaskMemory
    native_logs: bool = True
    fold: bool = True
    """Fold repeated keys of the batch; without it inserts keep their duplicates (default layout only)."""
    keeps_known: bool = False
    """Rows are added beside rows of the same key in the file: inserts without a look-up (default layout)."""
    partial: bool = False
    bloom_filter: bool = False
    populate_meta_fields: bool = True
    """Whether files store the meta columns of rows; rows in memory always have them."""

    @property
    def merge_memory(self) -> int:
        """The memory of the merge of one task."""
        return self.memory.merge.ceiling

    @property
    def is_sorted(self) -> bool:
        """Whether every file of the table is sorted by key."""
        return self.reader_context.layout == LSM_TREE

    @property
    def wanted(self) -> pa.Schema:
        """The columns of rows in memory: file writers add partition path and file name."""
        return without_place(self.schema.arrow)


@dataclass(frozen=True, slots=True)
class Incoming:
    """The incoming data of one group: rows in order of arrival, and keys to delete. A key is in one of the two."""

    rows: OpenRows | None = None
    deletes: OpenRows | None = None
    rows_bytes: int | None = None
    deletes_bytes: int | None = None


def write_group(
    context: WriteContext, target: GroupTarget, incoming: Incoming, task: int, token: str
) -> list[WrittenFile]:
    """Write the incoming data of one group; returns the written files, for the commit."""
    write = {Target.CREATE: _create, Target.MERGE: _merge, Target.APPEND: _append}[target.kind]
    return write(context, target, incoming, SequenceNumbers(context.requested_time, task), token)


def ensure_partition(context: WriteContext, partition_path: str) -> None:
    """Create the file that marks a folder as a partition, unless another task has created it."""
    path = joined(partition_path, PARTITION_METAFILE)
    depth = len(partition_path.split("/")) if partition_path else 0
    if context.storage.stat(path) is None:
        metafile = PartitionMetafile(commit_time=context.requested_time, depth=depth)
        context.storage.put_if_absent(path, render_partition_metafile(metafile, ["partition metadata"]))


# ---------------------------------------------------------------------- the three targets
def _create(
    context: WriteContext, target: GroupTarget, incoming: Incoming, numbers: SequenceNumbers, token: str
) -> list[WrittenFile]:
    if incoming.rows is None:
        return []
    options = context.options if target.may_roll else replace(context.options, max_file_size=NEVER)
    ensure_partition(context, target.file_group.partition_path)
    writer = RollingBaseWriter(lambda number: _open_base(context, target, token, number, context.fold), options)
    try:
        for batch in _new_rows(context, incoming.rows, incoming.rows_bytes):
            writer.write(numbers.stamp(batch), inserts=batch.num_rows)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _merge(
    context: WriteContext, target: GroupTarget, incoming: Incoming, numbers: SequenceNumbers, token: str
) -> list[WrittenFile]:
    file_slice = target.slice
    if file_slice is None or file_slice.base_file is None:
        return _create(context, target, incoming, numbers, token)
    wanted = context.wanted
    reader = FileGroupReader(context.storage, context.reader_context, ReadOptions(memory=context.merge_memory), wanted)
    runs = reader.runs(file_slice, wanted)
    changes = [] if context.keeps_known else [each for each in (incoming.rows, incoming.deletes) if each]
    replaced = Replaced(changes, context.memory.merge.incoming_keys)
    runs[0] = replace(runs[0], open=replaced.watching(runs[0].open))
    is_sorted, repeats = context.is_sorted, runs[0].may_repeat or context.keeps_known
    with Spill() as spill:
        if context.keeps_known and incoming.rows is not None:
            merged, is_sorted = _existing_then_new(context, runs, incoming), False
        else:
            merged = _existing_with_changes(context, runs, incoming, spill)
        with _open_base(context, target, token, 0, is_sorted, io_type=MarkerType.MERGE, repeats=repeats) as writer:
            for batch in merged:
                replaced.add(batch, numbers.is_new(batch))
                writer.write(numbers.stamp(batch))
            writer.counts.updates = replaced.updates
            writer.counts.inserts = replaced.inserts
            writer.counts.deletes = replaced.deletes
            return [writer.close()]


def _append(
    context: WriteContext, target: GroupTarget, incoming: Incoming, numbers: SequenceNumbers, token: str
) -> list[WrittenFile]:
    rule = batch_rule(context.reader_context.rule)
    runs = _incoming_runs(context, incoming, 1)
    merged = sorted_merge(runs, rule, context.wanted, memory=context.merge_memory, keep_deletes=True, encoded=True)
    ensure_partition(context, target.file_group.partition_path)
    writer = _open_log(context, target, token)
    try:
        for part in log_rows(merged, rule, context.wanted.names):
            if part.earlier.num_rows:
                writer.write_earlier_deletes(part.earlier)
            if part.rows.num_rows:
                writer.write_rows(numbers.stamp(part.rows))
            if part.deletes.num_rows:
                writer.write_deletes(part.deletes)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


# ---------------------------------------------------------------------- slices
def _new_rows(context: WriteContext, rows: OpenRows, nbytes: int | None) -> Iterator[pa.RecordBatch]:
    """The incoming rows as they go into a base file: one per key, or all of them in their order."""
    if not context.fold:
        yield from with_meta_columns(rows(context.options.row_group_rows), context.wanted, context.requested_time)
        return
    run, rule = _rows_run(context, rows, nbytes), batch_rule(context.reader_context.rule)
    yield from sorted_merge([run], rule, context.wanted, memory=context.merge_memory, encoded=True)


def _existing_then_new(context: WriteContext, runs: list[Run], incoming: Incoming) -> Iterator[pa.RecordBatch]:
    """The existing rows unchanged, then the new rows."""
    yield from hash_merge(runs, context.reader_context.rule, context.wanted, memory=context.merge_memory)
    if incoming.rows is not None:
        yield from _new_rows(context, incoming.rows, incoming.rows_bytes)


def _existing_with_changes(
    context: WriteContext, runs: list[Run], incoming: Incoming, spill: Spill
) -> Iterator[pa.RecordBatch]:
    """The existing rows merged with the incoming rows and deletes."""
    rule, wanted, memory = context.reader_context.rule, context.wanted, context.merge_memory
    changes = folded_runs(_incoming_runs(context, incoming, len(runs)), rule, wanted, spill, memory)
    if context.is_sorted:
        return sorted_merge([*runs, *changes], rule, wanted, memory=memory, encoded=True)
    return hash_merge([*runs, *changes], rule, wanted, memory=memory)


def _rows_run(context: WriteContext, rows: OpenRows, nbytes: int | None, age: int = 1) -> Run:
    return Run(
        age=age,
        is_sorted=False,
        open=lambda wanted: with_meta_columns(rows(wanted), context.wanted, context.requested_time),
        requested_time=context.requested_time,
        nbytes=nbytes,
        label="the incoming rows",
    )


def _incoming_runs(context: WriteContext, incoming: Incoming, age: int) -> list[Run]:
    """The rows and the deletes of a write, as runs newer than all existing ones."""
    runs = [] if incoming.rows is None else [_rows_run(context, incoming.rows, incoming.rows_bytes, age)]
    if incoming.deletes is not None:
        runs.append(
            Run(
                age + 1,
                False,
                incoming.deletes,
                is_delete=True,
                requested_time=context.requested_time,
                nbytes=incoming.deletes_bytes,
                label="the incoming deletes",
            )
        )
    return runs


def _open_base(
    context: WriteContext,
    target: GroupTarget,
    token: str,
    number: int,
    is_sorted: bool,
    io_type: MarkerType = MarkerType.CREATE,
    *,
    repeats: bool | None = None,
) -> BaseFileWriter:
    group = target.file_group
    if number:
        stem = group.file_id.rpartition("-")[0]
        group = FileGroupId(group.partition_path, f"{stem}-{number}")
    previous = target.slice.base_file.requested_time if target.slice and target.slice.base_file else None
    where = WriteTarget(group, context.requested_time, token, previous)
    return BaseFileWriter(
        marking(context.storage, context.requested_time, io_type),
        where,
        context.schema,
        context.options,
        is_sorted=is_sorted,
        bloom_filter=context.bloom_filter,
        populate_meta_fields=context.populate_meta_fields,
        may_repeat=bool(repeats),
        footer=STATES_UNIQUE if repeats is False and not is_sorted else None,
    )


def _open_log(context: WriteContext, target: GroupTarget, token: str) -> LogWriter:
    ordering = tuple(context.reader_context.schema.field(name) for name in context.reader_context.rule.ordering)
    spec = LogSpec(
        context.schema,
        ordering,
        is_partial=context.partial,
        has_earlier_deletes=_may_delete_first(context.reader_context.rule, context.schema.arrow),
        populate_meta_fields=context.populate_meta_fields,
    )
    base = target.slice.base_file if target.slice else None
    where = WriteTarget(target.file_group, context.requested_time, token, base.requested_time if base else None)
    storage = marking(context.storage, context.requested_time, MarkerType.CREATE)
    if context.native_logs:
        return NativeLogWriter(storage, where, spec, context.options)
    return InlineLogWriter(storage, where, spec, context.options)


def _may_delete_first(rule: MergeRule, schema: pa.Schema) -> bool:
    """Whether a batch can delete a key without ordering value and insert it again: by delete marks, with event time."""
    return rule.by_event_time and (IS_DELETED in schema.names or rule.delete_field in schema.names)
