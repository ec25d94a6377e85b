from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import ConflictError, InvalidRequest, StorageUnavailable
from lakebed.model.actions import CleanMetadata, CleanPlan, CommitMetadata, RequestedReplace, SavepointMetadata
from lakebed.model.instant import Action, State
from lakebed.storage.local import LocalStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.transaction import Transaction, schedule
from lakebed.txn.txn_context import TxnContext
from tests.unit.txn.tables import (
    GROUPS,
    base_name,
    leftovers,
    make_table,
    metadata_of,
    new_table,
    of_begin,
    put_file,
    txn_context_of,
    visible,
    write,
)


def begun(storage: Storage) -> Transaction:
    return Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context_of(storage))


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
def test_a_write_on_the_timeline(action: Action) -> None:
    storage = new_table()
    done = write(storage, txn_context_of(storage), action=action, lost_attempt=True)
    client = MetaClient.open(storage)
    assert client.timeline.instants == (done,)
    assert done.action is action
    words = {
        Action.COMMIT: ("commit.requested", "inflight", "commit"),
        Action.DELTA_COMMIT: ("deltacommit.requested", "deltacommit.inflight", "deltacommit"),
        Action.REPLACE_COMMIT: ("replacecommit.requested", "replacecommit.inflight", "replacecommit"),
    }[action]
    requested_time, completion = done.requested_time, done.completion_time
    names = {
        f"{requested_time}.{words[0]}",
        f"{requested_time}.{words[1]}",
        f"{requested_time}_{completion}.{words[2]}",
    }
    assert set(client.active.files) == names
    assert client.active.files[f"{requested_time}.{words[1]}"] == 0
    commit = client.commit(requested_time)
    assert commit is not None
    assert commit.operation == "UPSERT"
    assert len(visible(storage)) == 2
    data = {path for path in of_begin(storage, requested_time) if path.endswith(".parquet")}
    assert data == {f"p0/{base_name(requested_time, GROUPS[0])}", f"p1/{base_name(requested_time, GROUPS[1])}"}, (
        "lost attempts are gone"
    )
    assert leftovers(storage) == set()


def test_the_same_on_a_disk(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    make_table(storage)
    txn_context = TxnContext.of(storage)
    done = write(storage, txn_context)
    with (
        pytest.raises(ZeroDivisionError),
        Transaction.begin(MetaClient.open(storage), Action.COMMIT, txn_context) as txn,
    ):
        put_file(txn, "p0", base_name(txn.requested_time, GROUPS[0]))
        raise ZeroDivisionError
    assert of_begin(storage, txn.requested_time) == set()
    again = write(storage, txn_context)
    assert again.requested_time > (done.completion_time or "")
    assert len(visible(storage)) == 2
    assert leftovers(storage) <= {".hoodie/.temp/lakebed.lock"}


@pytest.mark.parametrize(
    ("operation", "plan"),
    [("INSERT_OVERWRITE", RequestedReplace()), ("DELETE_PARTITION", RequestedReplace("DELETE_PARTITION"))],
)
def test_a_replacecommit_is_requested_with_a_body(operation: str, plan: RequestedReplace) -> None:
    storage = new_table()
    client = MetaClient.open(storage)
    with Transaction.begin(client, Action.REPLACE_COMMIT, txn_context_of(storage), operation=operation) as txn:
        assert MetaClient.open(storage).plan(txn.instant) == plan
        done = txn.commit(CommitMetadata(None, {}, replaced_file_ids={"p0": ("a-0",)}))
    commit = MetaClient.open(storage).commit(done.requested_time)
    assert commit is not None
    assert (commit.operation, commit.replaced_file_ids) == (operation, {"p0": ("a-0",)})


def test_an_error_undoes_the_write_and_is_raised() -> None:
    storage = new_table()
    txn = begun(storage)
    with pytest.raises(ZeroDivisionError), txn:
        put_file(txn, "p0", base_name(txn.requested_time, GROUPS[0]))
        raise ZeroDivisionError
    assert of_begin(storage, txn.requested_time) == set()
    assert leftovers(storage) == set()
    assert [instant.action for instant in MetaClient.open(storage).timeline] == [Action.ROLLBACK]


def test_leaving_without_a_commit_undoes_the_write() -> None:
    storage = new_table()
    with Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context_of(storage)) as txn:
        put_file(txn, "p0", base_name(txn.requested_time, GROUPS[0]))
    assert of_begin(storage, txn.requested_time) == set()
    with pytest.raises(InvalidRequest, match="over"):
        txn.commit(metadata_of({}))


def test_an_undoing_that_fails_keeps_the_first_error_and_says_so() -> None:
    storage = FaultyStorage(new_table())
    with pytest.raises(ZeroDivisionError) as caught, begun(storage):
        steps = len(storage.ops)
        storage._script.plan = FaultPlan(fail=frozenset(range(steps + 1, steps + 1000)))
        raise ZeroDivisionError
    assert "next write" in caught.value.__notes__[0]


def test_a_begin_that_fails_takes_its_announcement_back() -> None:
    inner = new_table()
    trial = FaultyStorage(inner)
    Transaction.begin(MetaClient.open(trial), Action.DELTA_COMMIT, txn_context_of(trial)).abort()
    inflight = next(op.number for op in trial.ops if op.path.endswith(".inflight"))
    storage = new_table()
    faulty = FaultyStorage(storage, FaultPlan(lose_ack=frozenset({inflight})))
    with pytest.raises(StorageUnavailable):
        Transaction.begin(MetaClient.open(faulty), Action.DELTA_COMMIT, txn_context_of(faulty))
    assert not MetaClient.open(storage).timeline.instants
    assert leftovers(storage) == set()


def test_a_commit_whose_file_is_missing_is_refused() -> None:
    storage = new_table()
    with pytest.raises(ConflictError, match="gone"), begun(storage) as txn:
        txn.commit(metadata_of({"p0": (GROUPS[0], base_name(txn.requested_time, GROUPS[0]))}))
    assert visible(storage) == set()


def test_a_transaction_ends_once() -> None:
    storage = new_table()
    with Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context_of(storage)) as txn:
        txn.commit(metadata_of({}))
        for again in (lambda: txn.commit(metadata_of({})), txn.abort):
            with pytest.raises(InvalidRequest, match="committed"):
                again()


def test_a_savepoint_shares_the_begin_of_what_it_saves() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    saved = write(storage, txn_context)
    body = SavepointMetadata("me", 1, "", {"p0": ("f",)})
    client = MetaClient.open(storage)
    left = Transaction.begin(client, Action.SAVEPOINT, txn_context, requested_time=saved.requested_time)
    assert left.instant.state is State.INFLIGHT  # and here the process dies
    with Transaction.begin(client, Action.SAVEPOINT, txn_context, requested_time=saved.requested_time) as txn:
        done = txn.commit(body)
    after = MetaClient.open(storage)
    assert after.savepoints() == ((done, body),)
    assert after.timeline.completed_write(saved.requested_time) == saved
    other = write(storage, txn_context)
    with Transaction.begin(after, Action.SAVEPOINT, txn_context, requested_time=other.requested_time):
        pass
    assert len(MetaClient.open(storage).timeline.of_actions(Action.SAVEPOINT)) == 1
    assert len(visible(storage)) == 2


def test_a_clean_is_planned_interrupted_and_carried_on() -> None:
    storage, clock = new_table(), ManualClock()
    txn_context = txn_context_of(storage, clock)
    write(storage, txn_context)
    plan = CleanPlan("KEEP_LATEST_COMMITS", None, "", {})
    planned = schedule(MetaClient.open(storage), Action.CLEAN, lambda *_: plan, txn_context)
    assert planned is not None
    with Transaction.resume(MetaClient.open(storage), planned, txn_context):
        pass  # interrupted: the plan stays, deleting is done again
    pending = MetaClient.open(storage).timeline.find(planned.requested_time)
    assert pending is not None
    assert pending.state is State.INFLIGHT
    with Transaction.resume(MetaClient.open(storage), planned, txn_context) as txn:
        done = txn.commit(CleanMetadata(planned.requested_time, 1, 0, "", "", {}))
    after = MetaClient.open(storage)
    assert after.timeline.find(planned.requested_time) == done
    assert after.plan(done) == plan
    assert leftovers(storage) == set()
    with pytest.raises(ConflictError, match="completed or undone"):
        Transaction.resume(after, planned, txn_context)
    assert leftovers(storage) == set()


def test_the_metadata_tables_part_has_the_begin_of_the_commit() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    requested_time = "20260101000000000"
    with Transaction.begin(
        MetaClient.open(storage), Action.DELTA_COMMIT, txn_context, requested_time=requested_time
    ) as txn:
        assert leftovers(storage) == set(), "no claim, no heartbeat"
        done = txn.commit(metadata_of({}, "UPSERT_PREPPED"))
    assert done.requested_time == requested_time
    assert (done.completion_time or "") > requested_time


def test_a_metadata_table_that_another_built_while_the_write_ran() -> None:
    """It would miss this commit, and hide its rows from every reader."""
    storage = new_table()
    txn_context = txn_context_of(storage)
    with (
        pytest.raises(InvalidRequest, match="metadata table"),
        Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context) as txn,
    ):
        update_properties(storage, {"hoodie.table.metadata.partitions": "files"})
        txn.commit(metadata_of({}))
    assert not MetaClient.open(storage).completed_writes()
    assert leftovers(storage) == set()
