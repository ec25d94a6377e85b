"""The kinds of tables that lakebed writes for real Hudi to go on with, combined pairwise.

A kind is one choice of every factor; the operation is a factor too, and happens to the table for certain. `covering`
lists few kinds among which any two choices that go together meet, those that bring most new pairs first.
"""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

from .operations import Row, TableShape

OPERATIONS = (
    "insert", "upsert", "bulk_insert", "delete_keys", "delete_where", "update", "merge_partial", "overwrite",
    "overwrite_partitions", "delete_partitions",
)  # fmt: skip
FACTORS: Mapping[str, tuple[Any, ...]] = {
    "table_type": ("mor", "cow"),
    "version": (9, 8),
    "layout": ("lsm_tree", "default"),
    "index": ("bucket", "consistent_bucket", "simple", "bloom", "global_simple", "global_bloom"),
    "keys": ("simple", "complex", "flat", "timestamp"),
    "paths": ("plain", "hive", "url", "hive_url"),
    "ordering": ("one", "several", "none"),
    "blocks": ("avro", "parquet"),
    "operation": OPERATIONS,
    "meta_fields": (True, False),
}
BUCKETS = 2
TIME_FORMATS = {"plain": "yyyy/MM/dd", "hive": "yyyy-MM-dd"}
PLACES = {"plain": ("p0", "p1", "p2"), "url": ("a b", "x=y/z", "100%")}
QUARTERS = ("q1", "q2")
IS_DELETED = "_hoodie_is_deleted"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of table, and the operation that it is about."""

    table_type: str = "mor"
    version: int = 9
    layout: str = "lsm_tree"
    index: str = "bucket"
    keys: str = "simple"
    paths: str = "plain"
    ordering: str = "one"
    blocks: str = "avro"
    operation: str = "upsert"
    meta_fields: bool = True

    def __str__(self) -> str:
        words = [f"v{part}" if isinstance(part, int) else part for part in astuple(self)[:-1]]
        return "-".join(words if self.meta_fields else [*words, "bare"])

    @property
    def is_possible(self) -> bool:
        if self.table_type == "cow" and (self.index == "consistent_bucket" or self.blocks == "parquet"):
            return False
        if not self.meta_fields and (self.keys == "timestamp" or "bloom" in self.index):
            return False
        if self.keys == "flat" and (self.paths != "plain" or self.operation.endswith("_partitions")):
            return False
        return not (self.keys == "timestamp" and "url" in self.paths)

    @property
    def is_mor(self) -> bool:
        return self.table_type == "mor"

    @property
    def is_hashed(self) -> bool:
        return "bucket" in self.index

    @property
    def is_global(self) -> bool:
        return self.index.startswith("global")

    @property
    def by_event_time(self) -> bool:
        return self.ordering != "none"

    @property
    def key_fields(self) -> tuple[str, ...]:
        return ("id", "b") if self.keys == "complex" else ("id",)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        return {"simple": ("p",), "complex": ("p", "q"), "flat": (), "timestamp": ("at_ms",)}[self.keys]

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        return {"one": ("ts",), "several": ("ts", "seq"), "none": ()}[self.ordering]

    @property
    def has_marks(self) -> bool:
        """Whether a column marks deleted rows; such tables get whole rows where others get partial ones."""
        return self.operation != "merge_partial"

    @property
    def hive_style(self) -> bool:
        return "hive" in self.paths

    @property
    def url_encode(self) -> bool:
        return "url" in self.paths

    @property
    def places(self) -> tuple[str, ...]:
        """Values of the column `p`."""
        return PLACES["url" if self.url_encode else "plain"]

    def schema(self) -> pa.Schema:
        """All columns of the random workloads, and those that keys, partitions and ordering may need."""
        own = [("b", pa.int32()), ("q", pa.string()), ("seq", pa.int32()), ("at_ms", pa.int64())]
        columns = [*TableShape().columns(), *own]
        return pa.schema([column for column in columns if self.has_marks or column[0] != IS_DELETED])

    def ordering_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.ordering_fields)

    def record_key(self, row: Row) -> str:
        if self.keys == "complex":
            return f"id:{row['id']},b:{row['b']}"
        return str(row["id"])

    def partition_path(self, row: Row) -> str:
        """The folder of a row, made the plain way."""
        segments = []
        for name in self.partition_fields:
            value = self._time_folder(row[name]) if name == "at_ms" else str(row[name])
            if self.url_encode:
                value = value.replace("%", "%25").replace("/", "%2F").replace("=", "%3D")
            segments.append(f"{name}={value}" if self.hive_style else value)
        return "/".join(segments)

    def _time_folder(self, millis: int) -> str:
        day = datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC)
        return day.strftime("%Y-%m-%d" if self.hive_style else "%Y/%m/%d")

    @property
    def time_properties(self) -> dict[str, str]:
        """How the timestamp-based key generator makes folders."""
        if self.keys != "timestamp":
            return {}
        return {
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": TIME_FORMATS[self.paths],
            "hoodie.keygen.timebased.timezone": "GMT",
        }


def possible_kinds() -> list[Kind]:
    return [kind for values in itertools.product(*FACTORS.values()) if (kind := Kind(*values)).is_possible]


def covering(seed: int) -> list[Kind]:
    """Kinds among which every two choices that go together meet, most new pairs first. The seed decides ties."""
    everything = possible_kinds()
    random.Random(seed).shuffle(everything)
    numbers: dict[tuple[int, Any, int, Any], int] = {}
    pairs = []
    for kind in everything:
        met = 0
        for (i, one), (j, other) in itertools.combinations(enumerate(astuple(kind)), 2):
            met |= 1 << numbers.setdefault((i, one, j, other), len(numbers))
        pairs.append(met)
    missing = (1 << len(numbers)) - 1
    chosen = []
    while missing:
        best = max(range(len(pairs)), key=lambda at: (pairs[at] & missing).bit_count())
        missing &= ~pairs[best]
        chosen.append(everything[best])
    return chosen


def create_arguments(kind: Kind) -> dict[str, Any]:
    """What `lakebed.create` is told, besides the path and the schema. Version 10 is no choice of the matrix."""
    return {
        "record_key": list(kind.key_fields),
        "partition_by": list(kind.partition_fields) or None,
        "ordering": list(kind.ordering_fields) or None,
        "table_type": kind.table_type,
        "layout": kind.layout,
        "log_format": "v2" if kind.version == 10 else "v1",
        "index": kind.index,
        "num_buckets": BUCKETS if kind.is_hashed else None,
        "properties": {
            "hoodie.table.version": str(kind.version),
            "hoodie.populate.meta.fields": str(kind.meta_fields).lower(),
            "hoodie.datasource.write.hive_style_partitioning": str(kind.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(kind.url_encode).lower(),
            **kind.time_properties,
        },
    }
