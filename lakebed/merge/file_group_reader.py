"""A file slice in, merged Arrow batches out: the one function behind reads, look-ups and every compaction.

runs of the slice ──► sorted_merge (LSM layout) or hash_merge (default) ──► filter ──► batches
(merge/slice_runs)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import MemoryPlan
from lakebed.config.merge_settings import MergeMode
from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.log_file import parquet_source
from lakebed.datafile.parquet_metadata import Footers
from lakebed.datafile.source import ReadCounters
from lakebed.errors import CorruptTable
from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.reader_context import LSM_TREE, ReadSplit
from lakebed.merge.runs import Run
from lakebed.merge.slice_runs import SliceRuns, is_made
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.model.files import FileSlice
from lakebed.model.key_range import KeyRange
from lakebed.model.schema import COMMIT_TIME

PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class FileGroupReader(SliceRuns):
    """Reads slices of one table. Frozen and picklable."""

    encoded: bool = False
    """Whether text that was read dictionary-encoded may stay encoded: for callers that write it to a file again."""

    # ------------------------------------------------------------------ the rows of a split
    def read(
        self, split: ReadSplit, counters: ReadCounters | None = None, footers: Footers | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The merged rows of a slice that the query selects. `footers` are those already read of the slice's files."""
        file_slice = split.slice
        merger_sees_all = file_slice.log_files and self.reader_context.rule.mode is MergeMode.CUSTOM
        names = self.reader_context.schema.names if merger_sees_all else self.schema.names
        wanted = self.columns(names or self.reader_context.schema.names[:1])  # rows without columns have no number
        if not file_slice.log_files:
            merged = self._base_rows(file_slice, wanted, counters)
        else:
            merged = self._merged_rows(file_slice, wanted, counters, footers)
        with none_missing():
            for batch in merged:
                yield from self.requested_rows(batch)

    def requested_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Of rows that are current, those that meet the conditions, in the requested columns."""
        kept = self._filter(rows)
        if kept.num_rows:
            yield from _cut(kept.select(self.schema.names), self.options.batch_rows)

    def count(self, split: ReadSplit) -> int:
        """How many rows `read` would return, from the footer alone where that suffices."""
        base = split.slice.base_file
        if not split.slice.log_files and self.predicate is None and self.commits is None:
            if base is None:
                return 0
            with none_missing(), open_base_file(self.storage, base) as source:
                return source.num_rows
        names = self.reader_context.schema.names
        first = self.reader_context.rule.key if self.reader_context.rule.key in names else names[0]
        narrow = replace(self, schema=pa.schema([self.reader_context.schema.field(first)]))
        return sum(batch.num_rows for batch in narrow.read(split))

    def with_share(self, parts: int) -> FileGroupReader:
        """The same reader with its part of the memory, for reading several slices at once."""
        return replace(self, options=replace(self.options, memory=MemoryPlan(self.options.memory).part(parts)))

    def without_conditions(self) -> FileGroupReader:
        """The same reader for all rows."""
        return replace(self, predicate=None, commits=None)

    def why_not_native(self, split: ReadSplit) -> str | None:
        """Why a plain Parquet reader cannot return this slice's rows, even with merge vectors; None when it can."""
        file_slice = split.slice
        if file_slice.base_file is not None and file_slice.base_file.extension != PARQUET:
            return f"base files in {file_slice.base_file.extension.upper()}"
        if file_slice.log_files and not self.reader_context.rule.picks_whole_records:
            return "the merge rule combines rows instead of choosing one"
        if any(not log.native for log in file_slice.log_files):
            return "logs of format v1, or native ones under hidden names"
        if any(not log.name.endswith(f".{PARQUET}") for log in file_slice.log_files):
            return "logs that are not Parquet"
        return None

    def fits_natively(self, split: ReadSplit, footers: Footers | None = None) -> bool:
        """Whether every file of the slice holds the table's columns in the table's types, partial logs excluded."""
        file_slice = split.slice
        sources: list[pa.Schema] = []
        if file_slice.base_file is not None:
            if self.renames(file_slice.base_file, footers):
                return False
            with open_base_file(self.storage, file_slice.base_file, footers=footers) as source:
                sources.append(source.schema)
        for run in self.scan(file_slice, footers).runs if file_slice.log_files else ():
            if run.is_partial or (not run.is_delete and self.renames(run, footers)):
                return False
            if not run.is_delete:
                with parquet_source(self.storage, run.block, footers=footers) as source:
                    sources.append(source.schema)
        wanted = {item.name: item.type for item in self.reader_context.schema}
        return all(wanted.get(item.name, item.type) == item.type for schema in sources for item in schema)

    def describe(self, splits: Sequence[ReadSplit]) -> list[str]:
        """How the splits will be read, for `explain()`."""
        merged = sum(bool(split.slice.log_files) for split in splits)
        lines = [f"{len(splits) - merged} slices are base files alone"]
        if merged:
            kind = "sorted merge in key windows" if self.reader_context.layout == LSM_TREE else "hash merge"
            lines.append(f"{merged} slices with logs: {kind}, {self.reader_context.rule.mode}")
        key_range = self.key_range
        if key_range is not None:
            lines.append(f"key range pushed into every file: {_describe_range(key_range)}")
        if self.predicate is not None:
            lines.append(f"filter after the merge: {self.predicate.to_sql()}")
        return lines

    # ------------------------------------------------------------------ from files to rows
    def _base_rows(
        self, file_slice: FileSlice, wanted: pa.Schema, counters: ReadCounters | None
    ) -> Iterator[pa.RecordBatch]:
        if file_slice.base_file is None:
            return

        def opened(rows: int) -> Iterator[pa.RecordBatch]:
            return self.open_base(file_slice, wanted, rows, counters)

        yield from (self.keyed(opened, file_slice) if is_made(wanted.names) else opened)(self.options.batch_rows)

    def _merged_rows(
        self, file_slice: FileSlice, wanted: pa.Schema, counters: ReadCounters | None, footers: Footers | None
    ) -> Iterator[pa.RecordBatch]:
        is_lsm = self.reader_context.layout == LSM_TREE
        encoded = is_lsm and self.reader_context.rule.picks_whole_records
        runs = self.runs(file_slice, wanted, counters, encoded=encoded, footers=footers)
        memory, rule, buffer = (
            MemoryPlan(self.options.memory).merge_of(len(runs)).ceiling,
            self.reader_context.rule,
            self.options.read_buffer,
        )
        if is_lsm:
            yield from sorted_merge(runs, rule, wanted, memory=memory, read_buffer=buffer, encoded=self.encoded)
        else:
            yield from hash_merge(runs, rule, wanted, memory=memory, read_buffer=buffer)

    @contextmanager
    def data_runs(self, file_slice: FileSlice, footers: Footers | None = None) -> Iterator[list[Run]]:
        """The runs of a slice with the columns that the query returns or tests, text dictionary-encoded."""
        wanted = self.columns(self.schema.names or self.reader_context.schema.names[:1])
        with none_missing():
            everything = self.without_conditions()  # rows are numbered by file position: none may be left out
            yield everything.runs(file_slice, wanted, encoded=True, bare=True, footers=footers)

    def _filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.commits is not None:
            mask = pc.is_in(batch.column(COMMIT_TIME), value_set=pa.array(sorted(self.commits), pa.string()))
            batch = batch.filter(mask)
        if self.predicate is not None and batch.num_rows:
            batch = self.predicate.filter(batch)
        return batch


@contextmanager
def none_missing() -> Iterator[None]:
    """Report a planned file that is missing: it was lost, or cleaned while a long read was running."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptTable(
            "a file that the table's metadata names is missing",
            file=str(error.filename or error),
            hint="Restore it from a copy; if the table was cleaned meanwhile, open it again.",
        ) from error


def _cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _describe_range(key_range: KeyRange) -> str:
    if key_range.points is not None:
        return f"{len(key_range.points)} keys"
    left = "[" if key_range.low_inclusive else "("
    right = "]" if key_range.high_inclusive else ")"
    return f"{left}{key_range.low or '-'}, {key_range.high or '-'}{right}"
