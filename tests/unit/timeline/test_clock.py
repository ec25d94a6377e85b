from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidRequest
from lakebed.testing.clock import ManualClock
from lakebed.timeline.clock import (
    SystemClock,
    comparable,
    instant_time_now,
    instant_time_of_ms,
    ms_of_instant_time,
    to_instant_time,
)

LAST = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_now_is_rendered_in_the_tables_zone(in_tokyo: None) -> None:
    clock = ManualClock(1_767_225_600_123)  # 2026-01-01T00:00:00.123Z
    assert instant_time_now(clock, "UTC") == "20260101000000123"
    assert instant_time_now(clock, "LOCAL") == "20260101090000123"
    clock.advance(877)
    assert instant_time_now(clock) == "20260101000001000"


def test_system_clock_agrees_with_the_machine() -> None:
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 5000


@pytest.mark.parametrize(
    ("given_time", "wanted"),
    [
        ("2026-11-01 00:00:00", "20261101000000000"),
        ("2026-11-01T12:30:15.250", "20261101123015250"),
        ("2026-11-01", "20261101000000000"),
        ("20261101000000123", "20261101000000123"),
        ("20261101000000", "20261101000000999"),
        ("2026-11-01T02:00:00+02:00", "20261101000000000"),
        ("2026-11-01T00:00:00Z", "20261101000000000"),
        (dt.date(2026, 11, 1), "20261101000000000"),
        (dt.datetime(2026, 11, 1, 5, 6, 7, 8999), "20261101050607008"),  # noqa: DTZ001
        (dt.datetime(2026, 11, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=5))), "20261101000000000"),
        (dt.datetime(7, 1, 2), "00070102000000000"),  # noqa: DTZ001
    ],
)
def test_user_times(given_time: str | dt.date, wanted: str) -> None:
    assert to_instant_time(given_time, "UTC") == wanted


def test_aware_times_of_a_local_table_are_in_the_zone_of_this_process(in_tokyo: None) -> None:
    assert to_instant_time("2026-11-01T00:00:00Z", "LOCAL") == "20261101090000000"
    assert to_instant_time("2026-11-01 00:00:00", "LOCAL") == "20261101000000000"


@pytest.mark.parametrize("bad", ["", "yesterday", "2026-13-01", "2026110100", "9" * 18, "२०२६११०१००००००००"])
def test_what_is_no_time_is_refused(bad: str) -> None:
    with pytest.raises(InvalidRequest, match="no time"):
        to_instant_time(bad)


def test_other_types_and_zones_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        to_instant_time(20261101)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="UTC or LOCAL"):
        instant_time_of_ms(0, "Europe/Berlin")
    with pytest.raises(InvalidRequest):
        to_instant_time(dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5))))
    with pytest.raises(InvalidRequest):
        ms_of_instant_time("20261399000000000")


@given(st.integers(min_value=0, max_value=LAST - 1))
def test_milliseconds_survive_the_text_and_text_order_is_time_order(ms: int) -> None:
    assert ms_of_instant_time(instant_time_of_ms(ms)) == ms
    assert instant_time_of_ms(ms) < instant_time_of_ms(ms + 1)


def test_seconds_compare_as_the_end_of_their_second() -> None:
    assert comparable("20261101000000") == "20261101000000999"
    assert comparable("20261101000000998") < comparable("20261101000000") < comparable("20261101000001000")
    assert comparable("20261101000000123456") == "20261101000000123"
