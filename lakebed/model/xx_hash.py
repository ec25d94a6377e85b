"""xxHash32 of many texts at once: the hash of the consistent-hashing bucket index.

    per 16 bytes   four lanes: lane = rotl(lane + word * P2, 13) * P1          texts below 16 bytes skip this
    then           h = rotl(lanes 1, 7, 12, 18) summed, or seed + P5;  h += length
    per 4 bytes    h = rotl(h + word * P3, 17) * P4
    per byte       h = rotl(h + byte * P5, 11) * P1
    at the end     h ^= h >> 15;  h *= P2;  h ^= h >> 13;  h *= P3;  h ^= h >> 16

Texts of one length form a matrix, and every step is done for all of them. The text that is hashed are the values of the
hash fields, one after the other without anything between; a null counts as the text `null`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.bucket_hash import EMPTY_TEXT, NULL_TEXT, split_key

_U32 = npt.NDArray[np.uint32]
_P1, _P2, _P3, _P4, _P5 = map(np.uint32, (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_CHUNK_BYTES = 1 << 22


def xx_hashes(texts: pa.Array, seed: int = 0) -> _U32:
    """The hash of the UTF-8 bytes of every text."""
    array = texts.cast(pa.large_string())
    hashes = np.zeros(len(array), np.uint32)
    if len(array) == 0:
        return hashes
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        length = int(lengths[group[0]])
        step = max(1, _CHUNK_BYTES // max(1, length))
        for at in range(0, len(group), step):
            rows = group[at : at + step]
            block = data[offsets[rows][:, None] + np.arange(length)]
            hashes[rows] = _hash_block(block, length, np.uint32(seed))
    return hashes


def ring_hashes(keys: pa.Array, hash_fields: Sequence[str], key_fields: Sequence[str]) -> npt.NDArray[np.int64]:
    """The position of every record key on the ring from 0 to 2^31 - 1."""
    return (xx_hashes(hashed_texts(keys, hash_fields, key_fields)) & np.uint32(0x7FFFFFFF)).astype(np.int64)


def hashed_texts(keys: pa.Array, hash_fields: Sequence[str], key_fields: Sequence[str]) -> pa.Array:
    """The values of the hash fields of every record key, joined; a key without `,` or without `:` is one value."""
    keys = keys.cast(pa.large_string())
    composite = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    if not composite.true_count:
        return keys
    value = "[^,]*(?:,[^,:]*)*"
    pattern = ",".join(f"{re.escape(name)}:(?P<v{at}>{value})" for at, name in enumerate(key_fields))
    found = pc.extract_regex(keys, f"^{pattern}$")
    parts = [_spelled(pc.struct_field(found, [at])) for at, name in enumerate(key_fields) if name in hash_fields]
    joined = pc.if_else(composite, pc.binary_join_element_wise(*parts, pa.scalar("", keys.type)), keys)
    irregular = np.flatnonzero(pc.is_null(joined).to_numpy(zero_copy_only=False))
    if not len(irregular):
        return joined
    texts = [_joined(keys[int(row)].as_py(), hash_fields) for row in irregular]
    mask = pc.is_null(joined)
    return pc.replace_with_mask(joined, mask, pa.array(texts, pa.large_string()))


def _joined(key: str, hash_fields: Sequence[str]) -> str:
    spelled = {NULL_TEXT: "null", EMPTY_TEXT: ""}
    return "".join(spelled.get(value, value) for name, value in split_key(key) if name in hash_fields)


def _spelled(values: pa.Array) -> pa.Array:
    values = pc.if_else(pc.equal(values, NULL_TEXT), "null", values)
    return pc.if_else(pc.equal(values, EMPTY_TEXT), "", values)


def _hash_block(block: npt.NDArray[np.uint8], length: int, seed: np.uint32) -> _U32:
    whole = length - length % 4
    words = np.ascontiguousarray(block[:, :whole]).view("<u4").astype(np.uint32).T
    at = 0
    with np.errstate(over="ignore"):
        if length >= 16:
            lanes = [
                np.full(len(block), start, np.uint32) for start in (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)
            ]
            while (at + 4) * 4 <= length:
                lanes = [_rotated(lane + words[at + i] * _P2, 13) * _P1 for i, lane in enumerate(lanes)]
                at += 4
            h = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
        else:
            h = np.full(len(block), seed + _P5, np.uint32)
        h = h + np.uint32(length)
        for word in words[at:]:
            h = _rotated(h + word * _P3, 17) * _P4
        for i in range(whole, length):
            h = _rotated(h + block[:, i].astype(np.uint32) * _P5, 11) * _P1
        h = (h ^ (h >> np.uint32(15))) * _P2
        h = (h ^ (h >> np.uint32(13))) * _P3
    return h ^ (h >> np.uint32(16))


def _rotated(values: _U32, by: int) -> _U32:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))
