"""From the data of a user to rows of the table: checked, cast, and with their key and partition path.

    data ──► Arrow stream ──► against the table's schema ──► columns cast ──► keys, paths, ordering checked ──► batches

Errors in the schema are reported before the first batch; errors in values are reported at the batch that holds them.
Data is streamed: one batch is in memory at a time; a frame that cannot stream is sliced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from lakebed.config.read_options import MergeMode, TableConfig
from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.model.ambiguous_keys import refuse_ambiguous_keys, refuse_ambiguous_paths
from lakebed.model.concat import decodable
from lakebed.model.record_key import KeyGenerator, auto_keys, key_generator_of, partition_path_array, record_key_array
from lakebed.model.schema import IS_DELETED, PARTITION_PATH, RECORD_KEY, without_meta_fields
from lakebed.model.schema_change import did_you_mean, evolve
from lakebed.model.schema_evolution import Projection, resolve
from lakebed.model.value_text import column_of

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Preparation:
    """How batches of one schema become rows of the table; small and picklable, for Spark tasks."""

    table_schema: pa.Schema
    """The table's own columns after the write: what the commit records."""
    columns: pa.Schema
    """The columns of the rows: all of them, or fewer in a partial update or a delete."""
    incoming: pa.Schema
    generator: KeyGenerator
    ordering: tuple[str, ...] = ()

    @property
    def exact(self) -> tuple[str, ...]:
        """The (dotted) columns that identify or order rows: a cast that would change their values is refused."""
        return (*self.generator.key_fields, *self.generator.partition.fields, *self.ordering)

    @property
    def schema(self) -> pa.Schema:
        """The schema of prepared rows: record key, partition path, the columns."""
        return pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, pa.string()), *self.columns])

    @property
    def keeps_columns(self) -> bool:
        """Whether all columns have the types of the table already, so that no cast makes a copy."""
        types = {item.name: item.type for item in self.incoming}
        return all(types.get(item.name) == item.type for item in self.columns)

    def rows(self, batches: Iterable[pa.RecordBatch], requested_time: str, task: int = 0) -> Iterator[pa.RecordBatch]:
        """The prepared batches. `requested_time` and `task` go into generated keys, of a table without key columns."""
        project = self._projection()
        numbered = 0
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                for part in decodable(batch.slice(start, BATCH_ROWS)):
                    yield self._prepared(part, project, requested_time, task, numbered)
                    numbered += part.num_rows

    def _prepared(
        self, batch: pa.RecordBatch, project: Projection, requested_time: str, task: int, numbered: int
    ) -> pa.RecordBatch:
        try:
            rows = project(batch)
        except (CorruptTable, UnsupportedFormat) as error:
            raise InvalidRequest(error.what, hint="Nothing of this write becomes visible.") from None
        _check_nulls(rows, self.columns)
        self._check_ordering(rows)
        refuse_ambiguous_keys(self.generator, rows)
        refuse_ambiguous_paths(self.generator, rows, self.columns)
        keys = self._keys(rows, batch, requested_time, task, numbered)
        return pa.RecordBatch.from_arrays(
            [keys, partition_path_array(self.generator, rows), *rows.columns], schema=self.schema
        )

    def _keys(
        self, rows: pa.RecordBatch, batch: pa.RecordBatch, requested_time: str, task: int, numbered: int
    ) -> pa.Array:
        if not self.generator.is_keyless:
            return record_key_array(self.generator, rows)
        made = auto_keys(requested_time, task, numbered, rows.num_rows)
        if RECORD_KEY not in batch.schema.names:
            return made
        return pc.coalesce(
            batch.column(RECORD_KEY).cast(pa.string()), made
        )  # rows that were read from the table keep theirs

    def _check_ordering(self, rows: pa.RecordBatch) -> None:
        """Refuse nulls in ordering columns, which cannot be compared; only deletes may have no ordering value."""
        for name in self.ordering:
            column = column_of(rows, name)
            if not column.null_count:
                continue
            bad = pc.is_null(column)
            if IS_DELETED in rows.schema.names and pa.types.is_boolean(rows.schema.field(IS_DELETED).type):
                bad = pc.and_(bad, pc.invert(pc.fill_null(rows.column(IS_DELETED), False)))
            if bad.true_count:
                raise InvalidRequest(
                    f"the ordering column {name!r} is null in {bad.true_count} of {rows.num_rows} rows",
                    hint="Fill it: it decides which of two versions of a row is the later one.",
                )

    def _projection(self) -> Projection:
        data = without_meta_fields(self.incoming)
        nullable = pa.schema([column.with_nullable(True) for column in self.columns])
        try:
            return resolve(data, nullable, exact=self.exact)
        except (CorruptTable, UnsupportedFormat) as error:
            raise InvalidRequest(error.what) from None


def plan_preparation(
    config: TableConfig,
    table_schema: pa.Schema,
    incoming: pa.Schema,
    *,
    generator: KeyGenerator | None = None,
    partial: bool = False,
    deletes: bool = False,
) -> Preparation:
    """Compare the data's schema with the table's; `InvalidRequest` when the table cannot take the data.

    `generator` makes the keys: the writer's, or the table's own.
    `partial` data may lack columns; `deletes` needs the key and partition columns only, and all other columns except
    the ordering columns are left out.
    """
    generator = generator or key_generator_of(config)
    doubled = {name for name in incoming.names if incoming.names.count(name) > 1}
    if doubled:
        raise InvalidRequest(f"the data has two columns called {sorted(doubled)[0]!r}")
    ordering = config.ordering_fields if config.merge_mode is MergeMode.EVENT_TIME else ()
    needed = dict.fromkeys((*generator.columns, *(() if deletes else (name.partition(".")[0] for name in ordering))))
    _check_needed(needed, incoming)
    if deletes:
        kept = {*generator.columns, *(name.partition(".")[0] for name in ordering)}
        incoming = pa.schema([column for column in incoming if column.name in kept or column.name == RECORD_KEY])
    keys = (*generator.key_fields, *generator.partition.fields)
    evolved = evolve(table_schema, incoming, allow_missing=partial or deletes, keys=keys)
    columns = evolved
    if partial or deletes:
        columns = pa.schema([column for column in evolved if column.name in incoming.names])
    return Preparation(evolved, columns, incoming, generator, () if deletes else tuple(ordering))


def prepare(
    data: Any,
    config: TableConfig,
    table_schema: pa.Schema,
    *,
    requested_time: str,
    task: int = 0,
    options: Mapping[str, str] | None = None,
    partial: bool = False,
    deletes: bool = False,
) -> tuple[Preparation, pa.RecordBatchReader]:
    """The plan, and the prepared rows as a stream."""
    reader = as_reader(data)
    generator = key_generator_of(config, options)
    plan = plan_preparation(config, table_schema, reader.schema, generator=generator, partial=partial, deletes=deletes)
    return plan, pa.RecordBatchReader.from_batches(plan.schema, plan.rows(reader, requested_time, task))


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Data as an Arrow stream: Arrow tables, batches, readers and datasets, data frames, DuckDB relations."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader(max_chunksize=BATCH_ROWS)
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pads.Dataset):
        return data.scanner(batch_size=BATCH_ROWS).to_reader()
    if isinstance(data, pads.Scanner):
        return data.to_reader()
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns"):
        return _pandas_reader(data)
    for name in ("to_arrow_reader", "fetch_arrow_reader"):  # DuckDB, new and old: its capsule may hold all rows at once
        if hasattr(data, name):
            return getattr(data, name)(BATCH_ROWS)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise InvalidRequest(f"{type(data).__name__} is not data that can be written", hint=_hint(data, library))


def _pandas_reader(frame: Any) -> pa.RecordBatchReader:
    """A frame in slices, with the types of the whole frame: a slice of nulls has no type of its own."""
    try:
        schema = pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRequest(f"the frame cannot be turned into Arrow: {error}") from None

    def parts() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(frame), BATCH_ROWS):
            part = frame.iloc[start : start + BATCH_ROWS]
            try:
                yield pa.RecordBatch.from_pandas(part, schema=schema, preserve_index=False)
            except (pa.ArrowException, TypeError) as error:
                raise InvalidRequest(f"the frame cannot be turned into Arrow: {error}") from None

    return pa.RecordBatchReader.from_batches(schema, parts())


def _hint(data: Any, library: str) -> str:
    if isinstance(data, (list, tuple, dict)):
        return "Make it a table first: pyarrow.Table.from_pylist(rows), or pyarrow.table(columns)."
    if isinstance(data, str):
        return "Read the file first, for example with pyarrow.parquet.read_table or pyarrow.dataset.dataset."
    if library == "polars":
        return "Call .collect() on a lazy frame first."
    return "Pass an Arrow table or reader, a pandas or polars frame, or anything with __arrow_c_stream__."


def _check_needed(names: Iterable[str], incoming: pa.Schema) -> None:
    for name in names:
        if name not in incoming.names:
            raise InvalidRequest(
                f"the data lacks the column {name!r}, which keys, partitions or ordering are made from",
                hint=did_you_mean(name, incoming.names),
            )


def _check_nulls(rows: pa.RecordBatch, columns: pa.Schema) -> None:
    for declared, column in zip(columns, rows.columns, strict=True):
        _check_null(declared, column, declared.name)


def _check_null(declared: pa.Field, column: Any, path: str, parent: Any = None) -> None:
    """A column that may not be null is not, at any depth of structs; inside a null struct nothing is checked."""
    if not declared.nullable and column.null_count:
        bad = pc.is_null(column) if parent is None else pc.and_(pc.is_null(column), parent)
        if bad.true_count:
            raise InvalidRequest(
                f"the column {path!r} may not be null and is in {bad.true_count} of {len(column)} rows"
            )
    if pa.types.is_struct(declared.type) and any(not child.nullable for child in declared.type):
        valid = column.is_valid()
        for child in declared.type:
            _check_null(child, pc.struct_field(column, child.name), f"{path}.{child.name}", valid)
