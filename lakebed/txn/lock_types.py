"""From the name of a lock provider to the lock of a table.

A new provider is a file with its `LockType` and a line in `txn/options.py`. Other distributions register theirs, or
declare an entry point of the group `lakebed.lock_providers` under the provider's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakebed.errors import InvalidRequest
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import Clock, SystemClock
from lakebed.txn.locks import LockProvider
from lakebed.txn.options import LOCK_PROVIDER, LOCK_PROVIDERS, TxnOptions


@dataclass(frozen=True, slots=True)
class LockRequest:
    """The table to be locked and how; `properties` are the table's and the call's, for settings of a provider's own."""

    storage: Storage
    options: TxnOptions
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LockType:
    """One lock provider. `hudi_class` is what real Hudi calls a lock that keeps its writers out, too."""

    name: str
    make: Callable[[LockRequest], LockProvider]
    hudi_class: str | None = None


def register_lock_provider(lock_type: LockType) -> None:
    """Make a lock provider known to this process, under its name and that of Hudi's class."""
    LOCK_PROVIDERS.register(lock_type.name, lock_type, filter(None, (lock_type.hudi_class,)))


def lock_type(name: str) -> LockType:
    """The provider of a name; `InvalidRequest` when no such provider is registered."""
    found = LOCK_PROVIDERS.find(name, LockType)
    if found is None:
        raise InvalidRequest(f"{LOCK_PROVIDER}={name!r}: none of {', '.join(LOCK_PROVIDERS.words)}")
    return found


def lock_for(
    storage: Storage,
    options: TxnOptions,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
    properties: Mapping[str, str] | None = None,
) -> LockProvider:
    """The lock that the options name."""
    request = LockRequest(storage, options, clock or SystemClock(), sleep, properties or {})
    return lock_type(options.lock_provider).make(request)


def word_for_tables(name: str) -> str:
    """How a table's properties name the lock: by real Hudi's class, if it has one."""
    return lock_type(name).hudi_class or name
