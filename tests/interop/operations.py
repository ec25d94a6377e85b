"""What a workload is made of: the shape of a table and the operations on it, as plain values.

Nothing here knows who executes an operation. Real Hudi runs them to make tables for lakebed to read, lakebed runs
them to make tables for real Hudi to read, and `model.Model` folds them in a dictionary.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]

EXTRA_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "list": pa.list_(pa.string()),
}


@dataclass(frozen=True, slots=True)
class TableShape:
    """Every choice that is made when a table is created."""

    table_type: str = "mor"  # mor, cow
    version: int = 9  # 8, 9
    log_blocks: str = "avro"  # avro, parquet
    index: str = "bucket"  # bucket, simple, bloom, global_simple, global_bloom, record
    event_time: bool = True
    partitioned: bool = True
    metadata: bool = False
    buckets: int = 2
    ordering: str = "ts"
    fills: bool = False  # nulls of a winner are filled from the loser (partial update mode IGNORE_DEFAULTS)

    @property
    def is_mor(self) -> bool:
        return self.table_type == "mor"

    @property
    def is_bucket(self) -> bool:
        return self.index == "bucket"

    @property
    def is_global(self) -> bool:
        return self.index in ("global_simple", "global_bloom", "record")

    @property
    def index_forgets_deletes(self) -> bool:
        """A deleted key is new to the index, so that its next insert goes to another file group."""
        return self.index == "record" or self.merges_when_tagging

    @property
    def merges_when_tagging(self) -> bool:
        """On merge-on-read, global look-ups merge with the stored row at once and log the winner, be it the old row."""
        return self.is_mor and self.index in ("global_simple", "global_bloom")

    @property
    def small_files(self) -> bool:
        """Whether inserts may fill up small base files, which takes updates of those files into the base as well."""
        return not self.event_time and not self.fills

    @property
    def places_known(self) -> bool:
        """Whether it is certain which rows lie in base files and which in logs."""
        return self.is_bucket or not self.is_mor or not self.small_files

    @property
    def label(self) -> str:
        words = [self.table_type, f"v{self.version}", self.index, "event" if self.event_time else "commit"]
        words += [self.log_blocks] if self.is_mor else []
        words += ["fills"] if self.fills else []
        words += ["parts" if self.partitioned else "flat"] + (["mdt"] if self.metadata else [])
        return "-".join(words)

    def columns(self) -> list[tuple[str, pa.DataType]]:
        """The columns a table of this shape begins with."""
        return [
            ("id", pa.string()),
            ("ts", pa.int64()),
            ("p", pa.string()),
            ("v", pa.int64()),
            ("txt", pa.string()),
            ("d", pa.float64()),
            ("amount", pa.decimal128(12, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("raw", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
            ("_hoodie_is_deleted", pa.bool_()),
        ]

    def key_of(self, row: Row) -> tuple[str, str]:
        """(partition path, record key) of a row."""
        return (row["p"] if self.partitioned else "", row["id"])


@dataclass(frozen=True, slots=True)
class Write:
    """One commit. `riders` are services that the executor runs inline, right after it."""

    kind: str  # insert, upsert, bulk_insert, delete, insert_overwrite, insert_overwrite_table, delete_partition
    rows: tuple[Row, ...]
    riders: tuple[str, ...] = ()

    def touched_partitions(self, shape: TableShape) -> set[str]:
        return {shape.key_of(row)[0] for row in self.rows}


@dataclass(frozen=True, slots=True)
class Service:
    """Upkeep that must not change an answer: compact, cluster, or the two halves of each (plan_compact, run_compact,
    plan_cluster, run_cluster). Log compaction and cleaning ride on writes.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class AddColumn:
    """From the next write on, rows have one more column; older rows hold null in it."""

    name: str
    kind: str


Operation = Write | Service | AddColumn


def arrow_schema(shape: TableShape, added: Sequence[AddColumn] = ()) -> pa.Schema:
    """The table's columns after the additions so far."""
    fields = [pa.field(name, kind) for name, kind in shape.columns()]
    return pa.schema(fields + [pa.field(column.name, EXTRA_TYPES[column.kind]) for column in added])


def arrow_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows as the batch a writer takes; columns that a row lacks are null."""
    return pa.table(
        {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema}, schema=schema
    )


def sample_value(kind: str, number: int) -> Any:
    """A value for an added column."""
    values: dict[str, Any] = {
        "string": f"x{number}",
        "long": number * 7,
        "double": number / 4,
        "date": datetime.date(2024, 1, 1) + datetime.timedelta(days=number % 400),
        "list": [f"e{number}", ""],
    }
    return values[kind]


def sample_row(key: str, partition: str, ordering: int, number: int) -> dict[str, Any]:
    """A row whose values all depend on `number`, with nulls in every nullable place now and then."""
    sparse = number % 5 == 0
    return {
        "id": key,
        "ts": ordering,
        "p": partition,
        "v": number,
        "txt": None if sparse else f"text {number} é😀",
        "d": float("nan") if number % 11 == 0 else number / 8,
        "amount": None if number % 7 == 0 else decimal.Decimal(number).scaleb(-2),
        "day": datetime.date(2024, 2, 28) + datetime.timedelta(days=number % 9),
        "at": datetime.datetime(2024, 1, 1, 0, 0, 1, number % 1000, tzinfo=datetime.UTC),
        "raw": None if sparse else bytes([number % 256, 0, 255]),
        "tags": None if number % 3 == 0 else [f"t{number % 4}", ""],
        "counts": [("n", number)] if number % 2 else [],
        "st": None if number % 6 == 0 else {"a": number, "b": None if sparse else "s"},
        "_hoodie_is_deleted": False,
    }
