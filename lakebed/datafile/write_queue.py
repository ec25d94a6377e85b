"""A bounded queue that moves encoding and upload into a second thread while the caller goes on merging.

Tasks run one after the other in a single thread. At most `limit` bytes wait; a caller that adds more blocks until there
is room. The first failure ends it: later tasks are dropped, and the error is raised at the next `put`, or by `finish`.
With a limit of 0 nothing waits: `put` runs the task, for callers without a core for a second thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition


class WriteQueue:
    """A thread and its waiting tasks. It ends with `finish`, `cancel`, or when the queue is garbage-collected."""

    def __init__(self, limit: int, label: str) -> None:
        self._limit = limit
        self._state = _State()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"lakebed-write-{label}")

    def put(self, task: Callable[[], None], size: int) -> None:
        """Run the task after those before it; `size` is what it holds in memory."""
        state = self._state
        if not self._limit:
            state.check()
            _run(state, task, 0)
            state.check()
            return
        with state.changed:
            while state.waiting and state.waiting + size > self._limit and state.error is None:
                state.changed.wait()
            state.check()
            state.waiting += size
        self._pool.submit(_run, state, task, size)

    def finish(self) -> None:
        """Wait for everything; raises the first failure."""
        self._pool.shutdown(wait=True)
        self._state.check()

    def cancel(self) -> None:
        """Drop what waits and wait for what runs."""
        with self._state.changed:
            self._state.cancelled = True
        self._pool.shutdown(wait=True, cancel_futures=True)


class _State:
    """What the thread and its clients share; the thread does not refer to the queue, which can be garbage-collected."""

    __slots__ = ("cancelled", "changed", "error", "waiting")

    def __init__(self) -> None:
        self.changed = Condition()
        self.waiting = 0
        self.error: BaseException | None = None
        self.cancelled = False

    def check(self) -> None:
        with self.changed:
            if self.error is not None:
                raise self.error


def _run(state: _State, task: Callable[[], None], size: int) -> None:
    try:
        if state.error is None and not state.cancelled:
            task()
    except BaseException as error:
        with state.changed:
            state.error = state.error or error
    finally:
        with state.changed:
            state.waiting -= size
            state.changed.notify_all()
