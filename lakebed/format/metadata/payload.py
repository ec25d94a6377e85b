"""The bytes of a metadata table record, encoded and decoded.

    value  =  Avro binary of HoodieMetadataRecord: key "" | type | filesystemMetadata? | BloomFilterMetadata?
              | ColumnStatsMetadata? | recordIndexMetadata? | SecondaryIndexMetadata?

One Avro record type serves all partitions and `type` states which part is filled; in memory every kind is a class of
its own. The key is blank inside the value and comes from the HFile. Bytes are always decoded with the schema stored
beside them. Hudi's writers put the five meta fields in front, all null; only compaction fills the file name. A file id
that is a UUID and a number is stored as two halves.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lakebed.errors import CorruptTable
from lakebed.format.avro.container import NAMESPACE, SCHEMAS, decode_binary, encode_binary, load_schema
from lakebed.format.metadata.keys import split_secondary_key
from lakebed.format.metadata.records import (
    BloomFilterRecord,
    ColumnStatsRecord,
    FileEntry,
    FilesRecord,
    MetadataRecord,
    RecordIndexRecord,
    RecordType,
    SecondaryIndexRecord,
)

_META_FIELDS = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
RECORD_SCHEMA_JSON = json.dumps(
    {
        **SCHEMAS["HoodieMetadataRecord"],
        "fields": [
            *({"name": f"_hoodie_{name}", "type": ["null", "string"], "default": None} for name in _META_FIELDS),
            *SCHEMAS["HoodieMetadataRecord"]["fields"],
        ],
    },
    separators=(",", ":"),
)
"""The schema that written files and log blocks carry."""

_UUID_ENCODING, _RAW_ENCODING = 0, 1
_UUID_FILE_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-(0|[1-9][0-9]{0,8}))?")


def decode_record(key: bytes, value: bytes, schema: Any, file: str, offset: int = 0) -> MetadataRecord:
    """The record of one HFile entry. `schema` is what `avro.load_schema` made of the schema beside the entries."""
    avro = decode_binary(schema, value, file, offset)
    try:
        return _RECORDS[RecordType(avro["type"])](key.decode("utf-8"), avro)
    except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise CorruptTable(
            f"the metadata record of {key[:80]!r} is malformed ({error})", file=file, offset=offset
        ) from error


def encode_record(record: MetadataRecord, file_name: str | None = None) -> bytes:
    """The value of an HFile entry in `RECORD_SCHEMA_JSON`; compaction also notes the file it writes to."""
    fields = {"_hoodie_file_name": file_name, "key": "", **_FIELDS[type(record)](record)}
    return encode_binary(load_schema(RECORD_SCHEMA_JSON, "HoodieMetadataRecord"), fields)


def _files(key: str, avro: dict[str, Any]) -> FilesRecord:
    entries = {
        name: FileEntry(info["size"], info["isDeleted"]) for name, info in (avro["filesystemMetadata"] or {}).items()
    }
    return FilesRecord(key, RecordType(avro["type"]), MappingProxyType(entries))


def _bloom(key: str, avro: dict[str, Any]) -> BloomFilterRecord:
    part = avro["BloomFilterMetadata"]
    return BloomFilterRecord(key, part["type"], part["timestamp"], part["bloomFilter"], part["isDeleted"])


def _stats(key: str, avro: dict[str, Any]) -> ColumnStatsRecord:
    part = avro["ColumnStatsMetadata"]
    (min_wrapper, min_value), (max_wrapper, max_value) = _unwrap(part["minValue"]), _unwrap(part["maxValue"])
    kind = part.get("valueType") or {}
    return ColumnStatsRecord(
        key,
        RecordType(avro["type"]),
        part["fileName"],
        part["columnName"],
        min_value,
        max_value,
        min_wrapper or max_wrapper,
        part["valueCount"],
        part["nullCount"],
        part["totalSize"],
        part["totalUncompressedSize"],
        part["isDeleted"],
        part.get("isTightBound", False),
        kind.get("typeOrdinal"),
        kind.get("additionalInfo"),
    )


def _unwrap(wrapped: tuple[str, dict[str, Any]] | None) -> tuple[str | None, Any]:
    if wrapped is None:
        return None, None
    name, value = wrapped[0].rpartition(".")[2], wrapped[1].get("value")
    if isinstance(value, dt.time):
        value = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return name, value


def _location(key: str, avro: dict[str, Any]) -> RecordIndexRecord:
    part = avro["recordIndexMetadata"]
    if part.get("fileIdEncoding", _UUID_ENCODING) == _UUID_ENCODING:
        file_id = str(uuid.UUID(bytes=struct.pack(">qq", part["fileIdHighBits"], part["fileIdLowBits"])))
        if part["fileIndex"] >= 0:
            file_id += f"-{part['fileIndex']}"
    else:
        file_id = part["fileId"]
    return RecordIndexRecord(key, part["partitionName"], file_id, part["instantTime"], part.get("position"))


def _secondary(key: str, avro: dict[str, Any]) -> SecondaryIndexRecord:
    pair = split_secondary_key(key)
    if pair is None:
        raise ValueError("the key holds no separator")
    return SecondaryIndexRecord(key, *pair, avro["SecondaryIndexMetadata"]["isDeleted"])


_RECORDS: Mapping[RecordType, Callable[[str, dict[str, Any]], MetadataRecord]] = {
    RecordType.ALL_PARTITIONS: _files,
    RecordType.FILES: _files,
    RecordType.COLUMN_STATS: _stats,
    RecordType.PARTITION_STATS: _stats,
    RecordType.BLOOM_FILTER: _bloom,
    RecordType.RECORD_INDEX: _location,
    RecordType.SECONDARY_INDEX: _secondary,
}


def _files_fields(record: FilesRecord) -> dict[str, Any]:
    entries = {name: {"size": entry.size, "isDeleted": entry.is_deleted} for name, entry in record.entries.items()}
    return {"type": record.type, "filesystemMetadata": entries}


def _bloom_fields(record: BloomFilterRecord) -> dict[str, Any]:
    part = {
        "type": record.type_code,
        "timestamp": record.timestamp,
        "bloomFilter": record.bloom_filter,
        "isDeleted": record.is_deleted,
    }
    return {"type": RecordType.BLOOM_FILTER, "filesystemMetadata": None, "BloomFilterMetadata": part}


def _stats_fields(record: ColumnStatsRecord) -> dict[str, Any]:
    def wrap(value: Any) -> Any:
        return None if value is None else (f"{NAMESPACE}.{record.wrapper}", {"value": value})

    kind = None
    if record.type_ordinal is not None:
        kind = {"typeOrdinal": record.type_ordinal, "additionalInfo": record.type_info}
    part = {
        "fileName": record.file_name,
        "columnName": record.column_name,
        "minValue": wrap(record.min_value),
        "maxValue": wrap(record.max_value),
        "valueCount": record.value_count,
        "nullCount": record.null_count,
        "totalSize": record.total_size,
        "totalUncompressedSize": record.total_uncompressed_size,
        "isDeleted": record.is_deleted,
        "isTightBound": record.is_tight_bound,
        "valueType": kind,
    }
    return {"type": record.type, "filesystemMetadata": None, "ColumnStatsMetadata": part}


def _location_fields(record: RecordIndexRecord) -> dict[str, Any]:
    part: dict[str, Any] = {
        "partitionName": record.partition,
        "instantTime": record.instant_ms,
        "position": record.position,
    }
    match = _UUID_FILE_ID.fullmatch(record.file_id)
    high, low, index, raw = -1, -1, -1, record.file_id
    if match:
        high, low = struct.unpack(">qq", uuid.UUID(match[1]).bytes)
        index, raw = int(match[2] or -1), ""
    part |= {"fileIdHighBits": high, "fileIdLowBits": low, "fileIndex": index, "fileId": raw}
    part["fileIdEncoding"] = _UUID_ENCODING if match else _RAW_ENCODING
    return {"type": RecordType.RECORD_INDEX, "filesystemMetadata": None, "recordIndexMetadata": part}


def _secondary_fields(record: SecondaryIndexRecord) -> dict[str, Any]:
    part = {"isDeleted": record.is_deleted}
    return {"type": RecordType.SECONDARY_INDEX, "filesystemMetadata": None, "SecondaryIndexMetadata": part}


_FIELDS: Mapping[type, Any] = {
    FilesRecord: _files_fields,
    BloomFilterRecord: _bloom_fields,
    ColumnStatsRecord: _stats_fields,
    RecordIndexRecord: _location_fields,
    SecondaryIndexRecord: _secondary_fields,
}
