"""Small frames are written by the driver, because a Spark job would take longer than the write itself.

To know whether a frame is small, its first rows are fetched, which costs next to nothing where rows stream, and as much
as the whole frame where they come out of a shuffle, or out of a filter that few rows pass. So a frame counts as large,
without fetching any row, when its plan has a shuffle, or when Spark expects more bytes than so few rows are likely to
take.
"""

from __future__ import annotations

import re

import pyarrow as pa
from pyspark.sql import DataFrame

from lakebed.spark.types import conform

ROW_BYTES = 256
"""The largest average size of a row in a small frame, by Spark's size estimate of the frame."""
ALWAYS_SMALL = 1 << 20
_SHUFFLE = "Exchange"
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+(?:E[+-]?\d+)?) (B|KiB|MiB|GiB|TiB|PiB)\b")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}


def rows_if_few(df: DataFrame, schema: pa.Schema, limit: int | None, plan: str) -> pa.Table | None:
    """All rows of the frame in the driver, if they are at most `limit`; None for a larger frame."""
    if limit is None:
        return _conformed(df.toArrow(), schema)
    if limit == 0 or _is_large(plan, limit):
        return None
    head = df.limit(limit + 1).toArrow()
    return _conformed(head, schema) if head.num_rows <= limit else None


def plan_text(df: DataFrame, kind: str = "") -> str:
    """Spark's plan of the frame, by SQL EXPLAIN, which classic sessions and Connect both have."""
    rows = df.sparkSession.sql(f"EXPLAIN {kind} SELECT * FROM {{frame}}", frame=df).collect()
    return "\n".join(row[0] for row in rows)


def _is_large(plan: str, limit: int) -> bool:
    """By Spark's plan; where Spark knows no size it prints eight exbibytes (EiB), a unit that is not parsed here."""
    if _SHUFFLE in plan:
        return True
    size = expected_bytes(plan)
    return size is not None and size > max(limit * ROW_BYTES, ALWAYS_SMALL)


def expected_bytes(plan: str) -> float | None:
    """How much Spark expects to come out of a frame, by `plan_text(df, "COST")`; None where it has no estimate."""
    found = _SIZE.search(plan)
    return float(found[1]) * _UNITS[found[2]] if found is not None else None


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    batches = [conform(batch, schema) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema=schema)
