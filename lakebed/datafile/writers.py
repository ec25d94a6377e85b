"""Base file writers, and what all file writers share: the path, the schema, and the report of the finished file.

A writer takes batches that hold all columns of the file but the two that follow from the file itself, which it sets: a
row's partition path, and its file name, which is that of the file it is in *now*. Commit time, sequence number and key
are columns of the batch. Nothing is visible before `close`, and nothing is left after `abort`. Encoding runs in a
thread behind a bounded queue (`write_queue`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

import pyarrow as pa

from lakebed.config.write_options import FileOptions
from lakebed.datafile.column_encoding import ColumnSummary, aligned
from lakebed.datafile.key_bounds import KeyBounds
from lakebed.datafile.parquet_source import UNIQUE, UNIQUE_KEY
from lakebed.datafile.parquet_writer import PARQUET, ParquetEncoder
from lakebed.datafile.write_queue import WriteQueue
from lakebed.errors import InvalidRequest
from lakebed.format.bloom_builder import BloomBuilder
from lakebed.format.bloom_filter import DYNAMIC_V0, FOOTER_KEY, MAX_KEY, MIN_KEY, TYPE_CODE_KEY, Sizing
from lakebed.format.names import BaseFileName
from lakebed.model.actions import WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.internal_schema import SCHEMA_ID
from lakebed.model.schema import (
    FILE_NAME,
    META_FIELD_NAMES,
    PARTITION_PATH,
    RECORD_KEY,
    avro_to_arrow,
    table_avro,
    with_meta_fields,
)
from lakebed.storage.storage import Storage, joined

AVRO_SCHEMA_KEY = "parquet.avro.schema"
STATES_UNIQUE: Mapping[str, str] = {UNIQUE_KEY: UNIQUE}
"""For the footer of a file that is not sorted and in which no key comes twice: readers need not check it again."""
_MODEL_KEYS = {"writer.model.name": "avro"}


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where files go: the file group, the action that writes, and this try of the task."""

    file_group: FileGroupId
    requested_time: str
    write_token: str = "0-0-0"
    prev_commit: str | None = None

    def path(self, name: str) -> str:
        return joined(self.file_group.partition_path, name)


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The columns of a file, meta columns first, as Arrow writes them and as Hudi reads them."""

    arrow: pa.Schema
    avro_json: str
    version: int | None = None
    """The number of the schema's version, where the table keeps versions."""

    @classmethod
    def of_table(
        cls, schema: pa.Schema, table_name: str, *, operation: bool = False, version: int | None = None
    ) -> FileSchema:
        """The schema of data files of a table with these columns."""
        text = json.dumps(table_avro(with_meta_fields(schema, operation=operation), table_name))
        return cls(avro_to_arrow(text), text, version)

    @classmethod
    def from_avro(cls, avro_json: str) -> FileSchema:
        """The schema whose Avro text is known already, meta columns included."""
        return cls(avro_to_arrow(avro_json), avro_json)

    @property
    def footer(self) -> dict[str, str]:
        """The footer entries of a Parquet file about its schema, besides the columns."""
        return {} if self.version is None else {SCHEMA_ID: str(self.version)}


@dataclass(slots=True)
class RowCounts:
    """Counts of inserts, updates and so on in the current file. Only the caller knows them; a writer counts rows."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file: its stat for the commit, and what indexes need of it. Keys are in UTF-8 order."""

    stat: WriteStat
    rows: int
    min_key: str | None
    max_key: str | None
    columns: tuple[ColumnSummary, ...] = field(default=(), repr=False)


class BaseFileWriter:
    """One base file. `is_sorted` is a promise that is checked; `bloom_filter` overrides the option's empty default.

    With `may_repeat` (rows of a base file that others wrote) a key may come twice, and the file is then not marked.

    Without `populate_meta_fields` the meta columns stay empty; rows must bring their keys all the same where they are
    to be sorted.
    """

    def __init__(
        self,
        storage: Storage,
        target: WriteTarget,
        schema: FileSchema,
        options: FileOptions | None = None,
        *,
        is_sorted: bool = True,
        bloom_filter: bool | None = None,
        populate_meta_fields: bool = True,
        footer: Mapping[str, str] | None = None,
        may_repeat: bool = False,
    ) -> None:
        options = options or FileOptions()
        name = BaseFileName(target.file_group.file_id, target.write_token, target.requested_time, PARQUET).render()
        self.path = target.path(name)
        self.counts = RowCounts()
        self.rows = 0
        self._target = target
        self._schema = schema
        self._has_keys = populate_meta_fields
        self._is_sorted = is_sorted
        self._footer = dict(footer or {})
        self._constants = place_columns(target, name) if populate_meta_fields else UNFILLED
        self._bounds = KeyBounds(self.path, is_sorted=is_sorted, may_repeat=may_repeat)
        self._bloom = _bloom_builder(options) if populate_meta_fields and _wants_bloom(options, bloom_filter) else None
        self._output = storage.open_output(self.path)
        self._encoder = ParquetEncoder(
            self._output.write,
            schema.arrow,
            options,
            row_group_rows=options.row_group_rows,
            sorted_by=RECORD_KEY if is_sorted else None,
            label=self.path,
            by_made_key=not populate_meta_fields,
        )
        self._queue = WriteQueue(options.write_buffer, name)

    @property
    def bytes_written(self) -> int:
        """What is encoded so far: a caller that rolls its files looks at this."""
        return self._encoder.bytes_written

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows over. Wrong ones are refused here; failures of the thread show here or at `close`."""
        if not batch.num_rows:
            return
        if self._has_keys or self._is_sorted:
            self._bounds.add(key_column(batch, self.path))
        batch = aligned(batch, self._schema.arrow, self._constants, self.path)
        self.rows += batch.num_rows
        self._queue.put(lambda: self._encode(batch), batch.nbytes)

    def _encode(self, batch: pa.RecordBatch) -> None:
        if self._bloom is not None:
            self._bloom.add(batch.column(RECORD_KEY))
        self._encoder.write(batch)

    def close(self) -> WrittenFile:
        """Publish the file."""
        try:
            self._queue.finish()
            if self._bounds.repeats:
                self._encoder.drop_mark()
            columns = self._encoder.close(self._footer_entries())
            size = self._output.tell()
            self._output.close()
        except BaseException:
            self.abort()
            raise
        group, counts = self._target.file_group, self.counts
        stat = WriteStat(
            file_id=group.file_id,
            path=self.path,
            partition_path=group.partition_path,
            prev_commit=self._target.prev_commit,
            num_writes=self.rows,
            num_inserts=counts.inserts,
            num_updates=counts.updates,
            num_deletes=counts.deletes,
            total_write_bytes=size,
            file_size=size,
        )
        return WrittenFile(stat, self.rows, self._bounds.min, self._bounds.max, columns)

    def abort(self) -> None:
        """Leave nothing behind."""
        self._queue.cancel()
        self._encoder.abort()
        self._output.abort()

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving the `with` block without `close` aborts the file; after `close`, nothing happens."""
        self.abort()

    def _footer_entries(self) -> dict[str, str]:
        entries = {AVRO_SCHEMA_KEY: self._schema.avro_json, **_MODEL_KEYS, **self._schema.footer, **self._footer}
        if not self._has_keys:
            return entries
        if self._bloom is not None:
            entries |= {FOOTER_KEY: self._bloom.finish().to_base64(), TYPE_CODE_KEY: DYNAMIC_V0}
        if self._bounds.java_min is not None and self._bounds.java_max is not None:
            entries |= {MIN_KEY: self._bounds.java_min, MAX_KEY: self._bounds.java_max}
        return entries


class RollingBaseWriter:
    """Base files one after the other, each in a file group of its own, for inserts that outgrow a file.

    A file ends between two batches, once it has reached `hoodie.parquet.max.file.size`.
    """

    def __init__(self, open_next: Callable[[int], BaseFileWriter], options: FileOptions) -> None:
        self._open_next = open_next
        self._limit = options.max_file_size
        self._current: BaseFileWriter | None = None
        self._written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch, *, inserts: int = 0, updates: int = 0) -> None:
        if self._current is not None and self._current.bytes_written >= self._limit:
            self._end_file()
        if self._current is None:
            self._current = self._open_next(len(self._written))
        self._current.write(batch)
        self._current.counts.inserts += inserts
        self._current.counts.updates += updates

    def close(self) -> list[WrittenFile]:
        if self._current is not None:
            self._end_file()
        return self._written

    def abort(self) -> None:
        """Leave the open file out. Files that are published already belong to no commit, and rollback removes them."""
        if self._current is not None:
            self._current.abort()
            self._current = None

    def _end_file(self) -> None:
        writer, self._current = self._current, None
        if writer is not None:
            self._written.append(writer.close())


def without_place(schema: pa.Schema) -> pa.Schema:
    """The columns of rows passed to a writer, which adds partition path and file name itself."""
    return pa.schema([field for field in schema if field.name not in (PARTITION_PATH, FILE_NAME)])


def place_columns(target: WriteTarget, file_name: str) -> dict[str, pa.Scalar]:
    """The meta columns that are the same in every row of a file."""
    path = target.file_group.partition_path
    return {PARTITION_PATH: pa.scalar(path, pa.string()), FILE_NAME: pa.scalar(file_name, pa.string())}


UNFILLED = {name: pa.scalar(None, pa.string()) for name in META_FIELD_NAMES}
"""What the meta columns hold in tables that do not fill them: the columns are there, as Hudi leaves them."""


def key_column(batch: pa.RecordBatch, label: str) -> pa.Array:
    """The record keys of rows passed to a writer, whose file need not store them."""
    index = batch.schema.get_field_index(RECORD_KEY)
    if index < 0:
        raise InvalidRequest(f"rows have no column {RECORD_KEY!r}", file=label)
    column = batch.column(index)
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _wants_bloom(options: FileOptions, by_index: bool | None) -> bool:
    return options.bloom_filter if options.bloom_filter is not None else bool(by_index)


def _bloom_builder(options: FileOptions) -> BloomBuilder:
    return BloomBuilder(Sizing(options.bloom_entries, options.bloom_error_rate, options.bloom_max_entries))
