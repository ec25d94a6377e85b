"""Small frames are written by the driver: a job of its own takes longer than the write.

To know whether a frame is small, its first rows are fetched, which costs next to nothing where rows stream, and as much
as the whole frame where they come out of a shuffle. So frames whose plan has a shuffle are taken for large unasked.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from lakebed.spark.types import conform

_SHUFFLE = "Exchange"


def rows_if_few(df: DataFrame, schema: pa.Schema, limit: int | None) -> pa.Table | None:
    """All rows of the frame in the driver, if they are at most `limit`; None for a larger frame."""
    if limit is None:
        return _conformed(df.toArrow(), schema)
    if limit == 0 or _SHUFFLE in plan_text(df):
        return None
    head = df.limit(limit + 1).toArrow()
    return _conformed(head, schema) if head.num_rows <= limit else None


def plan_text(df: DataFrame) -> str:
    """How Spark would run the frame, by a way that classic sessions and Connect have in common."""
    rows = df.sparkSession.sql("EXPLAIN SELECT * FROM {frame}", frame=df).collect()
    return "\n".join(row[0] for row in rows)


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    batches = [conform(batch, schema) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema=schema)
