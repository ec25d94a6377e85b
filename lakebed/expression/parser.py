r"""SQL text -> the parser's tree, without what the parser reads otherwise than Spark.

sqlglot reads the text in Spark's dialect. What it changes on the way, depending on its version, is found in the text
itself. Numbers with a type behind them (5L, 1.5BD), of which it makes casts, are handed over as calls of
`TYPED_NUMBER`. Escapes in quoted text other than \\ \' \n \t \r \b \% \_, a doubled quote, 0x1F and a plus sign before
anything but a number are refused.
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
_BEFORE_A_SIGN = re.compile(
    "L_PAREN|COMMA|PLUS|DASH|STAR|SLASH|MOD|DIV|DPIPE|EQ|NEQ|LT|LTE|GT|GTE|NULLSAFE_EQ|AND|OR|NOT|BETWEEN|IN|IS|LIKE|ILIKE"
    "|RLIKE|ESCAPE|FROM|CASE|WHEN|THEN|ELSE|AMP|PIPE|CARET|TILDE"
)
"""After these a plus is no addition."""
_ODD_ESCAPE = re.compile(r"\\(?:\\|['ntrb%_])|(\\.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parser's tree of a text, and where its parts stand there."""

    text: str
    tree: Any
    ends: tuple[int, ...]
    """Where a number was rewritten: the end in what the parser read, in order,"""
    shifts: tuple[int, ...]
    """and by how much that is longer than the text from there on."""

    def position(self, tree: Any) -> int | None:
        """The place of a node in the text, from 1, where the parser tells it."""
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
        read, ends, shifts = _rewritten(text)
        where = sqlglot.parse_one(read, into=exp.Where, dialect="spark")
    except SqlglotError as error:
        raise InvalidRequest(f"cannot read {text!r}{_position(error)}") from error
    return Parsed(text, where.this, ends, shifts)


def _rewritten(text: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    parts, ends, shifts = [_WHERE], [], []
    copied, last, before = 0, None, "L_PAREN"
    for token in sqlglot.tokenize(text, dialect="spark"):
        kind, source = token.token_type.name, text[token.start : token.end + 1]
        _check(text, token, source, last)
        if (
            last is not None
            and last.token_type.name == "PLUS"
            and _BEFORE_A_SIGN.fullmatch(before)
            and kind != "NUMBER"
        ):
            raise _refused(text, last.start, "a plus sign is dropped by the parser", "Leave it out.")
        if kind == "DCOLON" and source != "::":  # the type of a number
            parts += [text[copied : token.start], f"{TYPED_NUMBER}('{source}')"]
            copied = token.end + 1
            ends.append(sum(map(len, parts)))
            shifts.append(ends[-1] - len(_WHERE) - copied)
        before, last = last.token_type.name if last is not None else "L_PAREN", token
    return "".join([*parts, text[copied:]]), tuple(ends), tuple(shifts)


def _check(text: str, token: Any, source: str, last: Any) -> None:
    kind = token.token_type.name
    if kind == "STRING":
        odd = next((found[1] for found in _ODD_ESCAPE.finditer(source) if found[1]), None)
        if odd is not None:
            raise _refused(text, token.start, f"the escape {odd} in a text is not supported", "Write the character.")
        if last is not None and last.token_type.name == "STRING" and last.end + 1 == token.start:
            raise _refused(text, token.start, "a doubled quote means different things to engines", "Write \\'.")
    if kind == "HEX_STRING" and source[:1] not in "xX":
        raise _refused(text, token.start, f"{source} is not a number", "Write X'1F' for binary values.")


def _refused(text: str, start: int, what: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"in {text!r} at character {start + 1}: {what}", hint=hint)


def _position(error: SqlglotError) -> str:
    details: Sequence[Mapping[str, Any]] = getattr(error, "errors", ())
    if not details:
        return f": {str(error).splitlines()[0]}"
    start = len(str(details[0].get("start_context") or "")) - len(_WHERE)
    what = str(details[0].get("description") or "not understood").partition(" for <class")[0]
    return f" at character {max(0, start) + 1}, near {details[0].get('highlight')!r}: {what}"
