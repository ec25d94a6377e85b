"""A clustering that dies at any step of the store: the table reads the same, and the next run finishes the job."""

from __future__ import annotations

from functools import cache

import pytest

from lakebed.errors import LakebedError
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.create.create_table import NewTable, create_table
from tests.simulation.write_cases import (
    FIRST,
    SCHEMA,
    Rows,
    by_key,
    check_recovered,
    data,
    leftovers,
    read,
    serious,
    table_on,
)
from tests.unit.services.crash_points import some_steps
from tests.unit.txn.tables import clone, txn_context_of

START_MS = 1_800_000_000_000
LATER_MS = 400_000
"""By then the lease of a process that died has run out."""
KINDS = {
    "lsm-v2": {"log_format": "v2"},
    "sorted-v1": {"log_format": "v1", "layout": "default"},
}
OPTIONS = {
    "lsm-v2": {},
    "sorted-v1": {"hoodie.clustering.plan.strategy.sort.columns": "v"},
}


@cache
def filled(kind: str) -> tuple[MemoryStorage, Rows]:
    storage = MemoryStorage()
    txn_context = txn_context_of(storage, ManualClock(START_MS))
    apart = {"hoodie.parquet.small.file.limit": "0"}
    create_table(
        storage, NewTable("t", SCHEMA, ("id",), ("p",), ("ts",), index="simple", properties=apart, **KINDS[kind])
    )
    table = table_on(storage, txn_context)
    table.bulk_insert(data(FIRST[:4]))
    table.bulk_insert(data(FIRST[4:]))
    table.upsert(data([("k4", 2, "p0", 44), ("k1", 2, "p1", 55)]))
    return storage, by_key(FIRST) | {"k4": ("k4", 2, "p0", 44), "k1": ("k1", 2, "p1", 55)}


def cluster(storage: Storage, kind: str, clock_ms: int) -> int:
    table = table_on(storage, txn_context_of(storage, ManualClock(clock_ms)))
    return len(table.services.cluster(OPTIONS[kind]))


@cache
def steps(kind: str) -> int:
    trial = FaultyStorage(clone(filled(kind)[0]))
    assert cluster(trial, kind, START_MS + 10_000) == 1
    return len(trial.ops)


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_after_a_step(kind: str) -> None:
    base, rows = filled(kind)
    total = steps(kind)
    assert total > 10
    for step in some_steps(total, 10):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            cluster(FaultyStorage(storage, FaultPlan(crash_after=step)), kind, START_MS + 10_000)
        assert read(storage) == rows, step
        cluster(storage, kind, START_MS + 10_000 + LATER_MS)
        check_done(storage, rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_fails_or_does_not_answer(kind: str) -> None:
    base, rows = filled(kind)
    for number, step in enumerate(some_steps(steps(kind), 6)):
        how = ("fail", "lose_ack")[number % 2]
        storage = clone(base)
        try:
            cluster(FaultyStorage(storage, FaultPlan(**{how: frozenset({step})})), kind, START_MS + 10_000)  # type: ignore[arg-type]
        except LakebedError:
            assert read(storage) == rows, step
        cluster(storage, kind, START_MS + 10_000 + LATER_MS)
        check_done(storage, rows)


def check_done(storage: MemoryStorage, rows: Rows) -> None:
    client = MetaClient.open(storage)
    assert not client.timeline.pending.instants
    assert read(storage) == rows
    assert leftovers(storage) == []
    table = table_on(storage, txn_context_of(storage, ManualClock(START_MS + 2 * LATER_MS)))
    assert serious(table.check()) == []
    found = table.inspect.file_slices().to_pylist()
    assert len(found) == 2, "a file group per partition"
    assert not any(one["log_files"] for one in found)
    check_recovered(storage, set(), rows, txn_context_of(storage, ManualClock(START_MS + 3 * LATER_MS)))
