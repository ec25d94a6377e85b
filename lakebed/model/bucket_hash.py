"""The hash of the simple bucket index: which bucket a record key belongs to, equal to Hudi's to the bit.

    bucket = (listHash(values) & 0x7fffffff) mod buckets
    listHash: h = 1; for each value: h = 31 * h + stringHash(value)      a null value counts 0, 32 bits, wrapping
    stringHash = sum of unit[i] * 31^(n-1-i) over the n UTF-16 units     what Java's String.hashCode computes

The values come out of the record key's text. A key without both `,` and `:` is one value as it stands; otherwise the
text is `f1:v1,f2:v2,...`, in which values may hold commas and colons: a value ends at the last comma before the next
colon that has a comma between it and the value's own colon. Keys are hashed as vectors; only a key whose text does not
have the configured fields in the configured order takes the slow way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest

NULL_TEXT = "__null__"
EMPTY_TEXT = "__empty__"
_FEW_LENGTHS = 64
_CHUNK = 1 << 18

_U32 = npt.NDArray[np.uint32]


def bucket_ids(
    keys: pa.Array | pa.ChunkedArray, buckets: int, hash_fields: Sequence[str], key_fields: Sequence[str]
) -> pa.Array:
    """The bucket of every record key, as int32."""
    hashes = key_hashes(keys, hash_fields, key_fields)
    return pa.array(((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)).astype(np.int32))


def bucket_id(key: str, buckets: int, hash_fields: Sequence[str], key_fields: Sequence[str]) -> int:
    """The bucket of one record key."""
    return int(bucket_ids(pa.array([key], pa.string()), buckets, hash_fields, key_fields)[0].as_py())


def values_bucket_id(values: Sequence[str | None], buckets: int) -> int:
    """The bucket of a key whose hash fields are known one by one, in the key's order."""
    return (_list_hash(string_hashes(pa.array(values, pa.string()))) & 0x7FFFFFFF) % buckets


def key_hashes(keys: pa.Array | pa.ChunkedArray, hash_fields: Sequence[str], key_fields: Sequence[str]) -> _U32:
    """The list hash of every record key's hash fields."""
    flat = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if isinstance(flat, pa.ChunkedArray):  # several chunks remain when the text exceeds one string array
        return _joined([key_hashes(chunk, hash_fields, key_fields) for chunk in flat.chunks])
    if not (pa.types.is_string(flat.type) or pa.types.is_large_string(flat.type)):
        flat = flat.cast(pa.large_string())
    parts = (flat.slice(start, _CHUNK) for start in range(0, len(flat), _CHUNK))
    return _joined([_hash_chunk(part, hash_fields, key_fields) for part in parts])


def string_hashes(values: pa.Array) -> _U32:
    """Java's `String.hashCode` of every string, as unsigned 32 bits; null gives 0."""
    count = len(values)
    if count == 0:
        return np.zeros(0, np.uint32)
    text = values.cast(pa.large_string())
    offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + count + 1]
    data = text.buffers()[2]
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    if not text.null_count and not (len(raw) and raw.max() >= 0x80) and len(np.unique(lengths)) <= _FEW_LENGTHS:
        return _ascii_hashes(raw, offsets[:-1] - offsets[0], lengths)
    try:
        units = np.frombuffer(raw.tobytes().decode("utf-8").encode("utf-16-le"), np.uint16).astype(np.uint32)
    except UnicodeDecodeError:
        raise InvalidRequest("a record key is not valid UTF-8 text") from None
    # A UTF-8 lead byte stands for one UTF-16 unit, or two from 0xF0 on; continuation bytes stand for none.
    width = ((raw & 0xC0) != 0x80).astype(np.int64) + (raw >= 0xF0)
    ends_at_byte = np.concatenate(([0], np.cumsum(width)))
    bounds = ends_at_byte[offsets - offsets[0]]
    lengths = np.diff(bounds)
    distance = np.repeat(bounds[1:], lengths) - 1 - np.arange(len(units))
    products = units * _powers(int(lengths.max()))[distance]
    hashes = np.zeros(count, np.uint32)
    filled = np.flatnonzero(lengths)
    if len(filled):
        hashes[filled] = np.add.reduceat(products, bounds[:-1][filled], dtype=np.uint32)
    if text.null_count:
        hashes[pc.is_null(text).to_numpy(zero_copy_only=False)] = 0
    return hashes


def _ascii_hashes(raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> _U32:
    """Hashes of ASCII texts of few lengths, a character of all texts at a time; keys are mostly such."""
    hashes = np.zeros(len(starts), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        if len(rows) == len(starts) and length:
            letters = raw.reshape(-1, length)
        else:
            letters = raw[starts[rows][:, None] + np.arange(length)]
        found = np.zeros(len(rows), np.uint32)
        for column in np.ascontiguousarray(letters.T):
            found *= np.uint32(31)
            found += column
        hashes[rows] = found
    return hashes


def split_key(key: str) -> list[tuple[str, str]]:
    """Field names and values of a composite record key, by Hudi's rule for commas and colons inside values."""
    pairs: list[tuple[str, str]] = []
    start = 0
    while True:
        own = key.find(":", start)
        if own < 0:
            return pairs
        comma = key.find(",", own + 1)
        following = key.find(":", comma) if comma >= 0 else -1
        end = key.rfind(",", own, following) if following >= 0 else len(key)
        pairs.append((key[start:own], key[own + 1 : end]))
        if following < 0:
            return pairs
        start = end + 1


def _hash_chunk(keys: pa.Array, hash_fields: Sequence[str], key_fields: Sequence[str]) -> _U32:
    hashes = np.uint32(31) + string_hashes(keys)
    if not _may_be_composite(keys):
        return hashes
    composite = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    composite = pc.fill_null(composite, False).to_numpy(zero_copy_only=False)
    if not composite.any():
        return hashes
    rows = np.flatnonzero(composite)
    texts = keys.take(pa.array(rows))
    columns = pc.extract_regex(texts, _pattern(key_fields))
    regular = pc.is_valid(columns).to_numpy(zero_copy_only=False)
    found = np.ones(len(rows), np.uint32)
    for position, name in enumerate(key_fields):
        if name in hash_fields:
            found = found * np.uint32(31) + string_hashes(_decoded(columns.field(position)))
    for row in np.flatnonzero(~regular):
        found[row] = _slow_hash(texts[row].as_py(), hash_fields)
    hashes[rows] = found
    return hashes


def _may_be_composite(keys: pa.Array) -> bool:
    """Whether any key can be one of several fields: a look at the bytes of all of them at once."""
    data = keys.buffers()[2]
    if data is None or not len(keys):
        return False
    width = np.int64 if pa.types.is_large_string(keys.type) else np.int32
    offsets = np.frombuffer(keys.buffers()[1], width)[keys.offset : keys.offset + len(keys) + 1]
    text = data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    return b"," in text and b":" in text


def _pattern(key_fields: Sequence[str]) -> str:
    """Exactly these fields in this order; a key with further pairs, or others, does not match."""
    value = "[^,]*(?:,[^,:]*)*"
    parts = [f"{re.escape(name)}:(?P<v{i}>{value})" for i, name in enumerate(key_fields)]
    return f"^{','.join(parts)}$"


def _decoded(values: pa.Array) -> pa.Array:
    nulled = pc.if_else(pc.equal(values, NULL_TEXT), pa.scalar(None, values.type), values)
    return pc.if_else(pc.equal(nulled, EMPTY_TEXT), pa.scalar("", values.type), nulled)


def _slow_hash(key: str, hash_fields: Sequence[str]) -> int:
    values = pa.array([value for name, value in split_key(key) if name in hash_fields], pa.string())
    return _list_hash(string_hashes(_decoded(values)))


def _list_hash(parts: _U32) -> int:
    """Java's `List.hashCode` over the hashes of its elements."""
    h = 1
    for part in parts.tolist():
        h = (31 * h + part) & 0xFFFFFFFF
    return h


def _powers(count: int) -> _U32:
    """31^0 .. 31^(count-1), wrapping at 32 bits."""
    return np.cumprod(np.concatenate(([1], np.full(max(count - 1, 0), 31))).astype(np.uint32), dtype=np.uint32)


def _joined(parts: list[_U32]) -> _U32:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)
