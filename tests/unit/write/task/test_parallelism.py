"""How tasks share memory and cores, and what a queue without room does."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from lakebed.config.write_options import WriteOptions
from lakebed.datafile.write_queue import WriteQueue
from lakebed.runner import LocalRunner, SerialRunner
from lakebed.storage.local import LocalStorage
from lakebed.storage.open import open_storage
from lakebed.write.task.parallelism import Parallelism

PLENTY = 1 << 40
OPTIONS = WriteOptions(write_buffer=1000)


def test_no_more_lanes_than_cores_groups_and_decent_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert Parallelism.of(LocalRunner(), 100, PLENTY).count == 8
    assert Parallelism.of(LocalRunner(), 3, PLENTY).count == 3
    assert Parallelism.of(LocalRunner(threads=2), 100, PLENTY).count == 2
    assert Parallelism.of(LocalRunner(), 100, 2).count == 2
    assert Parallelism.of(LocalRunner(), 100, 1).count == 1
    assert Parallelism.of(SerialRunner(), 100, PLENTY).count == 1


def test_rows_wait_for_an_encoder_only_where_a_core_or_the_network_waits_for_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    local, remote = LocalStorage(str(tmp_path)), open_storage("memory://lanes/table")
    busy, idle = Parallelism.of(LocalRunner(), 100, PLENTY), Parallelism.of(LocalRunner(), 1, PLENTY)
    assert busy.write_buffer(OPTIONS, 500, local) == 0
    assert idle.write_buffer(OPTIONS, 500, local) == 500
    assert idle.write_buffer(OPTIONS, 5000, local) == 1000
    assert busy.write_buffer(OPTIONS, 500, remote) == 500
    assert Parallelism(SerialRunner()).write_buffer(OPTIONS, 500, local) == 0


@pytest.mark.parametrize("limit", [0, 1, 1 << 20])
def test_a_queue_runs_tasks_in_order_and_fails_for_good(limit: int) -> None:
    done: list[int] = []
    queue = WriteQueue(limit, "test")
    for number in range(5):
        queue.put(lambda number=number: done.append(number), 10)  # type: ignore[misc]
    queue.finish()
    assert done == [0, 1, 2, 3, 4]

    def broken() -> None:
        raise OSError("no space")

    failing = WriteQueue(limit, "test")
    with pytest.raises(OSError, match="no space"):
        failing.put(broken, 10)
        failing.finish()
    with pytest.raises(OSError, match="no space"):
        failing.put(lambda: done.append(9), 10)
        failing.finish()
    assert done == [0, 1, 2, 3, 4]


def test_without_room_the_caller_is_the_one_who_works() -> None:
    threads: list[int] = []
    for limit in (0, 100):
        queue = WriteQueue(limit, "test")
        queue.put(lambda: threads.append(threading.get_ident()), 1)
        queue.finish()
    assert threads[0] == threading.get_ident() != threads[1]
