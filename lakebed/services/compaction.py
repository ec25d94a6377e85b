"""Full compaction: slices with logs become base files, and no answer changes.

    plan   under the lock: the slices as they are now, by name, saved as <b>.compaction.requested
    run    base file + logs ──► FileGroupReader ──► base file named after <b>, one task per slice
           published as a commit; logs that complete meanwhile belong to the new slice already

Rows keep the commit time and sequence number of the write that brought them. A run that died is undone and run again
under the same begin, by whoever comes next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lakebed.config.options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.writers import BaseFileWriter, FileSchema, WriteTarget
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.format.names import MarkerType
from lakebed.merge.file_group_reader import LSM_TREE, FileGroupReader, ReadSplit
from lakebed.model.actions import CommitMetadata, CompactionOperation, CompactionPlan, WriteStat
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import Instant
from lakebed.model.schema import without_meta_fields
from lakebed.read.shape import table_shape
from lakebed.runner import Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control
from lakebed.txn.transaction import Transaction
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.job import SCHEMA_KEY, table_schema_json
from lakebed.write.marked import marking

OPERATION = "COMPACT"
_MB = 1024 * 1024


def full_plan(client: MetaClient, wanted: Callable[[FileSlice], bool]) -> CompactionPlan | None:
    """A plan to compact the slices that are wanted and have logs; None when there are none."""
    view = FileSystemView.of(client)
    pieces = (piece for partition in view.partitions() for piece in view.slices(partition))
    operations = tuple(_operation(piece) for piece in pieces if piece.log_files and wanted(piece))
    return CompactionPlan(operations, preserve_metadata=True) if operations else None


def run_compaction(
    client: MetaClient,
    planned: Instant,
    control: Control,
    runner: Runner,
    *,
    options: WriteOptions | None = None,
    memory: int = 256 << 20,
) -> Instant:
    """Carry out a compaction that is on the timeline; the completed commit."""
    with Transaction.resume(client, planned, control, operation=OPERATION) as txn:
        plan = txn.snapshot.plan(txn.instant)
        if not isinstance(plan, CompactionPlan):
            raise CorruptTable("a compaction without a plan", file=txn.snapshot.active.path(planned))
        if any(operation.kind != "FULL" for operation in plan.operations):
            raise InvalidRequest(f"{planned} compacts logs into logs", hint="Run it with the program that planned it.")
        files = _Files(FileSystemView.of(txn.snapshot))
        shape, config = table_shape(txn.snapshot), txn.snapshot.config
        task = _Task(
            FileGroupReader(txn.snapshot.storage, shape, ReadOptions(memory=memory), shape.schema),
            FileSchema.of_table(without_meta_fields(shape.schema), config.name),
            options or WriteOptions.from_properties(config.properties),
            txn.begin_time,
            populate_meta_fields=config.populate_meta_fields,
            bloom_filter="BLOOM" in (config.index_type or ""),
        )
        numbered = [(number, files.slice_of(operation)) for number, operation in enumerate(plan.operations)]
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for stat in runner.map(task.run, numbered, label="compact"):
            stats[stat.partition_path] = (*stats.get(stat.partition_path, ()), stat)
        extra = {SCHEMA_KEY: table_schema_json(shape.schema, config.name)}
        return txn.commit(CommitMetadata(OPERATION, stats, extra, compacted=True))


def _operation(piece: FileSlice) -> CompactionOperation:
    group, base = piece.file_group, piece.base_file
    log_bytes = sum(log.size for log in piece.log_files)
    read, written = (piece.size / _MB, (base.size if base else log_bytes) / _MB)
    return CompactionOperation(
        group.partition_path,
        group.file_id,
        piece.base_instant_time,
        base.name if base else None,
        tuple(log.name for log in piece.log_files),
        {
            "TOTAL_LOG_FILES": float(len(piece.log_files)),
            "TOTAL_LOG_FILES_SIZE": float(log_bytes),
            "TOTAL_IO_READ_MB": read,
            "TOTAL_IO_WRITE_MB": written,
            "TOTAL_IO_MB": read + written,
        },
    )


class _Files:
    """The files of a table by name, for plans hold nothing else."""

    def __init__(self, view: FileSystemView) -> None:
        self._view = view
        self._known: dict[str, Mapping[FileGroupId, Mapping[str, BaseFile | LogFile]]] = {}

    def slice_of(self, operation: CompactionOperation) -> FileSlice:
        """The slice that a plan means."""
        group = FileGroupId(operation.partition_path, operation.file_id)
        files = self._of(operation.partition_path).get(group, {})
        names = [*((operation.base_file,) if operation.base_file else ()), *operation.log_files]
        missing = [name for name in names if name not in files]
        if missing:
            raise CorruptTable("a compaction needs a file that is not there", file=missing[0])
        found = [files[name] for name in names]
        bases = [file for file in found if isinstance(file, BaseFile)]
        logs = sorted((file for file in found if isinstance(file, LogFile)), key=lambda log: log.order)
        base = bases[0] if bases else None
        return FileSlice(group, operation.base_instant_time or logs[0].instant_time, base, tuple(logs))

    def _of(self, partition: str) -> Mapping[FileGroupId, Mapping[str, BaseFile | LogFile]]:
        if partition not in self._known:
            groups: dict[FileGroupId, dict[str, BaseFile | LogFile]] = {}
            for group in self._view.file_groups(partition):
                mine = groups.setdefault(group.id, {})
                mine.update((file.name, file) for piece in group.slices for file in piece.files)
            self._known[partition] = groups
        return self._known[partition]


@dataclass(frozen=True, slots=True)
class _Task:
    """One slice to one base file; picklable."""

    reader: FileGroupReader
    schema: FileSchema
    options: WriteOptions
    begin_time: str
    populate_meta_fields: bool = True
    bloom_filter: bool = False

    def run(self, numbered: tuple[int, FileSlice]) -> WriteStat:
        number, piece = numbered
        base = piece.base_file
        target = WriteTarget(
            piece.file_group, self.begin_time, f"{number}-0-{os.getpid()}", base.instant_time if base else None
        )
        with BaseFileWriter(
            marking(self.reader.storage, self.begin_time, MarkerType.MERGE if base else MarkerType.CREATE),
            target,
            self.schema,
            self.options,
            is_sorted=self.reader.shape.layout == LSM_TREE and self.populate_meta_fields,
            bloom_filter=self.bloom_filter,
            populate_meta_fields=self.populate_meta_fields,
        ) as writer:
            for batch in self.reader.read(ReadSplit(piece)):
                writer.write(batch)
            return replace(
                writer.close().stat,
                total_log_files_compacted=len(piece.log_files),
                total_log_size_compacted=sum(log.size for log in piece.log_files),
            )
