"""A write from Arrow data in this process, on one screen.

    check schema ──► prepare (keys, partitions) ──► place rows in file groups ──► begin ──► a task per group ──► commit

Everything that the data itself can get wrong is found before the write begins, for rows are prepared and piled up (on
disk past the memory given) first. Hashed indexes place rows batch by batch; the others look up all keys at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.config.write_options import WriteOptions
from lakebed.datafile.writers import FileSchema, WrittenFile
from lakebed.errors import InvalidRequest
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.task import GroupTarget, Incoming, Target, WriteContext, write_group


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a write did. On merge-on-read tables rows that go to logs count as updates: nothing looks for older ones."""

    instant: str
    completion_time: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, instant: Instant, stats: Sequence[WriteStat]) -> CommitResult:
        return cls(
            instant.requested_time,
            instant.completion_time or "",
            sum(stat.num_inserts for stat in stats),
            sum(stat.num_updates for stat in stats),
            sum(stat.num_deletes for stat in stats),
            tuple(stat.path for stat in stats if stat.path),
        )
