"""From a table's settings and a writer's options to the index of a write."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.index.locations import Index, IndexContext
from lakebed.index.options import IndexOptions


def open_index(context: IndexContext, chosen: IndexOptions, properties: Mapping[str, str] | None = None) -> Index:
    """The index of one write: by the table's properties, and the writer's options for what those leave open."""
    return chosen.index_kind.open(context, chosen, {**context.client.config.properties, **(properties or {})})
