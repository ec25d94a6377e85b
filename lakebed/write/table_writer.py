"""The write operations of a table, from the data of the user to a commit.

`TableWriter` has the operations of one call; the settings are in its context. Each operation prepares rows, and `job`
writes them. Operations that depend on the rows of the table (update, delete by condition) read first, and write by key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import MemoryPlan
from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import Duplicates
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Predicate, is_in
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.ambiguous_keys import refuse_ambiguous_keys
from lakebed.model.concat import concat
from lakebed.model.partition_path import PartitionFields
from lakebed.model.record_key import record_key_array
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY, with_meta_fields, without_meta_fields
from lakebed.read.plan import Query
from lakebed.read.reader_context import keyed_reader_context
from lakebed.read.scan import Scan
from lakebed.timeline.clock import instant_time_now
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.job import CommitResult, WriteRequest, run_write, table_schema_json
from lakebed.write.operation import Operation
from lakebed.write.rows.delete_keys import key_table
from lakebed.write.rows.prepare import Preparation, as_reader, plan_preparation
from lakebed.write.rows.set_expressions import assigned, bind_assignment, check_assignable
from lakebed.write.tagging.duplicates import duplicate_policy, known_keys_of, new_rows
from lakebed.write.write_checks import declared_schema, refuse_other_version, version_report
from lakebed.write.writer_context import WriterContext


@dataclass(frozen=True, slots=True)
class TableWriter:
    """The write operations of one call."""

    context: WriterContext

    @property
    def client(self) -> MetaClient:
        """The table as it was when the call began."""
        return self.context.client

    # ------------------------------------------------------------------ operations
    def write(self, data: Any, operation: Operation, *, partial: bool = False) -> CommitResult:
        """Insert, upsert or overwrite with rows from Arrow data."""
        if partial:
            raise InvalidRequest("rows with some of the columns cannot be written as they are", hint="Use merge.")
        if operation is Operation.UPSERT and not self.client.config.key_fields:
            raise InvalidRequest("the table has no record key, so nothing can be updated", hint="Use insert.")
        in_memory = isinstance(data, (pa.Table, pa.RecordBatch))
        return self._write(as_reader(data), operation, in_memory=in_memory)

    def _write(
        self, reader: pa.RecordBatchReader, operation: Operation, *, reads: bool = False, in_memory: bool = False
    ) -> CommitResult:
        reader_context = keyed_reader_context(self.client)
        plan = self.plan(reader_context, reader.schema)
        request = replace(self.request(operation, reader_context, plan), reads=reads)
        rows = plan.rows(reader, self.key_stem(), secrets.randbelow(1 << 31))
        in_memory = in_memory and plan.keeps_columns
        context = self.context
        policy = duplicate_policy(operation, context.write_options, plan.generator)
        if policy is not Duplicates.NONE:
            is_global = context.index_options.is_global
            known = known_keys_of(self.client, context.memory, context.runner, is_global=is_global)
            rows, request, in_memory = new_rows(rows, known, policy), replace(request, reads=True), False
        return run_write(self.client, context.txn_context, request, rows, context.runner, in_memory=in_memory)

    def delete_keys(self, keys: Any) -> CommitResult:
        """Delete rows by key: values of a single key column, dicts of key columns, or an Arrow array or table."""
        config = self.client.config
        reader_context = keyed_reader_context(self.client)
        data = key_table(keys, config.key_fields, reader_context.schema)
        if not data.num_rows:
            return self._delete_found(())
        generator = self.context.key_generator
        if all(name in data.schema.names for name in (*generator.columns, *config.partition_fields)):
            return self.delete_rows(data)
        generator = replace(generator, partition=PartitionFields())
        batches = data.combine_chunks().to_batches()
        for batch in batches:
            refuse_ambiguous_keys(generator, batch)
        texts = [record_key_array(generator, batch) for batch in batches]
        found = is_in(pa.field(RECORD_KEY, pa.string()), pc.unique(concat(texts)).to_pylist())
        return self.delete_where(found)

    def delete_where(self, condition: str | Predicate) -> CommitResult:
        """Delete the rows that a condition matches."""
        return self._delete_found(self.scan((RECORD_KEY, PARTITION_PATH), condition).to_batches(), reads=True)

    def delete_rows(self, data: Any) -> CommitResult:
        """Delete the keys of rows that carry the key and partition columns."""
        reader = as_reader(data)
        reader_context = keyed_reader_context(self.client)
        plan = self.plan(reader_context, reader.schema, deletes=True)
        return self._delete_found(plan.rows(reader, self.key_stem()))

    def _delete_found(self, rows: Iterable[pa.RecordBatch], *, reads: bool = False) -> CommitResult:
        reader_context = keyed_reader_context(self.client)
        request = replace(self._request_for(Operation.DELETE, reader_context), reads=reads)
        deletes = unordered_deletes(rows, reader_context)
        return run_write(self.client, self.context.txn_context, request, (), self.context.runner, deletes)

    def delete_partitions(self, partitions: Sequence[str], *, as_read: bool = False) -> CommitResult:
        """Remove whole partitions; with `as_read` only if no write touched them since the table was opened."""
        known = FileSystemView.of(self.client).partitions()
        chosen = tuple(self._partition_named(name, known) for name in partitions)
        reader_context = keyed_reader_context(self.client)
        request = replace(
            self._request_for(Operation.DELETE_PARTITION, reader_context), partitions=chosen, reads=as_read
        )
        return run_write(self.client, self.context.txn_context, request, (), self.context.runner)

    def update(self, assignments: Mapping[str, str], where: str | None) -> CommitResult:
        """Set columns of the rows that a condition matches, by expressions over the row."""
        reader_context = keyed_reader_context(self.client)
        own = without_meta_fields(reader_context.schema)
        if not assignments:
            raise InvalidRequest("nothing to set", hint='Give set={"column": "expression"}.')
        for name in assignments:
            check_assignable(name, self.client.config, own)
        parsed = {name: bind_assignment(text, own, own.field(name)) for name, text in assignments.items()}
        key = pa.field(RECORD_KEY, pa.string())  # generated keys are stored in no other column
        schema = pa.schema([key, *own])
        scan = self.scan(tuple(schema.names), where)

        def updated() -> Iterator[pa.RecordBatch]:
            for batch in scan.to_batches():
                columns = [
                    assigned(parsed[item.name], batch, item) if item.name in parsed else batch.column(item.name)
                    for item in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return self._write(pa.RecordBatchReader.from_batches(schema, updated()), Operation.UPSERT, reads=True)

    # ------------------------------------------------------------------ steps of an operation
    def scan(self, columns: tuple[str, ...], where: str | Predicate | None) -> Scan:
        """Reads the rows of the table that an operation depends on, within its share of the memory."""
        options, runner = ReadOptions(memory=MemoryPlan(self.context.memory).write.scan), self.context.runner
        return Scan(self.client, Query.SNAPSHOT, columns, where, options=options, runner=runner, keyed=True)

    def plan(
        self, reader_context: ReaderContext, incoming: pa.Schema, *, partial: bool = False, deletes: bool = False
    ) -> Preparation:
        """How rows of the schema `incoming` become rows of the table; `InvalidRequest` when they cannot."""
        return plan_preparation(
            self.client.config,
            declared_schema(self.client, reader_context),
            incoming,
            generator=self.context.key_generator,
            partial=partial,
            deletes=deletes,
        )

    def request(
        self, operation: Operation, reader_context: ReaderContext, plan: Preparation, *, partial: bool = False
    ) -> WriteRequest:
        """The request for a write of prepared rows; `partial` rows update rows that exist in the table."""
        schema = with_meta_fields(plan.table_schema)
        if reader_context.on_read is not None:
            refuse_other_version(reader_context.schema, schema)
        reader_context = replace(reader_context, schema=pa.schema([item.with_nullable(True) for item in schema]))
        json_text = table_schema_json(plan.table_schema, self.client.config.name)
        partitions = None
        if operation is Operation.INSERT_OVERWRITE_TABLE:
            partitions = tuple(FileSystemView.of(self.client).partitions())
        return replace(self._request_for(operation, reader_context, json_text), partial=partial, partitions=partitions)

    def _request_for(
        self, operation: Operation, reader_context: ReaderContext, json_text: str | None = None
    ) -> WriteRequest:
        text = json_text or table_schema_json(declared_schema(self.client, reader_context), self.client.config.name)
        context = self.context
        return WriteRequest(
            operation,
            reader_context,
            text,
            context.write_options,
            context.index_options,
            context.properties,
            context.memory,
            extra=version_report(reader_context),
        )

    def key_stem(self) -> str:
        """The prefix of generated keys."""
        return instant_time_now(self.context.txn_context.clock, self.client.config.timezone)

    def _partition_named(self, name: str, known: Sequence[str]) -> str:
        """A partition by its path, or by `column=value` where the table's folders are named by values only."""
        path = name.strip("/")
        if path in known:
            return path
        config = self.client.config
        parts = path.split("/")
        if config.hive_style and len(parts) == len(config.partition_fields) and "=" not in path:
            path = "/".join(f"{field}={part}" for field, part in zip(config.partition_fields, parts, strict=True))
        elif not config.hive_style and [part.partition("=")[0] for part in parts] == list(config.partition_fields):
            path = "/".join(part.partition("=")[2] for part in parts)
        if path in known:
            return path
        raise InvalidRequest(f"there is no partition {name!r}", hint=f"There are: {', '.join(sorted(known)[:10])}.")


def unordered_deletes(keys: Iterable[pa.RecordBatch], reader_context: ReaderContext) -> Iterator[pa.RecordBatch]:
    """Keys with their partitions as deletes without an ordering value: they delete any version of the row."""
    ordering = [reader_context.schema.field(name) for name in reader_context.rule.ordering]
    names = [RECORD_KEY, PARTITION_PATH, *(item.name for item in ordering)]
    for batch in keys:
        columns = [batch.column(RECORD_KEY), batch.column(PARTITION_PATH)]
        columns += [pa.nulls(batch.num_rows, item.type) for item in ordering]
        yield pa.RecordBatch.from_arrays(columns, names=names)
