"""Tables that threads share, and handles that are older than the table: what they see is never older than before."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.table_properties import update_properties

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
SEVERAL = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}


def made() -> Table:
    url = f"memory://handles/{uuid.uuid4().hex}"
    return lakebed.create(
        url, SCHEMA, record_key="id", partition_by="p", index="bucket", num_buckets=1, properties=SEVERAL
    )


def one_row(key: str) -> pa.Table:
    return pa.table({"id": [key], "p": [f"p{key}"], "v": [1]}, SCHEMA)


def test_a_thread_that_is_slow_to_tidy_up_does_not_set_the_table_back(monkeypatch: pytest.MonkeyPatch) -> None:
    target = made()
    target.upsert(one_row("0"))
    plain, committed, goes_on = MemoryStorage.delete, threading.Event(), threading.Event()

    def slow(self: MemoryStorage, paths: Any) -> None:
        paths = list(paths)
        if threading.current_thread().name == "slow" and any("heartbeat" in path for path in paths):
            committed.set()
            assert goes_on.wait(20)
        plain(self, paths)

    monkeypatch.setattr(MemoryStorage, "delete", slow)
    thread = threading.Thread(name="slow", target=target.upsert, args=(one_row("a"),))
    thread.start()
    assert committed.wait(20)
    target.upsert(one_row("b"))
    goes_on.set()
    thread.join(20)
    assert sorted(target.scan().to_arrow()["id"].to_pylist()) == ["0", "a", "b"]


def test_a_compaction_goes_by_the_properties_that_the_table_has_now() -> None:
    target = made()
    target.upsert(one_row("0"))
    target.upsert(one_row("0"))
    storage = open_storage(target.url)
    update_properties(storage, {"hoodie.table.cdc.enabled": "true"})
    old = lakebed.open(target.url)
    update_properties(storage, {"hoodie.table.cdc.enabled": "false"})
    assert len(old.services.compact()) == 1
