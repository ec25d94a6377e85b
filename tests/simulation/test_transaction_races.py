"""Writers that meet: for begin times, for the lock, for a file group, for the same plan; and writers that come back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakebed.errors import ConflictError
from lakebed.model.actions import ActionBody, CompactionOperation, CompactionPlan
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.timeline.clock import SystemClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.instants import claim_begin
from lakebed.txn.locks import LockContent, StorageLock
from lakebed.txn.options import Concurrency, TxnOptions
from lakebed.txn.rollback import roll_back
from lakebed.txn.transaction import Transaction, schedule
from lakebed.txn.txn_context import TxnContext
from tests.unit.txn.tables import (
    GROUPS,
    base_name,
    leftovers,
    log_name,
    metadata_of,
    new_table,
    of_begin,
    put_file,
    txn_context_of,
    visible,
    write,
)

OPTIMISTIC = TxnOptions(concurrency=Concurrency.OPTIMISTIC, lock_wait_ms=1000)


def test_writers_that_race_for_begin_times_never_share_one() -> None:
    storage, clock = new_table(), ManualClock()  # a clock that stands still: everybody wants the same millisecond
    client = MetaClient.open(storage)
    with ThreadPoolExecutor(8) as pool:
        begins = [requested_time for requested_time, _ in pool.map(lambda _: claim_begin(client, clock), range(200))]
    assert len(set(begins)) == 200


def test_a_late_claim_of_a_begin_that_was_used_and_cleared_is_given_back() -> None:
    """B looked at the timeline before A began; A has finished, heartbeat removed, before B claims the same time."""
    storage, clock = new_table(), ManualClock()
    stale = MetaClient.open(storage)
    done = write(storage, txn_context_of(storage, clock))
    requested_time, snapshot = claim_begin(stale, clock)
    assert requested_time > (done.completion_time or "")
    assert done in snapshot.timeline.instants
    assert leftovers(storage) == {f".hoodie/.heartbeat/{requested_time}"}


def test_parallel_writers_of_different_groups_all_commit_in_order() -> None:
    storage = new_table()
    options = TxnOptions(concurrency=Concurrency.OPTIMISTIC)

    def one(number: int) -> Instant:
        txn_context = TxnContext.of(storage, options, SystemClock())
        return write(storage, txn_context, groups=(f"a{number}-0", f"b{number}-0"))

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(one, range(12)))
    assert len({instant.requested_time for instant in done}) == 12
    assert len({instant.completion_time for instant in done}) == 12
    assert all(instant.requested_time < (instant.completion_time or "") for instant in done)
    assert len(visible(storage)) == 24
    assert leftovers(storage) == set()


def begin_write(storage: MemoryStorage, txn_context: TxnContext, group: str = GROUPS[0]) -> tuple[Transaction, str]:
    txn = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context, operation="UPSERT")
    name = log_name(txn.requested_time, group)
    put_file(txn, "p0", name)
    return txn, name


def test_the_later_committer_of_a_file_group_gives_way_and_leaves_nothing() -> None:
    storage, clock = new_table(), ManualClock()
    write(storage, txn_context_of(storage, clock))
    first, first_name = begin_write(storage, txn_context_of(storage, clock, OPTIMISTIC))
    second, second_name = begin_write(storage, txn_context_of(storage, clock, OPTIMISTIC))
    with second:
        second.commit(metadata_of({"p0": (GROUPS[0], second_name)}))
    with pytest.raises(ConflictError, match=second.requested_time), first:
        first.commit(metadata_of({"p0": (GROUPS[0], first_name)}))
    assert of_begin(storage, first.requested_time) == set()
    assert second_name in visible(storage)
    assert leftovers(storage) == set()


def test_non_blocking_writers_append_to_one_group() -> None:
    storage, clock = new_table(hoodie__table__ordering__fields="ts"), ManualClock()
    options = TxnOptions(concurrency=Concurrency.NON_BLOCKING, lock_wait_ms=1000)
    write(storage, txn_context_of(storage, clock))
    first, first_name = begin_write(storage, txn_context_of(storage, clock, options))
    second, second_name = begin_write(storage, txn_context_of(storage, clock, options))
    with first, second:
        second.commit(metadata_of({"p0": (GROUPS[0], second_name)}))
        first.commit(metadata_of({"p0": (GROUPS[0], first_name)}))
    assert {first_name, second_name} <= visible(storage)


def test_a_writer_that_was_rolled_back_while_it_slept_must_not_publish() -> None:
    """Eager clean-up of another process takes a living write for a dead one: the sleeper is told, nothing is lost."""
    storage, clock = new_table(), ManualClock()
    sleeper, name = begin_write(storage, txn_context_of(storage, clock))
    other = write(storage, txn_context_of(storage, clock), groups=("x-0", "y-0"))
    with pytest.raises(ConflictError), sleeper:
        put_file(sleeper, "p0", name)  # it goes on writing, even into the place of a file that was deleted
        sleeper.commit(metadata_of({"p0": (GROUPS[0], name)}))
    client = MetaClient.open(storage)
    assert client.timeline.find(sleeper.requested_time) is None
    assert client.timeline.find(other.requested_time) == other
    write(storage, txn_context_of(storage, clock), groups=("x-0", "y-0"))
    assert of_begin(storage, sleeper.requested_time) == set(), "the sweep finds the late file by its marker"


def test_a_rollback_that_has_only_been_announced_stops_the_writer() -> None:
    storage, clock = new_table(), ManualClock()
    txn_context = txn_context_of(storage, clock)
    txn, name = begin_write(storage, txn_context)

    class Dies(Exception):
        pass

    def dies(*_: object) -> None:
        raise Dies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakebed.txn.rollback.finish_rollback", dies)
        with pytest.raises(Dies):
            roll_back(MetaClient.open(storage), txn.instant, txn_context)
    with pytest.raises(ConflictError, match="being rolled back"), txn:
        txn.commit(metadata_of({"p0": (GROUPS[0], name)}))
    assert of_begin(storage, txn.requested_time) == set()


class Paused:
    """A hook that lets a writer sleep in the middle of its commit, holding the lock."""

    def __init__(self, clock: ManualClock, meanwhile: object) -> None:
        self.clock, self.meanwhile = clock, meanwhile

    def __call__(self, client: MetaClient, instant: Instant, body: ActionBody) -> str | None:
        self.clock.advance(400_000)
        self.meanwhile()  # type: ignore[operator]
        return None


def test_a_writer_whose_lease_ran_out_before_the_publish_must_not_publish() -> None:
    storage, clock = new_table(), ManualClock()

    def takeover() -> None:
        write(storage, txn_context_of(storage, clock), groups=("x-0", "y-0"))

    zombie, name = begin_write(storage, txn_context_of(storage, clock, before_publish=Paused(clock, takeover)))
    with pytest.raises(ConflictError, match="lock was lost"), zombie:
        zombie.commit(metadata_of({"p0": (GROUPS[0], name)}))
    assert MetaClient.open(storage).timeline.find(zombie.requested_time) is None
    assert of_begin(storage, zombie.requested_time) == set()
    assert len(visible(storage)) == 2


def test_a_writer_whose_lease_ran_out_unnoticed_may_go_on() -> None:
    """Nobody took the lock over, and the swap that renews it proves that."""
    storage, clock = new_table(), ManualClock()
    sleeper, name = begin_write(storage, txn_context_of(storage, clock, before_publish=Paused(clock, lambda: None)))
    with sleeper:
        sleeper.commit(metadata_of({"p0": (GROUPS[0], name)}))
    assert visible(storage) == {name}


def test_a_publish_that_comes_after_its_own_rollback_is_taken_back() -> None:
    """The worst case: the lock is lost during the publishing request itself."""
    storage, clock = new_table(), ManualClock()
    zombie, name = begin_write(storage, txn_context_of(storage, clock))
    put = MemoryStorage.put_if_absent
    slept = False

    def slow(self: MemoryStorage, path: str, data: bytes) -> bool:
        nonlocal slept
        if path.endswith(".deltacommit") and zombie.requested_time in path and not slept:
            slept = True
            clock.advance(400_000)
            write(storage, txn_context_of(storage, clock), groups=("x-0", "y-0"))
        return put(self, path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStorage, "put_if_absent", slow)
        with pytest.raises(ConflictError, match="during its publish"), zombie:
            zombie.commit(metadata_of({"p0": (GROUPS[0], name)}))
    assert MetaClient.open(storage).timeline.find(zombie.requested_time) is None
    assert len(visible(storage)) == 2


def plan_of(client: MetaClient, requested_time: str) -> CompactionPlan:
    return CompactionPlan((CompactionOperation("p0", GROUPS[0], requested_time, None, ()),))


def compact(txn: Transaction, token: str) -> Instant:
    name = base_name(txn.requested_time, GROUPS[0], token)
    put_file(txn, "p0", name)
    return txn.commit(metadata_of({"p0": (GROUPS[0], name)}, "COMPACT", compacted=True))


def test_a_compaction_is_planned_run_and_tolerates_appends_meanwhile() -> None:
    storage, clock = new_table(), ManualClock()
    txn_context = txn_context_of(storage, clock)
    write(storage, txn_context)
    planned = schedule(MetaClient.open(storage), Action.COMPACTION, plan_of, txn_context)
    assert planned is not None
    assert planned.state is State.REQUESTED
    append, name = begin_write(storage, txn_context)  # an eager writer leaves the plan alone
    with append:
        append.commit(metadata_of({"p0": (GROUPS[0], name)}))
    with Transaction.resume(MetaClient.open(storage), planned, txn_context, operation="COMPACT") as txn:
        done = compact(txn, "0-0-0")
    assert done.action is Action.COMMIT
    assert name in visible(storage)
    assert base_name(planned.requested_time, GROUPS[0]) in visible(storage)
    assert leftovers(storage) == set()


def test_a_plan_with_nothing_to_do_leaves_no_trace() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    assert schedule(MetaClient.open(storage), Action.COMPACTION, lambda *_: None, txn_context) is None
    assert not MetaClient.open(storage).timeline.instants
    assert leftovers(storage) == set()


def test_two_runs_of_one_plan() -> None:
    """The first runner is taken for dead; the second undoes its run and takes over; the first may not commit."""
    storage, clock = new_table(), ManualClock()
    txn_context = txn_context_of(storage, clock, OPTIMISTIC)
    write(storage, txn_context)
    planned = schedule(MetaClient.open(storage), Action.COMPACTION, plan_of, txn_context)
    assert planned is not None
    first = Transaction.resume(MetaClient.open(storage), planned, txn_context)
    with pytest.raises(ConflictError, match="being run"):
        Transaction.resume(MetaClient.open(storage), planned, txn_context)
    storage._bucket.tick += OPTIMISTIC.heartbeat_expiry_ms + 1
    with Transaction.resume(MetaClient.open(storage), planned, txn_context) as second:
        with pytest.raises(ConflictError):
            compact(first, "0-0-1")
        done = compact(second, "0-0-2")
    first.abort()
    assert MetaClient.open(storage).timeline.find(planned.requested_time, Action.COMMIT) == done
    files = {path for path in of_begin(storage, planned.requested_time) if path.startswith("p0/")}
    assert files == {f"p0/{base_name(planned.requested_time, GROUPS[0], '0-0-2')}"}


def test_an_aborted_compaction_keeps_its_plan() -> None:
    storage, clock = new_table(), ManualClock()
    txn_context = txn_context_of(storage, clock)
    write(storage, txn_context)
    planned = schedule(MetaClient.open(storage), Action.COMPACTION, plan_of, txn_context)
    assert planned is not None
    with pytest.raises(ZeroDivisionError), Transaction.resume(MetaClient.open(storage), planned, txn_context) as txn:
        put_file(txn, "p0", base_name(txn.requested_time, GROUPS[0]))
        raise ZeroDivisionError
    client = MetaClient.open(storage)
    assert client.timeline.find(planned.requested_time, Action.COMPACTION) == planned
    assert of_begin(storage, planned.requested_time) == {client.active.path(planned)}
    with Transaction.resume(client, planned, txn_context) as again:
        compact(again, "0-0-1")


def test_the_lock_is_one_at_a_time_across_threads() -> None:
    storage = MemoryStorage()
    inside, most = 0, 0
    guard = threading.Lock()

    def one(_: int) -> None:
        nonlocal inside, most
        with StorageLock(storage, TxnOptions()).hold() as lease:
            with guard:
                inside += 1
                most = max(most, inside)
            lease.confirm()
            with guard:
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(24)))
    assert most == 1
    assert LockContent.parse(storage.read(".hoodie/.locks/table_lock.json")).expired
