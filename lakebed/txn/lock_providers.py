"""Lock providers besides the lease in the table: one shared with real Hudi, one per process, one per machine.

HudiFileLock     .hoodie/lock beside the lease, as real Hudi's FileSystemBasedLockProvider takes it: Hudi has no
                 other lock for several writers that works on a local disk and needs no service
InProcessLock    threads of one process
FileLock         processes of one machine, by the kernel
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from lakebed.errors import ConflictError, InvalidRequest, StorageUnavailable
from lakebed.format.names import HUDI_LOCK_FILE, LOCKS_DIR
from lakebed.storage.process import Process
from lakebed.storage.storage import Storage, location_of
from lakebed.txn.lock_types import LockRequest, LockType
from lakebed.txn.locks import Lease, Patience, StorageLock
from lakebed.txn.options import HUDI_LOCKS, LockKind

_OWNER = "lakebed"


@dataclass(frozen=True, slots=True)
class HudiFileLock:
    """The lease, and while it is held the file whose existence is Hudi's lock.

    Only the holder of the lease creates this file, so one of ours that is found was left by a holder that died. The
    file of a Hudi writer that died has to be deleted by hand: Hudi itself does not detect that, either.
    """

    lease: StorageLock

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        with self.lease.hold() as lease:
            mine = self._take()
            try:
                yield lease
            finally:
                with suppress(StorageUnavailable):  # the next holder of the lease recognizes it as a leftover
                    if self._read() == mine:
                        self.lease.storage.delete([HUDI_LOCK_FILE])

    def _take(self) -> bytes:
        mine = json.dumps({_OWNER: f"{Process.current()}:{uuid4()}"}).encode()
        waiting = Patience(self.lease.options.lock_wait_ms, self.lease.sleep)
        while not self.lease.storage.put_if_absent(HUDI_LOCK_FILE, mine):
            found = self._read()
            if found == mine:  # the answer was lost
                break
            if found is not None and _is_ours(found):
                self.lease.storage.delete([HUDI_LOCK_FILE])
            elif not waiting.pause():
                raise ConflictError(
                    "the table lock is held by a writer of Apache Hudi",
                    file=HUDI_LOCK_FILE,
                    hint="Try again; if that writer died, delete the file.",
                )
        return mine

    def _read(self) -> bytes | None:
        try:
            return self.lease.storage.read(HUDI_LOCK_FILE)
        except FileNotFoundError:
            return None


def _is_ours(content: bytes) -> bool:
    try:
        loaded = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(loaded, dict) and _OWNER in loaded


class _KernelLease:
    """A lock that cannot be lost while its holder lives."""

    def confirm(self) -> None:
        return

    def lapsed(self) -> bool:
        return False


_in_process: dict[str, threading.Lock] = {}
_in_process_guard = threading.Lock()


@dataclass(frozen=True, slots=True)
class InProcessLock:
    """For tables that only one process writes; locks of the same name are the same lock."""

    name: str
    wait_ms: int = 60_000

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        with _in_process_guard:
            lock = _in_process.setdefault(self.name, threading.Lock())
        if not lock.acquire(timeout=self.wait_ms / 1000):
            raise ConflictError(
                f"another thread has held the lock of {self.name} for {self.wait_ms} ms", hint="Try again."
            )
        try:
            yield _KernelLease()
        finally:
            lock.release()


class FileLock:
    """`flock` on a file of the table: for the processes of one machine, released by the kernel when its holder dies."""

    def __init__(self, storage: Storage, wait_ms: int = 60_000) -> None:
        if not storage.is_local:
            raise InvalidRequest(f"a file lock needs a table on a local disk, not {storage.url}")
        self._path = Path(location_of(storage)) / LOCKS_DIR / "lakebed.flock"
        self._wait_ms = wait_ms

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        waiting = Patience(self._wait_ms, time.sleep)
        with self._path.open("a+") as file:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if not waiting.pause():
                    file.seek(0)
                    holder = file.read(200).strip() or "another process"
                    raise ConflictError(f"the table lock is held by {holder}", file=str(self._path), hint="Try again.")
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()}")
            file.flush()
            yield _KernelLease()


def _storage_lock(request: LockRequest) -> StorageLock:
    return StorageLock(request.storage, request.options, request.clock, request.sleep)


STORAGE = LockType(LockKind.STORAGE, _storage_lock, HUDI_LOCKS[LockKind.STORAGE])
FILE_SYSTEM = LockType(
    LockKind.FILE_SYSTEM, lambda request: HudiFileLock(_storage_lock(request)), HUDI_LOCKS[LockKind.FILE_SYSTEM]
)
IN_PROCESS = LockType(
    LockKind.IN_PROCESS,
    lambda request: InProcessLock(request.storage.url, request.options.lock_wait_ms),
    HUDI_LOCKS[LockKind.IN_PROCESS],
)
FILE = LockType(LockKind.FILE, lambda request: FileLock(request.storage, request.options.lock_wait_ms))
