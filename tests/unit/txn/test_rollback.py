from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import InvalidRequest
from lakebed.format.names import METADATA_DIR, heartbeat_file
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import ActionBody, InstantRef, RollbackMetadata, RollbackPlan
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.local import LocalStorage
from lakebed.testing.clock import ManualClock
from lakebed.timeline.active import create_requested, to_inflight
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.failed_writes import clean_up, failed_writes
from lakebed.txn.options import FailedWrites, TxnOptions
from lakebed.txn.rollback import find_files, roll_back
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from tests.conftest import expected
from tests.unit.txn.tables import (
    GROUPS,
    base_name,
    leftovers,
    log_name,
    new_table,
    of_begin,
    put_file,
    txn_context_of,
    visible,
    write,
)

FAILED = ["cow_failed_pending_v9", "mor_failed_pending_v9", "cow_failed_tlmarkers_v9"]


@pytest.mark.parametrize("name", FAILED)
@pytest.mark.parametrize("markers", [True, False], ids=["markers", "listing"])
def test_failed_writes_of_real_hudi_go_without_a_trace(
    golden_copy: Callable[[str], Path], name: str, markers: bool
) -> None:
    table = golden_copy(name)
    storage = LocalStorage(table)
    client = MetaClient.open(storage)
    [failed] = client.timeline.pending.instants
    if not markers:
        storage.delete([info.path for info in storage.list(".hoodie/.temp", recursive=True)])
    files = find_files(storage, failed.requested_time)
    assert files == {path for path in expected(name)["files_after_failure"] if failed.requested_time in path} - {
        path for path in expected(name)["files_after_failure"] if path.startswith(".hoodie/")
    }
    after = clean_up(client, TxnContext.of(storage))
    assert of_begin(storage, failed.requested_time) == set()
    assert leftovers(storage) <= {".hoodie/.temp/lakebed.lock"}
    [done] = after.timeline.of_actions(Action.ROLLBACK).instants
    body = after.body(done)
    assert isinstance(body, RollbackMetadata)
    assert body.commits == (failed.requested_time,)
    assert body.total_files_deleted == len(files)
    assert {path for part in body.partitions.values() for path in part.deleted} == {f"{table}/{f}" for f in files}
    plan = after.plan(done)
    assert isinstance(plan, RollbackPlan)
    assert plan.instant.action == failed.action
    assert {path for request in plan.requests for path in request.files} == {f"{table}/{f}" for f in files}
    assert all(r.latest_base_instant == failed.requested_time and r.file_id for r in plan.requests)
    assert lakebed.open(str(table)).scan().to_arrow().num_rows == expected(name)["snapshot"]["count"]


def test_what_is_not_a_failed_write_is_left_alone(golden_copy: Callable[[str], Path]) -> None:
    for name, kept in {
        "mor_pending_compaction_v9": [Action.COMPACTION],
        "mor_pending_clustering_v9": [Action.CLUSTERING],
    }.items():
        storage = LocalStorage(golden_copy(name))
        client = MetaClient.open(storage)
        assert all(instant.action is Action.DELTA_COMMIT for instant in failed_writes(client))
        after = clean_up(client, TxnContext.of(storage))
        assert [instant.action for instant in after.timeline.pending] == kept
        completed = [instant for instant in client.timeline if instant.is_completed]
        assert [i for i in after.timeline.completed if i.action is not Action.ROLLBACK] == completed


def test_a_completed_instant_is_never_undone() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    done = write(storage, txn_context)
    assert roll_back(MetaClient.open(storage), done, txn_context) is None
    plan = RollbackPlan(InstantRef(done.requested_time, "deltacommit"))
    body = encode_body(plan, Action.ROLLBACK, State.REQUESTED)
    create_requested(storage, "20270101000000000", Action.ROLLBACK, body)
    with pytest.raises(InvalidRequest, match="completed instant"):
        clean_up(MetaClient.open(storage), txn_context)
    assert len(visible(storage)) == 2


def test_a_rollback_without_a_plan_is_forgotten() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    write(storage, txn_context)
    to_inflight(storage, create_requested(storage, "20270101000000000", Action.ROLLBACK))
    after = clean_up(MetaClient.open(storage), txn_context)
    assert not after.timeline.pending.instants
    assert not after.timeline.of_actions(Action.ROLLBACK).instants


def test_only_files_whose_name_carries_the_begin_are_deleted() -> None:
    """A plan is bytes on storage: what it says is no licence to delete the files of other commits."""
    storage = new_table()
    txn_context = txn_context_of(storage)
    done = write(storage, txn_context)
    victim = f"p0/{base_name(done.requested_time, GROUPS[0])}"
    failed = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context)
    failed._stop()
    storage.put(f".hoodie/.temp/{failed.requested_time}/{victim}.marker.CREATE", b"")
    storage.put(f"{victim}.bak", b"no data file")
    clean_up(MetaClient.open(storage), txn_context)
    assert storage.stat(victim) is not None
    assert storage.stat(f"{victim}.bak") is not None
    assert len(visible(storage)) == 2


def test_side_files_that_carry_the_begin_go_as_well() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage)
    failed = Transaction.begin(MetaClient.open(storage), Action.REPLACE_COMMIT, txn_context)
    failed._stop()
    hashing = ".hoodie/.bucket_index/consistent_hashing_metadata/p0"
    storage.put(f"{hashing}/{failed.requested_time}.hashing_meta", b"{}")
    storage.put(f"{hashing}/00000000000000.hashing_meta", b"{}")
    storage.put(f".hoodie/.schema/{failed.requested_time}_20270101000000000.schemacommit", b"{}")
    clean_up(MetaClient.open(storage), txn_context)
    assert of_begin(storage, failed.requested_time) == set()
    assert storage.stat(f"{hashing}/00000000000000.hashing_meta") is not None


class Recorder:
    """A metadata writer that only keeps a record, and refuses when told to."""

    def __init__(self, storage: object) -> None:
        self.storage = storage
        self.calls: list[tuple[Instant, ActionBody]] = []
        self.fails = False

    def __call__(self, client: MetaClient, instant: Instant, body: ActionBody) -> str | None:
        if self.fails:
            raise ZeroDivisionError
        self.calls.append((instant, body))
        return "20280101000000000"


def test_a_table_with_a_metadata_table_needs_its_writer() -> None:
    storage = new_table(hoodie__table__metadata__partitions="files")
    alone = txn_context_of(storage)
    with pytest.raises(InvalidRequest, match="metadata table"):
        write(storage, alone)
    recorder = Recorder(storage)
    txn_context = txn_context_of(storage, before_publish=recorder)
    done = write(storage, txn_context)
    assert done.completion_time == "20280101000000001", "after the metadata table's own completion"
    assert [call[0].state for call in recorder.calls] == [State.INFLIGHT]

    txn = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context)
    put_file(txn, "p0", log_name(txn.requested_time, GROUPS[0]))
    txn._stop()
    inside = storage.within(METADATA_DIR)
    to_inflight(inside, create_requested(inside, txn.requested_time, Action.DELTA_COMMIT))
    storage.put(f"{METADATA_DIR}/.hoodie/timeline/{txn.requested_time}_20290101000000000.deltacommit", b"x")
    with pytest.raises(InvalidRequest, match="metadata table"):
        clean_up(MetaClient.open(storage), alone)
    assert find_files(storage, txn.requested_time), "nothing was deleted that could not be undone in the metadata table"

    recorder.fails = True
    with pytest.raises(ZeroDivisionError):
        clean_up(MetaClient.open(storage), txn_context)
    recorder.fails = False
    after = clean_up(MetaClient.open(storage), txn_context)
    [rollback] = after.timeline.of_actions(Action.ROLLBACK).instants
    assert rollback.is_completed
    assert isinstance(recorder.calls[-1][1], RollbackMetadata)
    assert not [path for path in of_begin(storage, txn.requested_time) if not path.startswith(METADATA_DIR)]


def test_never_means_never() -> None:
    storage = new_table()
    txn_context = txn_context_of(storage, ManualClock(), TxnOptions(failed_writes=FailedWrites.NEVER))
    txn = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context)
    txn._stop()
    storage.put(heartbeat_file("20200101000000000"), b"")
    write(storage, txn_context)
    assert MetaClient.open(storage).timeline.find(txn.requested_time) == txn.instant
    assert storage.stat(heartbeat_file("20200101000000000")) is not None
