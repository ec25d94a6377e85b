from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakebed.merge.ordering import ordering_ranks

CASES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [-5, -1, 0, 7]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.uint64(), [0, 2**63, 2**64 - 1]),
    (pa.float64(), [float("-inf"), -1.5, -0.0, 0.0, 1e-300, float("inf"), float("nan")]),
    (pa.float32(), [-1.5, -0.0, 0.0, float("nan")]),
    (pa.string(), [None, "", "a", "�", "\U0001f600"]),
    (pa.binary(), [None, b"", b"\x00", b"\xff"]),
    (pa.decimal128(30, 15), [Decimal("-1.5"), Decimal(0), Decimal("0.000000000000001")]),
    (pa.timestamp("us", "UTC"), [None, *(datetime(year, 1, 1, tzinfo=UTC) for year in (1969, 1970, 2026))]),
    (pa.date32(), [None, date(1, 1, 1), date(2026, 1, 1)]),
    (pa.bool_(), [None, False, True]),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=lambda value: str(value)[:20])
def test_ranks_compare_like_the_values(kind: pa.DataType, values: list[Any]) -> None:
    shuffled = values[::2] + values[1::2] + values[:1]
    ranks = ordering_ranks([pa.array(shuffled, kind)]).tolist()
    by_rank = [value for _, value in sorted(zip(ranks, range(len(shuffled)), strict=True))]
    assert [repr(shuffled[at]) for at in by_rank][1:] == [repr(value) for value in values]
    assert ranks[0] == ranks[-1]
    assert len(set(ranks)) == len(values)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float64(), pa.decimal128(10, 2), pa.uint64()])
def test_null_in_a_number_column_is_zero(kind: pa.DataType) -> None:
    null, zero, one = ordering_ranks([pa.array([None, 0, 1], kind)]).tolist()
    assert null == zero < one


def test_several_fields_compare_one_after_the_other() -> None:
    rows = [(1, "b"), (1, None), (0, "z"), (2, "a"), (1, "b"), (None, "y")]
    ranks = ordering_ranks([pa.array([a for a, _ in rows]), pa.array([b for _, b in rows])]).tolist()
    assert ranks[0] == ranks[4]
    assert ranks[5] < ranks[2] < ranks[1] < ranks[0] < ranks[3]


def test_slices_and_missing_columns() -> None:
    assert ordering_ranks([pa.array([9, 9, 3, 1]).slice(2)]).tolist() == [3, 1]
    assert ordering_ranks([pa.array([9.0, None, 3.0]).slice(1)]).argmax() == 1
    assert ordering_ranks([pa.nulls(2)]).tolist() == [0, 0]
