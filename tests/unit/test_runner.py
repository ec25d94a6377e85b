"""Order, bounds, cancelling and progress of the runners."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator

import pytest

from lakebed.runner import LocalRunner, Runner, SerialRunner

RUNNERS = [SerialRunner(), LocalRunner(), LocalRunner(1), LocalRunner(4), LocalRunner(4, in_flight=1)]


class Seen:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int | None]] = []

    def advance(self, label: str, done: int, total: int | None) -> None:
        self.calls.append((label, done, total))


@pytest.mark.parametrize("runner", RUNNERS, ids=repr)
def test_results_in_task_order(runner: Runner) -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.01 if number % 4 == 0 else 0)
        return number * 2

    assert list(runner.map(slow_first, range(30), label="x")) == [number * 2 for number in range(30)]
    assert list(runner.map(slow_first, iter(range(5)), label="x")) == [0, 2, 4, 6, 8]
    assert list(runner.map(slow_first, [], label="x")) == []
    assert isinstance(runner, Runner)
    assert pickle.loads(pickle.dumps(runner)) == runner


def test_threads_run_side_by_side() -> None:
    meeting = threading.Barrier(4, timeout=10)
    assert sorted(LocalRunner(4).map(lambda _: meeting.wait(), range(4), label="x")) == [0, 1, 2, 3]


def test_bounded_in_flight() -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    results = LocalRunner(3, in_flight=5).map(lambda number: number, tasks(), label="x")
    for expected in range(20):
        assert next(results) == expected
        assert taken <= expected + 5 + 1
    results.close()  # type: ignore[attr-defined]
    assert taken < 30


class Boom(BaseException):
    pass


@pytest.mark.parametrize("runner", RUNNERS, ids=repr)
@pytest.mark.parametrize("error", [ValueError("task"), Boom("task")], ids=["exception", "base"])
def test_a_failure_cancels_the_rest_and_comes_out_as_it_is(runner: Runner, error: BaseException) -> None:
    ran = []

    def task(number: int) -> int:
        ran.append(number)
        if number == 7:
            raise error
        time.sleep(0.002)
        return number

    got: list[int] = []
    with pytest.raises(type(error)) as caught:
        got.extend(runner.map(task, range(500), label="x"))
    assert caught.value is error
    assert got == list(range(7))
    assert len(ran) < 60


def test_a_failure_stops_what_waits_behind_a_slow_task() -> None:
    ran = []

    def task(number: int) -> int:
        ran.append(number)
        if number == 1:
            raise ValueError("task")
        time.sleep(0.1 if number == 0 else 0)
        return number

    results = LocalRunner(2, in_flight=200).map(task, range(200), label="x")
    assert next(results) == 0
    with pytest.raises(ValueError, match="task"):
        next(results)
    assert ran == [0, 1]


def test_a_task_may_map_itself() -> None:
    runner = LocalRunner(2)

    def outer(number: int) -> int:
        return sum(runner.map(lambda inner: inner * number, range(10), label="inner"))

    assert list(runner.map(outer, range(6), label="outer")) == [45 * number for number in range(6)]


def test_an_abandoned_map_stops() -> None:
    ran = []
    results = LocalRunner(2, in_flight=4).map(ran.append, range(1000), label="x")
    next(results)
    results.close()  # type: ignore[attr-defined]
    count = len(ran)
    time.sleep(0.02)
    assert len(ran) == count <= 10


@pytest.mark.parametrize("make", [SerialRunner, lambda seen: LocalRunner(3, progress=seen)])
def test_progress(make: type) -> None:
    seen = Seen()
    list(make(seen).map(abs, [1, 2, 3], label="reading"))
    list(make(seen).map(abs, iter([1]), label="stream"))
    assert seen.calls == [("reading", 1, 3), ("reading", 2, 3), ("reading", 3, 3), ("stream", 1, None)]
