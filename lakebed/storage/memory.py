"""A store in memory: what tests and examples use in place of a disk.

It has the guarantees of the other stores and none of their timing: files are bytes in a dictionary under one lock,
and `modified_ms` counts writes instead of reading a clock, so that a simulation repeats exactly. One bucket can serve
several tables, by URL (`memory://name/path`) within the process. A pickled storage contains its files.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lakebed.storage.storage import FileInfo, OutputFile, check_range, checked_file, checked_folder, joined

_FIRST_TICK = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    version: int
    modified_ms: int


@dataclass(eq=False)
class _Bucket:
    """The files of one store, and the lock that makes each operation a single step."""

    files: dict[str, _Stored] = field(default_factory=dict)
    tick: int = _FIRST_TICK
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __getstate__(self) -> tuple[dict[str, _Stored], int]:
        with self.lock:
            return dict(self.files), self.tick

    def __setstate__(self, state: tuple[dict[str, _Stored], int]) -> None:
        self.files, self.tick = state
        self.lock = threading.RLock()

    def store(self, key: str, data: bytes) -> None:
        self.tick += 1
        self.files[key] = _Stored(bytes(data), self.tick, self.tick)


_named: dict[str, _Bucket] = {}
_named_lock = threading.Lock()


class MemoryStorage:
    """A `Storage` in memory; `name` makes it one of the buckets that `memory://` URLs of this process share."""

    is_local = False
    is_shared = False

    def __init__(self, name: str | None = None, folder: str = "") -> None:
        self._folder = checked_folder(folder)
        self._name = name
        if name is None:
            self._bucket = _Bucket()
        else:
            with _named_lock:
                self._bucket = _named.setdefault(name, _Bucket())

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> MemoryStorage:
        """A copy of a folder on disk, times included."""
        storage = cls()
        root = Path(path)
        for file in sorted(file for file in root.rglob("*") if file.is_file()):
            modified_ms = file.stat().st_mtime_ns // 1_000_000
            bucket = storage._bucket
            bucket.files[file.relative_to(root).as_posix()] = _Stored(file.read_bytes(), 0, modified_ms)
            bucket.tick = max(bucket.tick, modified_ms)
        return storage

    @property
    def url(self) -> str:
        return f"memory://{joined(self._name or '', self._folder)}"

    def __repr__(self) -> str:
        return f"MemoryStorage({self.url!r})"

    def within(self, folder: str) -> MemoryStorage:
        inner: MemoryStorage = object.__new__(type(self))
        inner._name, inner._bucket = self._name, self._bucket
        inner._folder = joined(self._folder, checked_folder(folder))
        return inner

    # Reading

    def read(self, path: str) -> bytes:
        return self._stored(path).data

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        stored = self._stored(path)
        return stored.data, str(stored.version)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        data = self._stored(path).data
        for offset, length in ranges:
            check_range(path, offset, length, len(data))
        return [data[offset : offset + length] for offset, length in ranges]

    def stat(self, path: str) -> FileInfo | None:
        with self._bucket.lock:
            stored = self._bucket.files.get(self._key(path))
        return None if stored is None else FileInfo(path, len(stored.data), stored.modified_ms)

    def list(self, prefix: str = "", *, recursive: bool = False) -> Iterator[FileInfo]:
        for path, stored in self._below(prefix):
            if recursive or "/" not in path:
                yield FileInfo(joined(checked_folder(prefix), path), len(stored.data), stored.modified_ms)

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        names = {path.partition("/")[0] for path, _ in self._below(prefix) if "/" in path}
        yield from sorted(joined(checked_folder(prefix), name) for name in names)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return pa.BufferReader(self._stored(path).data)

    # Writing

    def open_output(self, path: str) -> OutputFile:
        return _MemoryOutput(self, checked_file(path))

    def put(self, path: str, data: bytes) -> None:
        with self._bucket.lock:
            self._bucket.store(self._key(path), data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        with self._bucket.lock:
            if key in self._bucket.files:
                return False
            self._bucket.store(key, data)
            return True

    def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
        key = self._key(path)
        with self._bucket.lock:
            stored = self._bucket.files.get(key)
            if stored is None or str(stored.version) != version:
                return False
            self._bucket.store(key, data)
            return True

    def delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        with self._bucket.lock:
            for key in keys:
                self._bucket.files.pop(key, None)

    def _key(self, path: str) -> str:
        return joined(self._folder, checked_file(path))

    def _stored(self, path: str) -> _Stored:
        with self._bucket.lock:
            stored = self._bucket.files.get(self._key(path))
        if stored is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return stored

    def _below(self, prefix: str) -> Sequence[tuple[str, _Stored]]:
        """Paths below a folder, relative to it and in order, with their files, as of one moment."""
        folder = joined(self._folder, checked_folder(prefix))
        start = f"{folder}/" if folder else ""
        with self._bucket.lock:
            found = [(key[len(start) :], stored) for key, stored in self._bucket.files.items() if key.startswith(start)]
        return sorted(found, key=lambda item: item[0])


class _MemoryOutput(OutputFile):
    """Collects bytes and stores them at close."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        self._storage = storage
        self._parts = bytearray()
        super().__init__(path)

    def _append(self, data: memoryview) -> None:
        self._parts += data

    def _publish(self) -> None:
        self._storage.put(self.path, bytes(self._parts))
        self._parts.clear()

    def _discard(self) -> None:
        self._parts.clear()
