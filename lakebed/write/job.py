"""A write from Arrow data in this process, on one screen.

    prepared rows ──► piles by file group ──► begin ──► a task per group ──► commit
                          (write/placing)                (write/task)

Everything that the data itself can get wrong is found before the write begins, for rows are prepared and piled up (on
disk past the memory given) first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.config.write_options import WriteOptions
from lakebed.datafile.writers import FileSchema, WrittenFile
from lakebed.errors import ConflictError
from lakebed.merge.file_group_reader import TableShape
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant
from lakebed.model.schema import table_avro, without_meta_fields
from lakebed.runner import Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control
from lakebed.txn.transaction import Transaction
from lakebed.write.operation import Operation
from lakebed.write.placing import Placed, Placing
from lakebed.write.scatter import Scatter
from lakebed.write.task import WriteContext, write_group

SCHEMA_KEY = "schema"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a write did. On merge-on-read tables rows that go to logs count as updates: nothing looks for older ones."""

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
    """What is written and how; the same for rows from Arrow and from Spark."""

    operation: Operation
    shape: TableShape
    schema_json: str
    """The table's schema after the write, without meta columns."""
    options: WriteOptions
    properties: Mapping[str, str] = field(default_factory=dict)
    memory: int = 256 << 20
    partitions: tuple[str, ...] | None = None
    """For replacing operations: the partitions that are replaced; None means those that rows come for."""
    partial: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


def run_write(
    client: MetaClient,
    control: Control,
    request: WriteRequest,
    rows: Iterable[pa.RecordBatch],
    runner: Runner,
    deletes: Iterable[pa.RecordBatch] = (),
) -> CommitResult:
    """Write prepared rows (and keys to delete) as one commit."""
    with Scatter(request.memory // 2) as scatter:
        placing = Placing(client, request.operation, request.options, request.properties, runner, request.shape)
        placing.pile_up(scatter, rows, deletes)
        with begin(client, control, request) as txn:
            placed = placing.finish(scatter, txn.snapshot)
            refuse_pending_clustering(txn.snapshot, (piece.target.file_group for piece in placed))
            context = write_context(txn, request, parallel=_threads(runner, placed))
            tasks = [_Task(context, number, piece) for number, piece in enumerate(placed)]
            written = [file for files in runner.map(_Task.run, tasks, label="write") for file in files]
            touched = {piece.target.file_group.partition_path for piece in placed}
            return commit(txn, request, written, replaced_groups(txn.snapshot, request, touched))


def begin(client: MetaClient, control: Control, request: WriteRequest) -> Transaction:
    """Announce the write."""
    return Transaction.begin(client, request.operation.action(client.config), control, operation=request.operation)


def write_context(txn: Transaction, request: WriteRequest, parallel: int = 1) -> WriteContext:
    """What the tasks of a write must know."""
    config = txn.snapshot.config
    return WriteContext(
        storage=txn.snapshot.storage,
        shape=request.shape,
        schema=FileSchema.of_table(without_meta_fields(request.shape.schema), config.name),
        begin_time=txn.begin_time,
        options=request.options,
        native_logs=config.version.has_native_logs,
        fold=request.operation.folds(request.options, config),
        partial=request.partial,
        bloom_filter="BLOOM" in (config.index_type or ""),
        memory=max(1 << 20, request.memory // max(1, parallel)),
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
    instant = txn.commit(body)
    return CommitResult.of(instant, [file.stat for file in written])


def replaced_groups(snapshot: MetaClient, request: WriteRequest, touched: set[str]) -> dict[str, tuple[str, ...]]:
    """The groups that vanish with the commit of a replacing operation."""
    if not request.operation.replaces:
        return {}
    return Placing.groups_of(snapshot, request.partitions, touched)


def refuse_pending_clustering(snapshot: MetaClient, groups: Iterable[FileGroupId]) -> None:
    """Updates of a group that is being clustered would be lost with it."""
    wanted = set(groups)
    for instant, plan in snapshot.pending_clusterings():
        for group in plan.clustering.groups if plan.clustering else ():
            for piece in group.slices:
                found = FileGroupId(piece.partition_path, piece.file_id)
                if found in wanted:
                    raise ConflictError(
                        f"the file group {found} is being clustered by {instant.requested_time}",
                        hint="Run or roll back the clustering, then write again.",
                    )


@dataclass(frozen=True, slots=True)
class _Task:
    context: WriteContext
    number: int
    placed: Placed

    def run(self) -> list[WrittenFile]:
        token = f"{self.number}-0-{os.getpid()}"
        return write_group(self.context, self.placed.target, self.placed.incoming, self.number, token)


def _threads(runner: Runner, placed: Sequence[Placed]) -> int:
    threads = getattr(runner, "threads", None) or os.cpu_count() or 1
    return max(1, min(threads, len(placed)))


def table_schema_json(schema: pa.Schema, name: str) -> str:
    """The Avro text of a table's schema, as commits carry it."""
    return json.dumps(table_avro(without_meta_fields(schema), name))
