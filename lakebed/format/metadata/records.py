"""The records of the metadata table as values, and how two records of one key are merged.

Every commit of the table writes only what it changed, so a look-up folds the records of a key, oldest first, with
`merge_records`. The bytes are `metadata/payload.py`, the keys `metadata/keys.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pyarrow as pa


class RecordType(IntEnum):
    """The `type` field."""

    ALL_PARTITIONS = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file (or a partition, of size 0) that was added or, as a tombstone, removed."""

    size: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class FilesRecord:
    """Partition ids under `__all_partitions__`, or the file names of one partition."""

    key: str
    type: RecordType
    entries: Mapping[str, FileEntry]

    @property
    def live(self) -> dict[str, int]:
        """Names and sizes of what is there, without tombstones."""
        return {name: entry.size for name, entry in self.entries.items() if not entry.is_deleted}


@dataclass(frozen=True, slots=True)
class BloomFilterRecord:
    """A base file's bloom filter. `bloom_filter` is the base64 text of the filter."""

    key: str
    type_code: str
    timestamp: str
    bloom_filter: bytes
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class ColumnStatsRecord:
    """Bounds and counts of a column in a file, or in a partition (`file_name` is then the partition).

    `min_value` and `max_value` are as stored: decimals as unscaled big-endian bytes, dates as epoch days, timestamps
    as ticks. `wrapper` names the Avro record around them. `type_ordinal` is their type; None in index version 1.
    """

    key: str
    type: RecordType
    file_name: str | None
    column_name: str | None
    min_value: Any = None
    max_value: Any = None
    wrapper: str | None = None
    value_count: int | None = None
    null_count: int | None = None
    total_size: int | None = None
    total_uncompressed_size: int | None = None
    is_deleted: bool = False
    is_tight_bound: bool = False
    type_ordinal: int | None = None
    type_info: str | None = None

    @property
    def arrow_type(self) -> pa.DataType | None:
        """The type of the bounds, or None when they cannot be used."""
        if self.type_ordinal is None or self.type_ordinal == 0:
            return _WRAPPER_TYPES.get(self.wrapper or "")
        if self.type_ordinal == _DECIMAL:
            precision, _, scale = (self.type_info or "").partition(",")
            if not precision.strip().isdigit() or not scale.strip().isdigit() or not 0 < int(precision) <= 76:
                return None
            kind = pa.decimal128 if int(precision) <= 38 else pa.decimal256
            return kind(int(precision), int(scale))
        return _ORDINAL_TYPES.get(self.type_ordinal)

    @property
    def bounds(self) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """Smallest and largest value; None where there is none, or none of a known type."""
        arrow_type = self.arrow_type
        if arrow_type is None:
            return None, None
        return _scalar(self.min_value, arrow_type), _scalar(self.max_value, arrow_type)


@dataclass(frozen=True, slots=True)
class RecordIndexRecord:
    """The location of a record key. `instant_ms` is the requested time of its write, in epoch milliseconds."""

    key: str
    partition: str
    file_id: str
    instant_ms: int
    position: int | None = None


@dataclass(frozen=True, slots=True)
class SecondaryIndexRecord:
    """One pair of a secondary value (None is null) and a record key."""

    key: str
    value: str | None
    record_key: str
    is_deleted: bool = False


MetadataRecord = FilesRecord | BloomFilterRecord | ColumnStatsRecord | RecordIndexRecord | SecondaryIndexRecord


def merge_records(older: MetadataRecord | None, newer: MetadataRecord) -> MetadataRecord | None:
    """What a key holds after a newer record; None when that removes it."""
    if isinstance(newer, SecondaryIndexRecord) and newer.is_deleted:
        return None
    if isinstance(newer, FilesRecord) and isinstance(older, FilesRecord):
        return _merge_files(older, newer)
    if isinstance(newer, ColumnStatsRecord) and isinstance(older, ColumnStatsRecord):
        return _merge_stats(older, newer)
    return newer


def _merge_files(older: FilesRecord, newer: FilesRecord) -> FilesRecord:
    """Entry by entry. A file only ever grows, so the larger size is the later one whatever the order of arrival."""
    entries = dict(older.entries)
    for name, entry in newer.entries.items():
        known = entries.get(name)
        if known is None or (entry.is_deleted and known.is_deleted):
            entries[name] = entry
        elif entry.is_deleted:
            del entries[name]
        else:
            entries[name] = FileEntry(max(entry.size, known.size))
    return FilesRecord(newer.key, newer.type, MappingProxyType(entries))


def _merge_stats(older: ColumnStatsRecord, newer: ColumnStatsRecord) -> ColumnStatsRecord:
    """Bounds that are not exact widen those before them; exact bounds and tombstones replace them."""
    if newer.is_deleted or older.is_deleted or newer.is_tight_bound:
        return newer
    typed = newer if newer.wrapper else older
    return replace(
        newer,
        min_value=_extreme(older, newer, "min_value", min),
        max_value=_extreme(older, newer, "max_value", max),
        wrapper=typed.wrapper,
        type_ordinal=typed.type_ordinal,
        type_info=typed.type_info,
        value_count=_sum(older.value_count, newer.value_count),
        null_count=_sum(older.null_count, newer.null_count),
        total_size=_sum(older.total_size, newer.total_size),
        total_uncompressed_size=_sum(older.total_uncompressed_size, newer.total_uncompressed_size),
    )


def _extreme(older: ColumnStatsRecord, newer: ColumnStatsRecord, name: str, choose: Any) -> Any:
    values = [value for value in (getattr(older, name), getattr(newer, name)) if value is not None]
    is_number = newer.type_ordinal == _DECIMAL and all(isinstance(value, bytes) for value in values)
    return choose(values, key=_unscaled if is_number else None) if values else None


def _unscaled(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


_DECIMAL = 10
_ORDINAL_TYPES = {
    1: pa.null(),
    2: pa.bool_(),
    3: pa.int32(),
    4: pa.int64(),
    5: pa.float32(),
    6: pa.float64(),
    7: pa.string(),
    8: pa.binary(),
    9: pa.binary(),
    12: pa.date32(),
    13: pa.time32("ms"),
    14: pa.time64("us"),
    15: pa.timestamp("ms", "UTC"),
    16: pa.timestamp("us", "UTC"),
    17: pa.timestamp("ns", "UTC"),
    18: pa.timestamp("ms"),
    19: pa.timestamp("us"),
    20: pa.timestamp("ns"),
}
_WRAPPER_TYPES = {
    "BooleanWrapper": pa.bool_(),
    "IntWrapper": pa.int32(),
    "LongWrapper": pa.int64(),
    "FloatWrapper": pa.float32(),
    "DoubleWrapper": pa.float64(),
    "BytesWrapper": pa.binary(),
    "StringWrapper": pa.string(),
    "DateWrapper": pa.date32(),
    "LocalDateWrapper": pa.date32(),
    "DecimalWrapper": pa.decimal128(30, 15),
    "TimeMicrosWrapper": pa.time64("us"),
    "TimestampMicrosWrapper": pa.timestamp("us", "UTC"),
}


def _scalar(value: Any, arrow_type: pa.DataType) -> pa.Scalar | None:
    """A stored bound as a typed scalar. A bound that does not fit its type is no bound."""
    if value is None or pa.types.is_null(arrow_type):
        return None
    try:
        if pa.types.is_decimal(arrow_type) and isinstance(value, bytes):
            number = _unscaled(value)
            digits = tuple(int(digit) for digit in str(abs(number)))
            value = Decimal((int(number < 0), digits, -arrow_type.scale))
        if pa.types.is_temporal(arrow_type):
            storage = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
            return pa.scalar(value, storage).cast(arrow_type)
        return pa.scalar(value, arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
