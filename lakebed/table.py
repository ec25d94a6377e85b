"""The front door: open a table, read it.

`Table` stays small on purpose. What a table *contains* is behind `scan` and `incremental`; what it is *made of* is
behind `inspect`. Nothing is cached across calls but the table's properties and timeline, and `refresh` renews those.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakebed.config.memory_plan import DEFAULT_WRITE_MEMORY
from lakebed.config.option import bytes_of, warn_unknown
from lakebed.config.option_texts import option_texts
from lakebed.config.read_options import ReadOptions, TableConfig, known_keys
from lakebed.config.upkeep_groups import check_upkeep
from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Predicate
from lakebed.inspect import Inspect
from lakebed.model.ddl import ddl_schema
from lakebed.model.finding import Finding
from lakebed.read.plan import Query, query_named
from lakebed.read.reader_context import reader_context_of
from lakebed.read.scan import Scan
from lakebed.read.time_range import Time
from lakebed.runner import LocalRunner
from lakebed.services.after_write import after_write
from lakebed.services.check import check_table
from lakebed.services.drop_metadata import is_half_dropped, remove_metadata
from lakebed.services.services import Services
from lakebed.storage.open import open_storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.mode import MODE_KEYS, txn_context_for
from lakebed.txn.txn_context import TxnContext
from lakebed.write.create.create_options import TABLE_NAME, stated
from lakebed.write.create.create_table import NewTable, create_table, schema_of
from lakebed.write.job import CommitResult
from lakebed.write.merge_into.builder import MergeBuilder, run_merge
from lakebed.write.operation import Operation
from lakebed.write.table_writer import TableWriter
from lakebed.write.write_checks import write_keys

Options = Mapping[str, Any] | WriteOptions | None


class Table:
    """A Hudi table at a location. Get one with `lakebed.open`."""

    __slots__ = ("_client", "_drop_metadata", "_options", "_properties", "_runner", "_txn_context")

    def __init__(
        self,
        client: MetaClient,
        options: ReadOptions | None = None,
        properties: Mapping[str, str] | None = None,
        txn_context: TxnContext | None = None,
        drop_metadata: bool = False,
    ) -> None:
        self._client = client
        self._drop_metadata = drop_metadata
        self._options = options or ReadOptions()
        self._properties = option_texts(properties)
        self._txn_context = txn_context
        self._runner = LocalRunner()

    # ------------------------------------------------------------------ what it is
    @property
    def url(self) -> str:
        """Where the table lies."""
        return self._client.storage.url

    @property
    def config(self) -> TableConfig:
        """The table's own settings, from `hoodie.properties`."""
        return self._client.config

    @property
    def name(self) -> str:
        """The table's name."""
        return self.config.name

    @property
    def schema(self) -> pa.Schema:
        """The current schema, meta fields first."""
        return reader_context_of(self._client).schema

    @property
    def inspect(self) -> Inspect:
        """Timeline, slices, commits and settings as Arrow tables."""
        return Inspect(self._client, self._options)

    def refresh(self) -> Table:
        """See what was committed since the table was opened."""
        self._client = self._client.reload()
        return self

    def check(self, memory: int | str | None = None) -> list[Finding]:
        """Everything about the table that is not as it should be: files, timeline, order, keys. Reads all keys.

        `memory` is a ceiling in bytes (or "512MB"); keys that do not fit are compared part by part, on disk.
        """
        return check_table(self._client, self._runner, self._options.override(memory=memory))

    @property
    def services(self) -> Services:
        """Upkeep: `compact`, `upgrade`, `downgrade` and the like."""
        self.refresh()
        return self._services({})

    def _services(self, given: Mapping[str, str]) -> Services:
        properties = {**self._properties, **given}
        txn_context = self._txn_context or TxnContext.of(self._client.storage)
        memory, drop = self._options.memory, self._drop_metadata
        return Services(self._client, txn_context, self._runner, memory, self.refresh, properties, drop)

    # ------------------------------------------------------------------ reading
    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Predicate | None = None,  # noqa: A002 - the word every data frame uses
        as_of: Time | None = None,
        query: str = Query.SNAPSHOT,
        limit: int | None = None,
        memory: int | str | None = None,
        options: Mapping[str, str] | ReadOptions | None = None,
    ) -> Scan:
        """The rows of the table, now or `as_of` a time.

        `query="read_optimized"` reads base files only: faster, and as old as the last compaction.
        `memory` is a ceiling in bytes (or "512MB") for merging, honoured by smaller buffers, passes and spilling.

            t.scan(columns=["id", "qty"], filter="qty > 3 and region = 'eu'").to_pandas()
        """
        return Scan(
            client=self._client,
            query=query_named(query),
            columns=_names(columns),
            where=filter,
            as_of_time=as_of,
            limit_rows=limit,
            options=self._options.override(options, memory=memory),
            runner=self._runner,
        )

    def incremental(
        self,
        start: Time,
        end: Time | None = None,
        columns: Sequence[str] | None = None,
        filter: str | Predicate | None = None,  # noqa: A002
        memory: int | str | None = None,
        options: Mapping[str, str] | ReadOptions | None = None,
    ) -> Scan:
        """Rows whose current version was committed after `start` and up to `end`, by completion time.

        The answer is the merged state at the end of the range, so a row that came late and lost is not in it.

            t.incremental(start="20261101000000000").to_arrow()
        """
        return Scan(
            client=self._client,
            query=Query.INCREMENTAL,
            columns=_names(columns),
            where=filter,
            start=start,
            end=end,
            options=self._options.override(options, memory=memory),
            runner=self._runner,
        )

    # ------------------------------------------------------------------ writing
    def upsert(
        self, data: Any, options: Options = None, memory: int | str | None = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Insert rows, or replace the rows whose keys are there already; by the table's merge rule.

        `data` is an Arrow table or reader, a pandas or polars frame, a DuckDB relation: anything that streams Arrow.
        """
        return self._write(data, Operation.UPSERT, options, memory, drop_metadata)

    def insert(
        self, data: Any, options: Options = None, memory: int | str | None = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Add rows without looking for their keys; where a hash places rows, a known key is replaced all the same."""
        return self._write(data, Operation.INSERT, options, memory, drop_metadata)

    def bulk_insert(
        self, data: Any, options: Options = None, memory: int | str | None = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Add many rows at once; the way to fill a table."""
        return self._write(data, Operation.BULK_INSERT, options, memory, drop_metadata)

    def overwrite(
        self, data: Any, options: Options = None, memory: int | str | None = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Replace all rows of the table by these."""
        return self._write(data, Operation.INSERT_OVERWRITE_TABLE, options, memory, drop_metadata)

    def overwrite_partitions(
        self, data: Any, options: Options = None, memory: int | str | None = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Replace the partitions that the rows belong to; others stay."""
        return self._write(data, Operation.INSERT_OVERWRITE, options, memory, drop_metadata)

    def delete(
        self,
        where: str | None = None,
        keys: Any = None,
        options: Options = None,
        memory: int | str | None = None,
        drop_metadata: bool = False,
    ) -> CommitResult:
        """Delete the rows that a condition matches, or those with the given keys.

        t.delete(where="status = 'void'")
        t.delete(keys=["k1", "k2"])            # or an array, or dicts or a table of key columns
        """
        if (where is None) == (keys is None):
            raise InvalidRequest("delete takes either where= or keys=")
        writer = self._writer(options, memory, drop_metadata)
        result = writer.delete_where(where) if where is not None else writer.delete_keys(keys)
        return self._done(result, options)

    def delete_partitions(
        self, partitions: Sequence[str], options: Options = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Let whole partitions vanish, named by path or as `column=value`."""
        if isinstance(partitions, str):
            raise InvalidRequest("delete_partitions takes a list", hint=f"Use [{partitions!r}].")
        return self._done(self._writer(options, None, drop_metadata).delete_partitions(partitions), options)

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002 - SQL's word
        where: str | None = None,
        options: Options = None,
        memory: int | str | None = None,
        drop_metadata: bool = False,
    ) -> CommitResult:
        """Set columns by expressions, in the rows that a condition matches.

        t.update(set={"qty": "qty + 1"}, where="region = 'eu'")
        """
        return self._done(self._writer(options, memory, drop_metadata).update(set, where), options)

    def merge(
        self,
        source: Any,
        on: str,
        options: Options = None,
        memory: int | str | None = None,
        drop_metadata: bool = False,
    ) -> MergeBuilder:
        """A MERGE of source rows into the table, matched by key; add clauses, then `execute`.

        (t.merge(updates, on="t.id = s.id")
          .when_matched_update(set={"qty": "t.qty + s.qty"}, condition="s.qty > 0")
          .when_matched_delete(condition="s.gone")
          .when_not_matched_insert_all().execute())
        """

        def run(builder: MergeBuilder) -> CommitResult:
            writer = self._writer(options, memory, drop_metadata)
            if not _is_spark_frame(builder.source):
                return self._done(run_merge(writer, builder), options)
            from lakebed.spark.rows_to_driver import carried_rows

            with carried_rows(builder.source, writer.client.storage) as rows:
                return self._done(
                    run_merge(writer, replace(builder, source=rows)), options, builder.source.sparkSession
                )

        return MergeBuilder(run, source, on)

    def _write(
        self, data: Any, operation: Operation, options: Options, memory: int | str | None, drop_metadata: bool
    ) -> CommitResult:
        writer = self._writer(options, memory, drop_metadata)
        if _is_spark_frame(data):
            from lakebed.spark.write_job import write_frame

            return self._done(write_frame(data, writer, operation), options, data.sparkSession)
        return self._done(writer.write(data, operation), options)

    def _writer(self, options: Options, memory: int | str | None, drop_metadata: bool = False) -> TableWriter:
        self.refresh()
        given = option_texts(options)
        warn_unknown(given, known_keys(), stacklevel=4)
        chosen = {**self._client.config.properties, **self._properties, **given}
        files = WriteOptions.from_properties(chosen)
        check_upkeep(chosen)
        txn_context = txn_context_for(self._client, {**self._properties, **given}, self._txn_context)
        writer = TableWriter(  # a write that is refused leaves the metadata table where it is
            self._client,
            txn_context,
            files,
            {**self._properties, **given},
            self._runner,
            self._write_memory(memory, given),
        )
        asked = drop_metadata or self._drop_metadata or files.drop_metadata
        if asked or is_half_dropped(self._client):
            self._client = remove_metadata(self._client, txn_context)
            writer = replace(writer, client=self._client)
        return writer

    def _write_memory(self, memory: int | str | None, given: Mapping[str, str]) -> int:
        asked = memory if memory is not None else {**self._properties, **given}.get("lakebed.memory")
        return bytes_of(asked) if asked is not None else max(DEFAULT_WRITE_MEMORY, self._options.memory)

    def _done(self, result: CommitResult, options: Options, spark: Any = None) -> CommitResult:
        self.refresh()
        services = self._services(option_texts(options))
        after_write(services if spark is None else services.on(spark))
        return result

    def __repr__(self) -> str:
        config = self.config
        return f"Table({self.url!r}, {config.table_type}, version {int(config.version)}, layout {config.layout})"


def _names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InvalidRequest(f"columns is a list of names, not {columns!r}", hint='Write columns=["id", "qty"].')
    return tuple(columns)


def _is_spark_frame(data: object) -> bool:
    """Whether data is a Spark DataFrame, classic or Connect, without importing pyspark to find out."""
    return any(
        base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in type(data).__mro__
    )


def open(  # noqa: A001 - `lakebed.open(path)` is the name people look for
    path: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | ReadOptions | None = None,
    drop_metadata: bool = False,
    num_buckets: int | None = None,
) -> Table:
    """Open the table at a local path or an object-store URL.

        t = lakebed.open("s3://lake/orders", storage_options={"region": "eu-west-1"})

    A table with a metadata table is not written to, for lakebed would leave that behind; with `drop_metadata=True` the
    first write or service removes it. Tables that real Hudi wrote with a bucket index do not say how many buckets they
    have, and need `num_buckets` to be written to. Raises `TableNotFound` when there is no table, `UnsupportedFormat`
    for versions that are not read.
    """
    client = MetaClient.open(open_storage(path, storage_options))
    given = dict(options) if isinstance(options, Mapping) else {}
    if num_buckets is not None:
        given = {"hoodie.index.type": "BUCKET", **given, "hoodie.bucket.index.num.buckets": str(num_buckets)}
    if isinstance(options, Mapping):
        options = {key: value for key, value in options.items() if key not in write_keys()}
    return Table(client, ReadOptions().override(options), given, drop_metadata=drop_metadata)


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

    With `start` (and `end`) only rows committed in that range, as `Table.incremental` has it.
    """
    table = open(path, storage_options, options)
    wanted = str(query).replace("-", "_").lower()
    if start is None and end is None and wanted != Query.INCREMENTAL:
        return table.scan(columns, filter, as_of, query).to_df(spark)
    if as_of is not None or wanted not in (Query.SNAPSHOT, Query.INCREMENTAL):
        raise InvalidRequest(
            "start and end ask for the changes of a range, and go with neither as_of nor another query",
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
    """Make a table and open it; nothing is written before everything is checked.

        t = lakebed.create("/lake/orders", schema, record_key="id", partition_by="region", ordering="updated_at")

    `schema` is a pyarrow or Spark schema, SQL text ("id string NOT NULL, tags array<string>"), or data whose schema is
    taken. `log_format="v2"` makes a table of version 10 with native Parquet logs; `"v1"` one of version 9 that Hudi 1.0
    to 1.2 read and write. `properties` are `hoodie.*` keys for what has no argument, such as the key generator.
    """
    if if_exists not in ("error", "open"):
        raise InvalidRequest(f"if_exists={if_exists!r} is not known", hint='Use "error" or "open".')
    url = os.fspath(path) if isinstance(path, os.PathLike) else path
    storage = open_storage(url, storage_options)
    given = option_texts(properties)
    warn_unknown(given, known_keys())
    new = NewTable(
        name=stated(given, TABLE_NAME) or storage.url.rstrip("/").rpartition("/")[2],
        schema=schema_of(_arrow_schema(schema)),
        record_key=_listed("record_key", record_key),
        partition_by=_listed("partition_by", partition_by),
        ordering=_listed("ordering", ordering),
        table_type=table_type,
        layout=layout,
        log_format=log_format,
        index=index,
        num_buckets=num_buckets,
        properties=given,
    )
    if create_table(storage, new):
        return Table(MetaClient.open(storage))
    if if_exists == "error":
        raise InvalidRequest(
            "there is a table already", file=storage.url, hint='Open it, or create with if_exists="open".'
        )
    client, asked = MetaClient.open(storage), {key: value for key, value in given.items() if key in MODE_KEYS}
    txn_context_for(client, asked)  # a table that is there keeps its settings, but who may write is for all to agree on
    return Table(client, properties=asked)


def _arrow_schema(schema: Any) -> Any:
    """The schema of a Spark frame, Spark's own form of one, or SQL text, in Arrow's; anything else as it is."""
    if isinstance(schema, str):
        return ddl_schema(schema)
    if _is_spark_frame(schema):
        schema = schema.schema
    if type(schema).__module__.startswith("pyspark.sql") and type(schema).__name__ == "StructType":
        from lakebed.spark.types import arrow_schema

        return arrow_schema(schema)
    return schema


def _listed(what: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of an argument that takes one or several."""
    if given is None or isinstance(given, str):
        return () if given is None else (given,)
    names = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest(
            f"{what} is a column or a list of them, not {given!r}", hint=f'Write {what}="id", or {what}=["id", "day"].'
        )
    return names
