"""Forms of random values: arithmetic, text, time, casts and choices."""

from __future__ import annotations

from tests.expressions.constants import quoted
from tests.expressions.draw import NUMBERS, TIMES, Draw, Form
from tests.expressions.tree import Tree

_TYPES = {
    "bool": ("BOOLEAN",),
    "int": ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT", "BIGINT"),
    "float": ("FLOAT", "DOUBLE", "DOUBLE"),
    "decimal": (
        *("DECIMAL(3,1)", "DECIMAL(9,2)", "DECIMAL(18,4)", "DECIMAL(38,10)", "DECIMAL(38,0)", "DECIMAL", "DECIMAL(5)"),
        "DECIMAL(38,38)",
    ),
    "string": ("STRING",),
    "binary": ("BINARY",),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMP",),
    "ntz": ("TIMESTAMP_NTZ",),
}
_SYNONYMS = {
    **_TYPES,
    "int": ("BYTE", "SHORT", "INTEGER", "LONG"),
    "float": ("REAL",),
    "decimal": ("NUMERIC(9,2)", "DEC(5,2)", "NUMERIC", "DECIMAL(5,5)", "DECIMAL(39,2)", "DECIMAL(2,3)"),
    "string": ("VARCHAR(2)", "CHAR(3)"),
    "timestamp": ("TIMESTAMP_LTZ",),
}
_SOURCES = {
    "bool": ("bool", "int", "float", "decimal", "string"),
    "int": ("bool", "int", "float", "decimal", "string", "timestamp"),
    "float": ("bool", "int", "float", "decimal", "string", "timestamp"),
    "decimal": ("bool", "int", "float", "decimal", "string", "timestamp"),
    "string": ("bool", "int", "float", "decimal", "string", "binary", "date", "timestamp", "ntz"),
    "binary": ("string", "string", "binary"),
    "date": ("string", "date", "timestamp", "ntz"),
    "timestamp": ("string", "date", "timestamp", "ntz", "int", "float", "decimal"),
    "ntz": ("string", "date", "timestamp", "ntz"),
}
"""By target, the families that Spark casts to it in ANSI mode."""
_DATE_FORMATS = ("yyyy-MM-dd", "dd/MM/yyyy", "MM/dd/yyyy", "yyyyMMdd", "yyyy/MM/dd", "yyyy-MM-dd HH:mm:ss", "yyyy")


def arithmetic(kind: str) -> Form:
    """`+ - * / % div`, with operands that give the family."""

    def form(d: Draw, depth: int) -> Tree:
        if kind == "int":
            op, kinds = d.pick("+", "-", "*", "%", "div", "+", "-"), ("int", "int")
            if op == "div" and d.happens(0.3):
                kinds = ("decimal", d.pick("decimal", "int"))
        elif kind == "decimal":
            op, kinds = d.pick("+", "-", "*", "/", "%"), ("decimal", d.pick("decimal", "int", "decimal"))
        else:
            op, kinds = d.pick("+", "-", "*", "/", "%", "/"), ("float", d.pick(*NUMBERS))
            if op == "/" and d.happens(0.3):
                kinds = ("int", "int")
        left, right = (d.operand(each, depth) for each in kinds)
        if op in ("%", "/", "div") and d.happens(0.7):
            right = d.constant(kinds[1])
        return Tree(kind, f"{{0}} {op} {{1}}", d.wrapped(*((left, right) if d.happens(0.7) else (right, left))))

    return form


def sign(kind: str) -> Form:
    """Signs and `abs`."""

    def form(d: Draw, depth: int) -> Tree:
        template = d.chance.choices(("-{0}", "abs({0})", "+{0}", "negative({0})"), (5, 3, 1, 0.5))[0]
        return Tree(kind, template, d.wrapped(d.operand(kind, depth)))

    return form


def rounded(kind: str) -> Form:
    """`ceil`, `floor` and `round`, with and without digits."""

    def form(d: Draw, depth: int) -> Tree:
        names = ("ceil", "floor", "round", "ceiling", "bround")
        name = d.chance.choices(names, (3, 3, 4, 0.3, 0.2))[0]
        source = d.operand(kind if kind != "int" else d.kind(*NUMBERS), depth)
        if d.happens(0.35 if kind == "int" else 0.65):
            return Tree(kind, f"{name}({{0}}, {d.pick('0', '1', '2', '-1', '3', '5')})", (source,))
        return Tree(kind, f"{name}({{0}})", (source,))

    return form


def length(d: Draw, depth: int) -> Tree:
    """The length of a text or of bytes."""
    name = d.chance.choices(("length", "char_length", "character_length"), (6, 1, 1))[0]
    return Tree("int", f"{name}({{0}})", (d.operand(d.pick("string", "string", "string", "binary"), depth),))


def part_of_time(d: Draw, depth: int) -> Tree:
    """Years to seconds."""
    name = d.pick("year", "month", "day", "hour", "minute", "second", "dayofmonth")
    kinds = ("timestamp", "ntz") if name in ("hour", "minute", "second") else TIMES
    return Tree("int", f"{name}({{0}})", (d.operand(d.pick(*kinds), depth),))


def text(d: Draw, depth: int) -> Tree:
    """Functions of text."""
    inner, draw = d.operand("string", depth), d.chance.random()
    if draw < 0.3:
        name = d.chance.choices(("lower", "upper", "lcase", "ucase"), (6, 6, 1, 1))[0]
        return Tree("string", f"{name}({{0}})", (inner,))
    if draw < 0.45:
        chars, side = quoted(d.pick("x", " ", "ab", "é")), d.pick("BOTH", "LEADING", "TRAILING")
        trims = (
            "trim({0})",
            "ltrim({0})",
            "rtrim({0})",
            f"trim({side} {chars} FROM {{0}})",
            f"trim({side} FROM {{0}})",
        )
        return Tree("string", d.chance.choices(trims, (8, 1, 1, 1, 0.5))[0], (inner,))
    if draw < 0.75:
        start = d.pick("1", "2", "0", "-1", "-2", "3", "-5", "2147483647", "-2147483648")
        count = d.pick("1", "2", "0", "-1", "10", "2147483647", "3")
        whole = f"substring({{0}}, {start}, {count})"
        return Tree("string", d.pick(whole, whole, f"substring({{0}}, {start})", f"substr({{0}}, {start})"), (inner,))
    kinds = ("string", "string", "int", "bool", "date", "decimal", "float", "timestamp")
    other = d.operand(d.pick(*kinds), depth)
    pair = (inner, other) if d.happens(0.5) else (other, inner)
    return Tree("string", d.pick("{0} || {1}", "concat({0}, {1})", "concat({0}, {1}, '-')"), d.wrapped(*pair))


def to_date(d: Draw, depth: int) -> Tree:
    """Dates from text and times."""
    draw = d.chance.random()
    if draw < 0.3:
        return Tree("date", f"to_date({{0}}, {quoted(d.pick(*_DATE_FORMATS))})", (d.column("string", "date"),))
    template = d.pick("to_date({0})", "to_date({0})", "date({0})")
    inner = d.column("string", "date") if draw < 0.65 else d.operand(d.pick(*TIMES), depth)
    return Tree("date", template, (inner,))


def date_sum(d: Draw, depth: int) -> Tree:
    """Days added to a date."""
    template = d.pick("{0} + {1}", "{0} - {1}", "date_add({0}, {1})")
    return Tree("date", template, d.wrapped(d.operand("date", depth), d.column("int")))


def case(kind: str) -> Form:
    """CASE, with and without a subject."""

    def form(d: Draw, depth: int) -> Tree:
        if d.happens(0.3):
            subject = d.kind("int", "string", "bool", "date", "float")
            parts = (d.operand(subject, depth), d.partner(subject, 0), d.operand(kind, depth), d.operand(kind, depth))
            return Tree(kind, "CASE {0} WHEN {1} THEN {2} ELSE {3} END", d.wrapped(*parts))
        parts = (d.operand("bool", depth), d.operand(kind, depth), d.operand(kind, depth))
        template = d.pick("CASE WHEN {0} THEN {1} ELSE {2} END", "CASE WHEN {0} THEN {1} WHEN {1} IS NULL THEN {2} END")
        return Tree(kind, template, d.wrapped(*parts))

    return form


def choice(kind: str) -> Form:
    """IF, COALESCE, NULLIF, GREATEST and LEAST."""

    def form(d: Draw, depth: int) -> Tree:
        mixed = d.pick(*NUMBERS) if kind in NUMBERS and d.happens(0.3) else kind
        one, other = d.operand(kind, depth), d.operand(mixed, depth)
        draw = d.chance.random()
        if draw < 0.25:
            return Tree(kind, "if({0}, {1}, {2})", (d.operand("bool", depth), one, other))
        if draw < 0.5:
            name = d.chance.choices(("coalesce", "nvl", "ifnull"), (6, 1, 1))[0]
            return Tree(kind, f"{name}({{0}}, {{1}})", (one, other))
        if draw < 0.65:
            return Tree(kind, "nullif({0}, {1})", (one, d.partner(kind, 0)))
        if kind == "bool":
            return Tree(kind, "coalesce({0}, {1}, {2})", (one, other, d.constant(kind)))
        name = d.pick("greatest", "least")
        if draw < 0.85:
            return Tree(kind, f"{name}({{0}}, {{1}})", (one, other))
        return Tree(kind, f"{name}({{0}}, {{1}}, {{2}})", (one, other, d.constant(kind)))

    return form


def cast(kind: str) -> Form:
    """CAST and TRY_CAST from every family that has one."""

    def form(d: Draw, depth: int) -> Tree:
        source = d.pick(*_SOURCES[kind])
        if source == "string" and kind in (*NUMBERS, *TIMES) and d.happens(0.7):
            inner = d.column("string", "date" if kind == "date" else "time" if kind in TIMES else "number")
        else:
            inner = d.operand(source, depth)
        word = d.chance.choices(("CAST({0} AS %s)", "TRY_CAST({0} AS %s)", "{0}::%s", "%s({0})"), (6, 3, 0.4, 0.3))[0]
        name = d.pick(*(_SYNONYMS[kind] if d.happens(0.04) and "::" not in word else _TYPES[kind]))
        if word.startswith("%s"):
            name = name.partition("(")[0]
        return Tree(kind, word % name, d.wrapped(inner) if "::" in word else (inner,))

    return form
