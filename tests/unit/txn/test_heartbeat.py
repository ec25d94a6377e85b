from __future__ import annotations

import threading
import time

from lakebed.errors import StorageUnavailable
from lakebed.format.names import heartbeat_file
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.txn.heartbeat import Heartbeat, StoreClock, is_expired
from lakebed.txn.options import TxnOptions
from lakebed.txn.periodic import Periodic

BEGIN = "20260101000000000"
OPTIONS = TxnOptions()


def test_expiry_is_two_intervals_of_the_stores_time() -> None:
    storage = MemoryStorage()
    assert is_expired(storage, BEGIN, ManualClock(), OPTIONS), "a missing heartbeat is a dead writer"
    storage.put(heartbeat_file(BEGIN), b"")
    beat = storage.stat(heartbeat_file(BEGIN))
    assert beat is not None
    assert not is_expired(storage, BEGIN, ManualClock(beat.modified_ms + 120_000), OPTIONS)
    assert is_expired(storage, BEGIN, ManualClock(beat.modified_ms + 120_001), OPTIONS)


def test_the_stores_clock_is_that_of_its_files_and_leaves_none() -> None:
    storage = MemoryStorage()
    storage.put("a", b"")
    before = storage.stat("a")
    now = StoreClock(storage).now_ms()
    storage.put("b", b"")
    after = storage.stat("b")
    assert before is not None
    assert after is not None
    assert before.modified_ms < now < after.modified_ms
    assert {info.path for info in storage.list("", recursive=True)} == {"a", "b"}


def test_a_heartbeat_touches_its_file_and_does_not_come_back_from_the_dead() -> None:
    storage = MemoryStorage()
    storage.put(heartbeat_file(BEGIN), b"")
    first = storage.stat(heartbeat_file(BEGIN))
    heartbeat = Heartbeat(storage, BEGIN, TxnOptions(heartbeat_interval_ms=5)).start()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        beat = storage.stat(heartbeat_file(BEGIN))
        if beat and first and beat.modified_ms > first.modified_ms + 2:
            break
        time.sleep(0.005)
    else:
        raise AssertionError("no beat within five seconds")
    heartbeat.stop()
    storage.delete([heartbeat_file(BEGIN)])
    assert not heartbeat.beat()
    assert not heartbeat.is_there()
    heartbeat.remove()


def test_a_pulse_survives_a_store_that_does_not_answer_and_ends_when_told() -> None:
    beats, enough = [], threading.Event()

    def beat() -> bool:
        beats.append(1)
        if len(beats) == 1:
            raise StorageUnavailable("for a moment")
        if len(beats) == 3:
            enough.set()
            return False
        return True

    periodic = Periodic("test", 0.001, beat)
    periodic.start()
    assert enough.wait(5)
    periodic.stop()
    assert len(beats) == 3
