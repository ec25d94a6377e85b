"""Log format version 1: a file is a plain sequence of blocks.

    magic     6   "#HUDI#"
    length    8   L: bytes after this field
    version   4   of the log format
    type      4   ordinal of the block kind
    header    …   map
    size      8   of the content
    content   …   defined by the kind (`log/block_content`)
    footer    …   map, in practice empty: 00 00 00 00
    trailer   8   6 + L: the way back from here to the magic
    map       =   int32 count, then per entry: int32 ordinal, int32 length, UTF-8 text
    numbers   =   big-endian

Files were appended to by tasks that could die, so a byte range that is no block is expected: it is reported as a
CORRUPT block and reading goes on at the next magic. A byte range is corrupt when its length runs past the end of the
file, when the trailer disagrees with the length, or when neither the end nor a magic follows (a writer may die inside
the next magic: fewer bytes than a magic count as the end). A block whose frame is sound but whose inside contradicts
itself was not torn by a dying task; that is an error.

Only frames and headers are read; contents are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.log.block import FORMAT_V1, BlockKind, Header, LogBlock

MAGIC = b"#HUDI#"
Read = Callable[[int, int], bytes]

_LENGTH_AT = len(MAGIC)
_BODY_AT = _LENGTH_AT + 8
_HEADER_AT = _BODY_AT + 8
_TRAILER = 8
_SMALLEST_BODY = 4 + 4 + 4 + 8 + 4 + _TRAILER  # version, type, empty header, size, no content, empty footer, trailer
_WINDOW = 32 * 1024
_RESYNC_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a version of the log format; readers test these and never compare version numbers."""

    has_block_length: bool
    has_header: bool
    has_footer: bool

    @property
    def is_readable(self) -> bool:
        return self.has_block_length and self.has_header and self.has_footer


FEATURES: Mapping[int, Features] = MappingProxyType(
    {
        0: Features(has_block_length=False, has_header=False, has_footer=False),
        1: Features(has_block_length=True, has_header=True, has_footer=True),
    }
)


class _Window:
    """Ranged reads with a little read-ahead: the header of one block and the frame of the next cost one request."""

    def __init__(self, read: Read, size: int, file: str) -> None:
        self._read = read
        self.size = size
        self._file = file
        self._start = 0
        self._data = b""

    def get(self, offset: int, length: int, *, ahead: bool = True) -> bytes:
        """`length` bytes at `offset`; the caller has checked that the file reaches that far."""
        at = offset - self._start
        if at >= 0 and at + length <= len(self._data):
            return self._data[at : at + length]
        data = self._read(offset, min(max(length, _WINDOW), self.size - offset) if ahead else length)
        if len(data) < length:
            raise CorruptTable("the file ended while it was read", file=self._file, offset=offset)
        if ahead:
            self._start, self._data = offset, data
        return data[:length]

    def magics(self, offset: int) -> Iterator[int]:
        """Where the magic occurs from `offset` on; chunks overlap so that none hides on a border."""
        while offset + len(MAGIC) <= self.size:
            chunk = self._read(offset, min(_RESYNC_CHUNK, self.size - offset))
            found = chunk.find(MAGIC)
            while found >= 0:
                yield offset + found
                found = chunk.find(MAGIC, found + 1)
            if len(chunk) < len(MAGIC):
                return
            offset += len(chunk) - len(MAGIC) + 1

    def int32(self, offset: int) -> int:
        return int.from_bytes(self.get(offset, 4), "big", signed=True)

    def int64(self, offset: int) -> int:
        return int.from_bytes(self.get(offset, 8), "big", signed=True)


def scan_blocks(read: Read, size: int, file: str) -> Iterator[LogBlock]:
    """The blocks of a version 1 file in order; bytes that are no block come out as CORRUPT blocks."""
    window = _Window(read, size, file)
    offset = 0
    while offset < size:
        end = _frame_end(window, offset)
        if end is not None:
            yield _read_block(window, offset, end, file)
            offset = end
            continue
        start = offset
        candidates = window.magics(start + 1)
        offset = next((at for at in candidates if _frame_end(window, at, ahead=False) is not None), size)
        yield LogBlock(BlockKind.CORRUPT, FORMAT_V1, MappingProxyType({}), file, start, start, offset - start)


def _frame_end(window: _Window, offset: int, *, ahead: bool = True) -> int | None:
    """Where the block that starts here ends, or None when no whole block starts here.

    While looking for the next block only the few requested bytes are read: a byte range full of magics must not cost a
    window of read-ahead for each.
    """
    if offset + _BODY_AT + _SMALLEST_BODY > window.size or window.get(offset, len(MAGIC)) != MAGIC:
        return None
    length = window.int64(offset + _LENGTH_AT)
    end = offset + _BODY_AT + length
    if length < _SMALLEST_BODY or end > window.size:
        return None
    follows = min(len(MAGIC), window.size - end)
    tail = window.get(end - _TRAILER, _TRAILER + follows, ahead=ahead)
    if int.from_bytes(tail[:_TRAILER], "big", signed=True) != _LENGTH_AT + length:
        return None
    return end if follows < len(MAGIC) or tail[_TRAILER:] == MAGIC else None


def _read_block(window: _Window, offset: int, end: int, file: str) -> LogBlock:
    version = window.int32(offset + _BODY_AT)
    features = FEATURES.get(version)
    if features is None or not features.is_readable:
        raise UnsupportedFormat(f"log format version {version} is not readable", file=file, offset=offset)
    ordinal = window.int32(offset + _BODY_AT + 4)
    try:
        kind = BlockKind(ordinal)
    except ValueError:
        raise UnsupportedFormat(f"log block type {ordinal} is unknown", file=file, offset=offset) from None
    if kind is BlockKind.CORRUPT:
        raise CorruptTable("a block claims the type that is never written", file=file, offset=offset)
    body_end = end - _TRAILER
    header, at = _read_map(window, offset + _HEADER_AT, body_end, file)
    if at + 8 > body_end:
        raise CorruptTable("a block ends inside its header", file=file, offset=offset)
    length = window.int64(at)
    content = at + 8
    if not 0 <= length <= body_end - content:
        raise CorruptTable(f"a block of {end - offset} bytes claims {length} bytes of content", file=file, offset=at)
    _, footer_end = _read_map(window, content + length, body_end, file)
    if footer_end != body_end:
        raise CorruptTable("bytes are left over between a block's footer and its end", file=file, offset=footer_end)
    return LogBlock(kind, version, MappingProxyType(header), file, offset, content, length)


def _read_map(window: _Window, at: int, end: int, file: str) -> tuple[dict[Header, str], int]:
    """A header or footer map; ordinals of later versions are passed over."""
    if at + 4 > end:
        raise CorruptTable("a block ends before its header", file=file, offset=at)
    count = window.int32(at)
    start, at = at, at + 4
    if not 0 <= count <= (end - at) // 8:
        raise CorruptTable(f"a header claims {count} entries", file=file, offset=start)
    entries: dict[Header, str] = {}
    for _ in range(count):
        if at + 8 > end:
            raise CorruptTable("a block ends inside its header", file=file, offset=at)
        ordinal, length = window.int32(at), window.int32(at + 4)
        if not 0 <= length <= end - at - 8:
            raise CorruptTable(f"a header entry claims {length} bytes", file=file, offset=at + 4)
        raw = window.get(at + 8, length)
        if ordinal in _KNOWN_HEADERS:
            key = Header(ordinal)
            if key in entries:
                raise CorruptTable(f"a header has {key.name} twice", file=file, offset=at)
            try:
                entries[key] = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise CorruptTable(f"the header {key.name} is not UTF-8", file=file, offset=at + 8) from error
        at += 8 + length
    return entries, at


_KNOWN_HEADERS = frozenset(int(key) for key in Header)


def encode_block(kind: BlockKind, header: Mapping[Header, str], content: bytes) -> bytes:
    """One block, ready to be appended."""
    if kind is BlockKind.CORRUPT:
        raise InvalidRequest("a corrupt block is never written")
    body = b"".join(
        (
            struct.pack(">ii", FORMAT_V1, kind),
            _encode_map(header),
            struct.pack(">q", len(content)),
            content,
            _encode_map({}),
        )
    )
    length = len(body) + _TRAILER
    return b"".join((MAGIC, struct.pack(">q", length), body, struct.pack(">q", _LENGTH_AT + length)))


def _encode_map(entries: Mapping[Header, str]) -> bytes:
    parts = [struct.pack(">i", len(entries))]
    for key in sorted(entries):
        value = entries[key].encode("utf-8")
        parts += (struct.pack(">ii", key, len(value)), value)
    return b"".join(parts)
