# Paths stay strings here, so that a large listing costs no object per name.
# ruff: noqa: PTH100, PTH104, PTH106, PTH108, PTH112, PTH120
"""Tables on a local disk, with the two guarantees that a plain file system does not give.

A name must appear exactly once and with complete content: every write goes to a temporary file first, is flushed to
disk, and gets its final name by `link` (create: the kernel refuses a taken name) or `rename` (replace); then the folder
is flushed, so that the name survives a power cut. `compare_and_swap` holds a `flock` from reading the current version
until the file is replaced.

Nothing outside the base folder is touched: a symbolic link below it is an error and is not followed. Hadoop keeps
checksums in `.name.crc` side files and refuses a file that does not match its own, so a write removes the side file
first: Hadoop accepts a file without one at every moment in between.
"""

from __future__ import annotations

import fcntl
import os
import stat as stat_bits
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import xxhash

from lakebed.errors import CorruptTable
from lakebed.storage.posix import (
    CREATE_FLAGS,
    LOCK_FLAGS,
    READ_FLAGS,
    link_if_absent,
    make_folder,
    os_errors,
    pread,
    require_file,
    same_file,
    side_file,
    symlink_error,
    sync_folder,
    write_all,
)
from lakebed.storage.process import Process
from lakebed.storage.storage import (
    LOCAL_PREFIX,
    FileInfo,
    OutputFile,
    check_range,
    checked_file,
    checked_folder,
    joined,
)

TEMP_DIR = ".hoodie/.temp"
"""Where Hudi keeps its own temporary files; neither Hudi nor lakebed reads data there."""
BARE_TEMP_DIR = ".temp"
"""Used while the base folder is no table: a `.hoodie` folder would make it look like one."""
METADATA_DIR = ".hoodie/metadata"
"""The metadata table: other programs take its folder as a sign that there is one, so an empty one is removed."""
TEMP_PREFIX = "lakebed-"
_LOCK_NAME = "lakebed.lock"
_WRITE_BUFFER = 1 << 20


class LocalStorage:
    """A `Storage` below one local folder, which need not exist before the first write."""

    is_local = True
    is_shared = True

    def __init__(self, base: str | os.PathLike[str]) -> None:
        self._base = os.path.abspath(base)

    @property
    def url(self) -> str:
        return f"{LOCAL_PREFIX}{self._base}"

    @property
    def base(self) -> Path:
        """The base folder."""
        return Path(self._base)

    def __repr__(self) -> str:
        return f"LocalStorage({self._base!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStorage) and other._base == self._base

    def __hash__(self) -> int:
        return hash(self._base)

    def within(self, folder: str) -> LocalStorage:
        return LocalStorage(self._located(joined(checked_folder(folder), "_"))[:-2])

    # Reading

    def read(self, path: str) -> bytes:
        with os_errors(path), self._opened(path) as (fd, size):
            return pread(fd, size, 0)

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        data = self.read(path)
        return data, _version(data)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with os_errors(path), self._opened(path) as (fd, size):
            pieces = []
            for offset, length in ranges:
                check_range(path, offset, length, size)
                piece = pread(fd, length, offset)
                check_range(path, offset, length, offset + len(piece))
                pieces.append(piece)
            return pieces

    def stat(self, path: str) -> FileInfo | None:
        with os_errors(path):
            try:
                found = os.lstat(self._located(checked_file(path)))
            except (FileNotFoundError, NotADirectoryError):
                return None
        if stat_bits.S_ISLNK(found.st_mode):
            raise symlink_error(path)
        return _info(path, found) if stat_bits.S_ISREG(found.st_mode) else None

    def list(self, prefix: str = "", *, recursive: bool = False) -> Iterator[FileInfo]:
        folder = checked_folder(prefix)
        for entry in self._entries(folder):
            path = joined(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if recursive:
                    yield from self.list(path, recursive=True)
            elif entry.is_file(follow_symlinks=False):
                with os_errors(path):
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # deleted since the folder was listed
                yield _info(path, found)

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        folder = checked_folder(prefix)
        for entry in self._entries(folder):
            if entry.is_dir(follow_symlinks=False):
                yield joined(folder, entry.name)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        with os_errors(path):
            located = self._located(checked_file(path))
            require_file(path, os.lstat(located).st_mode)
            return pa.OSFile(located, mode="r")

    # Writing

    def open_output(self, path: str) -> OutputFile:
        return _LocalOutput(self, checked_file(path))

    def put(self, path: str, data: bytes) -> None:
        with self._temporary(checked_file(path), data) as temp:
            self._replace(temp, path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with os_errors(path, writing=True):
            if os.path.lexists(self._located(checked_file(path))):
                return False
        with self._temporary(path, data) as temp:
            return link_if_absent(temp, self._prepared(path), path)

    def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
        with os_errors(path, writing=True), self._locked(checked_file(path)):
            try:
                current = self.read(path)
            except FileNotFoundError:
                return False
            if _version(current) != version:
                return False
            self.put(path, data)
            return True

    def delete(self, paths: Sequence[str]) -> None:
        folders = set()
        for path in paths:
            with os_errors(path):
                try:
                    located = self._located(checked_file(path))
                    os.unlink(side_file(located))
                except (FileNotFoundError, NotADirectoryError):
                    pass
                folder = os.path.dirname(located)
                try:
                    os.unlink(located)
                except (FileNotFoundError, NotADirectoryError):
                    if self._without_empty(folder) == folder:
                        continue
                except IsADirectoryError as error:
                    raise CorruptTable("a folder where a file is expected", file=path) from error
                folders.add(folder)
        for folder in sorted(folders):
            with suppress(FileNotFoundError), os_errors(folder):
                sync_folder(self._without_empty(folder))

    def _without_empty(self, folder: str) -> str:
        """Remove a temporary or metadata folder if it is empty, and such parents; returns the folder that is left."""
        while folder.startswith((f"{self._base}/{TEMP_DIR}/", f"{self._base}/{METADATA_DIR}")):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                break  # not empty
            folder = os.path.dirname(folder)
        return folder

    # Names and temporaries

    def _located(self, path: str) -> str:
        """The absolute path, after checking that no folder on the way is a symbolic link."""
        here = self._base
        parts = path.split("/") if path else []
        for part in parts[:-1]:
            here = f"{here}/{part}"
            try:
                if stat_bits.S_ISLNK(os.lstat(here).st_mode):
                    raise symlink_error(path)
            except FileNotFoundError:
                break
        return f"{self._base}/{path}" if path else self._base

    def _entries(self, folder: str) -> Sequence[os.DirEntry[str]]:
        """What a folder holds, in path order; a symbolic link is refused, since skipping it could hide data."""
        with os_errors(folder):
            located = self._located(folder)
            try:
                if folder and stat_bits.S_ISLNK(os.lstat(located).st_mode):
                    raise symlink_error(folder)
                with os.scandir(located) as found:
                    entries = list(found)
            except (FileNotFoundError, NotADirectoryError):
                return []
        for entry in entries:
            if entry.is_symlink():
                raise symlink_error(joined(folder, entry.name))
        return sorted(
            entries, key=lambda entry: entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name
        )

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, int]]:
        """An open descriptor of a regular file and its size; never blocks on a pipe of that name."""
        fd = os.open(self._located(checked_file(path)), READ_FLAGS)
        try:
            found = os.fstat(fd)
            require_file(path, found.st_mode)
            yield fd, found.st_size
        finally:
            os.close(fd)

    def _temp_folder(self, path: str) -> str:
        in_table = path.startswith(".hoodie/") or os.path.isdir(f"{self._base}/.hoodie")
        folder = TEMP_DIR if in_table else BARE_TEMP_DIR
        made = self._located(f"{folder}/_")[:-2]
        make_folder(made)
        return made

    def _create_temporary(self, path: str) -> tuple[int, str]:
        temp = f"{self._temp_folder(path)}/{temporary_name()}"
        return os.open(temp, CREATE_FLAGS, 0o666), temp

    @contextmanager
    def _temporary(self, path: str, data: bytes) -> Iterator[str]:
        """A flushed temporary file that holds `data`; deleted afterwards unless it was renamed."""
        with os_errors(path, writing=True):
            fd, temp = self._create_temporary(path)
            try:
                try:
                    write_all(fd, memoryview(data))
                    os.fsync(fd)
                finally:
                    os.close(fd)
                yield temp
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temp)

    def _prepared(self, path: str) -> str:
        """The absolute final name, its folder made and a checksum of former bytes removed."""
        final = self._located(path)
        make_folder(os.path.dirname(final))
        with suppress(FileNotFoundError):
            os.unlink(side_file(final))
        return final

    def _replace(self, temp: str, path: str) -> None:
        final = self._prepared(path)
        with suppress(FileNotFoundError):
            if stat_bits.S_ISLNK(os.lstat(final).st_mode):
                raise symlink_error(path)
        os.rename(temp, final)
        sync_folder(os.path.dirname(final))

    @contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        """One lock per table, held for a read and a rename; released by the kernel when the process dies."""
        name = f"{self._temp_folder(path)}/{_LOCK_NAME}"
        while True:
            fd = os.open(name, LOCK_FLAGS, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if same_file(fd, name):
                    yield
                    return
            finally:
                os.close(fd)


class _LocalOutput(OutputFile):
    """Writes a temporary file, and renames it at close."""

    def __init__(self, storage: LocalStorage, path: str) -> None:
        self._storage = storage
        with os_errors(path, writing=True):
            fd, self._temp = storage._create_temporary(path)
            self._file = os.fdopen(fd, "wb", buffering=_WRITE_BUFFER)
        super().__init__(path)

    def _append(self, data: memoryview) -> None:
        with os_errors(self.path, writing=True):
            self._file.write(data)

    def _publish(self) -> None:
        with os_errors(self.path, writing=True):
            try:
                with self._file:
                    self._file.flush()
                    os.fsync(self._file.fileno())
                self._storage._replace(self._temp, self.path)
            except BaseException:
                self._discard()
                raise

    def _discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._temp)


def temporary_name() -> str:
    """A new name for a temporary file; it names the process, so that files of ended processes can be recognised."""
    return f"{TEMP_PREFIX}{Process.current()}.{uuid4().hex}"


def owner_of_temporary(name: str) -> Process | None:
    """The process that a temporary file belongs to."""
    return Process.parse(name.removeprefix(TEMP_PREFIX).rpartition(".")[0]) if name.startswith(TEMP_PREFIX) else None


def _info(path: str, found: os.stat_result) -> FileInfo:
    return FileInfo(path, found.st_size, found.st_mtime_ns // 1_000_000)


def _version(data: bytes) -> str:
    """A hash of the content: two different files written in the same clock tick can have equal sizes and times."""
    return xxhash.xxh3_128_hexdigest(data)
