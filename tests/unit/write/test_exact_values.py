"""Columns that tell rows apart keep their values, to the last digit, and their text; or nothing is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table
from tests.unit.write.tables import files, make, row, table, values

DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def numbered(kind: pa.DataType, **settings: Any) -> Table:
    schema = pa.schema([("id", kind), ("p", kind), ("v", pa.int64())])
    return make(schema=schema, ordering=None, **settings)


def rows(kind: pa.DataType, *numbers: Any, v: int = 0, p: Any = 1) -> pa.Table:
    same = pa.array([p] * len(numbers), kind)
    return pa.table({"id": pa.array(numbers, kind), "p": same, "v": pa.array([v] * len(numbers), pa.int64())})


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize(
    ("own", "other"),
    [
        (pa.int32(), pa.float64()),
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.float32()),
        (pa.int32(), pa.int64()),
        (pa.float64(), pa.int32()),
        (pa.float32(), pa.float64()),
    ],
    ids=str,
)
def test_a_key_in_another_type_is_the_same_key(own: pa.DataType, other: pa.DataType, index: str) -> None:
    t = numbered(own, index=index)
    t.upsert(rows(own, 1, 2))
    t.upsert(rows(other, 1, 3, v=1))
    t.delete(keys=rows(other, 3))
    t.delete(keys=rows(other, 2).select(["id"]))
    assert values(t, "id", "p", "v") == [(1, 1, 1)]
    kept = pa.types.is_integer(own) and pa.types.is_floating(other)
    assert not kept or t.schema.field("id").type == own


@pytest.mark.parametrize(
    ("own", "bad"),
    [
        (pa.int32(), rows(pa.float64(), 1.5)),
        (pa.int32(), rows(pa.float64(), 1, p=float("nan"))),
        (pa.int64(), rows(pa.float64(), 1e300)),
        (pa.float64(), rows(pa.int64(), 2**53 + 1)),
        (pa.float32(), rows(pa.int32(), 1, p=2**24 + 1)),
    ],
)
def test_a_value_that_would_change_is_refused(own: pa.DataType, bad: pa.Table) -> None:
    t = numbered(own)
    t.upsert(rows(own, 1, 2))
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match=f"is {own} in the table, which"):
        t.upsert(bad)
    assert files(t) == before


def test_a_nested_key_keeps_its_text() -> None:
    schema = pa.schema([("m", pa.struct([("id", pa.int32())])), ("v", pa.int64())])
    t = make(schema=schema, record_key="m.id", partition_by=None, ordering=None)
    t.upsert(pa.Table.from_pylist([{"m": {"id": 1}, "v": 1}], schema=schema))
    t.upsert(pa.table({"m": [{"id": 1.0}], "v": [2]}))
    assert t.scan().to_arrow().select(["_hoodie_record_key", "v"]).to_pylist() == [{"_hoodie_record_key": "1", "v": 2}]
    with pytest.raises(lakebed.InvalidRequest, match=r"'m\.id'"):
        t.upsert(pa.table({"m": [{"id": 1.5}], "v": [2]}))


@pytest.mark.parametrize("role", ["record_key", "partition_by", "ordering"])
def test_nanoseconds_are_not_cut_off(role: str) -> None:
    def with_meta_columns(*times: int) -> pa.Table:
        return pa.table({"k": pa.array(times, pa.timestamp("ns")), "id": ["a"] * len(times), "v": range(len(times))})

    t = make(
        **{"schema": with_meta_columns(1000), "record_key": "id", "partition_by": None, "ordering": None} | {role: "k"}
    )
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match=r"'k' makes keys.*would lose data: 1001"):
        t.upsert(with_meta_columns(1000, 1001))
    assert files(t) == before
    t.upsert(with_meta_columns(2000))
    assert t.scan().count() == 1


def test_digits_of_other_columns_are_not_asked_for() -> None:
    data = pa.table({"id": ["a"], "at": pa.array([1001], pa.timestamp("ns"))})
    t = make(schema=data, partition_by=None, ordering=None)
    t.upsert(data)
    assert t.scan().to_arrow().column("at").cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_the_name_of_the_folder_for_null_is_no_value(index: str) -> None:
    t = make(index=index)
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match="the folder for null"):
        t.upsert(table(row("x"), row("y", p=DEFAULT)))
    assert files(t) == before
    allowed = {"lakebed.allow.ambiguous.keys": "true"}
    t.upsert(table(row("x", p=None), row("y", p=""), row("z", p=DEFAULT)), options=allowed)  # type: ignore[arg-type]
    assert [t.scan(filter=where).count() for where in ("p is null", "p = ''", f"p = '{DEFAULT}'")] == [1, 1, 1]
