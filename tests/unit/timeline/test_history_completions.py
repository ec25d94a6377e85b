"""Ranges of completion times: only files that can hold one are read, told by names and footers, and none is missed."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.history import History
from lakebed.timeline.history_columns import BODIES_SCHEMA
from lakebed.timeline.history_writer import flush
from tests.unit.timeline.test_history import t, write_history

HOUR, ROWS, BODY = 10_000_000, 1_100, 200
LARGE = ROWS * BODY
"""Bytes of a file, at least: far more than the end of it that holds the footer."""


class Counted(io.RawIOBase):
    """A file that counts the bytes read of it."""

    def __init__(self, source: pa.NativeFile, counts: Counter[str], name: str) -> None:
        self._source, self._counts, self._name = source, counts, name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._source.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._source.seek(offset, whence))

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._source.read(None if size < 0 else size)
        self._counts[self._name] += len(data)
        return data


class CountingStorage(MemoryStorage):
    """Bytes that are read of each history file."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes: Counter[str] = Counter()

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return pa.PythonFile(Counted(super().open_input(path, size), self.read_bytes, path), mode="r")


def hours(storage: MemoryStorage) -> History:
    """A file an hour, of actions that take ten milliseconds each; the last one of hour 1 takes until hour 8."""
    history = History(storage, (), None)
    for hour in range(10):
        begins = [20260101000000000 + hour * HOUR + n for n in range(ROWS)]
        ends = [begin + 10 for begin in begins]
        if hour == 1:
            ends[-1] = begins[-1] + 7 * HOUR
        bodies = pa.array([np.random.default_rng(n).bytes(BODY) for n in range(ROWS)], pa.binary())
        columns: list[Any] = [[str(time) for time in begins], [str(time) for time in ends], ["commit"] * ROWS]
        nothing = pa.nulls(ROWS, pa.binary())
        history = flush(history, pa.table([*map(pa.array, columns), bodies, nothing], schema=BODIES_SCHEMA))
    return history


def at(hour: int) -> str:
    return str(20260101000000000 + hour * HOUR)


def test_only_files_that_hold_a_completion_of_the_range_are_read() -> None:
    """Of files that completed before the range the footer is read, and of those that began behind it nothing."""
    storage = CountingStorage()
    paths = [file.path for file in hours(storage).files]
    history = History.load(storage)
    assert history.completed_within(at(4), str(int(at(5)) + HOUR // 2)).num_rows == 2 * ROWS
    assert set(history._reader._times) == {(paths[1], (2,)), (paths[4], None), (paths[5], None)}, "1 may hold one"
    assert [path for path in paths if not storage.read_bytes[path]] == paths[6:], "names tell that they begin too late"
    assert all(0 < storage.read_bytes[path] < LARGE / 2 for path in (paths[0], *paths[2:4])), "footers"

    storage.read_bytes.clear()
    history = History.load(storage)
    slow = [instant.requested_time for instant in history.under_way(at(8), at(6))]
    assert slow == [str(int(at(1)) + ROWS - 1)]
    [(path, groups)] = history._reader._times
    assert (path, groups) == (paths[1], (2,)), "and of its file the row group that holds it"


def test_every_range_is_answered_as_if_all_were_read() -> None:
    storage = MemoryStorage()
    history = hours(storage)
    rows = history.table().to_pylist()
    bounds = [None, at(0), at(1), str(int(at(1)) + ROWS), at(4), at(8), str(int(at(8)) + ROWS + 8), at(11)]
    for start in bounds:
        for end in bounds:
            wanted = [
                row["requested_time"]
                for row in rows
                if (start is None or row["completion_time"] > start) and (end is None or row["completion_time"] <= end)
            ]
            assert History.load(storage).completed_within(start, end)["requested_time"].to_pylist() == wanted


def test_statistics_that_do_not_tell_skip_nothing(tmp_path: Path) -> None:
    """An action without completion time counts as completed when it began; times of 14 digits end their second."""
    unknown: list[Any] = [(t(5_000), None, "commit"), (t(6_000), t(6_000), "commit")]
    mixed = [("20260101000020", "20260101000020", "commit"), (t(20_400), t(20_500), "commit")]
    files = {f"{t(5_000)}_{t(6_000)}_0.parquet": unknown, f"20260101000020_{t(20_400)}_0.parquet": mixed}
    write_history(tmp_path, files)
    history = History.load(LocalStorage(tmp_path))
    assert history.completed_within(t(4_000), t(5_000))["requested_time"].to_pylist() == [t(5_000)]
    assert history.completed_within(t(20_600), None)["requested_time"].to_pylist() == ["20260101000020"]
    assert history.completed_within(t(20_000), t(20_600))["requested_time"].to_pylist() == [t(20_400)]
