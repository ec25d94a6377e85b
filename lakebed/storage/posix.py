# Paths stay strings here, so that a large listing costs no object per name.
# ruff: noqa: PTH102, PTH120
"""The file system calls below `LocalStorage`: durable, never following a link, with errors a caller can act on."""

from __future__ import annotations

import errno
import os
import stat as stat_bits
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lakebed.errors import CorruptTable, StorageUnavailable

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


@contextmanager
def os_errors(path: str, *, writing: bool = False) -> Iterator[None]:
    """Turn errors of the operating system into errors a caller can act on; only a reader can miss a file."""
    try:
        yield
    except OSError as error:
        if error.errno in _ABSENT and not writing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        if error.errno == errno.ELOOP:
            raise symlink_error(path) from error
        if error.errno == errno.ENAMETOOLONG:
            raise CorruptTable("the name is too long for this file system", file=path) from error
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        raise StorageUnavailable(f"the file system answered: {reason}", file=path) from error


def symlink_error(path: str) -> CorruptTable:
    """A link could lead outside the table, or hide that two names are one file."""
    return CorruptTable("a symbolic link inside the table", file=path, hint="Links are not followed; replace it.")


def require_file(path: str, mode: int) -> None:
    """Refuse what is no regular file: a folder counts as a missing file, a pipe would block for ever."""
    if stat_bits.S_ISDIR(mode):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if stat_bits.S_ISLNK(mode):
        raise symlink_error(path)
    if not stat_bits.S_ISREG(mode):
        raise CorruptTable("not a regular file", file=path)


def pread(fd: int, length: int, offset: int) -> bytes:
    """Up to `length` bytes; the kernel may return a large range in parts."""
    first = os.pread(fd, length, offset)
    if len(first) == length or not first:
        return first
    pieces = [first]
    done = len(first)
    while done < length and (piece := os.pread(fd, length - done, offset + done)):
        pieces.append(piece)
        done += len(piece)
    return b"".join(pieces)


def write_all(fd: int, data: memoryview) -> None:
    """Write everything; the kernel may take it in parts."""
    while data:
        data = data[os.write(fd, data) :]


def side_file(located: str) -> str:
    """The name of Hadoop's checksum file beside a file."""
    folder, _, name = located.rpartition("/")
    return f"{folder}/.{name}.crc"


def link_if_absent(temp: str, final: str, path: str) -> bool:
    """Give a file its final name unless the name is taken: `link` is atomic, so exactly one caller succeeds."""
    try:
        os.link(temp, final, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise StorageUnavailable(
                f"this file system makes no hard links ({os.strerror(error.errno)})",
                file=path,
                hint="Commits need them to create a file exactly once; use another file system.",
            ) from error
        raise
    sync_folder(os.path.dirname(final))
    return True


def make_folder(folder: str) -> None:
    """Make a folder and its parents, each durable in its own parent before anything is put into it."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder)
    sync_folder(os.path.dirname(folder))


def sync_folder(folder: str) -> None:
    """Flush a folder: a file whose name is not on disk is lost in a power cut, even if its bytes are on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def same_file(fd: int, name: str) -> bool:
    """Whether the lock file is still the one on disk: another process may have deleted it while this one waited."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(name))
    except FileNotFoundError:
        return False
