"""The options of cleaning, archiving and partition TTL: how long old versions, actions and partitions are kept.

The keys, the defaults and the trigger are Hudi's, so that either program may clean and archive a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.config.option import FLAG, NUMBER, SIZE, WORDS, choice_of, option, read_options, to_properties
from lakebed.errors import InvalidRequest


class CleanPolicy(StrEnum):
    """The rule by which a clean keeps file versions."""

    COMMITS = "KEEP_LATEST_COMMITS"
    FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    HOURS = "KEEP_LATEST_BY_HOURS"


@dataclass(frozen=True, slots=True)
class CleanOptions:
    """The options of cleaning."""

    policy: CleanPolicy = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.clean.policy",
        choice_of(CleanPolicy),
        CleanPolicy.COMMITS,
        "Which file versions a clean keeps: those of the latest commits, a number per file group, or those of a "
        "number of hours.",
        ("hoodie.cleaner.policy",),
    )
    commits: int = option(
        "hoodie.clean.commits.retained",
        NUMBER,
        10,
        "How many commits back time travel works under KEEP_LATEST_COMMITS.",
        ("hoodie.cleaner.commits.retained",),
    )
    versions: int = option(
        "hoodie.clean.fileversions.retained",
        NUMBER,
        3,
        "How many slices of a file group stay under KEEP_LATEST_FILE_VERSIONS.",
        ("hoodie.cleaner.fileversions.retained",),
    )
    hours: int = option(
        "hoodie.clean.hours.retained",
        NUMBER,
        24,
        "How many hours back time travel works under KEEP_LATEST_BY_HOURS.",
        ("hoodie.cleaner.hours.retained",),
    )
    automatic: bool = option(
        "hoodie.clean.automatic", FLAG, True, "Whether a write cleans when it is done and a clean is due."
    )
    every: int = option(
        "hoodie.clean.trigger.max.commits",
        NUMBER,
        1,
        "After how many commits since the last one an automatic clean is due.",
        ("hoodie.clean.max.commits",),
    )

    def __post_init__(self) -> None:
        if min(self.commits, self.versions, self.hours, self.every) <= 0:
            raise InvalidRequest("a clean keeps at least one commit, version or hour")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CleanOptions:
        return cls(**read_options(cls, properties))

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The options of archiving."""

    max_commits: int = option(
        "hoodie.keep.max.commits",
        NUMBER,
        30,
        "With more completed writes on the active timeline, old ones are archived.",
    )
    min_commits: int = option("hoodie.keep.min.commits", NUMBER, 20, "How many completed writes archiving leaves.")
    automatic: bool = option(
        "hoodie.archive.automatic",
        FLAG,
        True,
        "Whether a write archives when it is done and there is enough to archive.",
    )
    beyond_savepoint: bool = option(
        "hoodie.archive.beyond.savepoint",
        FLAG,
        False,
        "Whether commits after a savepoint may be archived; the table can then not be restored to it any more.",
    )
    batch: int = option(
        "hoodie.timeline.compaction.batch.size", NUMBER, 10, "How many history files of a level are merged into one."
    )
    target_size: int = option(
        "hoodie.timeline.compaction.target.file.max.bytes",
        SIZE,
        16 << 20,
        "About how large a merged history file may get; Hudi's default is 1000 MB, small ones are searched faster.",
    )
    versions: int = option(
        "hoodie.timeline.manifest.retained.versions",
        NUMBER,
        3,
        "For how many versions, and rounds of archiving, old files of the history are kept for readers that use them.",
    )

    def __post_init__(self) -> None:
        if not 0 < self.min_commits < self.max_commits:
            raise InvalidRequest(
                "hoodie.keep.min.commits must be positive and less than hoodie.keep.max.commits",
                hint=f"They are {self.min_commits} and {self.max_commits}.",
            )
        if self.batch < 2 or self.versions < 1:
            raise InvalidRequest("at least two history files are merged, and at least one version is kept")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ArchiveOptions:
        return cls(**read_options(cls, properties))

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)


class TtlStrategy(StrEnum):
    """The time from which the days of a partition are counted."""

    KEEP_BY_TIME = "KEEP_BY_TIME"
    KEEP_BY_CREATION_TIME = "KEEP_BY_CREATION_TIME"


@dataclass(frozen=True, slots=True)
class TtlOptions:
    """The options of partition lifetimes."""

    inline: bool = option(
        "hoodie.partition.ttl.inline", FLAG, False, "Whether a write deletes expired partitions when it is done."
    )
    strategy: TtlStrategy = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.partition.ttl.management.strategy.type",
        choice_of(TtlStrategy),
        TtlStrategy.KEEP_BY_TIME,
        "The time from which the days of a partition are counted: its last write, or its first.",
        ("hoodie.partition.ttl.strategy.type",),
    )
    days: int = option(
        "hoodie.partition.ttl.strategy.days.retain", NUMBER, -1, "How many days a partition is kept; -1 is for ever."
    )
    partitions: tuple[str, ...] = option(
        "hoodie.partition.ttl.strategy.partition.selected",
        WORDS,
        (),
        "The partitions to which the TTL applies; empty is all.",
    )
    most: int = option(
        "hoodie.partition.ttl.strategy.max.delete.partitions",
        NUMBER,
        1000,
        "How many partitions are deleted in one commit.",
    )

    def __post_init__(self) -> None:
        if self.most <= 0:
            raise InvalidRequest("hoodie.partition.ttl.strategy.max.delete.partitions must be positive")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TtlOptions:
        return cls(**read_options(cls, properties))

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)
