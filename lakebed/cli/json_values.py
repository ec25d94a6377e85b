"""Arrow columns to JSON values and back, by the type of the column, nested types included.

    list      [1, 2]               struct    {"x": 1}           map    [["key", 1]], also {"key": 1} when read
    numbers   1, 0.5, "NaN", "Infinity", "-Infinity"            decimals, times, binary: texts (`text_values`)

Columns are converted level by level, by the type of the column and not of single values: the table's type decides how a
value is written, and how it is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.cli.text_values import from_text, to_text
from lakebed.errors import InvalidRequest
from lakebed.model.schema_change import did_you_mean

_JSON_NAMES = {bool: "a boolean", int: "a number", float: "a number", Decimal: "a number", str: "text"}
_JSON_NAMES |= {list: "a list", dict: "an object"}
_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
"""Brackets, and whole strings, since brackets inside them do not count."""


def json_rows(batch: pa.RecordBatch | pa.Table, *, exact: bool = True) -> list[dict[str, Any]]:
    """Rows as objects."""
    names = batch.schema.names
    table = batch.combine_chunks() if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    columns = [
        [value for chunk in table.column(at).chunks for value in json_values(chunk, name, exact=exact)]
        for at, name in enumerate(names)
    ]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_values(column: Any, name: str, *, exact: bool = True) -> list[Any]:
    """The values of an array; `exact` refuses what could not be read back."""
    kind, types = column.type, pa.types
    if types.is_struct(kind):
        parts = [json_values(pc.struct_field(column, [at]), name, exact=exact) for at in range(kind.num_fields)]
        names = [kind.field(at).name for at in range(kind.num_fields)]
        rows = zip(*parts, strict=True) if parts else ((),) * len(column)
        valid = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]
    if types.is_map(kind):
        column = column.take(pa.array(np.arange(len(column))))  # without the offset of a slice, nulls without entries
        keys, items = (json_values(part, name, exact=exact) for part in (column.keys, column.items))
        return _cut([list(pair) for pair in zip(keys, items, strict=True)], _lengths(column))
    if types.is_list(kind) or types.is_large_list(kind):
        return _cut(json_values(column.flatten(), name, exact=exact), _lengths(column))
    if types.is_floating(kind):
        values: list[Any] = column.to_pylist()
        if pc.all(pc.is_finite(column)).as_py() is not False:
            return values
        return [value if value is None or math.isfinite(value) else _no_number(value) for value in values]
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_string(kind) or types.is_null(kind):
        return list(column.to_pylist())
    return list(to_text(column, name, exact=exact).to_pylist())


def parse_json(text: str, *, keep_digits: bool = True) -> Any:
    """A JSON text; numbers keep their digits, for decimals, and a bare `NaN` or `Infinity` becomes its text."""
    digits = Decimal if keep_digits else None
    try:
        return json.loads(text, parse_float=digits, parse_constant=str, object_pairs_hook=_object)
    except RecursionError:
        raise json.JSONDecodeError("lists and objects go too deep into each other", text, _deepest(text)) from None


def array_of(values: Sequence[Any], kind: pa.DataType, name: str, *, fill: bool = False) -> Any:
    """Values that JSON held as an array of a type; `fill` sets missing fields of structs to null."""
    try:
        return _array(values, kind, name, fill)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"the column {name!r} is {kind}: {str(error).partition(chr(10))[0]}") from None


def _array(values: Sequence[Any], kind: pa.DataType, name: str, fill: bool) -> Any:
    types = pa.types
    if types.is_struct(kind):
        return _structs(values, kind, name, fill)
    if types.is_map(kind):
        pairs, offsets, absent = _joined([_pairs(value, name) for value in values], name)
        keys = _array([pair[0] for pair in pairs], kind.key_type, name, fill)
        items = _array([pair[1] for pair in pairs], kind.item_type, name, fill)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=absent)
    if types.is_list(kind):
        flat, offsets, absent = _joined(values, name)
        return pa.ListArray.from_arrays(offsets, _array(flat, kind.value_type, name, fill), type=kind, mask=absent)
    if types.is_floating(kind):
        return _numbers(values, kind)
    if types.is_boolean(kind) or types.is_integer(kind):
        _check_kinds(values, bool if types.is_boolean(kind) else int)
        return pa.array(values, kind)
    if types.is_decimal(kind):
        _check_kinds(values, str, int, float, Decimal)
        values = [str(value) if type(value) in (int, float, Decimal) else value for value in values]
    _check_kinds(values, str)
    return from_text(pa.array(values, pa.string()), kind, name)


def _structs(values: Sequence[Any], kind: pa.DataType, name: str, fill: bool) -> Any:
    names = [field.name for field in kind]
    for value in values:
        if value is None:
            continue
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is no object")
        for key in value if len(value) != len(names) or value.keys() != set(names) else ():
            if key not in names:
                raise InvalidRequest(f"the column {name!r} has no field {key!r}", hint=did_you_mean(key, names))
        lacking = next((key for key in names if key not in value), None)
        if lacking is not None and not fill:
            raise InvalidRequest(
                f"a value of the column {name!r} lacks the field {lacking!r}",
                hint="Write null for it, or give --missing-as-null.",
            )
    children = [
        _array([None if value is None else value.get(field.name) for value in values], field.type, name, fill)
        for field in kind
    ]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=absent)


def _pairs(value: Any, name: str) -> list[Any] | None:
    """The entries of a map, from any of the forms in which programs write one."""
    if value is None or isinstance(value, dict):
        return None if value is None else list(value.items())
    found = []
    for entry in value if isinstance(value, list) else [None]:
        if isinstance(entry, dict) and entry.keys() == {"key", "value"}:
            found.append((entry["key"], entry["value"]))
        elif isinstance(entry, list) and len(entry) == 2:
            found.append((entry[0], entry[1]))
        else:
            raise ValueError(f"{value!r} is no object and no list of pairs")
    return found


def _joined(values: Sequence[Any], name: str) -> tuple[list[Any], pa.Array, pa.Array]:
    """The concatenated elements of lists, where each list begins, and which lists are null."""
    flat: list[Any] = []
    offsets = np.zeros(len(values) + 1, np.int32)
    for at, value in enumerate(values, 1):
        if value is not None:
            if not isinstance(value, list):
                raise ValueError(f"{value!r} is no list")
            flat += value
        offsets[at] = len(flat)
    return flat, pa.array(offsets), pa.array([value is None for value in values], pa.bool_())


def _cut(flat: list[Any], lengths: npt.NDArray[np.int64]) -> list[Any]:
    """Lists of so many elements; null where the length is negative."""
    ends = np.cumsum(np.maximum(lengths, 0))
    starts = ends - np.maximum(lengths, 0)
    bounds = zip(lengths.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [None if length < 0 else flat[start:end] for length, start, end in bounds]


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    if pa.types.is_map(column.type):
        lengths = np.diff(np.asarray(column.offsets))
        found: npt.NDArray[np.int64] = np.where(np.asarray(column.is_valid()), lengths, -1).astype(np.int64)
        return found
    return np.asarray(pc.fill_null(pc.list_value_length(column), -1)).astype(np.int64)


def _deepest(text: str) -> int:
    """Where the innermost list or object begins."""
    depth = most = at = 0
    for found in _BRACKETS.finditer(text):
        mark = found.group()
        depth += (mark in "[{") - (mark in "]}")
        if depth > most:
            most, at = depth, found.start()
    return at


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in an object")
    return found


def _no_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _numbers(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Floating-point numbers; one that is too large for the type would become infinite."""
    found = _check_kinds(values, float, int, str, Decimal)
    infinite = 0
    if found & {str, Decimal}:
        unknown = next((value for value in values if isinstance(value, str) and value not in _NO_NUMBERS), None)
        if unknown is not None:
            raise ValueError(f"{unknown!r} is text")
        infinite = sum(value in ("Infinity", "-Infinity") for value in values)
        values = [_NO_NUMBERS[v] if type(v) is str else float(v) if type(v) is Decimal else v for v in values]
    if int in found:
        number = kind.to_pandas_dtype()
        exact = 2 ** (np.finfo(number).nmant + 1)
        values = [_whole(v, number) if type(v) is int and not -exact <= v <= exact else v for v in values]
    column = pa.array(values, kind)
    if (pc.sum(pc.is_inf(column)).as_py() or 0) > infinite:
        raise ValueError("a number is too large")
    return column


def _whole(value: int, number: type[np.floating[Any]]) -> float:
    """A whole number as a floating-point one: equal to it, or the float that other programs print with these digits.

    JavaScript prints 1e20 and 2 ** 60 without exponents, as 100000000000000000000 and 1152921504606847000.
    """
    try:
        with np.errstate(over="ignore"):
            found = number(value)
    except OverflowError:
        found = number(math.inf)
    if math.isinf(found):
        raise ValueError("a number is too large")
    if int(found) != value and Decimal(str(found)) != value:
        raise ValueError(f"{value} has more digits than the type holds exactly")
    return float(found)


def _check_kinds(values: Sequence[Any], *kinds: type) -> set[type]:
    """The Python types of the values, checked because Arrow itself truncates 1.5 to an integer and takes true as 1."""
    found = set(map(type, values)) - {type(None)}
    wrong = found - set(kinds)
    if wrong:
        value = next(value for value in values if type(value) in wrong)
        raise ValueError(f"{str(value)[:80]!r} is {_JSON_NAMES.get(type(value), type(value).__name__)}")
    return found
