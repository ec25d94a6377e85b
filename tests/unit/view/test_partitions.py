from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptTable
from lakebed.storage.local import LocalStorage
from lakebed.view.partitions import StorageLister, read_metafile


def metafile(depth: int) -> bytes:
    return f"#partition metadata\ncommitTime=20260101000000000\npartitionDepth={depth}\n".encode()


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def test_golden_partitions(golden: Callable[[str], Path]) -> None:
    def of(name: str) -> list[str]:
        return list(StorageLister(LocalStorage(golden(name))).partitions())

    assert of("mor_maint_v9") == [""]
    assert of("cow_simple_v9") == ["p0", "p1"]
    assert of("cow_tskeygen_v9")[0].count("/") == 2
    assert "country=__HIVE_DEFAULT_PARTITION__/day=2024-01-01" in of("cow_hive_v9")


def test_depths_may_differ_and_nest(storage: LocalStorage) -> None:
    for path, depth in (("a", 1), ("a/b", 2), ("c/d/e", 3), ("7f3a/2026/01", 3)):
        storage.put(f"{path}/.hoodie_partition_metadata", metafile(depth))
    storage.put("a/x.parquet", b"1")
    storage.put("a/b/y.parquet", b"22")
    storage.put("loose/z.parquet", b"3")
    storage.put(".hoodie/metadata/files/.hoodie_partition_metadata", metafile(1))
    lister = StorageLister(storage)
    assert lister.partitions() == ["7f3a/2026/01", "a", "a/b", "c/d/e"]
    assert [f.path for f in lister.files("a") if f.name.endswith("parquet")] == ["a/x.parquet"]
    assert [f.size for f in lister.files("a/b") if f.name.endswith("parquet")] == [2]
    assert lister.files("loose") == []


def test_files_of_a_partition_need_no_sweep(storage: LocalStorage) -> None:
    storage.put("a/x.parquet", b"1")
    storage.put("a/b/y.parquet", b"22")
    assert [f.path for f in StorageLister(storage).files("a")] == ["a/x.parquet"]
    assert StorageLister(storage).files("nowhere") == []


def test_hidden_folders_are_scratch_space_unless_their_metafile_says_otherwise(storage: LocalStorage) -> None:
    storage.put(".x/.hoodie_partition_metadata", metafile(1))
    storage.put(".staging/a/.hoodie_partition_metadata", metafile(1))
    storage.put("b/.tmp/.hoodie_partition_metadata", b"broken")
    assert StorageLister(storage).partitions() == [".x"]


def test_metafile_in_the_footer_of_a_base_file(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / ".p").mkdir()
    schema = pa.schema([("x", pa.int32())], metadata={"commitTime": "20260101000000000", "partitionDepth": "1"})
    pq.write_table(schema.empty_table(), tmp_path / ".p/.hoodie_partition_metadata.parquet")
    lister = StorageLister(storage)
    assert lister.partitions() == [".p"]
    (info,) = lister.files(".p")
    assert read_metafile(storage, info).depth == 1
    (tmp_path / ".p/.hoodie_partition_metadata.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptTable):
        read_metafile(storage, info)


def test_no_table_no_partitions(storage: LocalStorage) -> None:
    assert StorageLister(storage).partitions() == []
