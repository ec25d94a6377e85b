"""The bloom index: skips base files whose footer (key range and bloom filter) rules out all incoming keys.

The remaining files are read. Logs have no filter and are always read, and so are base files without these footer
entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from lakebed.index.key_lookup import KeyLookupIndex, made_keys
from lakebed.index.kinds import IndexKind
from lakebed.index.locations import IndexContext
from lakebed.index.options import IndexOptions
from lakebed.model.record_key import KeyGenerator


def bloom_index(
    context: IndexContext,
    *,
    is_global: bool = False,
    moves: bool = True,
    by_ranges: bool = True,
    generator: KeyGenerator | None = None,
) -> KeyLookupIndex:
    """The index of one write; where a table does not store keys, footers have no filters, and all keys are read."""
    footers = generator is None
    return KeyLookupIndex(
        context,
        is_global=is_global,
        moves=moves,
        by_ranges=by_ranges and footers,
        by_bloom=footers,
        generator=generator,
    )


def _open(
    context: IndexContext, options: IndexOptions, properties: Mapping[str, str], *, is_global: bool = False
) -> KeyLookupIndex:
    return bloom_index(
        context,
        is_global=is_global,
        moves=options.bloom_moves,
        by_ranges=options.prune_by_ranges,
        generator=made_keys(context, properties),
    )


BLOOM = IndexKind("BLOOM", _open, reads_bloom_filters=True)
GLOBAL_BLOOM = IndexKind("GLOBAL_BLOOM", partial(_open, is_global=True), is_global=True, reads_bloom_filters=True)
