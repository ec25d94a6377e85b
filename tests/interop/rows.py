"""One notation for rows, whoever read them, and the comparison over it.

Answers come as Arrow tables (lakebed, hudi-rs) or as JSON with Spark's type names (real Hudi, golden tables). Both are
brought to the notation of the golden tables: dates, times and decimals as text, bytes as {"b64": ...}, maps as objects,
NaN and infinities as words. Rows are compared as multisets, because no reader promises an order and a doubled row is
one of the mistakes to find.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
ROWS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """What one reader said: columns with Spark's type names, and rows in canonical notation."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def select(self, columns: Iterable[str]) -> Answer:
        places = [self.columns.index(name) for name in columns]
        return Answer(
            tuple(self.columns[i] for i in places),
            tuple(self.types[i] for i in places),
            tuple(tuple(row[i] for i in places) for row in self.rows),
        )

    def where(self, keep: Callable[[dict[str, Any]], bool]) -> Answer:
        rows = (row for row in self.rows if keep(dict(zip(self.columns, row, strict=True))))
        return Answer(self.columns, self.types, tuple(rows))

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def spark_type(kind: pa.DataType) -> str:
    """Spark's short name of an Arrow type."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{field.name}:{spark_type(field.type)}" for field in kind) + ">"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    names = {
        "int8": "tinyint",
        "int16": "smallint",
        "int32": "int",
        "int64": "bigint",
        "bool": "boolean",
        "date32[day]": "date",
        "binary_view": "binary",
        "halffloat": "float",
    }
    text = str(kind).removeprefix("large_")
    return names.get(text, text)


def plain(value: Any, kind: pa.DataType | None = None) -> Any:
    """A Python value in canonical notation; the Arrow type tells maps from lists."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value.isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        kinds = {field.name: field.type for field in kind} if kind is not None and pa.types.is_struct(kind) else {}
        return {str(name): plain(item, kinds.get(name)) for name, item in value.items()}
    if kind is not None and pa.types.is_map(kind):
        return {str(plain(key)): plain(item, kind.item_type) for key, item in value}
    inner = kind.value_type if kind is not None else None
    return [plain(item, inner) for item in value]


def from_arrow(table: pa.Table) -> Answer:
    """The answer of a reader that speaks Arrow."""
    columns = [
        [plain(value, field.type) for value in table.column(place).to_pylist()]
        for place, field in enumerate(table.schema)
    ]
    rows = tuple(zip(*columns, strict=True)) if columns else ()
    return Answer(tuple(table.schema.names), tuple(spark_type(field.type) for field in table.schema), rows)


def from_json(body: Mapping[str, Any]) -> Answer:
    """The answer of real Hudi: {columns, types, rows}, fresh from the peer or kept with a golden table."""
    kinds = tuple(body["types"])
    rows = tuple(tuple(_fixed(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in body["rows"])
    return Answer(tuple(body["columns"]), kinds, rows)


def _fixed(value: Any, kind: str) -> Any:
    """Java writes small decimals with an exponent, and not always the same one; digits say it once."""
    if value is None or not kind.startswith("decimal("):
        return value
    scale = int(kind.removesuffix(")").rpartition(",")[2])
    return format(decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-scale), context=decimal.Context(60)), "f")


def schema_difference(expected: Answer, actual: Answer) -> str:
    """Empty when both show the same columns, in the same order, with the same types."""
    if expected.columns != actual.columns:
        return f"columns differ: expected {expected.columns}, got {actual.columns}"
    wrong = [
        f"{name}: expected {want}, got {got}"
        for name, want, got in zip(expected.columns, expected.types, actual.types, strict=True)
        if want != got
    ]
    return "types differ: " + "; ".join(wrong) if wrong else ""


def row_difference(expected: Answer, actual: Answer, columns: Sequence[str] | None = None) -> str:
    """Empty when both hold the same rows, each as often; else the first rows that differ, paired by record key."""
    names = tuple(columns) if columns is not None else expected.columns
    want = Counter(json.dumps(row, sort_keys=True) for row in expected.select(names).rows)
    got = Counter(json.dumps(row, sort_keys=True) for row in actual.select(names).rows)
    if want == got:
        return ""
    missing, extra = _rows(want - got, names), _rows(got - want, names)
    lines = [f"{len(expected.rows)} rows expected, {len(actual.rows)} read; {len(missing)} missing, {len(extra)} extra"]
    for row in missing[:ROWS_SHOWN]:
        twin = next((other for other in extra if _identity(other) == _identity(row)), None)
        if twin is None:
            lines.append(f"  missing {row}")
        else:
            extra.remove(twin)
            changed = {name: (row[name], twin[name]) for name in names if row[name] != twin[name]}
            lines.append(f"  row {_identity(row)}: (expected, read) {changed}")
    lines += [f"  extra {row}" for row in extra[:ROWS_SHOWN]]
    return "\n".join(lines)


def _rows(counted: Counter[str], names: Sequence[str]) -> list[dict[str, Any]]:
    return [dict(zip(names, json.loads(text), strict=True)) for text in sorted(counted.elements())]


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in (PARTITION_PATH, RECORD_KEY))
