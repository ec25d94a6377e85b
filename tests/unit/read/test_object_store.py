"""Golden tables through an object store: the same answers as from disk, for few requests.

obstore's in-memory store has S3's semantics: keys without folders, listings by prefix, ranged gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from obstore.store import LocalStore, MemoryStore

import lakebed
from lakebed.storage.object_store import ObjectStorage
from lakebed.timeline.meta_client import MetaClient
from tests.conftest import GOLDEN_NAMES

Golden = Callable[[str], Path]
FOLDERS = {"hoodie.metadata.enable": "false"}
SOME = ["cow_simple_v9", "mor_avro_v9", "mor_parquet_v9", "mdt_all_v9", "orc_mor_v9", "mor_maint_v9", "cow_hive_v9"]


def in_bucket(root: Path) -> ObjectStorage:
    """The table under a prefix of a bucket, beside a neighbour whose name begins the same way."""
    store = MemoryStore()
    for file in root.rglob("*"):
        if file.is_file():
            name = file.relative_to(root).as_posix()
            obstore.put(store, f"lake/{root.name}/{name}", file.read_bytes())
            obstore.put(store, f"lake/{root.name}_other/{name}", b"somebody else's")
    return ObjectStorage(lambda: store, url="s3://bucket", folder=f"lake/{root.name}", store=store)


def opened(storage: ObjectStorage) -> lakebed.Table:
    return lakebed.Table(MetaClient.open(storage))


def in_order(table: pa.Table) -> list[str]:
    """Rows as text, under which a NaN is equal to itself."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_snapshots_are_those_of_the_disk(golden: Golden, name: str) -> None:
    ours = opened(in_bucket(golden(name))).scan().to_arrow()
    assert in_order(ours) == in_order(lakebed.open(golden(name)).scan().to_arrow())


@pytest.mark.parametrize("name", SOME)
def test_other_queries_are_those_of_the_disk(golden: Golden, name: str) -> None:
    here, there = lakebed.open(golden(name)), opened(in_bucket(golden(name)))
    assert there.inspect.timeline(history=True) == here.inspect.timeline(history=True)
    assert there.inspect.file_slices() == here.inspect.file_slices()
    for ask in (
        lambda table: table.scan(options=FOLDERS).to_arrow(),
        lambda table: table.scan(query="read_optimized").to_arrow(),
        lambda table: table.incremental("0").to_arrow(),
        lambda table: table.scan(filter="_hoodie_record_key >= 'k0005' and _hoodie_record_key < 'k0030'").to_arrow(),
    ):
        assert in_order(ask(there)) == in_order(ask(here))
    assert there.scan().count() == here.scan().count()


def test_a_local_store_behind_obstore(golden: Golden) -> None:
    root = golden("mor_parquet_v9")
    storage = ObjectStorage(lambda: LocalStore(str(root)), url="file://store")
    ours = opened(storage).scan().to_arrow()
    assert in_order(ours) == in_order(lakebed.open(root).scan().to_arrow())


class Recorded(ObjectStorage):
    """Remembers which data files were touched."""

    touched: set[str]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.touched.add(path)
        return super().read_ranges(path, ranges)


def cost(root: Path, ask: Callable[[lakebed.Table], object]) -> tuple[int, set[str]]:
    """Requests of a cold query, opening the table included, and the data files it touched."""
    plain = in_bucket(root)
    storage = Recorded(plain._connect, url="s3://bucket", folder=f"lake/{root.name}", store=plain._store)
    storage.touched = set()
    ask(opened(storage))
    return storage.requests.total, {path for path in storage.touched if not path.startswith(".hoodie")}


def test_requests_for_a_snapshot_of_one_slice(golden: Golden) -> None:
    """Four for the table (properties, timeline, schema folder, last commit), one for the file, the rest for the
    metadata table: its properties, two listings, four commits, one hfile, and its three logs twice."""
    root = golden("nonpart_cow_v9")
    total, touched = cost(root, lambda table: table.scan().to_arrow())
    assert len(touched) == 1
    assert total <= 19
    total, touched = cost(root, lambda table: table.scan(options=FOLDERS).to_arrow())
    assert len(touched) == 1
    assert total <= 8


def test_requests_for_a_look_up_by_key(golden: Golden) -> None:
    root = golden("nonpart_cow_v9")
    key = lakebed.open(root).scan(columns=["id"], limit=1).to_arrow()["id"][0].as_py()
    total, _ = cost(root, lambda table: table.scan(filter=f"id = '{key}'").to_arrow())
    assert total <= 19
    total, _ = cost(root, lambda table: table.scan(filter=f"id = '{key}'", options=FOLDERS).count())
    assert total <= 8


def test_a_filter_on_the_partition_touches_only_its_files(golden: Golden) -> None:
    everything, _ = cost(golden("mor_avro_v9"), lambda table: table.scan().to_arrow())
    some, touched = cost(golden("mor_avro_v9"), lambda table: table.scan(filter="p = 'p1'").to_arrow())
    assert touched and all(path.startswith("p1/") for path in touched)
    assert some < everything


def test_counting_reads_footers_only(golden: Golden) -> None:
    total, _ = cost(golden("cow_simple_v9"), lambda table: table.scan().count())
    whole, _ = cost(golden("cow_simple_v9"), lambda table: table.scan().to_arrow())
    assert total <= whole


def test_nothing_is_written(golden: Golden) -> None:
    storage = in_bucket(golden("mor_maint_v9"))
    table = opened(storage)
    table.scan().to_arrow()
    table.inspect.timeline(history=True)
    assert not {"put", "delete", "upload"} & storage.requests.by_kind().keys()


def test_a_store_that_refuses_is_unavailable_and_not_corrupt(golden: Golden) -> None:
    storage = in_bucket(golden("cow_simple_v9"))
    table = opened(storage)

    def refuse(*_: object) -> bytes:
        raise lakebed.StorageUnavailable("the store is tired", file="x")

    storage._fetch = refuse  # type: ignore[method-assign]
    with pytest.raises(lakebed.StorageUnavailable, match=r"tired.*Try again"):
        table.scan(options=FOLDERS).to_arrow()
