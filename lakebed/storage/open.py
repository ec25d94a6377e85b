"""Opens the storage of a table's location, by its URL scheme.

A new storage is a file with its `StorageScheme` and a line here. Other distributions register theirs, or declare an
entry point of the group `lakebed.storages` under the scheme.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.errors import InvalidRequest
from lakebed.registry import Registry
from lakebed.storage.storage import Storage

STORAGES = Registry(
    "lakebed.storages",
    {
        "file": "lakebed.storage.location:FILE",
        "memory": "lakebed.storage.location:MEMORY",
        "s3": "lakebed.storage.object_url:OBJECT_STORE",
        **dict.fromkeys(("s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss"), "s3"),
    },
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StorageScheme:
    """Locations `name://...`: `open` gets the whole URL and the `storage_options` of the caller."""

    name: str
    open: Callable[[str, Mapping[str, Any]], Storage]


def register_storage(scheme: StorageScheme) -> None:
    """Make the storage of a URL scheme known to this process."""
    STORAGES.register(scheme.name, scheme)


def open_storage(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The storage of a location: a path or `file://`, `memory://name/...`, the URL of an object store, or of a scheme
    that another package registered. `storage_options` are the storage's own; local and memory stores take none.
    """
    text = _text_of(url)
    match = _SCHEME.fullmatch(text)
    scheme, slashes = (match[1].lower(), match[2]) if match else ("file", None)
    found = STORAGES.find(scheme if slashes else "file", StorageScheme)  # without slashes: a colon in a plain path
    if found is None:
        raise InvalidRequest(
            f"no storage for {text!r}", hint=f"Known schemes: {', '.join(STORAGES.words)}, or a local path."
        )
    return found.open(text, dict(storage_options or {}))


def _text_of(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidRequest(f"a location is a path or a URL, not {type(url).__name__}", hint="Give text or a Path.")
    if "\0" in text:
        raise InvalidRequest(f"{text!r} is no location: it holds a null character", hint="Check the path.")
    return text
