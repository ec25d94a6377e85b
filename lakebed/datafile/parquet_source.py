"""A Parquet file as a stream of Arrow batches: base files, native logs, and Parquet blocks inside version 1 logs.

Sortedness is a fact of the file: the footer key `lakebed.sorted` is `utf8`, and Parquet's own sorting columns are
ascending by record key; where rows do not carry their key, the footer key alone states that they ascend by the keys
that are made from their columns. In a sorted file with keys a key range cuts whole row groups and then slices; in any
other, row groups go by their statistics and rows by a mask. The smallest and largest key come from Parquet's
statistics, which are in UTF-8 order; the footer's `hoodie_min/max_record_key` are in Java's order and count only where
both orders agree.

Text with a small dictionary may be requested as it is stored (`encoded`): numbers are cheaper to carry through a merge
than text. `schema` has the types of the values all the same; batches show which columns came encoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.datafile.base_file_formats import READ_BUFFER, BaseFileFormat, OpenOptions
from lakebed.datafile.parquet_metadata import Footers, read_metadata
from lakebed.datafile.row_group_stats import column_stats, decoded_bytes, leaves_of_predicate
from lakebed.datafile.source import DEFAULT_BATCH_ROWS, MAX_KEY, MIN_KEY, ReadCounters, arrow_errors, checked_schema
from lakebed.errors import CorruptTable
from lakebed.expression.predicate import Predicate
from lakebed.format.parquet.footer import Footer
from lakebed.format.parquet.statistics import bounds
from lakebed.model.key_range import KeyRange, java_bound
from lakebed.model.schema import RECORD_KEY
from lakebed.model.schema_evolution import Renames

SORTED_KEY = "lakebed.sorted"
SORTED_UTF8 = "utf8"
SORTED_BY_MADE_KEY = "utf8, keys made from columns"
UNIQUE_KEY = "lakebed.unique"
UNIQUE = "keys"
"""The mark of files that are not sorted, but in which no key comes twice."""
_NUMBER_BYTES = 4
"""Bytes of an index into a dictionary."""
_ARROW_SCHEMA = "ARROW:schema"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: where its rows are in the file, and the key bounds in its statistics (None = unknown)."""

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
        encoded: Collection[str] = (),
        footers: Footers | None = None,
    ) -> None:
        self.label = label
        self.key_column = key_column
        self.counters = counters if counters is not None else ReadCounters()
        self._file = file
        with arrow_errors(label):
            known = footers.get(label) if footers is not None else None
            self._metadata = known or read_metadata(file, label)
            if footers is not None:
                footers[label] = self._metadata
            self._encoded = self._metadata.kept_encoded(set(encoded) - {key_column}) if encoded else []
            self._parquet = pq.ParquetFile(
                file,
                metadata=self._metadata.arrow,
                read_dictionary=self._encoded,
                pre_buffer=False,
                buffer_size=read_buffer if self._metadata.is_large else 0,
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
            )
            self.schema: pa.Schema = checked_schema(self._parquet.schema_arrow, label)
            self.num_rows: int = self._metadata.arrow.num_rows
            self._rows = self._metadata.rows
        for name in self._encoded:
            position = self.schema.get_field_index(name)
            kind = self.schema.field(position).type
            if pa.types.is_dictionary(kind):
                self.schema = self.schema.set(position, self.schema.field(position).with_type(kind.value_type))
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
        if self.is_sorted_by_made_key:
            return True
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
    def is_sorted_by_made_key(self) -> bool:
        """Whether rows ascend by a key that no column holds."""
        return self.footer.get(SORTED_KEY) == SORTED_BY_MADE_KEY

    @cached_property
    def has_unique_keys(self) -> bool:
        """Whether the file is marked as having no key twice."""
        return self.is_sorted or self.footer.get(UNIQUE_KEY) == UNIQUE

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

    @property
    def group_rows(self) -> int:
        """Rows of the largest row group."""
        return max(self._rows, default=0)

    def row_bytes(self, columns: Sequence[str] | None = None) -> int:
        """About how many bytes of Arrow memory a row takes; what comes encoded counts as numbers."""
        if not self.num_rows:
            return 1
        wanted = set(self.schema.names if columns is None else columns)
        values = wanted - set(self._encoded)
        total = 0
        for rows, chunks in self._metadata.samples:
            size = sum(decoded_bytes(chunk, max(1, rows)) for chunk in chunks if chunk.leaf.path[0] in values)
            total = max(total, size // max(1, rows) + _NUMBER_BYTES * len(wanted - values))
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

        The condition refers to the reader's columns, `renames` maps them to their names in the file. A column whose
        type in the file is not the one the condition was written for is ignored: its values will be converted.
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
        if self.is_sorted and not self.is_sorted_by_made_key and not keys.null_count:
            start, end = key_range.cut(keys)
            batch = batch.slice(start, end - start)
            if key_range.points is None or not batch.num_rows:
                return batch
            keys = batch.column(self.key_column)
        return batch.filter(key_range.mask(keys))

    def _read(
        self, row_groups: list[int], columns: list[str], batch_rows: int, *, quiet: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the row groups; one by one where they are about as large as a batch.

        A finished row group then gives back its decoders, which take as much memory as its rows.
        """
        if 2 * self.group_rows > batch_rows:
            parts = [[index] for index in row_groups]
        else:
            parts = [row_groups] if row_groups else []
        for part in parts:
            for batch in self._read_part(part, columns, batch_rows):
                if not quiet:
                    self.counters.rows_decoded += batch.num_rows
                yield batch

    def _read_part(self, row_groups: list[int], columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        left = sum(self._rows[index] for index in row_groups)
        encoded = [name for name in self._encoded if name in columns]
        with arrow_errors(self.label):
            stream = self._parquet.iter_batches(batch_rows, row_groups=row_groups, columns=columns, use_threads=False)
        while stream is not None:
            with arrow_errors(self.label):
                batch = next(stream, None)
                if batch is None:
                    break
                if batch.schema.names != columns:
                    batch = batch.select(columns)
                batch = batch.replace_schema_metadata(None)
                for name in encoded:
                    batch.column(name).validate(full=True)  # Arrow does not look whether a number is in the dictionary
                left -= batch.num_rows
                if not left:
                    left -= sum(more.num_rows for more in stream)
                    stream = None
            if batch.num_rows:
                yield batch
        if left:
            raise CorruptTable(f"{abs(left)} rows {'less' if left > 0 else 'more'} than promised", file=self.label)

    @cached_property
    def _key_leaf(self) -> int | None:
        """The leaf number of the key column, None when the file has no such string column."""
        position = self.schema.get_field_index(self.key_column)
        if position < 0 or self.schema.field(position).type not in (pa.string(), pa.large_string()):
            return None
        return self._details.leaf((self.key_column,))

    @property
    def _details(self) -> Footer:
        """The footer as parsed by lakebed, for statistics and sizes."""
        return self._metadata.details

    def _key_bounds(self, group: int, leaf: int) -> tuple[str | None, str | None]:
        low, high = bounds(self._details.column(group, leaf), self.label)
        return (None, None) if high == "" else (low, high)  # only empty keys: meta columns that are not filled


def open_parquet(file: pa.NativeFile, label: str, options: OpenOptions) -> ParquetSource:
    """A Parquet base file."""
    return ParquetSource(
        file,
        label,
        key_column=options.key_column,
        read_buffer=options.read_buffer,
        counters=options.counters,
        encoded=options.encoded,
        footers=options.footers,
    )


PARQUET_FORMAT = BaseFileFormat("PARQUET", b"PAR1", open_parquet)
