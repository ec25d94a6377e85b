"""Tables and rows for the Spark tests."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from tests.golden.rows import rows_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), False),
        pa.field("part", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("small", pa.int32()),
        pa.field("ratio", pa.float64()),
        pa.field("price", pa.decimal128(12, 3)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("wall", pa.timestamp("us")),
        pa.field("raw", pa.binary()),
        pa.field("place", pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32())])),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("scores", pa.map_(pa.string(), pa.float64())),
        pa.field("odd `name`.x", pa.string()),
    ]
)
PARTS = ["eu", "a b", "x=y", "{q}", "st*r", "[z]", "100%", "ü€😀", "wh?t", "a+b,c", "50%25"]


def row(number: int, version: int = 1) -> dict[str, Any]:
    """A row of every type, with nulls here and there."""
    n = number * 7 + version
    return {
        "id": f"key-{number:05d}",
        "part": PARTS[number % len(PARTS)],
        "version": version,
        "flag": None if n % 5 == 0 else n % 2 == 0,
        "small": None if n % 11 == 0 else n - 40,
        "ratio": [1.5 * n, float("nan"), float("-inf"), -0.0, None][n % 5],
        "price": None if n % 6 == 0 else Decimal(n) / 8,
        "day": dt.date(1950, 1, 1) + dt.timedelta(days=n * 300),
        "at": dt.datetime(2024, 3, 10, 6, 59, 59, 123456, dt.UTC) + dt.timedelta(hours=n),
        "wall": dt.datetime.fromisoformat("2024-03-10 02:30:00") + dt.timedelta(minutes=n),
        "raw": None if n % 4 == 0 else bytes([n % 256, 0, 255]),
        "place": None if n % 9 == 0 else {"city": f"city {n % 3}", "zip": None if n % 2 else n},
        "tags": [None, [], ["a", None], [f"t{n}"]][n % 4],
        "scores": None if n % 7 == 0 else [("a", 1.0), (f"k{n}", None)],
        "odd `name`.x": f"odd {n % 4}",
    }


def rows(numbers: range, version: int = 1) -> pa.Table:
    return pa.Table.from_pylist([row(number, version) for number in numbers], schema=SCHEMA)


def frame(spark: Any, table: pa.Table) -> Any:
    """The rows in Spark; without a schema Spark would take times without a zone for times in the session's."""
    from lakebed.spark.types import spark_schema

    return spark.createDataFrame(table, spark_schema(table.schema))


def make_table(path: Path, **kwargs: Any) -> lakebed.Table:
    """A table with base files, updates, late updates that lose, and deletes."""
    settings = {"record_key": "id", "partition_by": "part", "ordering": "version", "num_buckets": 2, **kwargs}
    table = lakebed.create(path, SCHEMA, **settings)
    table.bulk_insert(rows(range(0, 60), 2))
    table.upsert(rows(range(20, 40), 3))
    table.upsert(rows(range(30, 70), 1))  # 30 to 59 lose
    table.delete(keys=[{"id": f"key-{n:05d}", "part": PARTS[n % len(PARTS)]} for n in (3, 25, 65)])
    return table


def assert_same(spark: Any, scan: lakebed.Scan) -> pa.Table:
    """Spark gives the rows, columns and types that plain Python gives."""
    ours = scan.to_arrow()
    theirs = scan.to_df(spark).toArrow()
    assert theirs.schema.names == ours.schema.names
    assert rows_of(theirs, theirs.schema.names) == rows_of(ours, ours.schema.names)
    return theirs
