r"""The Avro codec: the container that timeline files are, and bare values.

    container    "Obj\x01"  meta: map<bytes>  sync: 16 bytes   then one block   count  size  records  sync
                 meta holds `avro.schema` and nothing else (no codec entry), the one block holds one record
    binary       a record's bytes alone, as in HFile values and delete blocks; the schema is elsewhere

A file is decoded with the schema it carries, so fields of newer writers are read and old files miss some. A schema
from a file is not trusted: one that recurses, or whose array elements take no bytes, could loop for ever: refused.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.avro.schemas import NAMESPACE, SCHEMAS

__all__ = [
    "NAMESPACE",
    "SCHEMAS",
    "Container",
    "decode_binary",
    "encode_binary",
    "load_schema",
    "read_container",
    "read_named_container",
    "write_container",
]

MAGIC = b"Obj\x01"


@lru_cache(maxsize=len(SCHEMAS))
def _declared_schema(name: str) -> Any:
    return fastavro.parse_schema(SCHEMAS[name])


@lru_cache(maxsize=256)
def _loaded_schema(text: str) -> Any:
    raw = json.loads(text)
    _check_depth(raw, 60)
    schema = fastavro.parse_schema(raw, _write_hint=True)
    _smallest(schema, {})
    return schema


def load_schema(text: str | bytes, file: str) -> Any:
    """A schema found in a file, checked and ready for `decode_binary`; the same text is parsed once."""
    try:
        return _loaded_schema(text if isinstance(text, str) else text.decode())
    except Exception as problem:
        raise CorruptTable(f"not a usable Avro schema: {problem}", file=file) from None


def _check_depth(node: Any, left: int) -> None:
    if left == 0:
        raise ValueError("nested too deeply")
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _check_depth(child, left - 1)


def _smallest(schema: Any, known: dict[str, int | None]) -> int:
    """The fewest bytes a value can take; refuses schemas whose values may be endless without taking any."""
    if isinstance(schema, str):
        if schema in known:
            size = known[schema]
            if size is None:
                raise ValueError(f"{schema} contains itself")
            return size
        return {"null": 0, "float": 4, "double": 8}.get(schema, 1)
    if isinstance(schema, list):
        return 1 + min([_smallest(branch, known) for branch in schema], default=0)
    kind = schema["type"]
    if kind == "array":
        if _smallest(schema["items"], known) == 0:
            raise ValueError("array elements that take no bytes")
        return 1
    if kind == "map":
        _smallest(schema["values"], known)
        return 1
    if kind in ("record", "error"):
        known[schema["name"]] = None
        size = sum(_smallest(field["type"], known) for field in schema["fields"])
        known[schema["name"]] = size
        return size
    if kind in ("fixed", "enum"):
        known[schema["name"]] = size = int(schema["size"]) if kind == "fixed" else 1
        return size
    return _smallest(kind, known)


def decode_binary(schema: Any, data: bytes | memoryview, file: str, offset: int = 0) -> Any:
    """One value from bytes that hold nothing else.

    `schema` is a declared name or the result of `load_schema`. Where a union has several records the value comes as
    (full name, record), since an `IntWrapper` and a `LongWrapper` differ in nothing else. `offset` is the position of
    the data in the file, for messages.
    """
    stream = io.BytesIO(data)
    parsed = _declared_schema(schema) if isinstance(schema, str) and schema in SCHEMAS else schema
    try:
        value = fastavro.schemaless_reader(
            stream, parsed, None, return_record_name=True, return_record_name_override=True
        )
    except Exception as problem:
        what = f"malformed Avro value: {problem or type(problem).__name__}"
        raise CorruptTable(what, file=file, offset=offset + stream.tell()) from None
    if stream.tell() != len(data):
        raise CorruptTable("bytes after the end of an Avro value", file=file, offset=offset + stream.tell())
    return value


def encode_binary(schema: Any, value: Any) -> bytes:
    """The bytes of one value; `schema` as in `decode_binary`."""
    stream = io.BytesIO()
    parsed = _declared_schema(schema) if isinstance(schema, str) and schema in SCHEMAS else schema
    fastavro.schemaless_writer(stream, parsed, value)
    return stream.getvalue()


class Container(NamedTuple):
    """The one record of a container file and the short name of its type."""

    name: str
    record: dict[str, Any]


def read_container(data: bytes, file: str) -> dict[str, Any]:
    """The record of a container file such as a timeline file, decoded with the schema that the file carries."""
    return read_named_container(data, file).record


def read_named_container(data: bytes, file: str) -> Container:
    """Like `read_container`, with the name of the record's type."""
    if data[:4] != MAGIC:
        raise CorruptTable("not an Avro container file", file=file, offset=0)
    meta, at = _read_meta(data, file)
    codec = meta.get("avro.codec", b"null")
    if codec != b"null":
        raise UnsupportedFormat(f"Avro codec {codec[:20]!r} in a timeline file", file=file)
    if "avro.schema" not in meta:
        raise CorruptTable("an Avro container without a schema", file=file, offset=4)
    schema = load_schema(meta["avro.schema"], file)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise CorruptTable("the schema of a timeline file is not a record", file=file, offset=4)
    sync, at = _take(data, at, 16, file)
    start = at
    count, at = _read_long(data, at, file)
    size, at = _read_long(data, at, file)
    if count != 1:
        raise CorruptTable(f"a timeline file holds one record, this one claims {count}", file=file, offset=start)
    payload, end = _take(data, at, size, file)
    if data[end : end + 16] != sync or len(data) != end + 16:
        raise CorruptTable("the block of an Avro container does not end where it should", file=file, offset=end)
    return Container(schema["name"].rpartition(".")[2], decode_binary(schema, payload, file, at))


def write_container(schema_name: str, record: Mapping[str, Any]) -> bytes:
    """A container file with one record, byte for byte repeatable: the sync marker is taken from the content."""
    schema = json.dumps(SCHEMAS[schema_name], separators=(",", ":")).encode()
    payload = encode_binary(schema_name, record)
    sync = hashlib.md5(schema + payload, usedforsecurity=False).digest()
    meta = _long(1) + _bytes(b"avro.schema") + _bytes(schema) + _long(0)
    return MAGIC + meta + sync + _long(1) + _bytes(payload) + sync


def _read_meta(data: bytes, file: str) -> tuple[dict[str, bytes], int]:
    meta: dict[str, bytes] = {}
    at = 4
    while True:
        count, at = _read_long(data, at, file)
        if count == 0:
            return meta, at
        if count < 0:
            _, at = _read_long(data, at, file)
        for _ in range(abs(count)):  # each turn takes bytes or raises
            size, at = _read_long(data, at, file)
            key, at = _take(data, at, size, file)
            size, at = _read_long(data, at, file)
            meta[key.decode("utf-8", "replace")], at = _take(data, at, size, file)


def _take(data: bytes, at: int, size: int, file: str) -> tuple[bytes, int]:
    if not 0 <= size <= len(data) - at:
        raise CorruptTable(f"{size} bytes are wanted where {len(data) - at} are left", file=file, offset=at)
    return data[at : at + size], at + size


def _read_long(data: bytes, at: int, file: str) -> tuple[int, int]:
    value = 0
    for i in range(10):
        if at + i >= len(data):
            break
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + i + 1
    raise CorruptTable("a number runs past the end of the file or of its range", file=file, offset=at)


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(data: bytes) -> bytes:
    return _long(len(data)) + data
