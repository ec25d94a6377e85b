"""The wall clock that the whole package uses, and the conversion of times to instant times.

    instant time   yyyyMMddHHmmssSSS, 17 digits, in the zone that `hoodie.table.timeline.timezone` names:
                   UTC, or LOCAL = the default zone of the process that writes

Everything else takes a `Clock`, so that a test or a simulation can set the time. Times that users pass (a string such
as "2026-11-01 00:00:00", a date, a datetime, an instant) are converted here only: a naive time is in the table's zone.
Old tables hold 14 digits (seconds); `comparable` (model/instant) orders them among the others.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import Protocol

from lakebed.errors import InvalidRequest
from lakebed.model.instant import INSTANT_LENGTH, LEGACY_LENGTH, comparable

__all__ = [
    "INSTANT_LENGTH",
    "LEGACY_LENGTH",
    "Clock",
    "SystemClock",
    "comparable",
    "instant_time_before",
    "instant_time_now",
    "instant_time_of_ms",
    "ms_of_instant_time",
    "to_instant_time",
]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Clock(Protocol):
    """The source of the current time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def instant_time_now(clock: Clock, timezone: str = "UTC") -> str:
    """The instant string of the clock's present moment in the table's zone."""
    return instant_time_of_ms(clock.now_ms(), timezone)


def instant_time_of_ms(ms: int, timezone: str = "UTC") -> str:
    """The instant string of a moment in epoch milliseconds."""
    return _render(_in_table_zone(_EPOCH + dt.timedelta(milliseconds=ms), timezone))


def instant_time_before(ms: int, back_ms: int, timezone: str = "UTC") -> str:
    """The instant string of `back_ms` milliseconds before a moment; all zeros where that is before the year 1."""
    try:
        return instant_time_of_ms(ms - back_ms, timezone)
    except OverflowError:
        return "0" * INSTANT_LENGTH


def ms_of_instant_time(instant_time: str, timezone: str = "UTC") -> int:
    """Epoch milliseconds of an instant string; in the hour that a zone repeats in autumn, the first one is taken."""
    moment = _parse_digits(comparable(instant_time))
    if moment is None:
        raise InvalidRequest(f"{instant_time!r} is no date and time")
    aware = moment.replace(tzinfo=dt.UTC) if _is_utc(timezone) else moment.astimezone()
    return (aware - _EPOCH) // dt.timedelta(milliseconds=1)


def to_instant_time(value: str | dt.datetime | dt.date, timezone: str = "UTC") -> str:
    """A time that a user passed, as an instant string of a table whose timeline is in `timezone`.

    A string of 14 or 17 digits is an instant already. Other strings are ISO dates or times.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit() and len(text) in (LEGACY_LENGTH, INSTANT_LENGTH):
            return comparable(text)
        try:
            value = dt.datetime.fromisoformat(text)
        except ValueError:
            raise InvalidRequest(
                f"{text!r} is no time",
                hint="Give an instant of 17 digits, a time such as '2026-11-01 00:00:00', or a datetime.",
            ) from None
    if not isinstance(value, dt.datetime):
        if not isinstance(value, dt.date):
            raise InvalidRequest(f"a time is a string, a date or a datetime, not {type(value).__name__}")
        value = dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 (naive = the table's zone)
    try:
        return _render(value if value.tzinfo is None else _in_table_zone(value, timezone))
    except OverflowError:
        raise InvalidRequest(f"{value} is outside the years 1 to 9999 in the table's zone") from None


def _render(moment: dt.datetime) -> str:
    """Formatted without `strftime`, whose `%Y` does not pad years below 1000 on every platform."""
    return (
        f"{moment.year:04d}{moment.month:02d}{moment.day:02d}"
        f"{moment.hour:02d}{moment.minute:02d}{moment.second:02d}{moment.microsecond // 1000:03d}"
    )


def _parse_digits(text: str) -> dt.datetime | None:
    try:
        return dt.datetime(  # noqa: DTZ001 (the caller knows the zone)
            int(text[:4]),
            int(text[4:6]),
            int(text[6:8]),
            int(text[8:10]),
            int(text[10:12]),
            int(text[12:14]),
            int(text[14:17] or 0) * 1000,
        )
    except ValueError:
        return None


def _in_table_zone(moment: dt.datetime, timezone: str) -> dt.datetime:
    return moment.astimezone(dt.UTC) if _is_utc(timezone) else moment.astimezone()


def _is_utc(timezone: str) -> bool:
    zone = timezone.upper()
    if zone not in ("UTC", "LOCAL"):
        raise InvalidRequest(f"a timeline's zone is UTC or LOCAL, not {timezone!r}")
    return zone == "UTC"
