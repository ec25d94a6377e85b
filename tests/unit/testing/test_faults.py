"""Numbered faults, over the memory store and over a real disk."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.errors import StorageUnavailable
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.faults import FaultPlan, FaultyStorage, Op, SimulatedCrash


@pytest.fixture(params=["memory", "local"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Storage]:
    numbers = iter(range(1000))
    if request.param == "memory":
        return MemoryStorage
    return lambda: LocalStorage(tmp_path / str(next(numbers)))


def story(storage: Storage) -> None:
    """A small write: data file, request, commit, tidy up."""
    with storage.open_output("p/data") as sink:
        sink.write(b"0123456789")
    storage.put("requested", b"plan")
    if not storage.put_if_absent("commit", b"done"):
        raise AssertionError("somebody else")
    storage.within("metadata").put("files", b"listing")
    version = storage.read_versioned("requested")[1]
    storage.compare_and_swap("requested", b"used", version)
    storage.delete(["requested", "p/other"])


STORY = [
    Op(1, "close", "p/data"),
    Op(2, "put", "requested"),
    Op(3, "put_if_absent", "commit"),
    Op(4, "put", "metadata/files"),
    Op(5, "compare_and_swap", "requested"),
    Op(6, "delete", "requested"),
    Op(7, "delete", "p/other"),
]


def contents(storage: Storage) -> dict[str, bytes]:
    listed = [info.path for info in storage.list(recursive=True) if ".temp/" not in info.path]
    return {path: storage.read(path) for path in listed}


def test_the_steps_are_numbered(inner: Callable[[], Storage]) -> None:
    storage = FaultyStorage(inner())
    story(storage)
    assert storage.ops == STORY
    assert storage.calls > len(STORY)
    assert contents(storage) == {"p/data": b"0123456789", "commit": b"done", "metadata/files": b"listing"}


def test_a_crash_before_and_after_every_step(inner: Callable[[], Storage]) -> None:
    states = []
    for step in range(1, len(STORY) + 1):
        for plan in (FaultPlan(crash_before=step), FaultPlan(crash_after=step)):
            below = inner()
            storage = FaultyStorage(below, plan)
            with pytest.raises(SimulatedCrash):
                story(storage)
            assert storage.crashed
            assert storage.ops == STORY[:step]
            states.append(contents(below))
    for step in range(len(STORY) - 1):
        assert states[2 * step + 1] == states[2 * step + 2], "after one step is before the next"
    assert states[0] == {}
    assert states[1] == {"p/data": b"0123456789"}
    assert "commit" not in states[4]
    assert "commit" in states[5]


def test_the_dead_answer_nothing(inner: Callable[[], Storage]) -> None:
    below = inner()
    storage = FaultyStorage(below, FaultPlan(crash_before=2))
    sink = storage.open_output("late")
    sink.write(b"half")
    with pytest.raises(SimulatedCrash):
        story(storage)
    for call in (
        lambda: storage.read("p/data"),
        lambda: storage.put("x", b""),
        lambda: storage.delete(["p/data"]),
        lambda: storage.within("metadata").put("x", b""),
        lambda: list(storage.list()),
        sink.close,
    ):
        with pytest.raises(SimulatedCrash):
            call()
    assert contents(below) == {"p/data": b"0123456789"}


def test_a_torn_write_lands_half(inner: Callable[[], Storage]) -> None:
    for step, path, half in [(1, "p/data", b"01234"), (2, "requested", b"pl")]:
        below = inner()
        with pytest.raises(SimulatedCrash):
            story(FaultyStorage(below, FaultPlan(tear=step)))
        assert contents(below)[path] == half
    story(FaultyStorage(inner(), FaultPlan(tear=3)))  # a create is atomic everywhere: nothing to tear


def test_a_lost_answer_and_a_plain_failure(inner: Callable[[], Storage]) -> None:
    below = inner()
    storage = FaultyStorage(below, FaultPlan(lose_ack=frozenset({3})))
    with pytest.raises(StorageUnavailable):
        story(storage)
    assert below.read("commit") == b"done"
    assert storage.put_if_absent("commit", b"done") is False
    below = inner()
    with pytest.raises(StorageUnavailable):
        story(FaultyStorage(below, FaultPlan(fail=frozenset({3}))))
    assert below.stat("commit") is None
    below = inner()
    with pytest.raises(StorageUnavailable):
        story(FaultyStorage(below, FaultPlan(fail=frozenset({1}))))
    assert contents(below) == {}


def test_a_put_that_lands_late(inner: Callable[[], Storage]) -> None:
    for land in (lambda s: s.put_if_absent("a", b"first"), lambda s: _write(s, "a", b"first")):
        below = inner()
        storage = FaultyStorage(below, FaultPlan(land_late=1, late_by=2))
        with pytest.raises(StorageUnavailable):
            land(storage)
        assert below.stat("a") is None
        storage.put("b", b"")
        assert below.stat("a") is None
        assert storage.put_if_absent("a", b"second") is False
        assert below.read("a") == b"first"


def _write(storage: Storage, path: str, data: bytes) -> None:
    with storage.open_output(path) as sink:
        sink.write(data)


def test_a_lagging_listing(inner: Callable[[], Storage]) -> None:
    storage = FaultyStorage(inner(), FaultPlan(listing_lag=2))
    storage.put("a", b"1")
    assert [info.path for info in storage.list()] == []
    assert storage.read("a") == b"1"
    storage.put("b", b"1")
    assert [info.path for info in storage.list()] == []
    storage.put("c", b"1")
    assert [info.path for info in storage.list()] == ["a"]


def test_memory_store_copies_folders_and_pickles(tmp_path: Path) -> None:
    disk = LocalStorage(tmp_path / "t")
    disk.put(".hoodie/hoodie.properties", b"x=1")
    disk.put("p=1/f", b"data")
    storage = MemoryStorage.from_folder(tmp_path / "t")
    assert contents(storage) == {".hoodie/hoodie.properties": b"x=1", "p=1/f": b"data"}
    assert storage.stat("p=1/f") == disk.stat("p=1/f")
    version = storage.read_versioned("p=1/f")[1]
    assert storage.compare_and_swap("p=1/f", b"new", version)
    assert not storage.compare_and_swap("p=1/f", b"newer", version)
    copy = pickle.loads(pickle.dumps(storage))
    copy.put("only", b"in the copy")
    assert storage.stat("only") is None
    assert copy.read("p=1/f") == b"new"


def test_named_memory_is_shared() -> None:
    one = MemoryStorage("test-shared", "lake/orders")
    other = MemoryStorage("test-shared", "lake")
    one.put("a", b"1")
    assert other.read("orders/a") == b"1"
    assert MemoryStorage("test-other").stat("lake/orders/a") is None
    assert one.url == "memory://test-shared/lake/orders"
