"""Bucket indexes when writing: rings of consistent hashing, and tables of real Hudi, which do not name their count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.names import hashing_meta_dir
from tests.conftest import expected
from tests.unit.write.tables import files, make, row, table, values

RINGS = ".hoodie/.bucket_index"


def ring_nodes(t: lakebed.Table, name: str) -> list[str]:
    text = files(t)[f"{hashing_meta_dir('p=a')}/{name}"]
    return [node["fileIdPrefix"] for node in json.loads(text)["nodes"]]


def test_the_first_rows_of_a_partition_leave_its_ring() -> None:
    t = make(index="consistent_bucket")
    assert not files(t, RINGS)
    t.upsert(table(row("k", p="a")))
    assert list(files(t, RINGS)) == [f"{hashing_meta_dir('p=a')}/00000000000000.hashing_meta"]
    ids = {file_slice["file_id"] for file_slice in t.inspect.file_slices().to_pylist()}
    assert ids <= {f"{prefix}-0" for prefix in ring_nodes(t, "00000000000000.hashing_meta")}


def test_a_ring_is_the_one_that_real_hudi_leaves(golden: Callable[[str], Path]) -> None:
    real = golden("mor_consistent_v9") / ".hoodie/.bucket_index/consistent_hashing_metadata"
    ring = (real / "p0/00000000000000.hashing_meta").read_bytes()
    t = make(
        index="consistent_bucket",
        num_buckets=json.loads(ring)["numBuckets"],
        properties={"hoodie.datasource.write.hive_style_partitioning": "false"},
    )
    t.upsert(table(row("k", p="p0")))
    assert files(t)[f"{hashing_meta_dir('p0')}/00000000000000.hashing_meta"] == ring


def test_refused_rows_leave_no_ring() -> None:
    t = make(index="consistent_bucket")
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest):
        t.upsert(table(row("k"), row("", p="b")))
    assert files(t) == before


def test_replaced_partitions_get_a_new_ring() -> None:
    t = make(index="consistent_bucket")
    t.upsert(table(*(row(f"k{n}", v=n) for n in range(8)), row("z", p="b")))
    first = ring_nodes(t, "00000000000000.hashing_meta")
    done = t.overwrite_partitions(table(row("k1", v=20), row("k2", v=21)))
    second = ring_nodes(t, f"{done.instant}.hashing_meta")
    assert len(second) == len(first)
    assert not set(first) & set(second)
    assert f"{hashing_meta_dir('p=a')}/{done.instant}.commit" in files(t)
    t.upsert(table(row("k1", 2, v=30), row("k3", 2, v=31)))
    assert values(t, "id", "v") == [("k1", 30), ("k2", 21), ("k3", 31), ("z", 0)]
    t.delete_partitions(["p=a"])
    t.insert(table(row("k1", 3, v=40)))
    assert values(t, "id", "v") == [("k1", 40), ("z", 0)]
    retired = {f"{prefix}-0" for prefix in (*first, *second)}
    assert not retired & {
        file_slice["file_id"] for file_slice in t.inspect.file_slices().to_pylist() if file_slice["partition"] == "p=a"
    }


def test_a_consistent_table_of_real_hudi_is_written_to(golden_copy: Callable[[str], Path]) -> None:
    told = expected("mor_consistent_v9")["snapshot"]
    options = {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": "4",
    }
    t = lakebed.open(golden_copy("mor_consistent_v9"), options=options, drop_metadata=True)
    before = t.scan().to_arrow()
    groups = set(t.inspect.file_slices().column("file_id").to_pylist())
    own = before.select([name for name in before.schema.names if not name.startswith("_hoodie")])
    later = own.set_column(1, "ts", pa.array([1_000] * own.num_rows, own.schema.field("ts").type))
    t.upsert(later)
    assert t.scan().count() == told["count"]
    assert set(t.scan().to_arrow().column("ts").to_pylist()) == {1_000}
    assert set(t.inspect.file_slices().column("file_id").to_pylist()) == groups


def test_a_bucket_table_of_real_hudi_needs_its_count(golden_copy: Callable[[str], Path]) -> None:
    path = golden_copy("mor_bucket_v9")
    t = lakebed.open(path, drop_metadata=True)
    own = t.scan().to_arrow()
    own = own.select([name for name in own.schema.names if not name.startswith("_hoodie")])
    rows = own.slice(0, 3)
    groups = t.inspect.file_slices().column("file_id").to_pylist()
    buckets = 1 + max(int(group[:8]) for group in groups)
    with pytest.raises(lakebed.InvalidRequest, match="buckets"):
        t.upsert(rows)
    with pytest.raises(lakebed.InvalidRequest, match="bucket"):
        lakebed.open(path, num_buckets=1, drop_metadata=True).upsert(rows)
    with pytest.raises(lakebed.InvalidRequest, match="not written with 7 buckets"):
        lakebed.open(path, num_buckets=7, drop_metadata=True).upsert(rows)
    count = t.scan().count()
    lakebed.open(path, num_buckets=buckets, drop_metadata=True).upsert(rows)
    assert t.refresh().scan().count() == count
    assert t.inspect.file_slices().column("file_id").to_pylist() == groups
