"""Merge vectors: one bit per row marks whether it is dead, computed from keys and ordering values alone.

When a merge picks whole records, its result is nothing but a set of dead rows per file. Any Parquet reader can then
read base files and logs side by side and drop those rows, with its own filters and column pruning. Bit i % 64 of word
i // 64 stands for row i in file order, least significant bit first; tombstones are dead too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.config.memory_plan import DEFAULT_MEMORY, READ_BUFFER
from lakebed.errors import InvalidRequest
from lakebed.merge.arrow_numpy import Heads, Ints, index_array, numbers
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import COMMIT_TIME, IS_DELETED, OPERATION, ROW_COLUMN, Run, in_fold_order
from lakebed.merge.sorted_merge import open_sources, work_share
from lakebed.merge.spill import Spill
from lakebed.merge.window import RunFacts, Window
from lakebed.merge.window_merge import WindowMerge, order_of
from lakebed.merge.windows import windows

Numbers = npt.NDArray[np.uint8]
MOST_ORDERED = 256


@dataclass(frozen=True, slots=True)
class MergeVector:
    """The dead rows of one run."""

    rows: int
    dead: int
    words: Heads

    def is_dead(self, row: int) -> bool:
        """Whether a row, counted from 0 in file order, must not be read."""
        return bool(int(self.words[row // 64]) >> (row % 64) & 1)


def columns_for_vectors(rule: MergeRule) -> tuple[str, ...]:
    """What has to be read of every run to make merge vectors."""
    names = [rule.key, *rule.ordering, IS_DELETED, OPERATION, *([rule.delete_field] if rule.delete_field else [])]
    return tuple(dict.fromkeys(names + ([COMMIT_TIME] if rule.by_event_time else [])))


def merge_vectors(
    runs: Sequence[Run], rule: MergeRule, *, memory: int = DEFAULT_MEMORY, read_buffer: int = READ_BUFFER
) -> list[MergeVector]:
    """The dead rows of every run, in the order in which the runs were passed."""
    return _merged(runs, rule, memory, read_buffer, None)


def merge_order(
    runs: Sequence[Run], rule: MergeRule, *, memory: int = DEFAULT_MEMORY, read_buffer: int = READ_BUFFER
) -> tuple[list[MergeVector], Numbers]:
    """The same, and for every live row in key order the number of its run, oldest run 0: how the rows interleave."""
    if len(runs) > MOST_ORDERED:
        raise InvalidRequest(f"the order of more than {MOST_ORDERED} runs does not fit a byte")
    order = bytearray()
    vectors = _merged(runs, rule, memory, read_buffer, order)
    return vectors, np.frombuffer(order, np.uint8)


def _merged(
    runs: Sequence[Run], rule: MergeRule, memory: int, read_buffer: int, order: bytearray | None
) -> list[MergeVector]:
    if not rule.picks_whole_records or any(run.is_partial for run in runs):
        raise InvalidRequest(
            "merge vectors need a rule that picks whole records", hint="Read through the merge instead."
        )
    ordered = in_fold_order(runs)
    counts = [0] * len(ordered)
    wanted = columns_for_vectors(rule)
    counted = [
        replace(run, open=_with_positions(run, number, counts, wanted), row_bytes=None)
        for number, run in enumerate(ordered)
    ]
    facts = RunFacts(counted, rule, pa.schema([]))
    merge = WindowMerge(facts, facts.schema, keep_deletes=False)
    dead = [_DeadRows() for _ in ordered]
    with Spill() as spill:
        sources = open_sources(counted, facts, spill, memory=memory, read_buffer=read_buffer)
        for window in windows(sources, facts, most_bytes=work_share(memory)):
            live = _live_rows(merge, window)
            if order is not None:
                order += window.run_numbers(live).astype(np.uint8).tobytes()
            if len(live) < window.num_rows:
                gone = _others(live, window.num_rows)
                positions = numbers(window.take(ROW_COLUMN, gone), np.int64)
                owners = window.run_numbers(gone)
                for number in np.unique(owners).tolist():
                    dead[number].add(positions[owners == number])
    number_of = {id(run): number for number, run in enumerate(ordered)}
    vectors = [found.vector(rows) for rows, found in zip(counts, dead, strict=True)]
    return [vectors[number_of[id(run)]] for run in runs]


def _live_rows(merge: WindowMerge, window: Window) -> Ints:
    """The rows of a window that survive, in key order."""
    deleted = window.deleted()
    lone = [number for number, row_ranges in enumerate(window.sources) if row_ranges]
    if len(lone) == 1 and window.unique[lone[0]]:
        return np.arange(window.num_rows) if deleted is None else np.flatnonzero(~deleted)
    return merge.choose(window, order_of(window), deleted).rows


def _others(rows: Ints, total: int) -> Ints:
    flags = np.ones(total, np.bool_)
    flags[rows] = False
    return np.flatnonzero(flags)


def _with_positions(
    run: Run, number: int, counts: list[int], wanted: tuple[str, ...]
) -> Callable[[int], Iterator[pa.RecordBatch]]:
    def open_rows(rows: int) -> Iterator[pa.RecordBatch]:
        counts[number] = 0
        for batch in run.open(rows):
            batch = batch.select([name for name in batch.schema.names if name in wanted])
            own = index_array(counts[number] + np.arange(batch.num_rows))
            counts[number] += batch.num_rows
            yield batch.append_column(ROW_COLUMN, own)

    return open_rows


class _DeadRows:
    """The dead rows of a run while they turn up, window after window: a bit for every row up to the last of them."""

    def __init__(self) -> None:
        self._words: Heads = np.zeros(0, np.uint64)
        self._count = 0

    def add(self, rows: Ints) -> None:
        """Rows that were not added before."""
        words = rows >> 6
        needed = int(words.max(initial=-1)) + 1
        if needed > len(self._words):
            self._words = _resized(self._words, max(needed, len(self._words) * 5 // 4))
        np.bitwise_or.at(self._words, words, np.uint64(1) << (rows & 63).astype(np.uint64))
        self._count += len(rows)

    def vector(self, rows: int) -> MergeVector:
        """What is known when all rows of the run have been read."""
        return MergeVector(rows, self._count, _resized(self._words, (rows + 63) // 64))


def _resized(words: Heads, count: int) -> Heads:
    resized = np.zeros(count, np.uint64)
    kept = min(count, len(words))
    resized[:kept] = words[:kept]
    return resized
