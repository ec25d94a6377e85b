"""The kinds of indexes: the values of `hoodie.index.type`, and what they imply before an index is opened.

A new kind is a file with its `IndexKind` and a line here. Other distributions register theirs, or declare an entry
point of the group `lakebed.indexes` under the kind's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakebed.errors import InvalidRequest
from lakebed.index.locations import Index, IndexContext
from lakebed.registry import Registry

if TYPE_CHECKING:
    from lakebed.index.options import IndexOptions

BUCKET, SIMPLE = "BUCKET", "SIMPLE"
INDEX_KINDS = Registry(
    "lakebed.indexes",
    {
        SIMPLE: "lakebed.index.simple:SIMPLE",
        "GLOBAL_SIMPLE": "lakebed.index.simple:GLOBAL_SIMPLE",
        "BLOOM": "lakebed.index.bloom:BLOOM",
        "GLOBAL_BLOOM": "lakebed.index.bloom:GLOBAL_BLOOM",
        BUCKET: "lakebed.index.bucket_engines:BUCKET_KIND",
        "RECORD_INDEX": "lakebed.index.record_index:RECORD_INDEX_KIND",
        "GLOBAL_RECORD_LEVEL_INDEX": "RECORD_INDEX",
        "INMEMORY": SIMPLE,
    },
)


class OpenIndex(Protocol):
    """Opens an index for one write; `properties` are those of the table with the writer's options on top."""

    def __call__(self, context: IndexContext, options: IndexOptions, properties: Mapping[str, str]) -> Index: ...


@dataclass(frozen=True, slots=True)
class IndexKind:
    """One kind of index.

    `name` is the `hoodie.index.type` of tables, and in lower case (without `_index`) the `index=` of `create`.
    """

    name: str
    open: OpenIndex
    is_global: bool = False
    """Whether a key is unique in the table, not only in its partition."""
    is_hashed: bool = False
    """Whether file groups follow from keys alone, so that a write can conflict only in the groups of its rows."""
    needs_record_key: bool = False
    reads_bloom_filters: bool = False
    """Whether it reads the bloom filters of base files: writers then make them, and the table has to store its keys."""
    can_create: bool = True
    """Whether new tables can be made with it."""


def register_index_kind(kind: IndexKind) -> None:
    """Make a kind of index known to this process, under its name."""
    INDEX_KINDS.register(kind.name, kind)


def index_kind(name: str) -> IndexKind:
    """The kind of a name; `InvalidRequest` when it is not registered."""
    found = INDEX_KINDS.find(name, IndexKind)
    if found is None:
        raise InvalidRequest(f"hoodie.index.type={name!r}: none of {', '.join(INDEX_KINDS.words)}")
    return found


def wants_bloom_filters(name: str | None) -> bool:
    """Whether base files of a table with this `hoodie.index.type` get bloom filters; False for unknown kinds."""
    found = INDEX_KINDS.find(name, IndexKind) if name else None
    return found is not None and found.reads_bloom_filters


def creatable_kinds() -> tuple[IndexKind, ...]:
    """The kinds that new tables can have, of this package or registered in this process."""
    return tuple(kind for kind in map(index_kind, INDEX_KINDS.names_here) if kind.can_create)
