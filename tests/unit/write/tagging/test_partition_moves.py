"""Global indexes: a key is unique in the table, and its row may change partition."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from tests.conftest import expected
from tests.unit.write.tables import SCHEMA, make, row, table, values

DELETABLE = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
KINDS = [("cow", "global_bloom"), ("mor", "global_simple")]
kinds = pytest.mark.parametrize(("table_type", "index"), KINDS)


def gone(ident: str, ts: int | None, p: str) -> dict[str, Any]:
    return row(ident, ts, p, _hoodie_is_deleted=True)


@kinds
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_rows_move_as_real_hudi_moves_them(table_type: str, index: str, layout: str) -> None:
    name = {"cow": "cow_global_bloom_v9", "mor": "mor_global_simple_v9"}[table_type]
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
    schema = schema.append(pa.field("txt", pa.string())).append(pa.field("d", pa.float64()))
    t = make(schema=schema, table_type=table_type, index=index, layout=layout)

    def rows(numbers: range, ts: int, version: int, path: Any = lambda number: f"p{number % 2}") -> pa.Table:
        made = [
            {
                "id": f"k{number:04d}",
                "ts": ts,
                "p": path(number),
                "v": number * 10 + version,
                "txt": f"txt-{number}-{version}",
                "d": None if number % 7 == 0 else number / 4.0 + version,
            }
            for number in numbers
        ]
        return pa.Table.from_pylist(made, schema=schema)

    def second(number: int) -> str:
        return f"p{number % 2}" if (number * 10 + 2) % 3 == 0 else "p9"

    t.upsert(rows(range(50), 10, 1))
    t.upsert(rows(range(20), 20, 2, second))
    t.upsert(rows(range(20, 30), 5, 3, lambda _: "p9"))  # late: nothing moves
    t.upsert(rows(range(5), 30, 4))
    told = expected(name)["snapshot"]
    at = [told["columns"].index(column) for column in schema.names]
    assert values(t) == sorted(
        (tuple(item[place] for place in at) for item in told["rows"]), key=lambda item: list(map(str, item))
    )


@kinds
def test_a_late_row_does_not_move_its_key(table_type: str, index: str) -> None:
    t = make(table_type=table_type, index=index)
    t.upsert(table(row("k", 5, "a", 1)))
    t.upsert(table(row("k", 4, "b", 2)))
    assert values(t, "id", "p", "v") == [("k", "a", 1)]
    t.upsert(table(row("k", 5, "b", 3)))  # of equals the later one
    assert values(t, "id", "p", "v") == [("k", "b", 3)]
    t.upsert(table(row("k", 6, "a", 4)))
    assert values(t, "id", "p", "v") == [("k", "a", 4)]
    assert t.scan(filter="p = 'b'").count() == 0


@kinds
def test_one_batch_says_a_key_in_two_partitions(table_type: str, index: str) -> None:
    t = make(table_type=table_type, index=index)
    t.upsert(table(row("k", 5, "a", 1), row("k", 7, "b", 2), row("k", 6, "c", 3), row("j", 1, "c", 4)))
    assert values(t, "id", "p", "v") == [("j", "c", 4), ("k", "b", 2)]
    t.upsert(table(row("k", 9, "b", 5), row("k", 8, "a", 6)))
    assert values(t, "id", "p", "v") == [("j", "c", 4), ("k", "b", 5)]


@kinds
def test_without_ordering_the_last_of_a_batch_stands(table_type: str, index: str) -> None:
    t = make(table_type=table_type, index=index, ordering=None)
    t.upsert(table(row("k", 5, "a", 1), row("k", 1, "b", 2)))
    assert values(t, "id", "p", "v") == [("k", "b", 2)]
    t.upsert(table(row("k", 0, "c", 3)))
    assert values(t, "id", "p", "v") == [("k", "c", 3)]


@kinds
def test_deletes_go_where_the_key_is(table_type: str, index: str) -> None:
    t = make(table_type=table_type, index=index, schema=DELETABLE)
    t.upsert(table(row("j", 5, "a"), row("k", 5, "a"), row("l", 5, "b"), row("m", 5, "b"), schema=DELETABLE))
    t.delete(keys=[{"id": "j", "p": "elsewhere"}])
    t.upsert(table(gone("k", 6, "c"), gone("l", 4, "c"), gone("m", None, "c"), schema=DELETABLE))
    assert values(t, "id", "p") == [("l", "b")]


@kinds
def test_a_delete_without_ordering_lets_an_older_row_in(table_type: str, index: str) -> None:
    t = make(table_type=table_type, index=index, schema=DELETABLE)
    t.upsert(table(row("k", 5, "a", 1), row("l", 5, "a", 1), schema=DELETABLE))
    t.upsert(
        table(gone("k", None, "a"), row("k", 2, "b", 2), gone("l", None, "b"), row("l", 2, "a", 3), schema=DELETABLE)
    )
    assert values(t, "id", "p", "v") == [("k", "b", 2), ("l", "a", 3)]


@pytest.mark.parametrize("index", ["global_bloom", "global_simple"])
def test_a_key_may_be_told_to_stay(index: str) -> None:
    kind = index.removeprefix("global_")
    t = make(index=index, properties={f"hoodie.{kind}.index.update.partition.path": "false"})
    t.upsert(table(row("k", 5, "a", 1)))
    t.upsert(table(row("k", 6, "b", 2)))
    stays = [{"_hoodie_partition_path": "p=a", "p": "a", "v": 2}]
    assert t.scan().select("_hoodie_partition_path", "p", "v").to_arrow().to_pylist() == stays
    assert [t.scan(filter=f"p = '{p}'").count() for p in "ab"] == [1, 0]
    t.delete(where="p = 'a'")
    assert t.scan().count() == 0


STAY = {"hoodie.simple.index.update.partition.path": "false"}


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_a_key_that_stays_keeps_the_values_of_its_folder(table_type: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("n", pa.int32()), pa.field("day", pa.date32())])
    t = make(
        table_type=table_type, index="global_simple", partition_by=["p", "n", "day"], schema=schema, properties=STAY
    )
    one, two = dt.date(2026, 1, 1), dt.date(2026, 1, 2)
    t.upsert(table(row("k", 1, None, 1, n=1, day=one), row("l", 1, "a", 1, n=None, day=one), schema=schema))
    t.upsert(
        table(
            *(row("k", 2, "b", 2, n=2, day=two), row("l", 2, "b", 2, n=2, day=two), row("m", 2, "b", 2, n=2, day=two)),
            schema=schema,
        )
    )
    assert values(t, "id", "p", "n", "day", "v") == [
        ("k", None, 1, one, 2),
        ("l", "a", None, one, 2),
        ("m", "b", 2, two, 2),
    ]


def test_a_delete_that_names_another_partition_needs_no_values() -> None:
    t = make(index="global_simple", properties=STAY, schema=DELETABLE)
    t.upsert(table(row("k", 1, "a", 1), row("l", 1, "a", 1), schema=DELETABLE))
    t.upsert(table(gone("k", 2, "b"), row("l", 2, "b", 2), schema=DELETABLE))
    assert values(t, "id", "p", "v") == [("l", "a", 2)]


def test_a_folder_that_does_not_tell_its_values_keeps_no_other_rows() -> None:
    times = {
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy",
    }
    t = make(index="global_simple", partition_by="v", properties=STAY | times)
    t.upsert(table(row("k", 1, "a", 0)))
    t.upsert(table(row("k", 2, "a", 86_400)))  # the same year
    with pytest.raises(lakebed.InvalidRequest, match="does not determine its partition values"):
        t.upsert(table(row("k", 3, "a", 86_400 * 400)))
    assert values(t, "id", "ts", "v") == [("k", 2, 86_400)]


def test_versions_that_are_combined_do_not_move() -> None:
    t = make(index="global_simple", properties={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    t.upsert(table(row("k", 5, "a", 1)))
    with pytest.raises(lakebed.InvalidRequest, match="move to another partition"):
        t.upsert(table(row("k", 6, "b", None)))
    assert values(t, "id", "p", "v") == [("k", "a", 1)]


@kinds
@pytest.mark.parametrize("ordering", ["ts", None])
def test_a_row_that_moves_and_is_deleted_in_one_batch(table_type: str, index: str, ordering: str | None) -> None:
    """The row would go to its new partition and the delete to the old one: the batch must be settled before."""
    t = make(schema=DELETABLE, table_type=table_type, index=index, ordering=ordering)
    t.upsert(table(row("a", 1, "p0"), row("b", 1, "p0"), schema=DELETABLE))
    t.upsert(table(row("a", 2, "p1"), gone("a", 3, "p1"), gone("b", 2, "p1"), row("b", 3, "p1"), schema=DELETABLE))
    assert t.scan(columns=["id", "p"]).to_arrow().to_pylist() == [{"id": "b", "p": "p1"}]
