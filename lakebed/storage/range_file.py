"""A remote file that a Parquet reader can seek in without a request per read.

    |<------------------------- file ------------------------->|
              [ window, grows while reads are in sequence ] [ tail ]

Parquet readers begin at the end: footer length, then footer. The tail is fetched once and kept. After that they read
column chunks: a large read is one request of exactly that range, small reads in sequence are served from a window that
doubles, and a small read elsewhere is fetched alone, since its neighbours may never be read.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lakebed.errors import CorruptTable

TAIL = 64 << 10
FIRST_WINDOW = 128 << 10
LARGEST_WINDOW = 4 << 20
MERGE_GAP = 1 << 20
"""At least obstore's own gap, so that obstore never merges: it panics when a merged range is cut short."""


def merged_ranges(ranges: Sequence[tuple[int, int]], gap: int = MERGE_GAP) -> list[tuple[int, int]]:
    """The requests that cover the ranges: neighbours share one when the bytes between cost less than a round trip."""
    requests: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if not length:
            continue
        if requests and start <= sum(requests[-1]) + gap:
            first = requests[-1][0]
            requests[-1] = (first, max(sum(requests[-1]), start + length) - first)
        else:
            requests.append((start, length))
    return requests


def cut_ranges(
    ranges: Sequence[tuple[int, int]], requests: Sequence[tuple[int, int]], fetched: Sequence[bytes]
) -> list[bytes]:
    """The ranges, cut out of the fetched bytes."""
    starts = [start for start, _ in requests]
    pieces = []
    for start, length in ranges:
        if not length:
            pieces.append(b"")
            continue
        index = bisect_right(starts, start) - 1
        offset = start - starts[index]
        pieces.append(fetched[index][offset : offset + length])
    return pieces


class RequestCounter:
    """How many requests of which kind; safe to share between threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str, number: int = 1) -> None:
        with self._lock:
            self._counts[kind] += number

    @property
    def total(self) -> int:
        return sum(self._counts.values())

    def by_kind(self) -> dict[str, int]:
        """A copy of the counts."""
        with self._lock:
            return dict(self._counts)

    def __repr__(self) -> str:
        return f"RequestCounter({self.by_kind()})"


class RangeFile(io.RawIOBase):
    """Seekable reading over two requests: an exact range, and the last bytes together with the size."""

    def __init__(
        self,
        path: str,
        fetch: Callable[[int, int], bytes],
        fetch_tail: Callable[[int], tuple[bytes, int]],
        size: int | None = None,
    ) -> None:
        super().__init__()
        self._fetch = fetch
        self._position = 0
        self._tail: bytes | None = None
        if size is None:  # every reader needs the size first; a missing file raises here as well
            self._tail, size = fetch_tail(TAIL)
            if len(self._tail) != min(TAIL, size):
                raise CorruptTable("the end of the file is missing", file=path, offset=size)
        self._size = size
        self._window = b""
        self._window_start = 0
        self._window_size = FIRST_WINDOW
        self._sequence_end = -1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"seek to {start + offset}")
        self._position = start + offset
        return self._position

    def size(self) -> int:
        """The length of the file."""
        return self._size

    def readinto(self, target: Any, /) -> int:
        view = memoryview(target).cast("B")
        data = self.read(view.nbytes)
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read()

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(self._size - self._position, 0)
        length = left if size is None or size < 0 else min(size, left)
        if length == 0:
            return b""
        data = self._read_at(self._position, length)
        self._position += length
        return data

    def _load_tail(self) -> bytes:
        if self._tail is None:
            self._tail = self._fetch(max(self._size - TAIL, 0), min(TAIL, self._size))
        return self._tail

    def _read_at(self, start: int, length: int) -> bytes:
        end = start + length
        in_sequence = start == self._sequence_end
        self._sequence_end = end
        tail_start = max(self._size - TAIL, 0)
        if start >= tail_start:
            return self._load_tail()[start - tail_start : end - tail_start]
        held = self._window_start + len(self._window)
        if self._window_start <= start < held:
            ready = self._window[start - self._window_start : end - self._window_start]
            return ready if end <= held else ready + self._ahead(held, end - held)
        return self._ahead(start, length) if in_sequence else self._fetch(start, length)

    def _ahead(self, start: int, length: int) -> bytes:
        """Fetch a window from `start` on that holds `length` bytes, and serve them from it."""
        wanted = min(max(length, self._window_size), self._size - start)
        self._window_size = min(2 * self._window_size, LARGEST_WINDOW)
        window = self._fetch(start, wanted)
        if length < LARGEST_WINDOW:
            self._window, self._window_start = window, start
        return window[:length]
