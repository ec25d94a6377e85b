"""From a table's settings and a writer's options to the index of a write."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.index.locations import Index, IndexContext
from lakebed.index.options import IndexOptions


def open_index(context: IndexContext, options: Mapping[str, str] | None = None) -> Index:
    """The index of one write: as the table says, and the writer's options for what it leaves open."""
    properties = {**context.client.config.properties, **(options or {})}
    return IndexOptions.from_properties(properties).index_kind.open(context, properties)
