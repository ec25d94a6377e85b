"""Hudi's bloom filters, bit for bit: in the footers of base files and in the metadata table.

    SIMPLE      int32 -1 | int32 hashes | int8 1 (murmur) | int32 bits | ceil(bits / 8) bytes, bit i at 1 << (i & 7)
    DYNAMIC_V0  the same 13-byte head | int32 keys per row | int32 keys in the last row | int32 rows | rows x SIMPLE
    as text     standard base64

The hashes of a key are a chain: murmur2 of its UTF-8 bytes, seeded with the hash before. A base file can hold
millions of keys, so hashing runs over whole Arrow arrays: keys of one length form a matrix of 32-bit words, and the
words are mixed once for all links of the chain.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat

FOOTER_KEY = "org.apache.hudi.bloomfilter"
TYPE_CODE_KEY = "hoodie_bloom_filter_type_code"
MIN_KEY, MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
SIMPLE, DYNAMIC_V0 = "SIMPLE", "DYNAMIC_V0"

_HEAD = struct.Struct(">iibi")
_ROWS = struct.Struct(">iii")
_VERSION = -1
_MURMUR = 1
_M = 0x5BD1E995
_CHUNK_BYTES = 512 * 1024
_MAX_HASHES = 1024

_Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large a filter is: `keys` entries at a false-positive rate `error_rate`. The defaults are Hudi's."""

    keys: int = 60_000
    error_rate: float = 1e-9
    max_keys: int = 100_000

    def __post_init__(self) -> None:
        if self.keys < 1 or not 0 < self.error_rate < 1:
            raise InvalidRequest(f"a bloom filter cannot be sized for {self.keys} keys at {self.error_rate}")

    @property
    def bits(self) -> int:
        return math.ceil(self.keys * (-math.log(self.error_rate) / (math.log(2) * math.log(2))))

    @property
    def hashes(self) -> int:
        return math.ceil(math.log(2) * self.bits / self.keys)


@dataclass(frozen=True, slots=True)
class SimpleBloomFilter:
    """One bit vector. `packed` is the vector as stored."""

    bits: int
    hashes: int
    packed: _Bits

    @classmethod
    def build(cls, keys: Any, sizing: Sizing | None = None) -> SimpleBloomFilter:
        """The filter of an Arrow string array, or of any iterable of text."""
        sizing = sizing or Sizing()
        return _filled(_string_array(keys), sizing)

    @classmethod
    def from_base64(cls, text: str | bytes, file: str | None = None) -> SimpleBloomFilter:
        data = _decode(text, file)
        found, end = _parse_simple(data, 0, file)
        if end != len(data):
            raise CorruptTable("bytes follow the end of a bloom filter", file=file, offset=end)
        return found

    def to_bytes(self) -> bytes:
        return _HEAD.pack(_VERSION, self.hashes, _MURMUR, self.bits) + self.packed.tobytes()

    def to_base64(self) -> str:
        return base64.b64encode(self.to_bytes()).decode("ascii")

    def might_contain(self, key: str) -> bool:
        return bool(self.might_contain_many([key])[0])

    def might_contain_many(self, keys: Any) -> npt.NDArray[np.bool_]:
        """For each key whether it may be there; False is certain."""
        array = _string_array(keys)
        out = np.ones(len(array), dtype=np.bool_)
        for rows, chain in _hash_chains(array, self.hashes, self.bits):
            present = np.ones(len(rows), dtype=np.bool_)
            for position in chain:
                present &= (self.packed[position >> 3] >> (position & 7).astype(np.uint8)) & 1 != 0
            out[rows] = present
        return out


@dataclass(frozen=True, slots=True)
class DynamicBloomFilter:
    """A filter that grows by whole rows, up to a bound; Hudi's default."""

    rows: tuple[SimpleBloomFilter, ...]
    keys_per_row: int
    keys_in_last_row: int

    @classmethod
    def build(cls, keys: Any, sizing: Sizing | None = None) -> DynamicBloomFilter:
        """The filter of an Arrow string array, or of any iterable of text, in order.

        A row takes `sizing.keys` keys. Once the rows have room for `sizing.max_keys` no more are opened, and the keys
        that still come are distributed over the rows in turn; the first of them goes to row 0 once more than its turn.
        """
        sizing = sizing or Sizing()
        array = _string_array(keys)
        most_rows = max(1, -(-sizing.max_keys // sizing.keys))
        full = most_rows * sizing.keys
        row_count = max(1, min(most_rows, -(-len(array) // sizing.keys)))
        rows = []
        for row in range(row_count):
            part = array.slice(row * sizing.keys, sizing.keys)
            if len(array) > full:
                late = np.arange(full, len(array))
                turn = np.where(late == full, 0, (late - full - 1) % most_rows)
                part = pa.concat_arrays([part, array.take(pa.array(late[turn == row]))])
            rows.append(_filled(part, sizing))
        return cls(tuple(rows), sizing.keys, len(array) - (row_count - 1) * sizing.keys)

    @classmethod
    def from_base64(cls, text: str | bytes, file: str | None = None) -> DynamicBloomFilter:
        data = _decode(text, file)
        _parse_head(data, 0, file)
        if len(data) < _HEAD.size + _ROWS.size:
            raise CorruptTable("a bloom filter is cut short", file=file, offset=len(data))
        keys_per_row, last, count = _ROWS.unpack_from(data, _HEAD.size)
        offset = _HEAD.size + _ROWS.size
        if not 0 < count <= (len(data) - offset) // _HEAD.size or keys_per_row < 1 or last < 0:
            raise CorruptTable(f"a bloom filter announces {count} rows", file=file, offset=_HEAD.size)
        rows = []
        for _ in range(count):
            row, offset = _parse_simple(data, offset, file)
            rows.append(row)
        if offset != len(data):
            raise CorruptTable("bytes follow the end of a bloom filter", file=file, offset=offset)
        return cls(tuple(rows), keys_per_row, last)

    def to_bytes(self) -> bytes:
        head = _HEAD.pack(_VERSION, self.rows[0].hashes, _MURMUR, self.rows[0].bits)
        counts = _ROWS.pack(self.keys_per_row, self.keys_in_last_row, len(self.rows))
        return head + counts + b"".join(row.to_bytes() for row in self.rows)

    def to_base64(self) -> str:
        return base64.b64encode(self.to_bytes()).decode("ascii")

    def might_contain(self, key: str) -> bool:
        return any(row.might_contain(key) for row in self.rows)

    def might_contain_many(self, keys: Any) -> npt.NDArray[np.bool_]:
        """For each key whether it may be there; False is certain."""
        array = _string_array(keys)
        return reduce(np.logical_or, (row.might_contain_many(array) for row in self.rows))


BloomFilter = SimpleBloomFilter | DynamicBloomFilter


def load_bloom_filter(text: str | bytes, type_code: str | None, file: str | None = None) -> BloomFilter:
    """A filter from its text and the type code beside it; no code means SIMPLE."""
    if type_code in (None, SIMPLE):
        return SimpleBloomFilter.from_base64(text, file)
    if type_code == DYNAMIC_V0:
        return DynamicBloomFilter.from_base64(text, file)
    raise UnsupportedFormat(f"the bloom filter type {type_code} is not known", file=file)


def _filled(keys: pa.Array, sizing: Sizing) -> SimpleBloomFilter:
    vector = np.zeros(sizing.bits, dtype=np.bool_)
    for _, chain in _hash_chains(keys, sizing.hashes, sizing.bits):
        for position in chain:
            vector[position] = True
    return SimpleBloomFilter(sizing.bits, sizing.hashes, np.packbits(vector, bitorder="little"))


def _hash_chains(
    keys: pa.Array, hashes: int, bits: int
) -> Iterator[tuple[npt.NDArray[np.int64], Iterator[npt.NDArray[np.int64]]]]:
    """Row numbers of keys of one length, and for each link of the chain the bit position of every one of them."""
    starts, lengths, data = _text_buffers(keys)
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order])) + 1
    for group in np.split(order, bounds):
        if len(group) == 0:
            continue
        length = int(lengths[group[0]])
        step = max(1, _CHUNK_BYTES // max(1, length))
        for at in range(0, len(group), step):
            rows = group[at : at + step]
            words, tail = _mixed_words(data, starts[rows], length)
            yield rows, _positions(words, tail, length, hashes, bits)


def _positions(
    words: npt.NDArray[np.uint32], tail: npt.NDArray[np.uint32] | None, length: int, hashes: int, bits: int
) -> Iterator[npt.NDArray[np.int64]]:
    m = np.uint32(_M)
    seed = np.zeros(words.shape[1] if tail is None else len(tail), dtype=np.uint32)
    for _ in range(hashes):
        h = seed ^ np.uint32(length)
        for word in words:
            h *= m
            h ^= word
        if tail is not None:
            h ^= tail
            h *= m
        h ^= h >> np.uint32(13)
        h *= m
        h ^= h >> np.uint32(15)
        seed = h
        yield np.abs(h.view(np.int32).astype(np.int64)) % bits


def _mixed_words(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32] | None]:
    """The little-endian words of each key, mixed, a row per word; and the tail: signed bytes, last one lowest."""
    whole, rest = divmod(length, 4)
    columns = data[starts[:, None] + np.arange(length)]
    words = np.ascontiguousarray(columns[:, : whole * 4]).view("<u4").astype(np.uint32).T.copy()
    m = np.uint32(_M)
    words *= m
    words ^= words >> np.uint32(24)
    words *= m
    if rest == 0:
        return words.reshape(whole, len(starts)), None
    signed = columns[:, whole * 4 :].view(np.int8).astype(np.int32)
    tail = np.zeros(len(starts), dtype=np.int32)
    for i in range(rest):
        tail ^= signed[:, i] << (8 * (rest - 1 - i))
    return words.reshape(whole, len(starts)), tail.view(np.uint32)


def _text_buffers(keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each key starts in the data buffer, its length, and the buffer."""
    _, offsets_buffer, data_buffer = keys.buffers()
    if len(keys) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return offsets[:-1], np.diff(offsets), data


def _string_array(keys: Any) -> pa.Array:
    """The keys as one Arrow array with 64-bit offsets and no nulls."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.cast(pa.large_string()).combine_chunks()
        array = pa.concat_arrays(keys.chunks) if isinstance(keys, pa.ChunkedArray) else keys
    elif isinstance(keys, pa.Array):
        array = keys.cast(pa.large_string())
    else:
        array = pa.array(_texts(keys), pa.large_string())
    if array.null_count:
        raise InvalidRequest("a record key is null")
    return array


def _texts(keys: Iterable[str]) -> Sequence[str]:
    return keys if isinstance(keys, Sequence) else list(keys)


def _decode(text: str | bytes, file: str | None) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptTable(f"a bloom filter is not base64 ({error})", file=file) from error


def _parse_head(data: bytes, offset: int, file: str | None) -> tuple[int, int]:
    if len(data) - offset < _HEAD.size:
        raise CorruptTable("a bloom filter is cut short", file=file, offset=offset)
    version, hashes, kind, bits = _HEAD.unpack_from(data, offset)
    if version != _VERSION or kind != _MURMUR:
        raise UnsupportedFormat(f"a bloom filter of version {version}, hash {kind} is not read", file=file)
    if not 0 < hashes <= _MAX_HASHES or bits < 1:
        raise CorruptTable(f"a bloom filter of {bits} bits and {hashes} hashes", file=file, offset=offset)
    return hashes, bits


def _parse_simple(data: bytes, offset: int, file: str | None) -> tuple[SimpleBloomFilter, int]:
    hashes, bits = _parse_head(data, offset, file)
    start, end = offset + _HEAD.size, offset + _HEAD.size + (bits + 7) // 8
    if end > len(data):
        raise CorruptTable("a bloom filter is cut short", file=file, offset=offset)
    return SimpleBloomFilter(bits, hashes, np.frombuffer(data[start:end], dtype=np.uint8)), end
