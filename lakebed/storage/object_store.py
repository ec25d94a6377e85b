"""Tables in S3, Google Cloud Storage and Azure, over obstore.

The two guarantees are the stores' own conditional puts. A request without an answer needs care: it may have taken
effect, or may still do so. Each conditional put therefore carries a random mark in the object's metadata.
After a failure the same put is sent again with the same mark, and when the store says that the name is taken or the
version has changed, the mark shows whether this call wrote it. obstore retries server errors by itself, so even a plain
"already exists" is checked by the mark; where the mark does not decide, the call raises `StorageUnavailable` rather
than guess.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import obstore
import pyarrow as pa
from obstore import exceptions

from lakebed.errors import CorruptTable, InvalidRequest, StorageUnavailable
from lakebed.storage.range_file import RangeFile, RequestCounter, cut_ranges, merged_ranges
from lakebed.storage.storage import FileInfo, OutputFile, check_range, checked_file, checked_folder, joined

MARK = "lakebed-put"
_ATTEMPTS = 3
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PART_SIZE = 10 << 20
_REFUSED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)

Connect = Callable[[], Any]
"""Makes the obstore store. Pickled in place of the store, whose own pickling loses some settings."""


class ObjectStorage:
    """A `Storage` below one prefix of a bucket; `requests` counts the requests over the network."""

    is_local = False
    is_shared = True

    def __init__(self, connect: Connect, *, url: str, folder: str = "", store: Any = None) -> None:
        self._connect = connect
        self._url = url
        self._folder = checked_folder(folder)
        self._store = connect() if store is None else store
        self.requests = RequestCounter()

    @property
    def url(self) -> str:
        return joined(self._url.rstrip("/"), self._folder)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._connect, self._url, self._folder)

    def within(self, folder: str) -> ObjectStorage:
        inner = joined(self._folder, checked_folder(folder))
        child = ObjectStorage(self._connect, url=self._url, folder=inner, store=self._store)
        child.requests = self.requests
        return child

    # Reading

    def read(self, path: str) -> bytes:
        with _errors(path):
            return bytes(self._get(path).bytes())

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        with _errors(path):
            found = self._get(path)
            return bytes(found.bytes()), _version(found.meta)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        for offset, length in ranges:
            check_range(path, offset, length, offset + max(length, 0))
        requests = merged_ranges(ranges)
        if not requests:
            self._check_ranges(path, ranges)
        try:
            fetched = self._fetch(path, requests) if requests else []
        except StorageUnavailable:
            self._check_ranges(path, ranges)  # stores report a range past the end with different errors
            raise
        if any(len(piece) != length for piece, (_, length) in zip(fetched, requests, strict=True)):
            self._check_ranges(path, ranges)
            raise StorageUnavailable("the store returned fewer bytes than requested", file=path)
        return cut_ranges(ranges, requests, fetched)

    def stat(self, path: str) -> FileInfo | None:
        self.requests.add("head")
        with _errors(path):
            try:
                return self._info(obstore.head(self._store, self._key(path)))
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "", *, recursive: bool = False) -> Iterator[FileInfo]:
        folder = self._prefix(prefix)
        self.requests.add("list")
        with _errors(prefix):
            if not recursive:
                listed = obstore.list_with_delimiter(self._store, folder or None)["objects"]
                yield from map(self._info, listed)
                return
            for chunk in obstore.list(self._store, folder or None):
                yield from map(self._info, chunk)

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        folder = self._prefix(prefix)
        self.requests.add("list")
        with _errors(prefix):
            listed = obstore.list_with_delimiter(self._store, folder or None)["common_prefixes"]
        yield from (self._relative(name) for name in listed)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        def fetch(start: int, length: int) -> bytes:
            return self.read_ranges(path, [(start, length)])[0]

        def fetch_tail(length: int) -> tuple[bytes, int]:
            return self._read_tail(path, length)

        return pa.PythonFile(RangeFile(path, fetch, fetch_tail, size), mode="r")

    # Writing

    def open_output(self, path: str) -> OutputFile:
        return _ObjectOutput(self, checked_file(path))

    def put(self, path: str, data: bytes) -> None:
        self.requests.add("put")
        with _errors(path):
            obstore.put(self._store, self._key(path), data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        mark = uuid4().hex
        unanswered: _Unanswered | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._conditional_put(path, data, "create", mark)
            except exceptions.AlreadyExistsError:
                ours = self._is_ours(path, data, mark, unanswered)
                if ours is not None:
                    return ours  # None: the name was taken and is free again, so the put is retried
            except _Unanswered as error:
                unanswered = error
        raise StorageUnavailable("no answer whether the file was created", file=path) from unanswered

    def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
        mark = uuid4().hex
        unanswered: _Unanswered | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._conditional_put(path, data, _update_mode(path, version), mark)
            except (exceptions.PreconditionError, exceptions.AlreadyExistsError, FileNotFoundError):
                if self._is_ours(path, data, mark, unanswered):
                    return True
                if unanswered is None:
                    return False
                break  # our write may have been replaced meanwhile: neither True nor False would be correct
            except _Unanswered as error:
                unanswered = error
        raise StorageUnavailable("no answer whether the file was replaced", file=path) from unanswered

    def delete(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        self.requests.add("delete")
        with _errors(paths[0]):
            try:
                obstore.delete(self._store, [self._key(path) for path in paths])
            except FileNotFoundError:  # one was gone, and the store stopped there
                for path in paths:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, self._key(path))

    # Requests

    def _key(self, path: str) -> str:
        return joined(self._folder, _without_controls(checked_file(path)))

    def _prefix(self, folder: str) -> str:
        return joined(self._folder, _without_controls(checked_folder(folder)))

    def _relative(self, key: str) -> str:
        return key[len(self._folder) + 1 :] if self._folder else key

    def _info(self, meta: Mapping[str, Any]) -> FileInfo:
        modified_ms = int(meta["last_modified"].timestamp() * 1000)
        return FileInfo(self._relative(meta["path"]), meta["size"], modified_ms)

    def _get(self, path: str, suffix: int | None = None) -> Any:
        self.requests.add("get")
        with _errors(path):
            if suffix is None:
                return obstore.get(self._store, self._key(path))
            return obstore.get(self._store, self._key(path), options={"range": {"suffix": suffix}})

    def _fetch(self, path: str, requests: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        self.requests.add("get_range", len(requests))
        with _errors(path):
            if len(requests) == 1:
                ((start, length),) = requests
                return [bytes(obstore.get_range(self._store, self._key(path), start=start, length=length))]
            starts, lengths = zip(*requests, strict=True)
            return [
                bytes(piece)
                for piece in obstore.get_ranges(self._store, self._key(path), starts=starts, lengths=lengths)
            ]

    def _check_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """After a rejected range, or when all ranges are empty: an error when the file does not hold the ranges."""
        if not ranges:
            return
        info = self.stat(path)
        if info is None:
            raise _missing(path)
        for offset, length in ranges:
            check_range(path, offset, length, info.size)

    def _read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last bytes of a file and its size: one request where the store supports suffix ranges, else two."""
        try:
            found = self._get(path, suffix=length)
            with _errors(path):
                return bytes(found.bytes()), found.meta["size"]
        except StorageUnavailable:
            info = self.stat(path)
            if info is None:
                raise _missing(path) from None
            start = max(info.size - length, 0)
            return self.read_ranges(path, [(start, info.size - start)])[0], info.size

    def _conditional_put(self, path: str, data: bytes, mode: Any, mark: str) -> bool:
        self.requests.add("put")
        try:
            obstore.put(self._store, self._key(path), data, mode=mode, attributes={MARK: mark}, use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError):
            raise
        except (*_REFUSED, exceptions.NotSupportedError) as error:
            raise _unavailable(path, error) from error
        except exceptions.BaseError as error:
            raise _Unanswered(str(error)) from error
        return True

    def _is_ours(self, path: str, data: bytes, mark: str, unanswered: _Unanswered | None) -> bool | None:
        """Whether the object is what this call wrote; None when there is none."""
        try:
            found = self._get(path)
            with _errors(path):
                present, found_mark = bytes(found.bytes()), found.attributes.get(MARK)
        except FileNotFoundError:
            return None
        if found_mark is None and present == data and unanswered is not None:
            raise StorageUnavailable("the same bytes are there, but not who wrote them", file=path) from unanswered
        return bool(found_mark == mark)


class _Unanswered(Exception):
    """A conditional put of which it is unknown whether it took effect."""


class _ObjectOutput(OutputFile):
    """A multipart upload, completed at close; one that is never completed is invisible."""

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        self._requests = storage.requests
        with _errors(path):
            self._writer: Any = obstore.open_writer(storage._store, storage._key(path), buffer_size=_PART_SIZE)
        super().__init__(path)

    def _append(self, data: memoryview) -> None:
        with _errors(self.path):
            self._writer.write(bytes(data))  # a copy: the upload is asynchronous, and the caller may reuse its buffer

    def _publish(self) -> None:
        self._requests.add("put")
        with _errors(self.path):
            self._writer.close()

    def _discard(self) -> None:
        self._writer = None


def _rebuilt(connect: Connect, url: str, folder: str) -> ObjectStorage:
    return ObjectStorage(connect, url=url, folder=folder)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turn obstore's errors, which quote whole replies, into lakebed's."""
    try:
        yield
    except FileNotFoundError as error:
        raise _missing(path) from error
    except exceptions.InvalidPathError as error:
        raise CorruptTable("not a name the store accepts", file=path) from error
    except (exceptions.BaseError, OSError) as error:
        raise _unavailable(path, error) from error


def _without_controls(path: str) -> str:
    """A path that obstore takes; for others it raises only `ValueError`, or `TypeError` for a list of them."""
    if _CONTROL.search(path):
        raise CorruptTable(
            f"the path {path!r} has a control character, which object stores do not take",
            hint="Partition values with such characters need hoodie.datasource.write.partitionpath.urlencode=true.",
        )
    return path


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(2, "No such file or directory", path)


def _unavailable(path: str, error: Exception) -> StorageUnavailable:
    hint = "Check the credentials in storage_options." if isinstance(error, _REFUSED) else None
    reason = str(error).partition("\n")[0]
    return StorageUnavailable(f"the store answered: {reason}", file=path, hint=hint)


def _version(meta: Mapping[str, Any]) -> str:
    return json.dumps([meta["e_tag"], meta["version"]])


def _update_mode(path: str, version: str) -> dict[str, str]:
    try:
        e_tag, number = json.loads(version)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"{version!r} is no version that this store returned", file=path) from error
    parts = {"e_tag": e_tag, "version": number}
    return {name: part for name, part in parts.items() if part is not None}
