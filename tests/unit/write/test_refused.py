"""What is wrong with a request is found before the write begins: the table is left as it was, byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table
from tests.unit.write.tables import SCHEMA, files, make, row, table, values

Request = Callable[[Table], Any]


def without(name: str) -> pa.Table:
    return table(row("x")).drop_columns([name])


def retyped(name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    good = table(*(row(f"x{n}") for n in range(len(values))))
    at = good.schema.get_field_index(name)
    return good.set_column(at, name, pa.array(values, kind))


def broken_stream() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield table(row("x")).to_batches()[0]
        raise lakebed.InvalidRequest("the source broke")

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


REQUESTS: dict[str, Request] = {
    "text for a number": lambda t: t.upsert(retyped("v", ["many"])),
    "number for a text": lambda t: t.upsert(retyped("txt", [1])),
    "time for a number": lambda t: t.insert(retyped("v", [1], pa.timestamp("us"))),
    "null key": lambda t: t.upsert(pa.table({**_columns(), "id": pa.array([None], pa.string())})),
    "empty key": lambda t: t.upsert(table(row("x"), row(""))),
    "null ordering": lambda t: t.upsert(table(row("x"), row("y", None))),
    "no key column": lambda t: t.upsert(without("id")),
    "no ordering column": lambda t: t.upsert(without("ts")),
    "no partition column": lambda t: t.upsert(without("p")),
    "missing column": lambda t: t.upsert(without("v")),
    "column twice": lambda t: t.upsert(
        pa.Table.from_arrays([*table(row("x")).columns, pa.array([1])], names=[*SCHEMA.names, "v"])
    ),
    "column that differs by case": lambda t: t.upsert(table(row("x")).append_column("V", pa.array([1]))),
    "partition outside the table": lambda t: t.upsert(table(row("x", p="x/../../../y"))),
    "stream that breaks": lambda t: t.upsert(broken_stream()),
    "no data": lambda t: t.upsert([{"id": "x"}]),
    "nothing at all": lambda t: t.upsert(None),
    "bad bulk insert": lambda t: t.bulk_insert(retyped("v", ["many"])),
    "bad overwrite": lambda t: t.overwrite(retyped("v", ["many"])),
    "bad overwrite of partitions": lambda t: t.overwrite_partitions(table(row(""))),
    "delete without a condition": lambda t: t.delete(),
    "delete by two": lambda t: t.delete(where="v = 1", keys=["k"]),
    "delete by an unknown column": lambda t: t.delete(where="nothing = 1"),
    "delete by no condition": lambda t: t.delete(where="v + 1"),
    "delete by bad SQL": lambda t: t.delete(where="v = = 1"),
    "delete by keys of another type": lambda t: t.delete(keys=[1, 2]),
    "delete by one text": lambda t: t.delete(keys="k"),
    "delete by unknown columns": lambda t: t.delete(keys=[{"nothing": 1}]),
    "delete by half a key": lambda t: t.delete(keys=[{"p": "a"}]),
    "delete of an unknown partition": lambda t: t.delete_partitions(["p=zz"]),
    "delete of a partition by text": lambda t: t.delete_partitions("p=a"),
    "update of nothing": lambda t: t.update(set={}),
    "update of an unknown column": lambda t: t.update(set={"nothing": "1"}),
    "update of the key": lambda t: t.update(set={"id": "'x'"}),
    "update of the partition": lambda t: t.update(set={"p": "'x'"}),
    "update by a value that does not fit": lambda t: t.update(set={"v": "txt"}),
    "update by an unknown column": lambda t: t.update(set={"v": "nothing"}),
    "update by null ordering": lambda t: t.update(set={"ts": "null"}),
    "bad option": lambda t: t.upsert(table(row("x")), options={"hoodie.parquet.max.file.size": "large"}),
    "bad index": lambda t: t.upsert(table(row("x")), options={"hoodie.index.type": "NOTHING"}),
    "other bucket count": lambda t: t.upsert(table(row("x")), options={"hoodie.bucket.index.num.buckets": "1"}),
    "bad memory": lambda t: t.upsert(table(row("x")), memory="much"),
}


def _columns() -> dict[str, Any]:
    good = table(row("x"))
    return dict(zip(good.schema.names, good.columns, strict=True))


@pytest.mark.parametrize("what", REQUESTS)
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_nothing_is_left_behind(what: str, index: str) -> None:
    if what == "other bucket count":
        index = "bucket"
    t = make(index=index)
    t.upsert(table(*(row(f"k{n}", v=n, txt=f"t{n}") for n in range(8))))
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest) as raised:
        REQUESTS[what](t)
    assert files(t) == before, str(raised.value)
    assert len(values(t)) == 8


def test_a_table_without_keys_takes_inserts_only() -> None:
    t = make(record_key=None, ordering=None, index="simple")
    t.insert(table(row("x"), row("x")))
    before = files(t)
    for request in (
        lambda: t.upsert(table(row("x"))),
        lambda: t.delete(keys=["x"]),
    ):
        with pytest.raises(lakebed.InvalidRequest, match="no record key"):
            request()
    assert files(t) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mor_cdc_v9", "captures changes"),
        ("orc_cow_v9", "base files"),
    ],
)
def test_tables_that_are_only_read(name: str, why: str, golden_copy: Callable[[str], Path]) -> None:
    t = lakebed.open(golden_copy(name), drop_metadata=True)
    rows = t.scan().to_arrow()
    rows = rows.select([column for column in rows.schema.names if not column.startswith("_hoodie")]).slice(0, 1)
    with pytest.raises(lakebed.InvalidRequest, match=why):
        t.upsert(rows)
