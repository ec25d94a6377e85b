"""The grammar of random expressions: which forms give a value of a family, and how often each is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.expressions.columns import LEAVES, Column
from tests.expressions.constants import constant, quoted, text_of
from tests.expressions.tree import HOLE, Tree

KINDS = ("bool", "int", "float", "decimal", "string", "binary", "date", "timestamp", "ntz")
NUMBERS = ("int", "float", "decimal")
_TOP = {"bool": 10, "int": 4, "float": 4, "decimal": 4, "string": 4, "binary": 0.5, "date": 2, "timestamp": 2, "ntz": 1}
_TYPES = {
    "bool": ("BOOLEAN",),
    "int": ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT", "BIGINT"),
    "float": ("FLOAT", "DOUBLE", "DOUBLE"),
    "decimal": (
        "DECIMAL(3,1)",
        "DECIMAL(9,2)",
        "DECIMAL(18,4)",
        "DECIMAL(38,10)",
        "DECIMAL(38,0)",
        "DECIMAL",
        "DECIMAL(5)",
    ),
    "string": ("STRING",),
    "binary": ("BINARY",),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMP",),
    "ntz": ("TIMESTAMP_NTZ",),
}
CASTS = {
    "bool": ("bool", "int", "float", "decimal", "string"),
    "int": ("bool", "int", "float", "decimal", "string", "timestamp"),
    "float": ("bool", "int", "float", "decimal", "string", "timestamp"),
    "decimal": ("bool", "int", "float", "decimal", "string", "timestamp"),
    "string": ("bool", "int", "float", "decimal", "string", "binary", "date", "timestamp", "ntz"),
    "binary": ("string", "binary", "int"),
    "date": ("string", "date", "timestamp", "ntz"),
    "timestamp": ("string", "date", "timestamp", "ntz", "int", "float", "decimal"),
    "ntz": ("string", "date", "timestamp", "ntz"),
}
"""By target, the families that Spark casts to it in ANSI mode."""
_COMPARED = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "=", "<", ">")
_PATTERNS = (
    *(
        "x%",
        "%x",
        "%x%",
        "a_c",
        "_",
        "%",
        "",
        "a%b",
        "a\\%b",
        "a\\_b",
        "%\\\\%",
        "100\\%",
        "%é%",
        "A%",
        "%b",
        "__",
        "5",
    ),
    *("%🙂%", "x_%", "%\n%", "a.c", "[ax]%", "%'%", "2024-%"),
)
_BAD_PATTERNS = ("\\", "a\\", "a\\b", "%\\x%")
_ESCAPED = (
    ("a!%b", "!"),
    ("a!_b", "!"),
    ("100!%", "!"),
    ("%/%%", "/"),
    ("!!%", "!"),
    ("a\\%b", "\\"),
    ("x%", "#"),
    ("a!b", "!"),
)
_REGEXES = (
    *(
        "^a",
        "x",
        "[0-9]+",
        "a|b",
        "a.b",
        "b$",
        "^$",
        "\\d+",
        "\\s",
        "\\w+",
        "(?i)X",
        "^.$",
        "[^a-z]",
        "x{2}",
        "a?b*",
        "\\.",
    ),
    *("é", "^[A-Z]+$", "(ab|x)y", "\\bx\\b", "🙂", "%"),
)
_DATE_FORMATS = ("yyyy-MM-dd", "dd/MM/yyyy", "MM/dd/yyyy", "yyyyMMdd", "yyyy/MM/dd", "yyyy-MM-dd HH:mm:ss", "yyyy")
Form = Callable[["Grammar", int], Tree]


class Grammar:
    """Draws expressions from one source of chance."""

    def __init__(self, chance: random.Random, leaves: tuple[Column, ...] = LEAVES) -> None:
        self.chance = chance
        self._by_kind = {kind: [leaf for leaf in leaves if leaf.kind == kind] for kind in KINDS}
        self._kinds = [kind for kind in KINDS if self._by_kind[kind]]

    # what to draw

    def any(self, depth: int | None = None) -> Tree:
        """An expression of any family."""
        kind = self.chance.choices(list(_TOP), list(_TOP.values()))[0]
        return self.of(kind, depth)

    def of(self, kind: str, depth: int | None = None) -> Tree:
        """An expression of a family, which is more than a column or a constant."""
        depth = depth or self.chance.choices((1, 2, 3, 4), (40, 35, 18, 7))[0]
        return self._form(kind, depth)

    def operand(self, kind: str, depth: int) -> Tree:
        """Something of a family; at depth 0 a column or, rarely, a constant."""
        if depth > 0 and self.chance.random() < 0.6:
            return self._form(kind, depth)
        return constant(kind, self.chance) if self.chance.random() < 0.2 else self.column(kind)

    def column(self, kind: str, text: str | None = None) -> Tree:
        """A column of a family."""
        leaves = self._by_kind[kind]
        if not leaves:
            return constant(kind, self.chance)
        known = [leaf for leaf in leaves if leaf.text == text] if text else leaves
        leaf = self.chance.choice(known or leaves)
        return Tree(kind, leaf.name, form=f"<{leaf.sql_type}>")

    def constant(self, kind: str) -> Tree:
        return constant(kind, self.chance)

    def _form(self, kind: str, depth: int) -> Tree:
        forms, weights = FORMS[kind]
        return self.chance.choices(forms, weights)[0](self, depth - 1)

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)

    def number(self, depth: int) -> Tree:
        return self.operand(self.chance.choice(NUMBERS), depth)

    def type_name(self, kind: str) -> str:
        return self.chance.choice(_TYPES[kind])

    def partner(self, kind: str, depth: int) -> Tree:
        """What a value of a family is compared with: most often its own family, or another that Spark coerces."""
        draw = self.chance.random()
        if draw < 0.3:
            return constant(kind, self.chance)
        if draw < 0.55:
            return self.operand(kind, depth)
        if draw < 0.65:
            return text_of(kind, self.chance)
        if draw < 0.67:
            return Tree(kind, "NULL", form="NULL")
        others = {
            **dict.fromkeys(NUMBERS, NUMBERS),
            **dict.fromkeys(("date", "timestamp", "ntz"), ("date", "timestamp", "ntz")),
        }.get(kind, (kind,))
        other = self.chance.choice(others)
        return constant(other, self.chance) if self.chance.random() < 0.7 else self.operand(other, depth)


# --- conditions -------------------------------------------------------------------------------------------------------


def _compare(g: Grammar, depth: int) -> Tree:
    kind = g.chance.choices(KINDS, (1, 4, 4, 4, 3, 1, 3, 3, 2))[0]
    left, right = g.operand(kind, depth), g.partner(kind, depth)
    if kind == "string" and right.kind == "string" and g.chance.random() < 0.15:
        left, right = g.column("string", "number"), g.operand(g.chance.choice(NUMBERS), depth)
    pair = (left, right) if g.chance.random() < 0.75 else (right, left)
    return Tree("bool", f"{{0}} {g.chance.choice(_COMPARED)} {{1}}", _wrapped(pair))


def _wrapped(parts: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """Parts with parentheses where they need them."""
    return tuple(part if _closed(part.template) else parens(part) for part in parts)


def _closed(template: str) -> bool:
    """A column, a constant without a sign, or a call."""
    if not HOLE.search(template) or template.startswith("'"):
        return not template.startswith("-")
    return template.endswith(")") and "(" in template.partition("{")[0]


def parens(part: Tree) -> Tree:
    return Tree(part.kind, "({0})", (part,), part.form or "~" + part.kind)


def _logic(g: Grammar, depth: int) -> Tree:
    count = 2 if g.chance.random() < 0.8 else 3
    words = [g.pick("AND", "OR", "and") for _ in range(count - 1)]
    template = "{0}" + "".join(f" {word} {{{i + 1}}}" for i, word in enumerate(words))
    return Tree("bool", template, _wrapped(tuple(g.operand("bool", depth) for _ in range(count))))


def _not(g: Grammar, depth: int) -> Tree:
    return Tree("bool", g.pick("NOT {0}", "NOT {0}", "!{0}"), _wrapped((g.operand("bool", depth),)))


def _is(g: Grammar, depth: int) -> Tree:
    if g.chance.random() < 0.6:
        kind = g.chance.choice(KINDS)
        return Tree("bool", g.pick("{0} IS NULL", "{0} IS NOT NULL"), _wrapped((g.operand(kind, depth),)))
    word = g.pick("TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "TRUE", "FALSE", "UNKNOWN")
    return Tree("bool", f"{{0}} IS {word}", _wrapped((g.operand("bool", depth),)))


def _in(g: Grammar, depth: int) -> Tree:
    kind = g.chance.choice(KINDS)
    left = g.operand(kind, depth)
    items = [g.constant(kind) for _ in range(g.chance.randint(1, 3))]
    draw = g.chance.random()
    if draw < 0.1:
        items.append(Tree(kind, "NULL", form="NULL"))
    elif draw < 0.3 and kind in NUMBERS:
        items.append(g.constant(g.chance.choice(NUMBERS)))
    elif draw < 0.4 and kind in ("date", "timestamp", "ntz"):
        items.append(g.constant(g.pick("date", "timestamp", "ntz")))
    elif draw < 0.45:
        items.append(text_of(kind, g.chance))
    elif draw < 0.48:
        items.append(g.operand(kind, depth))
    holes = ", ".join(f"{{{i + 1}}}" for i in range(len(items)))
    return Tree("bool", f"{{0}} {g.pick('IN', 'IN', 'NOT IN')} ({holes})", (*_wrapped((left,)), *items))


def _between(g: Grammar, depth: int) -> Tree:
    kind = g.chance.choice(("int", "float", "decimal", "string", "date", "timestamp", "ntz", "int", "date"))
    word = g.chance.choices(("BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC", "NOT BETWEEN SYMMETRIC"), (6, 3, 1, 0.5))[0]
    parts = (g.operand(kind, depth), g.partner(kind, 0), g.partner(kind, 0))
    return Tree("bool", f"{{0}} {word} {{1}} AND {{2}}", _wrapped(parts))


def _like(g: Grammar, depth: int) -> Tree:
    text = g.operand("string", depth)
    word = g.pick("LIKE", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE")
    draw = g.chance.random()
    if draw < 0.15:
        pattern, escape = g.chance.choice(_ESCAPED)
        return Tree("bool", f"{{0}} {word} {quoted(pattern)} ESCAPE {quoted(escape)}", _wrapped((text,)))
    pattern = quoted(g.chance.choice(_PATTERNS if draw < 0.97 else _BAD_PATTERNS))
    if draw > 0.99:
        return Tree("bool", f"{{0}} {word} {{1}}", _wrapped((text, g.column("string"))))
    return Tree("bool", f"{{0}} {word} {pattern}", _wrapped((text,)))


def _matches(g: Grammar, depth: int) -> Tree:
    text, pattern = g.operand("string", depth), Tree("string", quoted(g.chance.choice(_REGEXES)))
    draw = g.chance.random()
    if draw < 0.5:
        return Tree("bool", f"{{0}} {g.pick('RLIKE', 'NOT RLIKE', 'REGEXP')} {{1}}", _wrapped((text, pattern)))
    return Tree("bool", f"{g.pick('regexp_like', 'rlike')}({{0}}, {{1}})", (text, pattern))


def _contains(g: Grammar, depth: int) -> Tree:
    name = g.pick("contains", "startswith", "endswith")
    part = quoted(g.pick("x", "a", "", "é", "%", "5", "\\", "🙂", "b"))
    if g.chance.random() < 0.1:
        return Tree("bool", f"{name}({{0}}, {{1}})", (g.operand("string", depth), g.column("string")))
    return Tree("bool", f"{name}({{0}}, {part})", (g.operand("string", depth),))


# --- numbers ----------------------------------------------------------------------------------------------------------


def _arithmetic(kind: str) -> Form:
    def form(g: Grammar, depth: int) -> Tree:
        if kind == "int":
            op, kinds = g.pick("+", "-", "*", "%", "div", "+", "-"), ("int", "int")
            if op == "div" and g.chance.random() < 0.3:
                kinds = ("decimal", g.pick("decimal", "int"))
        elif kind == "decimal":
            op, kinds = g.pick("+", "-", "*", "/", "%"), ("decimal", g.pick("decimal", "int", "decimal"))
        else:
            op, kinds = g.pick("+", "-", "*", "/", "%", "/"), ("float", g.chance.choice(NUMBERS))
            if op == "/" and g.chance.random() < 0.3:
                kinds = ("int", "int")
        parts = tuple(g.operand(each, depth) for each in kinds)
        if op in ("%", "/", "div") and g.chance.random() < 0.7:
            parts = (parts[0], g.constant(kinds[1]))
        pair = parts if g.chance.random() < 0.7 else parts[::-1]
        return Tree(kind, f"{{0}} {op} {{1}}", _wrapped(pair))

    return form


def _sign(kind: str) -> Form:
    def form(g: Grammar, depth: int) -> Tree:
        template = g.pick("-{0}", "-{0}", "abs({0})", "+{0}", "negative({0})")
        return Tree(kind, template, _wrapped((g.operand(kind, depth),)))

    return form


def _rounded(kind: str) -> Form:
    def form(g: Grammar, depth: int) -> Tree:
        name = (
            g.pick("ceil", "floor", "round", "round", "bround") if kind != "int" else g.pick("ceil", "floor", "round")
        )
        source = g.operand(kind if kind != "int" else g.chance.choice(NUMBERS), depth)
        if g.chance.random() < (0.35 if kind == "int" else 0.65):
            return Tree(kind, f"{name}({{0}}, {g.pick('0', '1', '2', '-1', '3', '5')})", (source,))
        return Tree(kind, f"{name}({{0}})", (source,))

    return form


def _length(g: Grammar, depth: int) -> Tree:
    name = g.pick("length", "char_length", "length")
    return Tree("int", f"{name}({{0}})", (g.operand(g.pick("string", "string", "string", "binary"), depth),))


def _part(g: Grammar, depth: int) -> Tree:
    name = g.pick("year", "month", "day", "hour", "minute", "second", "dayofmonth")
    kinds = ("timestamp", "ntz") if name in ("hour", "minute", "second") else ("date", "timestamp", "ntz")
    return Tree("int", f"{name}({{0}})", (g.operand(g.chance.choice(kinds), depth),))


# --- text and time ----------------------------------------------------------------------------------------------------


def _text(g: Grammar, depth: int) -> Tree:
    inner = g.operand("string", depth)
    draw = g.chance.random()
    if draw < 0.3:
        return Tree("string", f"{g.pick('lower', 'upper', 'lower', 'upper', 'lcase', 'ucase')}({{0}})", (inner,))
    if draw < 0.5:
        chars = quoted(g.pick("x", " ", "ab", "é"))
        template = g.chance.choices(
            (
                "trim({0})",
                "ltrim({0})",
                "rtrim({0})",
                f"trim({g.pick('BOTH', 'LEADING', 'TRAILING')} {chars} FROM {{0}})",
            ),
            (5, 1, 1, 1),
        )[0]
        return Tree("string", template, (inner,))
    if draw < 0.75:
        start = g.pick("1", "2", "0", "-1", "-2", "3", "-5", "2147483647", "-2147483648")
        length = g.pick("1", "2", "0", "-1", "10", "2147483647", "3")
        template = g.pick(
            f"substring({{0}}, {start}, {length})",
            f"substr({{0}}, {start})",
            f"substring({{0}}, {start}, {length})",
            f"substring({{0}}, {start})",
            f"substring({{0}} FROM {start} FOR {length})",
        )
        return Tree("string", template, (inner,))
    kinds = ("string", "string", "int", "bool", "date", "decimal", "float", "timestamp")
    other = g.operand(g.chance.choice(kinds), depth)
    pair = (inner, other) if g.chance.random() < 0.5 else (other, inner)
    template = g.pick("{0} || {1}", "concat({0}, {1})", "concat({0}, {1}, '-')")
    return Tree("string", template, _wrapped(pair))


def _to_date(g: Grammar, depth: int) -> Tree:
    draw = g.chance.random()
    if draw < 0.35:
        return Tree("date", f"to_date({{0}}, {quoted(g.chance.choice(_DATE_FORMATS))})", (g.column("string", "date"),))
    if draw < 0.7:
        return Tree("date", g.pick("to_date({0})", "date({0})"), (g.column("string", "date"),))
    return Tree("date", g.pick("to_date({0})", "date({0})"), (g.operand(g.pick("date", "timestamp", "ntz"), depth),))


def _date_sum(g: Grammar, depth: int) -> Tree:
    template = g.pick("{0} + {1}", "{0} - {1}", "date_add({0}, {1})")
    return Tree("date", template, _wrapped((g.operand("date", depth), g.column("int"))))


# --- forms that every family has --------------------------------------------------------------------------------------


def _case(kind: str) -> Form:
    def form(g: Grammar, depth: int) -> Tree:
        if g.chance.random() < 0.3:
            subject = g.chance.choice(("int", "string", "bool", "date", "float"))
            parts = (g.operand(subject, depth), g.partner(subject, 0), g.operand(kind, depth), g.operand(kind, depth))
            return Tree(kind, "CASE {0} WHEN {1} THEN {2} ELSE {3} END", _wrapped(parts))
        parts = (g.operand("bool", depth), g.operand(kind, depth), g.operand(kind, depth))
        template = g.pick("CASE WHEN {0} THEN {1} ELSE {2} END", "CASE WHEN {0} THEN {1} WHEN {1} IS NULL THEN {2} END")
        return Tree(kind, template, _wrapped(parts))

    return form


def _choice(kind: str) -> Form:
    def form(g: Grammar, depth: int) -> Tree:
        mixed = g.chance.choice(NUMBERS) if kind in NUMBERS and g.chance.random() < 0.3 else kind
        one, other = g.operand(kind, depth), g.operand(mixed, depth)
        draw = g.chance.random()
        if draw < 0.25:
            return Tree(kind, "if({0}, {1}, {2})", (g.operand("bool", depth), one, other))
        if draw < 0.5:
            name = g.chance.choices(("coalesce", "nvl", "ifnull"), (6, 1, 1))[0]
            return Tree(kind, f"{name}({{0}}, {{1}})", (one, other))
        if draw < 0.65:
            return Tree(kind, "nullif({0}, {1})", (one, g.partner(kind, 0)))
        if kind == "bool":
            return Tree(kind, "coalesce({0}, {1}, {2})", (one, other, g.constant(kind)))
        name = g.pick("greatest", "least")
        if draw < 0.85:
            return Tree(kind, f"{name}({{0}}, {{1}})", (one, other))
        return Tree(kind, f"{name}({{0}}, {{1}}, {{2}})", (one, other, g.constant(kind)))

    return form


def _cast(kind: str) -> Form:
    def form(g: Grammar, depth: int) -> Tree:
        source = g.chance.choice(CASTS[kind])
        target = g.type_name(kind)
        if source == "string" and kind in (*NUMBERS, "date", "timestamp", "ntz") and g.chance.random() < 0.7:
            flavour = "date" if kind == "date" else "time" if kind in ("timestamp", "ntz") else "number"
            inner = g.column("string", flavour)
        else:
            inner = g.operand(source, depth)
        word = g.chance.choices(("CAST({0} AS %s)", "TRY_CAST({0} AS %s)", "{0}::%s"), (6, 3, 0.5))[0]
        return Tree(kind, word % target, _wrapped((inner,)) if "::" in word else (inner,))

    return form


def _weighted(kind: str, own: list[tuple[Form, float]]) -> tuple[list[Form], list[float]]:
    forms = [*own, (_case(kind), 1.0), (_choice(kind), 2.5), (_cast(kind), 2.5 if kind != "bool" else 1.0)]
    return [form for form, _ in forms], [weight for _, weight in forms]


FORMS: dict[str, tuple[list[Form], list[float]]] = {
    "bool": _weighted(
        "bool",
        [
            (_compare, 9),
            (_logic, 3),
            (_not, 1.5),
            (_is, 2),
            (_in, 4),
            (_between, 3),
            (_like, 4),
            (_matches, 1.5),
            (_contains, 1),
        ],
    ),
    "int": _weighted(
        "int", [(_arithmetic("int"), 4), (_sign("int"), 1), (_rounded("int"), 1), (_length, 1), (_part, 2)]
    ),
    "float": _weighted("float", [(_arithmetic("float"), 4), (_sign("float"), 1.5), (_rounded("float"), 1)]),
    "decimal": _weighted("decimal", [(_arithmetic("decimal"), 4), (_sign("decimal"), 1), (_rounded("decimal"), 1.5)]),
    "string": _weighted("string", [(_text, 7)]),
    "binary": _weighted("binary", []),
    "date": _weighted("date", [(_to_date, 4), (_date_sum, 0.1)]),
    "timestamp": _weighted("timestamp", []),
    "ntz": _weighted("ntz", []),
}
