"""The lock that real Hudi takes on a local disk, taken together with the lease."""

from __future__ import annotations

import pytest

from lakebed.errors import ConflictError
from lakebed.format.names import HUDI_LOCK_FILE
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.txn.lock_providers import HudiFileLock
from lakebed.txn.lock_types import lock_for
from lakebed.txn.locks import StorageLock
from lakebed.txn.options import LockKind, TxnOptions


def lock_on(storage: MemoryStorage, clock: ManualClock | None = None) -> HudiFileLock:
    options = TxnOptions(lock_provider=LockKind.FILE_SYSTEM, lock_wait_ms=50)
    found = lock_for(storage, options, clock or ManualClock(), lambda _: None)
    assert isinstance(found, HudiFileLock)
    return found


def test_both_locks_are_held_and_let_go() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    with lock_on(storage, clock).hold() as lease:
        lease.confirm()
        assert storage.stat(HUDI_LOCK_FILE) is not None, "Hudi waits while this file is there"
        with pytest.raises(ConflictError), StorageLock(storage, TxnOptions(lock_wait_ms=0), clock).hold():
            pass
    assert storage.stat(HUDI_LOCK_FILE) is None
    with lock_on(storage).hold():
        pass


@pytest.mark.parametrize("content", [b"", b"{}", b'{"lockCreateTime": "now"}', b"\xff", b"[" * 100_000])
def test_a_file_of_hudi_is_waited_for_and_left_alone(content: bytes) -> None:
    storage = MemoryStorage()
    storage.put(HUDI_LOCK_FILE, content)
    with pytest.raises(ConflictError, match="Apache Hudi"), lock_on(storage).hold():
        pass
    assert storage.read(HUDI_LOCK_FILE) == content
    storage.delete([HUDI_LOCK_FILE])
    with lock_on(storage).hold():
        pass


def test_a_file_that_a_dead_holder_left_is_taken_over_with_its_lease() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    slow = lock_on(storage, clock).hold()
    slow.__enter__()
    clock.advance(10 * 60 * 1000)
    with lock_on(storage, clock).hold() as lease:
        taken = storage.read(HUDI_LOCK_FILE)
        slow.__exit__(None, None, None)
        assert storage.read(HUDI_LOCK_FILE) == taken, "whoever was taken for dead does not let go what is another's"
        lease.confirm()
    assert storage.stat(HUDI_LOCK_FILE) is None
