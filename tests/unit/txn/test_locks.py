from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import ConflictError, CorruptTable, InvalidRequest, StorageUnavailable
from lakebed.format.names import LOCK_FILE
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.process import Process
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage
from lakebed.txn.lock_providers import FileLock, InProcessLock
from lakebed.txn.lock_types import lock_for
from lakebed.txn.locks import LockContent, StorageLock
from lakebed.txn.options import LockKind, TxnOptions

OPTIONS = TxnOptions(lock_wait_ms=50)


def lock_of(storage: Storage, clock: ManualClock) -> StorageLock:
    return StorageLock(storage, OPTIONS, clock, lambda _: None)


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path)


def test_the_lease_on_storage(storage: Storage) -> None:
    clock = ManualClock()
    with lock_of(storage, clock).hold():
        held = json.loads(storage.read(LOCK_FILE))
        assert set(held) == {"expired", "validUntil", "owner"}
        assert held["expired"] is False
        assert held["validUntil"] == clock.ms + 300_000
    assert json.loads(storage.read(LOCK_FILE))["expired"] is True
    with lock_of(storage, clock).hold():
        again = json.loads(storage.read(LOCK_FILE))
        assert again["owner"] != held["owner"], "an owner is one acquisition"


def test_who_waits_in_vain_is_told_by_whom_and_until_when(storage: Storage) -> None:
    clock = ManualClock()
    with lock_of(storage, clock).hold():
        owner = json.loads(storage.read(LOCK_FILE))["owner"]
        with pytest.raises(ConflictError) as caught, lock_of(storage, clock).hold():
            pass
    assert owner in str(caught.value)
    assert "20260101000500000" in str(caught.value)


def test_a_lease_is_taken_over_only_after_it_expired_and_its_holder_finds_out(storage: Storage) -> None:
    clock = ManualClock()
    with lock_of(storage, clock).hold() as lost:
        clock.advance(300_400)  # expired, but within what clocks may differ by
        with pytest.raises(ConflictError), lock_of(storage, clock).hold():
            pass
        clock.advance(200)
        with lock_of(storage, clock).hold() as mine:
            mine.confirm()
            assert lost.lapsed()
            with pytest.raises(ConflictError, match="lost"):
                lost.confirm()
        with pytest.raises(ConflictError, match="lost"):
            lost.confirm()  # released by the other, but never ours again
    assert json.loads(storage.read(LOCK_FILE))["expired"] is True


def test_an_expired_lease_that_nobody_took_is_renewed(storage: Storage) -> None:
    clock = ManualClock()
    with lock_of(storage, clock).hold() as lease:
        clock.advance(1_000_000)
        assert not lease.lapsed()
        lease.confirm()
        assert json.loads(storage.read(LOCK_FILE))["validUntil"] >= clock.ms + 300_000


@pytest.mark.parametrize("step", [1, 2, 3])
def test_lost_answers_do_not_lose_the_lock(step: int) -> None:
    """Step 1 takes the lock, 2 confirms it, 3 releases it."""
    inner, clock = MemoryStorage(), ManualClock()
    with lock_of(FaultyStorage(inner, FaultPlan(lose_ack=frozenset({step}))), clock).hold() as lease:
        lease.confirm()
        with pytest.raises(ConflictError), lock_of(inner, clock).hold():
            pass
    with lock_of(inner, clock).hold():
        pass


def test_a_silent_store_is_not_a_conflict() -> None:
    storage = FaultyStorage(MemoryStorage(), FaultPlan(fail=frozenset(range(1, 100))))
    with pytest.raises(StorageUnavailable), lock_of(storage, ManualClock()).hold():
        pass


@given(st.binary(max_size=80))
def test_a_lock_file_of_any_bytes(data: bytes) -> None:
    with contextlib.suppress(CorruptTable):
        assert isinstance(LockContent.parse(data), LockContent)


def test_a_lock_file_that_hudi_would_write() -> None:
    parsed = LockContent.parse(b'{"expired":false,"validUntil":1767225600000,"owner":"8f-4"}')
    assert parsed == LockContent("8f-4", 1_767_225_600_000, False)
    assert LockContent.parse(parsed.render()) == parsed


@pytest.mark.parametrize("kind", [LockKind.IN_PROCESS, LockKind.FILE, LockKind.STORAGE])
def test_every_provider_keeps_a_second_holder_out(tmp_path: Path, kind: LockKind) -> None:
    storage = LocalStorage(tmp_path)
    lock = lock_for(storage, TxnOptions(lock_provider=kind, lock_wait_ms=30))
    refused = threading.Event()

    def second() -> None:
        try:
            with lock_for(storage, TxnOptions(lock_provider=kind, lock_wait_ms=30)).hold():
                pass
        except ConflictError:
            refused.set()

    with lock.hold() as lease:
        lease.confirm()
        assert not lease.lapsed()
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert refused.is_set()
    with lock.hold():
        pass


def test_locks_that_do_not_fit() -> None:
    with pytest.raises(InvalidRequest, match="local disk"):
        FileLock(MemoryStorage())
    with pytest.raises(InvalidRequest, match="renewed"):
        TxnOptions(lock_validity_s=30, lock_renew_s=30)
    named = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
    options = TxnOptions.from_properties({"hoodie.write.lock.provider": named})
    assert isinstance(lock_for(MemoryStorage(), options), InProcessLock)


def die_holding(storage: Storage, clock: ManualClock) -> str:
    """A child process that takes the lock and is killed; the owner that it left in the lock file."""
    child = os.fork()
    if child == 0:
        StorageLock(storage, OPTIONS, clock)._acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return str(json.loads(storage.read(LOCK_FILE))["owner"])


def test_the_lease_of_a_process_that_was_killed_is_taken_over_at_once_on_a_disk(tmp_path: Path) -> None:
    storage, clock = LocalStorage(tmp_path), ManualClock()
    dead = die_holding(storage, clock)
    with lock_of(storage, clock).hold():
        assert json.loads(storage.read(LOCK_FILE))["owner"] != dead
    assert clock.ms == ManualClock().ms, "nothing was waited for"


@pytest.mark.parametrize("where", ["another machine", "an object store", "no process at all"])
def test_other_leases_have_to_run_out(tmp_path: Path, where: str) -> None:
    local, clock = LocalStorage(tmp_path), ManualClock()
    owner = die_holding(local, clock)
    storage: Storage = MemoryStorage() if where == "an object store" else local
    if where == "another machine":
        process = Process.parse(owner.partition(":")[0])
        assert process is not None
        owner = f"{replace(process, machine='0123456789abcdef')}:x"
    elif where == "no process at all":
        owner = "real-hudi-owner-0"
    storage.put(LOCK_FILE, LockContent(owner, clock.ms + 300_000).render())
    with pytest.raises(ConflictError, match="held by"), lock_of(storage, clock).hold():
        pass
    clock.advance(301_000)
    with lock_of(storage, clock).hold():
        pass
