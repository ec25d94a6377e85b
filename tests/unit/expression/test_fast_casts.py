"""Casts and roundings of whole columns go the fast way where it is exact: the slow way, row by row, is the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.expression import casts, rounding, text_casts
from lakebed.expression.types import DATE, DOUBLE, FLOAT, TEXT, TIMESTAMP, TIMESTAMP_NTZ

EDGES = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, 5e-324, 2.0**53, 2.0**63, 999.995, 999.994999, 1e22, -1e17]


def numbers(kind: pa.DataType) -> pa.Array:
    """Random numbers of many sizes, many halves, and the edges."""
    rng = np.random.default_rng(5)
    sizes = 10.0 ** rng.integers(-6, 9, 400)
    halves = (np.arange(-300, 300) * 10 + 5) / 1000
    drawn = np.concatenate([rng.normal(0, sizes), rng.normal(0, 1e4, 400).round(3), halves, np.arange(-50, 50) / 8])
    with np.errstate(over="ignore"):
        known = np.concatenate([drawn, EDGES]).astype(kind.to_pandas_dtype())
    return pa.concat_arrays([pa.array(known, kind), pa.nulls(2, kind)])


def never_sure(found: Any, _: int) -> tuple[Any, Any]:
    return np.zeros(len(found)), np.zeros(len(found), np.bool_)


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE], ids=str)
@pytest.mark.parametrize("digits", [-2, 0, 1, 2, 5, 10, 22, 25])
def test_rounding_is_the_same_both_ways(kind: pa.DataType, digits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = rounding.rounded(numbers(kind), digits, kind)
    monkeypatch.setattr(rounding, "nearest_units", never_sure)
    slow = rounding.rounded(numbers(kind), digits, kind)
    assert list(map(str, fast.to_pylist())) == list(map(str, slow.to_pylist()))


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE], ids=str)
@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (3, 3), (5, 2), (10, 0), (18, 6), (38, 10), (38, 38)])
def test_decimals_of_floats_are_the_same_both_ways(
    kind: pa.DataType, precision: int, scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = pa.decimal128(precision, scale)
    fast = casts.cast(numbers(kind), target, lenient=True)
    monkeypatch.setattr(casts, "nearest_units", never_sure)
    assert fast.equals(casts.cast(numbers(kind), target, lenient=True))


TEXTS = [
    *(f"{year:04}-{month:02}-28" for year in (0, 1, 1582, 1900, 1970, 2024, 9999) for month in range(1, 13)),
    *(f"2024-02-29{between}23:59:59{fraction}" for between in " T" for fraction in ("", ".1", ".00012", ".999999")),
    *("2024-1-1", " 2024-01-01 ", "2024-01-01\n", "2024-01-01T10:00:00Z", "2024-01-01 10:00:00+01:00", "2024"),
    *("2024-01-01 10:00:00.1234567", "2024-01-01 10:00:00.", "2024-01-01 10:00", "+2024-01-01", "20240101", "x"),
]
WRONG = ["2023-02-29", "1900-02-29", "2024-13-01", "2024-01-00", "2024-01-01 24:00:00", "2024-01-01 23:59:60"]


@pytest.mark.parametrize("target", [DATE, TIMESTAMP, TIMESTAMP_NTZ], ids=str)
@pytest.mark.parametrize("wrong", [None, *WRONG])
def test_texts_are_read_the_same_both_ways(
    target: pa.DataType, wrong: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pa.array([*TEXTS, None, wrong], TEXT)
    fast = text_casts.parse(texts, target, lenient=True)
    monkeypatch.setattr(text_casts, "_PLAIN", {})
    assert fast.equals(text_casts.parse(texts, target, lenient=True))


@pytest.mark.parametrize("target", [DATE, TIMESTAMP, TIMESTAMP_NTZ], ids=str)
def test_plain_dates_and_times_are_read_by_arrow(target: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_casts, "_distinct", lambda *_: pytest.fail("read one by one"))
    texts = pa.array(["2024-01-01" if target == DATE else "2024-01-01 10:00:00.5", None], TEXT)
    assert text_casts.parse(texts, target, lenient=False).null_count == 1
