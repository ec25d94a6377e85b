"""The footer of one open Parquet file, read once: by Arrow for the data, by lakebed's parser for everything else.

A merge needs three things of every file, one after the other: which blocks count, how large a row is, and the rows. The
footer answers the first two, and is the costliest part of opening a file; a caller that opens one file several
times keeps the footers in a `Footers` meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import CorruptTable
from lakebed.format.parquet.footer import MAGIC, TRAILER, ColumnChunk, Footer, footer_size, parse_footer
from lakebed.format.parquet.schema import Kind, Leaf

WHOLE_GROUP = 1024 * 1024
_TAIL = 64 * 1024
"""How much of the end is read at first: most footers fit, and a second read is a second request."""
_SMALL_DICTIONARY = 16 * 1024
"""Stored bytes of a dictionary that is worth keeping: joining two of them must cost less than copying their values."""


@dataclass(frozen=True)
class ParquetMetadata:
    """A footer; `details` is lakebed's own parse, made when statistics or sizes are needed."""

    data: bytes
    start: int
    arrow: Any
    file: str

    @cached_property
    def rows(self) -> list[int]:
        """Rows of each row group."""
        return [self.arrow.row_group(i).num_rows for i in range(self.arrow.num_row_groups)]

    @cached_property
    def details(self) -> Footer:
        found = parse_footer(self.data, self.file, self.start)
        if [group.num_rows for group in found.row_groups] != self.rows:
            raise CorruptTable("two readings of the footer differ", file=self.file, offset=self.start)
        return found

    @cached_property
    def samples(self) -> list[tuple[int, list[ColumnChunk]]]:
        """The first row group and one in the middle: their rows, and all their column chunks."""
        groups = sorted({0, len(self.rows) // 2}) if self.rows else []
        return [(self.rows[group], list(self.details.columns(group))) for group in groups]

    @cached_property
    def is_large(self) -> bool:
        """Whether columns must be read through a buffer to bound memory.

        Where they need not be, reading them whole takes fewer requests, and a page whose header has a wrong size is
        detected before Arrow allocates for it: the buffered reader takes up to 2 GB for such a page.
        """
        groups = (self.arrow.row_group(i).total_byte_size for i in range(self.arrow.num_row_groups))
        return any(size > WHOLE_GROUP for size in groups)

    def kept_encoded(self, names: Collection[str]) -> list[str]:
        """Those of the columns that are text with a small dictionary: cheaper to carry as numbers than as text."""
        wanted = {(name,) for name in names}
        found = {leaf.path for leaf in self.details.leaves if leaf.path in wanted and _is_text(leaf)}
        for _, chunks in self.samples:
            found &= {chunk.leaf.path for chunk in chunks if _has_small_dictionary(chunk)}
        return sorted(path[0] for path in found) if self.rows else []


Footers = MutableMapping[str, ParquetMetadata]
"""Footers of files that are being read, by label."""


def read_metadata(file: pa.NativeFile, label: str) -> ParquetMetadata:
    """The footer of an open file; both ends of the file must have the magic of Parquet."""
    size = file.size()
    file.seek(max(0, size - _TAIL))
    tail = file.read(min(size, _TAIL))
    length = footer_size(tail[-TRAILER:], size, label)
    start = size - TRAILER - length
    if length + TRAILER > len(tail):
        file.seek(start)
        data = file.read(length)
    else:
        data = tail[-TRAILER - length : -TRAILER]
    if len(data) != length:
        raise CorruptTable("the footer breaks off", file=label, offset=start)
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise CorruptTable("the file does not begin as a Parquet file", file=label, offset=0)
    return ParquetMetadata(data, start, _arrow_metadata(data), label)


def _is_text(leaf: Leaf) -> bool:
    return leaf.logical.kind is Kind.TEXT and not leaf.repeated


def _has_small_dictionary(chunk: ColumnChunk) -> bool:
    dictionary_offset = chunk.dictionary_page_offset
    return dictionary_offset is not None and 0 < chunk.data_page_offset - dictionary_offset <= _SMALL_DICTIONARY


def _arrow_metadata(footer: bytes) -> Any:
    """Arrow's view of the footer, through a file that has nothing else."""
    return pq.read_metadata(pa.BufferReader(b"".join((MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC))))
