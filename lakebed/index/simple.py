"""The simple index: incoming keys against the keys of all files that may hold them. Exact, and needs no footers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from lakebed.index.key_lookup import KeyLookupIndex, made_keys
from lakebed.index.kinds import IndexKind
from lakebed.index.locations import IndexContext
from lakebed.index.options import IndexOptions
from lakebed.model.record_key import KeyGenerator


def simple_index(
    context: IndexContext, *, is_global: bool = False, moves: bool = True, generator: KeyGenerator | None = None
) -> KeyLookupIndex:
    """The index of one write; `generator` for tables that do not store their keys."""
    return KeyLookupIndex(context, is_global=is_global, moves=moves, generator=generator)


def _open(
    context: IndexContext, options: IndexOptions, properties: Mapping[str, str], *, is_global: bool = False
) -> KeyLookupIndex:
    return simple_index(
        context, is_global=is_global, moves=options.simple_moves, generator=made_keys(context, properties)
    )


SIMPLE = IndexKind("SIMPLE", _open)
GLOBAL_SIMPLE = IndexKind("GLOBAL_SIMPLE", partial(_open, is_global=True), is_global=True)
