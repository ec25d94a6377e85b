"""The model and the generator are judges, so they are tested too. No peer is needed here."""

from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest

from .differences import LISTED_DIFFERENCES, listed
from .model import Cell, Model, Version, bucket_of, java_hash
from .operations import Service, TableShape, Write, arrow_rows, arrow_schema, sample_row
from .rows import Answer, from_arrow, plain, row_difference, spark_type
from .workload import Workload, covering_shapes, possible_shapes


def row(key: str, ordering: int, number: int = 1, *, deleted: bool = False) -> dict[str, object]:
    return {**sample_row(key, "p0", ordering, number), "_hoodie_is_deleted": deleted}


def orderings(model: Model) -> dict[str, int | None]:
    return {key[1]: version.ordering for key, version in model.snapshot().items()}


def test_event_time_keeps_the_greater_ordering_and_lets_ties_to_the_later() -> None:
    model = Model(TableShape(table_type="cow"))
    model.apply(Write("insert", (row("a", 10), row("b", 10), row("c", 10))))
    model.apply(Write("upsert", (row("a", 9, 2), row("b", 10, 3), row("c", 11, 4))))
    assert {key[1]: version.write for key, version in model.snapshot().items()} == {"a": 1, "b": 2, "c": 2}


def test_commit_time_keeps_the_later() -> None:
    model = Model(TableShape(table_type="cow", event_time=False))
    model.apply(Write("insert", (row("a", 10),)))
    model.apply(Write("upsert", (row("a", 1),)))
    assert orderings(model) == {"a": 1}


def test_flagged_deletes_are_compared_and_deletes_by_key_are_not() -> None:
    model = Model(TableShape(table_type="cow"))
    model.apply(Write("insert", (row("a", 10), row("b", 10), row("c", 10))))
    model.apply(Write("upsert", (row("a", 9, deleted=True), row("b", 11, deleted=True))))
    model.apply(Write("delete", (row("c", 1),)))
    assert orderings(model) == {"a": 10}


def test_tombstones_live_in_logs_until_compaction() -> None:
    for compacted in (False, True):
        model = Model(TableShape())
        model.apply(Write("insert", (row("a", 10),)))
        model.apply(Write("upsert", (row("a", 20, deleted=True),)))
        if compacted:
            model.apply(Service("compact"))
        model.apply(Write("upsert", (row("a", 15),)))
        assert orderings(model) == ({"a": 15} if compacted else {})


def test_an_older_reinsert_is_the_listed_difference() -> None:
    model = Model(TableShape())
    model.apply(Write("insert", (row("a", 10),)))
    model.apply(Write("delete", (row("a", 10),)))
    model.apply(Write("upsert", (row("a", 5),)))
    cell = model.cells["p0", "a"]
    assert orderings(model) == {"a": 5}
    assert [version.ordering for version in model.hudi_snapshot().values()] == [10]
    assert listed(model, cell) is LISTED_DIFFERENCES[0]
    model.apply(Service("compact"))
    assert orderings(model) == {"a": 10}, "what Hudi compacted is what everybody reads"


def test_a_late_row_is_the_listed_incremental_difference() -> None:
    model = Model(TableShape())
    model.apply(Write("insert", (row("a", 10), row("b", 10))))
    model.apply(Write("upsert", (row("a", 5), row("b", 20))))
    assert [key[1] for key in model.incremental(1)] == ["b"]
    assert sorted(key[1] for key in model.hudi_incremental(1)) == ["a", "b"]
    assert listed(model, model.cells["p0", "a"], 1) is LISTED_DIFFERENCES[1]
    assert listed(model, model.cells["p0", "b"], 1) is None


def test_a_log_compacted_block_counts_by_what_it_covers() -> None:
    model = Model(TableShape(buckets=1))
    model.apply(Write("insert", (row("a", 10), row("b", 10), row("c", 10))))
    model.apply(Write("upsert", (row("a", 20),)))
    model.apply(Write("upsert", (row("b", 30),), riders=("log_compact",)))
    model.apply(Write("upsert", (row("c", 40),)))
    assert [sorted(key[1] for key in model.hudi_incremental(after)) for after in (2, 3, 4)] == [
        ["a", "b", "c"],
        ["c"],
        ["c"],
    ]
    assert [sorted(key[1] for key in model.incremental(after)) for after in (2, 3, 4)] == [["a", "b", "c"]] * 2 + [
        ["c"]
    ]
    assert listed(model, model.cells["p0", "a"], 3) is LISTED_DIFFERENCES[2]
    assert listed(model, model.cells["p0", "a"], 2) is None


def test_a_planned_compaction_covers_what_was_logged_before_it() -> None:
    model = Model(TableShape())
    model.apply(Write("insert", (row("a", 10),)))
    model.apply(Write("upsert", (row("a", 20),)))
    model.apply(Service("plan_compact"))
    model.apply(Write("upsert", (row("a", 30),)))
    model.apply(Service("run_compact"))
    assert model.cells["p0", "a"].base == Version(2, 20, model.cells["p0", "a"].base.row)  # type: ignore[union-attr]
    assert [version.ordering for version in model.cells["p0", "a"].log] == [30]


def test_overwrite_and_delete_partition_forget_whole_partitions() -> None:
    model = Model(TableShape())
    model.apply(Write("insert", (row("a", 10), {**row("b", 10), "p": "p1"})))
    model.apply(Write("insert_overwrite", (row("c", 1),)))
    assert set(model.snapshot()) == {("p0", "c"), ("p1", "b")}
    model.apply(Write("delete_partition", ({**row("none", 1), "p": "p1"},)))
    assert set(model.snapshot()) == {("p0", "c")}


def test_bucket_numbers_follow_java() -> None:
    assert java_hash("abc") == 96354
    assert java_hash("polygenelubricants") == 0x80000000, "Java's smallest integer"
    assert bucket_of("abc", 7) == (31 + 96354) % 7


@pytest.mark.parametrize("event_time", [True, False])
@pytest.mark.parametrize("fills", [True, False])
def test_no_fold_differs_without_a_listed_reason(event_time: bool, fills: bool) -> None:
    """All histories of four versions: whenever the two folds differ, the list says why."""
    versions = [("put", 1), ("put", 2), ("put", 3), ("flag", 2), ("del", 0)]
    model = Model(TableShape(event_time=event_time, fills=fills))
    rows = {(i, ts): {"ts": ts, "v": i if ts % 2 else None} for i in range(4) for ts in range(4)}
    for base, *logs in itertools.product(versions[:3], versions, versions, versions):
        made = [
            Version(i + 1, None if kind == "del" else ts, rows[i, ts] if kind == "put" else None)
            for i, (kind, ts) in enumerate((base, *logs))
        ]
        cell = Cell(made[0], tuple(made[1:]))
        up, first = model.fold_up(cell), model.logs_first(cell)
        seen = [None if v is None or v.is_delete else v for v in (up, first)]
        assert seen[0] == seen[1] or listed(model, cell) is not None, (base, logs)


@pytest.mark.parametrize("shape", [TableShape(), TableShape(index="simple"), TableShape("cow", event_time=False)])
def test_a_seed_decides_everything(shape: TableShape) -> None:
    first, again = (list(Workload(shape, 7).operations()) for _ in range(2))
    assert str(first) == str(again)
    assert str(first) != str(list(Workload(shape, 8).operations()))


def test_generated_rows_fit_the_schema() -> None:
    workload = Workload(TableShape(), 3, steps=40)
    for operation in workload.operations():
        if isinstance(operation, Write):
            assert arrow_rows(operation.rows, arrow_schema(workload.shape, workload.added)).num_rows > 0


def test_a_dozen_shapes_cover_every_index_and_version() -> None:
    chosen = list(itertools.islice(covering_shapes(1), 12))
    assert {shape.index for shape in chosen} == {shape.index for shape in possible_shapes()}
    assert {(shape.version, shape.table_type) for shape in chosen} == {
        (8, "mor"),
        (9, "mor"),
        (8, "cow"),
        (9, "cow"),
    }


def test_rows_are_compared_as_multisets() -> None:
    one = Answer(("a",), ("bigint",), ((1,), (2,), (2,)))
    assert row_difference(one, Answer(("a",), ("bigint",), ((2,), (1,), (2,)))) == ""
    assert row_difference(one, Answer(("a",), ("bigint",), ((1,), (2,)))) != ""


def test_canonical_values_tell_maps_from_lists() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.float64()))
    table = pa.table({"m": pa.array([[("k", [math.nan, 1.0])], []], kind)})
    assert from_arrow(table).rows == (({"k": ["NaN", 1.0]},), ({},))
    assert spark_type(kind) == "map<string,array<double>>"
    assert plain(b"\x00") == {"b64": "AA=="}
