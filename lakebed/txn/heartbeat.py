"""Heartbeats: a file whose modification time shows that the writer of an instant is alive.

    .hoodie/.heartbeat/<requested time>     zero bytes; touched every interval; deleted when the instant completed or
                                            was undone

The file is created by the claim of the requested time (`instants.py`), so the writer of a requested instant without one
is dead. Ages are differences of the store's own times: `StoreClock` writes a file and looks at its time, because the
clock of this machine and that of the store may be minutes apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import StorageUnavailable
from lakebed.format.names import TEMP_DIR, heartbeat_file
from lakebed.storage.local import temporary_name
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import Clock
from lakebed.txn.options import TxnOptions
from lakebed.txn.periodic import Periodic


@dataclass(frozen=True, slots=True)
class StoreClock:
    """The current time of the clock that sets the modification times of the store's files."""

    storage: Storage

    def now_ms(self) -> int:
        probe = f"{TEMP_DIR}/{temporary_name()}"
        self.storage.put(probe, b"")
        try:
            found = self.storage.stat(probe)
        finally:
            self.storage.delete([probe])
        if found is None:
            raise StorageUnavailable("a file that was just written is not there", file=probe)
        return found.modified_ms


def is_expired(storage: Storage, requested_time: str, clock: Clock, options: TxnOptions) -> bool:
    """Whether the writer of this requested time counts as dead. `clock` must be comparable with the store's times.

    The answer may be out of date when it arrives: a caller that acts on it checks again under the table lock whether
    the instant is still pending, for a writer that just completed has removed its heartbeat as well.
    """
    beat = storage.stat(heartbeat_file(requested_time))
    return beat is None or clock.now_ms() - beat.modified_ms > options.heartbeat_expiry_ms


class Heartbeat:
    """Keeps the heartbeat of one requested time fresh. The file itself exists already: creating it was the claim."""

    def __init__(self, storage: Storage, requested_time: str, options: TxnOptions) -> None:
        self._storage = storage
        self.requested_time = requested_time
        self._path = heartbeat_file(requested_time)
        self._periodic = Periodic(
            f"lakebed-heartbeat-{requested_time}", options.heartbeat_interval_ms / 1000, self.beat
        )

    def start(self) -> Heartbeat:
        self._periodic.start()
        return self

    def beat(self) -> bool:
        """Touch the file, unless somebody removed it: a writer that others took for dead must not look alive again."""
        if not self.is_there():
            return False
        self._storage.put(self._path, b"")
        return True

    def is_there(self) -> bool:
        return self._storage.stat(self._path) is not None

    def stop(self) -> None:
        """No more beats; the file stays, and goes stale unless the instant is finished."""
        self._periodic.stop()

    def remove(self) -> None:
        """The instant is finished, one way or the other."""
        self.stop()
        self._storage.delete([self._path])
