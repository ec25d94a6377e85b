r"""SQL text to the parser's tree; syntax that the parser reads otherwise than Spark is refused.

sqlglot reads the text in Spark's dialect. What it changes on the way, depending on its version, is found in the text
itself. Numbers with a type behind them (5L, 1.5BD), of which it makes casts, are passed on as calls of
`TYPED_NUMBER`. Escapes in quoted text other than \\ \' \n \t \r \b \% \_, a doubled quote, 0x1F and a plus sign are
refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.errors import InvalidRequest

TYPED_NUMBER = "__number"
"""`__number('5L')` stands for a number with its type."""
_WHERE = "WHERE "
_OPERATORS = re.compile(
    "L_PAREN|COMMA|PLUS|DASH|STAR|SLASH|MOD|DIV|DPIPE|EQ|NEQ|LT|LTE|GT|GTE|NULLSAFE_EQ|AND|OR|NOT|BETWEEN|IN|IS|LIKE|ILIKE"
    "|RLIKE|ESCAPE|FROM|CASE|WHEN|THEN|ELSE|AMP|PIPE|CARET|TILDE"
)
_ODD_ESCAPE = re.compile(r"\\(?:\\|['ntrb%_])|(\\.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parser's tree of a text, and the positions of its parts."""

    text: str
    tree: Any
    ends: tuple[int, ...]
    """Where a number was rewritten: the end in what the parser read, in order,"""
    shifts: tuple[int, ...]
    """and by how much that is longer than the text from there on."""

    def position(self, tree: Any) -> int | None:
        """The position of a node in the text, from 1, where the parser reports it."""
        starts = [node.meta["start"] for node in tree.walk() if "start" in node.meta]
        if not starts:
            return None
        first = min(starts)
        passed = bisect_right(self.ends, first)
        return int(first - (self.shifts[passed - 1] if passed else 0) - len(_WHERE) + 1)


def parse(text: str) -> Parsed:
    """The parser's tree of an expression."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("an expression is missing: the text is empty")
    try:
        read, ends, shifts, parentheses = _rewritten(text)
        where = sqlglot.parse_one(read, into=exp.Where, dialect="spark")
    except SqlglotError as error:
        raise InvalidRequest(f"cannot read {text!r}{_position(error)}") from error
    if sum(map(_is_grouping, where.find_all(exp.Paren))) > parentheses:  # the parser put some of its own
        raise InvalidRequest(f"{text!r} is not grouped here as Spark groups it", hint="Put parts into parentheses.")
    return Parsed(text, where.this, ends, shifts)


def is_typed_number(tree: Any) -> bool:
    """Whether a node is a number with its type behind it."""
    return isinstance(tree, exp.Anonymous) and tree.this == TYPED_NUMBER


def is_number_constant(tree: Any) -> bool:
    """Whether a node is a number as it is written, with its sign: what Spark's parser makes one constant of."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.Neg):
        tree = tree.this
    return is_typed_number(tree) or (isinstance(tree, exp.Literal) and not tree.is_string)


def _is_grouping(tree: Any) -> bool:
    """Whether parentheses are in the text; for div(a, b) and mod(a, b) the parser makes them."""
    return not isinstance(tree.this, exp.IntDiv) and not isinstance(tree.parent, exp.Mod)


def _rewritten(text: str) -> tuple[str, tuple[int, ...], tuple[int, ...], int]:
    """What the parser is to read, where that differs from the text, and how many parentheses may group in it."""
    parts, ends, shifts, parentheses = [_WHERE], [], [], 0
    copied, earlier = 0, (_START, _START)
    for token in sqlglot.tokenize(text, dialect="spark"):
        read = _Token(token.token_type.name, token.start, token.end, text[token.start : token.end + 1])
        _check(text, read, *earlier)
        parentheses += read.kind == "L_PAREN" and earlier[1].kind != "IN" and earlier[1].expects_a_value
        if read.kind == "DCOLON" and read.source != "::":  # the type of a number
            parts += [text[copied : read.start], f"{TYPED_NUMBER}('{read.source}')"]
            copied = read.end + 1
            ends.append(sum(map(len, parts)))
            shifts.append(ends[-1] - len(_WHERE) - copied)
        earlier = (earlier[1], read)
    return "".join([*parts, text[copied:]]), tuple(ends), tuple(shifts), parentheses


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    start: int
    end: int
    source: str

    @property
    def expects_a_value(self) -> bool:
        """Whether a value must follow, so that a plus is no addition and a parenthesis groups."""
        return _OPERATORS.fullmatch(self.kind) is not None


_START = _Token("L_PAREN", -1, -2, "")


def _check(text: str, token: _Token, before: _Token, last: _Token) -> None:
    """Refuse what the parser reads otherwise than Spark: `last` stands before the token, `before` before that."""
    if token.kind == "STRING":
        odd = next((found[1] for found in _ODD_ESCAPE.finditer(token.source) if found[1]), None)
        if odd is not None:
            raise _refused(text, token.start, f"the escape {odd} in a text is not supported", "Write the character.")
        if last.kind == "STRING" and last.end + 1 == token.start:
            raise _refused(text, token.start, "a doubled quote means different things to engines", "Write \\'.")
    if token.kind == "HEX_STRING" and token.source[:1] not in "xX":
        raise _refused(text, token.start, f"{token.source} is not a number", "Write X'1F' for binary values.")
    if last.kind == "PLUS" and before.expects_a_value:
        raise _refused(text, last.start, "a plus sign is dropped by the parser", "Leave it out.")
    if token.kind == "DCOLON" and token.source == "::" and last.kind == "STRING" and not before.expects_a_value:
        raise _refused(text, token.start, ":: after DATE '...' is not read as in Spark", "Put it into parentheses.")


def _refused(text: str, start: int, what: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"in {text!r} at character {start + 1}: {what}", hint=hint)


def _position(error: SqlglotError) -> str:
    details: Sequence[Mapping[str, Any]] = getattr(error, "errors", ())
    if not details:
        return f": {str(error).splitlines()[0]}"
    start = len(str(details[0].get("start_context") or "")) - len(_WHERE)
    what = str(details[0].get("description") or "not understood").partition(" for <class")[0]
    return f" at character {max(0, start) + 1}, near {details[0].get('highlight')!r}: {what}"
