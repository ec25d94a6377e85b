"""Plans that are begun at once, and claims that clean up: what is under a claim belongs to nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lakebed.errors import ConflictError, StorageUnavailable
from lakebed.format.names import heartbeat_file
from lakebed.model.actions import CommitMetadata, CompactionPlan
from lakebed.model.instant import Action, State
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.locks import Lease, LockProvider
from lakebed.txn.mode import mode_properties
from lakebed.txn.options import Concurrency, LockKind
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from tests.unit.txn.tables import leftovers, make_table, metadata_of, new_table, txn_context_of, visible, write

PLAN = CompactionPlan(())


def planned(storage: MemoryStorage, txn_context: TxnContext) -> Transaction:
    txn = Transaction.plan(MetaClient.open(storage), Action.COMPACTION, lambda *_: PLAN, txn_context)
    assert txn is not None
    return txn


def shared() -> MemoryStorage:
    """A table of several writers."""
    storage = MemoryStorage()
    more = mode_properties(Concurrency.OPTIMISTIC, LockKind.STORAGE)
    make_table(storage, **{key.replace(".", "__"): value for key, value in more.items()})
    return storage


def test_a_plan_that_is_begun_at_once_is_published_as_its_commit() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    write(storage, txn_context)
    with planned(storage, txn_context) as txn:
        assert txn.snapshot.plan(txn.instant) == PLAN
        assert MetaClient.open(storage).timeline.find(txn.requested_time) == txn.instant
        assert txn.instant.state is State.INFLIGHT
        done = txn.commit(CommitMetadata("COMPACT", {}, compacted=True))
    assert MetaClient.open(storage).timeline.find(txn.requested_time) == done
    assert leftovers(storage) == set()


def test_nobody_else_runs_a_plan_that_is_begun_at_once() -> None:
    storage = shared()
    txn = planned(storage, txn_context_of(storage))
    requested = MetaClient.open(storage).active.requested(txn.instant)
    assert requested is not None
    with pytest.raises(ConflictError, match="being run by another"):
        Transaction.resume(MetaClient.open(storage), requested, txn_context_of(storage))
    txn.commit(CommitMetadata("COMPACT", {}, compacted=True))


def test_a_plan_that_is_begun_and_given_up_waits_for_the_next() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    with planned(storage, txn_context) as txn:
        pass
    assert leftovers(storage) == set()
    pending = MetaClient.open(storage).timeline.find(txn.requested_time, Action.COMPACTION)
    assert pending is not None
    assert pending.state is State.REQUESTED
    Transaction.resume(MetaClient.open(storage), pending, txn_context).commit(CommitMetadata("COMPACT", {}))


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_plan_there_is_no_claim(fails: bool) -> None:
    storage = new_table()

    def nothing(_client: MetaClient, requested_time: str) -> None:
        assert storage.stat(heartbeat_file(requested_time)) is not None
        if fails:
            raise StorageUnavailable("a bad day")

    txn_context, client = txn_context_of(storage), MetaClient.open(storage)
    if fails:
        with pytest.raises(StorageUnavailable):
            Transaction.plan(client, Action.COMPACTION, nothing, txn_context)
    else:
        assert Transaction.plan(client, Action.COMPACTION, nothing, txn_context) is None
    assert leftovers(storage) == set()
    assert MetaClient.open(storage).timeline.instants == ()


def test_a_run_conflicts_with_what_came_since_its_plan() -> None:
    """The snapshot of the run is that of the plan: what is rewritten after that is not missed."""
    storage = new_table()
    txn_context = txn_context_of(storage)
    txn = planned(storage, txn_context)
    other = write(storage, txn_context, action=Action.COMMIT)
    assert other not in txn.snapshot.timeline.instants
    body = MetaClient.open(storage).body(other)
    assert isinstance(body, CommitMetadata)
    groups = {partition: tuple(stat.file_id for stat in stats) for partition, stats in body.stats.items()}
    with pytest.raises(ConflictError, match="the same file groups"):
        txn.commit(CommitMetadata("COMPACT", {}, replaced_file_ids=groups, compacted=True))


def test_a_write_that_undoes_a_dead_one_begins_after_the_rollback() -> None:
    storage, clock = new_table(), ManualClock()
    dead = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context_of(storage, clock))
    early = MetaClient.open(storage)
    txn = Transaction.begin(early, Action.DELTA_COMMIT, txn_context_of(storage, clock))
    now = MetaClient.open(storage).timeline
    [rollback] = now.of_actions(Action.ROLLBACK)
    assert now.find(dead.requested_time, Action.DELTA_COMMIT) is None
    assert rollback in txn.snapshot.timeline.instants
    assert (rollback.completion_time or "") < txn.requested_time
    assert leftovers(storage) == {heartbeat_file(txn.requested_time)}
    txn.commit(metadata_of({}))
    dead._stop()
    assert visible(storage) == set()


def test_a_claim_does_not_sweep_itself_up() -> None:
    """A single writer takes any heartbeat without an instant for a dead one's, but for its own."""
    storage = new_table()
    storage.put(heartbeat_file("20200101000000000"), b"")
    with Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context_of(storage)) as txn:
        assert leftovers(storage) == {heartbeat_file(txn.requested_time)}
        txn.commit(metadata_of({}))


def test_whoever_asks_is_told_what_plans_and_commits_left() -> None:
    storage, told = new_table(), list[MetaClient]()
    txn_context = TxnContext(txn_context_of(storage).lock, clock=ManualClock(), on_change=told.append)
    with planned(storage, txn_context) as txn:
        assert [client.timeline.find(txn.requested_time, Action.COMPACTION) for client in told] == [
            told[0].active.requested(txn.instant)
        ]
        txn.commit(CommitMetadata("COMPACT", {}, compacted=True))
    assert len(told) == 2
    assert told[-1].active == MetaClient.open(storage).active


class Interrupted:
    """A lock whose user presses Ctrl-C when it has been given back."""

    def __init__(self, lock: LockProvider) -> None:
        self.lock = lock

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        with self.lock.hold() as lease:
            yield lease
        raise KeyboardInterrupt


def test_no_heartbeat_is_renewed_for_a_plan_that_nobody_got() -> None:
    """The plan stays on the timeline, and the next writer may run it."""
    storage = new_table()
    txn_context = txn_context_of(storage, ManualClock(1_770_000_000_000))  # a time that no other test has
    with pytest.raises(KeyboardInterrupt):
        planned(storage, replace(txn_context, lock=Interrupted(txn_context.lock)))
    [plan] = MetaClient.open(storage).timeline.pending
    assert f"lakebed-heartbeat-{plan.requested_time}" not in {thread.name for thread in threading.enumerate()}
