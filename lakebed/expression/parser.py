r"""SQL text -> the parser's tree, without what the parser reads otherwise than Spark.

sqlglot reads the text in Spark's dialect. What it changes on the way, depending on its version, is found in the text
itself and refused: escapes in quoted text other than \\ \' \" \n \t \r \b \% \_, a doubled quote, numbers like 1.5BD
and 0x1F.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.errors import InvalidRequest

WHERE = "WHERE "
_ODD_ESCAPE = re.compile(r"\\(?:\\|['\"ntrb%_])|(\\.)", re.DOTALL)


def parse(text: str) -> Any:
    """The parser's tree of an expression."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("an expression is missing: the text is empty")
    try:
        _check_tokens(text)
        where = sqlglot.parse_one(WHERE + text, into=exp.Where, dialect="spark")
    except SqlglotError as error:
        raise InvalidRequest(f"cannot read {text!r}{_position(error)}") from error
    return where.this


def _check_tokens(text: str) -> None:
    last = None
    for token in sqlglot.tokenize(text, dialect="spark"):
        kind, source = token.token_type.name, text[token.start : token.end + 1]
        if kind == "STRING":
            odd = next((found[1] for found in _ODD_ESCAPE.finditer(source) if found[1]), None)
            if odd is not None:
                raise _refused(
                    text, token.start, f"the escape {odd} in a text is not supported", "Write the character."
                )
            if last is not None and last.token_type.name == "STRING" and last.end + 1 == token.start:
                raise _refused(text, token.start, "a doubled quote means different things to engines", "Write \\'.")
        if kind == "HEX_STRING" and source[:1] not in "xX":
            raise _refused(text, token.start, f"{source} is not a number", "Write X'1F' for binary values.")
        if token.text.upper() == "BD" and last is not None and last.text == "::" and source != "BD":
            raise _refused(text, token.start, f"{source} is not supported", "Write the number without BD, or a cast.")
        last = token


def _refused(text: str, start: int, what: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"in {text!r} at character {start + 1}: {what}", hint=hint)


def _position(error: SqlglotError) -> str:
    details: Sequence[Mapping[str, Any]] = getattr(error, "errors", ())
    if not details:
        return f": {str(error).splitlines()[0]}"
    start = len(str(details[0].get("start_context") or "")) - len(WHERE)
    what = str(details[0].get("description") or "not understood").partition(" for <class")[0]
    return f" at character {max(0, start) + 1}, near {details[0].get('highlight')!r}: {what}"
