"""The number of a row's task as a Spark expression, so that no row goes to Python and back to compute it.

    path   = coalesce(nullif(region, ''), '__HIVE_DEFAULT_PARTITION__'), with `region=` before it in hive style
    number = (known path's number, or hashCode(path)) * buckets + (31 + hashCode(key)) % buckets,  modulo tasks

Hudi's buckets are computed by Java's `String.hashCode`, which Spark calls by `reflect`. The Arrow UDF that computes the
same takes half the time of a shuffle. The expression covers the usual table, with one text key and at most one text
partition column; other tables, and Spark Connect, whose server may not allow `reflect`, use the UDF. Hudi hashes a key
that looks like several fields (`a:1,b:2`) differently: the task that gets it detects that and raises `MisplacedRows`.
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
"""Up to this many known partitions are numbered one by one; with more of them the UDF is used."""
_POSITIVE = 0x7FFFFFFF


class MisplacedRows(LakebedError):
    """Rows reached another task than the one that writes their file group."""


def task_expression(
    df: DataFrame, plan: Preparation, buckets: int, hash_fields: tuple[str, ...], tasks: int, partitions: dict[str, int]
) -> Column | None:
    """The task of every row, None where no Spark expression computes it."""
    generator = plan.generator
    keys = generator.key_fields
    if not hasattr(df, "_jdf") or generator.function is not None or generator.is_named:
        return None
    if len(keys) != 1 or hash_fields != keys or not _is_text(plan, keys[0]) or len(partitions) > MOST_KNOWN:
        return None
    path = _path(plan)
    if path is None:
        return None
    bucket = (_java_hash(column_of(keys)) + 31).bitwiseAND(_POSITIVE) % buckets
    number = _partition_number(path, partitions) * buckets + bucket
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


def _partition_number(path: Column, partitions: dict[str, int]) -> Column:
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
