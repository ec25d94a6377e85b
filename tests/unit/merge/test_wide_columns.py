"""Columns with 64-bit offsets, which are too large for 31 bits, beside others of the same name that are not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.model import concat

NARROW = pa.schema([("_hoodie_record_key", pa.string()), ("v", pa.string())])
WIDE = pa.schema([("_hoodie_record_key", pa.string()), ("v", pa.large_string())])


def sorted_run(age: int, rows: dict[str, str], schema: pa.Schema) -> Run:
    columns = [pa.array(list(rows)), pa.array(list(rows.values()), schema.field("v").type)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return Run(age, True, lambda _: iter([batch]), requested_time=f"{age:03d}")


def test_a_pass_over_columns_some_of_which_are_too_large_for_31_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concat, "LARGEST_COLUMN", 64)
    wanted: dict[str, Any] = {}
    runs = []
    for age in range(1, 9):
        rows = {f"k{age + place:02}": f"{age}" * 40 for place in range(3)}
        runs.append(sorted_run(age, rows, WIDE if age % 2 else NARROW))
        wanted |= rows
    found = pa.Table.from_batches(sorted_merge(runs, MergeRule(), NARROW, memory=1), NARROW)
    assert dict(zip(*found.to_pydict().values(), strict=True)) == wanted
