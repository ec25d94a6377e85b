"""The ring of a partition under consistent hashing: the bucket of a key, and how buckets split and merge.

    split   the hash range of a bucket cut in its middle    former ──────mid──────value      two children
    merge   neighbours joined at the end of the last one    former ──x──x──value             one child, the rest deleted

Children are nodes tagged REPLACE (the bucket at this value is another file group from now on) or DELETE (no bucket ends
here any more), as Hudi's plans name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTable
from lakebed.format.hashing_meta import RING_END, HashingMetadata, HashingNode, NodeTag
from lakebed.merge.arrow_numpy import Ints
from lakebed.model.xx_hash import ring_hashes


def key_hashes(keys: pa.Array | pa.ChunkedArray, hash_fields: Sequence[str], key_fields: Sequence[str]) -> Ints:
    """The positions of record keys on the ring."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    hashes = [ring_hashes(chunk, tuple(hash_fields) or tuple(key_fields), tuple(key_fields)) for chunk in chunks]
    found: Ints = np.concatenate(hashes or [np.zeros(0, np.int64)])
    return found


def node_of_hashes(nodes: Sequence[HashingNode], hashes: Ints) -> Ints:
    """The bucket of each hash, as its number in `nodes`, which are sorted by value."""
    ends = np.array([node.value for node in nodes], np.int64)
    found: Ints = ends.searchsorted(hashes) % len(nodes)
    return found


def split_node(ring: Sequence[HashingNode], position: int, prefixes: tuple[str, str]) -> tuple[HashingNode, ...]:
    """The children of a bucket that is cut in two, none when its hash range is a single value."""
    former, value = ring[position - 1].value, ring[position].value
    middle = ((former + value + (0 if former < value else RING_END + 1)) >> 1) & RING_END
    if middle in (former, value):
        return ()
    ends = zip((middle, value), prefixes, strict=True)
    return tuple(HashingNode(end, prefix, NodeTag.REPLACE) for end, prefix in ends)


def merge_nodes(neighbours: Sequence[HashingNode], prefix: str) -> tuple[HashingNode, ...]:
    """The children of buckets that become one, in the order of the ring."""
    gone = (HashingNode(node.value, "", NodeTag.DELETE) for node in neighbours[:-1])
    return (*gone, HashingNode(neighbours[-1].value, prefix, NodeTag.REPLACE))


def with_children(ring: HashingMetadata, children: Sequence[HashingNode], instant: str, file: str) -> HashingMetadata:
    """The ring after a resize; `file` is the file with the children, for errors."""
    nodes = {node.value: node for node in ring.ring}
    for child in children:
        if child.tag is NodeTag.REPLACE:
            nodes[child.value] = replace(child, tag=NodeTag.NORMAL)
        elif child.tag is not NodeTag.DELETE or nodes.pop(child.value, None) is None:
            raise CorruptTable(f"a resize cannot make a node at {child.value} {child.tag}", file=file)
    if not nodes or len({node.file_id_prefix for node in nodes.values()}) < len(nodes):
        raise CorruptTable("the children of a resize do not make a ring", file=file)
    ordered = tuple(nodes[value] for value in sorted(nodes))
    return HashingMetadata(ring.partition_path, ordered, instant, ring.seq_no + 1)


@dataclass(frozen=True, slots=True)
class Buckets:
    """Where the rows of some buckets go when these are resized. Picklable."""

    nodes: tuple[HashingNode, ...]
    """The whole ring afterwards, sorted by value."""
    own: frozenset[str]
    """File ids of the children."""
    hash_fields: tuple[str, ...]
    key_fields: tuple[str, ...]

    def of(self, keys: pa.Array) -> Ints:
        """For each key, the number of its bucket in `nodes`."""
        return node_of_hashes(self.nodes, key_hashes(keys, self.hash_fields, self.key_fields))
