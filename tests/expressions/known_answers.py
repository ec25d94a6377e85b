"""Expressions whose answers are known: one or a few for each way in which they once were wrong.

Rows are one row of the columns that `columns.py` declares; those that a case does not name are null. A test compares
the answers with lakebed's, and another with Spark's own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.expressions.columns import SCHEMA

NAN, INF = float("nan"), float("inf")


class _Failure:
    """A row on which the expression fails, or an expression that is refused."""

    def __repr__(self) -> str:
        return "fails"


FAILS = _Failure()


@dataclass(frozen=True)
class Known:
    """An expression, a row and the answer."""

    expression: str
    row: dict[str, Any]
    answer: Any
    may_refuse: bool = False
    """Lakebed may also refuse to answer."""

    def __str__(self) -> str:
        return self.expression

    @property
    def batch(self) -> pa.RecordBatch:
        """The row in Arrow."""
        return pa.RecordBatch.from_pylist([self.row], schema=SCHEMA)


def exactly(value: Any) -> Any:
    """A value that equals only itself: doubles by their bits, all else with its type."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value)
    return (type(value), value)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


_NEW_YEAR = date(2024, 1, 1)

_NINES = "9" * 38
_BEYOND = "9223372036854775808"

PATTERNS: Sequence[Known] = (
    Known("s NOT LIKE 'x%'", {"s": "xy"}, False),
    Known("s NOT LIKE 'x%'", {"s": "ab"}, True),
    Known("s NOT LIKE 'x%'", {}, None),
    Known("s NOT ILIKE 'X%'", {"s": "xy"}, False),
    Known("NOT s NOT LIKE 'x%'", {"s": "xy"}, True),
    Known("s NOT LIKE 'a!%b' ESCAPE '!'", {"s": "a%b"}, False),
    Known("s NOT IN ('xy', 'ab')", {"s": "xy"}, False),
    Known("s NOT BETWEEN 'a' AND 'c'", {"s": "b"}, False),
    Known("s NOT RLIKE '^x'", {"s": "xy"}, False),
    Known("s LIKE 'a\\\\b'", {"s": "ab"}, FAILS),
    Known("regexp_like(s, 'X', 'i')", {"s": "x"}, FAILS),
)
REMAINDERS: Sequence[Known] = (
    Known("5.5 % 2", {}, Decimal("1.5")),
    Known("d9 % 1 = 0", {"d9": Decimal("1.50")}, False),
    Known("f64 % 2", {"f64": 5.5}, 1.5),
    Known("f64 % 2", {"f64": -5.5}, -1.5),
    Known("i32 % 3", {"i32": -7}, -1),
    Known("d9 div 2", {"d9": Decimal("5.50")}, 2),
    Known("i32 div 0", {"i32": 1}, FAILS),
    Known("i64 % 0", {"i64": 1}, FAILS),
    Known("i32 / 2", {"i32": 3}, 1.5),
    Known("i8 + i8", {"i8": 100}, FAILS),
    Known(f"{_NINES} % round(d9, 1)", {"d9": Decimal("-0.50")}, Decimal("0.0")),
    Known(f"{_NINES} % d18", {"d18": Decimal("-0.0001")}, Decimal("0.0000")),
    Known(f"{_NINES} % d18", {"d18": Decimal("0.0007")}, FAILS),
    Known(f"1{'0' * 37} % d9", {"d9": Decimal("0.07")}, Decimal("0.06")),
)
TIMES: Sequence[Known] = (
    Known("day < TIMESTAMP '2024-01-01 10:00:00'", {"day": _NEW_YEAR}, True),
    Known("day = TIMESTAMP '2024-01-01 10:00:00'", {"day": _NEW_YEAR}, False),
    Known("day = TIMESTAMP '2024-01-01 00:00:00'", {"day": _NEW_YEAR}, True),
    Known("day IN (TIMESTAMP '2024-01-01 10:00:00')", {"day": _NEW_YEAR}, False),
    Known("day BETWEEN DATE '2024-01-01' AND TIMESTAMP '2024-01-01 10:00:00'", {"day": _NEW_YEAR}, True),
    Known("ts > DATE '2024-01-01'", {"ts": _at("2024-01-01 10:00:00")}, True),
    Known("DATE '2024-01-01'::STRING", {}, "2024-01-01", may_refuse=True),
    Known("to_date(dtext, 'dd/MM/yyyy')", {"dtext": "01/02/2024"}, date(2024, 2, 1), may_refuse=True),
    Known("to_date(dtext, 'yyyy')", {"dtext": "2024-05-06"}, FAILS, may_refuse=True),
)
_ZONED: Sequence[tuple[str, str | None]] = (
    ("2024-06-30 12:00:00.0000012024-03", "2024-06-30 15:00:00.000001"),
    (f"2024-06-30 12:00:00.{'9' * 40}", "2024-06-30 12:00:00.999999"),
    ("2024-06-30 12:00:00.5 \t+8:5", "2024-06-30 03:55:00.5"),
    ("2024-06-30 12:00:00-030015", "2024-06-30 15:00:15"),
    ("2024-06-30 12:00:00-3:00:15", "2024-06-30 15:00:15"),
    ("2024-06-30 12:00:00+0330", "2024-06-30 08:30:00"),
    ("2024-06-30 12:00:00UT-18", "2024-07-01 06:00:00"),
    ("2024-06-30 12:00:00UTC+18:00:01", None),
    ("2024-06-30 12:00:00+08:5:11", None),
    ("2024-06-30 12:00:00-030", None),
    ("2024-06-30 12:00:00+3:60", None),
    ("2024-06-30 12:00-03", None),
    ("2024-06-30T", None),
    ("0002024-06-30 12:00:00", None),
)
ZONES: Sequence[Known] = (
    *(Known("TRY_CAST(dtext AS TIMESTAMP)", {"dtext": text}, at and _at(at)) for text, at in _ZONED),
    Known("TRY_CAST(dtext AS TIMESTAMP_NTZ)", {"dtext": "2024-06-30 12:00:00+19"}, None),
    Known("hour(TRY_CAST(dtext AS TIMESTAMP_NTZ))", {"dtext": "2024-06-30 12:00:00-030015"}, 12),
)
BEYOND_BIGINT: Sequence[Known] = (
    Known(f"n64 <= {_BEYOND}", {}, True, may_refuse=True),
    Known(f"n64 <= {_BEYOND}", {"n64": 5}, True, may_refuse=True),
    Known(f"n64 > {_BEYOND}", {}, False, may_refuse=True),
    Known(f"{_BEYOND}BD <= n64", {}, False, may_refuse=True),
    Known("n64 >= -9223372036854775809", {}, True, may_refuse=True),
    Known("(-9223372036854775808.5) > n64", {}, False, may_refuse=True),
    Known(f"n64 NOT BETWEEN {_BEYOND} AND 5", {}, True, may_refuse=True),
    Known("n64 <= 9223372036854775807.5", {}, True, may_refuse=True),
    Known("n64 <= 9223372036854775807.0", {}, None),
    Known("n64 <= -(9223372036854775809)", {}, None),
    Known(f"n64 <= ({_BEYOND} + 0)", {}, None),
    Known(f"n64 = {_BEYOND}", {}, None),
    Known(f"n64 <=> {_BEYOND}", {}, False),
    Known(f"d18 <= {_BEYOND}", {}, None),
    Known("(1 + i32) > 12345678901234567890.123", {"i32": 2147483647}, False, may_refuse=True),
    Known("(1 + i32) > 3000000000", {"i32": 2147483647}, FAILS),
)
CASTS: Sequence[Known] = (
    Known("CAST(f64 AS INT)", {"f64": NAN}, FAILS),
    Known("CAST(f64 AS INT)", {"f64": 1e20}, FAILS),
    Known("CAST(f64 AS INT)", {"f64": -1.9}, -1),
    Known("TRY_CAST(f64 AS INT)", {"f64": NAN}, None),
    Known("TRY_CAST(num AS INT)", {"num": "x"}, None),
    Known("CAST(f64 AS DECIMAL(9,2))", {"f64": NAN}, None),
    Known("CAST(f64 AS DECIMAL(9,2))", {"f64": 1e20}, FAILS),
    Known("CAST(ts AS BIGINT)", {"ts": _at("2024-01-01 10:00:00")}, 1704103200),
    Known("CAST(i64 AS TIMESTAMP)", {"i64": 1704103200}, _at("2024-01-01 10:00:00")),
    Known("CAST(d38 AS DECIMAL(9,2))", {"d38": Decimal("1.2390000000")}, Decimal("1.24")),
    Known("CAST(d18 AS INT)", {"d18": Decimal("-1.9000")}, -1),
    Known("f64 || 'x'", {"f64": -0.0}, "-0.0x", may_refuse=True),
    Known("f64 || 'x'", {"f64": 1e20}, "1.0E20x", may_refuse=True),
    Known("CAST(b AS INT)", {"b": True}, 1),
    Known("CASE WHEN num LIKE '%x%' THEN 0 ELSE CAST(num AS INT) END", {"num": "x"}, 0),
    Known("CASE WHEN i32 = 0 THEN 0 ELSE 10 div i32 END", {"i32": 0}, 0),
    Known("coalesce(i32, 1 div 0)", {"i32": 7}, 7, may_refuse=True),
)
ARGUMENTS: Sequence[Known] = (
    Known("ceil(d18, 2)", {"d18": Decimal("1.2341")}, Decimal("1.24"), may_refuse=True),
    Known("floor(d18, 2)", {"d18": Decimal("-1.2341")}, Decimal("-1.24"), may_refuse=True),
    Known("floor(i64, -1)", {"i64": 17}, Decimal(10), may_refuse=True),
    Known("round(d18, 2)", {"d18": Decimal("-1.2350")}, Decimal("-1.24")),
    Known("i32 BETWEEN SYMMETRIC 5 AND 1", {"i32": 3}, FAILS),
    Known("trim(LEADING 'x' FROM s)", {"s": "xxyx"}, "yx", may_refuse=True),
    Known("trim(s)", {"s": " \tx "}, "\tx"),
    Known("substring(s, -2, 1)", {"s": "abc"}, "b"),
)
FLOATS: Sequence[Known] = (
    Known("f64 IN (0)", {"f64": -0.0}, True),
    Known("f64 NOT IN (0.0D)", {"f64": -0.0}, False),
    Known("f64 = 0", {"f64": -0.0}, True),
    Known("-f64 = -f64", {"f64": NAN}, True),
    Known("f64 > i32", {"f64": NAN, "i32": 5}, True),
    Known("f64 IN (CAST('NaN' AS DOUBLE))", {"f64": NAN}, True),
    Known("(f64 / f64) IN (CAST('NaN' AS DOUBLE))", {"f64": INF}, True),
    Known("greatest(CAST('NaN' AS DOUBLE), 1.0D)", {}, NAN),
    Known("least(f64, 1.0D)", {"f64": NAN}, 1.0),
    Known("f64 = i64", {"f64": 9007199254740992.0, "i64": 9007199254740993}, True),
    Known("f64 < i64", {"f64": 1.5, "i64": 9223372036854775807}, True),
    Known("d9 = 1e-1", {"d9": Decimal("0.10")}, True),
    Known("d9 IN (1e-1)", {"d9": Decimal("0.10")}, True),
    Known("-f64", {"f64": 0.0}, -0.0),
)
KNOWN: Sequence[Known] = (*PATTERNS, *REMAINDERS, *TIMES, *ZONES, *BEYOND_BIGINT, *CASTS, *ARGUMENTS, *FLOATS)
