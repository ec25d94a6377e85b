"""From a table's location to its storage: the scheme decides.

Paths are taken as they are written, without percent-decoding, as Hadoop and Spark do: `a%20b` names the folder
`a%20b`, which is also what Hudi's URL-encoded partition folders need.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from obstore import exceptions
from obstore.store import from_url

from lakebed.errors import InvalidRequest
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.object_store import ObjectStorage
from lakebed.storage.storage import Storage

OBJECT_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss")
KNOWN_SCHEMES = ("file", "memory", *OBJECT_SCHEMES)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)

_CLIENT_OPTIONS = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_headers",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "timeout",
    "user_agent",
}
_S3_ALIASES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint",
    "fs.s3a.endpoint.region": "region",
    "aws_allow_http": "allow_http",
}


def open_storage(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The storage of a location: a path or `file://`, `memory://name/...`, or the URL of an object store.

    `storage_options` go to obstore (`access_key_id`, `endpoint`, `region`, `timeout`, ...); the names that fsspec and
    Hadoop use for keys, endpoint and region are understood, too. Local and memory stores take none.
    """
    text = _text_of(url)
    options = dict(storage_options or {})
    match = _SCHEME.fullmatch(text)
    if match is None:
        return _local(text, options)
    scheme, slashes, rest = match[1].lower(), match[2], match[3]
    if scheme == "file":
        return _local(_file_path(text, rest, has_host=bool(slashes)), options)
    if slashes and scheme == "memory":
        _no_options(text, options)
        name, _, folder = rest.partition("/")
        return MemoryStorage(name, _folder(text, folder))
    if slashes and scheme in OBJECT_SCHEMES:
        return _object(text, scheme, rest, options)
    if not slashes:
        return _local(text, options)  # a colon inside a plain path
    raise InvalidRequest(
        f"no storage for {text!r}", hint=f"Known schemes: {', '.join(KNOWN_SCHEMES)}, or a local path."
    )


def _text_of(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidRequest(f"a location is a path or a URL, not {type(url).__name__}", hint="Give text or a Path.")
    if "\0" in text:
        raise InvalidRequest(f"{text!r} is no location: it holds a null character", hint="Check the path.")
    return text


def _folder(url: str, folder: str) -> str:
    """The folder below a bucket; stores do not agree on what `..` and `//` in a key mean."""
    folder = folder.strip("/")
    if folder and any(part in {"", ".", ".."} for part in folder.split("/")):
        raise InvalidRequest(f"{url!r} has an empty, `.` or `..` part", hint="Write the path out.")
    return folder


def _local(path: str, options: Mapping[str, Any]) -> Storage:
    _no_options(path, options)
    if not path:
        raise InvalidRequest("the location is empty", hint="Give the folder of a table.")
    return LocalStorage(path)


def _file_path(url: str, rest: str, *, has_host: bool) -> str:
    host, slash, path = rest.partition("/") if has_host else ("", rest[:1], rest[1:])
    if host not in {"", "localhost"} or slash != "/":
        raise InvalidRequest(f"{url!r} is not an absolute file URL", hint="Write file:///path or just the path.")
    return f"/{path}"


def _no_options(url: str, options: Mapping[str, Any]) -> None:
    if options:
        raise InvalidRequest(f"{url!r} takes no storage_options, got {', '.join(sorted(options))}")


def _object(url: str, scheme: str, rest: str, options: Mapping[str, Any]) -> ObjectStorage:
    bucket, _, folder = rest.partition("/")
    if not bucket:
        raise InvalidRequest(f"{url!r} names no bucket")
    root = f"{scheme}://{bucket}"
    connect = partial(_connect, root, _normalised(scheme, options))
    try:
        return ObjectStorage(connect, url=root, folder=_folder(url, folder))
    except exceptions.UnknownConfigurationKeyError as error:
        raise InvalidRequest(f"{str(error).partition(chr(10))[0]} ({url})") from error
    except (exceptions.BaseError, ValueError, TypeError) as error:
        raise InvalidRequest(f"cannot open {url!r}: {str(error).partition(chr(10))[0]}") from error


def _normalised(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under obstore's names; a plain-HTTP endpoint is taken as leave to use HTTP."""
    named: dict[str, Any] = {}
    for key, value in options.items():
        key = key.lower()
        if key == "fs.s3a.path.style.access":
            named["virtual_hosted_style_request"] = str(value).lower() != "true"
        else:
            named[_S3_ALIASES.get(key, key) if scheme in {"s3", "s3a"} else key] = value
    if str(named.get("endpoint") or named.get("aws_endpoint") or named.get("aws_endpoint_url") or "").startswith(
        "http:"
    ):
        named.setdefault("allow_http", True)
    return named


def _connect(root: str, options: Mapping[str, Any]) -> Any:
    config = {key: value for key, value in options.items() if key not in _CLIENT_OPTIONS and key != "retry_config"}
    client = {key: value for key, value in options.items() if key in _CLIENT_OPTIONS}
    if root.startswith("gcs://"):
        root = f"gs://{root[len('gcs://') :]}"
    make: Any = from_url  # typed per store, which is only known from the URL
    return make(root, config=config, client_options=client or None, retry_config=options.get("retry_config"))
