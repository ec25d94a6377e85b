"""A storage that creates a marker before every data file it opens for writing.

Markers are how a rollback, ours or real Hudi's, finds the files of a failed write. The storage that a task writes
through creates them, so that no file writer can forget one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, cast

from lakebed.format.names import MarkerType
from lakebed.storage.storage import OutputFile, Storage
from lakebed.txn.markers import create_marker


def marking(storage: Storage, requested_time: str, io_type: MarkerType) -> Storage:
    """The storage through which a task of this write opens its data files."""
    return cast(Storage, _MarkingStorage(storage, requested_time, io_type))


def attempt_token(number: int, layer: int = 0) -> str:
    """The write token of one attempt at a task: another attempt, even by the same process, writes other files."""
    return f"{number}-{layer}-{secrets.randbelow(1 << 31)}"


@dataclass(frozen=True, slots=True)
class _MarkingStorage:
    inner: Storage
    requested_time: str
    io_type: MarkerType

    def open_output(self, path: str) -> OutputFile:
        folder, _, name = path.rpartition("/")
        create_marker(self.inner, self.requested_time, folder, name, self.io_type)
        return self.inner.open_output(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
