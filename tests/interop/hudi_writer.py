"""Real Hudi as an executor of workload operations: options for a shape, and which instants an operation made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .client import HudiPeer
from .operations import AddColumn, Operation, Service, TableShape, Write, arrow_rows, arrow_schema

WRITE = "hoodie.datasource.write."
COMPLETED = re.compile(r"(\d{17})_(\d{17})\.(commit|deltacommit|replacecommit|clean|rollback)")
INDEX_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "bucket": {"hoodie.index.type": "BUCKET"},
    "simple": {"hoodie.index.type": "SIMPLE"},
    "bloom": {"hoodie.index.type": "BLOOM"},
    "global_simple": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "global_bloom": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "record": {
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
        "hoodie.metadata.global.record.level.index.max.filegroup.count": "1",
    },
}
RIDER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "clean": {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "1"},
    "log_compact": {
        "hoodie.log.compaction.enable": "true",
        "hoodie.log.compaction.inline": "true",
        "hoodie.log.compaction.blocks.threshold": "1",
        "hoodie.optimized.log.blocks.scan.enable": "true",
        "hoodie.log.record.reader.use.scanV2": "true",
    },
}

NO_METADATA = {"hoodie.metadata.enable": "false"}
NO_CLEANING = {"hoodie.clean.automatic": "false"}
HIVE = {f"{WRITE}hive_style_partitioning": "true"}
BUCKETS = {**INDEX_OPTIONS["bucket"], "hoodie.bucket.index.num.buckets": "2"}
COMPACTION = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
TABLE_TYPES = {"mor": "MERGE_ON_READ", "cow": "COPY_ON_WRITE"}


@dataclass(frozen=True, slots=True)
class Done:
    """A completed instant: when it began, when it completed, what kind it is."""

    requested_time: str
    completion: str
    action: str


def completed_instants(table: Path) -> list[Done]:
    """The active timeline's completed instants in order of completion."""
    names = (entry.name for entry in (table / ".hoodie" / "timeline").iterdir())
    found = (COMPLETED.fullmatch(name) for name in names)
    return sorted((Done(*match.groups()) for match in found if match), key=lambda done: done.completion)


def upsert_options(name: str, table_type: str, **more: str) -> dict[str, str]:
    """Options of an upsert of a few rows by `id`, the later one by `ts`, into partitions by `p`."""
    return {
        "hoodie.table.name": name,
        f"{WRITE}table.type": TABLE_TYPES[table_type],
        f"{WRITE}operation": "upsert",
        f"{WRITE}recordkey.field": "id",
        f"{WRITE}partitionpath.field": "p",
        f"{WRITE}precombine.field": "ts",
        "hoodie.embed.timeline.server": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
    } | more


def table_options(shape: TableShape, name: str) -> dict[str, str]:
    """Options of every write to a table of this shape."""
    options = {
        "hoodie.table.name": name,
        f"{WRITE}table.type": TABLE_TYPES["mor" if shape.is_mor else "cow"],
        f"{WRITE}recordkey.field": "id",
        f"{WRITE}precombine.field": shape.ordering,
        f"{WRITE}partitionpath.field": "p" if shape.partitioned else "",
        f"{WRITE}keygenerator.class": "org.apache.hudi.keygen."
        + ("SimpleKeyGenerator" if shape.partitioned else "NonpartitionedKeyGenerator"),
        "hoodie.write.table.version": str(shape.version),
        "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING" if shape.event_time else "COMMIT_TIME_ORDERING",
        "hoodie.logfile.data.block.format": shape.log_blocks,
        "hoodie.metadata.enable": "true" if shape.metadata else "false",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.bucket.index.num.buckets": str(shape.buckets),
        "hoodie.index.bloom.num_entries": "200",
        "hoodie.parquet.small.file.limit": str(100 * 1024 * 1024 if shape.small_files else 0),
        "hoodie.bloom.index.update.partition.path": "false",
        "hoodie.simple.index.update.partition.path": "false",
        # The record index asks the embedded timeline server; everything else is quicker without it.
        "hoodie.embed.timeline.server": "true" if shape.is_global else "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.compact.inline": "false",
        **dict.fromkeys(
            (f"hoodie.{verb}.shuffle.parallelism" for verb in ("insert", "upsert", "delete", "bulkinsert")), "2"
        ),
    }
    if shape.fills:
        del options["hoodie.write.record.merge.mode"]
        payload = "PartialUpdateAvroPayload" if shape.event_time else "OverwriteNonDefaultsWithLatestAvroPayload"
        options[f"{WRITE}payload.class"] = f"org.apache.hudi.common.model.{payload}"
    return {**options, **INDEX_OPTIONS[shape.index]}


@dataclass
class HudiWriter:
    """Runs operations on one table; `instants[n]` is what the model calls write number n + 1."""

    peer: HudiPeer
    path: Path
    shape: TableShape
    instants: list[Done] = field(default_factory=list)
    added: list[AddColumn] = field(default_factory=list)
    cleaned: bool = False

    def run(self, operation: Operation) -> Operation:
        """Execute, and say what happened: the operation without the riders that found nothing to do."""
        if isinstance(operation, AddColumn):
            self.added.append(operation)
            return operation
        known = set(completed_instants(self.path)) if self.path.exists() else set()
        if isinstance(operation, Service):
            self._serve(operation)
            return operation
        self._write(operation)
        new = [done for done in completed_instants(self.path) if done not in known]
        log_compactions = [done for done in new if self._is_log_compaction(done)]
        self.cleaned |= any(done.action == "clean" for done in new)
        writes = [done for done in new if done not in log_compactions and done.action not in ("clean", "rollback")]
        if len(writes) != 1:
            raise AssertionError(f"{operation.kind} made the instants {new}")
        self.instants += [*writes, *log_compactions]
        riders = tuple(kind for kind in operation.riders if kind != "log_compact" or log_compactions)
        return replace(operation, riders=riders)

    def _write(self, write: Write) -> None:
        options = {**table_options(self.shape, self.path.name), f"{WRITE}operation": write.kind}
        for rider in write.riders:
            options |= RIDER_OPTIONS[rider]
        if write.kind == "delete_partition":
            options[f"{WRITE}partitions.to.delete"] = ",".join(sorted(write.touched_partitions(self.shape)))
        rows = arrow_rows(write.rows, arrow_schema(self.shape, self.added))
        self.peer.write(self.path, rows, options, mode="append" if self.path.exists() else "overwrite")

    def _serve(self, service: Service) -> None:
        options = {key: value for key, value in table_options(self.shape, self.path.name).items() if value}
        half, _, what = service.kind.rpartition("_")
        options["hoodie.compact.inline.max.delta.commits"] = "1"
        op = {"": "scheduleandexecute", "plan": "schedule", "run": "execute"}[half]
        if what == "compact":
            self.peer.call("run_compaction", self.path, options, op=op)
        elif what == "cluster":
            self.peer.call("run_clustering", self.path, options, op=op, order="v")
        else:
            raise ValueError(f"Hudi runs {service.kind} as a rider of a write")

    def _is_log_compaction(self, done: Done) -> bool:
        return (self.path / ".hoodie" / "timeline" / f"{done.requested_time}.logcompaction.requested").exists()
