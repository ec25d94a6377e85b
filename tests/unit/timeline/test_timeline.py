from __future__ import annotations

import pickle
import random

from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.instant import Action, Instant, State
from lakebed.timeline.timeline import Timeline


def done(requested_time: str, completion: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(requested_time, action, State.COMPLETED, completion)


def pending(requested_time: str, action: Action, state: State = State.REQUESTED) -> Instant:
    return Instant(requested_time, action, state)


def t(n: int) -> str:
    return f"{20260101000000000 + n}"


STATES = [
    pending(t(1), Action.DELTA_COMMIT),
    pending(t(1), Action.DELTA_COMMIT, State.INFLIGHT),
    done(t(1), t(9), Action.DELTA_COMMIT),
    done(t(1), t(10), Action.SAVEPOINT),
    pending(t(2), Action.COMPACTION),
    pending(t(2), Action.COMPACTION, State.INFLIGHT),
    done(t(2), t(4), Action.COMMIT),
    pending(t(3), Action.CLUSTERING),
    done(t(3), t(5), Action.REPLACE_COMMIT),
    pending(t(6), Action.LOG_COMPACTION),
    done(t(6), t(7), Action.DELTA_COMMIT),
    pending(t(8), Action.COMPACTION),
    pending(t(8), Action.COMPACTION, State.INFLIGHT),
    done(t(11), t(12), Action.CLEAN),
]
WANTED = [
    done(t(1), t(9), Action.DELTA_COMMIT),
    done(t(1), t(10), Action.SAVEPOINT),
    done(t(2), t(4), Action.COMMIT),
    done(t(3), t(5), Action.REPLACE_COMMIT),
    done(t(6), t(7), Action.DELTA_COMMIT),
    pending(t(8), Action.COMPACTION, State.INFLIGHT),
    done(t(11), t(12), Action.CLEAN),
]


@given(st.integers())
def test_every_action_once_in_its_most_advanced_state_whatever_the_order(seed: int) -> None:
    states = STATES.copy()
    random.Random(seed).shuffle(states)
    assert list(Timeline.of(states)) == WANTED


def test_filters() -> None:
    timeline = Timeline.of(STATES)
    assert [i.requested_time for i in timeline.writes] == [t(1), t(2), t(3), t(6), t(8)]
    assert [i.requested_time for i in timeline.pending] == [t(8)]
    assert [i.requested_time for i in timeline.requested_before(t(2))] == [t(1), t(1)]
    assert [i.requested_time for i in timeline.completed_by(t(5))] == [t(2), t(3)]
    assert [i.completion_time for i in timeline.in_completion_order()] == [t(4), t(5), t(7), t(9), t(10), t(12)]
    assert timeline.last_completion == t(12)
    assert timeline.of_actions(Action.CLEAN).first == done(t(11), t(12), Action.CLEAN)


def test_incremental_range_excludes_its_start_and_includes_its_end() -> None:
    timeline = Timeline.of(STATES)
    assert [i.completion_time for i in timeline.completed_within(t(4), t(9))] == [t(9), t(5), t(7)]
    assert len(timeline.completed_within(None, None)) == 6


def test_a_savepoint_is_found_by_its_word_only() -> None:
    timeline = Timeline.of(STATES)
    assert timeline.find(t(1)) == WANTED[0]
    assert timeline.find(t(1), Action.SAVEPOINT) == WANTED[1]
    assert timeline.completed_write(t(11)) is None
    assert timeline.completed_write(t(8)) is None
    assert timeline.find(t(99)) is None


def test_the_timeline_starts_at_the_first_write_without_savepoint() -> None:
    first = Timeline.of(STATES).first_write_not_saved
    assert first is not None and first.requested_time == t(2)
    assert Timeline.of([pending(t(1), Action.COMMIT)]).first_write_not_saved is None


def test_of_two_completions_the_first_counts() -> None:
    twice = [done(t(1), t(7)), done(t(1), t(5))]
    assert Timeline.of(twice).instants == (done(t(1), t(5)),)
    assert Timeline.of(reversed(twice)).instants == (done(t(1), t(5)),)


def test_old_instants_of_14_digits_order_with_new_ones() -> None:
    old, new = done("20250101000000", "20250101000001"), done("20250101000000998", "20250101000003000")
    assert Timeline.of([old, new]).instants == (new, old)


def test_merging_collapses_what_is_in_both_and_pickles() -> None:
    timeline = Timeline.of(STATES)
    assert timeline.merged(Timeline.of(STATES[:7])) == timeline
    assert timeline.find(t(2)) is not None
    assert pickle.loads(pickle.dumps(timeline)) == timeline
