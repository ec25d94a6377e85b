"""Running compactions that are planned: slices become base files, logs become logs, and no answer changes.

    FULL   base file + logs ──► FileGroupReader ──► base file named after the compaction's requested time
           logs that complete meanwhile belong to the new slice already
    LOG    logs ──► the same merge, tombstones kept ──► a log that replaces them (services/log_compaction)

One task per file group, wherever the runner runs it. A compaction is published as a commit, a log compaction as a delta
commit. Rows keep the commit time and sequence number of the write that brought them. A run that died is undone and run
again under the same requested time, by the next process that runs compactions. Files that a plan names and a clean
deleted do not stop it (services/plan_inputs). A log compaction leaves a group out that a full compaction has taken over
since: what it would add is in the next base file.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial

from lakebed.config.memory_plan import DEFAULT_MEMORY, MemoryPlan
from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.parquet_metadata import Footers
from lakebed.datafile.writers import STATES_UNIQUE, BaseFileWriter, FileSchema, WriteTarget, without_place
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.format.names import MarkerType, parse_base_file
from lakebed.index.kinds import wants_bloom_filters
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import LSM_TREE, ReaderContext, ReadSplit
from lakebed.model.actions import CommitMetadata, CompactionPlan, WriteStat
from lakebed.model.files import FileGroupId, FileSlice, LogFile
from lakebed.model.instant import Instant
from lakebed.model.schema import OPERATION as OPERATION_FIELD
from lakebed.model.schema import without_meta_fields
from lakebed.paths import file_name
from lakebed.read.reader_context import reader_context_of_plan
from lakebed.runner import Runner
from lakebed.services.compaction_plan import OPERATIONS, full_plan
from lakebed.services.compaction_strategy import FULL, LOG
from lakebed.services.log_compaction import MergeLogs
from lakebed.services.plan_inputs import PlanInputs
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from lakebed.write.job import SCHEMA_KEY, table_schema_json
from lakebed.write.task.marking_storage import attempt_token, marking
from lakebed.write.task.parallelism import Parallelism
from lakebed.write.write_checks import version_report

__all__ = ["compact", "full_plan", "run_compaction"]


def run_compaction(
    client: MetaClient,
    planned: Instant,
    txn_context: TxnContext,
    runner: Runner,
    *,
    options: WriteOptions | None = None,
    memory: int = DEFAULT_MEMORY,
) -> Instant:
    """Carry out a compaction or log compaction that is on the timeline; the completed commit."""
    operation = OPERATIONS.get(planned.action)
    if operation is None:
        raise InvalidRequest(f"{planned} is no compaction")
    txn = Transaction.resume(client, planned, txn_context, operation=operation)
    return compact(txn, runner, options=options, memory=memory)


def compact(
    txn: Transaction, runner: Runner, *, options: WriteOptions | None = None, memory: int = 256 << 20
) -> Instant:
    """Carry out a compaction or log compaction that is inflight; the completed commit."""
    with txn:
        plan = txn.snapshot.plan(txn.instant)
        if not isinstance(plan, CompactionPlan):
            raise CorruptTable("a compaction without a plan", file=txn.snapshot.active.path(txn.instant))
        tasks = _tasks(txn, plan)
        parallelism = Parallelism.of(runner, len(tasks), MemoryPlan(memory).compactions_at_once)
        reader_context = reader_context_of_plan(txn.snapshot, txn.requested_time, _input_times(tasks))
        merging = _merging(txn, reader_context, options, memory, parallelism)
        by_partition: dict[str, tuple[WriteStat, ...]] = {}
        for stats in parallelism.runner.map(merging.run, tasks, label="compact"):
            for stat in stats:
                by_partition[stat.partition_path] = (*by_partition.get(stat.partition_path, ()), stat)
        extra = {
            **version_report(reader_context),
            SCHEMA_KEY: table_schema_json(reader_context.schema, txn.snapshot.config.name),
        }
        merged = {FileGroupId(one.partition_path, one.file_id) for one in plan.operations if one.kind == LOG}
        body = CommitMetadata(txn.operation, by_partition, extra, compacted=True)
        return txn.commit(body, partial(_without_overtaken, merged, txn.requested_time) if merged else None)


def _tasks(txn: Transaction, plan: CompactionPlan) -> list[_Task]:
    """What there is to do of a plan; groups whose files are gone and not needed are left out with a warning."""
    files = PlanInputs(txn.snapshot, txn.view)
    slices = [files.slice_of(operation) for operation in plan.operations]
    both = [(operation, file_slice) for operation, file_slice in zip(plan.operations, slices, strict=True)]
    left = [one.file_group for one, file_slice in both if file_slice is None]
    if left:
        what = f"the {txn.instant.action} {txn.requested_time} leaves out {len(left)} file groups, such as {left[0]}"
        warnings.warn(
            f"{what}: files that it was to merge are gone, and no state needs them", UserWarning, stacklevel=5
        )
    return [
        _Task(number, one.kind, file_slice, files.logs_of(one) if one.kind == LOG else ())
        for number, (one, file_slice) in enumerate(both)
        if file_slice is not None
    ]


def _without_overtaken(
    merged: Collection[FileGroupId], requested_time: str, now: MetaClient, body: CommitMetadata
) -> CommitMetadata:
    """Under the lock: the report without groups whose logs were merged and which a full compaction takes over."""
    left_out = _overtaken(now, comparable(requested_time)).intersection(merged)
    kept = {
        partition: tuple(stat for stat in stats if FileGroupId(partition, stat.file_id) not in left_out)
        for partition, stats in body.stats.items()
    }
    return replace(body, stats={partition: stats for partition, stats in kept.items() if stats})


def _overtaken(now: MetaClient, requested_time: str) -> frozenset[FileGroupId]:
    """Groups that a full compaction planned after this requested time takes, whether it is completed or not."""
    found: set[FileGroupId] = set()
    for instant, plan in now.pending_compactions():
        if comparable(instant.requested_time) > requested_time:
            found.update(one.file_group for one in plan.operations if one.kind == FULL)
    for instant in now.completed_writes():
        body = now.body(instant) if comparable(instant.requested_time) > requested_time else None
        if isinstance(body, CommitMetadata) and body.compacted:
            stats = (stat for stats in body.stats.values() for stat in stats)
            made = (stat for stat in stats if parse_base_file(file_name(stat.path or "")) is not None)
            found.update(stat.file_group for stat in made)
    return frozenset(found)


def _input_times(tasks: Iterable[_Task]) -> set[str]:
    return {file.requested_time for task in tasks for file in task.slice.files}


def _merging(
    txn: Transaction, reader_context: ReaderContext, options: WriteOptions | None, memory: int, parallelism: Parallelism
) -> _Merging:
    """What all tasks of a run share."""
    config = txn.snapshot.config
    own = without_meta_fields(reader_context.schema)
    share = MemoryPlan(memory).compaction(parallelism.count)
    chosen = options or WriteOptions.from_properties(config.properties)
    wanted = without_place(reader_context.schema)
    return _Merging(
        FileGroupReader(txn.snapshot.storage, reader_context, ReadOptions(memory=share.reading), wanted, encoded=True),
        FileSchema.of_table(
            own, config.name, operation=OPERATION_FIELD in reader_context.schema.names, version=reader_context.schema_id
        ),
        replace(
            chosen,
            write_buffer=parallelism.write_buffer(chosen, share.write_buffer, txn.snapshot.storage),
            row_group_size=min(chosen.row_group_size, share.row_group),
            log_block_max_size=min(chosen.log_block_max_size, share.log_block),
        ),
        txn.requested_time,
        config.name,
        populate_meta_fields=config.populate_meta_fields,
        bloom_filter=wants_bloom_filters(config.index_type),
        native_logs=config.version.has_native_logs,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """One file group: its number, FULL or LOG, the slice, and for LOG all logs of the group."""

    number: int
    kind: str
    slice: FileSlice
    known: tuple[LogFile, ...] = ()


@dataclass(frozen=True, slots=True)
class _Merging:
    """How the tasks of one run read and write; picklable."""

    reader: FileGroupReader
    schema: FileSchema
    options: WriteOptions
    requested_time: str
    table_name: str
    populate_meta_fields: bool = True
    bloom_filter: bool = False
    native_logs: bool = True

    def run(self, task: _Task) -> list[WriteStat]:
        """Merge one file group; what was written."""
        if task.kind == LOG:
            merge = MergeLogs(
                self.reader,
                self.schema,
                self.options,
                self.requested_time,
                self.native_logs,
                self.table_name,
                self.populate_meta_fields,
            )
            return merge.run(task.number, task.slice, task.known)
        return [self._full(task.number, task.slice)]

    def _full(self, number: int, file_slice: FileSlice) -> WriteStat:
        base = file_slice.base_file
        target = WriteTarget(
            file_slice.file_group, self.requested_time, attempt_token(number), base.requested_time if base else None
        )
        is_sorted = self.reader.reader_context.layout == LSM_TREE
        footers: Footers = {}
        repeats = base is not None and self.reader.may_repeat_keys(base, footers)
        with BaseFileWriter(
            marking(self.reader.storage, self.requested_time, MarkerType.MERGE if base else MarkerType.CREATE),
            target,
            self.schema,
            self.options,
            is_sorted=is_sorted,
            bloom_filter=self.bloom_filter,
            populate_meta_fields=self.populate_meta_fields,
            may_repeat=repeats,
            footer=None if is_sorted or repeats else STATES_UNIQUE,
        ) as writer:
            for batch in self.reader.read(ReadSplit(file_slice), footers=footers):
                writer.write(batch)
            return replace(
                writer.close().stat,
                total_log_files_compacted=len(file_slice.log_files),
                total_log_size_compacted=sum(log.size for log in file_slice.log_files),
            )
