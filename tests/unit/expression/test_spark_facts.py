"""Values and types of expressions as Spark 4.3 gives them in ANSI mode, with UTC as the session's zone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRequest
from lakebed.expression.java_regex import to_re2
from lakebed.expression.predicate import parse_expression
from lakebed.expression.types import sql_name

SCHEMA = pa.schema([("s", pa.string()), ("x", pa.float64()), ("d", pa.decimal128(38, 10))])
ROW = pa.RecordBatch.from_pylist([{}], SCHEMA)
INF = float("inf")


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]


CASTS: list[tuple[str, str, Any]] = [
    ("cast(double('Infinity') as decimal(10,2))", "DECIMAL(10, 2)", None),
    ("cast(9.223372036854775807e18D as bigint)", "BIGINT", 9223372036854775807),
    ("cast(2e23D as decimal(38,5))", "DECIMAL(38, 5)", Decimal("199999999999999980000000.00000")),
    ("cast(float('1.1') as decimal(20,10))", "DECIMAL(20, 10)", Decimal("1.1000000238")),
    ("cast(float('1.1') as double)", "DOUBLE", 1.100000023841858),
    ("cast(12345678901234567890.12345 as double)", "DOUBLE", 1.2345678901234567e19),
    ("cast(16777217 as float)", "FLOAT", 16777216.0),
    ("cast(0.1 as float)", "FLOAT", 0.10000000149011612),
    ("cast(' 12 ' as int)", "INT", 12),
    (r"cast('\t12\n' as int)", "INT", 12),
    ("cast('+5' as int)", "INT", 5),
    ("cast('1.5d' as double)", "DOUBLE", 1.5),
    ("cast('inf' as double)", "DOUBLE", INF),
    ("cast('1e400' as double)", "DOUBLE", INF),
    ("cast(' 1.5e2 ' as decimal(5,1))", "DECIMAL(5, 1)", Decimal("150.0")),
    ("cast('y' as boolean)", "BOOLEAN", True),
    ("cast(' YES ' as boolean)", "BOOLEAN", True),
    ("cast('0' as boolean)", "BOOLEAN", False),
    ("cast(1.50 as string)", "STRING", "1.50"),
    ("cast(cast(0.0000001 as decimal(20,10)) as string)", "STRING", "0.0000001000"),
    ("cast(2e23D as string)", "STRING", "1.9999999999999998E23"),
    ("cast(float('1.1') as string)", "STRING", "1.1"),
    ("cast(-0.0D as string)", "STRING", "-0.0"),
    ("cast(true as string)", "STRING", "true"),
    ("cast(timestamp'2024-01-01 10:00:00.120' as string)", "STRING", "2024-01-01 10:00:00.12"),
    ("cast('abc' as binary)", "BINARY", b"abc"),
    ("cast('2024-1-5 foo' as date)", "DATE", dt.date(2024, 1, 5)),
    ("cast('2024-01-05T' as date)", "DATE", dt.date(2024, 1, 5)),
    ("cast('2024' as date)", "DATE", dt.date(2024, 1, 1)),
    ("cast('2024-01-05 10' as timestamp)", "TIMESTAMP", utc(2024, 1, 5, 10)),
    ("cast('2024-01-05 10:20' as timestamp)", "TIMESTAMP", utc(2024, 1, 5, 10, 20)),
    ("cast('2024-01-05 10:20:30.1234567' as timestamp)", "TIMESTAMP", utc(2024, 1, 5, 10, 20, 30, 123456)),
    ("cast('2024-01-05T10:20:30+2' as timestamp)", "TIMESTAMP", utc(2024, 1, 5, 8, 20, 30)),
    (
        "cast('2024-01-05 10:20:30+02:00' as timestamp_ntz)",
        "TIMESTAMP_NTZ",
        utc(2024, 1, 5, 10, 20, 30).replace(tzinfo=None),
    ),
    ("cast(1.5 as timestamp)", "TIMESTAMP", utc(1970, 1, 1, 0, 0, 1, 500000)),
    ("cast(1.5D as timestamp)", "TIMESTAMP", utc(1970, 1, 1, 0, 0, 1, 500000)),
    ("try_cast(1000 as tinyint)", "TINYINT", None),
]
OPERATORS: list[tuple[str, str, Any]] = [
    ("1 + 1.5", "DECIMAL(3, 1)", Decimal("2.5")),
    ("cast(1 as bigint) + 1.5", "DECIMAL(22, 1)", Decimal("2.5")),
    ("1.5 % 0.7", "DECIMAL(1, 1)", Decimal("0.1")),
    ("float('1.5') / float('2')", "DOUBLE", 0.75),
    ("float('1.5') + 1", "DOUBLE", 2.5),
    ("'5' + 1", "BIGINT", 6),
    ("'5' + 1.5", "DOUBLE", 6.5),
    ("cast(1 as tinyint) / cast(2 as tinyint)", "DOUBLE", 0.5),
    ("1 + null", "INT", None),
    ("null / 1.50", "DOUBLE", None),
    ("cast(1 as decimal(18,4)) / null", "DECIMAL(38, 20)", None),
    ("mod(7, 3)", "INT", 1),
    ("- '5'", "DOUBLE", -5.0),
    ("'5' = 5.0", "BOOLEAN", True),
    ("true = 'true'", "BOOLEAN", True),
    ("1 in (1, 2.5, 3D)", "BOOLEAN", True),
    ("1 in ('1')", "BOOLEAN", True),
    ("1 in (null, 2)", "BOOLEAN", None),
    ("9007199254740993 = 9007199254740992D", "BOOLEAN", True),
    ("X'41' = 'A'", "BOOLEAN", True),
    ("null <=> null", "BOOLEAN", True),
    ("null = null", "BOOLEAN", None),
    ("null in (null)", "BOOLEAN", None),
    ("null and false", "BOOLEAN", False),
    ("date'2024-01-01' = timestamp_ntz'2024-01-01 00:00:00'", "BOOLEAN", True),
    ("timestamp'2024-01-01 00:00:00' = timestamp_ntz'2024-01-01 00:00:00'", "BOOLEAN", True),
    (r"'a\nb' like 'a_b'", "BOOLEAN", True),
    ("'a😀b' like 'a_b'", "BOOLEAN", True),
    ("123 like '1%'", "BOOLEAN", True),
    (r"'a%' like 'a\\%'", "BOOLEAN", True),
    ("'ÀB' ilike 'àb'", "BOOLEAN", True),
    ("null like 'a'", "BOOLEAN", None),
    (r"'a\nb' rlike 'a.b'", "BOOLEAN", False),
    ("'abc' rlike '^b'", "BOOLEAN", False),
]
FUNCTIONS: list[tuple[str, str, Any]] = [
    ("coalesce('1', 2)", "BIGINT", 1),
    ("coalesce(1, 1.5)", "DECIMAL(11, 1)", Decimal("1.0")),
    ("coalesce(date'2024-01-01', '2024')", "DATE", dt.date(2024, 1, 1)),
    ("if(true, 1, '2')", "BIGINT", 1),
    ("if(null, 1, 2)", "INT", 2),
    ("nullif(1, 1.0)", "INT", None),
    ("nullif(-0.0D, 0.0D)", "DOUBLE", None),
    ("case 1 when 1.0 then 'x' end", "STRING", "x"),
    ("greatest(null, 1)", "INT", 1),
    ("greatest(1, 2.5, 3D)", "DOUBLE", 3.0),
    ("greatest('a', 'b')", "STRING", "b"),
    ("least(double('NaN'), 1D)", "DOUBLE", 1.0),
    ("round(2.5D)", "DOUBLE", 3.0),
    ("round(-2.5D)", "DOUBLE", -3.0),
    ("round(2.5)", "DECIMAL(2, 0)", Decimal(3)),
    ("round(1.005D, 2)", "DOUBLE", 1.01),
    ("round(125, -1)", "INT", 130),
    ("round(1234.567, -2)", "DECIMAL(5, 0)", Decimal(1200)),
    ("round(1.235, 2)", "DECIMAL(4, 2)", Decimal("1.24")),
    ("round(1.235, 5)", "DECIMAL(5, 3)", Decimal("1.235")),
    ("round(99.99, 1)", "DECIMAL(4, 1)", Decimal("100.0")),
    ("round(float('1.25'), 1)", "FLOAT", 1.2999999523162842),
    ("round(1e300D, 2)", "DOUBLE", 1e300),
    ("round('1.5')", "DOUBLE", 2.0),
    (
        "round(12345678901234567890123456789012345678, -2)",
        "DECIMAL(38, 0)",
        Decimal("12345678901234567890123456789012345700"),
    ),
    ("round(1.5, null)", "DECIMAL(2, 0)", None),
    ("ceil(1.5D)", "BIGINT", 2),
    ("ceil(1.5)", "DECIMAL(2, 0)", Decimal(2)),
    ("ceil(5)", "BIGINT", 5),
    ("ceil(double('NaN'))", "BIGINT", 0),
    ("ceil(99.5)", "DECIMAL(3, 0)", Decimal(100)),
    ("ceil('1.5')", "BIGINT", 2),
    ("ceil(null, 1)", "DECIMAL(22, 1)", None),
    ("floor(float('-1.5'))", "BIGINT", -2),
    ("floor(125, -1)", "DECIMAL(11, 0)", Decimal(120)),
    ("floor(-1.25D, 1)", "DECIMAL(17, 1)", Decimal("-1.3")),
    ("substring('hello', 0, 2)", "STRING", "he"),
    ("substring('hello', -3, 2)", "STRING", "ll"),
    ("substring('hello', -10, 7)", "STRING", "he"),
    ("substring('hello', 1, -1)", "STRING", ""),
    ("substring('hello', 2147483647)", "STRING", ""),
    ("substring('hello', -2147483648, 3)", "STRING", ""),
    ("substring('a%b', -2147483648)", "STRING", "a%"),
    ("substring(12345, 2, 2)", "STRING", "23"),
    ("lower('ÀÉİSS')", "STRING", "àéi̇ss"),
    ("upper('straße')", "STRING", "STRASSE"),
    ("lower('ΑΣ')", "STRING", "ας"),
    (r"trim('\ta\n')", "STRING", "\ta\n"),
    ("ltrim('  a ')", "STRING", "a "),
    ("trim(LEADING 'x' FROM 'xxax')", "STRING", "ax"),
    ("length('a😀')", "INT", 2),
    ("length(X'4142')", "INT", 2),
    ("length(123)", "INT", 3),
    ("concat('a', true, date'2024-01-01')", "STRING", "atrue2024-01-01"),
    ("concat(X'41', X'42')", "BINARY", b"AB"),
    ("concat('a', null)", "STRING", None),
    ("1 || 2", "STRING", "12"),
    ("'a' || timestamp'2024-01-01 00:00:00'", "STRING", "a2024-01-01 00:00:00"),
    ("startswith('abc', null)", "BOOLEAN", None),
    ("contains(123, '2')", "BOOLEAN", True),
    ("isnan(double('NaN'))", "BOOLEAN", True),
    ("isnull(null)", "BOOLEAN", True),
    ("year('2024-02-03')", "INT", 2024),
    ("hour(date'2024-01-01')", "INT", 0),
    ("hour(timestamp_ntz'2024-01-01 11:00:00')", "INT", 11),
    ("second(timestamp'2024-01-01 00:00:05.9')", "INT", 5),
    ("to_date(timestamp'2024-01-01 10:00:00')", "DATE", dt.date(2024, 1, 1)),
    ("abs(-1.5)", "DECIMAL(2, 1)", Decimal("1.5")),
    ("abs('-1.5')", "DOUBLE", 1.5),
    ("negative(1.5)", "DECIMAL(2, 1)", Decimal("-1.5")),
]
FACTS = [*CASTS, *OPERATORS, *FUNCTIONS]


@pytest.mark.parametrize(("text", "kind", "wanted"), FACTS, ids=[fact[0] for fact in FACTS])
def test_constants_have_the_value_and_type_that_spark_gives_them(text: str, kind: str, wanted: Any) -> None:
    expression = parse_expression(text, SCHEMA)
    assert sql_name(expression.type) == kind
    assert expression.evaluate(ROW)[0].as_py() == wanted
    again = parse_expression(expression.to_sql(), SCHEMA)
    assert again.type == expression.type
    assert again.evaluate(ROW)[0].as_py() == wanted


@pytest.mark.parametrize(
    "text",
    [
        "cast(1e20D as bigint)",
        "cast(timestamp'2300-12-31 23:59:59.5' as int)",
        "cast(true as timestamp)",
        "cast(date'2024-01-01' as int)",
        "try_cast(date'2024-01-01' as int)",
        "cast(1000 as decimal(3,0))",
        "cast('1.5' as int)",
        "cast('1e3' as int)",
        "cast('' as int)",
        "cast('1_000' as int)",
        "cast(5 as binary)",
        "cast('20240105' as date)",
        "cast('2024-01-02 00:00+02:00' as timestamp)",
        "cast(1 as date)",
        "7.5D div 2",
        "5D % 0",
        "5D / 0",
        "1 / 0",
        "-(-2147483648)",
        "2147483647 + 1",
        "cast(127 as tinyint) + cast(1 as tinyint)",
        "'5' + '6'",
        "'5.0' = 5",
        "true = 1",
        "true + 1",
        "-true",
        "case when true then 1 else date'2024-01-01' end",
        "case when null then 1 end",
        "greatest(1, 'a')",
        "round(2147483647, -1)",
        "round(true)",
        "ceil(1e30D)",
        "ceil(9223372036854775808D)",
        r"'a' like 'a\\b'",
        r"'a' like 'a\\'",
        "year(2024)",
        "timestamp_ntz(date'2024-01-01')",
        "1.23456789012345678901234567890123456789",
    ],
)
def test_what_spark_does_not_take_or_fails_on_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_expression(text, SCHEMA).evaluate(ROW)


@pytest.mark.parametrize(
    ("pattern", "texts", "wanted"),
    [
        ("^a.c$", ["abc", "abc\n", "a\nc", "xabc", "a\u2028c"], [True, True, False, False, False]),
        (r"\d+\s\w", ["1 a", "1\x0ba", "\u0661 a"], [True, True, False]),
        ("x{2}|[a-c_]+z", ["xx", "abz", "dz", "_z"], [True, True, False, True]),
        ("(?:ab)+?c", ["ababc", "abab"], [True, False]),
        (r"[^\d\-]", ["5", "-", "a"], [False, False, True]),
        (r"a\.b", ["a.b", "axb"], [True, False]),
    ],
)
def test_regular_expressions_find_what_java_finds(pattern: str, texts: list[str], wanted: list[bool]) -> None:
    batch = pa.RecordBatch.from_pylist([{"s": text} for text in texts], SCHEMA)
    quoted = pattern.replace("\\", "\\\\")
    assert parse_expression(f"s rlike '{quoted}'", SCHEMA).evaluate(batch).to_pylist() == wanted


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)a",
        r"(a)\1",
        "a(?=b)",
        "a++",
        r"\bx",
        r"\p{L}",
        "a$b",
        "x^",
        "[a&&b]",
        "[[:alpha:]]",
        "*a",
        "[",
        "a**",
        r"\Qa\E",
    ],
)
def test_other_regular_expressions_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="means different things"):
        to_re2(pattern)


def test_rounding_of_doubles_goes_by_their_digits() -> None:
    numbers = [
        0.125,
        0.375,
        1.005,
        2.675,
        -1.005,
        123456789.015,
        4.35,
        -0.004,
        0.0,
        5e-324,
        1.7976931348623157e308,
        1e15 + 0.5,
    ]
    batch = pa.RecordBatch.from_pylist([{"x": number} for number in numbers], SCHEMA)
    found = parse_expression("round(x, 2)", SCHEMA).evaluate(batch).to_pylist()
    assert found == [
        0.13,
        0.38,
        1.01,
        2.68,
        -1.01,
        123456789.02,
        4.35,
        0.0,
        0.0,
        0.0,
        1.7976931348623157e308,
        1e15 + 0.5,
    ]
    assert "-0.0" not in map(str, found)


def test_decimals_of_every_width_are_exact() -> None:
    big = Decimal("1234567890123456789012345678.9012345678")
    batch = pa.RecordBatch.from_pylist([{"d": big}, {"d": big.copy_negate()}, {"d": None}], SCHEMA)

    def values(text: str) -> list[Any]:
        found: list[Any] = parse_expression(text, SCHEMA).evaluate(batch).to_pylist()
        return found

    assert values("d % 1000") == [Decimal("678.9012345678"), Decimal("-678.9012345678"), None]
    assert values("d + 0.1")[0] == Decimal("1234567890123456789012345679.001234568")
    assert values("d = 1234567890123456789012345678.9012345678") == [True, False, None]
    assert values("cast(d as double)")[0] == float(big)
    assert values("round(d, 3)")[0] == Decimal("1234567890123456789012345678.901")


def test_nan_is_one_value_whatever_its_bits() -> None:
    batch = pa.RecordBatch.from_pylist([{"x": INF}], SCHEMA)
    assert parse_expression("x % 0.5D IN (double('NaN'), 1)", SCHEMA).evaluate(batch).to_pylist() == [True]
    assert parse_expression("x % 0.5D = double('NaN')", SCHEMA).evaluate(batch).to_pylist() == [True]


def test_far_dates_have_a_text() -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("d", pa.date32())])
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([253402300800000000, 2**63 - 1, -(2**63), None], pa.int64()).cast(schema.field("t").type),
            pa.array([2932897, -719163, -719529, None], pa.int32()).cast(pa.date32()),
        ],
        schema=schema,
    )
    assert parse_expression("cast(t as string)", schema).evaluate(batch).to_pylist() == [
        "+10000-01-01 00:00:00",
        "+294247-01-10 04:00:54.775807",
        "-290308-12-21 19:59:05.224192",
        None,
    ]
    found = parse_expression("cast(d as string)", schema).evaluate(batch).to_pylist()
    assert found == ["+10000-01-01", "0000-12-31", "-0001-12-31", None]
