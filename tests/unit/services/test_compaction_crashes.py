"""A compaction that dies at any step of the store: the table reads the same, and the next run finishes the job."""

from __future__ import annotations

import os
from functools import cache

import pytest

from lakebed.errors import LakebedError
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from tests.simulation.write_cases import Rows, by_key, check_recovered, data, fill, leftovers, read, serious, table_on
from tests.unit.services.compaction_cases import EASY
from tests.unit.txn.tables import clone, txn_context_of

START_MS = 1_800_000_000_000
LATER_MS = 400_000
"""By then the lease of a process that died has run out."""
STRIDE = 1 if os.environ.get("LAKEBED_ALL_KILLS") == "1" else 5
BOTH = [(kind, strategy) for kind in ("mor-v2", "mor-v1") for strategy in ("full", "log", "hybrid")]
RATIO = {"mor-v2": "3.48", "mor-v1": "3.2"}
"""Under which the partition with more logs is compacted fully and the other has its logs merged."""


@cache
def filled(kind: str) -> tuple[MemoryStorage, Rows]:
    storage = MemoryStorage()
    txn_context = txn_context_of(storage, ManualClock(START_MS))
    rows = fill(storage, kind, txn_context)
    table = table_on(storage, txn_context)
    more = [[("k1", 3, "p1", 31), ("k2", 3, "p0", 32)], [("k1", 4, "p1", 41), ("k4", 4, "p0", 42)]]
    for batch in more:
        table.upsert(data(batch))  # type: ignore[arg-type]
        rows |= by_key(batch)  # type: ignore[arg-type]
    table.delete(keys=[{"id": "k0", "p": "p0"}])
    del rows["k0"]
    return storage, rows


def mixed(kind: str) -> dict[str, str]:
    return {**EASY, "lakebed.compaction.hybrid.log.ratio": RATIO[kind]}


def compact(storage: Storage, kind: str, strategy: str, clock_ms: int) -> int:
    table = table_on(storage, txn_context_of(storage, ManualClock(clock_ms)))
    return len(table.services.compact(strategy, options=mixed(kind)))


@pytest.mark.parametrize("kind", RATIO)
def test_a_hybrid_plan_has_both_kinds_here(kind: str) -> None:
    found = table_on(filled(kind)[0]).services.explain_compaction("hybrid", options=mixed(kind))
    assert sorted(str(one.kind) for one in found.decisions) == ["FULL", "LOG"], found.explain()


@cache
def steps(kind: str, strategy: str) -> int:
    trial = FaultyStorage(clone(filled(kind)[0]))
    assert compact(trial, kind, strategy, START_MS + 10_000)
    return len(trial.ops)


@pytest.mark.parametrize(("kind", "strategy"), BOTH)
def test_a_crash_after_every_step(kind: str, strategy: str) -> None:
    base, rows = filled(kind)
    total = steps(kind, strategy)
    assert total > 10
    turn = BOTH.index((kind, strategy)) % STRIDE
    for step in (*range(1 + turn, total, STRIDE), total):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            compact(FaultyStorage(storage, FaultPlan(crash_after=step)), kind, strategy, START_MS + 10_000)
        assert read(storage) == rows, step
        compact(storage, kind, strategy, START_MS + 10_000 + LATER_MS)
        check_done(storage, rows, strategy)


@pytest.mark.parametrize(("kind", "strategy"), BOTH)
def test_a_store_that_fails_or_does_not_answer(kind: str, strategy: str) -> None:
    base, rows = filled(kind)
    total = steps(kind, strategy)
    for number, step in enumerate(range(2, total, 4 * STRIDE)):
        how = ("fail", "lose_ack")[number % 2]
        storage = clone(base)
        try:
            compact(FaultyStorage(storage, FaultPlan(**{how: frozenset({step})})), kind, strategy, START_MS + 10_000)  # type: ignore[arg-type]
        except LakebedError:
            assert read(storage) == rows, step
        compact(storage, kind, strategy, START_MS + 10_000 + LATER_MS)
        check_done(storage, rows, strategy)


def check_done(storage: MemoryStorage, rows: Rows, strategy: str) -> None:
    client = MetaClient.open(storage)
    assert not client.timeline.pending.instants
    assert read(storage) == rows
    assert leftovers(storage) == []
    table = table_on(storage, txn_context_of(storage, ManualClock(START_MS + 2 * LATER_MS)))
    assert serious(table.check()) == []
    if strategy == "full":
        assert not any(one["log_files"] for one in table.inspect.file_slices().to_pylist())
    else:
        words = [one["operation"] for one in table.inspect.timeline().to_pylist()]
        assert {"COMPACT", "LOG_COMPACT"}.intersection(words)
    check_recovered(storage, set(), rows, txn_context_of(storage, ManualClock(START_MS + 3 * LATER_MS)))
