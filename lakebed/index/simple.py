"""The simple index: incoming keys against the keys of all files that may hold them. Exact, and needs no footers."""

from __future__ import annotations

from lakebed.index.key_lookup import KeyLookupIndex
from lakebed.index.locations import IndexContext
from lakebed.model.record_key import KeyGenerator


def simple_index(
    context: IndexContext, *, is_global: bool = False, moves: bool = True, generator: KeyGenerator | None = None
) -> KeyLookupIndex:
    """The index of one write; `generator` for tables that do not store their keys."""
    return KeyLookupIndex(context, is_global=is_global, moves=moves, generator=generator)
