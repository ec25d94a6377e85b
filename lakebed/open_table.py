"""`lakebed.open`, `lakebed.create` and `lakebed.read`: from a path to a `Table`, or to its rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lakebed.config.call_arguments import is_spark_frame, one_or_several
from lakebed.config.option import warn_unknown
from lakebed.config.option_texts import option_texts
from lakebed.config.read_options import ReadOptions, known_keys
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Predicate
from lakebed.model.ddl import ddl_schema
from lakebed.paths import file_name
from lakebed.read.plan import Query
from lakebed.read.time_range import Time
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.mode import MODE_KEYS, txn_context_for
from lakebed.write.create.create_options import TABLE_NAME, stated
from lakebed.write.create.create_table import NewTable, create_table, schema_of
from lakebed.write.write_checks import write_keys


def open(  # noqa: A001 - `lakebed.open(path)` is the name people look for
    path: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | ReadOptions | None = None,
    drop_metadata: bool = False,
    num_buckets: int | None = None,
) -> Table:
    """Open the table at a local path or an object-store URL.

        t = lakebed.open("s3://lake/orders", storage_options={"region": "eu-west-1"})

    A table with a metadata table is not written to, as lakebed would not update that; with `drop_metadata=True` the
    first write or service removes it. Tables that real Hudi wrote with a bucket index do not store the number of their
    buckets, and need `num_buckets` to be written to. Raises `TableNotFound` when there is no table, `UnsupportedFormat`
    for versions that are not read.
    """
    client = MetaClient.open(open_storage(path, storage_options))
    properties = dict(options) if isinstance(options, Mapping) else {}
    if num_buckets is not None:
        properties = {"hoodie.index.type": "BUCKET", **properties, "hoodie.bucket.index.num.buckets": str(num_buckets)}
    if isinstance(options, Mapping):
        options = {key: value for key, value in options.items() if key not in write_keys()}
    return Table(client, ReadOptions().override(options), properties, drop_metadata=drop_metadata)


def read(
    spark: Any,
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    as_of: Time | None = None,
    query: str = Query.SNAPSHOT,
    start: Time | None = None,
    end: Time | None = None,
    filter: str | Predicate | None = None,  # noqa: A002
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | ReadOptions | None = None,
) -> Any:
    """The table as a Spark DataFrame, planned natively: the fast way to read on Spark.

        lakebed.read(spark, "/lake/orders", columns=["id", "qty"], as_of="2026-11-01 00:00:00")

    With `start` (and `end`) only rows committed in that range, as in `Table.incremental`.
    """
    table = open(path, storage_options, options)
    wanted = str(query).replace("-", "_").lower()
    if start is None and end is None and wanted != Query.INCREMENTAL:
        return table.scan(columns, filter, as_of, query).to_df(spark)
    if as_of is not None or wanted not in (Query.SNAPSHOT, Query.INCREMENTAL):
        raise InvalidRequest(
            "start and end select the changes of a range, and cannot be combined with as_of or another query",
            hint="Leave out as_of= and query=; the rows are those of the end of the range.",
        )
    if start is None:
        raise InvalidRequest("an incremental query needs a start", hint="Use a completion time, or 0 for everything.")
    return table.incremental(start, end, columns, filter).to_df(spark)


def create(
    path: str | os.PathLike[str],
    schema: Any,
    *,
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str = "mor",
    layout: str = "lsm_tree",
    log_format: str = "v2",
    index: str | None = None,
    num_buckets: int | None = None,
    properties: Mapping[str, str] | None = None,
    if_exists: str = "error",
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Create a table and open it; nothing is written before everything is checked.

        t = lakebed.create("/lake/orders", schema, record_key="id", partition_by="region", ordering="updated_at")

    `schema` is a pyarrow or Spark schema, SQL text ("id string NOT NULL, tags array<string>"), or data whose schema is
    used. `log_format="v2"` makes a table of version 10 with native Parquet logs; `"v1"` one of version 9 that Hudi 1.0
    to 1.2 read and write. `properties` are `hoodie.*` keys for what has no argument, such as the key generator.
    """
    if if_exists not in ("error", "open"):
        raise InvalidRequest(f"if_exists={if_exists!r} is not known", hint='Use "error" or "open".')
    url = os.fspath(path) if isinstance(path, os.PathLike) else path
    storage = open_storage(url, storage_options)
    texts = option_texts(properties)
    warn_unknown(texts, known_keys())
    new = NewTable(
        name=stated(texts, TABLE_NAME) or file_name(storage.url.rstrip("/")),
        schema=schema_of(_arrow_schema(schema)),
        record_key=one_or_several("record_key", record_key),
        partition_by=one_or_several("partition_by", partition_by),
        ordering=one_or_several("ordering", ordering),
        table_type=table_type,
        layout=layout,
        log_format=log_format,
        index=index,
        num_buckets=num_buckets,
        properties=texts,
    )
    if create_table(storage, new):
        return Table(MetaClient.open(storage))
    if if_exists == "error":
        raise InvalidRequest(
            "there is a table already", file=storage.url, hint='Open it, or create with if_exists="open".'
        )
    client, mode = MetaClient.open(storage), {key: value for key, value in texts.items() if key in MODE_KEYS}
    txn_context_for(client, mode)  # an existing table keeps its settings, but all writers must use one concurrency mode
    return Table(client, properties=mode)


def _arrow_schema(schema: Any) -> Any:
    """The schema of a Spark frame, Spark's own form of one, or SQL text, in Arrow's; anything else as it is."""
    if isinstance(schema, str):
        return ddl_schema(schema)
    if is_spark_frame(schema):
        schema = schema.schema
    if type(schema).__module__.startswith("pyspark.sql") and type(schema).__name__ == "StructType":
        from lakebed.spark.types import arrow_schema

        return arrow_schema(schema)
    return schema
