"""Base files of others, in no order and with keys that come twice: one answer, whatever reads or rewrites them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.parquet_source import UNIQUE_KEY
from lakebed.datafile.sorted_check import check_sorted_file
from lakebed.model.finding import Severity
from lakebed.read.merge_vector_cache import MERGE_VECTORS
from lakebed.storage.open import open_storage

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
MEMORIES = ("64KB", "1MB", "256MB")
QUIET = {"hoodie.parquet.small.file.limit": "0"}
FOREIGN = [
    ("b", 1, "b1"),
    ("a", 5, "a5"),
    ("c", 1, "c1"),
    ("a", 9, "a9"),
    ("b", 2, "b2"),
    ("d", 4, "d4"),
    ("d", 2, "d2"),
]
AFTER_LATE_ROW = [("a", 9, "a9"), ("b", 1, "b1"), ("b", 2, "b2"), ("c", 1, "c1"), ("d", 4, "d4")]


def rows(*given: tuple[str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], schema=SCHEMA)


def held(table: lakebed.Table, **scan: Any) -> list[tuple[Any, ...]]:
    found = table.scan(columns=SCHEMA.names, **scan).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def base_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if ".log." not in path.name)


def foreign(folder: Path, **settings: Any) -> lakebed.Table:
    """A table whose only base file was written by somebody who neither sorts nor folds."""
    table = lakebed.create(folder, SCHEMA, record_key="id", ordering="ts", num_buckets=1, properties=QUIET, **settings)
    table.bulk_insert(rows(*dict.fromkeys((key, 0, "") for key, _, _ in FOREIGN)))
    (path,) = base_files(folder)
    written = pq.read_table(path)
    at = {key: number for number, key in enumerate(written.column("id").to_pylist())}
    again = written.take([at[key] for key, _, _ in FOREIGN])
    for name, place in (("ts", 1), ("v", 2)):
        index = again.schema.get_field_index(name)
        again = again.set_column(index, again.schema.field(index), pa.array([row[place] for row in FOREIGN]))
    kept = {key: value for key, value in pq.read_metadata(path).metadata.items() if not key.startswith(b"lakebed.")}
    kept.pop(b"ARROW:schema", None)
    pq.write_table(again.replace_schema_metadata(kept), path)
    return lakebed.open(folder)


@pytest.fixture(params=["lsm_tree", "default"])
def layout(request: pytest.FixtureRequest) -> str:
    MERGE_VECTORS.clear()
    return str(request.param)


@pytest.mark.parametrize("log_format", ["v1", "v2"])
def test_a_late_row_meets_all_base_rows_of_its_key(layout: str, log_format: str, tmp_path: Path) -> None:
    table = foreign(tmp_path, layout=layout, log_format=log_format)
    assert held(table) == sorted(FOREIGN)
    table.upsert(rows(("a", 3, "late"), ("d", 3, "late")))
    for memory in MEMORIES:
        assert held(table, memory=memory) == AFTER_LATE_ROW
        assert table.scan(memory=memory).count() == len(AFTER_LATE_ROW)
    assert held(table, filter="id = 'a'") == [("a", 9, "a9")]
    table.services.compact()
    assert len(base_files(tmp_path)) == 2
    assert held(table) == AFTER_LATE_ROW, "and a compaction keeps it"
    table.upsert(rows(("b", 2, "again")))
    assert held(table) == [("a", 9, "a9"), ("b", 2, "again"), *AFTER_LATE_ROW[3:]]
    assert not [found for found in table.check() if found.severity is Severity.ERROR]


def test_copy_on_write_folds_the_same(layout: str, tmp_path: Path) -> None:
    table = foreign(tmp_path, layout=layout, table_type="cow")
    table.upsert(rows(("a", 3, "late"), ("d", 3, "late")))
    assert held(table) == AFTER_LATE_ROW
    table.upsert(rows(("b", 2, "again"), ("e", 1, "new")))
    assert held(table) == [("a", 9, "a9"), ("b", 2, "again"), *AFTER_LATE_ROW[3:], ("e", 1, "new")]
    table.delete(keys=["b"])
    assert [key for key, _, _ in held(table)] == ["a", "c", "d", "e"]


def test_a_file_that_repeats_a_key_is_not_marked(tmp_path: Path) -> None:
    table = foreign(tmp_path, layout="lsm_tree", table_type="cow")
    storage = open_storage(table.url)
    for upsert, is_sorted in ((("a", 3, "late"), False), (("d", 9, "new"), False), (("b", 3, "new"), True)):
        table.upsert(rows(upsert))
        with open_base_file(storage, base_files(tmp_path)[-1].name) as source:
            assert source.is_sorted is is_sorted
    assert [key for key, _, _ in held(table)] == ["a", "b", "c", "d"]


def test_a_file_of_the_default_layout_says_that_its_keys_are_unique(tmp_path: Path) -> None:
    table = lakebed.create(
        tmp_path, SCHEMA, record_key="id", ordering="ts", num_buckets=1, layout="default", properties=QUIET
    )
    storage = open_storage(table.url)
    table.bulk_insert(rows(("b", 1, ""), ("a", 1, "")))
    table.upsert(rows(("c", 1, ""), ("a", 2, "")))
    table.services.compact()
    path = max(base_files(tmp_path), key=lambda file: file.stat().st_mtime_ns).name
    with open_base_file(storage, path) as source:
        assert not source.is_sorted
        assert source.has_unique_keys
        assert source.footer[UNIQUE_KEY] == "keys"
    assert check_sorted_file(storage, path, require_mark=False) == []
    lying = pq.read_table(tmp_path / path)
    lying = pa.concat_tables([lying, lying.slice(0, 1)]).replace_schema_metadata({UNIQUE_KEY: "keys"})
    pq.write_table(lying, tmp_path / "lying.parquet")
    (found,) = check_sorted_file(storage, "lying.parquet", require_mark=False)
    assert found.severity is Severity.ERROR
    assert "1 rows repeat one" in found.what


def test_inserts_beside_known_rows_say_nothing_of_their_keys(tmp_path: Path) -> None:
    table = lakebed.create(tmp_path, SCHEMA, record_key="id", index="simple", layout="default", table_type="cow")
    table.insert(rows(("a", 1, "x")))
    table.insert(rows(("a", 2, "y")))
    assert len(held(table)) == 2
    path = max(base_files(tmp_path), key=lambda file: file.stat().st_mtime_ns).name
    with open_base_file(open_storage(table.url), path) as source:
        assert not source.has_unique_keys
    table.upsert(rows(("a", 3, "z")))
    assert held(table) == [("a", 3, "z")]


def test_a_row_that_would_move_is_late_if_any_row_of_its_key_is_newer(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("p", pa.string()))
    table = lakebed.create(
        tmp_path,
        schema,
        record_key="id",
        ordering="ts",
        partition_by="p",
        index="global_simple",
        layout="default",
        table_type="cow",
        properties={"hoodie.simple.index.update.partition.path": "true"},
    )

    def one(ts: int, p: str) -> pa.Table:
        return rows(("a", ts, f"a{ts}")).append_column("p", pa.array([p]))

    table.insert(one(9, "old"))
    table.insert(one(5, "old"))
    assert held(table) == [("a", 5, "a5"), ("a", 9, "a9")]
    table.upsert(one(7, "new"))
    assert held(table) == [("a", 5, "a5"), ("a", 9, "a9")]
    table.upsert(one(11, "new"))
    assert held(table) == [("a", 11, "a11")]
