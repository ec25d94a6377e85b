"""Options and keys of writes in other types than text: they work, or are refused with a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lakebed
from tests.bad_input.conftest import refused

ROWS = pa.table({"id": ["a", "b", "c"], "p": ["x", "y", "x"], "ts": [1, 1, 1], "v": [1, 2, 3]})


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    t = lakebed.create(tmp_path / "t", ROWS, record_key="id", partition_by="p", ordering="ts", num_buckets=2)
    t.insert(ROWS)
    return t


@pytest.mark.parametrize(
    "keys",
    [
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        pd.Series(["a", "b"]),
        pd.DataFrame({"id": ["a", "b"]}),
        pd.DataFrame({"id": ["a", "b"], "p": ["x", "y"]}),
        pd.Index(["a", "b"]),
        pa.array(["a", "b"]),
        pa.chunked_array([["a"], ["b"]]),
        pa.table({"id": ["a", "b"], "more": [1, 2]}),
        ("a", "b"),
        {"a", "b"},
        (key for key in "ab"),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_in_many_forms(table: lakebed.Table, keys: Any) -> None:
    table.delete(keys=keys)
    assert table.scan(columns=["id"]).to_arrow().to_pylist() == [{"id": "c"}]


@pytest.mark.parametrize(
    "keys",
    [
        np.array([1, 2]),
        np.array([["a", "b"]]),
        pd.Series([1.5]),
        pd.DataFrame({"other": ["a"]}),
        pa.table({"id": [1]}),
        7,
        "a",
        [object()],
        [{"id.x": "a"}],
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_that_are_none(table: lakebed.Table, keys: Any, tmp_path: Path) -> None:
    with refused(lakebed.InvalidRequest, "key|column", at=tmp_path):
        table.delete(keys=keys)


@pytest.mark.parametrize(
    "keys", [[], np.array([], dtype=str), pd.Series([], dtype=str)], ids=lambda k: type(k).__name__
)
def test_no_keys_delete_nothing(table: lakebed.Table, keys: Any) -> None:
    table.delete(keys=keys)
    assert table.scan().count() == 3


@pytest.mark.parametrize(
    ("own", "keys"),
    [
        (pa.int32(), [1.5]),
        (pa.int32(), [{"k": 1.5}]),
        (pa.int32(), np.array([1.5])),
        (pa.float32(), [2**24 + 1]),
        (pa.timestamp("us"), [pd.Timestamp(1001)]),
        (pa.timestamp("us"), pd.Series(pd.to_datetime([1001]))),
    ],
    ids=str,
)
def test_keys_are_not_rounded(tmp_path: Path, own: pa.DataType, keys: Any) -> None:
    rows = pa.table({"k": pa.array([1, 2**24], pa.int64()).cast(own), "v": [1, 2]})
    t = lakebed.create(tmp_path / "t", rows, record_key="k")
    t.upsert(rows)
    with refused(lakebed.InvalidRequest, "'k'|not fit", at=tmp_path):
        t.delete(keys=keys)
    t.delete(keys=rows.column("k").to_pylist())
    assert t.scan().count() == 0


@pytest.mark.parametrize("key", ["a", {"m.id": "a"}, {"m": {"id": "a"}}], ids=str)
@pytest.mark.parametrize("partition_by", [None, "p"])
def test_keys_inside_a_struct(tmp_path: Path, partition_by: str | None, key: Any) -> None:
    rows = pa.table({"m": [{"id": "a"}, {"id": "b"}], "p": ["x", "x"]})
    t = lakebed.create(tmp_path / "t", rows, record_key="m.id", partition_by=partition_by)
    t.upsert(rows)
    t.delete(keys=[key])
    assert t.scan(columns=["m"]).to_arrow().to_pylist() == [{"m": {"id": "b"}}]


def test_option_values_in_their_own_types(table: lakebed.Table) -> None:
    merged = "hoodie.spark.sql.merge.into.partial.updates"
    more = {"hoodie.populate.meta.fields": True, "hoodie.parquet.max.file.size": 1 << 20, merged: False}
    table.upsert(ROWS, options={**more, "hoodie.index.bloom.fpp": 0.01})
    table.merge(ROWS, "t.id = s.id", options=more).when_matched_update(set={"v": "s.v + 1"}).execute()
    lakebed.open(table.url, options=more).update(set={"v": "v + 1"})
    assert sorted(table.refresh().scan().to_arrow().column("v").to_pylist()) == [3, 4, 5]


@pytest.mark.parametrize(
    "options",
    [
        ["a"],
        "hoodie.index.type",
        7,
        {1: "x"},
        {"hoodie.index.type": None},
        {"hoodie.index.type": ["BUCKET"]},
        {"hoodie.populate.meta.fields": False},
        {"hoodie.populate.meta.fields": b"true"},
    ],
    ids=str,
)
def test_options_that_are_none(table: lakebed.Table, options: Any, tmp_path: Path) -> None:
    for request in (
        lambda: table.upsert(ROWS, options=options),
        lambda: table.delete(keys=["a"], options=options),
        lambda: table.update(set={"v": "1"}, options=options),
        lambda: table.merge(ROWS, "t.id = s.id", options=options).when_matched_delete().execute(),
    ):
        with refused(lakebed.InvalidRequest, "option|made with", at=tmp_path):
            request()
