"""The merge of the default layout: what fits is decided by what was gathered, and repeated base keys are folded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import CorruptTable
from lakebed.merge import hash_merge as module
from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.merge_vector import merge_order, merge_vectors
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.merge.spill import Spill, sort_runs
from lakebed.merge.window import RunFacts
from lakebed.model import concat
from tests.unit.merge.test_sorted_merge import COMMIT, EVENT, KEY, MEMORY, SCHEMA, data, deletes, merged, rows_of

WIDE = pa.schema([(KEY, pa.string()), *((f"c{number}", pa.string()) for number in range(30))])


def hashed(*runs: Run, rule: MergeRule = COMMIT, memory: int = MEMORY) -> list[tuple[Any, ...]]:
    return rows_of(hash_merge(list(runs), rule, SCHEMA, memory=memory))


# ---------------------------------------------------------------- many tiny logs
@pytest.mark.parametrize("memory", [16 << 10, 32 << 10, 128 << 10, 512 << 10, 64 << 20])
def test_no_rows_are_lost_in_the_default_layout(memory: int) -> None:
    nothing = (None,) * 30
    base = data(0, ("base", *nothing), schema=WIDE, is_sorted=False)
    logs = [data(age, (f"k{age:03}", *nothing), schema=WIDE, is_sorted=False) for age in range(1, 451)]
    batches = list(hash_merge([base, *logs], COMMIT, WIDE, memory=memory))
    keys = [key for batch in batches for key in batch.column(KEY).to_pylist()]
    assert sorted(keys) == ["base", *(f"k{age:03}" for age in range(1, 451))]


def test_logs_past_the_memory_are_sorted_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sorted_instead: list[int] = []

    def noted(runs: Any, *args: Any, **more: Any) -> Iterator[pa.RecordBatch]:
        sorted_instead.append(len(runs))
        return sorted_merge(runs, *args, **more)

    monkeypatch.setattr(module, "sorted_merge", noted)
    base = data(0, *((f"k{n:04}", 1, "x" * 50) for n in range(2000)), is_sorted=False)
    log = data(1, *((f"k{n:04}", 2, "y" * 50) for n in range(0, 2000, 2)), is_sorted=False)
    assert len(hashed(base, log)) == 2000
    assert not sorted_instead
    assert len(hashed(base, log, memory=100_000)) == 2000
    assert sorted_instead == [2]


# ---------------------------------------------------------------- a base file that repeats keys
def repeated(*rows: tuple[Any, ...]) -> Run:
    return data(0, *rows, is_sorted=False)


@pytest.mark.parametrize("memory", [1, 300, 4096, MEMORY])
def test_two_merges_agree_where_the_base_repeats_a_key(memory: int) -> None:
    base, log = repeated(("a", 5, "first"), ("b", 1, "b"), ("a", 9, "second"), ("b", 2, "b")), data(1, ("a", 3, "log"))
    wanted = [("a", 9, "second"), ("b", 1, "b"), ("b", 2, "b")]
    assert sorted(hashed(base, log, rule=EVENT, memory=memory)) == wanted
    assert merged(base, log, rule=EVENT) == wanted
    vectors = merge_vectors([base, log], EVENT, memory=memory)
    assert [[vector.is_dead(row) for row in range(vector.rows)] for vector in vectors] == [
        [True, False, False, False],
        [True],
    ]


def test_the_merged_row_stands_where_the_first_one_stood() -> None:
    base = repeated(("c", 1, "c"), ("a", 5, "x"), ("b", 1, "b"), ("a", 9, "y"), ("a", 7, "z"))
    assert hashed(base, data(1, ("a", 9, "log"), ("d", 1, "d")), rule=EVENT) == [
        ("c", 1, "c"),
        ("a", 9, "log"),
        ("b", 1, "b"),
        ("d", 1, "d"),
    ]


def test_a_delete_takes_all_base_rows_of_its_key() -> None:
    base = repeated(("a", 5, "x"), ("a", 9, "y"), ("b", 1, "b"))
    assert hashed(base, deletes(1, ("a", None)), rule=EVENT) == [("b", 1, "b")]
    assert hashed(base, deletes(1, ("a", 7)), rule=EVENT) == [("a", 9, "y"), ("b", 1, "b")]


def test_columns_that_a_partial_log_lacks_come_from_the_last_base_row() -> None:
    base = repeated(("a", 1, "old"), ("a", 1, "new"))
    log = data(1, ("a", 2), schema=pa.schema([(KEY, pa.string()), ("ts", pa.int64())]), is_partial=True)
    assert hashed(base, log) == merged(base, log) == [("a", 2, "new")]


def test_a_tie_is_decided_against_the_base_row_that_counts() -> None:
    schema = pa.schema([("_hoodie_commit_time", pa.string()), *SCHEMA])
    base = data(0, ("005", "a", 9, "base"), ("001", "a", 5, "older"), schema=schema, is_sorted=False)
    log = data(3, ("003", "a", 9, "log"), schema=schema)
    assert merged(base, log, rule=EVENT) == hashed(base, log, rule=EVENT) == [("a", 9, "base")]


def test_only_keys_of_a_base_file_that_may_repeat_them_are_read_twice() -> None:
    opened: list[str] = []
    base = repeated(("a", 5, "x"), ("b", 1, "b"))

    def noting(run: Run) -> Run:
        def rows(wanted: int) -> Iterator[pa.RecordBatch]:
            opened.append("rows")
            return run.open(wanted)

        def keys(wanted: int) -> Iterator[pa.RecordBatch]:
            opened.append("keys")
            for batch in run.open(wanted):
                yield batch.select([KEY])

        return replace(run, open=rows, open_keys=keys)

    log = data(1, ("a", 9, "log"))
    for run, wanted in (
        (base, ["keys", "rows"]),
        (replace(base, is_unique=True), ["rows"]),
        (replace(base, is_sorted=True), ["rows"]),
    ):
        opened.clear()
        assert hashed(noting(run), log) == [("a", 9, "log"), ("b", 1, "b")]
        assert opened == wanted


def test_a_file_that_lies_about_its_keys_is_refused_by_name() -> None:
    base = replace(repeated(("a", 5, "x"), ("a", 6, "y")), is_unique=True)
    with pytest.raises(CorruptTable, match="log 0: marked as having unique keys, but 'a' comes twice"):
        hashed(base, data(1, ("a", 9, "log")))


# ---------------------------------------------------------------- columns that are too large to be joined
def test_a_sort_buffer_ends_where_a_column_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concat, "LARGEST_COLUMN", 4000)
    batches = [
        pa.RecordBatch.from_pylist([{KEY: f"{n}-{m}", "ts": m, "v": "x" * 100} for m in range(10)], schema=SCHEMA)
        for n in range(9)
    ]
    run = Run(1, False, lambda _: iter(batches))
    facts = RunFacts([run], COMMIT, SCHEMA)
    with Spill() as spill:
        row_ranges = list(sort_runs([(0, run)], facts, spill, buffer_bytes=1 << 30, keep_bytes=1 << 30))
    assert [row_range.num_rows for row_range in row_ranges] == [30, 30, 30]
    assert rows_of(sorted_merge([run], COMMIT, SCHEMA, memory=1 << 30)) == sorted(
        (row[KEY], row["ts"], row["v"]) for batch in batches for row in batch.to_pylist()
    )
    base = data(0, ("0-0", 1, "old"), is_sorted=False)
    assert len(hashed(base, run, memory=1 << 30)) == 90


# ---------------------------------------------------------------- merge vectors
def test_vectors_of_many_dead_rows_take_a_bit_each() -> None:
    base = data(0, *((f"k{n:05}", 1, "") for n in range(5000)))
    log = data(1, *((f"k{n:05}", 2, "") for n in range(0, 5000, 2)))
    vectors, order = merge_order([base, log], COMMIT, memory=64 << 10)
    assert [(vector.rows, vector.dead, len(vector.words)) for vector in vectors] == [(5000, 2500, 79), (2500, 0, 40)]
    assert [row for row in range(5000) if vectors[0].is_dead(row)] == list(range(0, 5000, 2))
    assert order.tolist() == [1, 0] * 2500
