"""What writers that died leave lying: swept when it is certain that nobody needs it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from lakebed.model.actions import InstantRef, RollbackPlan
from lakebed.model.instant import Action, State
from lakebed.storage.local import LocalStorage, temporary_name
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.process import Process
from lakebed.testing.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.markers import create_marker, delete_markers, list_markers
from lakebed.txn.rollback import roll_back
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from tests.unit.txn.tables import base_name, clone, make_table, new_table, put_file, txn_context_of, visible, write

DAY_MS = 24 * 60 * 60 * 1000


def sweep(storage: MemoryStorage | LocalStorage) -> None:
    clean_up(MetaClient.open(storage), txn_context_of(storage, ManualClock()))


def test_temporaries_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    make_table(storage)
    out = storage.open_output("p0/mine")
    out.write(b"half")
    child = os.fork()
    if child == 0:
        theirs = storage.open_output("p0/theirs")
        theirs.write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    temp = tmp_path / ".hoodie" / ".temp"
    assert len(list(temp.glob("lakebed-*"))) == 2
    sweep(storage)
    assert len(list(temp.glob("lakebed-*"))) == 1
    out.close()
    assert (tmp_path / "p0" / "mine").read_bytes() == b"half"


def test_temporaries_of_other_machines_go_when_they_are_old() -> None:
    storage = new_table()
    elsewhere = replace(Process.current(), machine="0123456789abcdef")
    names = [
        f".hoodie/.temp/lakebed-{elsewhere}.00",
        ".hoodie/.temp/lakebed-0123456789",
        f".hoodie/.temp/{temporary_name()}",
    ]
    for name in names:
        storage.put(name, b"")
    sweep(storage)
    assert all(storage.stat(name) for name in names)
    storage._bucket.tick += DAY_MS
    sweep(storage)
    assert [storage.stat(name) is not None for name in names] == [False, False, True], "ours may still be in use"


def test_folders_of_markers_go_with_them(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    make_table(storage)
    requested_time = "20260101000000000"
    for partition in ("p0", "a=1/b=2", ""):
        create_marker(storage, requested_time, partition, base_name(requested_time, "g-0"))
    assert len(list_markers(storage, requested_time)) == 3
    delete_markers(storage, requested_time)
    assert not (tmp_path / ".hoodie" / ".temp" / requested_time).exists()
    assert (tmp_path / ".hoodie" / ".temp").exists()
    (tmp_path / ".hoodie" / ".temp" / requested_time / "a=1" / "b=2").mkdir(parents=True)
    create_marker(storage, requested_time, "p0", base_name(requested_time, "g-0"))
    sweep(storage)
    assert not (tmp_path / ".hoodie" / ".temp" / requested_time).exists(), "a crash between a file and its folder"


def test_data_folders_stay(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    make_table(storage)
    storage.put("p9/file", b"")
    storage.delete(["p9/file", "p9/no-such-file"])
    assert (tmp_path / "p9").is_dir()


def test_a_file_of_a_rolled_back_write_does_not_count_even_when_it_comes_late() -> None:
    """The orphan lies before the first write of the timeline, where archived writes would be."""
    storage, clock = new_table(), ManualClock()
    txn_context = txn_context_of(storage, clock)
    txn = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context)
    late = base_name(txn.requested_time, "late-0")
    put_file(txn, "p0", late)
    txn.abort()
    clock.advance(1000)
    write(storage, txn_context)
    before = visible(storage)
    storage.put(f"p0/{late}", b"rows")
    client = MetaClient.open(storage)
    assert client.is_before_timeline(txn.requested_time)
    assert not client.is_committed(txn.requested_time)
    assert client.is_committed("20200101000000000"), "older than the timeline, and nothing says that it was undone"
    assert visible(storage) == before


def test_a_service_that_ran_again_after_its_rollback_counts() -> None:
    storage, clock = new_table(), ManualClock()
    txn_context = txn_context_of(storage, clock)
    with Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, txn_context) as txn:
        requested_time = txn.requested_time
    client = MetaClient.open(storage)
    [rollback] = client.timeline.of_actions(Action.ROLLBACK).instants
    plan = client.plan(rollback)
    assert isinstance(plan, RollbackPlan)
    assert plan.instant == InstantRef(requested_time, "deltacommit")
    again = clone(storage)
    again.put(f".hoodie/timeline/{requested_time}_20270101000000000.commit", b"")
    assert MetaClient.open(again).is_committed(requested_time), (
        "the completed file speaks louder than the rollback before it"
    )
    assert not MetaClient.open(storage).is_committed(requested_time)
    assert roll_back(client, replace(rollback, state=State.INFLIGHT, completion_time=None), txn_context) is None


def test_a_default_control_needs_no_store_clock_for_its_own_temporaries(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    make_table(storage)
    storage.open_output("p0/x").write(b"half")
    clean_up(MetaClient.open(storage), TxnContext.of(storage))
    assert MetaClient.open(storage).timeline.instants == ()
