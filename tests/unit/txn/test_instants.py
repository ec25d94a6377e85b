from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.names import heartbeat_file
from lakebed.model.instant import Action, Instant, State
from lakebed.testing.clock import ManualClock
from lakebed.timeline.clock import instant_time_of_ms
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.timeline import Timeline
from lakebed.txn.instants import claim_begin, completion_time, greatest_time, next_time, successor
from tests.unit.txn.tables import new_table, txn_context_of, write


def test_the_millisecond_after() -> None:
    assert successor("20251231235959999") == "20260101000000000"
    assert successor("20240228235959999") == "20240229000000000"
    assert successor("20260101000000") == "20260101000001000", "14 digits are the end of their second"
    assert successor("00000000000000001") == "00000000000000002", "the metadata table's first instants are no dates"
    assert successor("99991231235959999") == "99991231235960000", "after the last date the digits count on"


@given(st.integers(0, 250_000_000_000_000))
def test_the_millisecond_after_is_the_next_text(ms: int) -> None:
    assert successor(instant_time_of_ms(ms)) == instant_time_of_ms(ms + 1)


def test_a_clock_that_was_set_back_does_not_take_times_back() -> None:
    clock = ManualClock()
    ahead = instant_time_of_ms(clock.ms + 60_000)
    assert next_time(clock, "UTC", ahead) == instant_time_of_ms(clock.ms + 60_001)
    assert next_time(clock, "UTC", None, "20200101000000000") == instant_time_of_ms(clock.ms)


def test_completion_is_after_everything_on_the_timeline() -> None:
    clock = ManualClock()
    timeline = Timeline.of(
        [
            Instant("20260101000000000", Action.COMMIT, State.COMPLETED, "20260101000000500"),
            Instant("20260101000000900", Action.COMMIT, State.REQUESTED),
        ]
    )
    assert greatest_time(timeline) == "20260101000000900"
    assert completion_time("20260101000000100", timeline, clock, "UTC") == "20260101000000901"
    assert completion_time("20260101000000100", timeline, clock, "UTC", "20260101000001000") == "20260101000001001"


def test_a_claim_is_the_heartbeat_and_a_taken_name_means_the_next_millisecond() -> None:
    storage, clock = new_table(), ManualClock()
    storage.put(heartbeat_file(instant_time_of_ms(clock.ms)), b"")
    requested_time, _ = claim_begin(MetaClient.open(storage), clock)
    assert requested_time == instant_time_of_ms(clock.ms + 1)
    assert storage.read(heartbeat_file(requested_time)) == b""


def test_many_writes_in_one_millisecond_have_growing_times() -> None:
    storage, clock = new_table(), ManualClock()
    times = []
    for turn in range(4):
        clock.ms -= turn  # even backwards
        done = write(storage, txn_context_of(storage, clock))
        times += [done.requested_time, done.completion_time or ""]
    assert times == sorted(set(times))


def test_a_table_in_local_time_gets_local_instants() -> None:
    storage = new_table(hoodie__table__timeline__timezone="LOCAL")
    clock = ManualClock()
    requested_time, _ = claim_begin(MetaClient.open(storage), clock)
    assert requested_time == instant_time_of_ms(clock.ms, "LOCAL")
