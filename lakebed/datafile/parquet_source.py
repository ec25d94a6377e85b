"""A Parquet file as a stream of Arrow batches: base files, native logs, and Parquet blocks inside v1 logs.

Sortedness is a fact of the file: the footer key `lakebed.sorted` says `utf8`, and Parquet's own sorting columns say
ascending by record key. In such a file a key range cuts whole row groups and then slices; in any other, row groups go
by their statistics and rows by a mask. The smallest and largest key come from Parquet's statistics, which are in
UTF-8 order; the footer's `hoodie_min/max_record_key` are in Java's order and count only where both orders agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.datafile.source import DEFAULT_BATCH_ROWS, MAX_KEY, MIN_KEY, ReadCounters, arrow_errors, checked_schema
from lakebed.errors import CorruptTable
from lakebed.model.key_range import KeyRange, java_bound
from lakebed.model.schema import RECORD_KEY

SORTED_KEY = "lakebed.sorted"
SORTED_UTF8 = "utf8"
READ_BUFFER = 128 * 1024
_MAGIC = b"PAR1"
_ARROW_SCHEMA = "ARROW:schema"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: where its rows stand in the file, and what its statistics say of the key (None = unknown)."""

    index: int
    first_row: int
    rows: int
    min_key: str | None
    max_key: str | None


class ParquetSource:
    """See the module; the file stays open as long as the source does, and `close` closes it."""

    def __init__(
        self,
        file: pa.NativeFile,
        label: str,
        *,
        key_column: str = RECORD_KEY,
        read_buffer: int = READ_BUFFER,
        counters: ReadCounters | None = None,
    ) -> None:
        self.label = label
        self.key_column = key_column
        self.counters = counters if counters is not None else ReadCounters()
        self._file = file
        with arrow_errors(label):
            self._check_magic()
            self._parquet = pq.ParquetFile(
                file,
                pre_buffer=False,
                buffer_size=read_buffer,
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
            )
            self._metadata = self._parquet.metadata
            self.schema: pa.Schema = checked_schema(self._parquet.schema_arrow, label)
            self.num_rows: int = self._metadata.num_rows
            self._groups = [self._metadata.row_group(i) for i in range(self._metadata.num_row_groups)]
            rows = [group.num_rows for group in self._groups]
        if any(count < 0 for count in rows) or sum(rows) != self.num_rows:
            raise CorruptTable(f"the footer counts {self.num_rows} rows, its row groups {sum(rows)}", file=label)
        self.counters.files += 1

    def __enter__(self) -> ParquetSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @cached_property
    def footer(self) -> Mapping[str, str]:
        """The footer's key-values as text; Arrow's own encoded schema is left out."""
        raw: Mapping[bytes, bytes] = self._metadata.metadata or {}
        text = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in raw.items()}
        text.pop(_ARROW_SCHEMA, None)
        return text

    @cached_property
    def row_groups(self) -> tuple[RowGroup, ...]:
        column = self._key_leaf
        out: list[RowGroup] = []
        first = 0
        for index, group in enumerate(self._groups):
            low, high = _key_bounds(group, column) if column is not None else (None, None)
            out.append(RowGroup(index, first, group.num_rows, low, high))
            first += group.num_rows
        return tuple(out)

    @cached_property
    def is_sorted(self) -> bool:
        """Whether rows ascend by key, in UTF-8 order; a mark that its own statistics contradict is corruption."""
        column = self._key_leaf
        if column is None or self.footer.get(SORTED_KEY) != SORTED_UTF8:
            return False
        for group in self._groups:
            order = group.sorting_columns
            if not order or order[0].column_index != column or order[0].descending:
                return False
        for before, after in zip(self.row_groups, self.row_groups[1:], strict=False):
            if before.max_key is not None and after.min_key is not None and before.max_key > after.min_key:
                raise CorruptTable("the file is marked as sorted, but its row groups overlap", file=self.label)
        return True

    @cached_property
    def key_range(self) -> KeyRange | None:
        """Bounds of the keys in the file, None when unknown or when there is no row."""
        groups = [group for group in self.row_groups if group.rows]
        if not groups:
            return None
        lows = [group.min_key for group in groups]
        highs = [group.max_key for group in groups]
        known_lows = [low for low in lows if low is not None]
        known_highs = [high for high in highs if high is not None]
        low = min(known_lows) if len(known_lows) == len(lows) else java_bound(self.footer.get(MIN_KEY))
        high = max(known_highs) if len(known_highs) == len(highs) else java_bound(self.footer.get(MAX_KEY))
        return None if low is None and high is None else KeyRange(low, high)

    def row_bytes(self, columns: Sequence[str] | None = None) -> int:
        """About how many bytes of Arrow memory a row takes; dictionaries count as decoded."""
        if not self.num_rows:
            return 1
        wanted = None if columns is None else set(columns)
        total = 0
        for group in self._groups[:: max(1, len(self._groups) // 8)]:
            rows = max(1, group.num_rows)
            size = 0
            for i in range(group.num_columns):
                chunk = group.column(i)
                if wanted is None or chunk.path_in_schema.partition(".")[0] in wanted:
                    size += _decoded_bytes(chunk, rows)
            total = max(total, size // rows)
        return max(1, total)

    def prune(self, key_range: KeyRange | None, row_groups: Sequence[int] | None = None) -> list[int]:
        """The row groups that may hold a key of the range, in file order."""
        chosen = self.row_groups if row_groups is None else [self.row_groups[index] for index in row_groups]
        return [
            group.index
            for group in chosen
            if group.rows and (key_range is None or key_range.overlaps(group.min_key, group.max_key))
        ]

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        row_groups: Sequence[int] | None = None,
        key_range: KeyRange | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The wanted columns that the file has, in the wanted order; with `key_range` only rows whose key is in it.

        Without a key column in the file the range cannot be applied, and all rows come.
        """
        names = self.schema.names
        wanted = names if columns is None else [name for name in columns if name in set(names)]
        total = len(self._groups) if row_groups is None else len(row_groups)
        if key_range is None or key_range.is_all or self._key_leaf is None:
            chosen = self.prune(None, row_groups)
            self._count_groups(total, chosen)
            for batch in self._read(chosen, wanted, batch_rows):
                self.counters.rows += batch.num_rows
                yield batch
            return
        chosen = self.prune(key_range, row_groups)
        if key_range.points is not None and len(wanted) > 1:
            chosen = [index for index in chosen if self._holds(index, key_range, batch_rows)]
        self._count_groups(total, chosen)
        extended = wanted if self.key_column in wanted else [*wanted, self.key_column]
        for batch in self._read(chosen, extended, batch_rows):
            cut = self._cut(batch, key_range)
            if cut.num_rows:
                self.counters.rows += cut.num_rows
                yield cut if extended is wanted else cut.select(wanted)

    def _count_groups(self, total: int, chosen: Sequence[int]) -> None:
        self.counters.row_groups += len(chosen)
        self.counters.row_groups_pruned += total - len(chosen)

    def _holds(self, index: int, key_range: KeyRange, batch_rows: int) -> bool:
        """Whether a row group has one of the points: reading only its keys is cheap next to all columns."""
        return any(
            self._cut(batch, key_range).num_rows
            for batch in self._read([index], [self.key_column], batch_rows, quiet=True)
        )

    def _cut(self, batch: pa.RecordBatch, key_range: KeyRange) -> pa.RecordBatch:
        keys = batch.column(self.key_column)
        if self.is_sorted and not keys.null_count:
            start, end = key_range.cut(keys)
            batch = batch.slice(start, end - start)
            if key_range.points is None or not batch.num_rows:
                return batch
            keys = batch.column(self.key_column)
        return batch.filter(key_range.mask(keys))

    def _read(
        self, row_groups: list[int], columns: list[str], batch_rows: int, *, quiet: bool = False
    ) -> Iterator[pa.RecordBatch]:
        rows = 0
        expected = sum(self._groups[index].num_rows for index in row_groups)
        with arrow_errors(self.label):
            stream = self._parquet.iter_batches(batch_rows, row_groups=row_groups, columns=columns, use_threads=False)
        while row_groups:
            with arrow_errors(self.label):
                batch = next(stream, None)
                if batch is None:
                    break
                if batch.schema.names != columns:
                    batch = batch.select(columns)
                batch = batch.replace_schema_metadata(None)
            rows += batch.num_rows
            if not quiet:
                self.counters.rows_decoded += batch.num_rows
            if batch.num_rows:
                yield batch
        if rows != expected:
            raise CorruptTable(f"{rows} rows where the footer promises {expected}", file=self.label)

    @cached_property
    def _key_leaf(self) -> int | None:
        """The leaf number of the key column, None when the file has no such string column."""
        position = self.schema.get_field_index(self.key_column)
        if position < 0 or self.schema.field(position).type not in (pa.string(), pa.large_string()):
            return None
        parquet = self._metadata.schema
        leaves = (i for i in range(len(parquet)) if parquet.column(i).path == self.key_column)
        return next(leaves, None)

    def _check_magic(self) -> None:
        size = self._file.size()
        if size < 12:
            raise CorruptTable(f"{size} bytes are too few for a Parquet file", file=self.label)
        self._file.seek(0)
        head = self._file.read(4)
        if head != _MAGIC:
            raise CorruptTable("the file does not begin as a Parquet file", file=self.label, offset=0)


def _key_bounds(group: Any, column: int) -> tuple[str | None, str | None]:
    """The statistics' bounds as text. A writer may cut long values: the lower cut is a bound, the upper was raised."""
    statistics = group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return None, None
    low, high = _text(statistics.min_raw), _text(statistics.max_raw)
    return (None, None) if high == "" else (low, high)  # only empty keys: a table that does not fill its meta columns


def _text(raw: Any) -> str | None:
    try:
        return raw.decode() if isinstance(raw, bytes) else raw if isinstance(raw, str) else None
    except UnicodeDecodeError:
        return None


def _decoded_bytes(chunk: Any, rows: int) -> int:
    """Arrow's size of a column chunk: the encoded size is far too small where values repeat."""
    stored = max(0, int(chunk.total_uncompressed_size))
    physical = chunk.physical_type
    if physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max:
            low, high = statistics.min_raw, statistics.max_raw
            if isinstance(low, bytes) and isinstance(high, bytes):
                return max(stored, rows * (4 + (len(low) + len(high)) // 2))
        return max(stored, rows * 20) if chunk.has_dictionary_page else stored
    width = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}.get(physical, 8)
    return max(stored, rows * width)
