"""All options of table services after a write: parsed before anything is written, and used afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.compaction_options import CompactionOptions
from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, TtlOptions


@dataclass(frozen=True, slots=True)
class UpkeepGroups:
    """The option groups of table services."""

    compaction: CompactionOptions
    clustering: ClusteringOptions
    cleaning: CleanOptions
    archiving: ArchiveOptions
    ttl: TtlOptions

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> UpkeepGroups:
        """Refuses options that cannot be parsed: after the write it would be too late to report them."""
        return cls(
            CompactionOptions.from_properties(properties),
            ClusteringOptions.from_properties(properties),
            CleanOptions.from_properties(properties),
            ArchiveOptions.from_properties(properties),
            TtlOptions.from_properties(properties),
        )
