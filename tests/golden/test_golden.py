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
from tests.golden.rows import rows_of, sorted_rows

Row = list[Any]
LISTED: dict[tuple[str, str], Callable[[list[str], list[Row], list[Row]], None]] = {}
"""(table, query) -> a check of how the answers differ, given columns, ours and real Hudi's."""


def compare(name: str, query: str, table: Any, wanted: dict[str, Any]) -> None:
    columns = wanted["columns"]
    assert set(columns) <= set(table.column_names)
    ours = rows_of(table, columns)
    theirs = sorted_rows(wanted["rows"])
    listed = LISTED.get((name, query))
    if listed:
        assert ours != theirs, "the listed difference is gone: take it off the list"
        listed(columns, ours, theirs)
        return
    assert ours == theirs


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_snapshot(name: str, golden: Callable[[str], Path]) -> None:
    wanted = expected(name)["snapshot"]
    table = lakebed.open(golden(name)).scan().to_arrow()
    compare(name, "snapshot", table, wanted)
    assert lakebed.open(golden(name)).scan().count() == table.num_rows


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if expected(name).get("read_optimized")])
def test_read_optimized(name: str, golden: Callable[[str], Path]) -> None:
    wanted = expected(name)["read_optimized"]
    if wanted == "same as snapshot":
        wanted = expected(name)["snapshot"]
    compare(name, "read_optimized", lakebed.open(golden(name)).scan(query="read_optimized").to_arrow(), wanted)


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if "rows" in expected(name).get("incremental", {})])
def test_incremental(name: str, golden: Callable[[str], Path]) -> None:
    wanted = expected(name)["incremental"]
    scan = lakebed.open(golden(name)).incremental(start=wanted["begin_exclusive_completion_time"])
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
