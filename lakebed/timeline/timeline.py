"""The timeline: an immutable list of instants, and the queries over it.

    20261115.compaction.requested  ┐
    20261115.compaction.inflight   ├─ one action, most advanced state: commit, completed
    20261115_20261116.commit       ┘

Folder listings show every state of every action; a `Timeline` holds each action once, in its most advanced state. A
compaction that finished is a `commit`, a log compaction a `deltacommit`, a clustering a `replacecommit`, so the pending
instant disappears behind the completed one. A savepoint has the requested time of the commit it saves and is a separate
action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lakebed.model.instant import Action, Instant, State
from lakebed.timeline.clock import comparable

_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


def by_requested(instant: Instant) -> tuple[str, str]:
    """Order of requested time; a savepoint comes after the commit it saves."""
    return (comparable(instant.requested_time), instant.action)


def by_completion(instant: Instant) -> tuple[str, str]:
    """Order in which actions became visible."""
    return (comparable(instant.completion_time or ""), comparable(instant.requested_time))


@dataclass(frozen=True)
class Timeline:
    """Each action once, in its most advanced state, ordered by requested time."""

    instants: tuple[Instant, ...] = ()

    @classmethod
    def of(cls, instants: Iterable[Instant]) -> Timeline:
        """A timeline of the states that a listing shows."""
        best: dict[tuple[str, Action], Instant] = {}
        for instant in instants:
            key = (instant.requested_time, instant.action.completes_as)
            known = best.get(key)
            if known is None or _advances(instant, known):
                best[key] = instant
        return cls(tuple(sorted(best.values(), key=by_requested)))

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __len__(self) -> int:
        return len(self.instants)

    @cached_property
    def _by_requested_time(self) -> dict[str, tuple[Instant, ...]]:
        found: dict[str, list[Instant]] = {}
        for instant in self.instants:
            found.setdefault(instant.requested_time, []).append(instant)
        return {requested_time: tuple(group) for requested_time, group in found.items()}

    def at(self, requested_time: str) -> tuple[Instant, ...]:
        """All actions with that requested time: two when a commit has a savepoint."""
        return self._by_requested_time.get(requested_time, ())

    def find(self, requested_time: str, action: Action | None = None) -> Instant | None:
        """The action with that requested time; without `action` a savepoint is never returned."""
        for instant in self.at(requested_time):
            if instant.action is action or (action is None and instant.action is not Action.SAVEPOINT):
                return instant
        return None

    def completed_write(self, requested_time: str) -> Instant | None:
        """The completed commit, deltacommit or replacecommit with that requested time."""
        return next((i for i in self.at(requested_time) if i.is_completed and i.action.adds_files), None)

    @property
    def first(self) -> Instant | None:
        return self.instants[0] if self.instants else None

    @property
    def last(self) -> Instant | None:
        return self.instants[-1] if self.instants else None

    def where(self, keep: Callable[[Instant], bool]) -> Timeline:
        """The instants for which `keep` holds."""
        return Timeline(tuple(filter(keep, self.instants)))

    @property
    def completed(self) -> Timeline:
        return self.where(lambda i: i.is_completed)

    @property
    def pending(self) -> Timeline:
        return self.where(lambda i: not i.is_completed)

    @property
    def writes(self) -> Timeline:
        """Actions that add files once completed: commits of all kinds, pending compactions and clusterings included."""
        return self.where(lambda i: i.action.completes_as.adds_files)

    def of_actions(self, *actions: Action) -> Timeline:
        return self.where(lambda i: i.action in actions)

    def requested_before(self, time: str) -> Timeline:
        """Requested time smaller than `time`."""
        limit = comparable(time)
        return self.where(lambda i: comparable(i.requested_time) < limit)

    def completed_by(self, time: str) -> Timeline:
        """Completed at or before `time`."""
        limit = comparable(time)
        return self.where(lambda i: i.completion_time is not None and comparable(i.completion_time) <= limit)

    def completed_within(self, start: str | None, end: str | None) -> Timeline:
        """Completed in (start, end], the range of incremental queries; None leaves a side open."""
        low, high = (start and comparable(start)), (end and comparable(end))

        def inside(instant: Instant) -> bool:
            if instant.completion_time is None:
                return False
            done = comparable(instant.completion_time)
            return (not low or done > low) and (not high or done <= high)

        return self.where(inside)

    def in_completion_order(self) -> tuple[Instant, ...]:
        """Completed instants, in the order in which they became visible."""
        return tuple(sorted((i for i in self.instants if i.is_completed), key=by_completion))

    @property
    def last_completion(self) -> str | None:
        """The greatest completion time."""
        return max((i.completion_time for i in self.instants if i.completion_time), key=comparable, default=None)

    @cached_property
    def first_write_not_saved(self) -> Instant | None:
        """The first completed write without a savepoint: from it on the timeline has no gaps.

        Archiving may skip a commit with a savepoint and leave it on the timeline, so actions between such a commit and
        the next one may be archived.
        """
        saved = {i.requested_time for i in self.instants if i.action is Action.SAVEPOINT}
        writes = (i for i in self.instants if i.is_completed and i.action.adds_files)
        return next((i for i in writes if i.requested_time not in saved), None)

    def merged(self, other: Timeline) -> Timeline:
        """Both timelines as one; an action that is in both counts once."""
        return Timeline.of((*self.instants, *other.instants))


def _advances(instant: Instant, known: Instant) -> bool:
    """Whether the state replaces the known one; of two completions the earlier one counts."""
    if instant.completion_time and known.completion_time:
        return comparable(instant.completion_time) < comparable(known.completion_time)
    return _RANK[instant.state] > _RANK[known.state]
