"""HFile reader: the sorted key-value file of the metadata table, as base file and as log block.

    file     =  data blocks | meta blocks | root index, meta index, file info ("load on open") | 4096-byte trailer
    block    =  magic 8 | on-disk size 4 | uncompressed size 4 | previous offset 8 | checksum type 1
                | bytes per checksum 4 | on-disk size with header, without checksums 4 | payload | checksums
    entry    =  key length + 12 (4) | value length 4 | key length 2 | key | 0 | time 8 | 04 | value | mvcc vint
    index    =  per block: offset 8 | on-disk size 4 | vint | key length 2 | first key

Opening costs one read in the common case, a look-up one more (none when the file is small). Keys are in unsigned byte
order, except that Hudi's own writers sort some files by Java's `String` order, which is that of UTF-16. The two orders
disagree only between keys that hold a character beyond U+FFFF and keys that hold one of U+E000..U+FFFF. So a look-up
searches in byte order, and once more in UTF-16 order when it missed a key with such a character; no look-up has to
read the whole file.
"""

from __future__ import annotations

import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import gt

import pyarrow as pa

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.hfile.layout import (
    BLOCK_HEADER,
    DATA_MAGIC,
    ENTRY_HEADER,
    INDEX_MAGIC,
    INFO_MAGIC,
    META_MAGIC,
    TRAILER_SIZE,
    parse_file_info,
    parse_trailer,
    read_vint,
)

_INDEX_HEADER = struct.Struct(">qi")
_TAIL_READ = 64 * 1024
_RUN_READ = 8 * 1024 * 1024
_TIMESTAMP_AND_TYPE = 9
_EITHER_ORDER = re.compile(rb"[\xee-\xff]")
"""Lead bytes of U+E000..U+FFFF and of everything beyond: only keys with one of these sort differently in UTF-16."""


@dataclass(frozen=True, slots=True)
class _Pointer:
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Entries:
    """A decoded data block: keys in file order, and where each value is in the payload."""

    payload: bytes
    keys: list[bytes]
    spans: list[tuple[int, int]]

    def value(self, i: int) -> bytes:
        start, end = self.spans[i]
        return self.payload[start:end]


class HFileReader:
    """One HFile behind a ranged read; `size` is the length of the file, or of the block content that holds it."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, file: str) -> None:
        self._read_range = read
        self._size = size
        self._file = file
        if size < TRAILER_SIZE:
            raise CorruptTable(f"an HFile of {size} bytes has no room for its trailer", file=file)
        self._tail, self._tail_start = b"", size
        tail_start = max(0, size - _TAIL_READ)
        tail = self._read(tail_start, size - tail_start)
        self.trailer = parse_trailer(tail[-TRAILER_SIZE:], size, file)
        start, end = self.trailer.load_on_open_offset, size - TRAILER_SIZE
        if start < tail_start:
            tail = self._read(start, tail_start - start) + tail
            tail_start = start
        section = tail[start - tail_start : end - tail_start]
        self._load_on_open(section, start)
        self._tail, self._tail_start = tail[:-TRAILER_SIZE], tail_start
        self._cached: tuple[int, _Entries] | None = None

    def _load_on_open(self, section: bytes, start: int) -> None:
        payloads, offset = [], 0
        for magic in (INDEX_MAGIC, INDEX_MAGIC, INFO_MAGIC):
            if magic == INFO_MAGIC and start + offset != self.trailer.file_info_offset:
                raise self._corrupt("the file info is not where the trailer points", self.trailer.file_info_offset)
            payload, length = self._block(section[offset:], start + offset, magic)
            payloads.append(payload)
            offset += length
        self._pointers, self._first_keys = self._parse_index(payloads[0], self.trailer.data_index_count, is_data=True)
        pointers, names = self._parse_index(payloads[1], self.trailer.meta_index_count, is_data=False)
        self._metas = dict(zip(names, pointers, strict=True))
        self.file_info = parse_file_info(payloads[2], self._file, self.trailer.file_info_offset)
        self._has_mvcc = self.file_info.get(b"KEY_VALUE_VERSION") == b"\x00\x00\x00\x01"
        self._first_keys_utf16: list[bytes] | None = None

    def __len__(self) -> int:
        """How many entries the trailer claims."""
        return self.trailer.entry_count

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries in file order."""
        count = 0
        for _, block in self._blocks(range(len(self._pointers))):
            count += len(block.keys)
            for i, key in enumerate(block.keys):
                yield key, block.value(i)
        if count != self.trailer.entry_count:
            raise self._corrupt(f"the trailer counts {self.trailer.entry_count} entries, the blocks hold {count}", 0)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those of the keys that are there; every block is read at most twice, neighbours together."""
        wanted: dict[int, list[bytes]] = {}
        for key in keys:
            wanted.setdefault(bisect_right(self._first_keys, key) - 1, []).append(key)
        found = self._find(wanted, lambda key: key)
        odd = [key for key in keys if key not in found and _EITHER_ORDER.search(key)]
        if odd and self._pointers:
            if self._first_keys_utf16 is None:
                self._first_keys_utf16 = [_utf16(key) for key in self._first_keys]
            wanted = {}
            for key in odd:
                wanted.setdefault(bisect_right(self._first_keys_utf16, _utf16(key)) - 1, []).append(key)
            found |= self._find(wanted, _utf16)
        return found

    def _find(self, wanted: dict[int, list[bytes]], order: Callable[[bytes], bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for number, block in self._blocks(sorted(number for number in wanted if number >= 0)):
            for key in wanted[number]:
                i = bisect_left(block.keys, order(key), key=order)
                if i < len(block.keys) and block.keys[i] == key:
                    found[key] = block.value(i)
        return found

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All entries whose key starts with the prefix, in file order. They are neighbours in either order."""
        if not prefix or _EITHER_ORDER.search(prefix):
            yield from ((key, value) for key, value in self.entries() if key.startswith(prefix))
            return
        first = max(0, bisect_left(self._first_keys, prefix) - 1)
        last = first
        while last + 1 < len(self._first_keys) and self._first_keys[last + 1][: len(prefix)] <= prefix:
            last += 1
        for _, block in self._blocks(range(first, min(last + 1, len(self._pointers)))):
            for i, key in enumerate(block.keys):
                if key.startswith(prefix):
                    yield key, block.value(i)

    def meta_block(self, name: str) -> bytes | None:
        """The payload of a meta block, e.g. `bloomFilter`, or None when the file has none of that name."""
        pointer = self._metas.get(name.encode())
        if pointer is None:
            return None
        return self._block(self._read(pointer.offset, pointer.size), pointer.offset, META_MAGIC)[0]

    def _blocks(self, numbers: Iterable[int]) -> Iterator[tuple[int, _Entries]]:
        """Decoded blocks by number; blocks that lie side by side come in one read."""
        run: list[int] = []
        for number in numbers:
            cached = self._cached
            at_hand = cached is not None and cached[0] == number
            if run and (at_hand or not self._joins(run, number)):
                yield from self._read_run(run)
                run = []
            if cached is not None and at_hand:
                yield cached
            else:
                run.append(number)
        yield from self._read_run(run)

    def _joins(self, run: list[int], number: int) -> bool:
        first, last, new = self._pointers[run[0]], self._pointers[run[-1]], self._pointers[number]
        return new.offset == last.offset + last.size and new.offset + new.size - first.offset <= _RUN_READ

    def _read_run(self, run: list[int]) -> Iterator[tuple[int, _Entries]]:
        if not run:
            return
        start = self._pointers[run[0]].offset
        data = self._read(start, self._pointers[run[-1]].offset + self._pointers[run[-1]].size - start)
        for number in run:
            pointer = self._pointers[number]
            raw = data[pointer.offset - start : pointer.offset - start + pointer.size]
            payload, length = self._block(raw, pointer.offset, DATA_MAGIC)
            if length != pointer.size:
                raise self._corrupt(f"the index records {pointer.size} bytes, the block {length}", pointer.offset)
            block = self._parse_entries(payload, pointer.offset)
            if not block.keys or (block.keys[0] != self._first_keys[number] and self._has_exact_index):
                raise self._corrupt("the block does not start with the key in the index", pointer.offset)
            entry = (number, block)
            self._cached = entry
            yield entry

    @property
    def _has_exact_index(self) -> bool:
        """HBase writes shortened separators into its index; Hudi's writer, the first keys themselves."""
        return "hudi" in self.trailer.comparator

    def _parse_entries(self, payload: bytes, offset: int) -> _Entries:
        keys: list[bytes] = []
        spans: list[tuple[int, int]] = []
        pos, end = 0, len(payload)
        while pos < end:
            if end - pos < ENTRY_HEADER.size:
                raise self._corrupt("a data block ends inside an entry", offset)
            key_part, value_length, key_length = ENTRY_HEADER.unpack_from(payload, pos)
            key_start = pos + ENTRY_HEADER.size
            value_start = pos + 8 + key_part
            pos = value_start + value_length
            if not 0 <= key_length <= key_part - 3 - _TIMESTAMP_AND_TYPE or value_length < 0 or pos > end:
                raise self._corrupt("an entry's lengths do not fit its block", offset)
            keys.append(payload[key_start : key_start + key_length])
            spans.append((value_start, pos))
            if self._has_mvcc:
                pos = self._vint(payload, pos, offset)[1]
        if _descends(keys) and _descends([_utf16(key) for key in keys]):
            raise self._corrupt("the keys of a data block are not in order", offset)
        return _Entries(payload, keys, spans)

    def _parse_index(self, payload: bytes, count: int, *, is_data: bool) -> tuple[list[_Pointer], list[bytes]]:
        at = self.trailer.load_on_open_offset
        pointers: list[_Pointer] = []
        keys: list[bytes] = []
        pos = 0
        while pos < len(payload):
            if len(payload) - pos < _INDEX_HEADER.size:
                raise self._corrupt("the block index ends inside an entry", at)
            offset, size = _INDEX_HEADER.unpack_from(payload, pos)
            length, pos = self._vint(payload, pos + _INDEX_HEADER.size, at)
            key, pos = payload[pos : pos + max(0, length)], pos + length
            if length < 0 or pos > len(payload):
                raise self._corrupt("the block index ends inside a key", at)
            if offset < 0 or size < BLOCK_HEADER.size or offset + size > at:
                raise self._corrupt(f"the block index points to {size} bytes at {offset}, outside the blocks", at)
            if is_data:
                row_length = int.from_bytes(key[:2], "big")
                if len(key) < 2 or row_length > len(key) - 2:
                    raise self._corrupt("a key in the block index is cut short", at)
                key = key[2 : 2 + row_length]
            pointers.append(_Pointer(offset, size))
            keys.append(key)
        if len(pointers) != count:
            raise self._corrupt(f"the trailer counts {count} blocks, the index has {len(pointers)}", at)
        return pointers, keys

    def _block(self, data: bytes, offset: int, magic: bytes) -> tuple[bytes, int]:
        """The payload of the block at the start of `data`, and how many bytes the block takes on disk."""
        if len(data) < BLOCK_HEADER.size:
            raise self._corrupt("a block header is cut short", offset)
        found, on_disk, uncompressed, _, _, _, with_header = BLOCK_HEADER.unpack_from(data)
        if found != magic:
            raise self._corrupt(f"a block starts with {found!r} where {magic!r} should be", offset)
        length = BLOCK_HEADER.size + on_disk
        if on_disk < 0 or length > len(data) or not BLOCK_HEADER.size <= with_header <= length or uncompressed < 0:
            raise self._corrupt("a block's sizes contradict each other", offset)
        return self._decompress(data[BLOCK_HEADER.size : with_header], uncompressed, offset), length

    def _decompress(self, data: bytes, size: int, offset: int) -> bytes:
        codec = self.trailer.codec
        if codec == "none":
            payload = data
        elif codec == "gz":
            inflater = zlib.decompressobj(wbits=31)
            try:
                payload = inflater.decompress(data, size + 1)
            except zlib.error as error:
                raise self._corrupt(f"a block does not unpack ({error})", offset) from error
            if not inflater.eof or inflater.unused_data:
                raise self._corrupt("a block's gzip stream does not end where the block ends", offset)
        elif codec == "zstd":
            try:
                payload = pa.Codec("zstd").decompress(data, decompressed_size=size, asbytes=True) if size else b""
            except (OSError, pa.ArrowException, MemoryError) as error:
                raise self._corrupt(f"a block does not unpack ({error})", offset) from error
        else:
            raise UnsupportedFormat(f"the HFile codec {codec} is not read", file=self._file, offset=offset)
        if len(payload) != size:
            raise self._corrupt(f"a block unpacks to {len(payload)} bytes where {size} are announced", offset)
        return payload

    def _vint(self, data: bytes, pos: int, offset: int) -> tuple[int, int]:
        try:
            return read_vint(data, pos)
        except IndexError:
            raise self._corrupt("a length is cut short", offset) from None

    def _read(self, offset: int, length: int) -> bytes:
        if offset >= self._tail_start:
            data = self._tail[offset - self._tail_start : offset - self._tail_start + length]
        else:
            data = self._read_range(offset, length)
        if len(data) != length:
            raise self._corrupt(f"{length} bytes were requested, {len(data)} returned", offset)
        return data

    def _corrupt(self, what: str, offset: int) -> CorruptTable:
        return CorruptTable(what, file=self._file, offset=offset)


def _descends(keys: list[bytes]) -> bool:
    return any(map(gt, keys, keys[1:]))


def _utf16(key: bytes) -> bytes:
    """A sort key for Java's string order. Bytes that are no UTF-8 sort somewhere; no Java string is equal to them."""
    return key.decode("utf-8", "replace").encode("utf-16-be")
