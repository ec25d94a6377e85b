"""The files that archiving leaves: footers that readers use, and none so large that a look into it is slow."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.history import History
from lakebed.timeline.history_columns import BODIES_SCHEMA
from lakebed.timeline.history_reader import SORTED_KEY
from lakebed.timeline.history_writer import compact, flush


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
