"""Nothing that the parser says is dropped: what is read is declared, and compared with the parser that is installed."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from lakebed.errors import InvalidRequest
from lakebed.expression.arguments import ARGUMENTS
from lakebed.expression.bind_conditions import CONDITIONS
from lakebed.expression.bind_values import VALUES
from lakebed.expression.functions import FUNCTIONS
from lakebed.expression.parser import parse
from lakebed.expression.predicate import parse_expression

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.int32()), ("c", pa.int32()), ("s", pa.string()), ("t", pa.bool_())])
CLASSES = {name: getattr(exp, name) for name in ARGUMENTS if hasattr(exp, name)}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_argument_of_the_parser_is_declared(name: str) -> None:
    unknown = set(CLASSES[name].arg_types) - ARGUMENTS[name].known
    assert not unknown, f"sqlglot {sqlglot.__version__} has arguments of {name} that nobody reads or refuses: {unknown}"


def test_every_class_that_is_bound_has_its_arguments_declared() -> None:
    assert set(CONDITIONS) | set(VALUES) <= set(ARGUMENTS)
    assert {"Where", "Identifier", "DataType", "DataTypeParam"} <= set(ARGUMENTS)  # parts that handlers look into


def test_an_argument_that_no_declaration_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_news(text: str, **_: object) -> exp.Expression:
        tree = original(text, into=exp.Where, dialect="spark")
        tree.this.args["softly"] = True
        return tree

    parse_expression("a = 1", SCHEMA)
    original = sqlglot.parse_one
    monkeypatch.setattr(sqlglot, "parse_one", with_news)
    with pytest.raises(InvalidRequest, match=r"'softly' of EQ"):
        parse_expression("a = 1", SCHEMA)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_declares_what_it_takes(name: str) -> None:
    function = FUNCTIONS[name]
    assert function.about
    assert function.required <= len(function.kinds) or function.variadic
    assert not set(function.reads) & set(function.refused)


def value(text: str) -> object:
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": 5, "c": 3, "s": "x", "t": True}], SCHEMA)
    return parse_expression(text, SCHEMA).evaluate(batch)[0].as_py()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 + 5 % 3", 3),
        ("b - c - a", 1),
        ("b - (c - a)", 3),
        ("8 / 4 / 2", 1.0),
        ("-a * b", -5),
        ("NOT a = b AND t", True),
        ("a = 1 AND b = 0 OR t", True),
        ("a = 1 AND (b = 0 OR t)", True),
        ("NOT t OR t", True),
        ("a = b IS NULL", False),
        ("a < b = t", True),
        ("s || 'y' || 'z'", "xyz"),
        ("(s || (b + c))", "x8"),
        ("a BETWEEN 0 + 1 AND 2 AND t", True),
    ],
)
def test_operators_group_as_in_spark_or_are_refused(text: str, wanted: object) -> None:
    """Older parsers group some of these otherwise; no version may answer with another value."""
    try:
        found = value(text)
    except InvalidRequest as error:
        assert "not grouped here as Spark groups it" in str(error)
        assert "parentheses" in str(error)
        assert "(" not in text
    else:
        assert found == wanted


@pytest.mark.parametrize(
    "text",
    ["s || b + c", "a = b IN (1)", "a = b LIKE 'x'", "a = NOT t", "a IS NULL = t", "a IN (1) IS FALSE"],
)
def test_what_spark_groups_otherwise_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not grouped here as Spark groups it"):
        parse_expression(text, SCHEMA)


def test_a_conversion_behind_a_typed_constant_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Put it into parentheses"):
        parse_expression("TIMESTAMP '2024-01-01'::DATE", SCHEMA)
    assert parse_expression("(TIMESTAMP '2024-01-01')::DATE", SCHEMA).type == pa.date32()
    assert parse_expression("'2024-01-01'::DATE", SCHEMA).type == pa.date32()
    assert parse_expression("a = 1 AND s = '1'::STRING", SCHEMA).type == pa.bool_()


@pytest.mark.parametrize("text", ["mod(b + 1, c)", "if((a) = 1, (b), ((c)))", "-(b) IN ((1), 2)"])
def test_parentheses_of_the_text_are_told_from_those_of_the_parser(text: str) -> None:
    assert parse_expression(text, SCHEMA).type in (pa.int32(), pa.int64(), pa.bool_())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r"'a\\b'", "a\\b"),
        (r"'a\'b'", "a'b"),
        (r"'a\nb\tc\rd\be'", "a\nb\tc\rd\be"),
        (r"'a\%b\_c'", r"a\%b\_c"),
        ("'a\nb'", "a\nb"),
        ('"x"', "x"),
        (r"r'a\d'", r"a\d"),
        ("'a' 'b'", "ab"),
    ],
)
def test_quoted_text_is_what_spark_reads(text: str, wanted: str) -> None:
    assert value(text) == wanted


@pytest.mark.parametrize("text", ["+a", "1 + +a", "+s", "+NULL", "+5", "a BETWEEN +b AND c"])
def test_a_plus_sign_that_the_parser_drops_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="a plus sign"):
        parse_expression(text, SCHEMA)
    assert value("a + 5") == 6


@pytest.mark.parametrize("text", [r"'a\qb'", r"'a\"b'", r"'\101'", r"'\u0041'", r"'\0'", "'it''s'", '"a""b"', "0x1F"])
def test_quoted_text_that_versions_read_differently_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"at character [145]"):
        parse_expression(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5", pa.int32()),
        ("3000000000", pa.int64()),
        ("-2147483648", pa.int32()),
        ("-9223372036854775808", pa.int64()),
        ("9223372036854775808", pa.decimal128(19, 0)),
        ("5L", pa.int64()),
        ("5S", pa.int16()),
        ("-128Y", pa.int8()),
        ("1.5D", pa.float64()),
        ("1.5F", pa.float32()),
        ("1.50BD", pa.decimal128(3, 2)),
        ("1e3BD", pa.decimal128(4, 0)),
        ("1e-3", pa.float64()),
        ("0.10", pa.decimal128(2, 2)),
        (".5", pa.decimal128(1, 1)),
        ("1L + 1.5", pa.decimal128(3, 1)),
        ("cast(1 as bigint) + 1.5", pa.decimal128(22, 1)),
        ("X'00ff'", pa.binary()),
    ],
)
def test_numbers_have_the_type_that_spark_gives_them(text: str, wanted: pa.DataType) -> None:
    assert parse_expression(text, SCHEMA).type == wanted


@pytest.mark.parametrize("text", ["128Y", "40000S", "9223372036854775808L", "1e400", "1e400D", "1" * 39])
def test_numbers_beyond_their_type_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"range|digits"):
        parse_expression(text, SCHEMA)


def test_positions_are_those_of_the_text_also_behind_a_typed_number() -> None:
    assert parse("5L + 1.5BD + a").position(parse("5L + 1.5BD + a").tree.expression) == 14
    with pytest.raises(InvalidRequest, match="at character 9: there is no column 'nope'"):
        parse_expression("1.5BD = nope", SCHEMA)
