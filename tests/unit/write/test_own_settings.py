"""What a table keeps of itself: writers may repeat it, leave it out, and not change it; nor do they lose it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.config.write_options import Codec, WriteOptions
from lakebed.table import Table
from tests.unit.write.tables import files, make, row, table, values

COUNT = "hoodie.bucket.index.num.buckets"
TYPE = "hoodie.index.type"
ENGINE = "hoodie.index.bucket.engine"
HASH = "hoodie.bucket.index.hash.field"
WRITE = "hoodie.datasource.write."

CALLS: dict[str, Callable[[Table, Any], Any]] = {
    "upsert": lambda t, options: t.upsert(table(row("k", 2)), options=options),
    "insert": lambda t, options: t.insert(table(row("n")), options=options),
    "overwrite": lambda t, options: t.overwrite(table(row("k", 2)), options=options),
    "delete": lambda t, options: t.delete(where="id = 'k'", options=options),
    "delete by key": lambda t, options: t.delete(keys=["k"], options=options),
    "delete of a partition": lambda t, options: t.delete_partitions(["a"], options=options),
    "update": lambda t, options: t.update(set={"v": "9"}, options=options),
    "merge": lambda t, options: t.merge(table(row("k", 2)), "t.id = s.id", options).when_matched_update_all().execute(),
}
OTHERS = [
    {COUNT: "8"},
    {COUNT: 1},
    {TYPE: "SIMPLE"},
    {TYPE: ""},
    {ENGINE: "CONSISTENT_HASHING"},
    {HASH: "txt"},
    {f"{WRITE}recordkey.field": "txt"},
    {f"{WRITE}partitionpath.field": "id"},
    {f"{WRITE}precombine.field": "v"},
]
SAME: dict[str, Any] = {
    COUNT: " 2 ",
    TYPE: "bucket",
    ENGINE: "simple",
    HASH: "",
    f"{WRITE}recordkey.field": "id",
    f"{WRITE}partitionpath.field": "p:SIMPLE",
    f"{WRITE}precombine.field": "ts",
}


def filled(**settings: Any) -> Table:
    t = make(**settings)
    t.upsert(table(*(row(f"k{n}" if n else "k", v=n) for n in range(4))))
    return t


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_value_is_refused(call: str, other: dict[str, Any]) -> None:
    t = filled()
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match=next(iter(other))):
        CALLS[call](t, other)
    with pytest.raises(lakebed.InvalidRequest, match=next(iter(other))):
        CALLS[call](lakebed.open(t.url, options=other), None)
    assert files(t) == before


def test_another_number_of_buckets_when_opening_is_refused() -> None:
    t = filled()
    with pytest.raises(lakebed.InvalidRequest, match=f"made with {COUNT}=2, not '7'"):
        lakebed.open(t.url, num_buckets=7).upsert(table(row("k", 2)))
    lakebed.open(t.url, num_buckets=2).upsert(table(row("k", 2, v=7)))
    assert values(t.refresh(), "id", "v") == [("k", 7), ("k1", 1), ("k2", 2), ("k3", 3)]


def test_the_same_value_in_another_spelling_is_fine() -> None:
    t = filled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t.upsert(table(row("k", 2, v=7)), options=SAME)
    assert values(t, "id", "v") == [("k", 7), ("k1", 1), ("k2", 2), ("k3", 3)]


def test_a_misspelt_key_is_said_aloud() -> None:
    with pytest.warns(UserWarning, match=r"recordkey\.feild is ignored; did you mean .*recordkey\.field"):
        filled().upsert(table(row("k", 2)), options={f"{WRITE}recordkey.feild": "id"})


def codecs(path: Path) -> set[str]:
    found = [pq.ParquetFile(file).metadata.row_group(0).column(0).compression for file in path.glob("*.parquet")]
    return set(found)


@pytest.mark.parametrize("where", ["table", "open"])
def test_typed_options_lie_on_top_of_what_was_said_before(where: str, tmp_path: Path) -> None:
    gzip = {"hoodie.parquet.compression.codec": "gzip"}
    rows = table(row("k"), row("l"))
    lakebed.create(tmp_path / "t", rows, record_key="id", properties=gzip if where == "table" else None, num_buckets=1)
    t = lakebed.open(tmp_path / "t", options=gzip if where == "open" else None)
    t.insert(rows, options=WriteOptions(small_file_limit=0))
    assert codecs(tmp_path / "t") == {"GZIP"}
    t.overwrite(rows, options=WriteOptions(codec=Codec.SNAPPY))
    assert codecs(tmp_path / "t") == {"GZIP", "SNAPPY"}
