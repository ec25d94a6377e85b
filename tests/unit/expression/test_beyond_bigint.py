"""Whole numbers beside decimal constants that no bigint reaches: decided by the constant, also on tables."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import ColumnStats, parse_expression, parse_predicate

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("mark", pa.int32())])
ROWS = pa.table({"k": ["a", "b", "c"], "n": [None, 5, 2**63 - 1], "mark": [0, 0, 0]}, SCHEMA)
BEYOND = "9223372036854775808"


@pytest.fixture
def table() -> Any:
    made = lakebed.create(f"memory://beyond/{uuid.uuid4().hex}", SCHEMA, record_key="k", num_buckets=1)
    made.insert(ROWS)
    return made


def test_nothing_of_the_whole_number_is_left() -> None:
    bound = parse_expression(f"(1 div n) < {BEYOND}", SCHEMA)
    assert bound.columns == ()
    assert bound.to_sql() == "TRUE"


def test_the_other_side_is_still_read() -> None:
    with pytest.raises(InvalidRequest, match="no column 'm'"):
        parse_expression(f"m < {BEYOND}", SCHEMA)


def test_statistics_of_nulls_alone_do_not_skip_a_file() -> None:
    stats = {"n": ColumnStats(null_count=3, rows=3)}
    assert parse_predicate(f"n <= {BEYOND}", SCHEMA).may_match(stats)
    assert not parse_predicate(f"n > {BEYOND}", SCHEMA).may_match(stats)
    assert not parse_predicate("n <= 9223372036854775807", SCHEMA).may_match(stats)


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        (f"n <= {BEYOND}", ["a", "b", "c"]),
        (f"n > {BEYOND}", []),
        (f"NOT n > {BEYOND}", ["a", "b", "c"]),
        (f"n <= {BEYOND} AND n IS NOT NULL", ["b", "c"]),
        (f"n BETWEEN 6 AND {BEYOND}", ["c"]),
        (f"n <> {BEYOND}", ["b", "c"]),
    ],
)
def test_a_scan_an_update_and_a_merge_take_the_same_rows(table: Any, condition: str, keys: list[str]) -> None:
    assert sorted(table.scan(filter=condition).to_arrow()["k"].to_pylist()) == keys
    table.update(set={"mark": "mark + 1"}, where=condition)
    merge = table.merge(ROWS, on="t.k = s.k")
    merge.when_matched_update(set={"mark": "t.mark + 1"}, condition=re.sub(r"\bn\b", "s.n", condition)).execute()
    found = table.scan(columns=["k", "mark"]).to_arrow().to_pylist()
    assert sorted((row["k"], row["mark"]) for row in found) == [(key, 2 if key in keys else 0) for key in "abc"]
