"""A write that dies at every storage step, and what the next writer and every reader find."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from lakebed.errors import LakebedError, StorageUnavailable
from lakebed.model.instant import Action, Instant
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.options import Concurrency, TxnOptions
from tests.unit.txn.tables import clone, leftovers, new_table, of_begin, paths, txn_context_of, visible, write

Run = Callable[[FaultyStorage, ManualClock], Instant]


def one_write(storage: FaultyStorage, clock: ManualClock) -> Instant:
    return write(storage, txn_context_of(storage, clock), lost_attempt=True)


def table_with_one_write() -> tuple[MemoryStorage, ManualClock]:
    storage, clock = new_table(), ManualClock()
    write(storage, txn_context_of(storage, clock))
    clock.advance(1000)
    return storage, clock


def steps_of(storage: MemoryStorage, clock: ManualClock, run: Run = one_write) -> int:
    """How many steps the run takes when nothing fails."""
    trial = FaultyStorage(clone(storage))
    run(trial, ManualClock(clock.ms))
    return len(trial.ops)


def crashes(steps: int) -> Iterator[FaultPlan]:
    for step in range(1, steps + 1):
        yield FaultPlan(crash_before=step)
        yield FaultPlan(crash_after=step)


def pending_begins(storage: MemoryStorage) -> list[str]:
    return [instant.requested_time for instant in MetaClient.open(storage).timeline.pending]


def check_recovered(storage: MemoryStorage, before: set[str], done: Instant) -> None:
    """After a good write: nothing pending, nothing left over, no file of an instant that did not complete."""
    client = MetaClient.open(storage)
    assert not client.timeline.pending.instants
    assert leftovers(storage) == set()
    known = {instant.requested_time for instant in client.timeline}
    data = {path for path in paths(storage) if not path.startswith(".hoodie/") and path.endswith(".parquet")}
    assert {path.rpartition("_")[2].removesuffix(".parquet") for path in data} <= known
    assert done in client.timeline.instants
    completions = [i.completion_time for i in client.timeline]
    assert len(set(completions)) == len(completions)
    assert max(client.timeline, key=lambda i: i.completion_time or "") == done
    assert before  # the first write's files: slices of it are superseded, never lost
    assert before <= {path.rpartition("/")[2] for path in data}


def test_every_crash_leaves_all_or_nothing_and_the_next_write_cleans_up() -> None:
    base, clock = table_with_one_write()
    before = visible(base)
    steps = steps_of(base, clock)
    assert steps > 15
    seen_new = seen_old = 0
    for plan in crashes(steps):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            one_write(FaultyStorage(storage, plan), ManualClock(clock.ms))
        found = visible(storage)
        if found == before:
            seen_old += 1
        else:
            seen_new += 1
            assert len(found) == len(before)
            assert not found & before
        died = pending_begins(storage)
        later = ManualClock(clock.ms + 400_000)  # the lock of the dead writer has run out
        done = write(storage, txn_context_of(storage, later))
        for requested_time in died:
            assert of_begin(storage, requested_time) == set()
        check_recovered(storage, before | found, done)
    assert seen_new > 2 < seen_old


def test_a_crash_in_the_middle_of_the_recovery_is_recovered_from_as_well() -> None:
    base, clock = table_with_one_write()
    before = visible(base)
    for first in range(1, steps_of(base, clock) + 1, 4):  # from the bare claim to the published write
        dead = clone(base)
        with pytest.raises(SimulatedCrash):
            one_write(FaultyStorage(dead, FaultPlan(crash_after=first)), ManualClock(clock.ms))
        found = visible(dead)
        later = ManualClock(clock.ms + 400_000)
        for second in range(1, steps_of(dead, later) + 1):
            storage = clone(dead)
            with pytest.raises(SimulatedCrash):
                one_write(FaultyStorage(storage, FaultPlan(crash_after=second)), ManualClock(later.ms))
            now = visible(storage)
            assert now == found or not now & found, "all of the second write or nothing of it"
            last = ManualClock(later.ms + 400_000)
            done = write(storage, txn_context_of(storage, last))
            check_recovered(storage, before, done)


@pytest.mark.parametrize("how", ["fail", "lose_ack"])
def test_a_store_that_does_not_answer(how: str) -> None:
    """What was reported done is there; what was reported failed is there whole or not at all, and is cleaned up."""
    base, clock = table_with_one_write()
    before = visible(base)
    reported = 0
    for step in range(1, steps_of(base, clock) + 1):
        storage = clone(base)
        done: Instant | None = None
        with contextlib.suppress(LakebedError):
            done = one_write(FaultyStorage(storage, FaultPlan(**{how: frozenset({step})})), ManualClock(clock.ms))
        found = visible(storage)
        assert found == before or not found & before
        if done is not None:
            reported += 1
            assert found != before
        later = ManualClock(clock.ms + 400_000)
        check_recovered(storage, before, write(storage, txn_context_of(storage, later)))
    assert reported > 3


@pytest.mark.parametrize("plan", ["lose_ack", "land_late", "fail"])
def test_the_outcome_of_the_publish_is_read_back(plan: str) -> None:
    base, clock = table_with_one_write()
    publish = publish_step(base, clock)
    fault = FaultPlan(land_late=publish) if plan == "land_late" else FaultPlan(**{plan: frozenset({publish})})
    storage = clone(base)
    done = one_write(FaultyStorage(storage, fault), ManualClock(clock.ms))
    client = MetaClient.open(storage)
    assert client.timeline.find(done.requested_time) == done
    assert all(done.requested_time in name for name in visible(storage))
    assert leftovers(storage) == set()


def test_nothing_is_deleted_while_the_outcome_is_unknown() -> None:
    """The publish takes effect, but the store stays silent for good: the files must survive."""
    base, clock = table_with_one_write()
    publish = publish_step(base, clock)

    class Silent(FaultyStorage):
        def read(self, path: str) -> bytes:
            if path.endswith(".deltacommit") and len(self.ops) >= publish:
                raise StorageUnavailable("injected silence", file=path)
            return super().read(path)

    storage = clone(base)
    faulty = Silent(storage, FaultPlan(lose_ack=frozenset({publish}), fail=frozenset(range(publish + 1, publish + 50))))
    with pytest.raises(LakebedError, match="did not say"):
        one_write(faulty, ManualClock(clock.ms))
    assert len(visible(storage)) == 2, "the write is visible, and whole"
    later = ManualClock(clock.ms + 400_000)
    check_recovered(storage, visible(storage), write(storage, txn_context_of(storage, later)))


def publish_step(base: MemoryStorage, clock: ManualClock) -> int:
    trial = FaultyStorage(clone(base))
    one_write(trial, ManualClock(clock.ms))
    return next(op.number for op in trial.ops if op.path.endswith(".deltacommit"))


def test_a_publish_that_can_be_read_back_is_not_asked_for_again() -> None:
    base, clock = table_with_one_write()
    step = publish_step(base, clock)
    fault = FaultPlan(lose_ack=frozenset({step}), fail=frozenset(range(step + 1, step + 100)))
    storage = clone(base)
    done = one_write(FaultyStorage(storage, fault), ManualClock(clock.ms))
    assert all(done.requested_time in name for name in visible(storage))
    later = ManualClock(clock.ms + 400_000)
    check_recovered(storage, visible(storage), write(storage, txn_context_of(storage, later)))


def test_a_publish_that_lands_after_everybody_gave_up_is_whole() -> None:
    """The request outlives four attempts and takes effect while the next writer is about to roll the write back."""
    base, clock = table_with_one_write()
    before = visible(base)
    step = publish_step(base, clock)
    storage = clone(base)
    faulty = FaultyStorage(
        storage, FaultPlan(land_late=step, late_by=5, fail=frozenset({step + 1, step + 2, step + 3}))
    )
    with pytest.raises(StorageUnavailable, match="did not say"):
        one_write(faulty, ManualClock(clock.ms))
    assert visible(storage) == before
    later = ManualClock(clock.ms + 400_000)
    done = write(faulty, txn_context_of(faulty, later), groups=("x-0", "y-0"))
    assert len(visible(storage)) == 4, "two files of the late write, two of the next"
    check_recovered(storage, visible(storage), done)


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
def test_lazy_recovery_waits_for_the_heartbeat(action: Action) -> None:
    """Several writers: a crashed write stays until its heartbeat is old, and then goes without a trace."""
    base, clock = table_with_one_write()
    options = TxnOptions(concurrency=Concurrency.OPTIMISTIC, lock_wait_ms=1000)
    storage = clone(base)
    trial = FaultyStorage(clone(base))
    write(trial, txn_context_of(trial, ManualClock(clock.ms), options), action=action)
    publish = next(op.number for op in trial.ops if op.path.endswith(f".{action}"))
    with pytest.raises(SimulatedCrash):
        faulty = FaultyStorage(storage, FaultPlan(crash_before=publish))
        write(faulty, txn_context_of(faulty, ManualClock(clock.ms), options), action=action)
    [died] = pending_begins(storage)
    later = ManualClock(clock.ms + 400_000)
    write(storage, txn_context_of(storage, later, options), groups=("a-0", "b-0"))
    assert pending_begins(storage) == [died], "memory storage counts writes as its time: that heartbeat is fresh"
    storage._bucket.tick += options.heartbeat_expiry_ms + 1
    write(storage, txn_context_of(storage, later, options), groups=("c-0", "d-0"))
    assert pending_begins(storage) == []
    assert of_begin(storage, died) == set()
    assert leftovers(storage) == set()
