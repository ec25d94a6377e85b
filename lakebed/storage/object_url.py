"""Locations in object stores: the URL scheme selects the store of obstore."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from obstore import exceptions
from obstore.store import from_url

from lakebed.errors import InvalidRequest
from lakebed.storage.location import checked_location
from lakebed.storage.object_store import ObjectStorage
from lakebed.storage.open import StorageScheme
from lakebed.storage.storage import Storage

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


def open_object_store(url: str, options: Mapping[str, Any]) -> Storage:
    """The storage of `s3://bucket/folder` and the like.

    Options go to obstore (`access_key_id`, `endpoint`, `region`, `timeout`, ...); the names that fsspec and Hadoop use
    for keys, endpoint and region are understood, too.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    bucket, _, folder = rest.partition("/")
    if not bucket:
        raise InvalidRequest(f"{url!r} names no bucket")
    root = f"{scheme}://{bucket}"
    connect = partial(_connect, root, _normalised(scheme, options))
    try:
        return ObjectStorage(connect, url=root, folder=checked_location(url, folder))
    except exceptions.UnknownConfigurationKeyError as error:
        raise InvalidRequest(f"{str(error).partition(chr(10))[0]} ({url})") from error
    except (exceptions.BaseError, ValueError, TypeError) as error:
        raise InvalidRequest(f"cannot open {url!r}: {str(error).partition(chr(10))[0]}") from error


OBJECT_STORE = StorageScheme("s3", open_object_store)


def _normalised(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under obstore's names; a plain-HTTP endpoint also allows HTTP."""
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
