"""Archived actions newest first, reading no more files than needed.

    files by the latest time that they can hold     c ▐████████▌
                                                      b ▐██████▌     a ▐███▌
    time                                          ◄──────────────────────────── read in this direction

Files overlap: those of different levels after an interrupted merge, and all of them in completion times. So a file is
opened as soon as it may hold something newer than what the open ones have left, and the newest of these comes next. For
requested times the file's name bounds what it can hold; for completion times its footer does. An action that is in two
files comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.instant import Instant
from lakebed.runner import LocalRunner
from lakebed.timeline.clock import INSTANT_LENGTH, comparable
from lakebed.timeline.history_columns import ACTION, COMPLETED, REQUESTED, comparable_times, instants_of, within
from lakebed.timeline.history_files import HistoryFile
from lakebed.timeline.history_reader import HistoryReader

_AFTER_ALL = "9" * INSTANT_LENGTH
_BLOCK = 256
"""Rows that are converted to instants at once: most callers need only the first."""
Rank = tuple[int, int, str]


def newest_requested(
    reader: HistoryReader, files: Sequence[HistoryFile], actions: pa.Array, low: str | None = None
) -> Iterator[Instant]:
    """Actions with these names by descending requested time, down to `low`."""
    latest = [(comparable(file.name.max_time), file) for file in files]

    def rows(file: HistoryFile) -> Iterator[Instant]:
        return _descending(within(reader.times(file), REQUESTED, low, None), actions, REQUESTED)

    return _merged(latest, rows, lambda instant: instant.requested_time)


def newest_completed(
    reader: HistoryReader, files: Sequence[HistoryFile], actions: pa.Array, until: str | None = None
) -> Iterator[Instant]:
    """Actions with these names by descending completion time, from `until` on."""
    runner = LocalRunner.near(is_local=reader.storage.is_local)
    times = runner.map(reader.last_completion, files, label="history") if len(files) > 1 else [None] * len(files)
    latest = [(time or _AFTER_ALL, file) for time, file in zip(times, files, strict=True)]

    def rows(file: HistoryFile) -> Iterator[Instant]:
        return _descending(within(reader.times(file), COMPLETED, None, until), actions, COMPLETED)

    return _merged(latest, rows, lambda instant: instant.completion_time or "")


def _descending(times: pa.Table, actions: pa.Array, column: str) -> Iterator[Instant]:
    """The rows with these action names as instants, the latest first."""
    found = times.filter(pc.is_in(times[ACTION], actions))
    order = {name: comparable_times(found[name]) for name in dict.fromkeys((column, REQUESTED))}
    keys = pa.table({**order, ACTION: found[ACTION]})
    by = [*((name, "descending") for name in order), (ACTION, "ascending")]
    found = found.take(pc.sort_indices(keys, by))
    for start in range(0, found.num_rows, _BLOCK):
        yield from instants_of(found.slice(start, _BLOCK))


def _merged(
    latest: list[tuple[str, HistoryFile]],
    rows: Callable[[HistoryFile], Iterator[Instant]],
    time_of: Callable[[Instant], str],
) -> Iterator[Instant]:
    """Merges the rows of files, each in descending order, into one such sequence without repeats."""
    waiting = sorted(latest, key=lambda item: (item[0], item[1].path))
    heap: list[tuple[Rank, int, Instant, Iterator[Instant]]] = []

    def push(number: int, source: Iterator[Instant]) -> None:
        instant = next(source, None)
        if instant is not None:
            requested = -int(comparable(instant.requested_time))
            rank = (-int(comparable(time_of(instant))), requested, str(instant.action))
            heappush(heap, (rank, number, instant, source))

    last: Instant | None = None
    while heap or waiting:
        while waiting and (not heap or int(waiting[-1][0]) >= -heap[0][0][0]):
            push(len(waiting), rows(waiting.pop()[1]))
        if heap:
            _, number, instant, source = heappop(heap)
            if last is None or (instant.requested_time, instant.action) != (last.requested_time, last.action):
                yield instant
            last = instant
            push(number, source)
