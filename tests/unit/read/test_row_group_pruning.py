"""Filters rule out row groups of base files that no log can change, and never change an answer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from benchmarks.handmade import HandmadeTable
from lakebed.config.read_options import ReadOptions
from lakebed.datafile.source import ReadCounters
from lakebed.read.scan import Scan

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("word", pa.string())])
ROWS, GROUP = 1000, 100
NOTE = "row groups of 1 base files without logs are ruled out by their statistics"


def rows(ids: range, v: int | None = None) -> pa.Table:
    values = [i if v is None else v for i in ids]
    words = [f"w{i:04}" if i % 3 else None for i in ids]
    return pa.table({"id": [f"k{i:04}" for i in ids], "ts": [1] * len(ids), "v": values, "word": words}, schema=SCHEMA)


@pytest.fixture
def made(tmp_path: Path) -> HandmadeTable:
    table = HandmadeTable(tmp_path / "t", SCHEMA, base_row_group=GROUP)
    table.base(rows(range(ROWS)))
    return table


def scan_of(made: HandmadeTable, condition: str, *, skipping: bool = True) -> Scan:
    return lakebed.open(made.root).scan(filter=condition, options=ReadOptions(data_skipping=skipping))


def read(scan: Scan) -> tuple[list[dict[str, object]], ReadCounters]:
    plan, counters = scan.plan(), ReadCounters()
    found = [row for split in plan.splits for batch in plan.reader.read(split, counters) for row in batch.to_pylist()]
    return found, counters


@pytest.mark.parametrize(
    ("condition", "groups"),
    [
        ("v = 250", 1),
        ("v >= 150 AND v < 250", 2),
        ("v < 100 OR v > 899", 2),
        ("word LIKE 'w05%'", 1),
        ("v IN (5, 995)", 2),
        ("v = -1", 0),
        ("v % 500 = 1", 10),
        ("word IS NULL", 10),
        ("v = 250 AND id = 'k0250'", 1),
        ("v = 250 AND id = 'k0350'", 0),
        ("v < 300 AND id >= 'k0200'", 1),
    ],
)
def test_the_same_rows_from_fewer_row_groups(made: HandmadeTable, condition: str, groups: int) -> None:
    found, counters = read(scan_of(made, condition))
    whole, everything = read(scan_of(made, condition, skipping=False))
    assert found == whole
    assert counters.rows_decoded == groups * GROUP
    assert (counters.row_groups, counters.row_groups_pruned) == (groups, ROWS // GROUP - groups)
    if " AND id" not in condition:
        assert (everything.rows_decoded, everything.row_groups_pruned) == (ROWS, 0)
    assert scan_of(made, condition).count() == len(whole)


def test_the_plan_says_so(made: HandmadeTable) -> None:
    assert NOTE in scan_of(made, "v = 250").explain()
    assert NOTE not in scan_of(made, "v = 250", skipping=False).explain()
    assert NOTE not in lakebed.open(made.root).scan().explain()


def test_with_a_log_the_filter_waits_for_the_merge(made: HandmadeTable) -> None:
    """The base says 250 of k0250, the log says otherwise; and k0700 has become 250."""
    made.log(rows(range(250, 251), v=7).set_column(1, "ts", [pa.array([2])]))
    made.log(rows(range(700, 701), v=250).set_column(1, "ts", [pa.array([2])]))
    scan = scan_of(made, "v = 250")
    found, counters = read(scan)
    assert [row["id"] for row in found] == ["k0700"]
    assert counters.row_groups_pruned == 0
    assert NOTE not in scan.explain()
