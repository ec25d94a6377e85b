"""What was wrong or lost in conditions: each test is named after the fault it keeps away."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import ColumnStats, parse_expression, parse_predicate

NAN, INF = float("nan"), float("inf")
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("price", pa.decimal128(10, 3)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)


def batch(**columns: list[Any]) -> pa.RecordBatch:
    """Rows with some columns, null elsewhere."""
    length = len(next(iter(columns.values())))
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(field.name, [None] * length), field.type) for field in SCHEMA], schema=SCHEMA
    )


def values(text: str, **columns: list[Any]) -> list[Any]:
    """An expression over some rows."""
    found: list[Any] = parse_expression(text, SCHEMA).evaluate(batch(**columns)).to_pylist()
    return found


def value(text: str) -> Any:
    """A constant expression."""
    return values(text, id=[1])[0]


def refused(text: str) -> str:
    """Why the binder does not take it."""
    with pytest.raises(InvalidRequest) as caught:
        parse_expression(text, SCHEMA)
    return str(caught.value)


def failed(text: str, **columns: list[Any]) -> str:
    """Why it fails on rows."""
    expression = parse_expression(text, SCHEMA)
    with pytest.raises(InvalidRequest) as caught:
        expression.evaluate(batch(**columns))
    return str(caught.value)


def table_of(tmp_path: Path, rows: list[dict[str, Any]], schema: pa.Schema, **settings: Any) -> Any:
    """A table with these rows."""
    t = lakebed.create(str(tmp_path / "t"), schema, **({"record_key": "id"} | settings))
    t.upsert(pa.Table.from_pylist(rows, schema=schema))
    return t


def ids(t: Any, where: str | None = None) -> list[int]:
    return sorted(t.scan(columns=["id"], filter=where).to_arrow().column("id").to_pylist())


# --- 1 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s NOT LIKE 'x%'", [False, True, None, True]),
        ("s NOT ILIKE 'x%'", [False, True, None, False]),
        ("s NOT LIKE 'x!%' ESCAPE '!'", [True, True, None, True]),
        ("NOT s LIKE 'x%'", [False, True, None, True]),
        ("NOT s NOT LIKE 'x%'", [True, False, None, False]),
        ("s NOT RLIKE '^x'", [False, True, None, True]),
        ("s NOT IN ('xa')", [False, True, None, True]),
        ("s NOT BETWEEN 'a' AND 'n'", [True, False, None, True]),
        ("s IS NOT NULL", [True, True, False, True]),
        ("s IS NOT DISTINCT FROM 'm'", [False, True, False, False]),
        ("s IS DISTINCT FROM 'm'", [True, False, True, True]),
    ],
)
def test_not_like_means_not_like(text: str, wanted: list[bool | None]) -> None:
    assert values(text, s=["xa", "m", None, "Xa"]) == wanted


def test_a_delete_where_not_like_keeps_the_rows_that_are_like(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("s", pa.string())])
    t = table_of(tmp_path, [{"id": n, "s": s} for n, s in enumerate(["xa", "xb", "m", "n"])], schema)
    t.delete(where="s not like 'x%'")
    assert ids(t) == [0, 1]
    t.update(where="s not ilike '%A'", set={"s": "'changed'"})
    assert ids(t, "s = 'changed'") == [1]


# --- 2 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted", "kind"),
    [
        ("5.5 % 2", Decimal("1.5"), pa.decimal128(2, 1)),
        ("-5.5 % 2", Decimal("-1.5"), pa.decimal128(2, 1)),
        ("5.5D % 2", 1.5, pa.float64()),
        ("-7 % 3", -1, pa.int32()),
        ("7.5 div 2", 3, pa.int64()),
        ("-7 div 2", -3, pa.int64()),
        ("5.5 % 0.7", Decimal("0.6"), pa.decimal128(1, 1)),
        ("1 / 4", 0.25, pa.float64()),
        ("1.5 / 2.25", Decimal("0.666667"), pa.decimal128(9, 6)),
        ("1.5 * 2.25", Decimal("3.375"), pa.decimal128(6, 3)),
    ],
)
def test_remainder_and_div_do_not_cut_their_operands(text: str, wanted: Any, kind: pa.DataType) -> None:
    assert value(text) == wanted
    assert parse_expression(text, SCHEMA).type == kind


def test_a_delete_by_remainder_takes_whole_prices_only(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("price", pa.decimal128(10, 2))])
    prices = ["1.50", "2.00", "2.25", "0.99"]
    t = table_of(tmp_path, [{"id": n, "price": Decimal(p)} for n, p in enumerate(prices)], schema)
    t.delete(where="price % 1 = 0")
    assert ids(t) == [0, 2, 3]


# --- 3, 4 -------------------------------------------------------------------------------------------------------------


def test_pruning_agrees_about_a_decimal_beside_a_double(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("price", pa.decimal128(10, 2))])
    t = table_of(tmp_path, [{"id": 1, "price": Decimal("0.10")}, {"id": 2, "price": Decimal("0.10")}], schema)
    assert ids(t, "price = 1e-1") == [1, 2]
    assert ids(t, "price IN (1e-1, 5)") == [1, 2]
    assert ids(t, "price < 1e-1") == []
    t.delete(where="price = 1e-1")
    assert ids(t) == []


@pytest.mark.parametrize(
    ("text", "stats", "may"),
    [
        ("price = 1e-1", ColumnStats(Decimal("0.100"), Decimal("0.100")), True),
        ("price = 2e-1", ColumnStats(Decimal("0.100"), Decimal("0.100")), False),
        ("price > 1e-1", ColumnStats(Decimal("0.050"), Decimal("0.100")), False),
        ("day < TIMESTAMP '2024-01-01 10:00:00'", ColumnStats(dt.date(2024, 1, 1), dt.date(2024, 1, 5)), True),
        ("day = TIMESTAMP '2024-01-01 10:00:00'", ColumnStats(dt.date(2024, 1, 1), dt.date(2024, 1, 1)), False),
        ("day > TIMESTAMP '2024-01-05 00:00:00'", ColumnStats(dt.date(2024, 1, 1), dt.date(2024, 1, 5)), False),
        ("n = 9007199254740992D", ColumnStats(9007199254740993, 9007199254740993), True),
        ("n > 9007199254740992D", ColumnStats(9007199254740993, 9007199254740993), False),
        ("id = 1.5", ColumnStats(1, 1), False),
        ("id > 3000000000", ColumnStats(1, 5), False),
        ("f = 0", ColumnStats(-0.0, -0.0), True),
        ("f > 1e300", ColumnStats(0.0, 1.0), True),  # NaN, which no statistics tell of
    ],
)
def test_statistics_are_converted_as_the_column_is(text: str, stats: ColumnStats, may: bool) -> None:
    predicate = parse_predicate(text, SCHEMA)
    assert predicate.may_match({predicate.columns[0]: stats}) is may


def test_a_date_beside_a_timestamp_keeps_the_time_of_day(tmp_path: Path) -> None:
    day = [dt.date(2024, 1, 1)]
    assert values("day < TIMESTAMP '2024-01-01 10:00:00'", day=day) == [True]
    assert values("day = TIMESTAMP '2024-01-01 10:00:00'", day=day) == [False]
    assert values("day = TIMESTAMP '2024-01-01 00:00:00'", day=day) == [True]
    assert values("day IN (TIMESTAMP '2024-01-01 10:00:00')", day=day) == [False]
    assert values("day BETWEEN TIMESTAMP '2023-12-31 10:00:00' AND '2024-01-01'", day=day) == [True]
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("day", pa.date32())])
    t = table_of(tmp_path, [{"id": 1, "day": day[0]}], schema)
    assert ids(t, "day < TIMESTAMP '2024-01-01 10:00:00'") == [1]
    assert ids(t, "day = TIMESTAMP '2024-01-01 10:00:00'") == []


# --- 5 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [NAN, INF, -INF, 3e9, -3e9])
def test_a_number_out_of_range_is_an_error(number: float) -> None:
    assert "does not fit into INT. Use try_cast" in failed("cast(f as int)", f=[number])
    assert values("try_cast(f as int)", f=[number, 1.9]) == [None, 1]


def test_casts_of_floats() -> None:
    assert values("cast(f as int)", f=[1.9, -1.9, -0.0, None]) == [1, -1, 0, None]
    assert values("cast(f as decimal(10, 2))", f=[1.235, NAN, -1.235]) == [Decimal("1.24"), None, Decimal("-1.24")]
    assert values("cast(f as bigint)", f=[2.0**63]) == [2**63 - 1]
    assert values("cast(f as boolean)", f=[NAN, 0.0, -0.0, 0.1]) == [True, False, False, True]


def test_timestamps_count_seconds() -> None:
    just_before = dt.datetime(1969, 12, 31, 23, 59, 59, 500000, dt.UTC)
    assert values("cast(ts as bigint)", ts=[just_before]) == [-1]
    assert values("cast(ts as double)", ts=[just_before]) == [-0.5]
    assert values("cast(ts as decimal(20, 6))", ts=[just_before]) == [Decimal("-0.500000")]
    assert values("cast(n as timestamp)", n=[5]) == [dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)]


def test_decimals_are_rounded_half_up() -> None:
    prices = [Decimal("1.239"), Decimal("1.235"), Decimal("-1.235")]
    assert values("cast(price as decimal(5, 2))", price=prices) == [Decimal("1.24"), Decimal("1.24"), Decimal("-1.24")]
    assert "does not fit into DECIMAL(3, 2)" in failed("cast(price as decimal(3, 2))", price=[Decimal(10)])


@pytest.mark.parametrize("text", ["f || 'x'", "concat(f, 'x')", "cast(f as string) || 'x'"])
def test_floats_are_the_same_text_everywhere(text: str) -> None:
    assert values(text, f=[-0.0, 1e20, 1e7, 1.0, NAN, INF]) == [
        "-0.0x",
        "1.0E20x",
        "1.0E7x",
        "1.0x",
        "NaNx",
        "Infinityx",
    ]


def test_a_float_assigned_to_a_text_is_javas_text(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("f", pa.float64()), ("s", pa.string())])
    t = table_of(tmp_path, [{"id": 1, "f": 1e20, "s": None}], schema)
    t.update(where="id = 1", set={"s": "f"})
    assert t.scan(columns=["s"]).to_arrow().column("s").to_pylist() == ["1.0E20"]


# --- 6 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("to_date(s, 'dd/MM/yyyy')", "format"),
        ("regexp_like(s, 'a', 'i')", "flag"),
        ("id IN (SELECT 1)", "query"),
    ],
)
def test_arguments_are_never_dropped(text: str, argument: str) -> None:
    assert f"with {argument!r}" in refused(text)


def test_between_symmetric_is_refused() -> None:
    assert "symmetric" in refused("id BETWEEN SYMMETRIC 5 AND 1").lower()


def test_ceil_and_floor_take_their_digits() -> None:
    assert value("ceil(1.25, 1)") == Decimal("1.3")
    assert value("floor(-1.25, 1)") == Decimal("-1.3")
    assert value("floor(125, -1)") == Decimal(120)
    assert value("ceil(1.25D, 1)") == Decimal("1.3")
    assert value("ceil(1.25)") == Decimal(2)
    assert value("floor(-1.5D)") == -2


# --- 7 ----------------------------------------------------------------------------------------------------------------


def test_one_zero_and_one_nan() -> None:
    floats = [-0.0, 0.0, NAN, INF, None]
    assert values("f IN (0)", f=floats) == [True, True, False, False, None]
    assert values("f = 0", f=floats) == [True, True, False, False, None]
    assert values("-f = -f", f=floats) == [True, True, True, True, None]
    assert values("f IN (double('NaN'))", f=floats) == [False, False, True, False, None]
    assert values("f > id", f=floats, id=[0] * 5) == [False, False, True, True, None]
    assert values("f > double('Infinity')", f=floats) == [False, False, True, False, None]
    assert values("nullif(f, 0)", f=floats)[:2] == [None, None]
    assert values("CASE f WHEN 0 THEN 'zero' ELSE 'not' END", f=floats) == ["zero", "zero", "not", "not", "not"]
    assert values("f <=> double('NaN')", f=floats) == [False, False, True, False, False]
    assert str(values("greatest(f, 1.0)", f=[NAN, 0.0])) == "[nan, 1.0]"
    assert values("least(f, 1.0)", f=[NAN, None]) == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_merge_on_a_double_partition_with_both_zeros_keeps_one_row(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("p", pa.float64()), ("v", pa.int32())])
    t = table_of(tmp_path, [{"id": 1, "p": -0.0, "v": 1}], schema, partition_by="p", table_type=kind)
    source = pa.Table.from_pylist([{"id": 1, "p": 0.0, "v": 2}], schema=schema)
    merge = t.merge(source, on="t.id = s.id and t.p = s.p")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert t.scan(columns=["id", "v"]).to_arrow().to_pylist() == [{"id": 1, "v": 2}]


def test_a_merge_on_a_double_key_with_both_zeros_keeps_one_row(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.float64(), nullable=False), ("v", pa.int32())])
    t = table_of(tmp_path, [{"id": -0.0, "v": 1}, {"id": 2.0, "v": 1}], schema)
    source = pa.Table.from_pylist([{"id": 0.0, "v": 2}], schema=schema)
    t.merge(source, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert sorted(t.scan(columns=["v"]).to_arrow().column("v").to_pylist()) == [1, 2]


# --- 10 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [["1.5", "10.25", "100"], ["0.01", "99999999.99", "3"]])
def test_a_merge_with_decimal_partitions_of_several_lengths(tmp_path: Path, digits: list[str]) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("p", pa.decimal128(10, 2)), ("v", pa.int32())])
    rows = [{"id": n, "p": Decimal(text), "v": 1} for n, text in enumerate(digits)]
    t = table_of(tmp_path, rows, schema, partition_by="p")
    source = pa.Table.from_pylist([row | {"v": 2} for row in rows], schema=schema)
    merge = t.merge(source, on="t.id = s.id and t.p = s.p")
    merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute()
    assert t.scan(columns=["v"]).to_arrow().column("v").to_pylist() == [2] * len(rows)


def test_a_merge_matches_no_value_that_had_to_change(tmp_path: Path) -> None:
    """A time of day beside a date, a fraction beside a whole number: equal to nothing, so not matched."""
    schema = pa.schema([pa.field("id", pa.date32(), nullable=False), ("v", pa.int32())])
    t = table_of(tmp_path, [{"id": dt.date(2024, 1, 1), "v": 1}], schema)
    at_ten = pa.table({"id": pa.array([dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC)], pa.timestamp("us"))})
    midnight = pa.table({"id": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us"))})
    t.merge(at_ten, on="t.id = s.id").when_matched_update({"v": "2"}).execute()
    assert t.scan(columns=["v"]).to_arrow().column("v").to_pylist() == [1]
    t.merge(midnight, on="t.id = s.id").when_matched_update({"v": "2"}).execute()
    assert t.scan(columns=["v"]).to_arrow().column("v").to_pylist() == [2]


def test_a_merge_by_a_lossy_comparison_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32())])
    t = table_of(tmp_path, [{"id": 2**53 + 1, "v": 1}], schema)
    with pytest.raises(InvalidRequest, match="cannot be looked up"):
        t.merge(pa.table({"id": [2.0**53]}), on="t.id = s.id").when_matched_update({"v": "2"}).execute()


def test_a_bigint_beyond_2_to_53_beside_a_double(tmp_path: Path) -> None:
    assert values("n = 9007199254740992D", n=[2**53 + 1, 1]) == [True, False]
    assert values("n > f", n=[2**53 + 1], f=[1.5]) == [True]
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("n", pa.int64()), ("f", pa.float64())])
    t = table_of(tmp_path, [{"id": 1, "n": 2**53 + 1, "f": 0.5}], schema)
    assert ids(t, "n > f") == [1]
    assert ids(t, "n = 9007199254740992D") == [1]


def test_try_cast_gives_null() -> None:
    assert values("try_cast(s as int)", s=["1", "x", "99999999999", None, " 7 "]) == [1, None, None, None, 7]
    assert values("try_cast(s as date)", s=["2024-01-05", "soon"]) == [dt.date(2024, 1, 5), None]
    assert values("try_cast(n as tinyint)", n=[127, 128]) == [127, None]
    assert "'x' is not a number" in failed("cast(s as int)", s=["x"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("CASE WHEN s RLIKE '^[0-9]+$' THEN cast(s as int) ELSE -1 END", [5, -1, -1]),
        ("if(s = 'x', 0, cast(s as int))", [5, 0, None]),
        ("s = '5' AND cast(s as int) = 5", [True, False, None]),
        ("s = 'x' OR cast(s as int) = 5", [True, True, None]),
        ("coalesce(n, cast(s as int))", [5, 2, 3]),
        ("id <> 0 AND 10 / id > 1", [True, False, False]),
        ("CASE WHEN id = 0 THEN NULL ELSE 10 / id END", [10.0, None, None]),
        ("CASE id WHEN 1 THEN cast(s as int) END", [5, None, None]),
        ("10 / nullif(id, 0)", [10.0, None, None]),
    ],
)
def test_rows_that_are_not_taken_are_not_evaluated(text: str, wanted: list[Any]) -> None:
    assert values(text, s=["5", "x", None], n=[None, 2, 3], id=[1, 0, 0]) == wanted


def test_what_fails_on_a_row_that_is_taken_is_an_error() -> None:
    assert "division by zero" in failed("id = 1 OR 10 / id > 1", id=[1, 0])
    assert "nullif(divisor, 0)" in failed("10 / id", id=[0])
    assert "overflow" in failed("id + 1", id=[2**31 - 1])
    assert "overflow" in failed("-id", id=[-(2**31)])
    assert values("n / id", n=[None], id=[0]) == [None]


def test_a_day_beyond_all_timestamps_failed_under_try_cast() -> None:
    days = [2**31 - 1, -(2**31), 106_751_992, 19_723, None]
    rows = batch(id=[0] * 5).set_column(5, SCHEMA.field("day"), pa.array(days, pa.int32()).cast(pa.date32()))
    for target in ("timestamp", "timestamp_ntz"):
        found = parse_expression(f"try_cast(day as {target})", SCHEMA).evaluate(rows)
        assert found.is_valid().to_pylist() == [False, False, False, True, False]
        assert found.cast(pa.int64())[3].as_py() == 19_723 * 86_400_000_000
        with pytest.raises(InvalidRequest, match=f"2147483647' does not fit into {target.upper()}.*try_cast"):
            parse_expression(f"cast(day as {target})", SCHEMA).evaluate(rows)


def test_a_quotient_is_rounded_once() -> None:
    assert value("49999999999999.9999 / 99999999999999999999999999999999999999") == Decimal("0E-24")
    assert values("2 / cast(n as decimal(3, 0))", n=[3]) == [Decimal("0.666667")]


def test_a_remainder_of_null_is_null_however_long_the_other_is() -> None:
    text = "99999999999999999999999999999999999999 % cast(n as decimal(38, 10))"
    assert values(text, n=[None, 3]) == [None, Decimal("0E-10")]


def test_years_beyond_sixteen_bits() -> None:
    seconds = [9_223_372_036_854, -9_223_372_036_854, 0, None]
    assert values("year(cast(n as timestamp))", n=seconds) == [294247, -290308, 1970, None]


def test_what_spark_has_no_function_for_is_refused() -> None:
    for text, what in (
        ("timestamp_ltz(s)", "no function timestamp_ltz"),
        ("timestamp_ntz(s)", "no function timestamp_ntz"),
        ("ceil(s, 1)", "not for text"),
        ("floor(s, 1)", "not for text"),
    ):
        with pytest.raises(InvalidRequest, match=what):
            parse_expression(text, SCHEMA)
