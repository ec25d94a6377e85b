"""A bloom filter filled while its file is written, in memory that does not grow with the file.

The outcome is that of `DynamicBloomFilter.build` over all keys, bit for bit: the keys up to the filter's bound fill its
rows one after the other, later ones are distributed in turn. Far beyond the bound every bit is set anyway, and useless
hashing would cost more than writing the file; there the rest of the bits is set at once. Such a filter answers
"perhaps" to everything, as the exact one does.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.format.bloom_filter import DynamicBloomFilter, SimpleBloomFilter, Sizing

_HOPELESS = 12  # times the bound: 1 bit in 4000 is still unset, 99 % of absent keys pass


class BloomBuilder:
    """Takes keys in any number of arrays; `finish` returns the filter."""

    def __init__(self, sizing: Sizing | None = None) -> None:
        self._sizing = sizing or Sizing()
        self._most_rows = max(1, -(-self._sizing.max_keys // self._sizing.keys))
        self._rows: list[SimpleBloomFilter] = [SimpleBloomFilter.build([], self._sizing)]
        self._seen = 0
        self._waiting: list[pa.Array] = []
        self._waiting_keys = 0

    def add(self, keys: pa.Array) -> None:
        """Hashing goes by large portions: setting up one costs as much as thousands of keys."""
        self._waiting.append(keys.cast(pa.large_string()))
        self._waiting_keys += len(keys)
        if self._waiting_keys >= self._sizing.keys:
            self._drain()

    def finish(self) -> DynamicBloomFilter:
        self._drain()
        last = self._seen - (len(self._rows) - 1) * self._sizing.keys
        return DynamicBloomFilter(tuple(self._rows), self._sizing.keys, last)

    def _drain(self) -> None:
        if not self._waiting:
            return
        keys, self._waiting, self._waiting_keys = pa.concat_arrays(self._waiting), [], 0
        size, bound = self._sizing.keys, self._most_rows * self._sizing.keys
        first, end = self._seen, self._seen + len(keys)
        self._seen = end
        at = first
        while at < min(end, bound):
            row = at // size
            upto = min(end, (row + 1) * size)
            self._put(row, keys.slice(at - first, upto - at))
            at = upto
        if at >= end:
            return
        if end > bound * _HOPELESS:
            for row in range(self._most_rows):
                self._rows[row] = _all_set(self._rows[row])
            return
        late = np.arange(at, end, dtype=np.int64)
        turn = np.where(late == bound, 0, (late - bound - 1) % self._most_rows)
        for row in range(self._most_rows):
            chosen = np.ascontiguousarray(late[turn == row] - first)
            index = pa.Array.from_buffers(pa.int64(), len(chosen), [None, pa.py_buffer(chosen)])
            self._put(row, keys.take(index))

    def _put(self, row: int, keys: pa.Array) -> None:
        if not len(keys):
            return
        more = SimpleBloomFilter.build(keys, self._sizing)
        if row == len(self._rows):
            self._rows.append(more)
        else:
            self._rows[row] = SimpleBloomFilter(more.bits, more.hashes, self._rows[row].packed | more.packed)


def _all_set(row: SimpleBloomFilter) -> SimpleBloomFilter:
    return SimpleBloomFilter(row.bits, row.hashes, np.packbits(np.ones(row.bits, dtype=np.bool_), bitorder="little"))
