"""Reads the sources a window at a time and cuts each window at the smallest last key, the watermark.

    base   |a......f......k|............        each source has some rows buffered; the smallest of their last
    log 1  |..b.....g..........n|.......        keys is the watermark (here k): no unread row is at or below it,
    log 2  |....e......m|...............        so every key up to it is complete and can be merged
                         watermark

Then the source whose last key it was reads on, and with it all that have little left: sources that are exhausted one
after the other would each end a window of their own. The loser tree keeps the sources by last buffered key, so the next
watermark costs ceil(log2 k) comparisons where one source read; memory is what is buffered, whatever the files' length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from lakebed.merge.keys import Keys, check_ascending, check_keys
from lakebed.merge.loser_tree import LoserTree
from lakebed.merge.window import RowRange, RunFacts, Window

LONE_ROWS = 1024  # rows of one source below every other source's next key that are worth a window of their own
_GUESSED_TEXT = 32
_REOPEN_FACTOR = 2


def guess_row_bytes(schema: pa.Schema) -> int:
    """Bytes per row before any row was seen."""
    total = 1
    for kind in schema.types:
        try:
            total += max(kind.bit_width // 8, 1)
        except ValueError:
            total += _GUESSED_TEXT
    return total


class Source:
    """A sorted stream of batches with a buffer of about `window_bytes` in front."""

    def __init__(
        self,
        open_rows: Callable[[int], Iterator[pa.RecordBatch]],
        facts: RunFacts,
        number: int | None,
        *,
        name: str,
        trusted: bool,
        unique: bool,
        window_bytes: int,
        row_bytes: int,
        encoded: bool = False,
    ) -> None:
        self.unique = unique  # no key repeats within this source
        self._trusted = trusted  # the file is marked as sorted: check that it is
        self._facts = facts
        self._number = number
        self._name = name
        self._window_bytes = window_bytes
        self._encoded = encoded  # dictionary-encoded text may stay encoded
        self._batches = self._start(open_rows, max(1, window_bytes // max(row_bytes, 1)))
        self._buffer: list[RowRange] = []
        self._last: bytes | None = None
        self._exhausted = False
        self.schema: pa.Schema | None = None  # known once the first batch is there

    def _start(self, open_rows: Callable[[int], Iterator[pa.RecordBatch]], rows: int) -> Iterator[pa.RecordBatch]:
        """Batches of about a window; if the guess was far too large, start again with a better one."""
        batches = open_rows(rows)
        first = next(batches, None)
        if first is None:
            return
        if first.num_rows > 1 and first.nbytes > _REOPEN_FACTOR * self._window_bytes:
            better = max(1, first.num_rows * self._window_bytes // first.nbytes)
            if better < rows:
                del first
                batches = open_rows(better)
                first = next(batches, None)
        if first is not None:
            yield first
            del first
            yield from batches

    def fill(self) -> bool:
        """Read on until the buffer holds about half a window, and at least one complete key; whether rows came."""
        before = len(self._buffer)
        held = sum(row_range.batch.num_rows * row_range.row_bytes for row_range in self._buffer)
        while not self._exhausted and (held < self._window_bytes // 2 or self.watermark is None):
            batch = next(self._batches, None)
            if batch is None:
                self._exhausted = True
                return True
            if not batch.num_rows:
                continue
            batch = self._facts.conform(batch, self._number, encoded=self._encoded)
            column = batch.column(self._facts.rule.key)
            check_keys(column, self._name)
            keys = Keys(column)
            if self._trusted:
                check_ascending(keys, self._last, self._name)
            self._last = keys[-1]
            self.schema = self.schema or batch.schema
            size = batch.nbytes
            self._buffer.append(RowRange(batch, keys, self._number, max(1, size // batch.num_rows)))
            held += size
        return len(self._buffer) > before

    @property
    def watermark(self) -> bytes | None:
        """The last key known to be complete; None when everything left is buffered (or nothing is complete yet)."""
        if self._exhausted or not self._buffer:
            return None
        if self.unique:
            return self._last
        assert self._last is not None
        for row_range in reversed(self._buffer):  # the last key may go on in the next batch
            below = row_range.keys.count_below(self._last)
            if below:
                return row_range.keys[below - 1]
        return None

    @property
    def next_key(self) -> bytes | None:
        return self._buffer[0].keys[0] if self._buffer else None

    def cut(self, bound: bytes | None, *, below: bool = False) -> list[RowRange]:
        """Take the buffered rows up to `bound` (None: all of them), or only those below it."""
        taken, self._buffer = cut_pieces(self._buffer, bound, below=below)
        return taken

    def count_below(self, bound: bytes) -> int:
        """How many buffered rows lie below a key."""
        return sum(row_range.keys.count_below(bound) for row_range in self._buffer)


def cut_pieces(
    row_ranges: list[RowRange], bound: bytes | None, *, below: bool = False
) -> tuple[list[RowRange], list[RowRange]]:
    """Sorted pieces in two: the rows up to (or only below) a key, and the rest."""
    if bound is None:
        return row_ranges, []
    for at, row_range in enumerate(row_ranges):
        total = row_range.batch.num_rows
        if row_range.keys[-1] < bound:
            continue
        rows = row_range.keys.count_below(bound) if below else row_range.keys.count_up_to(bound)
        if rows == total:
            continue
        if rows == 0:
            return row_ranges[:at], row_ranges[at:]
        return [*row_ranges[:at], _part(row_range, 0, rows)], [
            _part(row_range, rows, total - rows),
            *row_ranges[at + 1 :],
        ]
    return row_ranges, []


def _part(row_range: RowRange, start: int, rows: int) -> RowRange:
    batch = row_range.batch.slice(start, rows)
    return RowRange(batch, Keys(row_range.keys.array.slice(start, rows)), row_range.number, row_range.row_bytes)


def windows(sources: Sequence[Source], facts: RunFacts, *, most_bytes: int) -> Iterator[Window]:
    """Windows in key order, of about `most_bytes` at most; every key lies in exactly one of them."""
    if not sources:
        return
    for source in sources:
        source.fill()
    tree = LoserTree([source.watermark for source in sources])
    unique = [source.unique for source in sources]
    while True:
        bound = tree.key
        yield from _lone_ranges(sources, facts, bound)
        for cuts in _split([source.cut(bound) for source in sources], most_bytes):
            if any(cuts):
                yield Window(cuts, unique, facts)
        if bound is None:
            return
        others = [source.fill() for number, source in enumerate(sources) if number != tree.winner]
        sources[tree.winner].fill()
        if any(others):
            tree = LoserTree([source.watermark for source in sources])
        else:
            tree.advance(sources[tree.winner].watermark)


def _split(cuts: list[list[RowRange]], most_bytes: int) -> Iterator[list[list[RowRange]]]:
    """Cuts that are too large together (all sources may end at one key) in parts of about the size wanted."""
    sizes = [sum(row_range.batch.num_rows * row_range.row_bytes for row_range in row_ranges) for row_ranges in cuts]
    parts = -(-sum(sizes) // most_bytes)
    largest = cuts[max(range(len(sizes)), key=sizes.__getitem__)]
    rows = sum(row_range.batch.num_rows for row_range in largest)
    for row in sorted({rows * part // parts for part in range(1, parts)}):
        for row_range in largest:
            if row < row_range.batch.num_rows:
                halves = [cut_pieces(row_ranges, row_range.keys[row]) for row_ranges in cuts]
                yield [half[0] for half in halves]
                cuts = [half[1] for half in halves]
                break
            row -= row_range.batch.num_rows
    yield cuts


def _lone_ranges(sources: Sequence[Source], facts: RunFacts, bound: bytes | None) -> Iterator[Window]:
    """Long key ranges in which only one source has rows become windows of one source, which need no comparison."""
    while True:
        heads = [(key, number) for number, source in enumerate(sources) if (key := source.next_key) is not None]
        if not heads:
            return
        _, lone = min(heads)
        others = [key for key, number in heads if number != lone]
        limit = min(others) if others else None
        if limit is None or (bound is not None and limit > bound):
            return  # the whole window belongs to one source, or nothing follows: the ordinary cut does it
        if sources[lone].count_below(limit) < LONE_ROWS:
            return
        cuts: list[list[RowRange]] = [[] for _ in sources]
        cuts[lone] = sources[lone].cut(limit, below=True)
        yield Window(cuts, [source.unique for source in sources], facts)
