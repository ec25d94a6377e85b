"""Single operations in their corners: repeats, deletes with and without ordering, keys without partitions, counts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.expression.predicate import is_in
from lakebed.model.schema import RECORD_KEY
from tests.unit.write.tables import SCHEMA, make, row, table, values

DELETABLE = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))


# ---------------------------------------------------------------------- repeats
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_inserts_keep_repeats_in_the_default_layout(table_type: str) -> None:
    t = make(table_type=table_type, layout="default", index="simple")
    assert t.insert(table(row("k", v=1), row("k", v=2))).inserted == 2
    assert t.insert(table(row("k", v=3), row("j", v=4))).inserted == 2  # beside the others in their file
    assert t.inspect.file_slices().num_rows == 1
    assert values(t, "id", "v") == [("j", 4), ("k", 1), ("k", 2), ("k", 3)]
    folded = t.insert(table(row("i", 1, v=5), row("i", 2, v=6)), options={"hoodie.combine.before.insert": "true"})
    assert folded.inserted == 1
    assert values(t, "id", "v")[0] == ("i", 6)
    t.upsert(table(row("j", 2, v=7)))
    assert values(t, "id", "v") == [("i", 6), ("j", 7), ("k", 1), ("k", 2), ("k", 3)]


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_inserts_into_a_sorted_layout_have_one_row_per_key(index: str) -> None:
    t = make(index=index)
    t.insert(table(row("k", 1, v=1), row("k", 3, v=2), row("k", 2, v=3)))
    assert values(t, "id", "v") == [("k", 2)]


def test_a_hash_keeps_keys_single_in_any_layout() -> None:
    t = make(layout="default", table_type="cow")
    t.insert(table(row("k", 1, v=1), row("k", 2, v=2)))
    t.insert(table(row("k", 3, v=3)))
    assert values(t, "id", "v") == [("k", 3)]


# ---------------------------------------------------------------------- deletes
def test_an_ordered_delete_beats_older_rows_that_come_later() -> None:
    t = make(schema=DELETABLE)
    t.upsert(table(row("k", 5), row("j", 5), schema=DELETABLE))
    t.upsert(table(row("k", 7, _hoodie_is_deleted=True), schema=DELETABLE))
    t.upsert(table(row("k", 6, v=1), schema=DELETABLE))
    assert values(t, "id") == [("j",)]
    t.upsert(table(row("k", 7, v=2), schema=DELETABLE))
    assert values(t, "id", "v") == [("j", 0), ("k", 2)]


def test_an_older_delete_does_nothing() -> None:
    for table_type in ("cow", "mor"):
        t = make(schema=DELETABLE, table_type=table_type)
        t.upsert(table(row("k", 5), schema=DELETABLE))
        t.upsert(table(row("k", 4, _hoodie_is_deleted=True), schema=DELETABLE))
        assert values(t, "id") == [("k",)]


@pytest.mark.parametrize("log_format", ["v1", "v2"])
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_delete_and_insert_in_one_batch(table_type: str, layout: str, log_format: str) -> None:
    t = make(schema=DELETABLE, table_type=table_type, layout=layout, log_format=log_format)
    t.upsert(table(*(row(f"k{n}", 9, v=n) for n in range(5)), schema=DELETABLE))
    t.upsert(
        table(
            row("k1", None, _hoodie_is_deleted=True),
            row("k1", 2, v=10),
            row("k2", None, _hoodie_is_deleted=True),
            row("k3", 3, v=11),
            row("k4", None, _hoodie_is_deleted=True),
            row("k4", 4, v=12, _hoodie_is_deleted=True),
            schema=DELETABLE,
        )
    )
    assert values(t, "id", "v") == [("k0", 0), ("k1", 10), ("k3", 3)]
    t.upsert(table(row("k1", 1, v=13), schema=DELETABLE))  # late again, for k1 stands at 2 now
    assert values(t, "id", "v") == [("k0", 0), ("k1", 10), ("k3", 3)]


def test_keys_alone_are_deleted_in_every_partition() -> None:
    t = make()
    t.upsert(table(*(row(f"k{n}", p=p) for n in range(20) for p in "abc")))
    t.delete(keys=["k1", "k7", "nobody"])
    assert len(values(t)) == 54
    t.delete(keys=pa.array(["k2"]))
    t.delete(keys=pa.table({"id": ["k3"], "p": ["a"]}))
    assert len(values(t)) == 50
    assert t.scan(filter="id IN ('k1', 'k2', 'k7')").count() == 0


def test_a_look_up_reads_the_buckets_of_the_keys_only() -> None:
    t = make(num_buckets=8)
    t.upsert(table(*(row(f"k{n}", p=p) for n in range(40) for p in "ab")))
    slices = t.inspect.file_slices().num_rows
    plan = t.scan(filter=is_in(pa.field(RECORD_KEY, pa.string()), ["k1"])).plan()
    assert len(plan.splits) == 2 < slices


def test_composite_and_number_keys_are_found() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("p", pa.string())])
    rows = pa.table({"a": [1, 1, 2, -3], "b": ["x", "y", "x", "z"], "p": ["m", "n", "m", "n"]}, schema=schema)
    t = make(schema=schema, record_key=["a", "b"], ordering=None)
    t.upsert(rows)
    t.delete(keys=[{"a": 1, "b": "y"}, {"a": 2, "b": "nothing"}])
    t.delete(keys=[{"a": -3, "b": "z", "p": "n"}])
    with pytest.raises(lakebed.InvalidRequest, match="more columns than others"):
        t.delete(keys=[{"a": 1, "b": "x"}, {"a": -3, "b": "z", "p": "n"}])
    assert values(t, "a", "b") == [(1, "x"), (2, "x")]
    t = make(schema=schema, record_key="a", ordering=None)
    t.upsert(rows.slice(1))
    t.delete(keys=[2, -3])
    assert values(t, "a") == [(1,)]


# ---------------------------------------------------------------------- tables without keys
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_without_keys(table_type: str) -> None:
    t = make(table_type=table_type, record_key=None, ordering=None, index="simple")
    for number in range(3):
        t.insert(table(row("x", v=number), row("x", v=number + 10)))
    keys = t.scan().select(RECORD_KEY).to_arrow().column(0).to_pylist()
    assert len(set(keys)) == 6
    t.update(set={"v": "v + 100"}, where="v >= 10")
    t.delete(where="v = 1")
    assert values(t, "id", "v") == [("x", 0), ("x", 110), ("x", 111), ("x", 112), ("x", 2)]
    assert set(t.scan().select(RECORD_KEY).to_arrow().column(0).to_pylist()) < set(keys)


# ---------------------------------------------------------------------- nothing to do
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_writes_of_nothing_are_commits_without_files(table_type: str) -> None:
    t = make(table_type=table_type)
    nothing = table()
    done = t.upsert(nothing)
    assert (done.inserted, done.updated, done.deleted, done.files) == (0, 0, 0, ())
    t.insert(table(row("k")))
    for result in (
        t.insert(nothing),
        t.upsert(nothing),
        t.delete(keys=[]),
        t.delete(where="v > 10"),
        t.delete(keys=["nobody"]) if table_type == "cow" else t.delete(where="false"),
        t.update(set={"v": "v + 1"}, where="v > 10"),
        t.overwrite_partitions(nothing),
    ):
        assert result.files == ()
        assert result.completion_time > result.instant
    assert t.scan().count() == 1
    t.overwrite(nothing)
    assert t.scan().count() == 0
    assert len(lakebed.open(t.url).inspect.timeline()) == 10


# ---------------------------------------------------------------------- counts
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_copy_on_write_counts_exactly(layout: str) -> None:
    t = make(table_type="cow", layout=layout, schema=DELETABLE, num_buckets=1)

    def counts(result: lakebed.CommitResult) -> tuple[int, int, int]:
        return result.inserted, result.updated, result.deleted

    assert counts(t.upsert(table(*(row(f"k{n}", 5) for n in range(10)), schema=DELETABLE))) == (10, 0, 0)
    batch = table(
        row("k1", 6),  # an update
        row("k2", 4),  # too late
        row("n1", 1),
        row("n2", 1),  # new
        row("k3", 6, _hoodie_is_deleted=True),
        row("k4", 6, _hoodie_is_deleted=True),
        row("nobody", 6, _hoodie_is_deleted=True),
        schema=DELETABLE,
    )
    assert counts(t.upsert(batch)) == (2, 1, 2)
    assert counts(t.delete(where="id IN ('k5', 'k6', 'n1')")) == (0, 0, 3)
    assert counts(t.update(set={"v": "1"}, where="id > 'k6'")) == (0, 4, 0)
    assert counts(t.overwrite(table(row("a"), row("b"), schema=DELETABLE))) == (2, 0, 0)


def test_merge_on_read_counts_rows_in_logs_as_updates() -> None:
    t = make()
    first = t.upsert(table(row("k1"), row("k2")))
    assert (first.inserted, first.updated) == (2, 0)
    then = t.upsert(table(row("k1", 2), row("k2", 2)))
    assert (then.inserted, then.updated, then.deleted) == (0, 2, 0)
    last = t.delete(keys=[{"id": "k1", "p": "a"}])
    assert (last.updated, last.deleted) == (0, 1)
    assert len(last.files) == 1


# ---------------------------------------------------------------------- schemas that grow
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_new_columns_and_wider_numbers(table_type: str, layout: str) -> None:
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False), ("ts", pa.int64()), ("p", pa.string()), ("v", pa.int32())]
    )
    t = make(schema=schema, table_type=table_type, layout=layout)
    t.upsert(pa.table({"id": ["a", "b"], "ts": [1, 1], "p": ["x", "x"], "v": pa.array([1, 2], pa.int32())}))
    first = t.schema
    wider = pa.table({"id": ["b", "c"], "ts": [2, 2], "p": ["x", "x"], "v": [2.5, 1e300], "new": ["n", None]})
    done = t.upsert(wider)
    assert t.schema.field("v").type == pa.float64()
    assert t.schema.field("new").type == pa.string()
    assert values(t, "id", "v", "new") == [("a", 1.0, None), ("b", 2.5, "n"), ("c", 1e300, None)]
    t.upsert(pa.table({"id": ["a"], "ts": [3], "p": ["x"], "v": pa.array([7], pa.int32()), "new": ["m"]}))
    assert values(t, "id", "v", "new")[0] == ("a", 7.0, "m")
    t.update(set={"new": "'u'"}, where="id = 'c'")
    t.delete(keys=["b"])
    assert values(t, "id", "new") == [("a", "m"), ("c", "u")]
    with pytest.raises(lakebed.InvalidRequest, match="lacks the column"):
        t.upsert(pa.table({"id": ["a"], "ts": [3], "p": ["x"], "v": [1.0]}))
    before = t.inspect.timeline().column("instant").to_pylist()[0]
    assert t.scan(as_of=before).to_arrow().schema.names == first.names
    assert '"name": "id", "type": "string"' in (t.inspect.body(done.instant).schema_json or "")  # still required


def test_a_schema_history_by_column_ids_goes_on(golden_copy: object) -> None:
    path: Path = golden_copy("mor_schema_evo_v9")  # type: ignore[operator]
    t = lakebed.open(path, drop_metadata=True)
    before = t.scan().to_arrow()
    own = before.select([name for name in before.schema.names if not name.startswith("_hoodie")])
    done = t.upsert(own.slice(0, 2))
    assert "latest_schema" in t.inspect.body(done.instant).extra  # type: ignore[union-attr]
    after = t.scan().to_arrow()
    key = own.schema.names[0]
    assert after.select(own.schema.names).sort_by(key) == own.sort_by(key)
    with pytest.raises(lakebed.InvalidRequest, match="history"):
        t.upsert(own.slice(0, 1).append_column("another", pa.array([1])))
