"""Every storage under its contract, and children that can be killed."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.object_store import ObjectStorage
from lakebed.storage.storage import Storage
from lakebed.testing.faults import FaultyStorage


def object_storage(folder: str = "") -> ObjectStorage:
    return ObjectStorage(MemoryStore, url="test://bucket", folder=folder)


@pytest.fixture(params=["local", "memory", "memory_folder", "object", "object_folder", "faulty_local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    makers: dict[str, Callable[[], Storage]] = {
        "local": lambda: LocalStorage(tmp_path / "table"),
        "memory": MemoryStorage,
        "memory_folder": lambda: MemoryStorage().within("deep/table"),
        "object": object_storage,
        "object_folder": lambda: object_storage("deep/table%20x"),
        "faulty_local": lambda: FaultyStorage(LocalStorage(tmp_path / "table")),
    }
    return makers[request.param]()


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path / "table")
    storage.put(".hoodie/hoodie.properties", b"hoodie.table.name=t\n")
    return storage


def in_child(work: Callable[[], int]) -> int:
    """Start a child process that exits with what `work` returns; the process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(work())
    except BaseException:
        traceback.print_exc()
        os._exit(99)
    raise AssertionError("unreachable")


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
