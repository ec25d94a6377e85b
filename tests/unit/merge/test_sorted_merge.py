from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.config import memory_plan
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.merge import sorted_merge as module
from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.merge_vector import merge_vectors
from lakebed.merge.record_merger import MergeMode, MergeRule, Op, PartialUpdateMode, merger_for, register_merger
from lakebed.merge.runs import OP_COLUMN, Run
from lakebed.merge.sorted_merge import sorted_merge

KEY = "_hoodie_record_key"
SCHEMA = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("v", pa.string())])
DELETES = pa.schema([(KEY, pa.string()), ("ts", pa.int64())])
COMMIT = MergeRule()
EVENT = MergeRule(MergeMode.EVENT_TIME, ordering=("ts",))
MEMORY = 64 << 20


def data(age: int, *rows: tuple[Any, ...], is_sorted: bool = True, **more: Any) -> Run:
    columns = more.pop("schema", SCHEMA)
    batch = pa.RecordBatch.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], schema=columns)
    return Run(age, is_sorted, lambda _: iter([batch]), label=f"log {age}", requested_time=f"{age:03d}", **more)


def deletes(age: int, *rows: tuple[Any, ...]) -> Run:
    return data(age, *rows, schema=DELETES, is_delete=True)


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def merged(*runs: Run, rule: MergeRule = COMMIT, schema: pa.Schema = SCHEMA, **more: Any) -> list[tuple[Any, ...]]:
    return rows_of(sorted_merge(list(runs), rule, schema, memory=MEMORY, **more))


# ---------------------------------------------------------------- edges
def test_no_run_and_empty_runs() -> None:
    assert merged() == []
    assert merged(data(0)) == []
    assert merged(data(0), data(1), deletes(2)) == []
    assert merged(data(0), data(1, ("a", 1, "x"))) == [("a", 1, "x")]


def test_deletes_only() -> None:
    assert merged(deletes(1, ("a", None)), deletes(2, ("b", 3))) == []


def test_one_key_in_all_of_64_runs() -> None:
    runs = [data(age, ("a", 64 - age, f"v{age}"), (f"b{age:02d}", 0, "own")) for age in range(64)]
    assert merged(*runs)[0] == ("a", 1, "v63")
    assert merged(*runs, rule=EVENT)[0] == ("a", 64, "v0")
    assert len(merged(*runs)) == 65


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_key_group_across_a_window_edge_stays_whole(size: int) -> None:
    def run(age: int, keys: str) -> Run:
        def batches(_: int) -> Iterator[pa.RecordBatch]:
            for start in range(0, len(keys), size):
                part = [{KEY: key, "ts": age, "v": f"{key}{age}"} for key in keys[start : start + size]]
                yield pa.RecordBatch.from_pylist(part, schema=SCHEMA)

        return Run(age, True, batches)

    found = rows_of(sorted_merge([run(0, "abcdefg"), run(1, "cdh"), run(2, "dg")], EVENT, SCHEMA, memory=1))
    assert [value for _, _, value in found] == ["a0", "b0", "c1", "d2", "e0", "f0", "g2", "h1"]


def test_a_base_file_alone_keeps_its_order_and_duplicates() -> None:
    base = data(0, ("b", 1, "x"), ("a", 1, "y"), ("a", 1, "z"), is_sorted=False)
    assert merged(base) == [("b", 1, "x"), ("a", 1, "y"), ("a", 1, "z")]


def test_duplicates_in_a_base_file_fold_only_where_a_log_has_a_say() -> None:
    base = data(0, ("b", 1, "x"), ("a", 1, "y"), ("a", 1, "z"), ("b", 1, "w"), is_sorted=False)
    assert merged(base, data(1, ("b", 2, "new"))) == [("a", 1, "y"), ("a", 1, "z"), ("b", 2, "new")]
    hashed = rows_of(hash_merge([base, data(1, ("b", 2, "new"))], COMMIT, SCHEMA, memory=MEMORY))
    assert hashed == [("b", 2, "new"), ("a", 1, "y"), ("a", 1, "z")]


def test_the_later_row_of_an_unsorted_run_is_the_newer_one() -> None:
    log = data(1, ("b", 1, "x"), ("a", 5, "first"), ("a", 3, "second"), is_sorted=False)
    assert merged(log) == [("a", 3, "second"), ("b", 1, "x")]
    assert merged(log, rule=EVENT) == [("a", 5, "first"), ("b", 1, "x")]


def test_a_run_that_lies_about_its_order_is_refused_by_name() -> None:
    with pytest.raises(CorruptTable, match="log 1: marked as sorted"):
        merged(data(0, ("a", 1, "x")), data(1, ("c", 1, "x"), ("b", 1, "y")))
    with pytest.raises(CorruptTable, match="log 1: a row has no record key"):
        merged(data(0, ("a", 1, "x")), data(1, (None, 1, "x")))
    with pytest.raises(CorruptTable, match="log 1: has no column _hoodie_record_key"):
        merged(data(0, ("a", 1, "x")), data(1, (1,), schema=pa.schema([("ts", pa.int64())])))
    with pytest.raises(CorruptTable, match="column ts"):
        merged(data(0, ("a", 1, "x")), data(1, ("a", "x"), schema=pa.schema([(KEY, pa.string()), ("ts", pa.string())])))


def test_missing_columns_are_null_and_helpers_are_dropped() -> None:
    narrow = pa.schema([("v", pa.string())])
    old = data(1, ("a", 1), schema=DELETES)
    assert merged(data(0, ("b", 1, "x")), old, schema=narrow, rule=EVENT) == [(None,), ("x",)]


def test_ranges_of_one_run_go_out_without_a_copy() -> None:
    keys = [f"{n:06d}" for n in range(20_000)]
    base = pa.record_batch([pa.array(keys), pa.array(range(20_000)), pa.array(keys)], schema=SCHEMA)
    log = data(1, ("010000", 9, "new"))
    out = list(sorted_merge([Run(0, True, lambda _: iter([base])), log], COMMIT, SCHEMA, memory=MEMORY))
    own = base.column("ts").buffers()[1].address
    shared = [b for b in out if own <= b.column("ts").buffers()[1].address < own + base.column("ts").buffers()[1].size]
    assert sum(batch.num_rows for batch in shared) >= 18_000
    table = pa.Table.from_batches(out)
    assert table.num_rows == 20_000
    assert table.column("v")[10_000].as_py() == "new"


def test_nested_columns_survive() -> None:
    nested = pa.schema([(KEY, pa.string()), ("n", pa.list_(pa.struct([("x", pa.int32())])))])
    base = data(0, ("a", [{"x": 1}]), ("b", None), schema=nested)
    assert merged(base, data(1, ("b", [{"x": 2}, None]), schema=nested), schema=nested) == [
        ("a", [{"x": 1}]),
        ("b", [{"x": 2}, None]),
    ]


# ---------------------------------------------------------------- rules, case by case
def test_event_time_with_deletes() -> None:
    base = data(0, ("a", 10, "base"), ("b", 10, "base"), ("c", 10, "base"), ("d", 10, "base"))
    runs = [
        base,
        deletes(1, ("a", 20), ("b", 5), ("c", None), ("d", 20)),
        data(2, ("a", 15, "late"), ("c", 3, "again"), ("d", 30, "back")),
    ]
    assert merged(*runs, rule=EVENT) == [("b", 10, "base"), ("c", 3, "again"), ("d", 30, "back")]


def test_null_ordering_counts_as_zero() -> None:
    base = data(0, ("a", 10, "base"), ("b", None, "base"), ("c", None, "base"), ("d", None, "base"))
    log = data(1, ("a", None, "log"), ("b", None, "log"), ("c", -1, "log"), ("d", 0, "log"))
    assert [row[2] for row in merged(base, log, rule=EVENT)] == ["base", "log", "base", "log"]


def test_a_base_row_of_a_later_commit_wins_a_tie() -> None:
    schema = pa.schema([("_hoodie_commit_time", pa.string()), *SCHEMA])
    base = data(0, ("005", "a", 1, "base"), ("001", "b", 1, "base"), schema=schema)
    log = data(3, ("003", "a", 1, "log"), ("003", "b", 1, "log"), schema=schema)
    assert merged(base, log, rule=EVENT) == [("a", 1, "base"), ("b", 1, "log")]
    assert merged(base, deletes(3, ("a", 1), ("b", 1)), rule=EVENT) == [("a", 1, "base")]


@pytest.mark.parametrize(
    ("column", "kind", "value", "rule"),
    [
        ("_hoodie_is_deleted", pa.bool_(), True, COMMIT),
        ("_hoodie_operation", pa.string(), "D", COMMIT),
        ("_hoodie_operation", pa.large_string(), "-U", COMMIT),
        ("Op", pa.string(), "D", MergeRule(delete_field="Op", delete_marker="D")),
        ("code", pa.int32(), 3, MergeRule(delete_field="code", delete_marker="3")),
    ],
)
def test_delete_marks_in_data_rows(column: str, kind: pa.DataType, value: Any, rule: MergeRule) -> None:
    schema = SCHEMA.append(pa.field(column, kind))
    base = data(0, ("a", 1, "x", value), ("b", 1, "x", value), schema=schema)
    log = data(1, ("a", 1, "y", value), ("c", 1, "y", value), ("d", 1, "y", None), schema=schema)
    assert merged(base, log, rule=rule) == [("b", 1, "x"), ("d", 1, "y")]


def test_partial_logs_unite_their_columns() -> None:
    wide = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("w", pa.string())])
    base = data(0, ("a", 1, "v0", "w0"), ("b", 9, "v0", "w0"), schema=wide)
    one = data(1, ("a", 5, "v1"), ("b", 5, "v1"), ("c", 5, "v1"), is_partial=True)
    two = data(2, ("a", 6, "w2"), schema=pa.schema([wide.field(n) for n in (KEY, "ts", "w")]), is_partial=True)
    assert merged(base, one, two, rule=EVENT, schema=wide) == [
        ("a", 6, "v1", "w2"),
        ("b", 9, "v0", "w0"),
        ("c", 5, "v1", None),
    ]


def test_fills_follow_copy_on_write() -> None:
    fill = MergeRule(
        MergeMode.EVENT_TIME,
        ordering=("ts",),
        partial_update=PartialUpdateMode.FILL_UNAVAILABLE,
        unavailable_value="?",
    )
    binary = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("v", pa.binary())])
    base = data(0, ("a", 100, b"base"), ("b", 100, b"base"), schema=binary)
    first = data(1, ("a", 200, b"?"), schema=binary)
    again = data(3, ("b", 310, b"?"), schema=binary)
    assert merged(base, first, deletes(2, ("b", 300)), again, rule=fill, schema=binary) == [
        ("a", 200, b"base"),
        ("b", 310, b"?"),  # after a delete there is nothing to fill from
    ]
    ignore = MergeRule(MergeMode.EVENT_TIME, ordering=("ts",), partial_update=PartialUpdateMode.IGNORE_DEFAULTS)
    # the winner of 20 is complete before the late row of 15 arrives, which then has nothing to fill
    runs = [data(0, ("k", 10, "base")), data(1, ("k", 20, None)), data(2, ("k", 15, "late"))]
    assert merged(*runs, rule=ignore) == [("k", 20, "base")]


# ---------------------------------------------------------------- tombstones kept
@pytest.mark.parametrize("merge", [sorted_merge, hash_merge])
def test_log_compaction_keeps_tombstones_and_what_must_stand_before_the_data(merge: Any) -> None:
    runs = [
        data(1, ("a", 1, "old"), ("b", 1, "x"), ("d", 1, "x")),
        deletes(2, ("a", None), ("c", 7), ("d", None)),
        data(3, ("a", 0, "again")),
    ]
    found = list(merge(runs, EVENT, pa.schema([SCHEMA.field("v")]), memory=MEMORY, keep_deletes=True))
    assert found[0].schema.names == ["v", KEY, "ts", OP_COLUMN]
    rows = [(row[KEY], row["ts"], row["v"], row[OP_COLUMN]) for batch in found for row in batch.to_pylist()]
    assert rows == [
        ("a", None, None, Op.DELETE),
        ("a", 0, "again", Op.ROW),
        ("b", 1, "x", Op.ROW),
        ("c", 7, None, Op.DELETE_WITH_ORDERING),
        ("d", None, None, Op.DELETE),
    ]


def test_logs_that_cannot_be_merged_alone_are_refused() -> None:
    event_fill = MergeRule(MergeMode.EVENT_TIME, ordering=("ts",), partial_update=PartialUpdateMode.IGNORE_DEFAULTS)
    with pytest.raises(InvalidRequest, match="depends on the base below"):
        merged(data(1, ("a", 1, "x")), rule=event_fill, keep_deletes=True)
    with pytest.raises(InvalidRequest, match="partial updates"):
        merged(data(1, ("a", 1, "x"), is_partial=True), keep_deletes=True)


# ---------------------------------------------------------------- custom mergers
class Longest:
    """A merger over tables: the longer value wins."""

    calls = 0

    def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        Longest.calls += 1
        longer = pc.greater(pc.utf8_length(older["v"]), pc.utf8_length(newer["v"]))
        return newer.set_column(2, "v", pc.if_else(longer, older["v"], newer["v"]))


def test_a_custom_merger_is_called_once_per_round() -> None:
    register_merger("test.longest", Longest)
    rule = MergeRule(MergeMode.CUSTOM, merger="test.longest")
    base = data(0, *[(f"k{n}", 0, "base" * (n % 3)) for n in range(9)])
    logs = [data(age, *[(f"k{n}", age, "x" * age) for n in range(0, 9, 2)]) for age in (1, 2, 3)]
    Longest.calls = 0
    found = merged(base, *logs, rule=rule)
    assert Longest.calls == 3
    assert [row[2] for row in found] == ["xxx", "base", "basebase", "", "base", "basebase", "xxx", "base", "basebase"]


def test_a_merger_must_keep_rows_and_keys() -> None:
    class Short:
        def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
            return newer.slice(1)

    class Rename:
        def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
            return newer.set_column(0, KEY, pa.array(["other"] * len(newer)))

    for name, merger, match in (("short", Short, "answered 0 rows"), ("rename", Rename, "changed record keys")):
        register_merger(f"test.{name}", merger)
        with pytest.raises(InvalidRequest, match=match):
            merged(
                data(0, ("a", 1, "x")), data(1, ("a", 1, "y")), rule=MergeRule(MergeMode.CUSTOM, merger=f"test.{name}")
            )
    with pytest.raises(InvalidRequest, match="not registered"):
        merger_for("com.example.Unknown")


# ---------------------------------------------------------------- memory
def long_run(age: int, rows: int, step: int, live: list[int]) -> Run:
    def batches(wanted: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, wanted):
            numbers = range(start * step, min(start + wanted, rows) * step, step)
            keys = pa.array([f"{n:09d}" for n in numbers])
            live.append(pa.total_allocated_bytes())
            yield pa.record_batch([keys, pa.array(numbers), keys], schema=SCHEMA)

    return Run(age, True, batches, row_bytes=40)


def peak(rows: int, memory: int) -> int:
    gc.collect()
    start = pa.total_allocated_bytes()
    live: list[int] = []
    runs = [long_run(0, rows, 1, live), *(long_run(age, rows // 4, 4, live) for age in (1, 2, 3))]
    total = 0
    for batch in sorted_merge(runs, EVENT, SCHEMA, memory=memory):
        total += batch.num_rows
        live.append(pa.total_allocated_bytes())
    assert total == rows
    return max(live) - start


def test_memory_does_not_grow_with_the_files() -> None:
    memory = 2 << 20
    small, large = peak(120_000, memory), peak(480_000, memory)
    assert large < small * 1.25
    assert large < memory


def test_many_runs_in_little_memory_go_through_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    passes = []
    real = module._merged
    monkeypatch.setattr(module, "_merged", lambda chosen, *rest: passes.append(len(chosen)) or real(chosen, *rest))
    monkeypatch.setattr(memory_plan, "SMALLEST_WINDOW", 1 << 20)
    runs = [data(age, *[(f"k{n:03d}", age, f"{age}") for n in range(age % 3, 60, 3)]) for age in range(40)]
    merging = sorted_merge(runs, COMMIT, SCHEMA, memory=10 << 20)
    found = [next(merging)]
    assert list(tmp_path.iterdir())
    found += merging
    assert not list(tmp_path.iterdir())
    assert max(passes) <= 4 < sum(passes)
    assert rows_of(iter(found)) == merged(*runs)


def test_unsorted_runs_beyond_the_memory_are_sorted_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chance = np.random.default_rng(1)
    runs = [
        data(age, *[(f"k{n:05d}", age, "x" * 50) for n in chance.permutation(3000)[:1500]], is_sorted=False)
        for age in range(3)
    ]
    merging = sorted_merge(runs, COMMIT, SCHEMA, memory=200_000)
    first = next(merging)
    assert list(tmp_path.iterdir())
    merging.close()  # a reader that stops early leaves nothing behind
    assert not list(tmp_path.iterdir())
    found = rows_of(sorted_merge(runs, COMMIT, SCHEMA, memory=200_000))
    assert first.num_rows
    assert found == merged(*runs)
    assert [row[0] for row in found] == sorted({row[0] for row in found})


# ---------------------------------------------------------------- the other two doors
def test_hash_merge_keeps_base_order_and_puts_inserts_last() -> None:
    base = data(0, ("c", 1, "c0"), ("a", 1, "a0"), ("b", 1, "b0"), is_sorted=False)
    logs = [data(1, ("z", 1, "z1"), ("a", 2, "a1"), is_sorted=False), deletes(2, ("c", None))]
    found = rows_of(hash_merge([base, *logs], EVENT, SCHEMA, memory=MEMORY))
    assert found == [("a", 2, "a1"), ("b", 1, "b0"), ("z", 1, "z1")]
    assert sorted(rows_of(hash_merge([base, *logs], EVENT, SCHEMA, memory=64))) == sorted(found)


def test_merge_vectors_count_rows_in_file_order() -> None:
    base = data(0, *[(f"k{n:03d}", 10, "") for n in range(130)])
    log = data(1, ("k129", 11, ""), ("k000", 9, ""), ("k064", 10, ""), is_sorted=False)
    vectors = merge_vectors([base, log, deletes(2, ("k001", None))], EVENT)
    assert [(vector.rows, vector.dead) for vector in vectors] == [(130, 3), (3, 1), (1, 1)]
    assert [n for n in range(130) if vectors[0].is_dead(n)] == [1, 64, 129]
    assert vectors[0].words.tolist() == [1 << 1, 1 << 0, 1 << 1]
    assert [vectors[1].is_dead(n) for n in range(3)] == [False, True, False]
    with pytest.raises(InvalidRequest, match="whole records"):
        merge_vectors([data(1, ("a", 1, "x"), is_partial=True)], EVENT)


# ---------------------------------------------------------------- text behind dictionaries
def encoded(run: Run) -> Run:
    """The same run with its text column as numbers of a dictionary."""

    def opened(rows: int) -> Iterator[pa.RecordBatch]:
        for batch in run.open(rows):
            at = batch.schema.get_field_index("v")
            yield batch.set_column(at, "v", batch.column(at).dictionary_encode())

    return Run(
        run.age,
        run.is_sorted,
        opened,
        run.is_delete,
        run.is_partial,
        run.requested_time,
        run.row_bytes,
        None,
        run.label,
    )


@pytest.mark.parametrize("rule", [COMMIT, EVENT], ids=["commit", "event"])
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1), (0, 1, 2)])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_dictionaries_do_not_change_the_answer(rule: MergeRule, which: tuple[int, ...], is_sorted: bool) -> None:
    runs = [
        data(0, *((f"k{n:04}", 5, "base" if n % 3 else None) for n in range(3000))),
        data(1, *((f"k{n:04}", n % 11, f"log {n % 7}") for n in range(0, 3100, 3)), is_sorted=is_sorted),
        data(2, *((f"k{n:04}", 9, "late") for n in range(1, 3000, 50))),
        deletes(3, ("k0004", None), ("k0007", 2)),
    ]
    plain = merged(*runs, rule=rule)
    assert merged(*(encoded(run) if at in which else run for at, run in enumerate(runs)), rule=rule) == plain
    batch = next(sorted_merge([encoded(runs[0]), encoded(runs[1])], rule, SCHEMA, memory=MEMORY))
    assert batch.schema.field("v").type == pa.string()
