"""The bloom index: skips base files whose footer (key range and bloom filter) rules out all incoming keys.

What is left is checked exactly. Logs have no filter and are read; a file without these footer entries is read like any
other.
"""

from __future__ import annotations

from lakebed.index.key_lookup import KeyLookupIndex
from lakebed.index.locations import IndexContext
from lakebed.model.record_key import KeyGenerator


def bloom_index(
    context: IndexContext,
    *,
    is_global: bool = False,
    moves: bool = True,
    by_ranges: bool = True,
    generator: KeyGenerator | None = None,
) -> KeyLookupIndex:
    """The index of one write; of tables that do not store their keys the footers say nothing, and all keys are read."""
    footers = generator is None
    return KeyLookupIndex(
        context,
        is_global=is_global,
        moves=moves,
        by_ranges=by_ranges and footers,
        by_bloom=footers,
        generator=generator,
    )
