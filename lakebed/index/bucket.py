"""Bucket indexes: the hash of the key determines the file group, nothing is looked up.

Simple engine: a fixed number of buckets per partition, and a group's file id begins with its bucket, eight digits. The
rest of a new id is computed from partition and bucket instead of being random: all tasks of a write, and two writers
that create a bucket at the same time, use the same file group, so that the conflict between them is detected. An id
that was replaced (by an overwrite, for example) is not used again, the next computed one is. Under non-blocking
concurrency control all writers use one fixed id per bucket on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.source import MAX_KEY, MIN_KEY
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.format.hashing_meta import name_uuid
from lakebed.index.locations import Index, IndexContext, Ints, KeyLocation, Places, distinct, new_file_id
from lakebed.model.bucket_hash import bucket_id, bucket_ids
from lakebed.model.files import BaseFile, FileGroupId
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY

_BUCKET_ID = re.compile(r"(\d{8})-.+")
_MOST_BUCKETS = 99_999_999
_CHECKED_FILES = 4


def bucket_of_file_id(file_id: str) -> int | None:
    """The bucket that a file id begins with."""
    match = _BUCKET_ID.fullmatch(file_id)
    return int(match[1]) if match else None


@dataclass(slots=True)
class BucketIndex(Index):
    """The simple bucket index of one write."""

    context: IndexContext
    num_buckets: int
    key_fields: tuple[str, ...]
    hash_fields: tuple[str, ...] = ()
    fixed_ids: bool = False
    count_is_known: bool = True
    """Whether the table's properties state the number of buckets; if not, it is checked against keys in files."""
    _partitions: dict[str, dict[int, KeyLocation]] = field(default_factory=dict)

    is_hashed = True
    places_by_bucket = True

    def __post_init__(self) -> None:
        if not 0 < self.num_buckets <= _MOST_BUCKETS:
            raise InvalidRequest(f"a bucket index cannot have {self.num_buckets} buckets")
        check_hash_fields(self.hash_fields, self.key_fields)

    def places(self, rows: pa.Table) -> Places:
        """The file group of each row's bucket; the instant is empty where the group does not exist yet.

        Safe to call from several threads: all of them would store the same values in the cache.
        """
        partitions, partition_of = distinct(rows, PARTITION_PATH)
        buckets = np.asarray(
            bucket_ids(rows.column(RECORD_KEY), self.num_buckets, self.hash_fields or self.key_fields, self.key_fields)
        )
        pairs = partition_of * self.num_buckets + buckets
        used, of_row = np.unique(pairs, return_inverse=True)
        paths = partitions.to_pylist()
        locations = [
            self.group(paths[pair // self.num_buckets], int(pair % self.num_buckets)) for pair in used.tolist()
        ]
        return Places(tuple(locations), of_row.astype(np.int64))

    def group(self, partition_path: str, bucket: int) -> KeyLocation:
        """The file group of a bucket; the instant is empty when it does not exist yet."""
        known = self._partitions.get(partition_path)
        if known is None:
            known = self._partitions[partition_path] = self._existing(partition_path)
        found = known.get(bucket)
        if found is None:
            found = known[bucket] = KeyLocation(partition_path, self._new_id(partition_path, bucket), "")
        return found

    def is_place(self, group: FileGroupId) -> bool:
        bucket = bucket_of_file_id(group.file_id)
        return bucket is not None and self.group(group.partition_path, bucket).file_id == group.file_id

    def successor(self, group: FileGroupId) -> FileGroupId:
        """A new id that begins with the same bucket."""
        bucket, new = bucket_of_file_id(group.file_id), new_file_id()
        return FileGroupId(group.partition_path, new if bucket is None else f"{bucket:08d}{new[8:]}")

    def _existing(self, partition_path: str) -> dict[int, KeyLocation]:
        found: dict[int, KeyLocation] = {}
        for file_slice in self.context.view.slices(partition_path):
            file_id = file_slice.file_group.file_id
            bucket = bucket_of_file_id(file_id)
            if bucket is None:
                raise InvalidRequest(
                    f"the file group {file_slice.file_group} was not written by a bucket index",
                    hint="Write to this table with the index that made it (hoodie.index.type).",
                )
            if bucket >= self.num_buckets:
                raise InvalidRequest(
                    f"{file_slice.file_group} is bucket {bucket} of a table with {self.num_buckets} buckets",
                    hint="Give the bucket count that the table was written with.",
                )
            if bucket in found:
                raise CorruptTable(
                    f"two file groups hold bucket {bucket} of {partition_path!r}: {found[bucket].file_id} and {file_id}"
                )
            found[bucket] = KeyLocation(partition_path, file_id, file_slice.base_instant_time)
            if not self.count_is_known and file_slice.base_file is not None and len(found) <= _CHECKED_FILES:
                self._check_count(file_slice.base_file, bucket)
        return found

    def _check_count(self, base: BaseFile, bucket: int) -> None:
        """Keys of a file must hash to its bucket: with a wrong count, existing keys would be written as new ones."""
        with open_base_file(self.context.client.storage, base) as source:
            keys = [key for key in (source.footer.get(MIN_KEY), source.footer.get(MAX_KEY)) if key]
        for key in keys:
            if bucket_id(key, self.num_buckets, self.hash_fields or self.key_fields, self.key_fields) != bucket:
                raise InvalidRequest(
                    f"the table was not written with {self.num_buckets} buckets: key {key!r} is in bucket {bucket}",
                    file=base.path,
                    hint="Give num_buckets= (hoodie.bucket.index.num.buckets) as the table was written with.",
                )

    def _new_id(self, partition_path: str, bucket: int) -> str:
        if self.fixed_ids:
            return fixed_file_id(bucket)
        used = {group.id.file_id for group in self.context.view.file_groups(partition_path)}
        attempt = 0
        while True:
            name = name_uuid(f"{attempt}/{bucket}/{partition_path}".encode())
            file_id = f"{bucket:08d}{name[8:]}-0"
            if file_id not in used and FileGroupId(partition_path, file_id) not in self.context.client.replaced:
                return file_id
            attempt += 1


def fixed_file_id(bucket: int) -> str:
    """The file id of a bucket under non-blocking concurrency control, the same for all writers."""
    return f"{bucket:08d}-0000-0000-0000-000000000000-0"


def check_hash_fields(hash_fields: Sequence[str], key_fields: Sequence[str]) -> None:
    """Only key columns can be hashed: the hash must be the same for all versions of a row."""
    unknown = [name for name in hash_fields if name not in key_fields]
    if unknown:
        raise InvalidRequest(
            f"hoodie.bucket.index.hash.field names {', '.join(unknown)}, which is not a key column",
            hint=f"The key columns are: {', '.join(key_fields) or 'none'}.",
        )


def grouped(of_row: Ints, count: int) -> list[Ints]:
    """Row numbers by group, each ascending."""
    if not count:
        return []
    order = np.argsort(of_row, kind="stable")
    bounds = np.searchsorted(of_row[order], np.arange(1, count))
    return [part.astype(np.int64) for part in np.split(order, bounds)]
