"""The client of one table: its location, its configuration and its timeline.

It answers for the other layers: is this instant committed, when did it complete, what did it write, what is planned. A
client is one moment of a table: `reload()` returns a new one, so that a plan made from a client never sees half a
change. A caller that changed the timeline itself need not list it again: `changed()` returns the table after the
change. A client can be pickled; what it has cached (bodies, history) is not part of the pickle and is read again.

    committed(requested time) = a completed write of the active timeline, or of the history, or older than the first
                                write that the active timeline holds without a savepoint (archiving takes instants
                                oldest first), unless the active timeline records that it was rolled back
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from lakebed.config.read_options import TableConfig
from lakebed.errors import ConflictError, CorruptTable
from lakebed.format.names import (
    HOODIE_DIR,
    PROPERTIES_FILE,
    TIMELINE_DIR,
    instant_file_name,
)
from lakebed.format.timeline.files import decode_body
from lakebed.model.actions import (
    ActionBody,
    CommitMetadata,
    CompactionPlan,
    RequestedReplace,
    RestoreMetadata,
    RollbackMetadata,
    SavepointMetadata,
)
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Action, Instant
from lakebed.storage.storage import Storage, checked_folder
from lakebed.timeline.active import ActiveTimeline, load_active
from lakebed.timeline.clock import comparable, to_instant_time
from lakebed.timeline.history import History
from lakebed.timeline.table_properties import load_table_config
from lakebed.timeline.table_schema import Report, reported_schema, saved_history
from lakebed.timeline.timeline import Timeline

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacecommit that retired a file group."""

    requested_time: str
    completion_time: str


@dataclass(frozen=True, eq=False)
class MetaClient:
    """One table at one moment."""

    storage: Storage
    config: TableConfig
    active: ActiveTimeline
    _bodies: dict[Instant, ActionBody | None] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, storage: Storage) -> MetaClient:
        """The table at the storage's base location, as it is now."""
        config = load_table_config(storage)
        folder = _timeline_folder(config)
        checked_folder(f"{folder}/{config.history_path}")
        active = load_active(storage, folder)
        if not active.files and active.folder != TIMELINE_DIR and load_active(storage).files:
            raise CorruptTable(
                f"the timeline should be in {active.folder}, where nothing is, and there is one in {TIMELINE_DIR}",
                file=PROPERTIES_FILE,
                hint="Correct hoodie.timeline.path, or restore the file.",
            )
        return cls(storage, config, active)

    def reload(self) -> MetaClient:
        """The same table as it is now. Completed actions never change, so their cached bodies are kept."""
        fresh = MetaClient.open(self.storage)
        fresh._bodies.update((i, body) for i, body in self._bodies.items() if i.is_completed)
        return fresh

    def changed(self, made: Mapping[Instant, int], gone: Iterable[Instant] = ()) -> MetaClient:
        """The table after a change by the caller: states created, with the sizes of their files, and states removed.

        The change must be on storage. Changes of other writers since this client was read are not included.
        """
        names = {instant_file_name(instant): size for instant, size in made.items()}
        active = self.active.changed(names, frozenset(map(instant_file_name, gone)))
        return MetaClient(self.storage, self.config, active, {**self._bodies})

    def __getstate__(self) -> dict[str, Any]:
        return {"storage": self.storage, "config": self.config, "active": self.active, "_bodies": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def url(self) -> str:
        return self.storage.url

    @property
    def timeline(self) -> Timeline:
        """The active timeline."""
        return self.active.timeline

    @cached_property
    def history(self) -> History:
        """The archived timeline, read on first use."""
        return History.load(self.storage, checked_folder(f"{self.active.folder}/{self.config.history_path}"))

    @cached_property
    def full_timeline(self) -> Timeline:
        """History and active timeline together."""
        return self.history.timeline().merged(self.timeline)

    # Whether and when writes were committed

    @cached_property
    def _timeline_starts(self) -> str | None:
        first = self.timeline.first_write_not_saved
        return comparable(first.requested_time) if first else None

    def is_before_timeline(self, requested_time: str) -> bool:
        """Whether the active timeline starts later than this requested time, which archiving must then have passed."""
        return self._timeline_starts is not None and comparable(requested_time) < self._timeline_starts

    def is_committed(self, requested_time: str) -> bool:
        """Whether files with this requested time count."""
        if self.timeline.completed_write(requested_time) is not None:
            return True
        known = self.timeline.find(requested_time)
        if known is not None and not known.is_completed:
            return False
        if self.is_before_timeline(requested_time) and requested_time not in self._undone:
            return True
        return any(instant.action.adds_files for instant in self.history.find(requested_time))

    @cached_property
    def _undone(self) -> frozenset[str]:
        """Requested times that completed rollbacks and restores on the timeline undid; a service may rerun one."""
        found: set[str] = set()
        for instant in self.timeline.completed.of_actions(Action.ROLLBACK, Action.RESTORE):
            body = self.body(instant)
            if isinstance(body, RollbackMetadata):
                found.update(body.commits)
            elif isinstance(body, RestoreMetadata):
                found.update(body.instants)
        return frozenset(found)

    def is_undone(self, requested_time: str) -> bool:
        """Whether the write with this requested time was rolled back, and no action with that time exists."""
        return (
            requested_time in self._undone
            and not self.timeline.at(requested_time)
            and not self.history.find(requested_time)
        )

    def completion_time(self, requested_time: str) -> str | None:
        """When the write with this requested time became visible, None when it is unknown."""
        instant = self.timeline.completed_write(requested_time)
        if instant is None:
            instant = next((i for i in self.history.find(requested_time) if i.action.adds_files), None)
        return instant.completion_time if instant else None

    def resolve_time(self, value: str | dt.datetime | dt.date) -> str:
        """The time of a time-travel query: the completion time of an instant, any other time as it is."""
        time = to_instant_time(value, self.config.timezone)
        names = (time, value.strip()) if isinstance(value, str) else (time,)
        return next((done for name in names if (done := self.completion_time(name))), time)

    # What actions planned and reported

    def body(self, instant: Instant) -> ActionBody | None:
        """What the file of this state holds, None for an empty one. Archived instants are looked up in the history."""
        if instant not in self._bodies:
            self._bodies[instant] = self._load(instant)
        return self._bodies[instant]

    def commit(self, requested_time: str) -> CommitMetadata | None:
        """What the completed write with this requested time reported, if it is on the active timeline."""
        instant = self.timeline.completed_write(requested_time)
        body = self.body(instant) if instant else None
        return body if isinstance(body, CommitMetadata) else None

    def plan(self, instant: Instant) -> ActionBody | None:
        """What the action planned, None when it had no plan."""
        requested = self.active.requested(instant)
        if requested is not None:
            return self.body(requested)
        return self.history.plan(instant) if instant.is_completed else None

    def _load(self, instant: Instant) -> ActionBody | None:
        size, path = self.active.size(instant), self.active.path(instant)
        if size == 0:
            return None
        if size is not None:
            try:
                return decode_body(instant.action, instant.state, self.storage.read(path), path)
            except FileNotFoundError:
                pass
        if instant.is_completed:
            history = self.history if size is None else self.reload().history
            if any(known.action is instant.action for known in history.find(instant.requested_time)):
                return history.body(instant)
        raise ConflictError(
            "the instant left the timeline while it was being read", file=path, hint="Open the table again and retry."
        )

    def completed_writes(self) -> tuple[Instant, ...]:
        """Completed writes of the active timeline, by requested time."""
        return self.timeline.completed.of_actions(*_WRITES).instants

    def writes_within(self, start: str | None, end: str | None) -> frozenset[str]:
        """Requested times of the writes that completed in (start, end], archived ones included."""
        active = self.timeline.of_actions(*_WRITES).completed_within(start, end)
        archived = self.history.requested_within(start, end, _WRITES)
        return frozenset(archived).union(instant.requested_time for instant in active)

    def writes_during(self, low: str, high: str) -> tuple[Instant, ...]:
        """Completed writes that were under way at some time in [low, high], archived ones included."""
        words = frozenset(_WRITES)
        archived = (instant for instant in self.history.under_way(low, high) if instant.action in words)
        return tuple(
            instant
            for instant in (*archived, *self.completed_writes())
            if comparable(instant.requested_time) <= comparable(high) and _completed(instant) >= comparable(low)
        )

    def pending_compactions(self) -> tuple[tuple[Instant, CompactionPlan], ...]:
        """Compactions and log compactions that are planned and not finished."""
        found = []
        for instant in self.timeline.pending.of_actions(Action.COMPACTION, Action.LOG_COMPACTION):
            plan = self.plan(instant)
            if isinstance(plan, CompactionPlan):
                found.append((instant, plan))
        return tuple(found)

    def log_compactions(self) -> tuple[tuple[Instant, CompactionPlan], ...]:
        """Completed log compactions of the active timeline, with the logs that each covers.

        An operation of the plan that the commit does not report was left out: nothing covers its logs.
        """
        found = []
        for instant in self.timeline.completed.of_actions(Action.DELTA_COMMIT):
            planned = self.active.requested(instant)
            if planned is not None and planned.action is Action.LOG_COMPACTION:
                plan, commit = self.body(planned), self.body(instant)
                if isinstance(plan, CompactionPlan) and isinstance(commit, CommitMetadata):
                    done = {(partition, stat.file_id) for partition, stats in commit.stats.items() for stat in stats}
                    kept = (one for one in plan.operations if (one.partition_path, one.file_id) in done)
                    found.append((instant, replace(plan, operations=tuple(kept))))
        return tuple(found)

    def pending_clusterings(self) -> tuple[tuple[Instant, RequestedReplace], ...]:
        """Clusterings that are planned and not finished."""
        found = []
        for instant in self.timeline.pending.of_actions(Action.CLUSTERING, Action.REPLACE_COMMIT):
            plan = self.plan(instant)
            if isinstance(plan, RequestedReplace) and plan.clustering is not None:
                found.append((instant, plan))
        return tuple(found)

    def savepoints(self) -> tuple[tuple[Instant, SavepointMetadata], ...]:
        """Completed savepoints, with the files each protects."""
        found = []
        for instant in self.timeline.completed.of_actions(Action.SAVEPOINT):
            body = self.body(instant)
            if isinstance(body, SavepointMetadata):
                found.append((instant, body))
        return tuple(found)

    @cached_property
    def replaced(self) -> Mapping[FileGroupId, tuple[Replacement, ...]]:
        """File groups that completed replacecommits of the active timeline retired."""
        instants = self.timeline.completed.of_actions(Action.REPLACE_COMMIT)
        return _replacements((instant, self.body(instant)) for instant in instants)

    @cached_property
    def replaced_in_history(self) -> Mapping[FileGroupId, tuple[Replacement, ...]]:
        """The same of archived replacecommits: their files may exist until the next clean."""
        return _replacements(self.history.decoded((Action.REPLACE_COMMIT,)))

    # Schemas

    def schema_json(self, at: str | None = None) -> str | None:
        """Avro text of the table's schema: that of the write that completed last (by `at`) and carries one."""
        return reported_schema(self._reports(at), at) or self.config.create_schema or None

    def schema_history(self) -> str | None:
        """JSON text of all schemas of a table with schema-on-read, newest first; None for other tables."""
        return saved_history(self.storage, self.is_committed, self._reports())

    def _reports(self, until: str | None = None) -> Iterator[Report]:
        """Completed writes by descending completion, archived ones from `until` on, with a reader of its report."""
        for instant in reversed(self.timeline.completed.of_actions(*_WRITES).in_completion_order()):
            yield instant, partial(self.body, instant)
        for instant in self.history.newest_completed_first(_WRITES, until):
            yield instant, partial(self.body, instant)


def _completed(instant: Instant) -> str:
    return comparable(instant.completion_time or instant.requested_time)


def _timeline_folder(config: TableConfig) -> str:
    return checked_folder(f"{HOODIE_DIR}/{config.timeline_path}")


def _replacements(
    bodies: Iterator[tuple[Instant, ActionBody | None]],
) -> dict[FileGroupId, tuple[Replacement, ...]]:
    found: dict[FileGroupId, tuple[Replacement, ...]] = {}
    for instant, body in bodies:
        if body is None:
            raise CorruptTable(
                "a replacecommit is empty, so what it replaced is unknown",
                file=f"{TIMELINE_DIR}/{instant_file_name(instant)}",
            )
        if isinstance(body, CommitMetadata) and instant.completion_time:
            replacement = Replacement(instant.requested_time, instant.completion_time)
            for partition, file_ids in body.replaced_file_ids.items():
                for file_id in file_ids:
                    group = FileGroupId(partition, file_id)
                    found[group] = (*found.get(group, ()), replacement)
    return found
