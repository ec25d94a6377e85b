"""The options of compaction: when it is due, which slices it takes, and when logs are merged into logs.

Keys and defaults are Hudi's wherever Hudi has them; those of the hybrid strategy, which it does not have, are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.config.option import FLAG, NUMBER, SIZE, Kind, choice, choice_of, option, read_options, to_properties
from lakebed.errors import InvalidRequest


class Strategy(StrEnum):
    """What a compaction does: logs into base files, logs into logs, or one of the two for each file group."""

    FULL = "full"
    LOG = "log"
    HYBRID = "hybrid"


class Trigger(StrEnum):
    """When a compaction is due: by deltas since the last one, by the time since, or by both."""

    NUM_COMMITS = "NUM_COMMITS"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


class Selection(StrEnum):
    """Which slices go first, and where a plan ends."""

    LOG_SIZE = "log_size"
    LOG_COUNT = "log_count"
    BOUNDED_IO = "bounded_io"
    DAY_BASED = "day_based"
    UNBOUNDED = "unbounded"


_HUDI = "org.apache.hudi.table.action.compact.strategy."
_SELECTIONS = {str(member): member for member in Selection} | {
    f"{_HUDI}LogFileSizeBasedCompactionStrategy": Selection.LOG_SIZE,
    f"{_HUDI}LogFileNumBasedCompactionStrategy": Selection.LOG_COUNT,
    f"{_HUDI}BoundedIOCompactionStrategy": Selection.BOUNDED_IO,
    f"{_HUDI}DayBasedCompactionStrategy": Selection.DAY_BASED,
    f"{_HUDI}UnBoundedCompactionStrategy": Selection.UNBOUNDED,
}


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError("not a positive number")
    return value


RATIO = Kind("ratio", _ratio, repr)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The options of compaction in all its kinds."""

    # --- when
    inline: bool = option(
        "hoodie.compact.inline", FLAG, False, "Whether a write is followed by a compaction that is due."
    )
    schedule_inline: bool = option(
        "hoodie.compact.schedule.inline",
        FLAG,
        False,
        "Whether a write plans a compaction that is due, for another process to run.",
    )
    trigger: Trigger = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.compact.inline.trigger.strategy", choice_of(Trigger), Trigger.NUM_COMMITS, "When a compaction is due."
    )
    max_delta_commits: int = option(
        "hoodie.compact.inline.max.delta.commits", NUMBER, 5, "Deltas since the last compaction that make one due."
    )
    max_delta_seconds: int = option(
        "hoodie.compact.inline.max.delta.seconds", NUMBER, 3600, "Seconds since the last compaction that make one due."
    )
    strategy: Strategy = option(  # noqa: RUF009 (a field, not a shared value)
        "lakebed.compaction.strategy", choice_of(Strategy), Strategy.FULL, "What a compaction after a write does."
    )

    # --- which slices
    selection: Selection = option(  # noqa: RUF009 (a field, not a shared value)
        "hoodie.compaction.strategy",
        choice(_SELECTIONS),
        Selection.LOG_SIZE,
        "Which slices a full compaction takes first.",
    )
    target_io_mb: int = option(
        "hoodie.compaction.target.io",
        NUMBER,
        500 << 10,
        "Megabytes that one plan may read and write (all but `unbounded` and `day_based`).",
    )
    log_size_threshold: int = option(
        "hoodie.compaction.logfile.size.threshold", SIZE, 0, "Slices with fewer bytes of logs wait (`log_size`)."
    )
    log_count_threshold: int = option(
        "hoodie.compaction.logfile.num.threshold", NUMBER, 0, "Slices with fewer log files wait (`log_count`)."
    )
    day_partitions: int = option(
        "hoodie.compaction.daybased.target.partitions",
        NUMBER,
        10,
        "How many partitions, the newest days first, one plan takes (`day_based`).",
    )

    # --- logs into logs
    log_inline: bool = option(
        "hoodie.log.compaction.inline", FLAG, False, "Whether a write is followed by a log compaction."
    )
    log_enabled: bool = option(
        "hoodie.log.compaction.enable",
        FLAG,
        False,
        "Whether a write plans a log compaction, for another process to run.",
    )
    log_threshold: int = option(
        "hoodie.log.compaction.blocks.threshold", NUMBER, 5, "Small deltas in a row that are worth merging."
    )
    log_small_size: int = option(
        "lakebed.log.compaction.small.size",
        SIZE,
        32 << 20,
        "Up to which size a delta of one file group counts as small.",
    )

    # --- hybrid
    hybrid_ratio: float = option(
        "lakebed.compaction.hybrid.log.ratio",
        RATIO,
        0.5,
        "Bytes of logs per byte of base file from which the base file is rewritten.",
    )
    hybrid_most_logs: int = option(
        "lakebed.compaction.hybrid.max.logs",
        NUMBER,
        32,
        "Deltas on one base file from which it is rewritten in any case.",
    )

    def __post_init__(self) -> None:
        if self.max_delta_commits < 1 or self.max_delta_seconds < 0 or self.hybrid_most_logs < 1:
            raise InvalidRequest("a compaction is due after at least one delta, and times are not negative")
        if self.log_threshold < 2:
            raise InvalidRequest("merging logs takes two of them", hint="Raise hoodie.log.compaction.blocks.threshold.")
        if self.target_io_mb < 1 or self.day_partitions < 1:
            raise InvalidRequest("a compaction plan takes at least one megabyte and one partition")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CompactionOptions:
        return cls(**read_options(cls, properties))

    def to_properties(self) -> dict[str, str]:
        return to_properties(self)


def strategy_named(name: str) -> Strategy:
    """The strategy of that name."""
    try:
        return Strategy(name.lower())
    except (ValueError, AttributeError):
        known = ", ".join(f'"{one}"' for one in Strategy)
        raise InvalidRequest(f"there is no compaction strategy {name!r}", hint=f"Use one of {known}.") from None
