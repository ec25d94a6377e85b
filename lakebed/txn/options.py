"""The options of transactions: the concurrency mode, the lock, and when a writer without heartbeat counts as dead.

Who else may write is a fact of the table, and so is the lock of tables with several writers: these are the options that
a call requests, and `txn/mode.py` combines them with the table's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.config.option import NUMBER, choice_of, option, read_options, registered, to_properties
from lakebed.errors import InvalidRequest
from lakebed.registry import Registry

_MS = 1000
MODE = "hoodie.write.concurrency.mode"
LOCK_PROVIDER = "hoodie.write.lock.provider"


class Concurrency(StrEnum):
    """Who else may write at the same time, and what happens when two touch the same file group."""

    SINGLE_WRITER = "single_writer"
    OPTIMISTIC = "optimistic_concurrency_control"
    NON_BLOCKING = "non_blocking_concurrency_control"

    @property
    def has_others(self) -> bool:
        """Whether a pending write may belong to another writer that is still running."""
        return self is not Concurrency.SINGLE_WRITER


class FailedWrites(StrEnum):
    """When a write undoes the pending writes of others: at once, when their heartbeat stopped, or not at all."""

    EAGER = "EAGER"
    LAZY = "LAZY"
    NEVER = "NEVER"


class LockKind(StrEnum):
    """The lock providers of this package: they need nothing but the table."""

    STORAGE = "storage"
    FILE_SYSTEM = "file_system"
    IN_PROCESS = "in_process"
    FILE = "file"


_CLASSES = "org.apache.hudi.client.transaction.lock."
HUDI_LOCKS = {
    LockKind.STORAGE: f"{_CLASSES}StorageBasedLockProvider",
    LockKind.FILE_SYSTEM: f"{_CLASSES}FileSystemBasedLockProvider",
    LockKind.IN_PROCESS: f"{_CLASSES}InProcessLockProvider",
}
"""The classes by which real Hudi knows these locks."""
LOCK_PROVIDERS = Registry(
    "lakebed.lock_providers",
    {
        LockKind.STORAGE: "lakebed.txn.lock_providers:STORAGE",
        HUDI_LOCKS[LockKind.STORAGE]: LockKind.STORAGE,
        LockKind.FILE_SYSTEM: "lakebed.txn.lock_providers:FILE_SYSTEM",
        HUDI_LOCKS[LockKind.FILE_SYSTEM]: LockKind.FILE_SYSTEM,
        LockKind.IN_PROCESS: "lakebed.txn.lock_providers:IN_PROCESS",
        HUDI_LOCKS[LockKind.IN_PROCESS]: LockKind.IN_PROCESS,
        LockKind.FILE: "lakebed.txn.lock_providers:FILE",
    },
)


NEW_TABLES = Concurrency.SINGLE_WRITER
"""The mode of tables that are created here, if no other is requested."""


@dataclass(frozen=True, slots=True)
class TxnOptions:
    """The options of transactions."""

    concurrency: Concurrency | None = option(  # noqa: RUF009 (a field, not a shared value)
        MODE,
        choice_of(Concurrency),
        None,
        "Who else may write. Recorded in the table; `single_writer` where the table states none. A call may request a "
        "stricter mode of a single writer's table, which is then recorded there, and never a looser one.",
    )
    failed_writes: FailedWrites | None = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.clean.failed.writes.policy",
        choice_of(FailedWrites),
        None,
        "When pending writes of others are rolled back: by default EAGER for a single writer, and LAZY, when their "
        "heartbeat stopped, where there are several; EAGER is refused there.",
        ("hoodie.cleaner.policy.failed.writes",),
    )
    heartbeat_interval_ms: int = option(
        "hoodie.client.heartbeat.interval_in_ms", NUMBER, 60_000, "How often a writer shows that it is alive."
    )
    heartbeat_misses: int = option(
        "hoodie.client.heartbeat.tolerable.misses", NUMBER, 2, "After how many missed heartbeats a writer is dead."
    )
    lock_provider: str = option(
        LOCK_PROVIDER,
        registered(LOCK_PROVIDERS),
        LockKind.STORAGE,
        "What keeps two commits apart; with several writers the one that the table names. `file_system` keeps real "
        "Hudi apart as well, on a local disk.",
    )
    lock_wait_ms: int = option("hoodie.write.lock.wait_time_ms", NUMBER, 60_000, "How long to wait for the table lock.")
    lock_validity_s: int = option(
        "hoodie.write.lock.storage.validity.timeout.secs",
        NUMBER,
        300,
        "After how long the lock of a writer that vanished is free again.",
    )
    lock_renew_s: int = option(
        "hoodie.write.lock.storage.renew.interval.secs", NUMBER, 30, "How often a held lock is renewed."
    )

    def __post_init__(self) -> None:
        if min(self.heartbeat_interval_ms, self.heartbeat_misses, self.lock_validity_s, self.lock_renew_s) <= 0:
            raise InvalidRequest("heartbeat and lock intervals must be positive")
        if self.lock_wait_ms < 0 or self.lock_renew_s >= self.lock_validity_s:
            raise InvalidRequest("a lock must be renewed before it expires, and waiting times are not negative")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TxnOptions:
        return cls(**read_options(cls, properties))

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)

    @property
    def heartbeat_expiry_ms(self) -> int:
        return self.heartbeat_interval_ms * self.heartbeat_misses

    @property
    def lock_validity_ms(self) -> int:
        return self.lock_validity_s * _MS
