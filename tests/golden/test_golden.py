"""Every golden table answers as real Hudi 1.2.0 did: snapshot, read-optimized, incremental, as-of.

Where a ruling makes lakebed answer differently, `LISTED` says so with the reason, and the test asserts that the two do
differ in just that way; an entry that is no longer needed fails.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from tests.conftest import GOLDEN_NAMES, expected
from tests.golden.rows import expected_rows, rows_of, sorted_rows

Row = list[Any]
Difference = Callable[[str, list[str], list[Row], list[Row]], None]
META = 5
"""Meta columns stand first; two tables with the same history differ in those alone."""


def partition_value_from_the_path(name: str, columns: list[str], ours: list[Row], theirs: list[Row]) -> None:
    """Spark replaces a partition column by the text of its folder; lakebed gives the value that the file holds."""
    column = {"cow_hive_v9": "country", "cow_tskeygen_v9": "ts"}[name]
    index = columns.index(column)
    seqno = columns.index("_hoodie_commit_seqno")
    for mine, real in zip(by(ours, seqno), by(theirs, seqno), strict=True):
        assert mine[:index] + mine[index + 1 :] == real[:index] + real[index + 1 :]
        stored, shown = mine[index], real[index]
        encoded = {"": None, "a b/c": "a b%2Fc", "x=y%z": "x%3Dy%25z"}.get(stored, stored)
        assert shown in (stored, encoded, str(stored))


def as_copy_on_write(name: str, columns: list[str], ours: list[Row], _: list[Row]) -> None:
    """Real Hudi folds logs before the base; lakebed answers what its own copy-on-write table of this history holds."""
    twin = expected(name.replace("mor_", "cow_"))["snapshot"]
    assert columns == twin["columns"]
    assert sorted_rows([row[META:] for row in ours]) == sorted_rows([row[META:] for row in twin["rows"]])


def current_versions_only(name: str, columns: list[str], ours: list[Row], theirs: list[Row]) -> None:
    """Real Hudi filters log rows before it merges them, so late rows that lost and unmerged partial rows show up."""
    begins = {row[0] for row in theirs}
    snapshot = [row for row in SNAPSHOTS[name] if row[0] in begins]
    assert ours == sorted_rows(snapshot)
    key = columns.index("_hoodie_record_key")
    assert {row[key] for row in ours} <= {row[key] for row in theirs}


LISTED: dict[tuple[str, str], Difference] = {
    ("cow_hive_v9", "snapshot"): partition_value_from_the_path,
    ("cow_hive_v9", "incremental"): partition_value_from_the_path,
    ("cow_hive_v9", "as_of"): partition_value_from_the_path,
    ("cow_tskeygen_v9", "snapshot"): partition_value_from_the_path,
    ("cow_tskeygen_v9", "incremental"): partition_value_from_the_path,
    ("cow_tskeygen_v9", "as_of"): partition_value_from_the_path,
    ("mor_partialpayload_v9", "snapshot"): as_copy_on_write,
    ("mor_debezium_pg_v9", "snapshot"): as_copy_on_write,
    ("mor_eventtime_v9", "incremental"): current_versions_only,
    ("mor_nondefaults_v8", "incremental"): current_versions_only,
    ("mor_nondefaults_v9", "incremental"): current_versions_only,
    ("mor_partialpayload_v9", "incremental"): current_versions_only,
    ("mor_debezium_pg_v9", "incremental"): current_versions_only,
    ("mor_debezium_mysql_v9", "incremental"): current_versions_only,
    ("mor_null_ordering_int_v9", "incremental"): current_versions_only,
    ("mor_multi_ordering_v9", "incremental"): current_versions_only,
    ("mor_parquet_bucket_deletes_v9", "incremental"): current_versions_only,
}
"""(table, query) -> a check of how the answers differ, given columns, ours and real Hudi's."""

SNAPSHOTS: dict[str, list[Row]] = {}


def by(rows: list[Row], index: int) -> list[Row]:
    return sorted(rows, key=lambda row: row[index])


def compare(name: str, query: str, table: Any, wanted: dict[str, Any]) -> None:
    columns = wanted["columns"]
    assert set(columns) <= set(table.column_names)
    ours, theirs = rows_of(table, columns), expected_rows(wanted)
    listed = LISTED.get((name, query))
    if listed is None:
        assert ours == theirs
    else:
        assert ours != theirs, "the listed difference is gone: take it off the list"
        listed(name, columns, ours, theirs)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_snapshot(name: str, golden: Callable[[str], Path]) -> None:
    wanted = expected(name)["snapshot"]
    table = lakebed.open(golden(name)).scan().to_arrow()
    compare(name, "snapshot", table, wanted)
    assert lakebed.open(golden(name)).scan().count() == table.num_rows


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_both_listings_give_the_same_rows(name: str, golden: Callable[[str], Path]) -> None:
    table = lakebed.open(golden(name))
    by_folders = table.scan(options={"hoodie.metadata.enable": "false"})
    assert "storage folders" in by_folders.explain()
    columns = table.schema.names
    assert rows_of(by_folders.to_arrow(), columns) == rows_of(table.scan().to_arrow(), columns)


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if expected(name).get("read_optimized")])
def test_read_optimized(name: str, golden: Callable[[str], Path]) -> None:
    wanted = expected(name)["read_optimized"]
    if wanted == "same as snapshot":
        wanted = expected(name)["snapshot"]
    compare(name, "read_optimized", lakebed.open(golden(name)).scan(query="read_optimized").to_arrow(), wanted)


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if "rows" in expected(name).get("incremental", {})])
def test_incremental(name: str, golden: Callable[[str], Path]) -> None:
    wanted = expected(name)["incremental"]
    table = lakebed.open(golden(name))
    scan = table.incremental(start=wanted["begin_exclusive_completion_time"])
    SNAPSHOTS[name] = rows_of(table.scan().to_arrow(), wanted["columns"])
    compare(name, "incremental", scan.to_arrow(), wanted)


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if "rows" in expected(name).get("as_of", {})])
def test_as_of(name: str, golden: Callable[[str], Path]) -> None:
    wanted = expected(name)["as_of"]
    compare(name, "as_of", lakebed.open(golden(name)).scan(as_of=wanted["instant"]).to_arrow(), wanted)


def test_as_of_before_the_clean_names_the_earliest_possible_instant(golden: Callable[[str], Path]) -> None:
    name = "mor_maint_v9"
    wanted = expected(name)["as_of"]
    assert "cleaned up" in wanted["error"].lower()
    with pytest.raises(lakebed.InvalidRequest, match=r"earliest .*\d{17}"):
        lakebed.open(golden(name)).scan(as_of=wanted["instant"]).to_arrow()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_timeline(name: str, golden: Callable[[str], Path]) -> None:
    table = lakebed.open(golden(name)).inspect.timeline()
    ours = {(row["instant"], row["action"], row["state"], row["completion"]) for row in table.to_pylist()}
    completed = {
        (row["instant"], row["action"], "completed", row["completion"])
        for row in expected(name)["timeline"]
        if row["state"] == "completed"
    }
    assert completed <= ours
