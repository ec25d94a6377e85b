"""MERGE as a frozen builder: each call adds a clause and returns a new builder, `execute` writes one commit.

    (t.merge(updates, on="t.id = s.id")
       .when_matched_update(set={"qty": "s.qty"}, condition="s.qty > 0")
       .when_matched_delete(condition="s.gone")
       .when_not_matched_insert_all()
       .execute())

A merge of updates alone that set some of the columns writes only those, on merge-on-read tables: the log then holds
partial rows, which readers complete from older versions. The ordering columns are always written with them, so that an
update which does not set them is still newer than the row it was made from. Where the table has a column that marks
deleted rows, inline logs get whole rows: Hudi 1.2 looks for the mark of a partial row at its position in the whole row.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakebed.config.memory_plan import MemoryPlan
from lakebed.config.option import FLAG, Option
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.schema import IS_DELETED, PARTITION_PATH, RECORD_KEY, without_meta_fields
from lakebed.read.reader_context import keyed_reader_context
from lakebed.write.job import CommitResult, run_write
from lakebed.write.merge_into.clauses import (
    TARGET,
    BoundClause,
    Clause,
    JoinColumns,
    Kind,
    Verb,
    bind,
    refuse_new_columns,
)
from lakebed.write.merge_into.join import MergeJoin, SourceRows
from lakebed.write.operation import Operation
from lakebed.write.rows.prepare import as_reader
from lakebed.write.table_writer import TableWriter, unordered_deletes
from lakebed.write.write_checks import declared_schema

PARTIAL_UPDATES = Option(
    "hoodie.spark.sql.merge.into.partial.updates", FLAG, True, "Whether updates write only the columns they set."
)


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """A MERGE that has not run yet; get it from `Table.merge`."""

    _run: Callable[[MergeBuilder], CommitResult]
    source: Any
    on: str
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Mapping[str, str], condition: str | None = None) -> MergeBuilder:  # noqa: A002
        """Set columns of matched rows by expressions over `t.column` and `s.column`."""
        return self._with(Clause(Kind.MATCHED, Verb.UPDATE, dict(set), condition))

    def when_matched_update_all(self, condition: str | None = None) -> MergeBuilder:
        """Set every column of matched rows that the source has, by name; the source may have no other columns."""
        return self._with(Clause(Kind.MATCHED, Verb.UPDATE, None, condition))

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete matched rows."""
        return self._with(Clause(Kind.MATCHED, Verb.DELETE, {}, condition))

    def when_not_matched_insert(self, values: Mapping[str, str], condition: str | None = None) -> MergeBuilder:
        """Insert source rows that match nothing, columns by expressions over `s.column`; the others are null."""
        return self._with(Clause(Kind.MISSING, Verb.INSERT, dict(values), condition))

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeBuilder:
        """Insert source rows that match nothing, columns by name; the table must have them all."""
        return self._with(Clause(Kind.MISSING, Verb.INSERT, None, condition))

    def when_not_matched_by_source_update(
        self,
        set: Mapping[str, str],  # noqa: A002
        condition: str | None = None,
    ) -> MergeBuilder:
        """Set columns of rows of the table that no source row matches; the whole table is read for it."""
        return self._with(Clause(Kind.ORPHAN, Verb.UPDATE, dict(set), condition))

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete rows of the table that no source row matches; the whole table is read for it."""
        return self._with(Clause(Kind.ORPHAN, Verb.DELETE, {}, condition))

    def execute(self) -> CommitResult:
        """Run the merge as one commit."""
        return self._run(self)

    def _with(self, clause: Clause) -> MergeBuilder:
        return replace(self, clauses=(*self.clauses, clause))


def run_merge(writer: TableWriter, merge: MergeBuilder) -> CommitResult:
    """Run a MERGE: read the table, join it with the source, write one commit."""
    context, client = writer.context, writer.client
    config = client.config
    reader = as_reader(merge.source)
    reader_context = keyed_reader_context(client)
    own = declared_schema(client, reader_context)
    join_columns = JoinColumns.of(merge.on, config, own, reader.schema)
    clauses = bind(merge.clauses, config, own, reader.schema)
    refuse_new_columns(merge.clauses, clauses, join_columns, own, reader.schema)
    generator = context.key_generator
    partial = _partial_columns(writer, clauses, own, reader_context)
    nullable = without_meta_fields(reader_context.schema)
    columns = (
        nullable if partial is None else pa.schema([i for i in nullable if i.name in {*partial, *generator.columns}])
    )
    with SourceRows(reader, MemoryPlan(context.memory).write.source_rows) as source:
        join = MergeJoin(
            source,
            join_columns,
            clauses,
            own,
            columns,
            generator,
            moves=bool(config.partition_fields) and not context.index_options.is_global,
        )
        plan = writer.plan(reader_context, columns, partial=partial is not None)
        request = replace(
            writer.request(Operation.UPSERT, reader_context, plan, partial=partial is not None),
            columns=partial,
            reads=True,
        )
        rows = join.rows(writer.scan(_read(clauses, columns, nullable, reader_context), join.wanted).to_batches())
        prepared = plan.rows(rows, writer.key_stem(), secrets.randbelow(1 << 31))
        deletes = unordered_deletes(join.deletes, reader_context)  # read after all rows, when `deletes` is complete
        return run_write(client, context.txn_context, request, prepared, context.runner, deletes)


def _read(
    clauses: tuple[BoundClause, ...], columns: pa.Schema, own: pa.Schema, reader_context: ReaderContext
) -> tuple[str, ...]:
    """The columns of the table that the merge reads or writes back."""
    in_clauses = {name.removeprefix(TARGET) for clause in clauses for name in clause.columns}
    needed = {*columns.names, *in_clauses}
    return (RECORD_KEY, PARTITION_PATH, *(name for name in own.names if name in needed))


def _partial_columns(
    writer: TableWriter, clauses: tuple[BoundClause, ...], own: pa.Schema, reader_context: ReaderContext
) -> tuple[str, ...] | None:
    """The columns that logs will hold, when the merge only updates some of them; None to write whole rows."""
    config = writer.client.config
    wanted = PARTIAL_UPDATES.read({**config.properties, **writer.context.properties})
    if not config.populate_meta_fields:
        return None  # readers make the key of a partial row from columns that it does not have
    if not config.is_mor or not wanted or not reader_context.rule.picks_whole_records:
        return None
    changed = {name for clause in clauses for name in clause.values}
    if any(clause.verb is not Verb.UPDATE for clause in clauses) or changed & set(config.partition_fields):
        return None
    if not config.version.has_native_logs and {IS_DELETED, reader_context.rule.delete_field} & set(own.names):
        return None
    found = tuple(name for name in own.names if name in changed or name in config.ordering_fields)
    return found if len(found) < len(own.names) - len(config.key_fields) else None
