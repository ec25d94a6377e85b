"""MERGE: clauses in their order, what is refused, partial rows, and random merges against a dictionary."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.datafile.log_file import open_log_file
from lakebed.storage.open import open_storage
from lakebed.table import Table
from tests.unit.write.tables import SCHEMA, Row, files, make, row, table, values

SOURCE = pa.schema(
    [("id", pa.string()), ("p", pa.string()), ("qty", pa.int64()), ("gone", pa.bool_()), ("ts", pa.int64())]
)
PARTIAL = "hoodie.spark.sql.merge.into.partial.updates"


def src(ident: str | None, qty: int = 0, p: str = "a", gone: bool = False, ts: int = 5) -> Row:
    return {"id": ident, "p": p, "qty": qty, "gone": gone, "ts": ts}


def source(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SOURCE)


def filled(**settings: Any) -> Table:
    t = make(**settings)
    t.upsert(table(*(row(f"k{n}", 2, "ab"[n % 2], n, f"t{n}") for n in range(6))))
    return t


KINDS = [
    {"table_type": table_type, "index": index, "layout": layout}
    for table_type, index, layout in (
        ("mor", "bucket", "lsm_tree"),
        ("cow", "bucket", "default"),
        ("mor", "simple", "default"),
        ("cow", "bloom", "lsm_tree"),
        ("mor", "global_simple", "lsm_tree"),
    )
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind.values()))


@kinds
def test_the_first_clause_that_holds_decides(kind: dict[str, str]) -> None:
    t = filled(**kind)
    before = len(t.inspect.timeline())
    done = (
        t.merge(
            source(
                src("k0", 10),
                src("k1", 11, "b", gone=True),
                src("k2", -1),
                src("k3", 13, "b"),
                src("n1", 20),
                src("n2", -5),
            ),
            on="t.id = s.id",
        )
        .when_matched_delete(condition="s.gone")
        .when_matched_update(set={"v": "t.v + s.qty", "txt": "'one'"}, condition="s.qty > 10")
        .when_matched_update(set={"txt": "'two'", "ts": "s.ts"}, condition="s.qty > 0")
        .when_not_matched_insert({"id": "s.id", "p": "s.p", "ts": "s.ts", "v": "s.qty * 2"}, condition="s.qty > 0")
        .execute()
    )
    assert len(t.inspect.timeline()) == before + 1
    assert done.deleted == 1
    assert values(t, "id", "ts", "v", "txt") == [
        ("k0", 5, 0, "two"),
        ("k2", 2, 2, "t2"),
        ("k3", 2, 16, "one"),
        ("k4", 2, 4, "t4"),
        ("k5", 2, 5, "t5"),
        ("n1", 5, 40, None),
    ]


@kinds
def test_all_columns(kind: dict[str, str]) -> None:
    t = filled(**kind)
    updates = table(row("k1", 3, "b", 100, "x"), row("n", 3, "b", 101, "y"))
    t.merge(updates, on="t.id = s.id AND t.p = s.p").when_matched_update_all().when_not_matched_insert_all().execute()
    assert values(t, "id", "v")[1] == ("k1", 100)
    assert values(t, "id", "v")[-1] == ("n", 101)
    assert len(values(t)) == 7


@kinds
def test_rows_that_no_source_row_matches(kind: dict[str, str]) -> None:
    t = filled(**kind)
    (
        t.merge(source(src("k0"), src("k1", p="b")), on="t.id = s.id")
        .when_not_matched_by_source_delete(condition="t.v > 4")
        .when_not_matched_by_source_update(set={"txt": "concat(t.txt, '!')"}, condition="t.v > 3")
        .execute()
    )
    assert values(t, "id", "txt") == [("k0", "t0"), ("k1", "t1"), ("k2", "t2"), ("k3", "t3"), ("k4", "t4!")]


@kinds
def test_a_row_may_move_to_another_partition(kind: dict[str, str]) -> None:
    t = filled(**kind)
    t.merge(table(row("k1", 3, "c", 7)), on="t.id = s.id").when_matched_update_all().execute()
    assert [item for item in values(t, "id", "p", "v") if item[0] == "k1"] == [("k1", "c", 7)]
    t.merge(table(row("k1", 4, "d", 8)), on="t.id = s.id and t.p = s.p").when_matched_update_all().execute()
    assert [item for item in values(t, "id", "p", "v") if item[0] == "k1"] == [("k1", "c", 7)]  # nothing met


def test_keys_without_partitions_meet_in_every_partition() -> None:
    t = make()
    t.upsert(table(row("k", p="a", v=1), row("k", p="b", v=2)))
    t.merge(source(src("k", 5)), on="s.id = t.id").when_matched_update(set={"v": "v + qty"}).execute()
    assert values(t, "p", "v") == [("a", 6), ("b", 7)]
    t.merge(source(src("k", 5, "b")), on="s.id = t.id AND t.p = s.p").when_matched_update(set={"v": "0"}).execute()
    assert values(t, "p", "v") == [("a", 6), ("b", 0)]


def test_columns_of_other_names_and_types_and_rows_without_keys() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    t = make(schema=schema, record_key=["a", "b"], ordering=None, partition_by=None)
    t.insert(pa.table({"a": [1, 2], "b": ["x", "y"], "v": [1, 2]}, schema=schema))
    given = pa.table(
        {"left": pa.array([1, 2, None], pa.int32()), "right": pa.array(["x", None, "y"], pa.large_string())}
    )
    t.merge(given, on="t.a = s.left AND t.b = s.right").when_matched_update(set={"v": "10"}).execute()
    assert values(t) == [(1, "x", 10), (2, "y", 2)]


def test_a_builder_is_a_value() -> None:
    t = filled()
    first = t.merge(source(src("k0", 1)), on="t.id = s.id")
    second = first.when_matched_delete()
    assert first.clauses == ()
    assert second.execute().deleted == 1
    assert second.execute().deleted == 0
    with pytest.raises(lakebed.InvalidRequest, match="needs a clause"):
        first.execute()


REFUSED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no key": ("every key column", lambda t: t.merge(source(), on="t.p = s.p").when_matched_delete()),
    "no equality": ("equalities", lambda t: t.merge(source(), on="t.id > s.id").when_matched_delete()),
    "one side only": ("equalities", lambda t: t.merge(source(), on="t.id = t.txt").when_matched_delete()),
    "another column": (
        "no key or partition",
        lambda t: t.merge(source(), on="t.id = s.id AND t.v = s.qty").when_matched_delete(),
    ),
    "a constant": ("equalities", lambda t: t.merge(source(), on="t.id = 'k'").when_matched_delete()),
    "or": ("equalities", lambda t: t.merge(source(), on="t.id = s.id OR t.p = s.p").when_matched_delete()),
    "unknown source column": ("nothing", lambda t: t.merge(source(), on="t.id = s.nothing").when_matched_delete()),
    "set the key": ("part of the key", lambda t: _on(t).when_matched_update({"id": "s.id"})),
    "set the partition": ("part of the key", lambda t: _on(t).when_matched_update({"p": "s.p"})),
    "set nothing": ("nothing to set", lambda t: _on(t).when_matched_update({})),
    "unknown column": ("no column", lambda t: _on(t).when_matched_update({"nothing": "1"})),
    "bad type": ("does not fit", lambda t: _on(t).when_matched_update({"v": "s.id"})),
    "bad condition": ("not true or false", lambda t: _on(t).when_matched_delete("s.qty")),
    "the table in an insert": (
        "'id'|t.id",
        lambda t: _on(t).when_not_matched_insert({"id": "t.id", "p": "s.p", "ts": "1"}),
    ),
    "the source in an orphan": ("qty", lambda t: _on(t).when_not_matched_by_source_delete("s.qty > 1")),
    "insert without a key": ("'id'", lambda t: _on(t).when_not_matched_insert({"v": "1"})),
    "insert without ordering": ("'ts'", lambda t: _on(t).when_not_matched_insert({"id": "s.id", "p": "s.p"})),
    "source repeats a key": (
        "several rows",
        lambda t: t.merge(source(src("k0", 1), src("k0", 2)), on="t.id = s.id").when_matched_delete(),
    ),
    "insert of a null key": (
        "null",
        lambda t: t.merge(
            source(src(None, 1)).drop_columns(["qty", "gone"]), on="t.id = s.id"
        ).when_not_matched_insert_all(),
    ),
    "insert of columns that the table lacks": (
        "lacks: qty. Drop",
        lambda t: (
            t.merge(source(src("new", 1)), on="t.id = s.id")
            .when_matched_delete(condition="s.gone")
            .when_not_matched_insert_all()
        ),
    ),
    "update of columns that the table lacks": (
        "lacks: qty, gone. Drop",
        lambda t: t.merge(source(src("k0", 1)), on="t.id = s.id").when_matched_update_all(),
    ),
    "partial updates that are neither on nor off": (
        "neither true nor false",
        lambda t: t.merge(source(src("k0", 1)), on="t.id = s.id", options={PARTIAL: "maybe"}).when_matched_update(
            set={"v": "s.qty"}
        ),
    ),
}


def _on(t: Table) -> Any:
    return t.merge(source(src("k0", 1)), on="t.id = s.id")


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_leaves_nothing(what: str) -> None:
    t = filled()
    before = files(t)
    message, builder = REFUSED[what]
    with pytest.raises(lakebed.InvalidRequest, match=message):
        builder(t).execute()
    assert files(t) == before


# ---------------------------------------------------------------------- partial rows
def log_columns(t: Table, path: str) -> list[tuple[bool, list[str]]]:
    """Whether each data block of a log is partial, and its columns."""
    found = []
    for block in open_log_file(open_storage(t.url), path).blocks:
        if block.schema_json:
            names = [item["name"] for item in json.loads(block.schema_json)["fields"]]
            found.append((block.is_partial, names))
    return found


@pytest.mark.parametrize("log_format", ["v1", "v2"])
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_updates_of_some_columns_write_only_those(log_format: str, layout: str) -> None:
    t = filled(log_format=log_format, layout=layout, num_buckets=1)
    done = t.merge(source(src("k2", 9)), on="t.id = s.id").when_matched_update(set={"v": "s.qty"}).execute()
    [(is_partial, names)] = log_columns(t, done.files[0])
    assert is_partial
    assert [name for name in names if not name.startswith("_hoodie")] == ["ts", "v"]
    assert values(t, "id", "p", "v", "txt")[2] == ("k2", "a", 9, "t2")
    t.merge(source(src("k2", 8)), on="t.id = s.id").when_matched_update(set={"txt": "'new'"}).execute()
    t.upsert(table(row("k4", 1, "a", 0, "late"), row("k0", 3, "a", 50, "whole")))
    t.merge(source(src("k0", 8)), on="t.id = s.id").when_matched_update(set={"txt": "null", "ts": "s.ts"}).execute()
    assert values(t, "id", "ts", "v", "txt") == [
        ("k0", 5, 50, None),
        ("k1", 2, 1, "t1"),
        ("k2", 2, 9, "new"),
        ("k3", 2, 3, "t3"),
        ("k4", 2, 4, "t4"),
        ("k5", 2, 5, "t5"),
    ]
    whole = t.merge(source(src("k1", 9, "b")), on="t.id = s.id", options={PARTIAL: "false"})
    done = whole.when_matched_update(set={"v": "s.qty"}).execute()
    [(is_partial, names)] = log_columns(t, done.files[0])
    assert not is_partial
    assert set(SCHEMA.names) <= set(names)


@pytest.mark.parametrize(("log_format", "partial"), [("v1", False), ("v2", True)])
def test_where_a_column_marks_deleted_rows_inline_logs_get_whole_rows(log_format: str, partial: bool) -> None:
    """Hudi 1.2 takes the mark of a partial row from its place in the whole row: it loses the row, or fails."""
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    t = make(schema=schema, log_format=log_format, num_buckets=1)
    t.upsert(table(row("k0", 1, "a", 1, "t", _hoodie_is_deleted=False), schema=schema))
    done = t.merge(source(src("k0", 9)), on="t.id = s.id").when_matched_update(set={"v": "s.qty"}).execute()
    [(is_partial, names)] = log_columns(t, done.files[0])
    assert (is_partial, "txt" in names) == (partial, not partial)
    assert values(t, "id", "v", "txt") == [("k0", 9, "t")]


def test_partial_rows_have_the_shape_that_real_hudi_gives_them(golden: Callable[[str], Path]) -> None:
    real = lakebed.open(golden("mor_partial_v9"))
    logs = [
        f"{file_slice['partition']}/{name}"
        for file_slice in real.inspect.file_slices().to_pylist()
        for name in file_slice["logs"]
    ]
    shapes = {(is_partial, tuple(names)) for path in logs for is_partial, names in log_columns(real, path)}
    t = filled(num_buckets=1, log_format="v1")
    done = t.merge(source(src("k2", 9)), on="t.id = s.id").when_matched_update({"v": "s.qty", "ts": "s.ts"}).execute()
    [(is_partial, names)] = log_columns(t, done.files[0])
    assert (is_partial, tuple(names)) in shapes


# ---------------------------------------------------------------------- against a dictionary
@kinds
@pytest.mark.parametrize("partial", ["true", "false"])
def test_random_merges(kind: dict[str, str], partial: str) -> None:
    chance = random.Random(f"{kind}{partial}")
    t = make(**kind, partition_by=None)
    held: dict[str, Row] = {}
    for _ in range(4):
        rows = [row(f"k{n}", 1, v=chance.randrange(50), txt=f"t{n}") for n in chance.sample(range(30), 12)]
        rows = [item for item in rows if item["id"] not in held]
        t.upsert(table(*rows))
        held |= {item["id"]: item for item in rows}
        given = [
            src(f"k{n}", chance.randrange(-9, 10), gone=chance.random() < 0.3) for n in chance.sample(range(40), 15)
        ]
        merge = t.merge(source(*given), on="t.id = s.id", options={PARTIAL: partial})
        only_updates = chance.random() < 0.5
        merge = merge.when_matched_update({"v": "t.v - s.qty", "txt": "s.id"}, "s.qty > 3 AND t.v > 20")
        if not only_updates:
            merge = merge.when_matched_delete("s.gone")
            merge = merge.when_not_matched_insert({"id": "s.id", "p": "s.p", "ts": "1", "v": "s.qty"}, "s.qty > 0")
        merge = merge.when_matched_update({"v": "s.qty"}, "s.qty < 0")
        merge.execute()
        for item in given:
            old, qty = held.get(item["id"]), item["qty"]
            if old is None:
                if not only_updates and qty > 0:
                    held[item["id"]] = row(item["id"], 1, v=qty)
            elif qty > 3 and old["v"] > 20:
                held[item["id"]] = old | {"v": old["v"] - qty, "txt": item["id"]}
            elif not only_updates and item["gone"]:
                del held[item["id"]]
            elif qty < 0:
                held[item["id"]] = old | {"v": qty}
        assert values(t, *SCHEMA.names) == sorted(tuple(item.values()) for item in held.values())


def test_a_source_larger_than_its_memory_lies_on_disk() -> None:
    t = make(partition_by=None)
    t.insert(table(*(row(f"k{n:05d}", v=n, txt="x" * 50) for n in range(3_000))))

    def batches() -> Any:
        for start in range(0, 20_000, 1_000):
            yield table(*(row(f"k{n:05d}", 2, v=-n, txt="y" * 400) for n in range(start, start + 1_000))).to_batches()[
                0
            ]

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    done = t.merge(reader, on="t.id = s.id", memory="4MB").when_matched_update({"v": "s.v"}).execute()
    assert done.updated == 3_000
    found = t.scan().select("v").to_arrow().column(0).to_pylist()
    assert sorted(found) == [-n for n in range(2_999, -1, -1)]
