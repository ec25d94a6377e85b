"""The keys of the metadata table's partitions, and which file group a key belongs to; equal to Hudi's to the byte.

    files             __all_partitions__ | partition id
    column_stats      b64(xx64(column)) + b64(xx64(partition id)) + b64(md5(file name))
    partition_stats   b64(xx64(column)) + b64(xx64(partition id))
    expr_index_*      as column_stats; per partition b64(xx64(column)) + b64(xx64("__partition_stat__")) + b64(xx64(id))
    bloom_filters     b64(xx64(partition id)) + b64(md5(file name))
    record_index      the record key
    secondary_index_* esc(value) + "$" + esc(record key)
    file group        abs(abs(h) % groups), h = Java's string hash of the key (of a secondary key's value part in V2)

A partition id is the relative path, and `.` for the root of a non-partitioned table. Hashes come first in the keys of
statistics so that all files of a column, or of a column and partition, are found by one prefix.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lakebed.model.bucket_hash import string_hashes

FILES = "files"
COLUMN_STATS = "column_stats"
PARTITION_STATS = "partition_stats"
BLOOM_FILTERS = "bloom_filters"
RECORD_INDEX = "record_index"
SECONDARY_INDEX_PREFIX = "secondary_index_"
EXPRESSION_INDEX_PREFIX = "expr_index_"

ALL_PARTITIONS_KEY = "__all_partitions__"
ROOT_PARTITION_ID = "."

_SEED = -625288518 & 0xFFFFFFFFFFFFFFFF
_PARTITION_STAT = "__partition_stat__"
_NULL_SECONDARY = "\0"


def partition_id(partition_path: str) -> str:
    """The name of a partition in the metadata table."""
    return partition_path or ROOT_PARTITION_ID


def partition_path(identifier: str) -> str:
    """The relative path of a partition named by its id."""
    return "" if identifier == ROOT_PARTITION_ID else identifier


def column_stats_prefix(column: str, partition: str | None = None) -> str:
    """What the column_stats keys of a column start with, in all partitions or in one."""
    return _hash(column) + ("" if partition is None else _hash(partition_id(partition)))


def column_stats_key(column: str, partition: str, file_name: str) -> str:
    """The column_stats (and expression index) key of a column in a file."""
    return column_stats_prefix(column, partition) + _digest(file_name)


def partition_stats_key(column: str, partition: str) -> str:
    """The partition_stats key of a column in a partition."""
    return column_stats_prefix(column, partition)


def expression_partition_key(column: str, partition: str) -> str:
    """The key under which an expression index keeps the bounds of a whole partition."""
    return _hash(column) + _hash(_PARTITION_STAT) + _hash(partition_id(partition))


def bloom_filter_key(partition: str, file_name: str) -> str:
    """The bloom_filters key of a base file."""
    return _hash(partition_id(partition)) + _digest(file_name)


def secondary_index_key(value: str | None, record_key: str) -> str:
    """The key of a (value, record key) pair; None is the null value."""
    return f"{_NULL_SECONDARY if value is None else _escape(value)}${_escape(record_key)}"


def secondary_index_prefix(value: str | None) -> str:
    """What all keys of a secondary value start with."""
    return f"{_NULL_SECONDARY if value is None else _escape(value)}$"


def split_secondary_key(key: str) -> tuple[str | None, str] | None:
    """The value and the record key of a secondary index key, or None when the key has not that form."""
    at = _separator(key)
    if at is None:
        return None
    value = key[:at]
    return (None if value == _NULL_SECONDARY else _unescape(value)), _unescape(key[at + 1 :])


def secondary_hash_part(key: str) -> str:
    """The part of a secondary key that chooses the file group since index version V2."""
    at = _separator(key)
    return key if at is None else key[:at]


def file_group_indexes(keys: Sequence[str], groups: int) -> npt.NDArray[np.int64]:
    """The number of the file group of every key (for secondary keys pass `secondary_hash_part`s)."""
    if groups <= 1:
        return np.zeros(len(keys), dtype=np.int64)
    hashes = string_hashes(pa.array(keys, pa.large_string())).view(np.int32)
    # Java: the absolute value of the smallest int is itself, and % keeps the sign of the left side.
    return np.abs(np.fmod(np.abs(hashes), np.int32(groups)).astype(np.int64))


def file_group_index(key: str, groups: int) -> int:
    """The number of the file group of one key."""
    return int(file_group_indexes([key], groups)[0])


def _hash(text: str) -> str:
    return base64.b64encode(xxhash.xxh64_digest(text.encode(), seed=_SEED)).decode("ascii")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()).decode("ascii")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("$", "\\$").replace("\0", "\\\0")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        at += text[at] == "\\" and at + 1 < len(text)
        out.append(text[at])
        at += 1
    return "".join(out)


def _separator(key: str) -> int | None:
    """The position of the unescaped `$`."""
    at = 0
    while at < len(key):
        if key[at] == "$":
            return at
        at += 2 if key[at] == "\\" else 1
    return None
