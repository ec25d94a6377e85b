"""Triggers, decisions and selection with made-up sizes: no table, no files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.config.compaction_options import CompactionOptions, Selection, Strategy, Trigger, strategy_named
from lakebed.errors import InvalidRequest
from lakebed.model.files import FileGroupId
from lakebed.services.compaction_strategy import (
    FULL,
    LOG,
    Decision,
    GroupState,
    LogState,
    SinceLast,
    decide,
    is_due,
    select,
    small_run,
)

MB = 1 << 20
GROUP = FileGroupId("p", "f")


def logs(*sizes: int, stays: frozenset[int] = frozenset()) -> tuple[LogState, ...]:
    return tuple(
        LogState(f"{i:017d}", size, (f"log{i}",), "it stays" if i in stays else None) for i, size in enumerate(sizes)
    )


def state(base: int, *sizes: int, **more: object) -> GroupState:
    return GroupState(GROUP, base, logs(*sizes), **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- when
@pytest.mark.parametrize(
    ("trigger", "deltas", "seconds", "due"),
    [
        (Trigger.NUM_COMMITS, 5, 0, True),
        (Trigger.NUM_COMMITS, 4, 10**6, False),
        (Trigger.TIME_ELAPSED, 1, 3600, True),
        (Trigger.TIME_ELAPSED, 99, 3599, False),
        (Trigger.TIME_ELAPSED, 0, 10**6, False),
        (Trigger.NUM_AND_TIME, 5, 3600, True),
        (Trigger.NUM_AND_TIME, 5, 3599, False),
        (Trigger.NUM_AND_TIME, 4, 3600, False),
        (Trigger.NUM_OR_TIME, 5, 0, True),
        (Trigger.NUM_OR_TIME, 1, 3600, True),
        (Trigger.NUM_OR_TIME, 4, 3599, False),
    ],
)
def test_triggers(trigger: Trigger, deltas: int, seconds: int, due: bool) -> None:
    assert is_due(SinceLast(deltas, seconds), CompactionOptions(trigger=trigger)) is due


def test_the_keys_are_hudis() -> None:
    options = CompactionOptions.from_properties(
        {
            "hoodie.compact.inline.trigger.strategy": "NUM_OR_TIME",
            "hoodie.compact.inline.max.delta.commits": "7",
            "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.BoundedIOCompactionStrategy",
            "hoodie.log.compaction.blocks.threshold": "3",
        }
    )
    assert (options.trigger, options.max_delta_commits) == (Trigger.NUM_OR_TIME, 7)
    assert (options.selection, options.log_threshold) == (Selection.BOUNDED_IO, 3)
    with pytest.raises(InvalidRequest, match="none of"):
        CompactionOptions.from_properties({"hoodie.compaction.strategy": "fastest"})
    with pytest.raises(InvalidRequest, match="two of them"):
        CompactionOptions(log_threshold=1)
    with pytest.raises(InvalidRequest, match="sideways"):
        strategy_named("sideways")


# ---------------------------------------------------------------------- hybrid
def test_a_large_base_file_and_small_logs() -> None:
    found = decide(state(1000 * MB, *[MB] * 8), Strategy.HYBRID, CompactionOptions())
    assert found.kind == LOG
    assert len(found.logs) == 8
    assert (found.runs_before, found.runs_after) == (9, 2)
    assert found.write == 1.0
    assert found.write_if_full == 1000 / 8
    assert "8 small deltas" in found.reason
    assert "LOG" in found.line()


def test_logs_that_have_grown_to_a_share_of_the_base_file() -> None:
    options = CompactionOptions(hybrid_ratio=0.25)
    found = decide(state(100 * MB, 20 * MB, 5 * MB), Strategy.HYBRID, options)
    assert found.kind == FULL
    assert found.runs_after == 1
    assert (found.read_before, found.read_after) == (1.25, 1.0)
    assert found.write == 4.0
    assert "25% of the base file" in found.reason
    below = decide(state(100 * MB, 20 * MB, 5 * MB - 1), Strategy.HYBRID, options)
    assert below.kind is None


def test_below_all_thresholds() -> None:
    found = decide(state(1000 * MB, *[MB] * 4), Strategy.HYBRID, CompactionOptions())
    assert found.kind is None
    assert found.runs_after == found.runs_before == 5
    assert "fewer than 5" in found.reason
    assert "nothing" in found.line()


def test_too_many_logs_are_a_reason_of_their_own() -> None:
    found = decide(state(10**12, *[100 * MB] * 32), Strategy.HYBRID, CompactionOptions())
    assert found.kind == FULL
    assert "32 deltas" in found.reason


def test_logs_without_a_base_file_become_one() -> None:
    found = decide(state(0, *[MB] * 5, has_base=False), Strategy.HYBRID, CompactionOptions())
    assert found.kind == FULL
    assert found.write == 1.0
    assert decide(state(0, *[MB] * 4, has_base=False), Strategy.HYBRID, CompactionOptions()).kind is None


def test_a_group_that_may_not_be_compacted_may_have_its_logs_merged() -> None:
    blocked = state(MB, *[MB] * 5, full_blocked="a compaction is planned for it")
    assert decide(blocked, Strategy.HYBRID, CompactionOptions()).kind == LOG
    assert decide(blocked, Strategy.FULL, CompactionOptions()).kind is None
    neither = state(MB, *[MB] * 5, full_blocked="clustered", log_blocked="clustered")
    found = decide(neither, Strategy.HYBRID, CompactionOptions())
    assert (found.kind, found.reason) == (None, "clustered")


def test_a_rule_that_forbids_merging_logs_leaves_full_compaction() -> None:
    partial = state(1000 * MB, *[MB] * 31, log_blocked="depends on the base")
    assert decide(partial, Strategy.HYBRID, CompactionOptions()).reason == "depends on the base"
    many = state(1000 * MB, *[MB] * 32, log_blocked="depends on the base")
    assert decide(many, Strategy.HYBRID, CompactionOptions()).kind == FULL


# ---------------------------------------------------------------------- stretches of small logs
SMALL = CompactionOptions(log_threshold=2, log_small_size=10)


def run_of(*sizes: int, stays: frozenset[int] = frozenset(), ends_newest: bool = False) -> list[int]:
    given_state = GroupState(GROUP, 1, logs(*sizes, stays=stays), ends_newest=ends_newest)
    return [int(log.requested_time) for log in small_run(given_state, SMALL)]


def test_no_live_log_in_the_middle_is_skipped() -> None:
    assert run_of(1, 1, 99, 1, 1, 1) == [3, 4, 5]
    assert run_of(1, 1, 1, 99, 1, 1) == [0, 1, 2]
    assert run_of(1, 1, 99, 1, 1) == [3, 4], "of equals the newest"
    assert run_of(1, 99, 1, 99, 1) == []
    assert run_of(1, 1, 1, stays=frozenset({1})) == []
    assert run_of(10, 11, 10) == []


def test_readers_that_rank_merged_logs_by_their_own_instant() -> None:
    assert run_of(1, 1, 1, 99, 1, 1, ends_newest=True) == [4, 5]
    assert run_of(1, 1, 1, 99, ends_newest=True) == []


@given(
    sizes=st.lists(st.integers(0, 20), max_size=12),
    stays=st.frozensets(st.integers(0, 11)),
    threshold=st.integers(2, 5),
    newest=st.booleans(),
)
def test_stretches_are_consecutive_small_and_long_enough(
    sizes: list[int], stays: frozenset[int], threshold: int, newest: bool
) -> None:
    options = CompactionOptions(log_threshold=threshold, log_small_size=10)
    everything = GroupState(GROUP, 1, logs(*sizes, stays=stays), ends_newest=newest)
    found = [int(log.requested_time) for log in small_run(everything, options)]
    assert found == list(range(found[0], found[0] + len(found))) if found else True
    assert all(sizes[i] <= 10 and i not in stays for i in found)
    assert not found or len(found) >= threshold
    if not found and not newest:
        usable = "".join("y" if sizes[i] <= 10 and i not in stays else " " for i in range(len(sizes)))
        assert max(map(len, usable.split()), default=0) < threshold
    if found and newest:
        assert found[-1] == len(sizes) - 1


# ---------------------------------------------------------------------- selection
def full(partition: str, name: str, log_size: int, io: int, count: int = 1) -> Decision:
    group = FileGroupId(partition, name)
    return Decision(group, FULL, "", logs(*[log_size // count] * count), size=io)


def chosen(options: CompactionOptions, *decisions: Decision) -> list[str]:
    return [one.group.file_id for one in select(decisions, options)]


def test_the_largest_logs_go_first_and_the_plan_has_a_limit() -> None:
    a, b, c = full("p", "a", 10, 600 * MB), full("p", "b", 30, 600 * MB), full("p", "c", 20, 300 * MB)
    assert chosen(CompactionOptions(), a, b, c) == ["b", "c", "a"]
    assert chosen(CompactionOptions(target_io_mb=1000), a, b, c) == ["b", "c"]
    assert chosen(CompactionOptions(log_size_threshold=20), a, b, c) == ["b", "c"]
    assert chosen(CompactionOptions(target_io_mb=1), a, b, c) == ["b"], "one at least, or it would never be its turn"
    assert chosen(CompactionOptions(selection=Selection.BOUNDED_IO, target_io_mb=1000), a, b, c) == ["a", "c"]
    assert chosen(CompactionOptions(selection=Selection.UNBOUNDED, target_io_mb=1), a, b, c) == ["a", "b", "c"]


def test_many_logs_go_first() -> None:
    a, b = full("p", "a", 10, 1, count=2), full("p", "b", 10, 1, count=5)
    assert chosen(CompactionOptions(selection=Selection.LOG_COUNT), a, b) == ["b", "a"]
    assert chosen(CompactionOptions(selection=Selection.LOG_COUNT, log_count_threshold=3), a, b) == ["b"]


def test_the_newest_days_go_first() -> None:
    days = [full(f"day={day}", day, 1, 1) for day in ("2026-01-30", "2026-02-01", "2025-12-31")]
    options = CompactionOptions(selection=Selection.DAY_BASED, day_partitions=2)
    assert chosen(options, *days) == ["2026-02-01", "2026-01-30"]
    assert [
        one.group.file_id for one in select([full("2026/02/01", "x", 1, 1), full("2026/01/31", "y", 1, 1)], options)
    ]


def test_log_compactions_are_always_taken() -> None:
    small = Decision(FileGroupId("p", "l"), LOG, "", logs(1, 1), size=2)
    big = full("p", "a", 10, 600 * MB)
    assert chosen(CompactionOptions(target_io_mb=1), small, big) == ["a", "l"]
