"""Whole numbers beside decimal constants that no bigint reaches: their order is refused, on tables too."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import parse_expression

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("mark", pa.int32())])
ROWS = pa.table({"k": ["a", "b", "c"], "n": [None, 5, 2**63 - 1], "mark": [0, 0, 0]}, SCHEMA)
BEYOND = "9223372036854775808"


@pytest.fixture
def table() -> Any:
    made = lakebed.create(f"memory://beyond/{uuid.uuid4().hex}", SCHEMA, record_key="k", num_buckets=1)
    made.insert(ROWS)
    return made


@pytest.mark.parametrize(
    "condition",
    [
        f"n <= {BEYOND}",
        f"{BEYOND}BD > n",
        f"(1 div n) < {BEYOND}",
        "n >= -9223372036854775809",
        f"n BETWEEN 6 AND {BEYOND}",
        "n <= 9223372036854775807.5",
    ],
)
def test_the_order_is_refused_and_nothing_is_deleted(table: Any, condition: str) -> None:
    with pytest.raises(InvalidRequest, match="beyond every BIGINT"):
        table.delete(where=condition)
    with pytest.raises(InvalidRequest, match="beyond every BIGINT"):
        table.scan(filter=condition).to_arrow()
    assert table.scan().count() == 3


@pytest.mark.parametrize(
    ("condition", "keys"),
    [(f"n <> {BEYOND}", ["b", "c"]), (f"n = {BEYOND}", []), ("n <= 9223372036854775807", ["b", "c"])],
)
def test_equality_and_numbers_within_are_compared(table: Any, condition: str, keys: list[str]) -> None:
    assert sorted(table.scan(filter=condition).to_arrow()["k"].to_pylist()) == keys


def test_the_other_side_is_still_read() -> None:
    with pytest.raises(InvalidRequest, match="no column 'm'"):
        parse_expression(f"m < {BEYOND}", SCHEMA)
