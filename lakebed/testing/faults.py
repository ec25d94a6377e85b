"""Injected failures: a storage that crashes, writes half a file, loses an answer or lags at a numbered step of a test.

Every call that changes the store counts as one step, starting from 1: each `put`, `put_if_absent`, `compare_and_swap`,
the `close` of an output, and each single path of a `delete`. A test runs an action once without faults, reads `ops`,
and then runs it again for every step and every way to fail there. A crashed storage raises at every further call,
because a dead process runs no clean-up either.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from lakebed.errors import StorageUnavailable
from lakebed.storage.storage import FileInfo, OutputFile, Storage, checked_folder, joined

_T = TypeVar("_T")


class SimulatedCrash(BaseException):
    """The process has died. Not an `Exception`, so that no handler recovers from it."""


@dataclass(frozen=True, slots=True)
class Op:
    """One changing call: its number, what it was, and on which path (relative to the outermost storage)."""

    number: int
    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which step fails, and how; steps are numbered from 1 and a field that is not set does nothing."""

    crash_before: int | None = None
    """Die before this step has any effect."""
    crash_after: int | None = None
    """Die when this step has taken effect, before the call returns."""
    tear: int | None = None
    """Leave half the bytes of this `put` or `close` under the final name, then die: a store without atomic writes."""
    fail: frozenset[int] = frozenset()
    """These steps have no effect and raise `StorageUnavailable`."""
    lose_ack: frozenset[int] = frozenset()
    """These steps take effect, but the caller sees `StorageUnavailable`."""
    land_late: int | None = None
    """This step raises `StorageUnavailable` and takes effect only `late_by` steps later."""
    late_by: int = 1
    listing_lag: int = 0
    """Listings show a new file only after this many further steps."""


@dataclass(eq=False)
class _Script:
    """The state of a run, shared by the storages of one table and the tables inside it."""

    plan: FaultPlan
    ops: list[Op] = field(default_factory=list)
    calls: int = 0
    crashed: bool = False
    late: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    born: dict[str, int] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def look(self) -> None:
        """Called before any operation; raises after a crash."""
        with self.lock:
            self.calls += 1
            if self.crashed:
                raise SimulatedCrash("the process is already gone")

    def change(self, kind: str, path: str, act: Callable[[], _T], half: Callable[[], object] | None = None) -> _T:
        """Run one numbered step; one at a time, so that a step number means the same in every run."""
        plan = self.plan
        with self.lock:
            self.look()
            number = len(self.ops) + 1
            self.ops.append(Op(number, kind, path))
            self._land(number)
            if plan.crash_before == number:
                self._die(f"before step {number}, {kind} {path}")
            if plan.tear == number and half is not None:
                half()
                self._die(f"in the middle of step {number}, {kind} {path}")
            if number in plan.fail:
                raise StorageUnavailable(f"injected failure of step {number}, {kind}", file=path)
            if plan.land_late == number:
                self.late.append((number + plan.late_by, act))
                raise StorageUnavailable(f"injected timeout of step {number}, {kind}", file=path)
            result = act()
            self.born[path] = number
            if plan.crash_after == number:
                self._die(f"after step {number}, {kind} {path}")
            if number in plan.lose_ack:
                raise StorageUnavailable(f"injected lost answer of step {number}, {kind}", file=path)
            return result

    def visible(self, path: str) -> bool:
        born = self.born.get(path)
        return born is None or len(self.ops) - born >= self.plan.listing_lag

    def _land(self, number: int) -> None:
        due = [act for at, act in self.late if at <= number]
        self.late = [(at, act) for at, act in self.late if at > number]
        for act in due:
            act()

    def _die(self, where: str) -> None:
        self.crashed = True
        raise SimulatedCrash(where)


class FaultyStorage:
    """A `Storage` that passes calls on to another one and fails as the plan says."""

    def __init__(self, inner: Storage, plan: FaultPlan | None = None) -> None:
        self.inner = inner
        self._folder = ""
        self._script = _Script(plan or FaultPlan())

    @property
    def ops(self) -> list[Op]:
        """The changing calls so far, in order: the crash points of what was run."""
        return list(self._script.ops)

    @property
    def calls(self) -> int:
        """How many calls of any kind were made."""
        return self._script.calls

    @property
    def crashed(self) -> bool:
        return self._script.crashed

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def is_local(self) -> bool:
        return self.inner.is_local

    @property
    def is_shared(self) -> bool:
        return self.inner.is_shared

    def within(self, folder: str) -> FaultyStorage:
        inner = FaultyStorage(self.inner.within(folder))
        inner._folder = joined(self._folder, checked_folder(folder))
        inner._script = self._script
        return inner

    def read(self, path: str) -> bytes:
        self._script.look()
        return self.inner.read(path)

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        self._script.look()
        return self.inner.read_versioned(path)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        self._script.look()
        return self.inner.read_ranges(path, ranges)

    def stat(self, path: str) -> FileInfo | None:
        self._script.look()
        return self.inner.stat(path)

    def list(self, prefix: str = "", *, recursive: bool = False) -> Iterator[FileInfo]:
        self._script.look()
        for info in self.inner.list(prefix, recursive=recursive):
            if self._script.visible(joined(self._folder, info.path)):
                yield info

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        self._script.look()
        yield from self.inner.list_folders(prefix)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        self._script.look()
        return self.inner.open_input(path, size)

    def open_output(self, path: str) -> OutputFile:
        self._script.look()
        return _FaultyOutput(self, path)

    def put(self, path: str, data: bytes) -> None:
        self._change("put", path, lambda: self.inner.put(path, data), lambda: self._put_half(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._change("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
        return self._change("compare_and_swap", path, lambda: self.inner.compare_and_swap(path, data, version))

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._change("delete", path, lambda path=path: self.inner.delete([path]))  # type: ignore[misc]

    def _change(self, kind: str, path: str, act: Callable[[], _T], half: Callable[[], object] | None = None) -> _T:
        return self._script.change(kind, joined(self._folder, path), act, half)

    def _put_half(self, path: str, data: bytes) -> None:
        self.inner.put(path, data[: len(data) // 2])


class _FaultyOutput(OutputFile):
    """Writes through to the inner output; its `close` is the numbered step."""

    def __init__(self, storage: FaultyStorage, path: str) -> None:
        self._storage = storage
        self._sink = storage.inner.open_output(path)
        super().__init__(path)

    def _append(self, data: memoryview) -> None:
        self._storage._script.look()
        self._sink.write(data)

    def _publish(self) -> None:
        try:
            self._storage._change("close", self.path, self._sink.close, self._publish_half)
        except StorageUnavailable:
            if self._storage._script.plan.land_late is None:
                self._sink.abort()
            raise

    def _publish_half(self) -> None:
        size = self._sink.tell()
        self._sink.close()
        data = self._storage.inner.read(self.path)
        self._storage._put_half(self.path, data[:size])

    def _discard(self) -> None:
        if not self._storage.crashed:
            self._sink.abort()
