"""Values that SET gives to columns: numbers stay what they are, or nothing is written."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRequest
from lakebed.table import Table
from tests.unit.write.tables import files, make, values

BIG = 2**53 + 1
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int64()),
        ("d", pa.decimal128(5, 2)),
        ("e", pa.decimal128(10, 0)),
        ("w", pa.decimal128(38, 2)),
        ("f", pa.float32()),
        ("g", pa.float64()),
    ]
)
ROW = {
    "id": 1,
    "v": BIG,
    "d": Decimal("1.25"),
    "e": Decimal(1),
    "w": Decimal(f"{BIG}.00"),
    "f": 1.5,
    "g": 2.0,
}


def filled(**changed: Any) -> Table:
    """One row with numbers, and one with none."""
    t = make(schema=SCHEMA, ordering=None, partition_by=None)
    t.upsert(pa.Table.from_pylist([ROW | changed, {"id": 2}], schema=SCHEMA))
    return t


NOT_KEPT = [
    ("d", "1.239D"),
    ("d", "1.239F"),
    ("d", "g / 3"),
    ("d", "1e300"),
    ("d", "cast('NaN' as double)"),
    ("d", "cast('Infinity' as float)"),
    ("d", "1000"),
    ("d", "v"),
    ("f", "1e300"),
    ("f", "-1e39"),
    ("f", "16777217"),
    ("f", "v"),
    ("g", "v"),
    ("g", "9223372036854775807"),
    ("g", "-9223372036854775807"),
    ("g", "9223372036854775809"),
    ("v", "1.5"),
    ("v", "1.5D"),
    ("v", "9223372036854775808D"),
    ("v", "cast('NaN' as double)"),
    ("e", "d"),
]


@pytest.mark.parametrize(("column", "text"), NOT_KEPT)
def test_an_assignment_lost_digits_in_silence(column: str, text: str) -> None:
    t = filled()
    before = files(t)
    with pytest.raises(InvalidRequest, match=f"column '{column}'"):
        t.update({column: text}, where="id = 1")
    assert files(t) == before


def test_the_refusal_names_the_way_out() -> None:
    t = filled()
    with pytest.raises(InvalidRequest, match=r"1.239 is not kept as DECIMAL\(5, 2\).*cast\(... as DECIMAL\(5, 2\)\)"):
        t.update({"d": "1.239D"})
    with pytest.raises(InvalidRequest, match=r"column 'd'.*Write a cast, or round"):
        t.update({"d": "1.239"})
    t.update({"d": "cast(1.239D as decimal(5, 2))", "g": "cast(v as double)", "f": "cast(1e300 as float)"})
    assert values(t, "d", "g", "f") == [
        (Decimal("1.24"), float(2**53), float("inf")),
        (Decimal("1.24"), None, float("inf")),
    ]
    t.update({"d": "round(1.239D, 2)"})
    assert values(t, "d") == [(Decimal("1.24"),)] * 2


def test_a_merge_lost_digits_in_silence() -> None:
    t = filled()
    source = pa.table({"id": [1], "x": [1.239]})
    with pytest.raises(InvalidRequest, match="column 'd'"):
        t.merge(source, on="t.id = s.id").when_matched_update({"d": "s.x"}).execute()
    t.merge(source, on="t.id = s.id").when_matched_update({"d": "round(s.x, 2)"}).execute()
    assert values(t, "id", "d") == [(1, Decimal("1.24")), (2, None)]


MERGE_VECTORS = [
    ("d", "5", Decimal("5.00")),
    ("d", "-999", Decimal("-999.00")),
    ("d", "id", Decimal("1.00")),
    ("e", "v - v", Decimal(0)),
    ("e", "cast(7 as tinyint)", Decimal(7)),
    ("d", "0.1D", Decimal("0.10")),
    ("d", "0.1F", Decimal("0.10")),
    ("d", "-0.0D", Decimal("0.00")),
    ("d", "null", None),
    ("d", "d * 2", Decimal("2.50")),
    ("w", "v", Decimal(f"{BIG}.00")),
    ("g", "0.1", 0.1),
    ("g", "123456789012.345", 123456789012.345),
    ("g", "1152921504606846976", float(2**60)),
    ("g", "1152921504606846976.0", float(2**60)),
    ("g", "9223372036854775808", float(2**63)),
    ("g", "-9223372036854775808", -float(2**63)),
    ("g", "16777217", 16777217.0),
    ("g", "f", 1.5),
    ("f", "0.1", 0.10000000149011612),
    ("f", "0.1D", 0.10000000149011612),
    ("f", "g / 3", 0.6666666865348816),
    ("f", "16777216", 16777216.0),
    ("f", "cast('-Infinity' as double)", -float("inf")),
    ("v", "2.0", 2),
    ("v", "2.0D", 2),
]


@pytest.mark.parametrize(("column", "text", "expected"), MERGE_VECTORS)
def test_a_number_that_fits_is_assigned(column: str, text: str, expected: Any) -> None:
    t = filled()
    t.update({column: text}, where="id = 1")
    assert values(t, "id", column) == [(1, expected), (2, None)]


def test_columns_with_nulls_are_assigned() -> None:
    t = filled(v=2**40)
    t.update({"g": "v", "w": "v", "e": "id"})
    assert values(t, "id", "g", "w", "e") == [(1, 2.0**40, Decimal(2**40), Decimal(1)), (2, None, None, Decimal(2))]
