"""`Table`: the object with which a user reads, writes and maintains a table.

`Table` is small on purpose. Rows are read with `scan` and `incremental`; files and timeline are shown by `inspect`; the
settings of a write are resolved in `write/writer_context.py`. Only the table's properties and timeline are cached
across calls, and `refresh` reloads those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakebed.config.call_arguments import Memory, column_names, is_spark_frame
from lakebed.config.memory_plan import DEFAULT_WRITE_MEMORY
from lakebed.config.option import warn_unknown
from lakebed.config.option_texts import Options, option_texts
from lakebed.config.read_options import ReadOptions, TableConfig, known_keys
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Predicate
from lakebed.inspect import Inspect
from lakebed.model.finding import Finding
from lakebed.read.plan import Query, query_named
from lakebed.read.reader_context import reader_context_of
from lakebed.read.scan import Scan
from lakebed.read.time_range import Time
from lakebed.runner import LocalRunner
from lakebed.services.after_write import after_write
from lakebed.services.check import check_table
from lakebed.services.drop_metadata import without_metadata_table
from lakebed.services.services import Services
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.txn_context import TxnContext
from lakebed.write.job import CommitResult
from lakebed.write.merge_into.builder import MergeBuilder, run_merge
from lakebed.write.operation import Operation
from lakebed.write.table_writer import TableWriter
from lakebed.write.writer_context import writer_context


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
        """The location of the table."""
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
        """Everything that is wrong with the table: files, timeline, order, keys. Reads all keys.

        `memory` is a ceiling in bytes (or "512MB"); keys that do not fit are spilled to disk and compared part by part.
        """
        return check_table(self._client, self._runner, self._options.override(memory=memory))

    @property
    def services(self) -> Services:
        """Table services: `compact`, `upgrade`, `downgrade` and others."""
        return self._services({})

    def _services(self, options: Mapping[str, str]) -> Services:
        properties = {**self._properties, **options}
        memory, drop = self._options.memory, self._drop_metadata
        return Services(
            self._client, self._reporting_txn_context(), self._runner, memory, self.refresh, properties, drop
        )

    def _reporting_txn_context(self) -> TxnContext:
        """The settings of transactions, which pass the changed timeline to this object when they end."""
        return replace(self._txn_context or TxnContext.of(self._client.storage), on_change=self._use_client)

    def _use_client(self, client: MetaClient) -> None:
        self._client = client

    # ------------------------------------------------------------------ reading
    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Predicate | None = None,  # noqa: A002 - the word every data frame uses
        as_of: Time | None = None,
        query: str = Query.SNAPSHOT,
        limit: int | None = None,
        memory: Memory = None,
        options: Mapping[str, str] | ReadOptions | None = None,
    ) -> Scan:
        """The rows of the table, now or `as_of` a time.

        `query="read_optimized"` reads base files only: faster, and as old as the last compaction.
        `memory` is a ceiling in bytes (or "512MB") for merging, honoured by smaller buffers, passes and spilling.

            t.scan(columns=["id", "qty"], filter="qty > 3 and region = 'eu'").to_pandas()
        """
        wanted, names = query_named(query), column_names(columns)
        chosen = self._options.override(options, memory=memory)
        return Scan(self._client, wanted, names, filter, as_of, limit_rows=limit, options=chosen, runner=self._runner)

    def incremental(
        self,
        start: Time,
        end: Time | None = None,
        columns: Sequence[str] | None = None,
        filter: str | Predicate | None = None,  # noqa: A002
        memory: Memory = None,
        options: Mapping[str, str] | ReadOptions | None = None,
    ) -> Scan:
        """Rows whose current version was committed after `start` and up to `end`, by completion time.

        The answer is the merged state at the end of the range, so a row that came late and lost is not in it.

            t.incremental(start="20261101000000000").to_arrow()
        """
        names, chosen = column_names(columns), self._options.override(options, memory=memory)
        return Scan(
            self._client, Query.INCREMENTAL, names, filter, None, start, end, options=chosen, runner=self._runner
        )

    # ------------------------------------------------------------------ writing
    def upsert(
        self, data: Any, options: Options = None, memory: Memory = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Insert rows, or replace the rows whose keys are there already; by the table's merge rule.

        `data` is an Arrow table or reader, a pandas or polars frame, a DuckDB relation: anything that streams Arrow.
        """
        return self._write(data, Operation.UPSERT, options, memory, drop_metadata)

    def insert(
        self, data: Any, options: Options = None, memory: Memory = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Add rows without looking for their keys; with a hashed index, rows of the same key are replaced."""
        return self._write(data, Operation.INSERT, options, memory, drop_metadata)

    def bulk_insert(
        self, data: Any, options: Options = None, memory: Memory = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Add many rows at once; the way to fill a table."""
        return self._write(data, Operation.BULK_INSERT, options, memory, drop_metadata)

    def overwrite(
        self, data: Any, options: Options = None, memory: Memory = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Replace all rows of the table by `data`."""
        return self._write(data, Operation.INSERT_OVERWRITE_TABLE, options, memory, drop_metadata)

    def overwrite_partitions(
        self, data: Any, options: Options = None, memory: Memory = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Replace the partitions that the rows belong to; other partitions stay."""
        return self._write(data, Operation.INSERT_OVERWRITE, options, memory, drop_metadata)

    def delete(
        self,
        where: str | None = None,
        keys: Any = None,
        options: Options = None,
        memory: Memory = None,
        drop_metadata: bool = False,
    ) -> CommitResult:
        """Delete the rows that a condition matches, or those with these keys.

        t.delete(where="status = 'void'")
        t.delete(keys=["k1", "k2"])            # or an array, or dicts or a table of key columns
        """
        if (where is None) == (keys is None):
            raise InvalidRequest("delete takes either where= or keys=")
        writer = self._writer(options, memory, drop_metadata)
        result = writer.delete_where(where) if where is not None else writer.delete_keys(keys)
        return self._after_write(result, writer)

    def delete_partitions(
        self, partitions: Sequence[str], options: Options = None, drop_metadata: bool = False
    ) -> CommitResult:
        """Delete whole partitions, named by path or as `column=value`."""
        if isinstance(partitions, str):
            raise InvalidRequest("delete_partitions takes a list", hint=f"Use [{partitions!r}].")
        writer = self._writer(options, None, drop_metadata)
        return self._after_write(writer.delete_partitions(partitions), writer)

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002 - SQL's word
        where: str | None = None,
        options: Options = None,
        memory: Memory = None,
        drop_metadata: bool = False,
    ) -> CommitResult:
        """Set columns by expressions, in the rows that a condition matches.

        t.update(set={"qty": "qty + 1"}, where="region = 'eu'")
        """
        writer = self._writer(options, memory, drop_metadata)
        return self._after_write(writer.update(set, where), writer)

    def merge(
        self, source: Any, on: str, options: Options = None, memory: Memory = None, drop_metadata: bool = False
    ) -> MergeBuilder:
        """A MERGE of source rows into the table, matched by key; add clauses, then `execute`.

        (t.merge(updates, on="t.id = s.id")
          .when_matched_update(set={"qty": "t.qty + s.qty"}, condition="s.qty > 0")
          .when_matched_delete(condition="s.gone")
          .when_not_matched_insert_all().execute())
        """

        def run(builder: MergeBuilder) -> CommitResult:
            writer = self._writer(options, memory, drop_metadata)
            if is_spark_frame(builder.source):
                from lakebed.spark.write_job import merge_frame

                return self._after_write(merge_frame(writer, builder), writer, builder.source.sparkSession)
            return self._after_write(run_merge(writer, builder), writer)

        return MergeBuilder(run, source, on)

    def _write(
        self, data: Any, operation: Operation, options: Options, memory: Memory, drop_metadata: bool
    ) -> CommitResult:
        writer = self._writer(options, memory, drop_metadata)
        if is_spark_frame(data):
            from lakebed.spark.write_job import write_frame

            return self._after_write(write_frame(data, writer, operation), writer, data.sparkSession)
        return self._after_write(writer.write(data, operation), writer)

    def _writer(self, options: Options, memory: Memory, drop_metadata: bool = False) -> TableWriter:
        """The writer of one call; with `drop_metadata` the metadata table is removed first."""
        self.refresh()
        texts = option_texts(options)
        warn_unknown(texts, known_keys(), stacklevel=4)
        context = writer_context(
            self._client,
            self._properties,
            texts,
            memory=memory,
            default_memory=max(DEFAULT_WRITE_MEMORY, self._options.memory),
            runner=self._runner,
            txn_context=self._reporting_txn_context(),
        )
        without = without_metadata_table(context, drop=drop_metadata or self._drop_metadata)
        if without.client is not context.client:
            self._client = without.client
        return TableWriter(without)

    def _after_write(self, result: CommitResult, writer: TableWriter, spark: Any = None) -> CommitResult:
        """The result of a completed write, after the table services that are due have run."""
        services = self._services(writer.context.properties)
        after_write(services if spark is None else services.on(spark), writer.context)
        return result

    def __repr__(self) -> str:
        config = self.config
        return f"Table({self.url!r}, {config.table_type}, version {int(config.version)}, layout {config.layout})"
