"""What lakebed asks of a store: one small, synchronous protocol.

A `Storage` is bound to a table's base location; every path is relative to it, uses `/`, and never leaves it. Two
operations carry all concurrency control: `put_if_absent` creates a name exactly once, and `compare_and_swap` replaces
a file only if nobody else did meanwhile. Fan-out over many files is done by threads in `runner.py`, so the protocol
needs no async twin. A storage can be pickled and rebuilt in another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

import pyarrow as pa

from lakebed.errors import CorruptTable


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as a listing shows it. `modified_ms` is the store's clock, in epoch milliseconds."""

    path: str
    size: int
    modified_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@runtime_checkable
class Storage(Protocol):
    """The store below one table. Errors: `FileNotFoundError` for a missing file, `StorageUnavailable` for the rest."""

    @property
    def url(self) -> str:
        """The base location, for messages and for engines that open files themselves."""
        ...

    def read(self, path: str) -> bytes:
        """A whole file."""
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        """A whole file and the opaque version that `compare_and_swap` wants back."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several `(offset, length)` ranges of a file; a range that runs past the end raises `CorruptTable`."""
        ...

    def stat(self, path: str) -> FileInfo | None:
        """Size and time of a file, or None when there is none."""
        ...

    def list(self, prefix: str = "", *, recursive: bool = False) -> Iterator[FileInfo]:
        """Files below a folder (a missing folder is empty); without `recursive` only its direct files."""
        ...

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        """Paths of the direct sub-folders of a folder."""
        ...

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A seekable Arrow file for Parquet and ORC readers; `size` saves a request where it is known."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """A sink whose bytes appear under `path` at `close()`, all or nothing; `abort()` leaves no trace."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Create or replace a file in one step."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file; False when the name is taken. After an unknown outcome it reads back before it answers."""
        ...

    def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
        """Replace a file whose version is still `version`; False when somebody else replaced it."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that is already gone is fine."""
        ...


def checked_path(path: str) -> str:
    """The path itself, refused when it could leave the table: paths also come out of metadata files."""
    if path.startswith("/") or "\\" in path or "\0" in path or ".." in path.split("/"):
        raise CorruptTable(f"the path {path!r} leaves the table", hint="No file outside the table is touched.")
    return path
