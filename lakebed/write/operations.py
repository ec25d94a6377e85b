"""The write operations of a table, from whatever the user hands over to a commit.

`TableWriter` binds a table to how it is written: options, lock, memory. Each operation prepares rows, and the job does
the rest. Operations that depend on what the table holds (update, delete by condition) read first, and write by key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest
from lakebed.merge.file_group_reader import TableShape
from lakebed.model.predicate import parse_expression
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY, with_meta_fields, without_meta_fields
from lakebed.read.plan import Query
from lakebed.read.scan import Scan
from lakebed.read.shape import table_shape
from lakebed.runner import LocalRunner, Runner
from lakebed.timeline.clock import instant_time_now
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.job import CommitResult, WriteRequest, run_write, table_schema_json
from lakebed.write.operation import Operation
from lakebed.write.prepare import Preparation, as_reader, plan_preparation

DEFAULT_MEMORY = 512 << 20


@dataclass(frozen=True)
class TableWriter:
    """How one table is written to."""

    client: MetaClient
    control: Control
    options: WriteOptions = field(default_factory=WriteOptions)
    properties: Mapping[str, str] = field(default_factory=dict)
    runner: Runner = field(default_factory=LocalRunner)
    memory: int = DEFAULT_MEMORY

    # ------------------------------------------------------------------ rows in
    def write(self, data: Any, operation: Operation, *, partial: bool = False) -> CommitResult:
        """Insert, upsert or overwrite with rows from Arrow data."""
        if operation is Operation.UPSERT and not self.client.config.key_fields:
            raise InvalidRequest("the table has no record key, so nothing can be updated", hint="Use insert.")
        reader = as_reader(data)
        shape = table_shape(self.client)
        plan = self._plan(shape, reader.schema, partial=partial)
        request = self.request(operation, shape, plan, partial=partial)
        rows = plan.rows(reader, self._key_stem(), secrets.randbelow(1 << 31))
        return run_write(self.client, self.control, request, rows, self.runner)

    def delete_keys(self, keys: Sequence[Any]) -> CommitResult:
        """Delete rows by key: texts of record keys, values of a single key column, or dicts of key columns."""
        shape = table_shape(self.client)
        data = key_table(keys, self.client.config.key_fields, shape.schema)
        missing = [name for name in self.client.config.partition_fields if name not in data.schema.names]
        if not missing:
            return self.delete_rows(data)
        return self.delete_where_keys(data.column(0).combine_chunks() if data.num_columns == 1 else data)

    def delete_where_keys(self, keys: Any) -> CommitResult:
        """Keys without their partition: they are looked for in the whole table."""
        names = list(self.client.config.key_fields)
        if isinstance(keys, pa.Table):
            condition = " OR ".join(
                "(" + " AND ".join(f"`{name}` = {_literal(row[name])}" for name in names) + ")"
                for row in keys.to_pylist()
            )
        else:
            condition = f"`{names[0]}` IN ({', '.join(_literal(value) for value in keys.to_pylist())})"
        return self.delete_where(condition)

    def delete_where(self, condition: str) -> CommitResult:
        """Delete the rows that a condition matches."""
        scan = Scan(self.client, Query.SNAPSHOT, (RECORD_KEY, PARTITION_PATH), condition, runner=self.runner)
        return self._delete_found(scan.to_batches())

    def delete_rows(self, data: Any) -> CommitResult:
        """Delete the keys of rows that carry the key and partition columns."""
        reader = as_reader(data)
        shape = table_shape(self.client)
        plan = plan_preparation(
            self.client.config, without_meta_fields(shape.schema), reader.schema, options=self.properties, deletes=True
        )
        return self._delete_found(plan.rows(reader, self._key_stem()))

    def _delete_found(self, rows: Iterable[pa.RecordBatch]) -> CommitResult:
        shape = table_shape(self.client)
        ordering = [shape.schema.field(name) for name in shape.rule.ordering]

        def deletes() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                columns = [batch.column(RECORD_KEY), batch.column(PARTITION_PATH)]
                columns += [pa.nulls(batch.num_rows, item.type) for item in ordering]
                names = [RECORD_KEY, PARTITION_PATH, *(item.name for item in ordering)]
                yield pa.RecordBatch.from_arrays(columns, names=names)

        json_text = table_schema_json(shape.schema, self.client.config.name)
        request = self._request_for(Operation.DELETE, shape, json_text)
        return run_write(self.client, self.control, request, (), self.runner, deletes())

    def delete_partitions(self, partitions: Sequence[str]) -> CommitResult:
        """Let whole partitions vanish."""
        known = FileSystemView.of(self.client).partitions()
        chosen = tuple(self._partition_named(name, known) for name in partitions)
        shape = table_shape(self.client)
        json_text = table_schema_json(shape.schema, self.client.config.name)
        request = replace(self._request_for(Operation.DELETE_PARTITION, shape, json_text), partitions=chosen)
        return run_write(self.client, self.control, request, (), self.runner)

    def update(self, assignments: Mapping[str, str], where: str | None) -> CommitResult:
        """Set columns of the rows that a condition matches, by expressions over the row."""
        shape = table_shape(self.client)
        own = without_meta_fields(shape.schema)
        self._check_assignable(assignments, own)
        parsed = {name: parse_expression(text, own) for name, text in assignments.items()}
        scan = Scan(self.client, Query.SNAPSHOT, tuple(own.names), where, runner=self.runner)

        def updated() -> Iterator[pa.RecordBatch]:
            for batch in scan.to_batches():
                columns = [
                    parsed[item.name].evaluate(batch).cast(item.type)
                    if item.name in parsed
                    else batch.column(item.name)
                    for item in own
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=own)

        return self.write(pa.RecordBatchReader.from_batches(own, updated()), Operation.UPSERT)

    def _check_assignable(self, assignments: Mapping[str, str], own: pa.Schema) -> None:
        config = self.client.config
        if not assignments:
            raise InvalidRequest("nothing to set", hint='Give set={"column": "expression"}.')
        for name in assignments:
            if name not in own.names:
                raise InvalidRequest(f"the table has no column {name!r}")
            if name in config.key_fields or name in config.partition_fields:
                raise InvalidRequest(
                    f"{name!r} is part of the key or partition", hint="Delete the row and insert it anew."
                )

    # ------------------------------------------------------------------ pieces
    def _plan(self, shape: TableShape, incoming: pa.Schema, *, partial: bool) -> Preparation:
        return plan_preparation(
            self.client.config,
            without_meta_fields(shape.schema),
            incoming,
            options=self.properties,
            partial=partial,
        )

    def request(self, operation: Operation, shape: TableShape, plan: Preparation, *, partial: bool) -> WriteRequest:
        """What a write of prepared rows asks of the job."""
        schema = with_meta_fields(plan.table_schema)
        shape = replace(shape, schema=pa.schema([item.with_nullable(True) for item in schema]))
        json_text = table_schema_json(plan.table_schema, self.client.config.name)
        partitions = None
        if operation is Operation.INSERT_OVERWRITE_TABLE:
            partitions = tuple(FileSystemView.of(self.client).partitions())
        return replace(self._request_for(operation, shape, json_text), partial=partial, partitions=partitions)

    def _request_for(self, operation: Operation, shape: TableShape, json_text: str) -> WriteRequest:
        return WriteRequest(operation, shape, json_text, self.options, self.properties, self.memory)

    def _key_stem(self) -> str:
        return instant_time_now(self.control.clock, self.client.config.timezone)

    def _partition_named(self, name: str, known: Sequence[str]) -> str:
        """A partition by its path, or by `column=value` where the table's folders are named by values alone."""
        path = name.strip("/")
        if path in known:
            return path
        config = self.client.config
        parts = path.split("/")
        if config.hive_style and len(parts) == len(config.partition_fields) and "=" not in path:
            path = "/".join(f"{field}={part}" for field, part in zip(config.partition_fields, parts, strict=True))
        elif not config.hive_style and all("=" in part for part in parts):
            path = "/".join(part.partition("=")[2] for part in parts)
        if path in known:
            return path
        raise InvalidRequest(f"there is no partition {name!r}", hint=f"There are: {', '.join(sorted(known)[:10])}.")


def key_table(keys: Sequence[Any], key_fields: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Keys as the user gave them, as a table of key columns."""
    if not key_fields:
        raise InvalidRequest("the table has no record key", hint="Use delete(where=...).")
    rows = list(keys)
    if not rows:
        raise InvalidRequest("no keys were given")
    if all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        fields = [schema.field(name) for name in names if name in schema.names]
        return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))
    if len(key_fields) != 1:
        raise InvalidRequest(
            "the record key has several columns",
            hint=f"Give dicts with {', '.join(key_fields)} instead of plain values.",
        )
    return pa.table({key_fields[0]: pa.array(rows, schema.field(key_fields[0]).type)})


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
