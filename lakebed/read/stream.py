"""Reads several splits at once: rows in split order, bounded memory.

Each split fills a short queue of its own; the consumer empties the queues one after the other. A split that runs ahead
stops at its full queue, so what is held is at most `threads` windows and a few batches each, whatever the table's size.
Leaving the loop early (a limit, an error, a closed generator) stops all workers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

Task = TypeVar("Task")
QUEUED_BATCHES = 4
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


@dataclass(slots=True)
class _Worker(Generic[Task]):
    task: Task
    out: queue.Queue[pa.RecordBatch | _Failed | None] = field(default_factory=lambda: queue.Queue(QUEUED_BATCHES))


def stream_batches(
    read: Callable[[Task], Iterator[pa.RecordBatch]], tasks: Sequence[Task], threads: int
) -> Iterator[pa.RecordBatch]:
    """The batches of every task, in task order, read by up to `threads` workers."""
    if threads <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield from read(task)
        return
    stop = threading.Event()
    workers = [_Worker(task) for task in tasks]

    def fill(worker: _Worker[Task]) -> None:
        try:
            for batch in read(worker.task):
                if not _put(worker.out, batch, stop):
                    return
            _put(worker.out, None, stop)
        except BaseException as error:  # passed to the consumer, which raises it
            _put(worker.out, _Failed(error), stop)

    with ThreadPoolExecutor(max_workers=min(threads, len(tasks)), thread_name_prefix="lakebed-read") as pool:
        try:
            for worker in workers:
                pool.submit(fill, worker)
            for worker in workers:
                while (item := worker.out.get()) is not None:
                    if isinstance(item, _Failed):
                        raise item.error
                    yield item
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _put(
    out: queue.Queue[pa.RecordBatch | _Failed | None], item: pa.RecordBatch | _Failed | None, stop: threading.Event
) -> bool:
    """Put unless the consumer has gone; a plain blocking put would keep the worker for ever."""
    while not stop.is_set():
        try:
            out.put(item, timeout=_POLL_SECONDS)
        except queue.Full:
            continue
        return True
    return False
