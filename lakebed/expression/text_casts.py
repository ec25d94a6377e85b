"""Casts between text and other types, in the forms that Spark reads and writes.

    boolean      t true y yes 1, f false n no 0, in any case
    whole        [+-]digits
    float        [+-]digits with point and exponent, perhaps d or f behind; NaN, inf, infinity with sign
    decimal      [+-]digits with point and exponent
    date         y-m-d, y-m, y; after a space or T, anything
    timestamp    a date, then h, h:m or h:m:s.fraction, and after seconds a zone; without one it is UTC
    zone         Z, UTC, GMT, UT, an offset of up to 18 hours, or UTC, GMT, UT and an offset
    offset       + or -, then h, h:m, h:mm:ss, hhmm or hhmmss, where h and m alone have one digit or two

A fraction is cut after six digits, however many there are. Spaces and control characters around a value do not count.
Zones by name and times without a date, whose meaning depends on the day or on a zone table, are not read. Distinct
texts are read once.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression.decimals import of_digits, to_decimal
from lakebed.expression.failures import checked
from lakebed.expression.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_decimal,
    is_floating,
    is_whole,
    sql_name,
)
from lakebed.model.java_text import java_floats

_BLANK = "".join(map(chr, range(33))) + "\x7f"
_WORDS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_WHOLE = r"^[+-]?[0-9]+$"
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?", re.ASCII)
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?$"
_SPECIAL = r"(?i)^([+-]?(inf|infinity)|nan)$"
_MONTH_AND_DAY = r"(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:%s)?)?)?"
_DATE_ONLY = re.compile(r"([+-]?[0-9]{4,7})" + _MONTH_AND_DAY % r"[ T].*", re.DOTALL)
_TIME = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?%s)?)?"
_OFFSET = r"[+-](?:[0-9]{1,2}(?::[0-9]{1,2})?|[0-9]{1,2}:[0-9]{2}:[0-9]{2}|[0-9]{4}(?:[0-9]{2})?)"
_ZONE = rf"(?:[\x00- ]*(Z|(?:UTC|GMT|UT)(?:{_OFFSET})?|{_OFFSET}))?"
_TIMESTAMP = re.compile(r"([+-]?[0-9]{4,6})" + _MONTH_AND_DAY % f"[ T]{_TIME % _ZONE}")
_TIME_ONLY = re.compile(_TIME % "")
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_PLAIN_TIMESTAMP = _PLAIN_DATE + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\z"
_PLAIN = {DATE: _PLAIN_DATE + r"\z", TIMESTAMP: _PLAIN_TIMESTAMP, TIMESTAMP_NTZ: _PLAIN_TIMESTAMP}
_HINT = "Use try_cast, which gives null."
_DAY = 86_400_000_000
_MOST_OFFSET = 18 * 3600
_FIRST_DAY, _LAST_DAY = -719162, 2932896
"""The days of the years 1 to 9999, which Arrow writes as Spark does."""


def parse(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    """A column of text in another type."""
    if is_whole(target):
        return _whole(array, target, lenient)
    if is_floating(target):
        return _floating(array, target, lenient)
    if is_decimal(target):
        return _distinct(array, target, lambda text: _decimal(text, target), lenient)
    readers: dict[pa.DataType, Callable[[str], Any]] = {
        BOOLEAN: lambda text: _WORDS.get(text.strip(_BLANK).lower()),
        DATE: _days,
        TIMESTAMP: lambda text: _micros(text, zoned=True),
        TIMESTAMP_NTZ: lambda text: _micros(text, zoned=False),
        TIME: _time_of_day,
    }
    if target in _PLAIN:
        return _plain_first(array, target, readers[target], lenient)
    return _distinct(array, target, readers[target], lenient)


def _plain_first(array: Any, target: pa.DataType, read: Callable[[str], Any], lenient: bool) -> pa.Array:
    """Arrow reads the usual form of dates and times, in which it agrees with Spark; the reader gets what is left."""
    plain = pc.fill_null(pc.match_substring_regex(array, _PLAIN[target]), False)
    try:
        found = pc.if_else(plain, array, pa.scalar(None, TEXT)).cast(DATE if target == DATE else TIMESTAMP_NTZ)
    except pa.ArrowInvalid:  # no such day or hour
        return _distinct(array, target, read, lenient)
    rest = pc.if_else(plain, pa.scalar(None, TEXT), array)
    found = found.cast(target)
    return found if rest.null_count == len(rest) else pc.coalesce(found, _distinct(rest, target, read, lenient))


def _complaint(target: pa.DataType) -> str:
    return f"{{}} is not {_ARTICLES.get(sql_name(target).partition('(')[0], 'a number of type')} {sql_name(target)}"


_ARTICLES = {"BOOLEAN": "a", "DATE": "a", "TIMESTAMP": "a", "TIMESTAMP_NTZ": "a", "TIME": "a"}


def _whole(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    text = pc.utf8_trim(array, _BLANK)
    good = np.asarray(pc.fill_null(pc.match_substring_regex(text, _WHOLE), False))
    signed = pc.replace_substring_regex(text, r"^\+", "")
    digits = pc.if_else(pa.array(good), signed, pa.scalar(None, TEXT))
    try:
        value = digits.cast(target)
    except pa.ArrowInvalid:  # more digits than the type has: number by number
        return _distinct(array, target, lambda one: _bounded(one, target), lenient)
    return checked(value, ~good, array, lenient, _complaint(target), _HINT)


def _bounded(text: str, target: pa.DataType) -> int | None:
    limits = np.iinfo(target.to_pandas_dtype())
    text = text.strip(_BLANK)
    number = int(text) if re.match(_WHOLE, text, re.ASCII) and len(text) < 4000 else None
    return number if number is not None and limits.min <= number <= limits.max else None


def _floating(array: Any, target: pa.DataType, lenient: bool) -> pa.Array:
    text = pc.utf8_trim(array, _BLANK)
    number = pc.fill_null(pc.match_substring_regex(text, _FLOAT), False)
    special = pc.fill_null(pc.match_substring_regex(text, _SPECIAL), False)
    plain = pc.replace_substring_regex(pc.replace_substring_regex(text, r"^\+", ""), r"[dDfF]$", "")
    kept = pc.if_else(number, plain, pc.if_else(special, pc.replace_substring_regex(text, r"^\+", ""), None))
    good = np.asarray(pc.or_(number, special))
    return checked(kept.cast(target), ~good, array, lenient, _complaint(target), _HINT)


def _decimal(text: str, target: pa.DataType) -> int | None:
    text = text.strip(_BLANK)
    return of_digits(text, target.scale, target.precision) if _NUMBER.fullmatch(text) else None


def _distinct(array: Any, target: pa.DataType, read: Callable[[str], Any], lenient: bool) -> pa.Array:
    """Each text read once; None is a text that means nothing in the type."""
    encoded = array.dictionary_encode()
    found = [read(text) for text in encoded.dictionary.to_pylist()]
    good = np.array([value is not None for value in found], np.bool_)
    if is_decimal(target):
        numbers = np.empty(len(found), object)
        numbers[:] = [value or 0 for value in found]
        values, _ = to_decimal(numbers, good, target)
    elif target == BOOLEAN:
        values = pa.array(found, BOOLEAN)
    else:
        raw = pa.array(found, pa.int32() if target == DATE else BIGINT if not is_whole(target) else target)
        values = raw if is_whole(target) else raw.cast(target)
    bad = np.asarray(pc.fill_null(pa.array(~good).take(encoded.indices), False))
    return checked(values.take(encoded.indices), bad, array, lenient, _complaint(target), _HINT)


# --- dates and times --------------------------------------------------------------------------------------------------


def _days(text: str) -> int | None:
    found = _DATE_ONLY.fullmatch(text.strip(_BLANK))
    return None if found is None else _day_number(found[1], found[2], found[3])


def _day_number(year_text: str, month_text: str | None, day_text: str | None) -> int | None:
    """Days since 1970 in the Gregorian calendar, which is extended to all years."""
    year, month, day = int(year_text), int(month_text or 1), int(day_text or 1)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day - 719163
    return days if -(2**31) <= days < 2**31 else None


def _micros(text: str, *, zoned: bool) -> int | None:
    found = _TIMESTAMP.fullmatch(text.strip(_BLANK))
    if found is None:
        return None
    days = _day_number(found[1], found[2], found[3])
    time = _time_micros(found[4], found[5], found[6], found[7])
    offset = _offset(found[8])
    if days is None or time is None or offset is None:
        return None
    micros = days * _DAY + time - (offset * 1_000_000 if zoned else 0)
    return micros if -(2**63) <= micros < 2**63 else None


def _time_of_day(text: str) -> int | None:
    found = _TIME_ONLY.fullmatch(text.strip(_BLANK))
    return None if found is None else _time_micros(*found.groups())


def _time_micros(hour: str | None, minute: str | None, second: str | None, fraction: str | None) -> int | None:
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def _offset(zone: str | None) -> int | None:
    """Seconds east of Greenwich."""
    text = (zone or "Z").removeprefix("UTC").removeprefix("GMT").removeprefix("UT")
    if text in ("", "Z"):
        return 0
    clock = text[1:]
    parts = clock.split(":") if ":" in clock else [clock[:2], clock[2:4], clock[4:]]
    hours, minutes, seconds = (int(part or 0) for part in (*parts, "", "")[:3])
    total = (hours * 60 + minutes) * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _MOST_OFFSET:
        return None
    return -total if text.startswith("-") else total


# --- to text ----------------------------------------------------------------------------------------------------------


def write(array: Any) -> pa.Array:
    """A column as text."""
    if is_floating(array.type):
        return java_floats(array)
    if is_decimal(array.type):
        return _plain_decimals(array)
    if array.type in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return _iso(array)
    return array.cast(TEXT)


def _plain_decimals(array: Any) -> pa.Array:
    """All digits after the point and no exponent."""
    text = array.cast(TEXT)
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], TEXT)


def _iso(array: Any) -> pa.Array:
    days = array.cast(DATE, safe=False).cast(pa.int32())
    outside = pc.any(pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))).as_py()
    if array.type == DATE:
        return _far_dates(days) if outside else array.cast(TEXT)
    if outside:
        micros = array.cast(BIGINT)
        of_day = np.mod(np.asarray(micros.fill_null(0)), _DAY)
        clock = pa.array(of_day, TIME, mask=np.asarray(micros.is_null())).cast(TEXT)
        text = pc.binary_join_element_wise(_far_dates(days), clock, " ")
    else:
        text = array.cast(TIMESTAMP_NTZ).cast(TEXT)  # always six digits after the point
    return pc.replace_substring_regex(text, r"\.?0{1,6}$", "") if len(array) else text


def _far_dates(days: Any) -> pa.Array:
    """Years of more than four digits have a sign, and those before the year 0 a minus."""
    encoded = days.dictionary_encode()
    texts = [_far_date(day) for day in encoded.dictionary.to_pylist()]
    return pa.array(texts, TEXT).take(encoded.indices)


def _far_date(day: int) -> str:
    """The calendar repeats every 400 years of 146097 days."""
    cycles, rest = divmod(day - _FIRST_DAY, 146097)
    known = dt.date.fromordinal(rest + 1)
    year = known.year + 400 * cycles
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{known.month:02}-{known.day:02}"
