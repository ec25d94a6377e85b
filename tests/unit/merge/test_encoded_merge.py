"""Text that repeats goes through a merge behind dictionaries; whoever decodes it sees the same rows as without."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from lakebed.merge.arrow_numpy import index_array, memory_of, take_rows
from lakebed.merge.record_merger import MergeMode, MergeRule, register_merger
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.merge.spill import repeating_text
from lakebed.model.concat import plain_parts

ROWS = 6000
SCHEMA = pa.schema([("k", pa.string()), ("id", pa.string()), ("word", pa.string()), ("rare", pa.string())])
RULE = MergeRule(key="k", mode=MergeMode.COMMIT_TIME)


def rows(seed: int, *, coded: bool = False, without: tuple[str, ...] = ()) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    keys = pa.array([f"key-{number:05}" for number in rng.integers(0, 2 * ROWS, ROWS)])
    words = pa.array([None if number == 7 else f"word-{number}" for number in rng.integers(0, 50, ROWS)])
    rare = pa.array([f"{seed}-{number}" for number in range(ROWS)])
    columns = {"k": keys, "id": keys, "word": words.dictionary_encode() if coded else words, "rare": rare}
    return pa.RecordBatch.from_pydict({name: column for name, column in columns.items() if name not in without})


def run(age: int, *batches: pa.RecordBatch, is_delete: bool = False) -> Run:
    def opened(_rows: int) -> Iterator[pa.RecordBatch]:
        yield from batches

    nbytes = sum(batch.nbytes for batch in batches)
    return Run(age=age, is_sorted=False, open=opened, nbytes=nbytes, is_delete=is_delete)


def both(runs: list[Run], memory: int) -> tuple[pa.Table, pa.Table, list[pa.RecordBatch]]:
    values = pa.Table.from_batches(list(sorted_merge(runs, RULE, SCHEMA, memory=memory)))
    coded = list(sorted_merge(runs, RULE, SCHEMA, memory=memory, encoded=True))
    return values, pa.Table.from_batches([part for batch in coded for part in plain_parts(batch)]), coded


def is_coded(batch: pa.RecordBatch, name: str) -> bool:
    return bool(pa.types.is_dictionary(batch.schema.field(name).type))


@pytest.mark.parametrize("memory", [64 << 20, 400 << 10])
def test_the_rows_are_the_same_with_and_without_dictionaries(memory: int) -> None:
    values, decoded, coded = both([run(1, rows(1), rows(2)), run(2, rows(3))], memory)
    assert values.num_rows > ROWS
    assert decoded.equals(values)
    if memory > 1 << 20:
        assert all(is_coded(batch, "word") for batch in coded)
    assert not any(is_coded(batch, name) for batch in coded for name in ("k", "id", "rare"))


def test_runs_that_come_coded_plain_and_without_the_column_mix() -> None:
    runs = [run(1, rows(1, coded=True), rows(2)), run(2, rows(3, without=("word",))), run(3, rows(4, coded=True))]
    values, decoded, _ = both(runs, 64 << 20)
    assert decoded.equals(values)
    assert values.column("word").null_count > ROWS // 50


def test_tombstones_beside_coded_rows() -> None:
    gone = rows(1).select(["k"]).slice(0, 100)
    values, decoded, _ = both([run(1, rows(1)), run(2, gone, is_delete=True)], 64 << 20)
    assert decoded.equals(values)
    assert not set(gone.column("k").to_pylist()) & set(values.column("k").to_pylist())


def test_text_that_does_not_repeat_stays_as_it_is() -> None:
    different = pa.array([str(number) for number in range(ROWS)])
    assert repeating_text(different) is different
    nothing = pa.nulls(ROWS, pa.string())
    assert repeating_text(nothing) is nothing
    few = pa.array(["a"] * 10)
    assert repeating_text(few) is few
    front = pa.array(["same"] * (ROWS // 2) + [str(number) for number in range(ROWS // 2)])
    assert repeating_text(front) is front
    large = pa.array(["x" * 100_000 + str(number % 10) for number in range(1100)])
    assert repeating_text(large) is large


def test_a_column_under_two_names_is_taken_once() -> None:
    taken = take_rows(rows(1), index_array(np.array([5, 1, 1], np.int64)))
    assert taken.column("k").to_pylist() == taken.column("id").to_pylist()
    assert memory_of(taken.column("k")) == memory_of(taken.column("id"))
    keys = pa.array([f"{number:05}" for number in reversed(range(ROWS))])
    once = rows(1).set_column(0, "k", keys).set_column(1, "id", keys)
    batch = next(iter(sorted_merge([run(1, once)], RULE, SCHEMA, memory=64 << 20, encoded=True)))
    assert memory_of(batch.column("k")) == memory_of(batch.column("id"))
    apart = rows(1)
    assert memory_of(apart.column("k").slice(1)) != memory_of(apart.column("k"))


@pytest.mark.parametrize("memory", [64 << 20, 400 << 10])
def test_rows_of_a_merger_of_ones_own_beside_coded_rows(memory: int) -> None:
    class Newer:
        def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
            return newer

    register_merger("test.newer", Newer)
    custom = MergeRule(key="k", mode=MergeMode.CUSTOM, merger="test.newer")
    runs = [run(1, rows(1), rows(2)), run(2, rows(3))]
    coded = list(sorted_merge(runs, custom, SCHEMA, memory=memory, encoded=True))
    decoded = pa.Table.from_batches([part for batch in coded for part in plain_parts(batch)])
    assert decoded.equals(pa.Table.from_batches(list(sorted_merge(runs, RULE, SCHEMA, memory=memory))))
