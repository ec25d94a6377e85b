"""A range of record keys: the condition of look-ups and filters, tested against statistics.

Keys are ordered by their UTF-8 bytes, unsigned. Python compares strings by code point, which is the same order, so
plain comparison of `str` is right here; Java's `String.compareTo` (UTF-16) is not, see `java_bound`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `low` to `high` (None = open), or, when `points` is set, only those keys, sorted."""

    low: str | None = None
    high: str | None = None
    low_inclusive: bool = True
    high_inclusive: bool = True
    points: tuple[str, ...] | None = None

    @classmethod
    def of_points(cls, keys: Iterable[str]) -> KeyRange:
        """Exactly these keys; no keys at all is the empty range."""
        points = tuple(sorted(set(keys)))
        return cls(points[0], points[-1], points=points) if points else cls(points=())

    @property
    def is_all(self) -> bool:
        return self.points is None and self.low is None and self.high is None

    @property
    def is_empty(self) -> bool:
        if self.points is not None:
            return not self.points
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and not (self.low_inclusive and self.high_inclusive))

    def contains(self, key: str) -> bool:
        if self.points is not None:
            at = bisect_left(self.points, key)
            return at < len(self.points) and self.points[at] == key
        return self._above(key) and self._below(key)

    def overlaps(self, low: str | None, high: str | None) -> bool:
        """Whether a key of the range may lie within `[low, high]`; None is an unknown bound."""
        if self.is_empty:
            return False
        if self.points is not None:
            at = 0 if low is None else bisect_left(self.points, low)
            return at < len(self.points) and (high is None or self.points[at] <= high)
        return (high is None or self._above(high)) and (low is None or self._below(low))

    def intersect(self, other: KeyRange) -> KeyRange:
        """The keys in both."""
        if self.points is not None:
            return KeyRange.of_points(key for key in self.points if other.contains(key))
        if other.points is not None:
            return other.intersect(self)
        low, low_inclusive = _tighter(self.low, self.low_inclusive, other.low, other.low_inclusive, max)
        high, high_inclusive = _tighter(self.high, self.high_inclusive, other.high, other.high_inclusive, min)
        return KeyRange(low, high, low_inclusive, high_inclusive)

    def union(self, other: KeyRange) -> KeyRange:
        """A range that holds the keys of both, and those between."""
        if self.points is not None and other.points is not None:
            return KeyRange.of_points((*self.points, *other.points))
        if self.is_empty:
            return other
        if other.is_empty:
            return self
        low, low_inclusive = _looser(self.low, self.low_inclusive, other.low, other.low_inclusive, min)
        high, high_inclusive = _looser(self.high, self.high_inclusive, other.high, other.high_inclusive, max)
        return KeyRange(low, high, low_inclusive, high_inclusive)

    def mask(self, keys: pa.Array) -> pa.Array:
        """A boolean per key; a null key is in no range."""
        if self.points is not None:
            return pc.is_in(keys, value_set=pa.array(self.points, keys.type), skip_nulls=True)
        inside = pc.is_valid(keys)
        if self.low is not None:
            compare = pc.greater_equal if self.low_inclusive else pc.greater
            inside = pc.and_(inside, compare(keys, pa.scalar(self.low, keys.type)))
        if self.high is not None:
            compare = pc.less_equal if self.high_inclusive else pc.less
            inside = pc.and_(inside, compare(keys, pa.scalar(self.high, keys.type)))
        return pc.fill_null(inside, False)

    def cut(self, keys: pa.Array) -> tuple[int, int]:
        """Where the range starts and ends within an ascending array without nulls, by binary search."""
        start, end = 0, len(keys)
        if self.is_empty:
            return 0, 0
        if self.low is not None:
            start = _search(keys, self.low, after_equal=not self.low_inclusive)
        if self.high is not None:
            end = _search(keys, self.high, after_equal=self.high_inclusive)
        return start, max(start, end)

    def _above(self, key: str) -> bool:
        return self.low is None or key > self.low or (key == self.low and self.low_inclusive)

    def _below(self, key: str) -> bool:
        return self.high is None or key < self.high or (key == self.high and self.high_inclusive)


def prefix_range(prefix: str) -> KeyRange:
    """Every key that starts with a prefix; the upper end is the next string that no longer does."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return KeyRange(prefix or None, None)
    last = ord(stem[-1]) + 1
    if 0xD800 <= last <= 0xDFFF:  # code points that no text holds
        last = 0xE000
    return KeyRange(prefix, stem[:-1] + chr(last), high_inclusive=False)


def java_bound(key: str | None) -> str | None:
    """A smallest or largest key by Java's UTF-16 order, where it is also a bound in UTF-8 order; else None.

    The orders differ only between U+E000..U+FFFF and the characters above. A bound all of whose characters are below
    U+D800 splits all strings alike in both: the first character that differs from it decides, and a surrogate is
    above it just as the code point it stands for.
    """
    return key if key is not None and all(char < "\ud800" for char in key) else None


def _search(keys: pa.Array, key: str, *, after_equal: bool) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        value = keys[middle].as_py()
        if value < key or (after_equal and value == key):
            low = middle + 1
        else:
            high = middle
    return low


def _tighter(
    a: str | None, a_inclusive: bool, b: str | None, b_inclusive: bool, pick: Callable[[Any, Any], Any]
) -> tuple[str | None, bool]:
    if a is None or b is None:
        return (b, b_inclusive) if a is None else (a, a_inclusive)
    if a == b:
        return a, a_inclusive and b_inclusive
    return (a, a_inclusive) if pick(a, b) == a else (b, b_inclusive)


def _looser(
    a: str | None, a_inclusive: bool, b: str | None, b_inclusive: bool, pick: Callable[[Any, Any], Any]
) -> tuple[str | None, bool]:
    if a is None or b is None:
        return None, True
    if a == b:
        return a, a_inclusive or b_inclusive
    return (a, a_inclusive) if pick(a, b) == a else (b, b_inclusive)
