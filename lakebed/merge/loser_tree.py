r"""The definition of key order, and the loser tree that keeps k runs in that order.

**Key order is unsigned UTF-8 byte order**: what `bytes` compares by in Python, what Arrow, Parquet statistics, HFile
and Spark's UTF8_BINARY use. It is not Java's `String.compareTo`: U+FFFD (EF BF BD) sorts before an emoji (F0 9F ..)
here, and after it there. Nothing in lakebed compares record keys in any other way.

A loser tree holds, at every inner node, the run that lost there, and at the top the run that won:

            winner                     leaf i of k lives at node k + i, its parent is node (k + i) // 2;
              |                        when the winner gets a new key only the path from its leaf to the top
           [loser]         node 1      is replayed: at most ceil(log2 k) comparisons, half of a binary heap's
          /       \
     [loser]     [loser]   2, 3        runs with equal keys come out in run order, oldest first, which is the
      /   \       /   \                order in which the versions of a key are folded
    run0 run1  run2  run3  4 .. 7

In the vector merge the tree orders *runs*, by the last key each has buffered, and numpy orders the rows
(`row_order.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def key_bytes(key: str) -> bytes:
    """The form in which keys compare."""
    return key.encode("utf-8")


class LoserTree:
    """The smallest of k keys, while one key after the other moves up; None, an exhausted run, sorts last."""

    def __init__(self, keys: Sequence[bytes | None]) -> None:
        self.comparisons = 0
        self._keys: list[bytes | None] = list(keys)
        k = len(self._keys)
        self._losers = [0] * max(k, 1)
        winners = [0] * k + list(range(k))  # node -> run that won below it
        for node in range(k - 1, 0, -1):
            left, right = winners[2 * node], winners[2 * node + 1]
            if self._before(right, left):
                left, right = right, left
            winners[node], self._losers[node] = left, right
        self._winner = winners[1] if k > 1 else 0

    @property
    def winner(self) -> int:
        """The run with the smallest key (the oldest of several); when all are exhausted, any."""
        return self._winner

    @property
    def key(self) -> bytes | None:
        """The winner's key; None when every run is exhausted."""
        return self._keys[self._winner] if self._keys else None

    def advance(self, key: bytes | None) -> None:
        """Give the winner its next key and find the new winner."""
        run = self._winner
        self._keys[run] = key
        node = (run + len(self._keys)) // 2
        while node:
            if self._before(self._losers[node], run):
                run, self._losers[node] = self._losers[node], run
            node //= 2
        self._winner = run

    def _before(self, a: int, b: int) -> bool:
        self.comparisons += 1
        x, y = self._keys[a], self._keys[b]
        if x is None or y is None:
            return y is None and (x is not None or a < b)
        return x < y if x != y else a < b
