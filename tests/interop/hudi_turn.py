"""Real Hudi's turn on a table that lakebed made: upserts and deletes, compaction and cleaning, by the same settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from .client import HudiPeer
from .hudi_writer import COMPACTION, INDEX_OPTIONS, RIDER_OPTIONS, WRITE, Done, completed_instants
from .kinds import BUCKETS, Kind

KEY_GENERATORS = {
    "simple": "SimpleKeyGenerator",
    "complex": "ComplexKeyGenerator",
    "flat": "NonpartitionedKeyGenerator",
    "timestamp": "TimestampBasedKeyGenerator",
}
SPARK_MERGERS = "org.apache.hudi.DefaultSparkRecordMerger,org.apache.hudi.OverwriteWithLatestSparkRecordMerger"
"""Without these Hudi's writer goes by Avro records, which it cannot merge with partial rows."""


def index_options(kind: Kind) -> Mapping[str, str]:
    if kind.index == "consistent_bucket":
        engine = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
        bounds = {f"hoodie.bucket.index.{end}.num.buckets": str(BUCKETS) for end in ("min", "max")}
        return {**INDEX_OPTIONS["bucket"], **engine, **bounds}
    return INDEX_OPTIONS[kind.index]


def hudi_options(kind: Kind, name: str) -> dict[str, str]:
    """Options of Hudi's writes to a table of this kind."""
    return {
        "hoodie.table.name": name,
        f"{WRITE}table.type": "MERGE_ON_READ" if kind.is_mor else "COPY_ON_WRITE",
        f"{WRITE}recordkey.field": ",".join(kind.key_fields),
        f"{WRITE}partitionpath.field": ",".join(kind.partition_fields),
        f"{WRITE}precombine.field": ",".join(kind.ordering_fields),
        f"{WRITE}keygenerator.class": f"org.apache.hudi.keygen.{KEY_GENERATORS[kind.keys]}",
        f"{WRITE}hive_style_partitioning": str(kind.hive_style).lower(),
        f"{WRITE}partitionpath.urlencode": str(kind.url_encode).lower(),
        "hoodie.write.table.version": str(kind.version),
        "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING" if kind.by_event_time else "COMMIT_TIME_ORDERING",
        "hoodie.logfile.data.block.format": kind.blocks,
        "hoodie.metadata.enable": "false",
        "hoodie.populate.meta.fields": str(kind.meta_fields).lower(),
        "hoodie.bucket.index.num.buckets": str(BUCKETS),
        "hoodie.bucket.index.hash.field": ",".join(kind.key_fields),
        "hoodie.index.bloom.num_entries": "200",
        "hoodie.embed.timeline.server": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        **{f"hoodie.{verb}.shuffle.parallelism": "2" for verb in ("insert", "upsert", "delete", "bulkinsert")},
        **kind.time_properties,
        **index_options(kind),
    }


@dataclass(frozen=True, slots=True)
class Turn:
    """What one write of Hudi left on the timeline."""

    write: Done
    compacted: bool
    cleaned: bool


def run_turn(hudi: HudiPeer, path: Path, kind: Kind, rows: pa.Table, verb: str, *, services: Sequence[str]) -> Turn:
    """Write `rows`, with compaction and cleaning right behind as asked."""
    options = {**hudi_options(kind, path.name), f"{WRITE}operation": verb}
    if kind.operation == "merge_partial" and kind.blocks == "parquet":
        options["hoodie.write.record.merge.custom.implementation.classes"] = SPARK_MERGERS
    if kind.is_mor:
        options |= COMPACTION if "compact" in services else {"hoodie.compact.inline": "false"}
    if "clean" in services:
        options |= RIDER_OPTIONS["clean"]
    known = set(completed_instants(path))
    hudi.write(path, rows, options)
    new = [done for done in completed_instants(path) if done not in known]
    expected = "deltacommit" if kind.is_mor else "commit"
    writes = [done for done in new if done.action == expected]
    if len(writes) != 1:
        raise AssertionError(f"Hudi's {verb} made the instants {new}")
    return Turn(
        writes[0],
        compacted=kind.is_mor and any(done.action == "commit" for done in new),
        cleaned=any(done.action == "clean" for done in new),
    )
