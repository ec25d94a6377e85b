"""Files of the LSM layout, whatever wrote them: in key order, every key once, with all columns; and who merges them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.model.schema import RECORD_KEY
from tests.unit.write.tables import files, make, row, table, values


def data_files(target: Any) -> dict[str, pa.Table]:
    """The rows of every Parquet file outside `.hoodie`, native logs included."""
    found = {path: body for path, body in files(target).items() if path.endswith(".parquet")}
    return {path: pq.read_table(io.BytesIO(body)) for path, body in found.items() if not path.startswith(".hoodie/")}


INDEXES = ("bucket", "consistent_bucket", "simple", "bloom", "global_simple", "global_bloom")


@pytest.mark.parametrize(
    ("table_type", "index"),
    [*(("mor", index) for index in INDEXES), *(("cow", index) for index in INDEXES if index != "consistent_bucket")],
)
def test_every_file_is_in_key_order_and_holds_a_key_once(table_type: str, index: str) -> None:
    t = make(table_type=table_type, index=index)
    t.bulk_insert(table(*(row(key, 1) for key in "qwertzuiopasdf")))
    t.insert(table(*(row(key, 1) for key in "yxcvbnmyxc")))
    t.upsert(table(*(row(key, number) for number, key in enumerate("zebrazebra", start=2))))
    t.delete(keys=["w", "a", "m"])
    held = data_files(t)
    assert len(held) >= 4
    for path, rows in held.items():
        keys = rows.column(RECORD_KEY).to_pylist()
        assert keys == sorted(set(keys)), path
    logs = [path for path in held if path.count(".") == 2]
    assert bool(logs) == (table_type == "mor")
    assert [key for (key,) in values(t, "id")] == sorted(set("qwertzuiopasdfyxcvbnmzebra") - set("wam"))
    assert t.check() == []


def test_new_keys_go_into_a_small_base_file_in_key_order() -> None:
    """Merge-on-read without a hash: a slice without logs takes new keys, and its next base file is sorted, too."""
    t = make(index="simple", partition_by=None)
    t.insert(table(row("m"), row("z")))
    t.insert(table(row("q"), row("a")))
    [file_slice] = t.inspect.file_slices().to_pylist()
    assert file_slice["logs"] == []
    newest = data_files(t)[file_slice["base_file"]]
    assert newest.column(RECORD_KEY).to_pylist() == ["a", "m", "q", "z"]
    assert t.check() == []


def test_partition_columns_stay_in_the_files() -> None:
    t = make(index="simple")
    t.insert(table(row("k", p="a"), row("l", p="b")))
    found = {path.partition("/")[0]: rows.column("p").to_pylist() for path, rows in data_files(t).items()}
    assert found == {"p=a": ["a"], "p=b": ["b"]}


@pytest.mark.parametrize(("layout", "merge"), [("lsm_tree", "sorted merge"), ("default", "hash merge")])
def test_the_layout_of_the_table_chooses_the_merge(layout: str, merge: str) -> None:
    t = make(layout=layout, num_buckets=1, partition_by=None)
    t.insert(table(row("k"), row("l")))
    t.upsert(table(row("l", 2)))
    assert f"1 slices with logs: {merge}" in t.scan().explain()
