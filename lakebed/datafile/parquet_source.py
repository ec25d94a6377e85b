"""A Parquet file as a stream of Arrow batches: base files, native logs, and Parquet blocks inside v1 logs.

Sortedness is a fact of the file: the footer key `lakebed.sorted` says `utf8`, and Parquet's own sorting columns say
ascending by record key. In such a file a key range cuts whole row groups and then slices; in any other, row groups go
by their statistics and rows by a mask. The smallest and largest key come from Parquet's statistics, which are in
UTF-8 order; the footer's `hoodie_min/max_record_key` are in Java's order and count only where both orders agree.

The footer's bytes are fetched once and read twice: by Arrow for the data, and by `format.parquet_footer` for everything
that statistics and sizes tell, but only when that is asked for; a plain scan needs row counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.datafile.row_group_stats import column_stats, decoded_bytes, leaves_of_predicate
from lakebed.datafile.source import DEFAULT_BATCH_ROWS, MAX_KEY, MIN_KEY, ReadCounters, arrow_errors, checked_schema
from lakebed.errors import CorruptTable
from lakebed.format.parquet_footer import MAGIC, TRAILER, Footer, footer_size, parse_footer
from lakebed.format.parquet_statistics import bounds
from lakebed.model.key_range import KeyRange, java_bound
from lakebed.model.predicate import Predicate
from lakebed.model.schema import RECORD_KEY
from lakebed.model.schema_evolution import Renames

SORTED_KEY = "lakebed.sorted"
SORTED_UTF8 = "utf8"
READ_BUFFER = 128 * 1024
WHOLE_GROUP = 1024 * 1024
_TAIL = 64 * 1024
"""How much of the end is read at first: most footers fit, and a second read is a second request."""
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
            self._footer_bytes, self._footer_start = self._read_footer()
            metadata = _arrow_metadata(self._footer_bytes)
            self._parquet = pq.ParquetFile(
                file,
                metadata=metadata,
                pre_buffer=False,
                buffer_size=read_buffer if _is_large(metadata) else 0,
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
            )
            self.schema: pa.Schema = checked_schema(self._parquet.schema_arrow, label)
            self.num_rows: int = metadata.num_rows
            self._rows: list[int] = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        if any(count < 0 for count in self._rows) or sum(self._rows) != self.num_rows:
            total = sum(self._rows)
            raise CorruptTable(f"the footer counts {self.num_rows} rows, its row groups {total}", file=label)
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
        raw: Mapping[bytes, bytes] = self._parquet.metadata.metadata or {}
        text = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in raw.items()}
        text.pop(_ARROW_SCHEMA, None)
        return text

    @cached_property
    def row_groups(self) -> tuple[RowGroup, ...]:
        column = self._key_leaf
        out: list[RowGroup] = []
        first = 0
        for index, rows in enumerate(self._rows):
            low, high = self._key_bounds(index, column) if column is not None else (None, None)
            out.append(RowGroup(index, first, rows, low, high))
            first += rows
        return tuple(out)

    @cached_property
    def is_sorted(self) -> bool:
        """Whether rows ascend by key, in UTF-8 order; a mark that its own statistics contradict is corruption."""
        if self.footer.get(SORTED_KEY) != SORTED_UTF8 or self._key_leaf is None:
            return False
        for group in self._details.row_groups:
            order = group.sorting_columns
            if not order or order[0].leaf != self._key_leaf or order[0].descending:
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
        leaves = [leaf.index for leaf in self._details.leaves if wanted is None or leaf.path[0] in wanted]
        total = 0
        for index in {0, len(self._rows) // 2}:
            rows = max(1, self._rows[index])
            size = sum(decoded_bytes(chunk, rows) for chunk in self._details.columns(index, leaves))
            total = max(total, size // rows)
        return max(1, total)

    def prune(self, key_range: KeyRange | None, row_groups: Sequence[int] | None = None) -> list[int]:
        """The row groups that may hold a key of the range, in file order."""
        chosen = range(len(self._rows)) if row_groups is None else row_groups
        if key_range is None:
            return [index for index in chosen if self._rows[index]]
        groups = [self.row_groups[index] for index in chosen]
        return [group.index for group in groups if group.rows and key_range.overlaps(group.min_key, group.max_key)]

    def matching_row_groups(self, predicate: Predicate, *, renames: Renames | None = None) -> list[int]:
        """The row groups that may hold a row for which the condition is true; those left out are counted as pruned.

        The condition speaks of the reader's columns, `renames` says what they are called in the file. A column whose
        type in the file is not the one the condition was written for has no say: its values will be converted.
        """
        leaves = leaves_of_predicate(predicate, self.schema, self._details, renames or {})
        if not leaves:
            return list(range(len(self._rows)))
        chosen = []
        for index, rows in enumerate(self._rows):
            chunks = zip(leaves, self._details.columns(index, leaves.values()), strict=True)
            if predicate.may_match({name: column_stats(chunk, rows, self.label) for name, chunk in chunks}):
                chosen.append(index)
        self.counters.row_groups_pruned += len(self._rows) - len(chosen)
        return chosen

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
        total = len(self._rows) if row_groups is None else len(row_groups)
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
        expected = sum(self._rows[index] for index in row_groups)
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
        return self._details.leaf((self.key_column,))

    @cached_property
    def _details(self) -> Footer:
        """The footer as we read it ourselves, for statistics and sizes."""
        found = parse_footer(self._footer_bytes, self.label, self._footer_start)
        if [group.num_rows for group in found.row_groups] != self._rows:
            raise CorruptTable("two readings of the footer differ", file=self.label, offset=self._footer_start)
        return found

    def _key_bounds(self, group: int, leaf: int) -> tuple[str | None, str | None]:
        low, high = bounds(self._details.column(group, leaf), self.label)
        return (None, None) if high == "" else (low, high)  # only empty keys: meta columns that are not filled

    def _read_footer(self) -> tuple[bytes, int]:
        """The footer's bytes and where they begin."""
        size = self._file.size()
        self._file.seek(max(0, size - _TAIL))
        tail = self._file.read(min(size, _TAIL))
        length = footer_size(tail[-TRAILER:], size, self.label)
        start = size - TRAILER - length
        if length + TRAILER > len(tail):
            self._file.seek(start)
            data = self._file.read(length)
        else:
            data = tail[-TRAILER - length : -TRAILER]
        if len(data) != length:
            raise CorruptTable("the footer breaks off", file=self.label, offset=start)
        self._file.seek(0)
        if self._file.read(len(MAGIC)) != MAGIC:
            raise CorruptTable("the file does not begin as a Parquet file", file=self.label, offset=0)
        return data, start


def _is_large(metadata: pq.FileMetaData) -> bool:
    """Whether columns must be read through a buffer to bound memory.

    Where they need not be, reading them whole takes fewer requests, and a page whose header lies about its size is
    found out before Arrow allocates for it: the buffered reader takes up to 2 GB for such a page.
    """
    groups = (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return any(size > WHOLE_GROUP for size in groups)


def _arrow_metadata(footer: bytes) -> Any:
    """Arrow's view of the footer, through a file that has nothing else."""
    return pq.read_metadata(pa.BufferReader(b"".join((MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC))))
