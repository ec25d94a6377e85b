"""The footer of a Parquet file, parsed by lakebed so that a damaged one is an error and never aborts the process.

    "PAR1" | column chunks, row group by row group | FileMetaData | u32 its length, little endian | "PAR1"

    FileMetaData   1 version, 2 schema elements depth first, 3 rows, 4 row groups, 5 key-values, 6 created by, 7 orders
    RowGroup       1 column chunks in the order of the schema's leaves, 2 bytes, 3 rows, 4 sorting columns
    ColumnChunk    3 meta data: 1 type, 3 path, 5 values, 6 and 7 sizes, 9 and 11 where its pages begin, 12 statistics
    Statistics     1 max, 2 min (old, order unclear), 3 nulls, 5 max, 6 min (the type's own order), 7 and 8 exact?

Arrow's reader is right for the data, but its view of the footer throws an exception that kills the process when a
column chunk contradicts the schema. Opening a footer here steps over the column chunks and remembers where they begin;
one is decoded when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.parquet.schema import Leaf, leaves_of
from lakebed.format.parquet.thrift_compact import (
    BINARY,
    BYTES,
    FLAG,
    I32,
    I64,
    LIST,
    NUMBER,
    STRUCT,
    TEXTS,
    CompactReader,
    Shape,
    nested,
)

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TRAILER = 8
"""Length and magic at the end."""
LARGE = 4000
"""Column chunks from which on a faster way to step over them is worth its preparation."""
SMALLEST = len(MAGIC) + TRAILER


@dataclass(frozen=True, slots=True)
class SortingColumn:
    """Rows of a row group are sorted by this leaf."""

    leaf: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a writer noted of a column chunk, as bytes; `parquet/statistics` decodes them."""

    min_value: bytes | None = None
    max_value: bytes | None = None
    old_min: bytes | None = None
    old_max: bytes | None = None
    null_count: int | None = None
    min_is_exact: bool | None = None
    max_is_exact: bool | None = None


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column in one row group."""

    leaf: Leaf
    num_values: int
    uncompressed_size: int
    compressed_size: int
    data_page_offset: int
    dictionary_page_offset: int | None
    statistics: Statistics | None
    offset: int
    """Where its description is in the file, for error messages."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group; `columns_at` is where its column chunks begin within the footer."""

    num_rows: int
    total_byte_size: int
    sorting_columns: tuple[SortingColumn, ...]
    columns_at: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class Footer:
    """A whole footer, with column chunks still packed."""

    version: int
    num_rows: int
    leaves: tuple[Leaf, ...]
    row_groups: tuple[RowGroup, ...]
    key_values: Mapping[bytes, bytes]
    created_by: str
    file: str
    start: int
    data: bytes = field(repr=False)

    @property
    def is_large(self) -> bool:
        return len(self.row_groups) * len(self.leaves) >= LARGE

    def leaf(self, path: tuple[str, ...]) -> int | None:
        """The number of the leaf with that path."""
        return next((leaf.index for leaf in self.leaves if leaf.path == path), None)

    def column(self, group: int, leaf: int) -> ColumnChunk:
        """One column chunk, checked against the schema."""
        return next(self.columns(group, [leaf]))

    def columns(self, group: int, leaves: Iterable[int] | None = None) -> Iterator[ColumnChunk]:
        """Column chunks of a row group; `leaves` must ascend."""
        reader = CompactReader(self.data, self.file, self.start, self.row_groups[group].columns_at)
        at = 0
        for leaf in range(len(self.leaves)) if leaves is None else leaves:
            reader.skip_structs(leaf - at, many=self.is_large)
            at = leaf + 1
            yield self._chunk(reader, leaf)

    def _chunk(self, reader: CompactReader, index: int) -> ColumnChunk:
        where, leaf = reader.at, self.leaves[index]
        raw = reader.struct(_CHUNK)
        if _CRYPTO in raw:
            raise UnsupportedFormat("the Parquet file has encrypted columns", file=self.file)
        meta = raw.get(3)
        if meta is None or not meta.keys() >= _CHUNK_NEEDS:
            reader.fail("a column chunk lacks what every column chunk has", where)
        if meta[1] != leaf.physical or tuple(meta[3]) != leaf.raw_path:
            reader.fail(f"a column chunk is not of the column {leaf.name!r} that stands there in the schema", where)
        dictionary = meta.get(11, 0) if meta.get(11, 0) > 0 else None  # some writers put 0 for none
        first = meta[9] if dictionary is None else min(meta[9], dictionary)
        if min(meta[5], meta[6], meta[7], meta[9]) < 0 or not 0 <= first <= self.start - meta[7]:
            reader.fail(f"the column chunk of {leaf.name!r} does not lie within the file", where)
        return ColumnChunk(
            leaf=leaf,
            num_values=meta[5],
            uncompressed_size=meta[6],
            compressed_size=meta[7],
            data_page_offset=meta[9],
            dictionary_page_offset=dictionary,
            statistics=_statistics(meta[12]) if 12 in meta else None,
            offset=self.start + where,
        )


_CRYPTO = 8
_STATISTICS: Shape = {1: BYTES, 2: BYTES, 3: NUMBER, 5: BYTES, 6: BYTES, 7: FLAG, 8: FLAG}
_CHUNK_META: Shape = {
    1: NUMBER,
    3: TEXTS,
    5: NUMBER,
    6: NUMBER,
    7: NUMBER,
    9: NUMBER,
    11: NUMBER,
    12: nested(_STATISTICS),
}
_CHUNK: Shape = {3: nested(_CHUNK_META), _CRYPTO: nested({})}
_CHUNK_NEEDS = {1, 3, 5, 6, 7, 9}
_SORTING: Shape = {1: NUMBER, 2: FLAG, 3: FLAG}
_KEY_VALUE: Shape = {1: BYTES, 2: BYTES}
_ORDER: Shape = {1: nested({})}


def footer_size(trailer: bytes, file_size: int, file: str) -> int:
    """The length of the footer, from the last eight bytes."""
    if file_size < SMALLEST or len(trailer) != TRAILER:
        raise CorruptTable(f"{file_size} bytes are too few for a Parquet file", file=file)
    if trailer[4:] == ENCRYPTED_MAGIC:
        raise UnsupportedFormat("the Parquet file is encrypted", file=file)
    if trailer[4:] != MAGIC:
        raise CorruptTable("the file does not end as a Parquet file", file=file, offset=file_size - 4)
    size = int.from_bytes(trailer[:4], "little")
    if not 0 < size <= file_size - SMALLEST:
        raise CorruptTable(f"a footer of {size} bytes in a file of {file_size}", file=file, offset=file_size - TRAILER)
    return size


def parse_footer(data: bytes, file: str, start: int) -> Footer:
    """The footer from its bytes, which begin at `start` in the file."""
    reader = CompactReader(data, file, start)
    numbers: dict[int, int] = {}
    leaves: tuple[Leaf, ...] = ()
    groups: tuple[RowGroup, ...] = ()
    pairs: dict[bytes, bytes] = {}
    created_by = b""
    ordered: list[bool] | None = None
    seen = set()
    for number, kind in reader.fields():
        if number in seen:
            reader.fail(f"the footer has field {number} twice")
        seen.add(number)
        if number in (1, 3) and kind in (I32, I64):
            numbers[number] = reader.number()
        elif number == 2 and kind == LIST:
            leaves = leaves_of(reader)
        elif number == 4 and kind == LIST:
            groups = _row_groups(reader, len(leaves))
        elif number == 5 and kind == LIST:
            pairs = _key_values(reader)
        elif number == 6 and kind == BINARY:
            created_by = reader.binary()
        elif number == 7 and kind == LIST:
            ordered = [bool(order) for order in _structs(reader, _ORDER)]
        elif number <= 7:
            reader.fail(f"field {number} of the footer is of the wrong kind ({kind})")
        elif number in (8, 9):
            raise UnsupportedFormat("the Parquet file is encrypted", file=file)
        else:
            reader.skip(kind)
    if not seen >= {1, 2, 3, 4}:
        reader.fail("the footer lacks what every footer has")
    if ordered is not None:
        if len(ordered) != len(leaves):
            reader.fail(f"{len(ordered)} orders for {len(leaves)} columns")
        leaves = tuple(leaf.with_order(by_type) for leaf, by_type in zip(leaves, ordered, strict=True))
    rows = sum(group.num_rows for group in groups)
    if rows != numbers[3]:
        raise CorruptTable(f"the footer counts {numbers[3]} rows, its row groups {rows}", file=file, offset=start)
    text = created_by.decode("utf-8", "replace")
    return Footer(numbers[1], numbers[3], leaves, groups, pairs, text, file, start, data)


def _structs(reader: CompactReader, shape: Shape) -> Iterator[dict[int, Any]]:
    size, kind = reader.list_header()
    if kind != STRUCT and size:
        reader.fail(f"a list of the wrong kind ({kind})")
    for _ in range(size):
        yield reader.struct(shape)


def _key_values(reader: CompactReader) -> dict[bytes, bytes]:
    pairs: dict[bytes, bytes] = {}
    for pair in _structs(reader, _KEY_VALUE):
        if 1 not in pair:
            reader.fail("a key-value pair has no key")
        pairs.setdefault(pair[1], pair.get(2, b""))
    return pairs


def _row_groups(reader: CompactReader, leaves: int) -> tuple[RowGroup, ...]:
    size, kind = reader.list_header()
    if kind != STRUCT and size:
        reader.fail(f"a list of the wrong kind ({kind})")
    return tuple(_row_group(reader, leaves, size * leaves >= LARGE) for _ in range(size))


def _row_group(reader: CompactReader, leaves: int, many: bool) -> RowGroup:
    where = reader.at
    numbers: dict[int, int] = {}
    sorting: tuple[SortingColumn, ...] = ()
    columns_at = None
    for number, kind in reader.fields():
        if number == 1 and kind == LIST and columns_at is None:
            size, element = reader.list_header()
            if size != leaves or (size and element != STRUCT):
                reader.fail(f"a row group has {size} columns, the schema {leaves}", where)
            columns_at = reader.at
            reader.skip_structs(size, many=many)
        elif number in (2, 3) and kind in (I32, I64):
            numbers[number] = reader.number()
        elif number == 4 and kind == LIST:
            sorting = tuple(_sorting(reader, raw, leaves) for raw in _structs(reader, _SORTING))
        else:
            reader.skip(kind)
    if columns_at is None or len(numbers) < 2 or min(numbers.values()) < 0:
        reader.fail("a row group lacks its columns or sizes", where)
    return RowGroup(numbers[3], numbers[2], sorting, columns_at)


def _sorting(reader: CompactReader, raw: dict[int, Any], leaves: int) -> SortingColumn:
    if len(raw) < 3 or not 0 <= raw[1] < leaves:
        reader.fail("a row group is sorted by a column that is not there")
    return SortingColumn(raw[1], raw[2], raw[3])


def _statistics(raw: dict[int, Any]) -> Statistics:
    return Statistics(
        min_value=raw.get(6),
        max_value=raw.get(5),
        old_min=raw.get(2),
        old_max=raw.get(1),
        null_count=raw.get(3),
        min_is_exact=raw.get(8),
        max_is_exact=raw.get(7),
    )
