# ruff: noqa: DTZ001, E501
"""The filter language: what it means (SQL, three-valued), what it refuses, and what it lets the engine skip."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import ColumnStats, is_in, parse_expression, parse_predicate
from lakebed.expression.skipping import like_prefix
from lakebed.model.key_range import KeyRange

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("qty", pa.int32()),
        ("big", pa.int64()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("dec", pa.decimal128(10, 2)),
        ("f", pa.float64()),
        ("f4", pa.float32()),
        ("b", pa.bool_()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("bin", pa.binary()),
        ("odd name", pa.string()),
        ("s.qty", pa.int32()),
    ]
)
NAN = float("nan")
ROWS: list[dict[str, Any]] = [
    {"id": "a1", "qty": 1, "big": 10, "d": dt.date(2024, 1, 1), "ts": dt.datetime(2024, 1, 1, 10), "dec": Decimal("1.50"),
     "local": dt.datetime(2024, 1, 1), "f": 1.5, "f4": 1.1, "b": True, "st": {"a": 1, "b": "x"}, "bin": b"\0\xff", "s.qty": 7},
    {"id": "b2", "qty": 2, "big": 20, "d": dt.date(2024, 2, 1), "ts": dt.datetime(2024, 2, 1, 10), "dec": Decimal("2.50"),
     "local": dt.datetime(2024, 2, 1), "f": NAN, "f4": 2.5, "b": False, "st": {"a": 2, "b": "y"}, "bin": b"b"},
    {},
    {"id": "Ab", "qty": -3, "big": -30, "d": dt.date(2020, 1, 1), "ts": dt.datetime(2020, 1, 1), "dec": Decimal(-1),
     "local": dt.datetime(2020, 1, 1), "f": -0.0, "f4": 0.0, "b": True, "st": {"a": None, "b": None}, "bin": b"",
     "odd name": "100%_x"},
]  # fmt: skip
BATCH = pa.RecordBatch.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in ROWS], SCHEMA)

CASES = [
    # comparisons; a number keeps its value whatever the column's type
    ("qty > 1", "b"), ("qty > 1.5", "b"), ("qty = 2.0", "b"), ("qty > 3000000000", ""), ("1 < qty", "b"),
    ("qty <> 1", "bd"), ("qty = null", ""), ("qty <=> null", "c"), ("qty <=> 1", "a"), ("big = 1e1", "a"),
    ("dec = 1.5", "a"), ("dec > 1", "ab"), ("dec > '2'", "b"), ("dec in (1.5, 2.5)", "ab"), ("dec = 1.501", ""),
    ("f4 = 1.1", ""), ("f4 = cast(1.1 as float)", "a"), ("qty = '2'", "b"),
    # NaN is above everything and equal to itself, as in Spark
    ("f > 1", "ab"), ("f = f", "abd"), ("f <= 2", "ad"), ("f = 0.0", "d"), ("f <> 1.5", "bd"), ("not f > 1", "d"),
    # three-valued logic
    ("not (qty > 1)", "ad"), ("qty in (1, 2, null)", "ab"), ("qty not in (1, null)", ""), ("qty not in (1)", "bd"),
    ("b or qty is null", "acd"), ("not b", "b"), ("b is true", "ad"), ("b is not true", "bc"), ("null", ""), ("true", "abcd"),
    ("qty > 1 or null", "b"), ("id is not null and id is null", ""), ("qty in (1, 2.5)", "a"), ("qty in (3000000000)", ""),
    # dates and times
    ("d >= '2024-01-01'", "ab"), ("d between date '2024-01-01' and '2024-01-31'", "a"), ("d = '2024'", "a"),
    ("ts > '2024-01-15'", "b"), ("ts = timestamp '2024-01-01 10:00:00Z'", "a"), ("ts = '2024-01-01T12:00:00+02:00'", "a"),
    ("local = '2024-02-01'", "b"), ("local in ('2024-02-01', '2020-01-01')", "bd"), ("ts >= d", "abd"), ("date(ts) = '2024-01-01'", "a"),
    ("year(ts) = 2024 and month(d) = 2", "b"), ("day(ts) = 1", "abd"), ("hour(ts) = 10", "ab"),
    # text
    ("id like 'a%'", "a"), ("id like '_1'", "a"), ("id ilike 'A%'", "ad"), ("id rlike '^.b'", "d"), ("startswith(id, 'a')", "a"),
    ("`odd name` like '100\\\\%%'", "d"), ("`odd name` like '100!%!_x' escape '!'", "d"), ("`odd name` like '1!%' escape '!'", ""),
    ("lower(id) = 'ab'", "d"), ("upper(id) = 'B2'", "b"), ("length(id) = 2", "abd"), ("substring(id, 1, 1) = 'a'", "a"),
    ("substring(id, -1) = '1'", "a"), ("substring(id, -5, 4) = 'b'", "b"), ("concat(id, '-', qty) = 'b2-2'", "b"), ("id || 'x' = 'a1x'", "a"),
    ("contains(id, 'b')", "bd"), ("endswith(id, '1')", "a"), ("trim(concat(' ', id)) = 'a1'", "a"), ("cast(qty as string) = '1'", "a"),
    # arithmetic and choice
    ("qty + big = 11", "a"), ("big * 2 > 20", "b"), ("-qty = 3", "d"), ("qty - 1 = -4", "d"), ("qty / 2 = 0.5", "a"), ("qty / nullif(qty, 1) = 1", "bd"),
    ("qty % 2 = -1", "d"), ("qty div 2 = -1", "d"), ("dec % 1 = 0.5", "ab"), ("abs(qty) = 3", "d"), ("round(dec, 0) = 2", "a"), ("round(f4) = 1", "a"), ("round(dec, 0) = 3", "b"),
    ("coalesce(qty, 0) = 0", "c"), ("nullif(qty, 1) is null", "ac"), ("greatest(qty, big) = 20", "b"), ("if(b, 1, 2) = 2", "bc"),
    ("case when qty > 1 then 'x' when qty < 0 then 'y' end = 'y'", "d"), ("case qty when 1 then true else false end", "a"),
    # other columns
    ("st.a = 1", "a"), ("st.b like 'y%'", "b"), ("bin = X'00ff'", "a"), ("bin = 'b'", "b"), ("ID = 'a1'", "a"), ("s.qty = 7", "a"), ("1 = 1", "abcd"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rows"), CASES, ids=[text for text, _ in CASES])
def test_meaning(text: str, rows: str) -> None:
    predicate = parse_predicate(text, SCHEMA)
    mask = predicate.evaluate(BATCH).to_pylist()
    assert "".join("abcd"[i] for i, hit in enumerate(mask) if hit) == rows
    # the SQL it prints and a pickled copy mean the same
    assert parse_predicate(predicate.to_sql(), SCHEMA).evaluate(BATCH).to_pylist() == mask
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    # skipping is never allowed to lose a match
    assert all(part.evaluate(BATCH)[i].as_py() for part in predicate.conjuncts for i, hit in enumerate(mask) if hit)
    for position, hit in enumerate(mask):
        row = BATCH.slice(position, 1).to_pylist()[0]
        keys = predicate.key_range("id")
        if hit and keys is not None:
            assert row["id"] is not None
            assert keys.contains(row["id"])
        stats = {name: ColumnStats(value, value, int(value is None), 1) for name, value in row.items()}
        if hit:
            assert predicate.may_match(stats)
        part = predicate.restricted_to(["qty", "f"])
        if hit and part is not None:
            assert part.evaluate(BATCH)[position].as_py()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qyt > 1", "at character 1: there is no column 'qyt'. Did you mean 'qty'?"),
        ("qty > 1 and st.c = 1", "at character 13: 'st' has no field 'c'"),
        ("qty >", "at character 5"),
        ("qty > 'abc'", "'abc' is not a number"),
        ("id = 1", "Put the constant in quotes"),
        ("d = 'soon'", "'soon' is not a DATE"),
        ("ts > 5", "TIMESTAMP, INT have no type in common"),
        ("foo(qty) = 1", "'foo' is not supported"),
        ("qty", "not true or false"),
        ("qty and b", "not true or false"),
        ("select 1", "cannot read"),
        ("qty > 1 group by qty", "at character 9"),
        ("qty = 1; drop table x", "at character 10"),
        ("exists (select 1)", "not supported"),
        ("qty in (select 1)", "with 'query' of In"),
        ("id + 1 = 2", "not a number"),
        ("id like qty", "must be a constant"),
        ("cast('x' as int) = 1", "'x' is not a number"),
        ("cast(3000000000 as int) = 1", "does not fit into INT"),
        ("d = 5", "no type in common"),
        ("st = 1", "can only be tested for null"),
        ("id = d", "cast one of the two"),
        ("qty = ?", "not supported"),
        ("(" * 4000 + "b" + ")" * 4000, "nested too deeply"),
        ("", "empty"),
    ],
)
def test_refusals_say_where_and_why(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_predicate(text, SCHEMA)
    assert message in str(caught.value)


def test_a_failing_row_is_the_requests_fault() -> None:
    with pytest.raises(InvalidRequest, match="failed on a row"):
        parse_predicate("cast(id as int) = 1", SCHEMA).evaluate(BATCH)
    with pytest.raises(InvalidRequest, match="column that is not there"):
        parse_predicate("big = 1", SCHEMA).evaluate(BATCH.select(["id"]))


def test_long_chains_work() -> None:
    text = " or ".join(f"qty = {number}" for number in range(2000))
    predicate = parse_predicate(text, SCHEMA)
    assert predicate.evaluate(BATCH).to_pylist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("id = 'k'", KeyRange.of_points(["k"])),
        ("'k' = id", KeyRange.of_points(["k"])),
        ("id in ('b', 'a', null)", KeyRange.of_points(["a", "b"])),
        ("id > 'a' and id <= 'c'", KeyRange("a", "c", low_inclusive=False)),
        ("not (id < 'a' or id > 'c')", KeyRange("a", "c")),
        ("id between 'a' and 'c' and qty > 1", KeyRange("a", "c")),
        ("id = 'a' or id = 'b'", KeyRange.of_points(["a", "b"])),
        ("id = 'a' or id > 'x'", KeyRange("a", None)),
        ("id = 'a' or qty = 1", None),
        ("id like 'ab%'", KeyRange("ab", "ac", high_inclusive=False)),
        ("id like 'ab'", KeyRange.of_points(["ab"])),
        ("startswith(id, 'ab')", KeyRange("ab", "ac", high_inclusive=False)),
        ("id in ('a', 'b', 'c') and id > 'b'", KeyRange.of_points(["c"])),
        ("id = 'a' and id = 'b'", KeyRange.of_points([])),
        ("id = null", KeyRange.of_points([])),
        ("id <> 'a'", None),
        ("lower(id) = 'a'", None),
        ("id is null", None),
        ("qty = 1", None),
    ],
)
def test_key_range(text: str, wanted: KeyRange | None) -> None:
    assert parse_predicate(text, SCHEMA).key_range("id") == wanted


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("qty = 5", True), ("qty = 4", False), ("qty = 11", False), ("qty > 10", False), ("qty >= 10", True), ("qty < 5", False),
        ("qty <= 5", True), ("qty <> 5", True), ("qty in (1, 2, 11)", False), ("qty in (1, 7)", True), ("qty > 9.5", True),
        ("qty > 10.5", False), ("qty is null", False), ("qty is not null", True), ("id is null", True), ("id = 'm'", True),
        ("id = 'zz'", False), ("id like 'q%'", False), ("id like 'm%'", True), ("id > 'n'", False), ("not (qty >= 5)", False),
        ("qty = 4 or id = 'm'", True), ("qty = 4 or id = 'zz'", False), ("qty = 7 and id = 'zz'", False), ("big = 1", True),
        ("bin = X'00'", False), ("bin is null", True), ("bin is not null", False), ("f > 100", True), ("f < 1", False), ("f <= 100", True),
        ("ts < '2024-01-01'", False), ("ts >= '2024-01-01'", True), ("d = '2024-01-02'", True), ("st.a = 3", False), ("qty + 1 = 0", True),
        ("false", False), ("null", False), ("dec < 1", True),
    ],
)  # fmt: skip
def test_may_match(text: str, may: bool) -> None:
    stats = {
        "qty": ColumnStats(5, 10, 0, 100),
        "id": ColumnStats("k", "n", 3, 100),
        "bin": ColumnStats(None, None, 100, 100),
        "f": ColumnStats(1.0, 2.0, 0, 100),
        "ts": ColumnStats(dt.datetime(2024, 1, 1), None, None, None),
        "d": ColumnStats("an odd type", 5),
        "st.a": ColumnStats(1, 2),
        "dec": ColumnStats(None, Decimal(1)),
    }
    assert parse_predicate(text, SCHEMA).may_match(stats) is may


def test_restricted_to_keeps_what_must_hold() -> None:
    def part(text: str, *columns: str) -> str | None:
        found = parse_predicate(text, SCHEMA).restricted_to(columns)
        return None if found is None else found.to_sql()

    assert part("qty = 1 and id = 'a'", "qty") == "qty = 1"
    assert part("qty = 1 or id = 'a'", "qty") is None
    assert part("(qty = 1 and id = 'a') or (qty = 2 and big = 1)", "qty") == "qty = 1 OR qty = 2"
    assert part("not (qty = 1 or id = 'a')", "qty") == "qty != 1"
    assert part("qty = big", "qty") is None
    assert part("st.a = 1", "st") == "st.a = 1"


def test_columns_and_conjuncts() -> None:
    predicate = parse_predicate("qty = 1 and (st.a = 2 and not (id = 'x' or b))", SCHEMA)
    assert predicate.columns == ("qty", "st", "id", "b")
    assert [part.to_sql() for part in predicate.conjuncts] == ["qty = 1", "st.a = 2", "id != 'x'", "NOT (b)"]
    both = predicate & parse_predicate("big = 1", SCHEMA)
    assert both.to_sql().endswith("AND big = 1")


def test_a_predicate_object_is_taken_as_it_is() -> None:
    predicate = is_in(SCHEMA.field("id"), ["b2", "zz"])
    assert parse_predicate(predicate, SCHEMA) is predicate
    assert predicate.evaluate(BATCH).to_pylist() == [False, True, False, False]
    with pytest.raises(InvalidRequest, match="no column 'id'"):
        parse_predicate(predicate, pa.schema([("x", pa.string())]))


def test_expressions_have_a_type_and_keep_nulls() -> None:
    expression = parse_expression("qty + 1", SCHEMA)
    assert expression.type == pa.int32()
    assert expression.columns == ("qty",)
    assert expression.evaluate(BATCH).to_pylist() == [2, 3, None, -2]
    assert parse_expression("'x'", SCHEMA).evaluate(BATCH).to_pylist() == ["x"] * 4
    assert parse_expression("null", SCHEMA).evaluate(BATCH).null_count == 4
    with pytest.raises(InvalidRequest, match="overflow"):
        parse_expression("qty + 2147483647", SCHEMA).evaluate(BATCH)


def test_like_prefix() -> None:
    assert like_prefix("ab%") == ("ab", False)
    assert like_prefix("a\\%b_") == ("a%b", False)
    assert like_prefix("ab") == ("ab", True)


WORDS = ["qty", "id", "d", "ts", "f", "b", "st.a", "1", "-2", "'a'", "null", "1.5", "'2024-01-01'", "(", ")", "and", "or", "not",
         "=", "<", ">=", "in", "like", "between", "is", "+", "%", ",", "case", "when", "then", "end", "cast(", "as", "int", "lower(", "`"]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join) | st.text(max_size=30))
def test_any_text_gives_a_predicate_or_invalid_request(text: str) -> None:
    try:
        predicate = parse_predicate(text, SCHEMA)
        mask = predicate.evaluate(BATCH)
    except InvalidRequest:
        return
    assert mask.null_count == 0
    assert parse_predicate(predicate.to_sql(), SCHEMA).evaluate(BATCH) == mask
