"""The columns that expressions speak about, and rows: ordinary values beside the ones that engines differ on."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

ROWS = 48
_NULLS, _ODD = 0.12, 0.5
_BEYOND = 0.1
"""Of the row sets, how many have dates and times after the year 9999: Arrow and Spark hold them, Python does not."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Column:
    """A column: how SQL names it, its type in SQL, and the family of expressions that it is a leaf of."""

    name: str
    sql_type: str
    kind: str
    text: str = "odd"
    """What a text column holds: odd text, or mostly text of one meaning (`number`, `date`, `time`, `key`)."""

    @property
    def type(self) -> pa.DataType:
        return arrow_type(self.sql_type)


_PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


def arrow_type(sql_type: str) -> pa.DataType:
    """The Arrow type of an SQL type; `KeyError` for those that no column here has."""
    if sql_type.startswith("decimal("):
        precision, scale = sql_type[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return _PLAIN[sql_type]


def sql_type(data_type: pa.DataType) -> str:
    """The SQL type of an Arrow type."""
    if pa.types.is_struct(data_type):
        return f"struct<{', '.join(f'{child.name}: {sql_type(child.type)}' for child in data_type)}>"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    return next(name for name, known in _PLAIN.items() if known.equals(data_type))


COLUMNS: tuple[Column, ...] = (
    Column("b", "boolean", "bool"),
    Column("b2", "boolean", "bool"),
    Column("i8", "tinyint", "int"),
    Column("i16", "smallint", "int"),
    Column("i32", "int", "int"),
    Column("n32", "int", "int"),
    Column("i64", "bigint", "int"),
    Column("n64", "bigint", "int"),
    Column("f32", "float", "float"),
    Column("f64", "double", "float"),
    Column("g64", "double", "float"),
    Column("d3", "decimal(3,1)", "decimal"),
    Column("d9", "decimal(9,2)", "decimal"),
    Column("d18", "decimal(18,4)", "decimal"),
    Column("d20", "decimal(20,0)", "decimal"),
    Column("d38", "decimal(38,10)", "decimal"),
    Column("s", "string", "string"),
    Column("s2", "string", "string"),
    Column("num", "string", "string", "number"),
    Column("dtext", "string", "string", "date"),
    Column("tstext", "string", "string", "time"),
    Column("bin", "binary", "binary"),
    Column("day", "date", "date"),
    Column("day2", "date", "date"),
    Column("ts", "timestamp", "timestamp"),
    Column("ts2", "timestamp", "timestamp"),
    Column("ntz", "timestamp_ntz", "ntz"),
)
STRUCT = (
    Column("a", "int", "int"),
    Column("d", "double", "float"),
    Column("s", "string", "string"),
    Column("day", "date", "date"),
)
LEAVES: tuple[Column, ...] = (
    *COLUMNS,
    *(Column(f"st.{child.name}", child.sql_type, child.kind, child.text) for child in STRUCT),
)
SCHEMA = pa.schema(
    [
        *(pa.field(column.name, column.type) for column in COLUMNS),
        pa.field("st", pa.struct([pa.field(child.name, child.type) for child in STRUCT])),
    ]
)


def micros(text: str) -> int:
    """A time of day in UTC as Arrow keeps it."""
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
    return (moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds


def days(text: str) -> int:
    """A date as Arrow keeps it."""
    return date.fromisoformat(text).toordinal() - _EPOCH.date().toordinal()


_WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
ODD_TEXT: Sequence[str] = (
    *("", " ", " 5 ", "5", "NaN", "nan", "Infinity", "-inf", "é", "É", "e\u0301", "ß", "İ", "ı", "ǆ", "Ω", "%", "_"),
    *("\\", "a\\b", "a%b", "a_b", "a%", "100%", "🙂", "a🙂b", "1e3", "1.5", "-0", "+7", "0x1F", "2024-01-01", "true"),
    *(
        "T",
        "no",
        "null",
        "NULL",
        "'",
        '"',
        "x",
        "X",
        "xy",
        "xyz",
        "abc",
        "ABC",
        "aBc",
        "a\n",
        "a\nb",
        "\t5\n",
        "\u00a05",
    ),
    *("\u2003x\u2003", "a b", "  lead", "trail  ", "xx", "\x00", "9223372036854775808", "1" * 40, "ﬀ", "ŉ", "Σς"),
)
NUMBER_TEXT: Sequence[str] = (
    *("0", "1", "2", "5", "7", "-1", "10", "42", "100", "127", "128", "-128", "2147483647", "2147483648", "0.5", "1.5"),
    *("-1.25", "2.5", "-0.0", "0.1", "1e3", "1E-1", " 5 ", "+7", ".5", "5.", "007", "9007199254740993", "NaN", "1.239"),
)
DATE_TEXT: Sequence[str] = (
    *("2024-01-01", "2024-01-02", "2024-02-29", "1999-12-31", "1582-10-04", "1582-10-15", "0001-01-01", "9999-12-31"),
    *("2024-1-5", "2024", "2024-03", " 2024-01-01 ", "2024-01-01 10:00:00", "2024-01-01T10:00:00", "1970-01-01"),
    *("2023-02-29", "01/02/2024", "20240101", "2024-13-01", "x"),
)
TIME_TEXT: Sequence[str] = (
    *("2024-01-01 10:00:00", "2024-01-01 00:00:00", "2024-01-01", "2024-03-10 02:30:00", "1969-12-31 23:59:59.999999"),
    *("2024-01-01T10:00:00Z", "2024-01-01 10:00:00+02:00", "2024-01-01 10:00:00.5", "1582-10-04 12:00:00"),
    *("2024-01-01 10:00", "2024-01-01 10:00:00.1234567", "9999-12-31 23:59:59", "2024-01-01 25:00:00", "x"),
    *("2024-01-01 10:00:00.1234567891-03", "2024-01-01 10:00:00 +8:5", "2024-01-01T10:00:00UT+033015", "2024-01-01T"),
    *("2024-01-01 10:00:00-18:00:01", "2024-01-01 10:00:00+3:60", "2024-01-01 10:00-03", "2024-01-01 10:00:00GMT-0330"),
)
_TEXTS = {"odd": ODD_TEXT, "number": NUMBER_TEXT, "date": DATE_TEXT, "time": TIME_TEXT}
_PLAIN_TEXTS = {
    "odd": ("a", "b", "x", "xy", "abc", "5", "12"),
    "number": ("0", "1", "2", "3", "5", "1.5", "-2", "10"),
    "date": ("2024-01-01", "2024-01-02", "2023-12-31", "2020-02-29", "1999-05-07"),
    "time": ("2024-01-01 10:00:00", "2024-01-01 00:00:00", "2023-12-31 23:59:59", "2024-05-06 07:08:09"),
}
_ODD_DOUBLES = (
    *(float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308),
    *(0.1, 0.5, 1.5, 2.5, -0.5, -2.5, 1e20, 1e-5, 123456789.125, 9007199254740993.0, 9.223372036854775807e18, 1e39),
    *(2147483647.5, -128.9, 127.5, 1e15, 1e16, 1.239, 3.4028235e38, -1e-310, 2.675, 1.005),
)
_ODD_FLOATS = (
    *(float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.4e-45, 3.4028235e38, -3.4028235e38, 0.1, 0.5, 1.5, 2.5),
    *(16777217.0, 1e20, 1e-5, 2147483648.0, -0.5, 123.456, 1e10),
)
ODD_DATES = (
    *("0001-01-01", "1582-10-04", "1582-10-15", "1899-12-31", "1900-02-28", "1969-12-31", "1970-01-01", "1999-12-31"),
    *("2000-02-29", "2024-02-29", "2024-03-10", "2024-12-31", "9999-12-31"),
)
ODD_TIMES = (
    *("0001-01-01 00:00:00", "1582-10-04 23:59:59.999999", "1582-10-15 00:00:00", "1899-12-31 12:34:56.000001"),
    *("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2024-03-10 02:30:00", "2024-03-31 01:30:00"),
    *("2024-11-03 01:30:00", "2024-02-29 23:59:59.999999", "2024-01-01 10:00:00.500000", "2038-01-19 03:14:08"),
    *("9999-12-31 23:59:59.999999", "1927-12-31 23:54:08", "2024-06-30 12:00:00.000001"),
)
_PLAIN_DATES = ("2023-12-31", "2024-01-01", "2024-01-02", "2024-01-03", "2020-02-29")
_PLAIN_TIMES = ("2023-12-31 23:59:59", "2024-01-01 00:00:00", "2024-01-01 10:00:00", "2024-01-02 00:00:00")
ODD_BYTES = (b"", b"\x00", b"\xff", b"a", b"ab", b"\xc3\xa9", b"\xc3", b"5", b"\x7f\x80", b"2024-01-01", b"x")


def odd_value(column: Column, chance: random.Random) -> Any:
    """A value at the edge of its type, in the form that Arrow keeps it."""
    match column.kind:
        case "bool":
            return chance.random() < 0.5
        case "int":
            top = 1 << (_WIDTHS[column.sql_type] - 1)
            edges = [top - 1, -top, top - 2, 1 - top, 0, -1]
            wide = [(1 << 53) + 1, -(1 << 53) - 1, (1 << 53), (1 << 24) + 1, 127, 128, 32768, 86_400, 1704067200]
            return chance.choice(edges + [value for value in wide if abs(value) < top])
        case "float":
            return chance.choice(_ODD_FLOATS if column.sql_type == "float" else _ODD_DOUBLES)
        case "decimal":
            return _odd_decimal(column.type, chance)
        case "string":
            return chance.choice(_TEXTS[column.text])
        case "binary":
            return chance.choice(ODD_BYTES)
        case "date":
            return days(chance.choice(ODD_DATES))
        case _:
            return micros(chance.choice(ODD_TIMES))


def _odd_decimal(data_type: pa.DataType, chance: random.Random) -> Decimal:
    most = 10**data_type.precision - 1
    scale = data_type.scale
    one = 10**scale
    near = [one // 2, one + one // 2, -(one // 2), one * 5 // 2, one // 10, -one // 10, one * 1239 // 1000]
    unscaled = chance.choice([most, -most, 0, 1, -1, one, -one, most // 2, *near])
    return Decimal(f"{max(-most, min(most, unscaled))}E-{scale}")


def plain_value(column: Column, chance: random.Random) -> Any:
    """An ordinary value, of which there are few, so that rows match each other and constants."""
    match column.kind:
        case "bool":
            return chance.random() < 0.5
        case "int":
            return chance.randint(-3, 12)
        case "float":
            return chance.randint(-8, 24) / 4
        case "decimal":
            scale = column.type.scale
            return Decimal(f"{chance.randint(-30, 120) * 10 ** max(0, scale - 1)}E-{scale}")
        case "string":
            return chance.choice(_PLAIN_TEXTS[column.text])
        case "binary":
            return chance.choice((b"a", b"b", b"ab"))
        case "date":
            return days(chance.choice(_PLAIN_DATES))
        case _:
            return micros(chance.choice(_PLAIN_TIMES))


def values(column: Column, count: int, chance: random.Random, *, beyond: bool = False) -> pa.Array:
    """That many values of a column, nulls among them."""
    found: list[Any] = []
    for _ in range(count):
        if chance.random() < _NULLS:
            found.append(None)
        elif beyond and column.kind in ("date", "timestamp", "ntz") and chance.random() < 0.2:
            found.append(2_932_897 * (1 if column.kind == "date" else 86_400_000_000))
        else:
            found.append((odd_value if chance.random() < _ODD else plain_value)(column, chance))
    return pa.array(found, column.type)


def rows(seed: int, count: int = ROWS) -> pa.RecordBatch:
    """The rows of a seed."""
    chance = random.Random(f"rows {seed}")
    beyond = chance.random() < _BEYOND
    arrays = [values(column, count, chance, beyond=beyond) for column in COLUMNS]
    children = [values(child, count, chance) for child in STRUCT]
    absent = pa.array([chance.random() < 0.1 for _ in range(count)])
    arrays.append(pa.StructArray.from_arrays(children, fields=list(SCHEMA.field("st").type), mask=absent))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def shown(batch: pa.RecordBatch, row: int, names: Sequence[str]) -> Mapping[str, str]:
    """Values of some columns in a row, as text; also those that no Python object can hold."""
    return {name: show(batch.column(name)[row]) for name in names}


def show(scalar: pa.Scalar) -> str:
    """A value as text."""
    if not scalar.is_valid:
        return "null"
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        return f"{scalar.cast(pa.binary()).as_py()!r} (as text)"
    except (ValueError, OverflowError):
        return f"{scalar.cast(pa.int64() if scalar.type.bit_width == 64 else pa.int32()).as_py()} ({scalar.type})"
    if isinstance(value, float) and value != value:
        return f"NaN({struct.pack('>d', value).hex()})"
    return str(value) if isinstance(value, (datetime, date, Decimal)) else repr(value)
