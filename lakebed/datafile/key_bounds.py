"""Smallest and largest record key of a file being written, in UTF-8 and in Java order, and whether its rows ascend.

lakebed and Parquet order keys by UTF-8 bytes. Hudi's footer keys are in Java's order, UTF-16 code units, in which the
characters beyond U+FFFF come before U+E000..U+FFFF. Replacing the lead bytes of the latter (EE, EF) by bytes above all
others turns byte order into Java's order, so both are one vector operation.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest

_BEYOND_BMP = 0xF0
_LEADS = ((0xEE, 0xFE), (0xEF, 0xFF))


class KeyBounds:
    """Grows with every batch of keys; with `is_sorted` keys must ascend strictly, which is checked unless trusted.

    With `may_repeat` a key may follow itself, which `repeats` then reports.
    """

    def __init__(self, label: str, *, is_sorted: bool, trusted: bool = False, may_repeat: bool = False) -> None:
        self.min: str | None = None
        self.max: str | None = None
        self.java_min: str | None = None
        self.java_max: str | None = None
        self._is_sorted = is_sorted
        self._trusted = trusted
        self._may_repeat = may_repeat
        self.repeats = False
        self._label = label

    def add(self, keys: pa.Array) -> None:
        if keys.null_count:
            raise InvalidRequest("a row has no record key", file=self._label)
        if not len(keys):
            return
        if self._is_sorted:
            if not self._trusted:
                self._check(keys)
            low, high = keys[0].as_py(), keys[-1].as_py()
        else:
            found = pc.min_max(keys)
            low, high = found["min"].as_py(), found["max"].as_py()
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)
        java_low, java_high = java_bounds(keys, low, high)
        self.java_min = java_low if self.java_min is None else min(self.java_min, java_low, key=_utf16)
        self.java_max = java_high if self.java_max is None else max(self.java_max, java_high, key=_utf16)

    def _check(self, keys: pa.Array) -> None:
        first = keys[0].as_py()
        if self.max is not None and first <= self.max:
            self._allow_repeat(self.max, first)
        before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
        ascends = pc.less(before, after)
        if ascends.true_count == len(ascends):
            return
        if self._may_repeat:
            self.repeats = True
            ascends = pc.less_equal(before, after)
        if ascends.true_count != len(ascends):
            row = int(pc.index(ascends, False).as_py())
            raise self._disorder(keys[row].as_py(), keys[row + 1].as_py())

    def _allow_repeat(self, before: str, after: str) -> None:
        if before != after or not self._may_repeat:
            raise self._disorder(before, after)
        self.repeats = True

    def _disorder(self, before: str, after: str) -> InvalidRequest:
        what = f"the key {after!r} is there twice" if before == after else f"the key {after!r} comes after {before!r}"
        return InvalidRequest(f"rows for a sorted file must ascend by key, but {what}", file=self._label)


def java_bounds(keys: pa.Array, low: str, high: str) -> tuple[str, str]:
    """The bounds in Java's order; `low` and `high` are those in UTF-8 order, nearly always the same."""
    array = keys.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    if data_buffer is None:
        return low, high
    data = np.frombuffer(data_buffer, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    if not len(data) or int(data.max()) < _BEYOND_BMP:
        return low, high
    moved = data.copy()
    for lead, stand_in in _LEADS:
        moved[data == lead] = stand_in
    start = pa.py_buffer(np.ascontiguousarray(offsets - offsets[0]))
    found = pc.min_max(pa.Array.from_buffers(pa.large_binary(), len(array), [None, start, pa.py_buffer(moved)]))
    return _restored(found["min"].as_py()), _restored(found["max"].as_py())


def _restored(moved: bytes) -> str:
    for lead, stand_in in _LEADS:
        moved = moved.replace(bytes([stand_in]), bytes([lead]))
    return moved.decode()


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")
