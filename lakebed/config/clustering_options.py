"""The options of clustering: when it is due, which partitions and files it rewrites, and how rows are sorted.

Keys and defaults are Hudi's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.config.compaction_options import RATIO
from lakebed.config.option import FLAG, NUMBER, SIZE, TEXT, WORDS, choice_of, option, read_options, to_properties
from lakebed.errors import InvalidRequest

SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT_STRATEGY = "hoodie.layout.optimize.strategy"


class Curve(StrEnum):
    """The order of rows: column by column, or along a space-filling curve over all sort columns."""

    LINEAR = "linear"
    Z_ORDER = "z-order"
    HILBERT = "hilbert"


class PartitionFilter(StrEnum):
    """Which partitions a plan may include."""

    NONE = "NONE"
    RECENT_DAYS = "RECENT_DAYS"
    SELECTED_PARTITIONS = "SELECTED_PARTITIONS"


_PLAN = "hoodie.clustering.plan.strategy"


@dataclass(frozen=True, slots=True)
class ClusteringOptions:
    """The options of clustering."""

    # --- when
    inline: bool = option("hoodie.clustering.inline", FLAG, False, "Whether a write is followed by a clustering.")
    schedule_inline: bool = option(
        "hoodie.clustering.schedule.inline",
        FLAG,
        False,
        "Whether a write plans a clustering that is due, for another process to run.",
    )
    max_commits: int = option(
        "hoodie.clustering.inline.max.commits", NUMBER, 4, "Writes since the last clustering that make one due."
    )

    # --- which partitions
    partition_filter: PartitionFilter = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.clustering.plan.partition.filter.mode",
        choice_of(PartitionFilter),
        PartitionFilter.NONE,
        "Which partitions a plan may include.",
    )
    lookback: int = option(
        f"{_PLAN}.daybased.lookback.partitions", NUMBER, 2, "How many partitions, newest first (`RECENT_DAYS`)."
    )
    skip_latest: int = option(
        f"{_PLAN}.daybased.skipfromlatest.partitions",
        NUMBER,
        0,
        "How many of the newest partitions, still written to, are skipped first (`RECENT_DAYS`).",
    )
    first_partition: str | None = option(
        f"{_PLAN}.cluster.begin.partition", TEXT, None, "The first partition by name (`SELECTED_PARTITIONS`)."
    )
    last_partition: str | None = option(
        f"{_PLAN}.cluster.end.partition", TEXT, None, "The last partition by name (`SELECTED_PARTITIONS`)."
    )
    partitions: tuple[str, ...] = option(
        f"{_PLAN}.partition.selected", WORDS, (), "Partitions by name, in any mode; all when empty."
    )
    partition_pattern: str | None = option(
        f"{_PLAN}.partition.regex.pattern", TEXT, None, "What names of partitions must match, in any mode."
    )

    # --- which files
    small_file_limit: int = option(
        f"{_PLAN}.small.file.limit", SIZE, 300 << 20, "Slices whose base file is at least this large are not clustered."
    )
    target_file_size: int = option(
        f"{_PLAN}.target.file.max.bytes", SIZE, 1 << 30, "The size at which the next file begins."
    )
    max_group_bytes: int = option(
        f"{_PLAN}.max.bytes.per.group", SIZE, 2 << 30, "The most bytes that are rewritten together."
    )
    max_groups: int = option(f"{_PLAN}.max.num.groups", NUMBER, 30, "The most groups of one plan.")
    single_groups: bool = option(
        f"{_PLAN}.single.group.clustering.enabled",
        FLAG,
        True,
        "Whether a single slice is rewritten on its own where that changes it: to sort it, or to merge its logs.",
    )

    # --- order of rows
    sort_columns: tuple[str, ...] = option(
        SORT_COLUMNS, WORDS, (), "Columns by which rows are ordered (default layout; LSM tables order by key)."
    )
    curve: Curve = option(  # noqa: RUF009 (a field, not a shared value)
        LAYOUT_STRATEGY, choice_of(Curve), Curve.LINEAR, "How several sort columns are combined into one order."
    )

    # --- buckets under consistent hashing, where clustering splits and merges them
    max_buckets: int | None = option(
        "hoodie.bucket.index.max.num.buckets",
        NUMBER,
        None,
        "The most buckets of a partition under consistent hashing; without it, as many as a new partition gets.",
    )
    min_buckets: int | None = option(
        "hoodie.bucket.index.min.num.buckets",
        NUMBER,
        None,
        "The fewest buckets of a partition under consistent hashing; without it, as many as a new partition gets.",
    )
    split_threshold: float = option(
        "hoodie.bucket.index.split.threshold",
        RATIO,
        2.0,
        "A bucket is split when it takes more than `hoodie.parquet.max.file.size` times this.",
    )
    merge_threshold: float = option(
        "hoodie.bucket.index.merge.threshold",
        RATIO,
        0.2,
        "Neighbouring buckets are merged when each takes at most `hoodie.parquet.max.file.size` times this.",
    )

    def __post_init__(self) -> None:
        if min(self.target_file_size, self.max_group_bytes, self.max_groups, self.max_commits) < 1:
            raise InvalidRequest("clustering needs sizes, groups and commits of at least one")
        if min(self.lookback, self.skip_latest) < 0:
            raise InvalidRequest("numbers of partitions are not negative")
        bounds = [bound for bound in (self.min_buckets, self.max_buckets) if bound is not None]
        if bounds != sorted(bounds) or min(bounds, default=1) < 1:
            raise InvalidRequest(
                "a partition has at least one bucket, and the smallest number of buckets is not above the largest"
            )
        if self.curve is not Curve.LINEAR and not self.sort_columns:
            raise InvalidRequest(f"{LAYOUT_STRATEGY}={self.curve} needs columns", hint=f"Set {SORT_COLUMNS}.")
        try:
            re.compile(self.partition_pattern or "")
        except re.error as error:
            raise InvalidRequest(f"{self.partition_pattern!r} is no regular expression: {error}") from None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClusteringOptions:
        return cls(**read_options(cls, properties))

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)
