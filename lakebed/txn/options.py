"""What a writer may choose about commits: how others are kept out, and when a silent writer counts as dead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.config.option import NUMBER, choice, choice_of, option, read_options, to_properties
from lakebed.errors import InvalidRequest

_MS = 1000


class Concurrency(StrEnum):
    """Who else may write at the same time, and what happens when two touch the same file group."""

    SINGLE_WRITER = "single_writer"
    OPTIMISTIC = "optimistic_concurrency_control"
    NON_BLOCKING = "non_blocking_concurrency_control"


class FailedWrites(StrEnum):
    """When a write undoes the pending writes of others: at once, when their heartbeat stopped, or not at all."""

    EAGER = "EAGER"
    LAZY = "LAZY"
    NEVER = "NEVER"


class LockKind(StrEnum):
    """The lock providers that need nothing but the table."""

    STORAGE = "storage"
    IN_PROCESS = "in_process"
    FILE = "file"


_LOCKS = {
    "storage": LockKind.STORAGE,
    "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider": LockKind.STORAGE,
    "in_process": LockKind.IN_PROCESS,
    "org.apache.hudi.client.transaction.lock.InProcessLockProvider": LockKind.IN_PROCESS,
    "file": LockKind.FILE,
}


@dataclass(frozen=True, slots=True)
class TxnOptions:
    """The options of transactions."""

    concurrency: Concurrency = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.write.concurrency.mode", choice_of(Concurrency), Concurrency.SINGLE_WRITER, "Who else may write."
    )
    failed_writes: FailedWrites = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.clean.failed.writes.policy",
        choice_of(FailedWrites),
        FailedWrites.EAGER,
        "When pending writes of others are rolled back; with several writers EAGER means LAZY.",
        ("hoodie.cleaner.policy.failed.writes",),
    )
    heartbeat_interval_ms: int = option(
        "hoodie.client.heartbeat.interval_in_ms", NUMBER, 60_000, "How often a writer shows that it is alive."
    )
    heartbeat_misses: int = option(
        "hoodie.client.heartbeat.tolerable.misses", NUMBER, 2, "After how many missed heartbeats a writer is dead."
    )
    lock_provider: LockKind = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.write.lock.provider", choice(_LOCKS), LockKind.STORAGE, "What keeps two commits apart."
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
    def policy(self) -> FailedWrites:
        """The policy in force: what others have pending may be undone at once only where there are no others."""
        alone = self.concurrency is Concurrency.SINGLE_WRITER
        return FailedWrites.LAZY if self.failed_writes is FailedWrites.EAGER and not alone else self.failed_writes

    @property
    def heartbeat_expiry_ms(self) -> int:
        return self.heartbeat_interval_ms * self.heartbeat_misses

    @property
    def lock_validity_ms(self) -> int:
        return self.lock_validity_s * _MS
