"""Table locks: one commit at a time.

    .hoodie/.locks/table_lock.json     {"expired": false, "validUntil": <epoch ms>, "owner": "<unique per acquisition>"}

The default lock is this lease, which works on every store and is the one that Hudi's storage-based provider uses. It is
taken by `put_if_absent`, or by `compare_and_swap` once the former lease was released or expired, and a thread renews
it. A swap that succeeds proves that nobody held the lock in between: the owner is new for every acquisition, so no
content ever repeats. A holder that was paused finds out by `confirm`, which it calls right before it publishes.

A holder that was killed leaves its lease behind. On a local disk the next writer of the same machine sees from the
owner's name that this process is gone, and takes the lease over at once: a process that is gone has no request under
way. On an object store a request may outlive its sender, so there the lease has to expire (5 minutes by default), as it
has to when the dead writer ran on another machine.

Other providers implement `LockProvider`; `txn/lock_providers.py` has them, and `txn/lock_types.py` knows their names.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from lakebed.errors import ConflictError, CorruptTable, StorageUnavailable
from lakebed.format.names import LOCK_FILE
from lakebed.storage.process import Process
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import Clock, SystemClock, instant_time_of_ms
from lakebed.txn.options import TxnOptions
from lakebed.txn.periodic import Periodic

_DRIFT_MS = 500
"""How far the clocks of two lock holders may be apart; a lease is taken over only when it is expired by more."""
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_TRIES = 5


class Lease(Protocol):
    """A lock that is held."""

    def confirm(self) -> None:
        """Raise `ConflictError` unless the lock is still ours, and make sure that it stays so for a while."""
        ...

    def lapsed(self) -> bool:
        """Whether somebody else may have held the lock since the last `confirm`."""
        ...


class LockProvider(Protocol):
    """What keeps two commits of one table apart."""

    def hold(self) -> AbstractContextManager[Lease]:
        """The lock for the length of a `with` block; `ConflictError` when it does not come free in time."""
        ...


@dataclass(frozen=True, slots=True)
class LockContent:
    """The content of the lock file."""

    owner: str
    valid_until_ms: int
    expired: bool = False

    @classmethod
    def parse(cls, data: bytes) -> LockContent:
        try:
            loaded = json.loads(data)
            content = cls(loaded["owner"], loaded["validUntil"], loaded["expired"])
        except (ValueError, KeyError, TypeError, RecursionError):
            content = None
        kinds = (str, int, bool)
        if content is None or (type(content.owner), type(content.valid_until_ms), type(content.expired)) != kinds:
            raise CorruptTable("the lock file cannot be read", file=LOCK_FILE, hint="Delete it when nobody writes.")
        return content

    def render(self) -> bytes:
        return json.dumps({"expired": self.expired, "validUntil": self.valid_until_ms, "owner": self.owner}).encode()


@dataclass(frozen=True)
class StorageLock:
    """The lease in the table itself."""

    storage: Storage
    options: TxnOptions = field(default_factory=TxnOptions)
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        lease = self._acquire()
        periodic = Periodic("lakebed-lock", self.options.lock_renew_s, lease.renew)
        periodic.start()
        try:
            yield lease
        finally:
            periodic.stop()
            with suppress(StorageUnavailable):  # it expires by itself
                lease.release()

    def _acquire(self) -> StorageLease:
        lease = StorageLease(self, f"{Process.current()}:{uuid4()}")
        waiting = Patience(self.options.lock_wait_ms, self.sleep)
        while True:
            problem: StorageUnavailable | None = None
            try:
                holder = lease.take()
            except StorageUnavailable as error:
                holder, problem = None, error
            if holder is None and problem is None:
                return lease
            if not waiting.pause():
                raise problem or _held(holder)


class StorageLease:
    """One acquisition of a `StorageLock`; the renewing thread and the holder share it."""

    def __init__(self, lock: StorageLock, owner: str) -> None:
        self.owner = owner
        self.valid_until_ms = 0
        self._lock = lock
        self._mutex = threading.Lock()

    def take(self) -> LockContent | None:
        """Try once: None when the lock is ours now, else who holds it."""
        storage, found = self._lock.storage, self._read()
        if found is None:
            content = self._next()
            if not storage.put_if_absent(LOCK_FILE, content.render()):
                return LockContent("another writer", content.valid_until_ms)
            self._until(content)
            return None
        current, version = found
        if current.owner == self.owner:  # an earlier try succeeded, but its answer was lost
            self._until(current)
            return None
        if self._is_held(current):
            return current
        content = self._next()
        if not storage.compare_and_swap(LOCK_FILE, content.render(), version):
            return current
        self._until(content)
        return None

    def _is_held(self, current: LockContent) -> bool:
        if current.expired or self._lock.clock.now_ms() > current.valid_until_ms + _DRIFT_MS:
            return False
        owner = Process.parse(current.owner.partition(":")[0])
        return owner is None or not owner.is_gone or not self._lock.storage.is_local

    def renew(self) -> bool:
        """Extend the lease; False when another writer has it now."""
        return self._swap(expired=False)

    def release(self) -> None:
        self._swap(expired=True)

    def confirm(self) -> None:
        if not self.renew():
            found = self._read()
            raise ConflictError(
                f"the table lock was lost to {found[0].owner if found else 'nobody known'} before the commit",
                file=LOCK_FILE,
                hint="Nothing was published; try again.",
            )

    def lapsed(self) -> bool:
        return self._lock.clock.now_ms() >= self.valid_until_ms and not self.renew()

    def _swap(self, *, expired: bool) -> bool:
        """Replace our last content by the next one; after a lost answer the file itself shows who owns the lock."""
        with self._mutex:
            for _ in range(_TRIES):
                found = self._read()
                if found is None or found[0].owner != self.owner:
                    return False
                content = self._next(expired=expired)
                with suppress(StorageUnavailable):
                    if self._lock.storage.compare_and_swap(LOCK_FILE, content.render(), found[1]):
                        self._until(content)
                        return True
        raise StorageUnavailable("the table lock cannot be renewed", file=LOCK_FILE)

    def _next(self, *, expired: bool = False) -> LockContent:
        """Unlike the last content even within a millisecond: some stores derive versions from the bytes."""
        until = self._lock.clock.now_ms() + self._lock.options.lock_validity_ms
        return LockContent(self.owner, max(until, self.valid_until_ms + 1), expired)

    def _until(self, content: LockContent) -> None:
        self.valid_until_ms = content.valid_until_ms

    def _read(self) -> tuple[LockContent, str] | None:
        try:
            data, version = self._lock.storage.read_versioned(LOCK_FILE)
        except FileNotFoundError:
            return None
        return LockContent.parse(data), version


@dataclass(slots=True)
class Patience:
    """Growing pauses until the time to wait is used up."""

    wait_ms: int
    sleep: Callable[[float], None]
    _pause_s: float = _FIRST_PAUSE_S
    _waited_s: float = 0.0

    def pause(self) -> bool:
        left = self.wait_ms / 1000 - self._waited_s
        if left <= 0:
            return False
        pause = min(self._pause_s, left)
        self.sleep(pause)
        self._waited_s += pause
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True


def _held(holder: LockContent | None) -> ConflictError:
    who = holder.owner if holder else "another writer"
    until = instant_time_of_ms(holder.valid_until_ms) if holder else "an unknown time"
    return ConflictError(
        f"the table lock is held by {who}, at least until {until} (UTC)",
        file=LOCK_FILE,
        hint="Try again; a writer that died on another machine, or over an object store, leaves its lock until then.",
    )
