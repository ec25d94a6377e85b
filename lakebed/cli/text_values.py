"""Values of non-nested columns as text and back without loss: what CSV cells and JSON strings hold.

    whole numbers, booleans    5, true                       decimal     1.50, with the column's scale
    float, double              0.1, -0, nan, inf             binary      base64
    date, time                 2026-11-01, 09:30:00.000001   timestamp   2026-11-01T09:30:00.000001Z, no Z without zone

A column is converted as a whole. Text of a time is parsed back before it is returned: outside the years 0 to 9999 Arrow
prints what it cannot read, and such values are rejected with a hint at formats that can hold them. Only exact values
are read: too many digits, too large numbers and zones other than the column's are errors.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest

_DAY = "1970-01-01T"
_INFINITE = r"(?i)^[+-]?inf(inity)?$"


def is_plain(kind: pa.DataType) -> bool:
    """Whether a column of that type has a text for every value."""
    return not pa.types.is_nested(kind)


def to_text(column: Any, name: str, *, exact: bool = True) -> Any:
    """The texts of an array, null where it is null; `exact` rejects what could not be read back."""
    kind, types = column.type, pa.types
    if types.is_string(kind):
        return column
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()], pa.string())
    text = column.cast(pa.string())
    if types.is_timestamp(kind):
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
    if exact and types.is_temporal(kind) and not _reads_back(text, column):
        raise InvalidRequest(
            f"the column {name!r} holds times outside the years 0 to 9999, which have no text",
            hint="Write a .parquet or .arrow file, or choose other columns with --columns.",
        )
    return text


def from_text(text: Any, kind: pa.DataType, name: str) -> Any:
    """The values of texts in a type; `InvalidRequest` names the column and the text that is not a value of the type."""
    if pa.types.is_string(kind):
        return text
    try:
        return _parsed(text, kind)
    except (pa.ArrowException, ValueError, binascii.Error) as error:
        raise InvalidRequest(f"the column {name!r} is {kind}: {_first_line(error)}") from None


def keeps_text(text: Any, kind: pa.DataType) -> bool:
    """Whether all texts are values of a type, and each value prints as exactly its text."""
    try:
        return bool(to_text(_parsed(text, kind), "").equals(text))
    except (pa.ArrowException, ValueError):
        return False


def _parsed(text: Any, kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.array([None if v is None else _bytes(v) for v in text.to_pylist()], kind)
    if types.is_null(kind):
        return pa.array(text.to_pylist(), kind)
    text = pc.ascii_trim_whitespace(text)
    if types.is_time(kind):
        return pc.binary_join_element_wise(_DAY, text, "").cast(pa.timestamp(kind.unit)).cast(kind)
    values = text.cast(kind)
    if types.is_floating(kind):
        grown = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring_regex(text, _INFINITE)))
        if pc.any(grown).as_py():
            raise ValueError(f"{text.filter(grown)[0].as_py()!r} is too large")
    return values


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise ValueError(f"{shown!r} is not base64") from None


def _reads_back(text: Any, column: Any) -> bool:
    try:
        return bool(_parsed(text, column.type).equals(column))
    except pa.ArrowException:
        return False


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
