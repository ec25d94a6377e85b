"""Constants as SQL text, for each family of values."""

from __future__ import annotations

import random

from tests.expressions.columns import DATE_TEXT, NUMBER_TEXT, ODD_BYTES, ODD_DATES, ODD_TEXT, ODD_TIMES, TIME_TEXT
from tests.expressions.tree import Tree

_INTS = ("0", "1", "2", "3", "5", "7", "10", "-1", "-2", "0", "1", "2")
_ODD_INTS = (
    *("127", "128", "-128", "255", "32767", "32768", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("9007199254740993", "9223372036854775807", "-9223372036854775807", "16777217", "1704067200", "5L", "-3L", "7S"),
    *("4Y", "0L", "9223372036854775807L"),
)
_DECIMALS = ("0.5", "1.5", "2.5", "0.1", "1.0", "-0.5", "0.0", "2.00", "1.239", "0.05")
_ODD_DECIMALS = (
    *("-0.0", "1.5BD", "-2.25BD", "5BD", "99.9", "9999999.99", ".5", "5.", "1.10", "9223372036854775808"),
    *("-9223372036854775809", "-9223372036854775808.5"),
    *("0.000000001", "12345678901234567890.123", "1e-1BD", "99999999999999999999999999999999999999", "1e3BD"),
)
_ZONES = ("Z", "+02:00", " UTC", "-03", "+8:5", "-033015", "UT+3")
_RARE = {
    "int": ("+5", "007", "1704067200L", "32767S", "-128Y", "128Y", "9223372036854775808L"),
    "decimal": ("1.", "00.50", "1BD", "-.5", "1.5e0BD", "123456789012345678901234567890123456789"),
    "float": (".5e1", "1.e1", "1e-400", "1e400", "1.5f", "2d", "-0e0", "1E0D"),
    "string": (
        *("'it''s'", "r'a\\b'", "'a' 'b'", "'\\u00e9'", "'\\t5\\n'", "'\\101'", "'a\\%b'", "'\\0'", "'\\Z'", "'\\q'"),
        *('"it\'s"', "'\\U0001F642'", "''", "'a''b'"),
    ),
    "binary": ("X'1'", "x'ff'", "X'0g'", "X''"),
    "date": ("DATE '2024-1-5'", "DATE '2024'", "DATE '2024-02-30'", 'date"2024-01-01"', "DATE '2024-01-01 10:00:00'"),
    "timestamp": (
        *("TIMESTAMP '2024'", "TIMESTAMP '2024-01-01T10:00:00.123456789'", "TIMESTAMP '2024-01-01 10:00:00 +2:30'"),
        *("TIMESTAMP '2024-01-01 10'", "TIMESTAMP_LTZ '2024-01-01 10:00:00'", "TIMESTAMP '2024-01-01 24:00:00'"),
    ),
    "ntz": ("TIMESTAMP_NTZ '2024-01-01 10:00:00Z'", "TIMESTAMP_NTZ '2024-1-1 1:2:3'"),
}
"""Unusual spellings."""
_FLOATS = ("0.5D", "1e0", "1e-1", "2.5e0", "-1.5D", "0D", "1e1", "0.1D", "1.5F", "0.1F")
_ODD_FLOATS = (
    *("-0.0D", "CAST('NaN' AS DOUBLE)", "double('NaN')", "CAST('Infinity' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)"),
    *("1e39", "1e308", "5e-324", "9007199254740993D", "CAST('NaN' AS FLOAT)", "-0.0F", "1E+2", "-1e-1", "1e20"),
)


def quoted(text: str, chance: random.Random | None = None) -> str:
    """A text constant that Spark reads as this text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    if chance is not None and chance.random() < 0.1 and '"' not in text:
        return '"' + text.replace("\\", "\\\\") + '"'
    return f"'{escaped}'"


def _one(chance: random.Random, plain: tuple[str, ...], odd: tuple[str, ...]) -> str:
    return chance.choice(plain if chance.random() < 0.65 else odd)


def constant(kind: str, chance: random.Random) -> Tree:
    """A constant of a family of values."""
    if chance.random() < 0.03:
        return Tree(kind, "NULL", form="NULL")
    if kind in _RARE and chance.random() < 0.04:
        return Tree(kind, chance.choice(_RARE[kind]), form=f"<{kind} constant>")
    match kind:
        case "bool":
            text = chance.choice(("true", "false", "TRUE"))
        case "int":
            text = _one(chance, _INTS, _ODD_INTS)
        case "decimal":
            text = _one(chance, _DECIMALS, _ODD_DECIMALS)
        case "float":
            text = _one(chance, _FLOATS, _ODD_FLOATS)
        case "string":
            text = quoted(chance.choice(ODD_TEXT), chance)
        case "binary":
            text = f"X'{chance.choice(ODD_BYTES).hex().upper()}'"
        case "date":
            days = chance.choice((*ODD_DATES, "2024-01-01", "2024-01-02"))
            text = chance.choice(("DATE '{}'", "DATE'{}'", "date '{}'")).format(days)
        case "timestamp":
            text = f"TIMESTAMP '{_time(chance)}'"
        case _:
            text = f"TIMESTAMP_NTZ '{_time(chance, zoned=False)}'"
    return Tree(kind, text, form=f"<{kind} constant>")


def _time(chance: random.Random, *, zoned: bool = True) -> str:
    text = chance.choice((*ODD_TIMES, "2024-01-01 10:00:00", "2024-01-01 00:00:00", "2024-01-01", "2024-01-02 00:00"))
    if zoned and chance.random() < 0.1:
        return text + chance.choice(_ZONES) if ":" in text else text
    return text


def text_of(kind: str, chance: random.Random) -> Tree:
    """A text constant that stands for a value of another family: `day = '2024-01-01'`."""
    match kind:
        case "int" | "decimal" | "float":
            text = chance.choice(NUMBER_TEXT)
        case "date":
            text = chance.choice((*DATE_TEXT, "2024-01-01", "2024-01-02"))
        case "timestamp" | "ntz":
            text = chance.choice((*TIME_TEXT, "2024-01-01 10:00:00"))
        case "bool":
            text = chance.choice(("true", "false", "t", "yes", "1", "0", "maybe"))
        case _:
            text = chance.choice(ODD_TEXT)
    return Tree("string", quoted(text, chance), form=f"<text of {kind}>")
