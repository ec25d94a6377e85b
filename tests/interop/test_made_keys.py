"""Tables without meta fields, by the type of the key: real Hudi makes the same keys from columns, or loses rows.

The write matrix has such tables with text keys; here are the other types, and for those that `lakebed.create` refuses
the reason: what Hudi does to a table of its own.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

from .client import HudiPeer
from .hudi_writer import COMPACTION, HIVE, INDEX_OPTIONS, NO_METADATA, WRITE, upsert_options

NOON = dt.datetime(2020, 1, 1, 12, 0, 0, 123000, dt.UTC)
KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "long": (pa.int64(), lambda number: number * 7 - 20),
    "double": (pa.float64(), lambda number: number / 4),
    "timestamp": (pa.timestamp("us", "UTC"), lambda number: NOON + dt.timedelta(seconds=number)),
    "date": (pa.date32(), lambda number: dt.date(2020, 1, 1 + number)),
    "decimal": (pa.decimal128(12, 3), lambda number: decimal.Decimal(number) / 8),
    "binary": (pa.binary(), lambda number: bytes([65 + number, 66])),
}
PLACES = {number: f"p{number % 2}" for number in range(12)}
OFF = {"hoodie.populate.meta.fields": "false"}


def rows(kind: str, numbers: Iterable[int], ts: int, txt: str) -> pa.Table:
    type_, value = KEYS[kind]
    schema = pa.schema([("id", type_), ("n", pa.int64()), ("p", pa.string()), ("ts", pa.int64()), ("txt", pa.string())])
    made = [{"id": value(n), "n": n, "p": PLACES[n], "ts": ts, "txt": txt} for n in numbers]
    return pa.Table.from_pylist(made, schema=schema)


def options(table_type: str, operation: str, *, compact: bool = False) -> dict[str, str]:
    found = upsert_options("t", table_type, **NO_METADATA, **HIVE, **INDEX_OPTIONS["simple"], **OFF)
    found |= {f"{WRITE}operation": operation, "hoodie.write.table.version": "9"}
    if table_type == "mor":
        found |= {**COMPACTION, "hoodie.compact.inline": str(compact).lower()}
    return found


def shown(hudi: HudiPeer, path: Path) -> list[tuple[int, str]]:
    answer = hudi.read(path, columns=["n", "txt"])
    return sorted((row[0], row[1]) for row in answer["rows"])


@pytest.mark.interop
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", ["long", "double", "timestamp"])
def test_hudi_and_lakebed_make_the_same_keys(kind: str, table_type: str, hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = rows(kind, (), 0, "").schema
    settings = {"record_key": "id", "partition_by": "p", "ordering": "ts", "table_type": table_type}
    table = lakebed.create(path, schema, **settings, index="simple", log_format="v1", properties=OFF)
    model = dict.fromkeys(range(8), "first")

    def check() -> None:
        ours = lakebed.open(path).scan(columns=["n", "txt"]).to_arrow().to_pylist()
        assert sorted((row["n"], row["txt"]) for row in ours) == sorted(model.items())
        assert shown(hudi, path) == sorted(model.items())

    def delete(*numbers: int) -> None:
        given = rows(kind, numbers, 0, "").select(["id", "p"]).to_pylist()
        lakebed.open(path).delete(keys=given)
        for number in numbers:
            del model[number]

    table.insert(rows(kind, range(8), 1, "first"))
    table.upsert(rows(kind, (1, 2), 2, "ours"))
    model |= {1: "ours", 2: "ours"}
    delete(3, 4)
    check()
    hudi.write(path, rows(kind, (1, 5, 9), 3, "theirs"), options(table_type, "upsert"))
    model |= {1: "theirs", 5: "theirs", 9: "theirs"}
    hudi.write(path, rows(kind, (6,), 4, ""), options(table_type, "delete"))
    del model[6]
    check()
    lakebed.open(path).upsert(rows(kind, (1, 10), 5, "again"))
    model |= {1: "again", 10: "again"}
    delete(5)
    check()
    hudi.write(path, rows(kind, (0,), 6, "last"), options(table_type, "upsert", compact=True))
    model[0] = "last"
    check()
    assert [finding for finding in lakebed.open(path).check() if finding.severity == "error"] == []


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["date", "decimal", "binary"])
def test_keys_with_two_texts_are_refused_because_hudi_doubles_rows(kind: str, hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hudi.write(path, rows(kind, (1, 2), 1, "first"), options("cow", "insert"))
    hudi.write(path, rows(kind, (1,), 2, "second"), options("cow", "upsert"))
    assert shown(hudi, path) == [(1, "first"), (1, "second"), (2, "first")]
    with pytest.raises(lakebed.InvalidRequest, match="loses updates and deletes"):
        lakebed.open(path).upsert(rows(kind, (1,), 3, "third"))
