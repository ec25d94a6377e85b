"""The position of a key in a list of distinct keys: a hash table made of numpy vectors.

hash of 64 bits  ->  one bit means "perhaps" (most look-ups end here)  ->  binary search among the sorted hashes
                 ->  Arrow compares the two keys, so a collision can slow a look-up but never make it wrong
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.arrow_numpy import Bools, Heads, Ints, index_array, text_buffers, truths
from lakebed.merge.keys import Keys

_SEEDS = (0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9, 0x2545_F491_4F6C_DD1D)
_MULTIPLIER = np.uint64(0xFF51_AFD7_ED55_8CCD)
_FEWEST_BITS, _MOST_BITS = 10, 24


def hash_keys(array: pa.Array, seed: int) -> Heads:
    """A 64-bit hash of every key, eight bytes of all keys at a time."""
    offsets, _ = text_buffers(array)
    lengths = np.diff(offsets)
    hashes: Heads = (lengths.astype(np.uint64) * _MULTIPLIER) ^ np.uint64(seed)
    rows: Ints = np.arange(len(array))
    keys, at = Keys(array), 0
    while len(rows):
        mixed = (hashes[rows] ^ keys.heads(at)) * _MULTIPLIER
        hashes[rows] = mixed ^ (mixed >> np.uint64(29))
        at += 8
        longer = np.flatnonzero(lengths[rows] > at)
        if len(longer) < len(rows):  # go on with the longer keys only
            rows = rows[longer]
            keys = Keys(array.take(index_array(rows)))
    return hashes


class KeyIndex:
    """Finds keys in a list of distinct keys."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys
        self._exact: dict[bytes, int] | None = None
        for seed in _SEEDS:
            self._seed = seed
            hashes = hash_keys(keys, seed)
            self._order: Ints = hashes.argsort(kind="stable").astype(np.int64)
            self._sorted = hashes[self._order]
            if not (self._sorted[1:] == self._sorted[:-1]).any():
                break
        else:  # keys made to collide: a plain dictionary is slow and safe
            own = Keys(keys)
            self._exact = {own[at]: at for at in range(len(own))}
        bits = min(max(_FEWEST_BITS, (8 * max(len(keys), 1)).bit_length()), _MOST_BITS)
        self._shift = np.uint64(64 - bits)
        self._perhaps: Bools = np.zeros(1 << bits, np.bool_)
        self._perhaps[(self._sorted >> self._shift).astype(np.int64)] = True

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, wanted: pa.Array) -> Ints:
        """For every wanted key its position in the list, or -1."""
        found = np.full(len(wanted), -1, np.int64)
        if not len(self._keys) or not len(wanted):
            return found
        if self._exact is not None:
            keys = Keys(wanted)
            return np.array([self._exact.get(keys[at], -1) for at in range(len(keys))], np.int64)
        hashes = hash_keys(wanted, self._seed)
        perhaps = np.flatnonzero(self._perhaps[(hashes >> self._shift).astype(np.int64)])
        at = self._sorted.searchsorted(hashes[perhaps])
        at = np.minimum(at, len(self._sorted) - 1)
        same = self._sorted[at] == hashes[perhaps]
        perhaps, at = perhaps[same], self._order[at[same]]
        known = self._keys.take(index_array(at))
        equal = truths(pc.equal(wanted.take(index_array(perhaps)).cast(known.type), known))
        found[perhaps[equal]] = at[equal]
        return found
