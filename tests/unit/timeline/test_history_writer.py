"""The files that archiving leaves: footers that readers use, and none so large that a look into it is slow."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.history import History
from lakebed.timeline.history_columns import BODIES_SCHEMA
from lakebed.timeline.history_files import HistoryFile
from lakebed.timeline.history_reader import SORTED_KEY
from lakebed.timeline.history_writer import LAST_LEVEL, compact, flush


def rows(numbers: list[int], body: int = 0) -> pa.Table:
    begins = [f"{20260101000000000 + number}" for number in numbers]
    bodies = [np.random.default_rng(number).bytes(body) for number in numbers]
    columns = [pa.array(begins), pa.array(begins), pa.repeat("commit", len(begins)), pa.array(bodies, pa.binary())]
    return pa.table([*columns, pa.nulls(len(begins), pa.binary())], schema=BODIES_SCHEMA)


def footer(history: History, number: int) -> dict[bytes, bytes]:
    file = history.files[number]
    metadata = pq.read_metadata(history.storage.open_input(file.path, file.size))
    return dict(metadata.metadata)


def test_a_footer_says_what_readers_of_it_look_for() -> None:
    history = flush(History(MemoryStorage(), (), None), rows(list(range(2_000))))
    found = footer(history, 0)
    assert found[SORTED_KEY.encode()] == b"true"
    assert b"HoodieLSMTimelineInstant" in found[b"parquet.avro.schema"]
    low, high = "20260101000001000", "20260101000001009"
    assert history.loaded(low, high)["requested_time"].to_pylist() == [f"{int(low) + n}" for n in range(10)]


def test_rows_out_of_order_are_not_called_sorted() -> None:
    """Then row groups are not found by halving: every one is looked at."""
    numbers = [*range(0, 1_000), *range(500, 1_500)]
    history = flush(History(MemoryStorage(), (), None), rows(numbers))
    assert SORTED_KEY.encode() not in footer(history, 0)
    assert history.loaded("20260101000000700", "20260101000000700").num_rows == 1
    assert history.loaded("20260101000001200", "20260101000001200").num_rows == 1


def test_full_files_are_not_merged_again() -> None:
    full = 64 << 10
    history = History(MemoryStorage(), (), None)
    for first in range(0, 2_400, 20):
        history = compact(flush(history, rows(list(range(first, first + 20)), body=100)), 4, full)
    assert full / 2 < max(file.size for file in history.files) <= full
    small = [file for file in history.files if file.size <= full / 2]
    assert 1 < len(small) < 12, "what is not full is still merged level by level"
    ranges = [file.name for file in history.files]
    assert all(before.max_time < after.min_time for before, after in pairwise(ranges))
    assert history.loaded()["requested_time"].to_pylist() == rows(list(range(2_400)))["requested_time"].to_pylist()


def placed(history: History, numbers: range, level: int) -> History:
    """The history with a file of these rows on a level, as merges of lower ones leave it."""
    [made] = flush(History(history.storage, (), None), rows(list(numbers))).files
    path = f"{made.path.removesuffix('0.parquet')}{level}.parquet"
    if level:
        history.storage.put(path, history.storage.read(made.path))
    return History(history.storage, (*history.files, HistoryFile(path, made.size)), history.version)


def test_merging_goes_on_behind_the_last_level_that_a_name_can_tell() -> None:
    """Two files make one of the next level: 4,096 rounds are a tree of thirteen layers, and Hudi's names tell ten."""
    history, first = History(MemoryStorage(), (), None), 0
    for step in range(7):
        for level in range(LAST_LEVEL if step == 0 else LAST_LEVEL - 1, -1, -1):
            history = placed(history, range(first, first + 2**level), level)
            first += 2**level
        history = compact(flush(history, rows([first])), 2, 16 << 20)
        first += 1
        assert [file.name.level for file in history.files] == [LAST_LEVEL], "as many files as with any number of layers"
        assert re.fullmatch(r"\d+_\d+_\d\.parquet", history.files[0].file_name)
    assert first == 2**12
    assert history.loaded()["requested_time"].to_pylist() == rows(list(range(first)))["requested_time"].to_pylist()


def test_a_merge_never_writes_the_file_that_it_reads() -> None:
    """A file whose range holds those of the others would be merged into one of its own name."""
    storage = MemoryStorage()
    history = placed(History(storage, (), None), range(0, 10), LAST_LEVEL)
    history = placed(history, range(3, 6), LAST_LEVEL)
    assert compact(history, 2, 16 << 20).files == history.files
    assert history.loaded()["requested_time"].to_pylist() == rows(list(range(10)))["requested_time"].to_pylist()
