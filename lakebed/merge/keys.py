"""Record keys of a window as numbers: eight bytes after the prefix that all keys share, as a big-endian uint64.

    keys of a window, sorted      user:00041 7,item:9            common prefix: `user:00041`
                                  user:00041 9,item:12           head: the next 8 bytes, zero-padded
                                  `--prefix-' `-head-' `rest

Comparing heads decides nearly every comparison at the speed of numpy; where two heads tie, Arrow compares the keys
themselves. A window lies between its smallest and its largest key, so in sorted runs every key has the prefix those two
share: stripping it is what makes heads tell keys apart when all of them begin with `user:`.
"""

from __future__ import annotations

import bisect
import sys
from os.path import commonprefix

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTable
from lakebed.merge.vectors import Heads, Ints, index_array, text_buffers

_HEAD = 8


class Keys:
    """The key column of a batch: single keys as bytes, and all of them as heads."""

    __slots__ = ("_data", "_offsets", "array")

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self._offsets, self._data = text_buffers(array)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int) -> bytes:
        row = row + len(self) if row < 0 else row
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        return bytes(memoryview(self._data)[start:end])

    def count_below(self, key: bytes) -> int:
        """How many keys of a sorted batch are smaller."""
        return bisect.bisect_left(self, key)  # type: ignore[type-var, arg-type]

    def count_up_to(self, key: bytes) -> int:
        """How many keys of a sorted batch are smaller or equal."""
        return bisect.bisect_right(self, key)  # type: ignore[type-var, arg-type]

    def heads(self, prefix: int) -> Heads:
        """Eight bytes of every key from `prefix` on."""
        offsets, rows = self._offsets, len(self)
        first, last = int(offsets[0]), int(offsets[-1])
        if rows == 0:
            return np.zeros(0, np.uint64)
        lengths = np.diff(offsets)
        length = int(lengths[0])
        if length - prefix >= _HEAD and (lengths == length).all():
            view = np.ndarray(rows, ">u8", self._data, first + prefix, (length,))
            return view.astype(np.uint64)
        starts = offsets[:-1].astype(np.int64) + prefix
        left = lengths - prefix
        if last - first < _HEAD or int(starts.max()) + _HEAD > self._data.size:
            padded = bytes(memoryview(self._data)[first:last]) + b"\0" * (prefix + _HEAD)
            words = np.ndarray(len(padded) - _HEAD + 1, np.uint64, padded, 0, (1,))[starts - first]
        else:
            words = np.ndarray(self._data.size - _HEAD + 1, np.uint64, self._data, 0, (1,))[starts]
        heads: Heads = words.byteswap(inplace=True) if sys.byteorder == "little" else words
        short = np.flatnonzero(left < _HEAD)
        if len(short):
            spare = (_HEAD - np.maximum(left[short], 0)).astype(np.uint64) * np.uint64(8)
            whole = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
            kept = np.where(spare >= 64, np.uint64(0), whole << np.minimum(spare, np.uint64(63)))
            heads[short] &= kept
        return heads


def check_keys(array: pa.Array, file: str) -> None:
    """A row without a key belongs to nobody."""
    if array.null_count:
        raise CorruptTable("a row has no record key", file=file)


def check_ascending(keys: Keys, previous: bytes | None, file: str) -> None:
    """A file that says it is sorted must be: a merge that trusts a lie loses rows without a word."""
    rows = len(keys)
    if previous is not None and rows and keys[0] <= previous:
        raise CorruptTable(f"marked as sorted by key, but {keys[0]!r} comes after {previous!r}", file=file)
    if rows < 2:
        return
    ascends = pc.less(keys.array.slice(0, rows - 1), keys.array.slice(1))
    if ascends.true_count != rows - 1:
        row = int(pc.index(ascends, False).as_py())
        raise CorruptTable(f"marked as sorted by key, but {keys[row + 1]!r} comes after {keys[row]!r}", file=file)


def shared_prefix(smallest: bytes, largest: bytes) -> int:
    """Length of what every key between the two begins with."""
    return len(commonprefix([smallest, largest]))


def equal_keys(keys: pa.Array, a: Ints, b: Ints) -> pa.Array:
    """Which pairs of rows have the same key."""
    return pc.equal(keys.take(index_array(a)), keys.take(index_array(b)))
