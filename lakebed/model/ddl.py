"""A table's columns as SQL DDL, `id string NOT NULL, tags array<string>`: text in, Arrow schema out.

sqlglot reads the text in Spark's dialect, and types mean what they mean to Spark: `timestamp` is a moment in UTC with
microseconds, `timestamp_ntz` a wall clock without a zone, and a decimal without numbers is `decimal(10, 0)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.errors import InvalidRequest

_BEFORE, _AFTER = "CREATE TABLE t (", "\n)"
_KIND = exp.DataType.Type
_PLAIN: Mapping[Any, pa.DataType] = {
    _KIND.TEXT: pa.string(),
    _KIND.VARCHAR: pa.string(),
    _KIND.CHAR: pa.string(),
    _KIND.BOOLEAN: pa.bool_(),
    _KIND.TINYINT: pa.int8(),
    _KIND.SMALLINT: pa.int16(),
    _KIND.INT: pa.int32(),
    _KIND.BIGINT: pa.int64(),
    _KIND.FLOAT: pa.float32(),
    _KIND.DOUBLE: pa.float64(),
    _KIND.DATE: pa.date32(),
    _KIND.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    _KIND.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    _KIND.TIMESTAMPNTZ: pa.timestamp("us"),
    _KIND.BINARY: pa.binary(),
}
_HINT = (
    "Types are string, boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), date, timestamp,"
    " timestamp_ntz, binary, array<...>, map<..., ...> and struct<name: type, ...>."
)
_EXAMPLE = 'Write columns like "id string NOT NULL, qty int, tags array<string>".'
_MOST_DIGITS = 38


def ddl_schema(text: str) -> pa.Schema:
    """The Arrow schema of a column list; `InvalidRequest` names the position where it cannot be read."""
    try:
        _check_commas(text)
        trees = sqlglot.parse(_BEFORE + text + _AFTER, dialect="spark")
        columns = _columns(trees[0] if len(trees) == 1 else None, text)
        return pa.schema([_field(column, "") for column in columns])
    except SqlglotError as error:
        raise InvalidRequest(f"cannot read the columns {text[:200]!r}{_position(error, text)}", hint=_HINT) from None
    except RecursionError:
        raise InvalidRequest(f"the columns are nested too deeply ({len(text)} characters)") from None


def _check_commas(text: str) -> None:
    """A column that is missing between commas is a typing mistake, which sqlglot overlooks."""
    after_comma = True
    for token in sqlglot.tokenize(text, dialect="spark"):
        is_comma = token.token_type.name == "COMMA"
        if after_comma and is_comma:
            raise InvalidRequest(f"a column is missing at character {token.start + 1} of {text[:200]!r}", hint=_EXAMPLE)
        after_comma = is_comma
    if after_comma:
        raise InvalidRequest(f"a column is missing at the end of {text[:200]!r}", hint=_EXAMPLE)


def _columns(tree: Any, text: str) -> Sequence[Any]:
    """The columns of the statement, which must be nothing else."""
    said = {name for name, value in tree.args.items() if value} if isinstance(tree, exp.Create) else set()
    if said != {"this", "kind"} or not isinstance(tree.this, exp.Schema):
        raise InvalidRequest(f"{text[:200]!r} is not a list of columns", hint=_EXAMPLE)
    found: Sequence[Any] = tree.this.expressions
    return found


def _field(column: Any, above: str) -> pa.Field:
    if not isinstance(column, exp.ColumnDef):
        what = column.sql(dialect="spark")[:80]
        raise InvalidRequest(f"{above + what!r} is not a column with a type", hint=_EXAMPLE)
    path = above + column.name
    nullable = True
    for constraint in column.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif not isinstance(kind, exp.CommentColumnConstraint):
            said = constraint.sql(dialect="spark")[:80]
            raise InvalidRequest(f"the column {path!r} cannot be {said!r}", hint="Columns may be NOT NULL, no more.")
    return pa.field(column.name, _type(column.args.get("kind"), path), nullable)


def _type(tree: Any, path: str) -> pa.DataType:
    kind = tree.this if isinstance(tree, exp.DataType) else None
    if kind in _PLAIN:
        return _PLAIN[kind]
    inner = list(tree.expressions) if kind is not None else []
    if kind is _KIND.DECIMAL:
        return _decimal([int(number.name) for number in inner], path)
    if kind is _KIND.ARRAY and len(inner) == 1:
        return pa.list_(_type(inner[0], f"{path}.element"))
    if kind is _KIND.MAP and len(inner) == 2:
        return pa.map_(_type(inner[0], f"{path}.key"), _type(inner[1], f"{path}.value"))
    if kind is _KIND.STRUCT and inner:
        return pa.struct([_field(member, f"{path}.") for member in inner])
    said = tree.sql(dialect="spark")[:80] if tree is not None else "nothing"
    raise InvalidRequest(f"the column {path!r} is {said!r}, which is no type of a table", hint=_HINT)


def _decimal(numbers: list[int], path: str) -> pa.DataType:
    precision, scale = (*numbers, *(10, 0)[len(numbers) :])[:2]
    if not 0 < precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        raise InvalidRequest(
            f"the column {path!r} is decimal({precision}, {scale})",
            hint=f"A decimal has 1 to {_MOST_DIGITS} digits, and no more of them after the point.",
        )
    return pa.decimal128(precision, scale)


def _position(error: SqlglotError, text: str) -> str:
    details: Sequence[Mapping[str, Any]] = getattr(error, "errors", ())
    if not details:
        return f": {str(error).splitlines()[0]}"
    start = len(str(details[0].get("start_context") or "")) - len(_BEFORE)
    what = str(details[0].get("description") or "not understood")
    return f" at character {min(max(0, start), len(text)) + 1}, near {details[0].get('highlight')!r}: {what}"
