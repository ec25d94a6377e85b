"""The number of a row's task as a Spark expression: no row goes to Python and back to learn where it belongs.

    path   = coalesce(nullif(region, ''), '__HIVE_DEFAULT_PARTITION__'), with `region=` before it in hive style
    number = (known path's place, or hashCode(path)) * buckets + (31 + hashCode(key)) % buckets,  modulo tasks

Java's `String.hashCode` is what Hudi's buckets go by, and Spark reaches it by `reflect`. Half the time of a shuffle
goes into the Arrow UDF that computes the same. It covers the usual table, one text key and at most one text
partition column; for others, and on Spark Connect, whose server may not allow `reflect`, the UDF does it. A key that
looks like several fields (`a:1,b:2`) is hashed otherwise by Hudi: the task that gets it notices and says so.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows

from lakebed.errors import LakebedError
from lakebed.model.partition_path import DEFAULT_PARTITION
from lakebed.spark.udf import column_of
from lakebed.write.rows.prepare import Preparation

MOST_KNOWN = 256
"""Known partitions are told apart one by one; more of them go by their hash."""
_POSITIVE = 0x7FFFFFFF


class MisplacedRows(LakebedError):
    """Rows reached a task that another one writes the file group of."""


def task_expression(
    df: DataFrame, plan: Preparation, buckets: int, hash_fields: tuple[str, ...], tasks: int, partitions: dict[str, int]
) -> Column | None:
    """The task of every row, None where Spark cannot tell it."""
    generator = plan.generator
    keys = generator.key_fields
    if not hasattr(df, "_jdf") or generator.function is not None or generator.is_named:
        return None
    if len(keys) != 1 or hash_fields != keys or not _is_text(plan, keys[0]) or len(partitions) > MOST_KNOWN:
        return None
    path = _path(plan)
    if path is None:
        return None
    number = _place(path, partitions) * buckets + (_java_hash(column_of(keys)) + 31).bitwiseAND(_POSITIVE) % buckets
    return F.pmod(number, F.lit(tasks)).cast("int")


def _path(plan: Preparation) -> Column | None:
    folders = plan.generator.partition
    if not folders.fields:
        return F.lit("")
    kinds = [kind for kind in folders.types if kind == "TIMESTAMP"]
    if len(folders.fields) > 1 or kinds or folders.url_encode or folders.slash_dates:
        return None
    name = folders.fields[0]
    if not _is_text(plan, name):
        return None
    value = F.coalesce(F.nullif(column_of((name,)), F.lit("")), F.lit(DEFAULT_PARTITION))
    return F.concat(F.lit(f"{name}="), value) if folders.hive_style else value


def _place(path: Column, partitions: dict[str, int]) -> Column:
    if not partitions:
        return _java_hash(path).bitwiseAND(_POSITIVE)
    items = iter(partitions.items())
    known, number = next(items)
    found = F.when(path == known, F.lit(number))
    for known, number in items:
        found = found.when(path == known, F.lit(number))
    return found.otherwise(_java_hash(path).bitwiseAND(_POSITIVE)).cast("bigint")


def _java_hash(text: Column) -> Column:
    return F.reflect(F.lit("java.util.Objects"), F.lit("hashCode"), text).cast("int").cast("bigint")


def _is_text(plan: Preparation, name: str) -> bool:
    """Whether the column is text that stays as it is on its way into the table."""
    return all(
        name in schema.names and pa.types.is_string(schema.field(name).type) for schema in (plan.incoming, plan.columns)
    )
