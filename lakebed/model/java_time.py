"""Date patterns of Hudi's timestamp key generator (those of Joda time): formatting and parsing, and Java's zone names.

    y year  M month  d day  D day of year  x week-year  w week  e E weekday  a half-day  H k K h hour  m  s  S fraction
    Z offset, in texts that are read only       'quoted text', '' for a quote; every other letter is refused
    the count of a letter is the least number of digits, and from three on a month or weekday is a word

A partition path has few distinct times, so callers bring times down to the finest unit of the pattern and format each
distinct one here.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from lakebed.errors import InvalidRequest

UTC = "UTC"
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FIXED_ZONE = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")
_UNITS = ("day", "hour", "minute", "second", "millisecond")
_FINEST = dict.fromkeys("GyYxMdDweE", 0) | dict.fromkeys("aHkKh", 1) | {"m": 2, "s": 3, "S": 4}
_MONTHS = tuple(calendar.month_name)[1:]
_DAYS = tuple(calendar.day_name)
_DIGITS = {"M": 2, "d": 2, "D": 3, "H": 2, "k": 2, "K": 2, "h": 2, "m": 2, "s": 2}


def zone_name(java: str) -> str:
    """A Java zone id in the spelling that Arrow and Python know: `GMT+8` is `+08:00`."""
    name = java.strip()
    fixed = _FIXED_ZONE.fullmatch(name)
    if fixed:
        return f"{fixed[1]}{int(fixed[2]):02d}:{fixed[3] or '00'}"
    if name.upper() in ("GMT", "UTC", "Z"):
        return UTC
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidRequest(f"there is no time zone {java!r}") from None
    return name


def zone_of(name: str) -> dt.tzinfo:
    """The zone of a name that `zone_name` made."""
    fixed = _FIXED_ZONE.fullmatch(name)
    if fixed:
        offset = dt.timedelta(hours=int(fixed[2]), minutes=int(fixed[3] or 0))
        return dt.timezone(-offset if fixed[1] == "-" else offset)
    return dt.UTC if name == UTC else ZoneInfo(name)


@dataclass(frozen=True, slots=True)
class DatePattern:
    """One pattern, taken apart: text and (letter, count) in turn."""

    text: str
    tokens: tuple[str | tuple[str, int], ...]

    @classmethod
    def of(cls, text: str) -> DatePattern:
        return cls(text, tuple(_tokens(text)))

    @property
    def unit(self) -> str:
        """The finest unit that the formatted text depends on."""
        letters = [token[0] for token in self.tokens if isinstance(token, tuple)]
        return _UNITS[max((_FINEST.get(letter, 0) for letter in letters), default=0)]

    @property
    def has_offset(self) -> bool:
        """Whether the text depends on the zone beyond the local time."""
        return any(isinstance(token, tuple) and token[0] == "Z" for token in self.tokens)

    def format(self, time: dt.datetime) -> str:
        return "".join(token if isinstance(token, str) else _formatted(*token, time) for token in self.tokens)

    def parser(self) -> DateParser:
        return DateParser(self, re.compile(_regex(self), re.IGNORECASE))


@dataclass(frozen=True, slots=True)
class DateParser:
    """Reads texts of one pattern. Numbers may have fewer digits than the pattern has letters, as Joda allows."""

    pattern: DatePattern
    regex: re.Pattern[str]

    def parse(self, text: str, zone: dt.tzinfo) -> dt.datetime | None:
        """The time with its zone: the text's own offset where it has one. None when the text does not fit."""
        match = self.regex.fullmatch(text)
        if match is None:
            return None
        found = match.groupdict()
        values = {name[0]: value for name, value in found.items() if value is not None}
        try:
            return _composed(values, zone)
        except (ValueError, OverflowError):
            return None


def _tokens(text: str) -> Iterator[str | tuple[str, int]]:
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        piece = match[0]
        if match[2] is not None:
            if match[2] not in _FINEST and match[2] != "Z":
                raise InvalidRequest(f"the letter {match[2]!r} of the date pattern {text!r} is not supported")
            yield match[2], len(piece)
        elif piece.startswith("'"):
            yield match[1].replace("''", "'") or "'"
        else:
            yield piece
    if end != len(text):
        raise InvalidRequest(f"the date pattern {text!r} has a quote that does not end")


def _formatted(letter: str, count: int, time: dt.datetime) -> str:
    if letter in "yYx":
        year = time.isocalendar().year if letter == "x" else time.year
        return f"{year % 100:02d}" if count == 2 else f"{year:0{count}d}"
    if letter == "M" and count > 2:
        return _MONTHS[time.month - 1][: 3 if count == 3 else None]
    if letter == "E":
        return _DAYS[time.weekday()][: 3 if count < 4 else None]
    if letter == "a":
        return "AM" if time.hour < 12 else "PM"
    if letter == "G":
        return "AD"
    if letter == "S":
        return f"{time.microsecond:06d}".ljust(count, "0")[:count]
    if letter == "Z":  # only the time that stands for null is written with an offset, to be read again
        return time.strftime("%z") or "+0000"
    hour = time.hour
    values = {
        "M": time.month,
        "d": time.day,
        "D": time.timetuple().tm_yday,
        "w": time.isocalendar().week,
        "e": time.isoweekday(),
        "H": hour,
        "k": hour or 24,
        "K": hour % 12,
        "h": hour % 12 or 12,
        "m": time.minute,
        "s": time.second,
    }
    return f"{values[letter]:0{count}d}"


def _regex(pattern: DatePattern) -> str:
    parts: list[str] = []
    seen: set[str] = set()
    for at, token in enumerate(pattern.tokens):
        if isinstance(token, str):
            parts.append(re.escape(token))
            continue
        letter, count = token
        following = pattern.tokens[at + 1] if at + 1 < len(pattern.tokens) else ""
        packed = isinstance(following, tuple) and following[0] not in "aEZ"
        if letter in seen or letter in "xwe" or (letter in "yY" and count == 2):
            raise InvalidRequest(f"dates cannot be read by the pattern {pattern.text!r}: {letter * count!r}")
        seen.add(letter)
        parts.append(f"(?P<{letter}{at}>{_field_regex(letter, count, packed)})")
    return "".join(parts)


def _field_regex(letter: str, count: int, packed: bool) -> str:
    if letter in "yY":
        return rf"\d{{{count}}}" if packed else r"\d{1,9}"
    if letter == "M" and count > 2:
        return "|".join(f"{month}|{month[:3]}" for month in _MONTHS)
    if letter == "E":
        return "|".join(f"{day}|{day[:3]}" for day in _DAYS)
    if letter == "a":
        return "AM|PM"
    if letter == "G":
        return "AD"
    if letter == "Z":
        return r"Z|[+-]\d\d(?::?\d\d)?"
    if letter == "S":
        return rf"\d{{1,{count}}}"
    return rf"\d{{{min(count, _DIGITS[letter])}}}" if packed else rf"\d{{1,{_DIGITS[letter]}}}"


def _composed(values: dict[str, str], zone: dt.tzinfo) -> dt.datetime:
    year = int(values.get("y") or values.get("Y") or 2000)
    month = values.get("M", "1")
    number = int(month) if month.isdigit() else [name[:3].lower() for name in _MONTHS].index(month[:3].lower()) + 1
    day = dt.date(year, number, int(values.get("d", 1)))
    if "D" in values:
        day = dt.date(year, 1, 1) + dt.timedelta(days=int(values["D"]) - 1)
    hour = int(values.get("H") or int(values.get("k", 0)) % 24)
    if "h" in values or "K" in values:
        hour = int(values.get("h") or values.get("K") or 0) % 12
        hour += 12 if values.get("a", "").upper() == "PM" else 0
    micros = int(values.get("S", "0").ljust(6, "0")[:3]) * 1000
    offset = values.get("Z", "").upper()
    if offset == "Z":
        zone = dt.UTC
    elif offset:
        zone = zone_of(zone_name(offset))
    clock = dt.time(hour, int(values.get("m", 0)), int(values.get("s", 0)), micros)
    return dt.datetime.combine(day, clock, tzinfo=zone)
