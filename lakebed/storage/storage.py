"""The protocol of a store: small and synchronous.

A `Storage` is bound to a table's base location; every path is relative to it, uses `/`, and never leaves it. Two
operations carry all concurrency control: `put_if_absent` creates a name exactly once, and `compare_and_swap` replaces
a file only if no other writer did meanwhile. Fan-out over many files is done by threads in `runner.py`, so the protocol
needs no async version. A storage can be pickled and rebuilt in another process.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from lakebed.errors import CorruptTable
from lakebed.paths import file_name

LOCAL_PREFIX = "file://"
"""What the URLs of local storages begin with."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as a listing shows it. `modified_ms` is the store's clock, in epoch milliseconds."""

    path: str
    size: int
    modified_ms: int

    @property
    def name(self) -> str:
        return file_name(self.path)


class OutputFile(io.RawIOBase):
    """A sink that publishes at `close()`, all or nothing.

    Only an explicit `close()` publishes: leaving a `with` block by an exception and garbage collection both abort,
    so that a writer that failed half way never leaves a file that looks complete.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._position = 0
        self._finished = False

    @abstractmethod
    def _append(self, data: memoryview) -> None:
        """Take over bytes; none of them may be visible yet."""

    @abstractmethod
    def _publish(self) -> None:
        """Make everything visible under `path` in one step, durably; on failure nothing may be left behind."""

    @abstractmethod
    def _discard(self) -> None:
        """Forget everything that was appended."""

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        if self._finished:
            raise ValueError("write to a closed file")
        view = memoryview(data).cast("B")
        self._append(view)
        self._position += view.nbytes
        return view.nbytes

    def close(self) -> None:
        if not self._finished:
            self._finished = True
            try:
                self._publish()
            finally:
                super().close()

    def abort(self) -> None:
        """Discard everything; does nothing after `close()`."""
        if not self._finished:
            self._finished = True
            try:
                self._discard()
            finally:
                super().close()

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if hasattr(self, "_finished"):
            self.abort()


@runtime_checkable
class Storage(Protocol):
    """The store below one table. Errors: `FileNotFoundError` for a missing file, `StorageUnavailable` for the rest."""

    @property
    def url(self) -> str:
        """The base location, for messages and for engines that open files themselves."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether files are on a disk of this machine, under the path that `location_of` returns."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes that open the same location see the same files; False for a store in memory."""
        ...

    def read(self, path: str) -> bytes:
        """A whole file."""
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        """A whole file and the opaque version to pass to `compare_and_swap`."""
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

    def open_output(self, path: str) -> OutputFile:
        """A sink whose bytes appear under `path` at `close()`, all or nothing; `abort()` leaves no trace."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Create or replace a file in one step."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file; False when the name is taken. After an unknown outcome the file is read back first."""
        ...

    def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
        """Replace a file whose version is still `version`; False when another writer replaced it."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; one that is already gone is fine."""
        ...

    def within(self, folder: str) -> Storage:
        """The same store bound to a folder below: the metadata table is a table inside the table."""
        ...


def location_of(storage: Storage) -> str:
    """The base location as Hudi writes it into plans and reports: a plain path on a local disk, else the URL."""
    return storage.url.removeprefix(LOCAL_PREFIX) if storage.is_local else storage.url


def folders_below(storage: Storage, top: str) -> Iterator[str]:
    """A folder and all below it, the deepest first."""
    for folder in storage.list_folders(top):
        yield from folders_below(storage, folder)
    yield top


def checked_path(path: str) -> str:
    """The path itself, refused when it could leave the table: paths also come out of metadata files."""
    if path.startswith("/") or "\\" in path or "\0" in path or ".." in path.split("/"):
        raise CorruptTable(f"the path {path!r} leaves the table", hint="No file outside the table is touched.")
    return path


def checked_file(path: str) -> str:
    """A path that can name a file: stores disagree on what `a//b` and `./a` are, so neither is passed on."""
    if any(part in {"", "."} for part in checked_path(path).split("/")):
        raise CorruptTable(f"the path {path!r} names no file")
    return path


def checked_folder(path: str) -> str:
    """A folder path without a trailing slash; the empty one is the base location."""
    folder = checked_path(path).rstrip("/")
    return checked_file(folder) if folder else ""


def joined(folder: str, path: str) -> str:
    """`folder/path`, where either may be empty."""
    return f"{folder}/{path}" if folder and path else folder or path


def check_range(path: str, offset: int, length: int, size: int) -> None:
    """Refuse a range outside the file before anything is allocated for it: lengths come out of files, too."""
    if offset < 0 or length < 0 or offset + length > size:
        raise CorruptTable(f"{length} bytes wanted of a file of {size} bytes", file=path, offset=offset)
