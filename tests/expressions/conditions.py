"""Forms of random conditions."""

from __future__ import annotations

from tests.expressions.constants import quoted
from tests.expressions.draw import KINDS, NUMBERS, TIMES, Draw
from tests.expressions.tree import Tree

_COMPARED = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "=", "<", ">")
_COMPARED_KINDS = ("int", "float", "decimal", *KINDS, "int", "float", "decimal", "string", "date", "timestamp")
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
    *("%🙂%", "x_%", "%\n%", "a.c", "[ax]%", "%'%", "2024-%", "0%", "03%", "0_k%"),
)
_BAD_PATTERNS = ("\\", "a\\", "a\\b", "%\\x%")
_ESCAPED = (
    *(("a!%b", "!"), ("a!_b", "!"), ("100!%", "!"), ("%/%%", "/"), ("!!%", "!"), ("a\\%b", "\\"), ("x%", "#")),
    ("a!b", "!"),
)
_REGEXES = (
    *("^a", "x", "[0-9]+", "a|b", "a.b", "b$", "^$", "\\d+", "\\s", "\\w+", "(?i)X", "^.$", "[^a-z]", "x{2}", "a?b*"),
    *("\\.", "é", "^[A-Z]+$", "(ab|x)y", "\\bx\\b", "🙂", "%"),
)


def compare(d: Draw, depth: int) -> Tree:
    """`left < right`, of one family or of two that are coerced."""
    kind = d.kind(*_COMPARED_KINDS)
    left, right = d.operand(kind, depth), d.partner(kind, depth)
    if kind == "string" and right.kind == "string" and d.happens(0.15):
        left, right = d.column("string", "number"), d.operand(d.kind(*NUMBERS), depth)
    pair = (left, right) if d.happens(0.75) else (right, left)
    return Tree("bool", f"{{0}} {d.pick(*_COMPARED)} {{1}}", d.wrapped(*pair))


def logic(d: Draw, depth: int) -> Tree:
    """AND and OR."""
    count = 2 if d.happens(0.8) else 3
    words = [d.pick("AND", "OR", "and") for _ in range(count - 1)]
    template = "{0}" + "".join(f" {word} {{{i + 1}}}" for i, word in enumerate(words))
    return Tree("bool", template, d.wrapped(*[d.operand("bool", depth) for _ in range(count)]))


def negation(d: Draw, depth: int) -> Tree:
    """NOT."""
    return Tree("bool", d.pick("NOT {0}", "NOT {0}", "!{0}"), d.wrapped(d.operand("bool", depth)))


def is_something(d: Draw, depth: int) -> Tree:
    """IS NULL, IS TRUE and the like."""
    if d.happens(0.6):
        template = d.pick("{0} IS NULL", "{0} IS NOT NULL", "{0} IS NULL", "{0} IS NOT NULL", "isnull({0})")
        return Tree("bool", template, d.wrapped(d.operand(d.kind(*KINDS), depth)))
    word = d.pick("TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "TRUE", "FALSE", "UNKNOWN")
    return Tree("bool", f"{{0}} IS {word}", d.wrapped(d.operand("bool", depth)))


def is_in(d: Draw, depth: int) -> Tree:
    """IN a list, sometimes of several families, with null, or with something that is no constant."""
    kind = d.kind(*KINDS)
    items = [d.constant(kind) for _ in range(d.chance.randint(1, 3))]
    if kind == "float" and d.happens(0.5):
        items.append(Tree(kind, d.pick("0", "0.0", "-0.0D", "0D", "CAST('NaN' AS DOUBLE)"), form="<float constant>"))
    draw = d.chance.random()
    if draw < 0.1:
        items.append(Tree(kind, "NULL", form="NULL"))
    elif draw < 0.3 and kind in NUMBERS:
        items.append(d.constant(d.pick(*NUMBERS)))
    elif draw < 0.4 and kind in TIMES:
        items.append(d.constant(d.pick(*TIMES)))
    elif draw < 0.45:
        items.append(d.text_of(kind))
    elif draw < 0.48:
        items.append(d.operand(kind, depth))
    holes = ", ".join(f"{{{i + 1}}}" for i in range(len(items)))
    left = d.wrapped(d.operand(kind, depth))
    return Tree("bool", f"{{0}} {d.pick('IN', 'IN', 'NOT IN')} ({holes})", (*left, *items))


def between(d: Draw, depth: int) -> Tree:
    """BETWEEN."""
    kind = d.kind("int", "float", "decimal", "string", "date", "timestamp", "ntz", "int", "date")
    words = ("BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC", "NOT BETWEEN SYMMETRIC")
    word = d.chance.choices(words, (6, 3, 0.5, 0.2))[0]
    parts = (d.operand(kind, depth), d.partner(kind, 0), d.partner(kind, 0))
    return Tree("bool", f"{{0}} {word} {{1}} AND {{2}}", d.wrapped(*parts))


def like(d: Draw, depth: int) -> Tree:
    """LIKE and ILIKE."""
    text = d.operand("string", depth)
    word = d.pick("LIKE", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE")
    draw = d.chance.random()
    if draw < 0.15:
        pattern, escape = d.chance.choice(_ESCAPED)
        return Tree("bool", f"{{0}} {word} {quoted(pattern)} ESCAPE {quoted(escape)}", d.wrapped(text))
    if draw > 0.99:
        return Tree("bool", f"{{0}} {word} {{1}}", d.wrapped(text, d.column("string")))
    return Tree(
        "bool", f"{{0}} {word} {quoted(d.pick(*(_PATTERNS if draw < 0.97 else _BAD_PATTERNS)))}", d.wrapped(text)
    )


def matches(d: Draw, depth: int) -> Tree:
    """Regular expressions, of the kind that engines read alike."""
    text, pattern = d.operand("string", depth), Tree("string", quoted(d.pick(*_REGEXES)))
    if d.happens(0.5):
        return Tree("bool", f"{{0}} {d.pick('RLIKE', 'NOT RLIKE', 'REGEXP')} {{1}}", d.wrapped(text, pattern))
    flags = ", 'i'" if d.happens(0.1) else ""
    return Tree("bool", f"{d.pick('regexp_like', 'rlike')}({{0}}, {{1}}{flags})", (text, pattern))


def contains(d: Draw, depth: int) -> Tree:
    """Functions that look for a part of a text."""
    name = d.pick("contains", "startswith", "endswith")
    part = quoted(d.pick("x", "a", "", "é", "%", "5", "\\", "🙂", "b", "0"))
    if d.happens(0.1):
        return Tree("bool", f"{name}({{0}}, {{1}})", (d.operand("string", depth), d.column("string")))
    return Tree("bool", f"{name}({{0}}, {part})", (d.operand("string", depth),))
