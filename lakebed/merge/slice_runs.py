"""From the files of a file slice to runs: the base file and every log block in force, each in the table's schema.

    base file ───────────────► run 0
    log blocks that count ───► run 1…      (datafile/log_scan decides which)

Columns are pruned at the file, old types promoted, renamed columns found by id, keys made where the table stores none.
A condition on the key prunes inside every run; any other condition must wait for the merge, for an old version that
matches may have been updated to one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.config.read_options import ReadOptions
from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.log_file import has_parquet_content, open_log_file, parquet_source, read_block
from lakebed.datafile.log_scan import LogRun, LogScan, scan_slice
from lakebed.datafile.parquet_metadata import Footers
from lakebed.datafile.source import ReadCounters
from lakebed.errors import CorruptTable
from lakebed.expression.predicate import Predicate
from lakebed.format.log.block import LogBlock
from lakebed.merge.reader_context import ReaderContext
from lakebed.merge.runs import Run
from lakebed.model.concat import plain_parts
from lakebed.model.files import BaseFile, FileSlice
from lakebed.model.instant import comparable
from lakebed.model.internal_schema import SCHEMA_ID
from lakebed.model.key_range import KeyRange
from lakebed.model.record_key import record_key_array
from lakebed.model.schema import COMMIT_TIME, IS_DELETED, OPERATION, PARTITION_PATH, RECORD_KEY, avro_to_arrow
from lakebed.model.schema_evolution import Renames, resolve
from lakebed.storage.storage import Storage

OpenRows = Callable[[int], Iterator[pa.RecordBatch]]
LEAST_RECORD = 4
"""Bytes of a record in a block, at least: its length is written before it."""


@dataclass(frozen=True, slots=True)
class SliceRuns:
    """How slices of one table are opened: which columns, which rows, within which memory."""

    storage: Storage
    reader_context: ReaderContext
    options: ReadOptions
    schema: pa.Schema
    predicate: Predicate | None = None
    commits: frozenset[str] | None = None
    """Only rows whose current version was committed by one of these instants."""
    committed: frozenset[str] = frozenset()
    """Instants that count although no file of the slice is named after them: blocks of tables from older versions.

    Several instants appended to one log there, and a torn block is a failed append, no damage.
    """

    def runs(
        self,
        file_slice: FileSlice,
        wanted: pa.Schema,
        counters: ReadCounters | None = None,
        *,
        encoded: bool = False,
        bare: bool = False,
        sized: bool = True,
        footers: Footers | None = None,
    ) -> list[Run]:
        """The base file and every block that counts, oldest first, each at the table's schema.

        With `encoded`, text that a file stores with small dictionaries comes dictionary-encoded; for merges that choose
        rows. `bare`
        runs have just the columns that are wanted, and cannot be merged. `footers` are those known, and get the others;
        finding out how large a row is takes a look at all of a footer, which is not done unless `sized`.
        """
        footers = {} if footers is None else footers
        scanned = self.scan(file_slice, footers).runs
        base = file_slice.base_file
        late = base is not None and any(comparable(run.stands_at) < comparable(base.requested_time) for run in scanned)
        columns = self.columns([*wanted.names, *([] if bare else self._rule_columns(ties_by_commit=late))])
        found: list[Run] = []
        if base is not None:
            names = self.renames(base, footers)
            texts = self._encodable(columns, names) if encoded else ()
            with open_base_file(self.storage, base, encoded=texts, footers=footers) as source:
                is_sorted = source.is_sorted
                row_bytes = source.row_bytes(_in_file(columns.names, names)) if sized else None
                most_rows, is_unique = source.num_rows, source.has_unique_keys
            found.append(
                Run(
                    age=0,
                    is_sorted=is_sorted,
                    open=self.keyed(
                        lambda rows: self.open_base(file_slice, columns, rows, counters, footers, encoded=encoded),
                        file_slice,
                        unless=bare and not is_made(columns.names),
                    ),
                    requested_time=base.requested_time,
                    row_bytes=row_bytes,
                    label=base.path,
                    open_keys=self.keyed(
                        lambda rows: self.open_base(file_slice, self._key_columns(), rows, None, footers), file_slice
                    ),
                    is_unique=is_unique,
                    most_rows=most_rows,
                )
            )
        found += [
            self._log_run(file_slice, run, columns, counters, footers, encoded=encoded, bare=bare, sized=sized)
            for run in scanned
        ]
        return found

    def keyed(self, open_rows: OpenRows, file_slice: FileSlice, *, unless: bool = False) -> OpenRows:
        """Rows with their record key, where the table does not store it."""
        generator = self.reader_context.virtual_key
        if generator is None or unless:
            return open_rows
        path = pa.scalar(file_slice.file_group.partition_path, pa.string())

        def opened(rows: int) -> Iterator[pa.RecordBatch]:
            for batch in open_rows(rows):
                made = _with_column(batch, RECORD_KEY, record_key_array(generator, batch))
                if PARTITION_PATH in made.schema.names:
                    made = _with_column(made, PARTITION_PATH, pa.repeat(path, made.num_rows))
                yield made

        return opened

    def scan(self, file_slice: FileSlice, footers: Footers | None = None) -> LogScan:
        """Which log blocks of a slice count; damage in a committed log is an error, not a gap."""
        here = {log.requested_time for log in file_slice.log_files}
        files = [open_log_file(self.storage, log, footers) for log in file_slice.log_files]
        base = file_slice.base_file
        if base is not None and base.requested_time in here and not self.committed:  # of a bucket to come: see the view
            resized = (file for file in files if file.log.requested_time == base.requested_time)
            here.update(block.requested_time for file in resized for block in file.blocks)
        scan = scan_slice(
            files,
            lambda time: time in here or time in self.committed,
            base_instant_time=base.requested_time if base else None,
        )
        if not self.committed:
            scan.require_intact()
        return scan

    def may_repeat_keys(self, base: BaseFile, footers: Footers) -> bool:
        """Whether a base file is not marked as free of repeated keys; its footer is then kept for the next reader."""
        with open_base_file(self.storage, base, footers=footers) as source:
            return not source.has_unique_keys

    def open_base(
        self,
        file_slice: FileSlice,
        wanted: pa.Schema,
        rows: int,
        counters: ReadCounters | None,
        footers: Footers | None = None,
        *,
        encoded: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        base = file_slice.base_file
        assert base is not None
        footers = {} if footers is None else footers
        names = self.renames(base, footers)
        texts = self._encodable(wanted, names)
        with open_base_file(self.storage, base, counters=counters, encoded=texts, footers=footers) as source:
            project = resolve(source.schema, wanted, renames=names, file=base.path)
            row_groups = None
            if self.predicate is not None and self.prunes_row_groups(file_slice):
                row_groups = source.matching_row_groups(self.predicate, renames=names)
            batches = source.batches(
                project.columns or source.schema.names[:1],
                batch_rows=rows,
                row_groups=row_groups,
                key_range=self.key_range,
            )
            for batch in batches:
                yield from (project(batch),) if encoded else plain_parts(project(batch))

    def _log_run(
        self,
        file_slice: FileSlice,
        run: LogRun,
        columns: pa.Schema,
        counters: ReadCounters | None,
        footers: Footers,
        *,
        encoded: bool,
        bare: bool,
        sized: bool,
    ) -> Run:
        block = run.block
        is_sorted, row_bytes, group_rows, stored = False, None, None, None
        most_rows = block.content_length // LEAST_RECORD
        names = {} if run.is_delete else self.renames(run, footers)
        texts = self._encodable(columns, names)
        if has_parquet_content(block):
            with parquet_source(self.storage, block, encoded=texts if encoded else (), footers=footers) as source:
                is_sorted, stored, group_rows = source.is_sorted, source.schema, source.group_rows
                most_rows = source.num_rows
                row_bytes = source.row_bytes(_in_file(columns.names, names)) if sized else None
        age = run.rank + 1
        if run.is_delete:
            ordering = [self.reader_context.schema.field(name) for name in self.reader_context.rule.ordering]

            def open_deletes(rows: int) -> Iterator[pa.RecordBatch]:
                for batch in read_block(
                    self.storage, block, ordering=ordering, batch_rows=rows, counters=counters, footers=footers
                ):
                    yield batch.rename_columns([self.reader_context.rule.key, *self.reader_context.rule.ordering])

            return Run(
                age,
                is_sorted,
                open_deletes,
                is_delete=True,
                requested_time=run.stands_at,
                label=block.file,
                most_rows=most_rows,
            )
        stored = _stated_schema(block) if stored is None else stored
        brings = self._brought(stored, names) if run.is_partial else None
        if brings is not None:
            columns = pa.schema([item for item in columns if item.name in brings])
        project = resolve(stored, columns, renames=names, file=block.file)

        def open_data(rows: int) -> Iterator[pa.RecordBatch]:
            for batch in read_block(
                self.storage,
                block,
                columns=project.columns,
                batch_rows=rows,
                key_range=self.key_range,
                counters=counters,
                encoded=texts,
                footers=footers,
            ):
                yield from (project(batch),) if encoded else plain_parts(project(batch))

        return Run(
            age,
            is_sorted,
            self.keyed(open_data, file_slice, unless=bare and not is_made(columns.names)),
            is_partial=run.is_partial,
            requested_time=run.stands_at,
            row_bytes=row_bytes,
            group_rows=group_rows,
            label=block.file,
            most_rows=most_rows,
            brings=brings,
        )

    # ------------------------------------------------------------------ columns and conditions
    def brought_by(self, run: LogRun, footers: Footers | None = None) -> frozenset[str]:
        """The table's columns that the rows of a log bring: all of them, or fewer in a partial update."""
        if not has_parquet_content(run.block):
            return self._brought(_stated_schema(run.block), self.renames(run, footers))
        with parquet_source(self.storage, run.block, footers=footers) as source:
            return self._brought(source.schema, self.renames(run, footers))

    def _brought(self, stored: pa.Schema, names: Renames) -> frozenset[str]:
        known = self.reader_context.schema.names
        return frozenset(name for name in known if names.get(name, name) in stored.names)

    @property
    def key_range(self) -> KeyRange | None:
        """The keys that the condition can match at all; safe to apply before the merge."""
        if (
            self.predicate is None
            or self.reader_context.rule.key != RECORD_KEY
            or self.reader_context.virtual_key is not None
        ):
            return None
        found = [self.predicate.key_range(RECORD_KEY)] if RECORD_KEY in self.reader_context.schema.names else []
        if self.reader_context.key_column is not None:
            found.append(self.predicate.key_range(self.reader_context.key_column))
        ranges = [item for item in found if item is not None and not item.is_all]
        if not ranges:
            return None
        first, *rest = ranges
        for other in rest:
            first = first.intersect(other)
        return first

    def prunes_row_groups(self, file_slice: FileSlice) -> bool:
        """Whether any condition may rule out row groups: only where no log can change their rows.

        Files have no statistics of columns that are made while reading.
        """
        if self.predicate is None or (self.reader_context.virtual_key is not None and is_made(self.predicate.columns)):
            return False
        return self.options.data_skipping and not file_slice.log_files

    def columns(self, names: Sequence[str]) -> pa.Schema:
        """The named columns and those that conditions need, nullable: an old file may lack any of them."""
        needed = dict.fromkeys(names)
        if self.predicate is not None:
            needed.update(dict.fromkeys(self.predicate.columns))
        if self.commits is not None:
            needed[COMMIT_TIME] = None
        if self.reader_context.virtual_key is not None and is_made(needed):
            needed.update(dict.fromkeys(self.reader_context.virtual_key.columns))
        return pa.schema([self.reader_context.schema.field(name).with_nullable(True) for name in needed])

    def _key_columns(self) -> pa.Schema:
        """What the key is, or is made of."""
        made = self.reader_context.virtual_key.columns if self.reader_context.virtual_key is not None else ()
        names = (
            name
            for name in dict.fromkeys((self.reader_context.rule.key, *made))
            if name in self.reader_context.schema.names
        )
        return pa.schema([self.reader_context.schema.field(name).with_nullable(True) for name in names])

    def _rule_columns(self, *, ties_by_commit: bool) -> list[str]:
        """What the merge must see besides the requested columns.

        Equal ordering values are decided by commit time only where a log has an earlier requested time than the
        base file, which takes non-blocking concurrent writers (NBCC).
        """
        rule = self.reader_context.rule
        names = [rule.key, *rule.ordering, IS_DELETED, OPERATION, rule.delete_field]
        names += [COMMIT_TIME] if ties_by_commit else []
        names += list(self.reader_context.virtual_key.columns) if self.reader_context.virtual_key else []
        return [name for name in names if name is not None and name in self.reader_context.schema.names]

    def _encodable(self, columns: pa.Schema, names: Renames) -> list[str]:
        """Text columns that no condition or merge rule reads before the merge is done, by their names in the file."""
        looked_into = set(self._rule_columns(ties_by_commit=False))
        texts = [item.name for item in columns if pa.types.is_string(item.type) and item.name not in looked_into]
        return _in_file(texts, names)

    def renames(self, file: BaseFile | LogRun, footers: Footers | None = None) -> Renames:
        """The names of the table's columns in a file, where they differ; only schema-on-read lets them differ."""
        on_read = self.reader_context.on_read
        return {} if on_read is None else on_read.renames(file.requested_time, self._stated_version(file, footers))

    def _stated_version(self, file: BaseFile | LogRun, footers: Footers | None) -> str | None:
        """The version of the schema that a file's footer names; Avro blocks have no field for it."""
        if isinstance(file, BaseFile):
            with open_base_file(self.storage, file, footers=footers) as base:
                return base.footer.get(SCHEMA_ID)
        if not has_parquet_content(file.block):
            return None
        with parquet_source(self.storage, file.block, footers=footers) as block:
            return block.footer.get(SCHEMA_ID)


def _stated_schema(block: LogBlock) -> pa.Schema:
    """The columns of a block of Avro records, as recorded in its header."""
    if block.schema_json is None:
        raise CorruptTable("a data block has no schema", file=block.file, offset=block.offset)
    return avro_to_arrow(block.schema_json, file=block.file)


def _in_file(columns: Sequence[str], names: Renames) -> list[str]:
    """Columns by their names in the file, without those that it does not have."""
    return [name for name in (names.get(column, column) for column in columns) if name is not None]


def is_made(names: Container[str]) -> bool:
    """Whether columns are among them that are made where the table does not store them."""
    return RECORD_KEY in names or PARTITION_PATH in names


def _with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return batch.append_column(name, column)
    return batch.set_column(index, pa.field(name, column.type), column)
