"""Runs the work on many files: maps a function over tasks.

Reading splits, writing files and running table services are all "the same small function over a list of picklable
tasks", so this is the whole interface between lakebed and an engine: threads here, Spark executors in `spark/`.
Threads are enough in one process because the work is storage requests and Arrow kernels, both of which release the
interpreter lock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

_T = TypeVar("_T")
_R = TypeVar("_R")
_MOST_THREADS = 32


class Progress(Protocol):
    """Notified after each task whose result the caller has received, in the thread of that caller."""

    def advance(self, label: str, done: int, total: int | None) -> None:
        """`done` tasks of `total` are finished; `total` is None when the tasks are a stream."""
        ...


@runtime_checkable
class Runner(Protocol):
    """Runs tasks somewhere."""

    @property
    def shares_memory(self) -> bool:
        """Whether tasks run in parallel in this process: the caller of `map` then divides memory among `threads`."""
        ...

    @property
    def threads(self) -> int | None:
        """How many tasks run at once; None where it is not set, or where this process does not control it."""
        ...

    @property
    def at_once(self) -> int:
        """How many tasks run at once in a process, if there are as many: what their memory is divided by."""
        ...

    def limited_to(self, threads: int) -> Runner:
        """The same with so many tasks at once, where this process controls that."""
        ...

    def map(self, fn: Callable[[_T], _R], tasks: Iterable[_T], *, label: str) -> Iterator[_R]:
        """The results in task order. A task that raises cancels the rest, and its exception is raised unchanged."""
        ...


@dataclass(frozen=True, slots=True)
class SerialRunner:
    """One task after the other in the calling thread: the simplest runner, and the easiest to debug."""

    progress: Progress | None = None

    shares_memory: ClassVar[bool] = False
    threads: ClassVar[int | None] = 1
    at_once: ClassVar[int] = 1

    def limited_to(self, threads: int) -> SerialRunner:
        return self

    def map(self, fn: Callable[[_T], _R], tasks: Iterable[_T], *, label: str) -> Iterator[_R]:
        total = len(tasks) if isinstance(tasks, Sized) else None
        for done, task in enumerate(tasks, 1):
            result = fn(task)
            _advance(self.progress, label, done, total)
            yield result


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Threads of this process.

    At most `in_flight` tasks are running or have a result that is not consumed, so a slow consumer costs no memory.
    Each `map` has its own threads: a task may itself call `map` without a deadlock on the threads of the outer one.
    """

    threads: int | None = None
    in_flight: int | None = None
    progress: Progress | None = None

    shares_memory: ClassVar[bool] = True

    @classmethod
    def near(cls, *, is_local: bool) -> LocalRunner:
        """For work on files: a thread per core where they are local, more where the network makes them wait."""
        return cls(os.cpu_count() if is_local else None)

    def limited_to(self, threads: int) -> LocalRunner:
        return replace(self, threads=threads)

    @property
    def at_once(self) -> int:
        """How many tasks run at once, if there are as many: what their memory is divided by."""
        return self.threads or min(_MOST_THREADS, (os.cpu_count() or 1) + 4)

    def map(self, fn: Callable[[_T], _R], tasks: Iterable[_T], *, label: str) -> Iterator[_R]:
        total = len(tasks) if isinstance(tasks, Sized) else None
        threads = self.at_once
        if total is not None:
            threads = min(threads, total)
        if threads <= 1:
            yield from SerialRunner(self.progress).map(fn, tasks, label=label)
            return
        window = max(self.in_flight or 2 * threads, 1)
        failed = Event()

        def run(task: _T) -> _R:
            if failed.is_set():
                raise CancelledError  # tasks start in order, so the caller gets the error of the failed task first
            try:
                return fn(task)
            except BaseException:
                failed.set()
                raise

        pool = ThreadPoolExecutor(threads, thread_name_prefix=f"lakebed-{label}")
        waiting: deque[Future[_R]] = deque()
        source = iter(tasks)
        done = 0
        try:
            while True:
                while len(waiting) < window and not failed.is_set():
                    try:
                        task = next(source)
                    except StopIteration:
                        break
                    waiting.append(pool.submit(run, task))
                if not waiting:
                    return
                result = waiting.popleft().result()
                done += 1
                _advance(self.progress, label, done, total)
                yield result
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _advance(progress: Progress | None, label: str, done: int, total: int | None) -> None:
    if progress is not None:
        progress.advance(label, done, total)
