"""All options of a table's upkeep at once, for whoever must know that they can be read before anything is written."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.compaction_options import CompactionOptions
from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, TtlOptions

_GROUPS = (CompactionOptions, ClusteringOptions, CleanOptions, ArchiveOptions, TtlOptions)


def check_upkeep(properties: Mapping[str, str]) -> None:
    """Refuse options of upkeep that cannot be read: after the write it would be too late to say so."""
    for options in _GROUPS:
        options.from_properties(properties)
