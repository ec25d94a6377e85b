"""A resize that dies at any step of the store: the table reads the same, and the next run finishes the job."""

from __future__ import annotations

from functools import cache

import pytest

from lakebed.errors import LakebedError
from lakebed.format.names import HASHING_META_DIR
from lakebed.index.consistent import load_hashing
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.create.create_table import NewTable, create_table
from tests.simulation.write_cases import SCHEMA, Row, Rows, by_key, check_recovered, data, leftovers, read, table_on
from tests.unit.services.crash_points import some_steps
from tests.unit.txn.tables import clone, txn_context_of

START_MS = 1_800_000_000_000
LATER_MS = 400_000
"""By then the lease of a process that died has run out."""
KINDS = {"lsm-v2": {"log_format": "v2"}, "default-v1": {"log_format": "v1", "layout": "default"}}
ROWS: list[Row] = [(f"k{i}", 1, f"p{i % 2}", i) for i in range(24)]
UPDATES: list[Row] = [("k4", 2, "p0", 44), ("k1", 2, "p1", 55)]
PATHS = ("p=p0", "p=p1")
OPTIONS = {
    "split": {
        "hoodie.parquet.max.file.size": "1000",
        "hoodie.bucket.index.split.threshold": "1.0",
        "hoodie.bucket.index.max.num.buckets": "3",
        "hoodie.bucket.index.min.num.buckets": "3",
    },
    "merge": {"hoodie.bucket.index.min.num.buckets": "1"},
}
BUCKETS = {"split": 3, "merge": 1}


@cache
def filled(kind: str) -> tuple[MemoryStorage, Rows]:
    storage = MemoryStorage()
    txn_context = txn_context_of(storage, ManualClock(START_MS))
    index = {"index": "consistent_bucket", "num_buckets": 2}
    create_table(storage, NewTable("t", SCHEMA, ("id",), ("p",), ("ts",), **index, **KINDS[kind]))  # type: ignore[arg-type]
    table = table_on(storage, txn_context)
    table.upsert(data(ROWS))
    table.upsert(data(UPDATES))
    return storage, by_key(ROWS) | by_key(UPDATES)


def resize(storage: Storage, what: str, clock_ms: int) -> int:
    table = table_on(storage, txn_context_of(storage, ManualClock(clock_ms)))
    return len(table.services.cluster(OPTIONS[what]))


@cache
def steps(kind: str, what: str) -> int:
    trial = FaultyStorage(clone(filled(kind)[0]))
    assert resize(trial, what, START_MS + 10_000) == 1
    return len(trial.ops)


@pytest.mark.parametrize("what", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_after_a_step(kind: str, what: str) -> None:
    base, rows = filled(kind)
    total = steps(kind, what)
    assert total > 10
    last = total - 9  # around the commit is where the ring begins to count
    for step in sorted({*some_steps(total, 6), *range(last, total + 1)}):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            resize(FaultyStorage(storage, FaultPlan(crash_after=step)), what, START_MS + 10_000)
        assert read(storage) == rows, step
        check_rings(storage)
        resize(storage, what, START_MS + 10_000 + LATER_MS)
        check_done(storage, rows, what)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_fails_or_does_not_answer(kind: str) -> None:
    base, rows = filled(kind)
    total = steps(kind, "split")
    for number, step in enumerate(sorted({*some_steps(total, 4), *range(total - 6, total + 1)})):
        how = ("fail", "lose_ack")[number % 2]
        storage = clone(base)
        try:
            resize(FaultyStorage(storage, FaultPlan(**{how: frozenset({step})})), "split", START_MS + 10_000)  # type: ignore[arg-type]
        except LakebedError:
            assert read(storage) == rows, step
        check_rings(storage)
        resize(storage, "split", START_MS + 10_000 + LATER_MS)
        check_done(storage, rows, "split")


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_after_a_crash_finds_the_buckets_that_count(kind: str) -> None:
    """The writer comes first: what is planned it does not touch, what is done it knows."""
    base, rows = filled(kind)
    total = steps(kind, "split")
    for step in some_steps(total, 6):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            resize(FaultyStorage(storage, FaultPlan(crash_after=step)), "split", START_MS + 10_000)
        table = table_on(storage, txn_context_of(storage, ManualClock(START_MS + 10_000 + LATER_MS)))
        try:
            table.upsert(data([("k4", 3, "p0", 45)]))
        except LakebedError as error:
            assert "is being clustered" in str(error)
            assert read(storage) == rows
        else:
            assert read(storage) == rows | by_key([("k4", 3, "p0", 45)])


def check_rings(storage: MemoryStorage) -> None:
    """The buckets that a writer would take are those that readers know."""
    client = MetaClient.open(storage)
    view = FileSystemView.of(client)
    for path in PATHS:
        ring = load_hashing(client, path)
        assert ring is not None
        assert {file_slice.file_group.file_id for file_slice in view.slices(path)} <= {
            node.file_id for node in ring.ring
        }


def check_done(storage: MemoryStorage, rows: Rows, what: str) -> None:
    client = MetaClient.open(storage)
    assert not client.timeline.pending.instants
    assert read(storage) == rows
    assert leftovers(storage) == []
    check_rings(storage)
    for path in PATHS:
        ring = load_hashing(client, path)
        assert ring is not None
        assert len(ring.ring) == BUCKETS[what]
        known = {info.name for info in storage.list(f"{HASHING_META_DIR}/{path}")}
        assert len([name for name in known if name.endswith(".hashing_meta")]) == 2, "the first ring and the one now"
    check_recovered(storage, set(), rows, txn_context_of(storage, ManualClock(START_MS + 3 * LATER_MS)))
