"""The bucket index with consistent hashing: each partition has a ring of buckets that can be split and merged.

The ring of a partition is a file; the newest one whose instant completed is valid, and the first writer to a partition
creates the initial one. Two writers that do so at once write the same bytes. A write that replaces a partition creates
a ring of new file groups, whose ids are derived from the old ones and which is valid from the commit on: file ids that
were replaced are not used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTable
from lakebed.format.hashing_meta import (
    HashingMetadata,
    initial_hashing,
    name_uuid,
    parse_hashing_meta,
    render_hashing_meta,
)
from lakebed.format.names import (
    INITIAL_HASHING_INSTANT,
    hashing_meta_dir,
    hashing_meta_file_name,
    parse_hashing_meta_file,
)
from lakebed.index.bucket import check_hash_fields, grouped
from lakebed.index.consistent_ring import key_hashes, node_of_hashes
from lakebed.index.locations import Index, IndexContext, KeyLocation, Places, distinct
from lakebed.model.files import FileGroupId
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient

_COMMIT_MARK = ".commit"


def load_hashing(client: MetaClient, partition_path: str) -> HashingMetadata | None:
    """The valid ring of a partition, None for a partition without one."""
    folder = hashing_meta_dir(partition_path)
    names = {info.name for info in client.storage.list(folder)}
    instants = {name: instant for name in names if (instant := parse_hashing_meta_file(name))}
    valid = [
        (comparable(instant), name)
        for name, instant in instants.items()
        if instant == INITIAL_HASHING_INSTANT
        or f"{instant}{_COMMIT_MARK}" in names
        or client.completion_time(instant) is not None
    ]
    if not valid:
        return None
    path = f"{folder}/{max(valid)[1]}"
    found = parse_hashing_meta(client.storage.read(path), path)
    if found.partition_path != partition_path:
        raise CorruptTable(f"the hashing metadata is that of the partition {found.partition_path!r}", file=path)
    return found


def save_hashing(client: MetaClient, ring: HashingMetadata) -> None:
    """Store a ring; it is valid once its instant is completed, the initial one at once.

    It overwrites the ring of a failed attempt at the same instant, which other programs do not remove in a rollback.
    """
    path = f"{hashing_meta_dir(ring.partition_path)}/{hashing_meta_file_name(ring.instant)}"
    if ring.instant == INITIAL_HASHING_INSTANT:
        client.storage.put_if_absent(path, render_hashing_meta(ring))
    else:
        client.storage.put(path, render_hashing_meta(ring))


def mark_committed(client: MetaClient, partition_path: str, requested_time: str) -> None:
    """Mark the ring of an instant as valid, for readers after the instant has been archived."""
    client.storage.put_if_absent(f"{hashing_meta_dir(partition_path)}/{requested_time}{_COMMIT_MARK}", b"")


@dataclass(slots=True)
class ConsistentBucketIndex(Index):
    """The consistent-hashing bucket index of one write."""

    context: IndexContext
    num_buckets: int
    key_fields: tuple[str, ...]
    hash_fields: tuple[str, ...] = ()
    _rings: dict[str, HashingMetadata] = field(default_factory=dict)
    _instants: dict[str, dict[str, str]] = field(default_factory=dict)

    is_hashed = True

    def __post_init__(self) -> None:
        check_hash_fields(self.hash_fields, self.key_fields)

    def places(self, rows: pa.Table) -> Places:
        """The file group of each row's node; the instant is empty where the group does not exist yet."""
        partitions, partition_of = distinct(rows, PARTITION_PATH)
        hashes = key_hashes(rows.column(RECORD_KEY), self.hash_fields, self.key_fields)
        of_row = np.full(rows.num_rows, -1, np.int64)
        locations: list[KeyLocation] = []
        for path, members in zip(partitions.to_pylist(), grouped(partition_of, len(partitions)), strict=True):
            nodes = self.ring(path).ring
            of_row[members] = len(locations) + node_of_hashes(nodes, hashes[members])
            instants = self._base_instants(path)
            locations += [KeyLocation(path, node.file_id, instants.get(node.file_id, "")) for node in nodes]
        return Places(tuple(locations), of_row)

    def ring(self, partition_path: str) -> HashingMetadata:
        """The partition's ring; that of a new partition is not saved yet."""
        if partition_path not in self._rings:
            found = load_hashing(self.context.client, partition_path)
            self._rings[partition_path] = found or initial_hashing(partition_path, self.num_buckets)
        return self._rings[partition_path]

    def file_ids(self, partition_path: str) -> frozenset[str]:
        """The file groups on the partition's ring."""
        return frozenset(node.file_id for node in self.ring(partition_path).ring)

    def is_place(self, group: FileGroupId) -> bool:
        """Whether the group is on the ring; the ring of a new partition is saved."""
        found = group.file_id in self.file_ids(group.partition_path)
        self.save_initial(group.partition_path)
        return found

    def successor(self, group: FileGroupId) -> FileGroupId:
        """The group at the same position of the renewed ring."""
        pairs = zip(self.ring(group.partition_path).ring, self.renewed(group.partition_path).ring, strict=True)
        return FileGroupId(
            group.partition_path, next(new.file_id for old, new in pairs if old.file_id == group.file_id)
        )

    def renew_partition(self, partition_path: str, requested_time: str) -> None:
        save_hashing(self.context.client, self.renewed(partition_path, requested_time))

    def save_initial(self, partition_path: str) -> None:
        """Store the ring of a partition that gets its first rows, for later writers."""
        if load_hashing(self.context.client, partition_path) is None:
            save_hashing(self.context.client, self.ring(partition_path))

    def renewed(self, partition_path: str, requested_time: str = "") -> HashingMetadata:
        """The ring with new file groups at all positions; the ids are the same for every caller."""
        old = self.ring(partition_path)
        nodes = tuple(replace(node, file_id_prefix=name_uuid(f"after {node.file_id}".encode())) for node in old.ring)
        return HashingMetadata(partition_path, nodes, requested_time, old.seq_no + 1)

    def _base_instants(self, partition_path: str) -> dict[str, str]:
        if partition_path not in self._instants:
            slices = self.context.view.slices(partition_path)
            self._instants[partition_path] = {
                file_slice.file_group.file_id: file_slice.base_instant_time for file_slice in slices
            }
        return self._instants[partition_path]
