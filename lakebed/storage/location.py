"""Locations on a local disk and in memory, and what all locations have in common.

Paths are taken as they are written, without percent-decoding, as Hadoop and Spark do: `a%20b` names the folder
`a%20b`, which is also what Hudi's URL-encoded partition folders need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebed.errors import InvalidRequest
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.open import StorageScheme
from lakebed.storage.storage import Storage


def open_local(url: str, options: Mapping[str, Any]) -> Storage:
    """The storage of a path, or of a `file:` URL."""
    path = _file_path(url) if url[:5].lower() == "file:" else url
    no_options(path, options)
    if not path:
        raise InvalidRequest("the location is empty", hint="Give the folder of a table.")
    return LocalStorage(path)


def open_memory(url: str, options: Mapping[str, Any]) -> Storage:
    """The storage of `memory://name/folder`."""
    no_options(url, options)
    name, _, folder = url.partition("://")[2].partition("/")
    return MemoryStorage(name, checked_location(url, folder))


FILE = StorageScheme("file", open_local)
MEMORY = StorageScheme("memory", open_memory)


def checked_location(url: str, folder: str) -> str:
    """The folder below a bucket; stores do not agree on what `..` and `//` in a key mean."""
    folder = folder.strip("/")
    if folder and any(part in {"", ".", ".."} for part in folder.split("/")):
        raise InvalidRequest(f"{url!r} has an empty, `.` or `..` part", hint="Write the path out.")
    return folder


def no_options(url: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the storage would not read."""
    if options:
        raise InvalidRequest(f"{url!r} takes no storage_options, got {', '.join(sorted(options))}")


def _file_path(url: str) -> str:
    rest = url[5:]
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", rest[:1], rest[1:])
    if host not in {"", "localhost"} or slash != "/":
        raise InvalidRequest(f"{url!r} is not an absolute file URL", hint="Write file:///path or just the path.")
    return f"/{path}"
