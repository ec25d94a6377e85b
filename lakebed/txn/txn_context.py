"""What all transactions of a writer share: lock, clock, options, and the hook that updates the metadata table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lakebed.errors import InvalidRequest
from lakebed.model.actions import ActionBody
from lakebed.model.instant import Instant
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import Clock, SystemClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.heartbeat import StoreClock
from lakebed.txn.lock_types import lock_for
from lakebed.txn.locks import LockProvider
from lakebed.txn.options import TxnOptions


class BeforePublish(Protocol):
    """What must be on storage before an action becomes visible: the metadata table's part of it.

    Called under the table lock with the table as it is now, the action in its inflight state and what is about to be
    published. Returns the greatest completion time it used, if any; the action completes after it. It may be called
    again for the same instant, when a rollback is finished after a crash, and must then do nothing twice. An exception
    stops the commit.
    """

    def __call__(self, client: MetaClient, instant: Instant, body: ActionBody) -> str | None: ...


@dataclass(frozen=True)
class TxnContext:
    """How a writer's transactions are run."""

    lock: LockProvider
    options: TxnOptions = field(default_factory=TxnOptions)
    clock: Clock = field(default_factory=SystemClock)
    before_publish: BeforePublish | None = None
    sleep: Callable[[float], None] = time.sleep
    among_others: bool = False
    """Whether this is never the only writer, as with a watcher: a single writer's table then becomes optimistic."""
    on_change: Callable[[MetaClient], object] | None = None
    """Called with the table as each plan and commit of this writer left it, so that nobody lists it again for that."""

    @classmethod
    def of(
        cls,
        storage: Storage,
        options: TxnOptions | None = None,
        clock: Clock | None = None,
        before_publish: BeforePublish | None = None,
    ) -> TxnContext:
        """The context with the lock that the options name."""
        chosen, ticking = options or TxnOptions(), clock or SystemClock()
        return cls(lock_for(storage, chosen, ticking), chosen, ticking, before_publish)

    def notify(self, client: MetaClient) -> None:
        """Pass a newer state of the table to `on_change`, if there is one."""
        if self.on_change is not None:
            self.on_change(client)

    def store_clock(self, storage: Storage) -> Clock:
        """The clock by which the ages of files are measured."""
        return StoreClock(storage)

    def require_metadata_writer(self, client: MetaClient) -> None:
        """Refuse a write that skips the metadata table: one that misses a commit hides its rows, without an error."""
        if client.config.metadata_partitions and self.before_publish is None:
            raise InvalidRequest(
                f"the table has a metadata table ({', '.join(client.config.metadata_partitions)}), "
                "which this writer would leave behind",
                hint="Write with Apache Hudi, which maintains it; or give drop_metadata=True to lakebed.open or to the "
                "write (--drop-metadata in the shell, lakebed.drop.metadata=true as an option), which removes the "
                "metadata table first: its statistics and indexes go with it, rows do not.",
            )
