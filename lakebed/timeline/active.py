"""The active timeline: one folder, one file per state of an action.

    create_requested -> to_inflight -> complete        each step creates one file, exactly once

A state change is a `put_if_absent`, so of two writers that try the same step one gets a `ConflictError`. The completed
file's name holds the completion time and its creation is the moment at which a write becomes visible. Reading is one
listing; sizes are kept because an empty file means "no body" and needs no request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import TIMELINE_DIR, instant_file_name, parse_instant_file
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.storage import Storage
from lakebed.timeline.timeline import Timeline

_PLANNED_AS = {
    Action.COMMIT: (Action.COMPACTION, Action.COMMIT),
    Action.DELTA_COMMIT: (Action.LOG_COMPACTION, Action.DELTA_COMMIT),
    Action.REPLACE_COMMIT: (Action.CLUSTERING, Action.REPLACE_COMMIT),
}


@dataclass(frozen=True, slots=True)
class ActiveTimeline:
    """What one listing of the timeline folder showed."""

    timeline: Timeline = field(default_factory=Timeline)
    files: Mapping[str, int] = field(default_factory=dict)
    folder: str = TIMELINE_DIR

    @classmethod
    def of(cls, files: Mapping[str, int], folder: str = TIMELINE_DIR) -> ActiveTimeline:
        """The instants of a listing, parsed from file names; files that are no instants are left out."""
        found = {name: instant for name in files if (instant := parse_instant_file(name)) is not None}
        return cls(Timeline.of(found.values()), {name: files[name] for name in found}, folder)

    def changed(self, made: Mapping[str, int], gone: Collection[str] = ()) -> ActiveTimeline:
        """The listing after some files, by name, were created and others removed."""
        kept = {name: size for name, size in self.files.items() if name not in gone}
        return ActiveTimeline.of({**kept, **made}, self.folder)

    def path(self, instant: Instant) -> str:
        """The file of exactly this state."""
        return f"{self.folder}/{instant_file_name(instant)}"

    def size(self, instant: Instant) -> int | None:
        """The size of this state's file, None when the listing did not show it."""
        return self.files.get(instant_file_name(instant))

    def requested(self, instant: Instant) -> Instant | None:
        """The requested state that the listing shows for an action, under the action name by which it was planned."""
        for action in _PLANNED_AS.get(instant.action, (instant.action,)):
            if action is Action.SAVEPOINT:
                return None
            planned = Instant(instant.requested_time, action, State.REQUESTED)
            if instant_file_name(planned) in self.files:
                return planned
        return None


def load_active(storage: Storage, folder: str = TIMELINE_DIR) -> ActiveTimeline:
    """The active timeline by one listing; files that are no instants are ignored."""
    return ActiveTimeline.of({info.name: info.size for info in storage.list(folder)}, folder)


def create_requested(
    storage: Storage, requested_time: str, action: Action, body: bytes = b"", folder: str = TIMELINE_DIR
) -> Instant:
    """Announce an action, with its plan if it has one."""
    return _create(storage, Instant(requested_time, action, State.REQUESTED), body, folder)


def to_inflight(storage: Storage, requested: Instant, body: bytes = b"", folder: str = TIMELINE_DIR) -> Instant:
    """Record that the work has begun. A savepoint starts in this state: it is never requested."""
    if requested.state is not State.REQUESTED:
        raise InvalidRequest(f"{requested} is not in the requested state")
    return _create(storage, replace(requested, state=State.INFLIGHT), body, folder)


def complete(
    storage: Storage, inflight: Instant, completion_time: str, body: bytes, folder: str = TIMELINE_DIR
) -> Instant:
    """Publish an action: from now on readers see it. The caller holds the table lock and chose the time under it."""
    if inflight.state is not State.INFLIGHT:
        raise InvalidRequest(f"{inflight} is not in the inflight state")
    done = Instant(inflight.requested_time, inflight.action.completes_as, State.COMPLETED, completion_time)
    return _create(storage, done, body, folder)


def _create(storage: Storage, instant: Instant, body: bytes, folder: str) -> Instant:
    path = f"{folder}/{instant_file_name(instant)}"
    if not storage.put_if_absent(path, body):
        raise ConflictError("another writer has created this instant", file=path, hint="Try again with a new instant.")
    return instant
