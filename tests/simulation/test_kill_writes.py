"""Writers that die, or whose store fails, at every step of every operation: all or nothing, and the next write heals.

In memory the steps of the storage protocol fail: a crash after a step (one before it is one after the step before), a
store that tears, refuses or forgets to answer. On a real disk a forked child is killed by SIGKILL in the middle of the
system calls of `LocalStorage`. By default points spread over each operation are tried, of kills LAKEBED_KILLS=<number>
per operation; LAKEBED_ALL_KILLS=1 tries every point of everything, which takes an hour.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import LakebedError
from lakebed.storage import local, posix
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from tests.simulation.write_cases import (
    CASES,
    KINDS,
    Rows,
    check_recovered,
    fill,
    make_table,
    read,
    table_on,
)
from tests.unit.txn.tables import clone, paths, txn_context_of

KILLS = int(os.environ.get("LAKEBED_KILLS", "2"))
EVERYTHING = os.environ.get("LAKEBED_ALL_KILLS") == "1"
START_MS = 1_800_000_000_000
LATER_MS = 400_000
"""By then the lease of a writer that died has run out."""
BOTH = [(kind, name) for kind in KINDS for name in CASES]


@cache
def filled(kind: str) -> tuple[MemoryStorage, Rows]:
    storage = MemoryStorage()
    rows = fill(storage, kind, txn_context_of(storage, ManualClock(START_MS)))
    return storage, rows


def run(storage: Storage, name: str, clock_ms: int) -> None:
    CASES[name].run(table_on(storage, txn_context_of(storage, ManualClock(clock_ms))))


@cache
def steps(kind: str, name: str) -> list[Any]:
    """The steps of an operation when nothing fails."""
    trial = FaultyStorage(clone(filled(kind)[0]))
    run(trial, name, START_MS + 10_000)
    return trial.ops


def some(steps: list[int], wanted: int, turn: int) -> list[int]:
    """All of them, or so many spread over the range; another offset each turn, so that operations cover each other."""
    if EVERYTHING or len(steps) <= wanted:
        return steps
    stride = len(steps) / wanted
    return sorted({steps[min(len(steps) - 1, int(i * stride + turn % stride))] for i in range(wanted)})


def try_once(kind: str, name: str, plan: FaultPlan) -> bool:
    """Run an operation with a fault; whether it was seen to take effect."""
    base, before = filled(kind)
    after = CASES[name].model(before)
    storage = clone(base)
    acknowledged = False
    with contextlib.suppress(SimulatedCrash, LakebedError):
        run(FaultyStorage(storage, plan), name, START_MS + 10_000)
        acknowledged = True
    found = read(storage)
    assert found in (before, after), plan
    assert found == after or not acknowledged, plan
    assert found is not None
    later = txn_context_of(storage, ManualClock(START_MS + 10_000 + LATER_MS))
    check_recovered(storage, paths(base), found, later)
    return found == after


@pytest.mark.parametrize(("kind", "name"), BOTH)
def test_a_crash_after_every_step(kind: str, name: str) -> None:
    numbers = [op.number for op in steps(kind, name)]
    assert len(numbers) >= 8
    chosen = {*some(numbers, 6, BOTH.index((kind, name))), numbers[-1]}
    seen = [try_once(kind, name, FaultPlan(crash_after=step)) for step in sorted(chosen)]
    assert seen == sorted(seen), "once it is there it stays"
    assert seen[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["upsert", "overwrite"])
def test_a_file_that_is_torn(kind: str, name: str) -> None:
    torn = [op.number for op in steps(kind, name) if op.kind == "close"]
    assert torn
    for step in torn:
        assert not try_once(kind, name, FaultPlan(tear=step))


@pytest.mark.parametrize(("kind", "name"), BOTH)
def test_a_store_that_refuses_or_does_not_answer(kind: str, name: str) -> None:
    turn = BOTH.index((kind, name))
    numbers = [op.number for op in steps(kind, name)]
    for how in ("fail", "lose_ack"):
        for step in some(numbers, 3, turn):
            try_once(kind, name, FaultPlan(**{how: frozenset({step})}))


def test_a_disk_that_is_full_for_good() -> None:
    """From one step on nothing can be written any more, not even the rollback; when there is room again all is well."""
    unpublished = [op.number for op in steps("mor-v2", "upsert")]
    unpublished = unpublished[: next(op.number for op in steps("mor-v2", "upsert") if op.path.endswith(".deltacommit"))]
    for first in some(unpublished, 4, 1):
        assert not try_once("mor-v2", "upsert", FaultPlan(fail=frozenset(range(first, first + 500))))


@pytest.mark.parametrize("kind", KINDS)
def test_creating_a_table(kind: str) -> None:
    trial = FaultyStorage(MemoryStorage())
    make_table(trial, kind)
    assert len(trial.ops) == 1, "one atomic step makes the table"
    for plan in (FaultPlan(crash_before=1), FaultPlan(crash_after=1), FaultPlan(lose_ack=frozenset({1}))):
        storage = MemoryStorage()
        with contextlib.suppress(SimulatedCrash, LakebedError):
            make_table(FaultyStorage(storage, plan), kind)
        assert read(storage) in (None, {})
        make_table(storage, kind)
        assert read(storage) == {}
        check_recovered(storage, set(), {}, txn_context_of(storage, ManualClock(START_MS)))


# ---------------------------------------------------------------------- real processes, real disk


class _Counted:
    """The module `os` as `LocalStorage` sees it, with a SIGKILL in front of the n-th call that changes something."""

    CHANGES = frozenset({"open", "write", "fsync", "link", "rename", "unlink", "mkdir", "rmdir"})

    def __init__(self, deadly: int | None) -> None:
        self.calls = 0
        self._deadly = deadly

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in self.CHANGES:
            return found

        def counted(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            return found(*given, **named)

        return counted


@contextlib.contextmanager
def counting(deadly: int | None = None) -> Iterator[_Counted]:
    counter = _Counted(deadly)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "os", counter)
        patch.setattr(posix, "os", counter)
        yield counter


def in_child(act: Any, deadly: int) -> int:
    """Run something in a forked child that is killed at a call; its status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with counting(deadly):
                act()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child did not end")


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    for kind in KINDS:
        fill(LocalStorage(root / kind), kind)
    return root


@pytest.mark.parametrize(("kind", "name"), BOTH)
def test_a_process_that_is_killed(on_disk: Path, tmp_path: Path, kind: str, name: str) -> None:
    """The lock of the dead is taken over at once: the next write waits for nothing."""
    before = filled(kind)[1]
    after = CASES[name].model(before)
    trial = LocalStorage(shutil.copytree(on_disk / kind, tmp_path / "trial"))
    with counting() as counter:
        CASES[name].run(table_on(trial))
    assert counter.calls > 60
    known = paths(LocalStorage(on_disk / kind))
    turn = BOTH.index((kind, name))
    for step in some(list(range(1, counter.calls + 1)), KILLS, 7 * turn):
        storage = LocalStorage(shutil.copytree(on_disk / kind, tmp_path / f"killed-{step}"))
        status = in_child(lambda storage=storage: CASES[name].run(table_on(storage)), step)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "times of day differ, and so may the last calls"
        found = read(storage)
        assert found in (before, after)
        assert found is not None
        started = time.monotonic()
        check_recovered(storage, known, found)
        assert time.monotonic() - started < 30
        shutil.rmtree(tmp_path / f"killed-{step}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_creating_a_table(tmp_path: Path, kind: str) -> None:
    with counting() as counter:
        make_table(LocalStorage(tmp_path / "trial"), kind)
    for step in some(list(range(1, counter.calls + 1)), 4, 0):
        storage = LocalStorage(tmp_path / f"killed-{step}")
        in_child(lambda storage=storage: make_table(storage, kind), step)
        assert read(storage) in (None, {})
        make_table(storage, kind)
        assert read(storage) == {}
        check_recovered(storage, set(), {})
