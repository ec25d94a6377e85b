"""Record keys of a window as numbers: the first eight varying bytes of every key as a big-endian uint64, its head.

    keys of a window, sorted      tenant:acme,order:00041702,line:0017
                                  tenant:acme,order:00041955,line:0003
                                                         vvv        vv    bytes that vary; the head packs the first 8

Comparing heads decides nearly every comparison at the speed of numpy. Bytes that are the same in all keys of the window
decide nothing, so they are left out: a prefix always (a window of sorted runs lies between two keys that share it), and
bytes in the middle when all keys have one length. If at most eight bytes vary, heads are the keys: equal heads mean
equal keys. Otherwise Arrow compares the keys themselves wherever two heads tie.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTable
from lakebed.merge.arrow_numpy import Heads, Ints, index_array, text_buffers

_HEAD = 8
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class Keys:
    """The key column of a batch: single keys as bytes, and all of them as heads."""

    __slots__ = ("_bytes", "_data", "_ends", "_offsets", "array")

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self._offsets, self._data = text_buffers(array)
        self._ends = memoryview(self._offsets)  # type: ignore[arg-type]
        self._bytes = memoryview(self._data)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int) -> bytes:
        row = row + len(self.array) if row < 0 else row
        return bytes(self._bytes[self._ends[row] : self._ends[row + 1]])

    def count_below(self, key: bytes) -> int:
        """How many keys of a sorted batch are smaller."""
        return bisect.bisect_left(self, key)

    def count_up_to(self, key: bytes) -> int:
        """How many keys of a sorted batch are smaller or equal."""
        return bisect.bisect_right(self, key)

    @property
    def fixed_length(self) -> int | None:
        """The length of every key, if they have one."""
        lengths = np.diff(self._offsets)
        length = int(lengths[0])
        return length if (lengths == length).all() else None

    def words(self, start: int, length: int) -> Heads:
        """Eight bytes from `start` on, of keys that all have this length (at least eight more than `start`)."""
        view = np.ndarray(len(self), ">u8", self._data, int(self._offsets[0]) + start, (length,))
        return view.astype(np.uint64)

    def heads(self, prefix: int) -> Heads:
        """Eight bytes of every key from `prefix` on, zero-padded."""
        offsets, rows = self._offsets, len(self)
        if rows == 0:
            return np.zeros(0, np.uint64)
        first, last = int(offsets[0]), int(offsets[-1])
        starts = offsets[:-1].astype(np.int64) + prefix
        left = np.diff(offsets) - prefix
        if last - first < _HEAD or int(starts.max()) + _HEAD > self._data.size:
            padded = bytes(self._bytes[first:last]) + b"\0" * (prefix + _HEAD)
            words = np.ndarray(len(padded) - _HEAD + 1, np.uint64, padded, 0, (1,))[starts - first]
        else:
            words = np.ndarray(self._data.size - _HEAD + 1, np.uint64, self._data, 0, (1,))[starts]
        heads: Heads = words.byteswap(inplace=True) if sys.byteorder == "little" else words
        short = np.flatnonzero(left < _HEAD)
        if len(short):
            spare = (_HEAD - np.maximum(left[short], 0)).astype(np.uint64) * np.uint64(8)
            kept = np.where(spare >= 64, np.uint64(0), _ALL << np.minimum(spare, np.uint64(63)))
            heads[short] &= kept
        return heads


@dataclass(frozen=True, slots=True)
class WindowHeads:
    """Heads of all rows of a window; `exact` if equal heads mean equal keys."""

    heads: Heads
    exact: bool


def heads_of(pieces: Sequence[Keys], smallest: bytes, largest: bytes) -> WindowHeads:
    """Heads of non-empty pieces whose keys lie between two keys, comparable with each other."""
    prefix = shared_prefix(smallest, largest)
    length = pieces[0].fixed_length
    if length is None or length < _HEAD or any(piece.fixed_length != length for piece in pieces[1:]):
        return WindowHeads(_join([piece.heads(prefix) for piece in pieces]), exact=False)
    varying = _varying_bytes(pieces, prefix, length)
    parts = []
    for piece in pieces:
        heads = np.zeros(len(piece), np.uint64)
        for start, count in _consecutive(varying[:_HEAD]):
            at = min(start, length - _HEAD)  # near the end of a key, load earlier and shift the rest away
            words = piece.words(at, length)
            if start > at:
                words <<= np.uint64(8 * (start - at))
            words >>= np.uint64(8 * (_HEAD - count))
            heads = words if count == _HEAD else (heads << np.uint64(8 * count)) | words
        parts.append(heads)
    return WindowHeads(_join(parts), exact=len(varying) <= _HEAD)


def _varying_bytes(pieces: Sequence[Keys], prefix: int, length: int) -> list[int]:
    """Byte positions at which keys of one length differ, from `prefix` on; at least the first nine of them."""
    found: list[int] = []
    for start in range(prefix, length, _HEAD):
        at = min(start, length - _HEAD)
        differ = np.uint64(0)
        reference: np.uint64 | None = None
        for piece in pieces:
            words = piece.words(at, length)
            reference = words[0] if reference is None else reference
            differ |= np.bitwise_or.reduce(words ^ reference)
        for byte, value in enumerate(int(differ).to_bytes(_HEAD, "big"), at):
            if value and byte >= start:
                found.append(byte)
        if len(found) > _HEAD:
            break
    return found


def _consecutive(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Consecutive positions as (first, how many)."""
    start = count = 0
    for position in positions:
        if count and position == start + count:
            count += 1
            continue
        if count:
            yield start, count
        start, count = position, 1
    if count:
        yield start, count


def _join(parts: list[Heads]) -> Heads:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def check_keys(array: pa.Array, file: str) -> None:
    """Refuse rows without a key: the merge could not match them with anything."""
    if array.null_count:
        raise CorruptTable("a row has no record key", file=file)


def check_ascending(keys: Keys, previous: bytes | None, file: str) -> None:
    """Check that a file marked as sorted is sorted: a merge that trusts a wrong mark loses rows silently."""
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
    """Length of the prefix that every key between the two has."""
    for at, (a, b) in enumerate(zip(smallest, largest, strict=False)):
        if a != b:
            return at
    return min(len(smallest), len(largest))


def equal_keys(keys: pa.Array, a: Ints, b: Ints) -> pa.Array:
    """Which pairs of rows have the same key."""
    return pc.equal(keys.take(index_array(a)), keys.take(index_array(b)))
