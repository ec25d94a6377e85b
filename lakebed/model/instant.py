"""Instants: one action on the timeline, in one state.

Times are the 17-digit strings of the format (`yyyyMMddHHmmssSSS`) and compare as text; old tables hold 14 digits
(seconds), which are compared as if `999` stood behind them (`comparable`). A completed compaction appears
on the timeline as a `commit`, a log compaction as a `deltacommit`, clustering as a `replacecommit`: the action of an
`Instant` is the word in its file name, which is what readers see.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

INSTANT_LENGTH = 17
LEGACY_LENGTH = 14
_MS_DIGITS = 3


class Action(StrEnum):
    """The action words of timeline file names."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"

    @property
    def completes_as(self) -> Action:
        """The word under which this action's completed file is published."""
        return _COMPLETES_AS.get(self, self)

    @property
    def adds_files(self) -> bool:
        """Whether the completed action can make data files visible."""
        return self in _ADDS_FILES

    @property
    def is_service(self) -> bool:
        """Whether it merges or rewrites file slices by a plan: such an action completes under another word."""
        return self in _COMPLETES_AS


_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
_ADDS_FILES = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


class State(StrEnum):
    """How far an action has come; only `COMPLETED` is visible to readers."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Instant:
    """One action in one state. `completion_time` is set exactly when the state is `COMPLETED`."""

    requested_time: str
    action: Action
    state: State
    completion_time: str | None = None

    def __post_init__(self) -> None:
        if (self.state is State.COMPLETED) != (self.completion_time is not None):
            raise ValueError(f"an instant has a completion time exactly when it is completed: {self}")

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED

    def __str__(self) -> str:
        done = f"_{self.completion_time}" if self.completion_time else ""
        return f"{self.requested_time}{done}.{self.action}.{self.state}"


def comparable(instant_time: str) -> str:
    """The 17 digits by which an instant time is ordered: 14-digit times count as the end of their second."""
    if len(instant_time) == INSTANT_LENGTH:
        return instant_time
    return instant_time + "9" * _MS_DIGITS if len(instant_time) == LEGACY_LENGTH else instant_time[:INSTANT_LENGTH]
