"""A small table in memory and a write to it, for tests of transactions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from lakebed.format.names import LOCK_FILE, PROPERTIES_FILE, BaseFileName, LogFileName
from lakebed.format.table_files import CHECKSUM_KEY, render_properties, table_checksum
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.files import LogKind
from lakebed.model.instant import Action, Instant
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.timeline.clock import Clock
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.locks import Lease, LockProvider, StorageLock
from lakebed.txn.options import TxnOptions
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import BeforePublish, TxnContext
from lakebed.view.file_system_view import FileSystemView

GROUPS = ("11111111-0000-4000-8000-000000000000-0", "22222222-0000-4000-8000-000000000000-0")


def make_table(storage: Storage, **more: str) -> None:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "p",
        "hoodie.table.timeline.timezone": "UTC",
    } | {key.replace("__", "."): value for key, value in more.items()}
    properties[CHECKSUM_KEY] = str(table_checksum(properties))
    storage.put(PROPERTIES_FILE, render_properties(properties))
    for partition in ("p0", "p1"):
        text = b"commitTime=20260101000000000\npartitionDepth=1\n"
        storage.put(f"{partition}/.hoodie_partition_metadata", text)


def new_table(**more: str) -> MemoryStorage:
    storage = MemoryStorage()
    make_table(storage, **more)
    return storage


def clone(storage: MemoryStorage) -> MemoryStorage:
    """The same bytes, from here on apart."""
    return copy.deepcopy(storage)


def txn_context_of(
    storage: Storage,
    clock: Clock | None = None,
    options: TxnOptions | None = None,
    before_publish: BeforePublish | None = None,
) -> TxnContext:
    """A control that never really sleeps: waiting moves the clock."""
    ticking = clock or ManualClock()
    chosen = options or TxnOptions(lock_wait_ms=1000)

    def sleep(seconds: float) -> None:
        if isinstance(ticking, ManualClock):
            ticking.advance(max(1, round(seconds * 1000)))

    return TxnContext(StorageLock(storage, chosen, ticking, sleep), chosen, ticking, before_publish, sleep)


def base_name(requested_time: str, group: str, token: str = "0-0-0") -> str:
    return BaseFileName(group, token, requested_time, "parquet").render()


def log_name(requested_time: str, group: str, token: str = "0-0-0") -> str:
    return LogFileName(group, requested_time, 1, token, LogKind.LOG, False).render()


def put_file(txn: Transaction, partition: str, name: str, data: bytes = b"rows") -> None:
    txn.mark(partition, name)
    with txn.snapshot.storage.open_output(f"{partition}/{name}") as out:
        out.write(data)


def stat_of(partition: str, group: str, name: str, size: int = 4) -> WriteStat:
    is_log = name.startswith(".")
    return WriteStat(
        group, f"{partition}/{name}", partition, "null", file_size=size, log_files=(name,) if is_log else ()
    )


def metadata_of(files: Mapping[str, tuple[str, str]], operation: str = "UPSERT", **more: object) -> CommitMetadata:
    """Commit metadata of one file per partition, given as group and file name."""
    stats = {partition: (stat_of(partition, group, name),) for partition, (group, name) in files.items()}
    return CommitMetadata(operation, stats, {"schema": "{}"}, **more)  # type: ignore[arg-type]


def write(
    storage: Storage,
    txn_context: TxnContext,
    *,
    action: Action = Action.DELTA_COMMIT,
    groups: tuple[str, str] = GROUPS,
    lost_attempt: bool = False,
) -> Instant:
    """One whole write of a base file in each partition, and an attempt that lost."""
    with Transaction.begin(MetaClient.open(storage), action, txn_context, operation="UPSERT") as txn:
        files = {}
        for partition, group in zip(("p0", "p1"), groups, strict=True):
            name = base_name(txn.requested_time, group)
            if lost_attempt:
                put_file(txn, partition, base_name(txn.requested_time, group, "0-0-1"))
            put_file(txn, partition, name)
            files[partition] = (group, name)
        return txn.commit(metadata_of(files))


def visible(storage: Storage) -> set[str]:
    """The data files that a reader's latest snapshot uses."""
    view = FileSystemView.of(MetaClient.open(storage))
    slices = [slice_ for partition in view.partitions() for slice_ in view.slices(partition)]
    return {file.name for slice_ in slices for file in (slice_.base_file, *slice_.log_files) if file is not None}


def paths(storage: Storage) -> set[str]:
    return {info.path for info in storage.list("", recursive=True)} - {LOCK_FILE}


def leftovers(storage: Storage) -> set[str]:
    """Markers, heartbeats and temporaries: nothing of these outlives a write."""
    return {path for path in paths(storage) if path.startswith((".hoodie/.heartbeat", ".hoodie/.temp"))}


def of_begin(storage: Storage, requested_time: str) -> set[str]:
    """Whatever carries a begin in its path, the rollback's own plan apart."""
    return {path for path in paths(storage) if requested_time in path}


class MeanwhileLock:
    """A lock before whose n-th acquisition another does something: what was decided earlier is then out of date."""

    def __init__(self, lock: LockProvider, act: Callable[[], object], at: int = 1) -> None:
        self._lock, self._act, self._left = lock, act, at

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        self._left -= 1
        if self._left == 0:
            self._act()
        with self._lock.hold() as lease:
            yield lease


def meanwhile(txn_context: TxnContext, act: Callable[[], object], at: int = 1) -> TxnContext:
    """The control of a writer that is overtaken before it gets the lock for the n-th time."""
    return replace(txn_context, lock=MeanwhileLock(txn_context.lock, act, at))
