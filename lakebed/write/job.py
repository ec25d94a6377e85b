"""A write from Arrow data in this process, from prepared rows to the commit.

    prepared rows ──► buffers by file group ──► request ──► a task per group ──► commit
                          (write/tagging)                     (write/task)

Every error in the data is found before the write is requested on the timeline, because rows are prepared and buffered
first (on disk, once they exceed the memory of the write).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakebed.config.memory_plan import DEFAULT_WRITE_MEMORY, MemoryPlan, WriteMemory, WriteTaskMemory
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.writers import FileSchema, WrittenFile
from lakebed.errors import ConflictError, StorageUnavailable
from lakebed.index.choose import open_index
from lakebed.index.consistent import mark_committed
from lakebed.index.kinds import wants_bloom_filters
from lakebed.index.options import IndexOptions
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant
from lakebed.model.schema import table_avro, without_meta_fields
from lakebed.runner import Runner, SerialRunner
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.conflicts import Touched, completed_since, conflicts, schema_still_the_same
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from lakebed.view.file_system_view import FileLister, FileSystemView
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GroupBuffers
from lakebed.write.schema_history import forget_histories, save_history
from lakebed.write.tagging.tagging import TaggedGroup, Tagging, index_context
from lakebed.write.tagging.targets import groups_of_partitions
from lakebed.write.task.parallelism import Parallelism
from lakebed.write.task.write_task import Target, WriteContext, write_group

SCHEMA_KEY = "schema"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a write did. On merge-on-read tables rows in logs count as updates: no older version is looked up."""

    instant: str
    completion_time: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, instant: Instant, stats: Sequence[WriteStat]) -> CommitResult:
        return cls(
            instant.requested_time,
            instant.completion_time or "",
            sum(stat.num_inserts for stat in stats),
            sum(stat.num_updates for stat in stats),
            sum(stat.num_deletes for stat in stats),
            tuple(stat.path for stat in stats if stat.path),
        )


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What to write and how; the same for rows from Arrow and from Spark."""

    operation: Operation
    reader_context: ReaderContext
    schema_json: str
    """The table's schema after the write, without meta columns."""
    options: WriteOptions
    index_options: IndexOptions
    properties: Mapping[str, str] = field(default_factory=dict)
    memory: int = DEFAULT_WRITE_MEMORY
    partitions: tuple[str, ...] | None = None
    """For replacing operations: the partitions to replace; None means the partitions of the incoming rows."""
    partial: bool = False
    columns: tuple[str, ...] | None = None
    """For partial rows: the table's columns that they contain, besides the meta columns."""
    reads: bool = False
    """Whether the rows were computed from rows of the table: then no other write may have changed those meanwhile."""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def shares(self) -> WriteMemory:
        """How the memory is divided."""
        return MemoryPlan(self.memory).write


def run_write(
    client: MetaClient,
    txn_context: TxnContext,
    request: WriteRequest,
    rows: Iterable[pa.RecordBatch],
    runner: Runner,
    deletes: Iterable[pa.RecordBatch] = (),
    *,
    in_memory: bool = False,
) -> CommitResult:
    """Write prepared rows (and keys to delete) as one commit; `in_memory`: the caller holds the rows in memory."""
    with GroupBuffers(request.shares.buffers) as group_buffers:
        tagging = tagging_of(client, request, runner)
        tagging.buffer_rows(group_buffers, rows, deletes, in_memory=in_memory)
        with begin(client, txn_context, request) as txn:
            tagged = tagging.finish(group_buffers, txn.snapshot, txn.view)
            if request.reads or request.partial:
                refuse_changed(client, txn, request, tagged)
            refuse_pending_clustering(txn.snapshot, (tagged_group.target.file_group for tagged_group in tagged))
            parallelism = Parallelism.of(runner, len(tagged), request.shares.tasks_at_once)
            context = write_context(txn, request, parallelism)
            tasks = [_Task(context, number, tagged_group) for number, tagged_group in enumerate(tagged)]
            written = [file for files in parallelism.runner.map(_Task.run, tasks, label="write") for file in files]
            touched = {tagged_group.target.file_group.partition_path for tagged_group in tagged}
            return commit(txn, request, written, replaced_groups(txn.view, request, touched))


def tagging_of(client: MetaClient, request: WriteRequest, runner: Runner, lister: FileLister | None = None) -> Tagging:
    """The object that assigns the rows of a write to file groups."""
    return Tagging(
        client,
        request.operation,
        request.options,
        request.index_options,
        request.properties,
        runner,
        request.reader_context,
        request.memory,
        lister,
    )


def begin(client: MetaClient, txn_context: TxnContext, request: WriteRequest) -> Transaction:
    """Start the transaction; fails if the schema that the rows were prepared for has changed since."""
    action = request.operation.action(client.config)
    txn = Transaction.begin(client, action, txn_context, operation=request.operation)
    try:
        schema_still_the_same(client, txn.snapshot)
    except BaseException:
        txn.abort()
        raise
    return txn


def write_context(txn: Transaction, request: WriteRequest, parallelism: Parallelism) -> WriteContext:
    """The settings that all tasks of a write share."""
    config, storage = txn.snapshot.config, txn.snapshot.storage
    share = request.shares.task(parallelism.count)
    hashed = request.index_options.is_hashed
    own = without_meta_fields(request.reader_context.schema)
    if request.partial and request.columns is not None:
        own = pa.schema([item for item in own if item.name in request.columns])
    return WriteContext(
        storage=storage,
        reader_context=request.reader_context,
        schema=FileSchema.of_table(own, config.name, version=request.reader_context.schema_id),
        requested_time=txn.requested_time,
        options=_fitted(request.options, share, parallelism.write_buffer(request.options, share.write_buffer, storage)),
        native_logs=config.version.has_native_logs,
        fold=request.operation.folds(request.options, config, is_hashed=hashed),
        keeps_known=request.operation.keeps_known(config, is_hashed=hashed),
        partial=request.partial,
        bloom_filter=wants_bloom_filters(config.index_type),
        populate_meta_fields=config.populate_meta_fields,
        memory=share,
    )


def commit(
    txn: Transaction,
    request: WriteRequest,
    written: Sequence[WrittenFile],
    replaced: Mapping[str, tuple[str, ...]],
) -> CommitResult:
    """Publish what the tasks wrote."""
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for file in written:
        known = stats.get(file.stat.partition_path, ())
        stats[file.stat.partition_path] = (*known, file.stat)
    body = CommitMetadata(
        operation=str(request.operation),
        stats=stats,
        extra={**request.extra, SCHEMA_KEY: request.schema_json},
        replaced_file_ids=replaced,
    )
    rings = _renew_rings(txn, request, replaced)
    on_read = request.reader_context.on_read
    if on_read is not None:
        save_history(txn.snapshot.storage, txn.requested_time, on_read.history)
    instant = txn.commit(body)
    if on_read is not None:
        forget_histories(txn.snapshot)
    for partition in rings:
        with suppress(StorageUnavailable):  # the ring is valid by its instant while that is on the timeline
            mark_committed(txn.snapshot, partition, txn.requested_time)
    return CommitResult.of(instant, [file.stat for file in written])


def _renew_rings(txn: Transaction, request: WriteRequest, replaced: Iterable[str]) -> list[str]:
    """Consistent hashing: new rings for partitions that are replaced, because replaced file ids are not used again."""
    if not request.index_options.is_consistent_bucket:
        return []
    context = index_context(txn.snapshot, txn.view, request.reader_context, SerialRunner(), request.memory)
    index = open_index(context, request.index_options, request.properties)
    partitions = sorted(replaced)
    for partition in partitions:
        index.renew_partition(partition, txn.requested_time)
    return partitions


def replaced_groups(view: FileSystemView, request: WriteRequest, touched: set[str]) -> dict[str, tuple[str, ...]]:
    """The file groups that the commit of a replacing operation removes."""
    if not request.operation.replaces:
        return {}
    return groups_of_partitions(view, request.partitions, touched)


def refuse_pending_clustering(snapshot: MetaClient, groups: Iterable[FileGroupId]) -> None:
    """`ConflictError` if a group is being clustered: its updates would be lost when clustering replaces the group."""
    wanted = set(groups)
    for instant, plan in snapshot.pending_clusterings():
        for group in plan.clustering.groups if plan.clustering else ():
            for file_slice in group.slices:
                found = file_slice.file_group
                if found in wanted:
                    raise ConflictError(
                        f"the file group {found} is being clustered by {instant.requested_time}",
                        hint="Run or roll back the clustering, then write again.",
                    )


def refuse_changed(read: MetaClient, txn: Transaction, request: WriteRequest, tagged: Sequence[TaggedGroup]) -> None:
    """Refuse rows that were computed from rows of the table which a write that completed since may have changed.

    With a hashed index only the groups of the rows are compared; with other indexes a key may be in any group of its
    partition, so all groups of the partition are, and all groups of partitions that are replaced.
    """
    groups = frozenset(tagged_group.target.file_group for tagged_group in tagged)
    partitions = set(request.partitions or ())
    if not request.index_options.is_hashed:
        partitions |= {group.partition_path for group in groups}
    others = list(completed_since(read, txn.snapshot))
    groups |= {group for theirs in others for group in theirs.groups if group.partition_path in partitions}
    conflict = conflicts(Touched(txn.requested_time, groups, frozenset()), others)
    if conflict is not None:
        raise conflict
    if request.partial and any(tagged_group.target.kind is not Target.APPEND for tagged_group in tagged):
        raise ConflictError("rows to update were deleted by another write", hint="Try again.")


@dataclass(frozen=True, slots=True)
class _Task:
    context: WriteContext
    number: int
    tagged: TaggedGroup

    def run(self) -> list[WrittenFile]:
        token = f"{self.number}-0-{os.getpid()}"
        return write_group(self.context, self.tagged.target, self.tagged.incoming, self.number, token)


def _fitted(options: WriteOptions, share: WriteTaskMemory, write_buffer: int) -> WriteOptions:
    """Options whose buffers fit a task's share of the memory: queued rows, and rows of an unfinished row group."""
    return replace(
        options,
        write_buffer=write_buffer,
        row_group_size=min(options.row_group_size, share.row_group),
        log_block_max_size=min(options.log_block_max_size, share.row_group),
    )


def table_schema_json(schema: pa.Schema, name: str) -> str:
    """The Avro text of a table's schema, as commits carry it."""
    return json.dumps(table_avro(without_meta_fields(schema), name))
