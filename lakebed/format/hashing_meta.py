"""The hash ring of a partition under consistent hashing: `<instant>.hashing_meta` and the file ids it names.

    {"version": 0, "partitionPath": "p0", "instant": "00000000000000", "numBuckets": 2, "seqNo": 0,
     "nodes": [{"value": 1073741824, "fileIdPrefix": "<uuid>", "tag": "NORMAL"}, ...]}      tag: NORMAL REPLACE DELETE

A key belongs to the first node whose value is not below the key's position on the ring, and past the last to the first.
A resize writes <instant>.hashing_meta before its replacecommit, which makes it count, and an empty <instant>.commit
after it (Hudi: the next reader of the ring). Its plan records per group: the partition, the ring's seqNo, and child
nodes, where REPLACE is another file group at this value and DELETE (no fileIdPrefix) no bucket any more. Updates that
Hudi writes in between go to the old file group and to .<child>_<resize instant>.log files. Hudi leaves numBuckets as it
was. The initial ring cuts 0 to 2^31 - 1 evenly, and names each node by the MD5 of its borders (two big-endian longs)
and the partition path, as a UUID of version 3: concurrent writers of a new partition write the same file.
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.names import INITIAL_HASHING_INSTANT

RING_END = 0x7FFFFFFF
_VERSION = 0
_MOST_BUCKETS = 1 << 20


class NodeTag(StrEnum):
    """What a resizing makes of a node."""

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class HashingNode:
    """One bucket: the end of its range of the ring, and the file group that holds it."""

    value: int
    file_id_prefix: str
    tag: NodeTag = NodeTag.NORMAL

    @property
    def file_id(self) -> str:
        return f"{self.file_id_prefix}-0"


@dataclass(frozen=True, slots=True)
class HashingMetadata:
    """The nodes of a partition, by value."""

    partition_path: str
    nodes: tuple[HashingNode, ...]
    instant: str = INITIAL_HASHING_INSTANT
    seq_no: int = 0

    @property
    def ring(self) -> tuple[HashingNode, ...]:
        """The nodes that take keys."""
        return tuple(node for node in self.nodes if node.tag is not NodeTag.DELETE)


def initial_hashing(partition_path: str, buckets: int) -> HashingMetadata:
    """The ring of a new partition."""
    if not 0 < buckets <= _MOST_BUCKETS:
        raise InvalidRequest(f"a partition cannot have {buckets} buckets")
    step = (RING_END + buckets - 1) // buckets
    ends = [min(step * number, RING_END) for number in range(1, buckets + 1)]
    starts = [0, *ends[:-1]]
    nodes = tuple(
        HashingNode(end, _node_name(partition_path, start, end)) for start, end in zip(starts, ends, strict=True)
    )
    return HashingMetadata(partition_path, nodes)


def parse_hashing_meta(data: bytes, file: str) -> HashingMetadata:
    """The content of a `.hashing_meta` file."""
    try:
        raw = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"the hashing metadata is not JSON: {error}", file=file) from None
    if not isinstance(raw, dict):
        raise CorruptTable("the hashing metadata is not a JSON object", file=file)
    if raw.get("version", _VERSION) != _VERSION:
        raise UnsupportedFormat(f"hashing metadata of version {raw['version']!r}", file=file)
    listed = raw.get("nodes")
    if not isinstance(listed, list) or not listed:
        raise CorruptTable("the hashing metadata has no nodes", file=file)
    nodes = tuple(sorted((_node(item, file) for item in listed), key=lambda node: node.value))
    partition, instant, number = raw.get("partitionPath"), raw.get("instant"), raw.get("seqNo", 0)
    if not isinstance(partition, str) or not isinstance(instant, str) or not isinstance(number, int):
        raise CorruptTable("the hashing metadata lacks its partition path or instant", file=file)
    found = HashingMetadata(partition, nodes, instant, number)
    if not found.ring or len({node.value for node in found.ring}) < len(found.ring):
        raise CorruptTable("the nodes of the hashing metadata do not make a ring", file=file)
    return found


def render_hashing_meta(metadata: HashingMetadata) -> bytes:
    """The file's bytes, formatted as Hudi does."""
    head = {
        "version": _VERSION,
        "partitionPath": metadata.partition_path,
        "instant": metadata.instant,
        "numBuckets": len(metadata.nodes),
        "seqNo": metadata.seq_no,
    }
    nodes = [{"value": node.value, "fileIdPrefix": node.file_id_prefix, "tag": node.tag} for node in metadata.nodes]
    listed = ", ".join("{\n" + _lines(node, 4) + "\n  }" for node in nodes)
    return f'{{\n{_lines(head, 2)},\n  "nodes" : [ {listed} ]\n}}'.encode()


def parse_child_nodes(text: str, file: str) -> tuple[HashingNode, ...]:
    """The nodes that a resize makes of some buckets, as clustering plans carry them; deleted ones name no file."""
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"the nodes of a resize are not JSON: {error}", file=file) from None
    if not isinstance(listed, list) or not listed:
        raise CorruptTable("a resize without nodes", file=file)
    return tuple(_child(item, file) for item in listed)


def render_child_nodes(nodes: Sequence[HashingNode]) -> str:
    """The text for a clustering plan, formatted as Hudi does."""
    raw = ({"value": n.value, "fileIdPrefix": n.file_id_prefix or None, "tag": n.tag} for n in nodes)
    return "[ " + ", ".join("{\n" + _lines(node, 2) + "\n}" for node in raw) + " ]"


def _lines(values: Mapping[str, object], indent: int) -> str:
    return ",\n".join(
        f'{" " * indent}"{key}" : {json.dumps(value, ensure_ascii=False)}' for key, value in values.items()
    )


def _node(raw: Any, file: str) -> HashingNode:
    value = raw.get("value") if isinstance(raw, dict) else None
    prefix = raw.get("fileIdPrefix") if isinstance(raw, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= RING_END:
        raise CorruptTable(f"a node of the hashing metadata has the value {str(value)[:40]!r}", file=file)
    if not isinstance(prefix, str) or not prefix or not prefix.replace("-", "").isalnum():
        raise CorruptTable(f"a node of the hashing metadata has the file id {str(prefix)[:80]!r}", file=file)
    try:
        return HashingNode(value, prefix, NodeTag(raw.get("tag") or NodeTag.NORMAL))
    except ValueError:
        raise CorruptTable(f"a node of the hashing metadata has the tag {str(raw['tag'])[:40]!r}", file=file) from None


def _child(raw: Any, file: str) -> HashingNode:
    if isinstance(raw, dict) and raw.get("tag") == NodeTag.DELETE:
        return replace(_node({**raw, "fileIdPrefix": raw.get("fileIdPrefix") or "none"}, file), file_id_prefix="")
    return _node(raw, file)


def _node_name(partition_path: str, start: int, end: int) -> str:
    return name_uuid(struct.pack(">qq", start, end) + partition_path.encode())


def name_uuid(content: bytes) -> str:
    """Java's `UUID.nameUUIDFromBytes`."""
    return str(uuid.UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest(), version=3))
