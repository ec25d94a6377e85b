"""The history timeline: what archiving moved out of the active timeline, kept as a small LSM tree of Parquet files.

    history_files      _version_ and manifest_<N>: which files count
    history_reader     <minRequested>_<maxRequested>_<level>.parquet: rows of one file
    history_columns    rows as columns: order, ranges, instants
    history_order      the newest actions first, file by file
    history_writer     how files are written, merged and removed

File names hold *requested* times, so a range of requested times skips files by name and row groups by their statistics.
Nothing completes before its requested time, so a range of completion times skips, by name as well, files whose
requested times are all later than it; files with only earlier completions are skipped by the statistics in their
footers, one footer read per file. Rows stay Arrow columns: no object per action is made unless instants are requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.names import HISTORY_DIR, manifest_file_name
from lakebed.format.timeline.files import decode_body
from lakebed.model.actions import ActionBody
from lakebed.model.instant import Action, Instant, State
from lakebed.runner import LocalRunner
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import LEGACY_LENGTH, comparable
from lakebed.timeline.history_columns import (
    ACTION,
    BODIES_SCHEMA,
    COMPLETED,
    METADATA,
    PLAN,
    REQUESTED,
    TIMES_SCHEMA,
    after,
    ascends,
    comparable_times,
    in_order,
    instants_of,
    words,
)
from lakebed.timeline.history_files import HistoryFile, current_files, files_within
from lakebed.timeline.history_order import newest_completed, newest_requested
from lakebed.timeline.history_reader import ANY, HistoryReader, Range
from lakebed.timeline.timeline import Timeline

_MANY_FILES = 4


class History:
    """One version of the history. Loaded columns are kept; an object never sees a later version."""

    def __init__(self, storage: Storage, files: Sequence[HistoryFile], version: int | None, folder: str = HISTORY_DIR):
        self.storage = storage
        self.files = tuple(files)
        self.version = version
        self.folder = folder
        self._reader = HistoryReader(storage, "the manifest" if version is None else manifest_file_name(version))

    @classmethod
    def load(cls, storage: Storage, folder: str = HISTORY_DIR) -> History:
        """The current version."""
        version, files = current_files(storage, folder)
        return cls(storage, files, version, folder)

    def __getstate__(self) -> tuple[object, ...]:
        return (self.storage, self.files, self.version, self.folder)

    def __setstate__(self, state: tuple[Storage, tuple[HistoryFile, ...], int | None, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def is_empty(self) -> bool:
        return not self.files

    def table(self, low: str | None = None, high: str | None = None) -> pa.Table:
        """Requested and completion time and action of archived actions requested in [low, high], by requested time."""
        return self._table(low, high)

    def completed_within(self, start: str | None, end: str | None) -> pa.Table:
        """The same columns for completions in (start, end]."""
        return after(self._table(None, _requested_by(end), (start, end)), COMPLETED, start)

    def requested_within(self, start: str | None, end: str | None, actions: Sequence[Action]) -> list[str]:
        """Requested times of the actions of these kinds that completed in (start, end]."""
        table = self.completed_within(start, end)
        found: list[str] = table.filter(pc.is_in(table[ACTION], words(actions)))[REQUESTED].to_pylist()
        return found

    def under_way(self, low: str, high: str) -> list[Instant]:
        """The actions with a requested time up to `high` that did not complete before `low`."""
        return instants_of(self._table(None, high, (low, None)))

    def timeline(self, low: str | None = None, high: str | None = None) -> Timeline:
        """The archived actions with a requested time in [low, high] as instants."""
        table = self.table(low, high)
        instants = instants_of(table)
        return Timeline(tuple(instants)) if ascends(table[REQUESTED]) else Timeline.of(instants)

    def first_completed(self, actions: Sequence[Action], start: str | None = None) -> Instant | None:
        """The archived action of these kinds that became visible first, after `start`.

        Nothing completes before its requested time, so actions requested after the first completion are not read.
        """
        kinds = words(actions)
        high = None
        for file in files_within(self.files, start, None):
            times = after(self._reader.times(file, start, None), REQUESTED, start)
            times = times.filter(pc.is_in(times[ACTION], kinds))
            if times.num_rows:
                high = pc.min(comparable_times(times[COMPLETED])).as_py()
                break
        table = self.completed_within(start, high)
        table = table.filter(pc.is_in(table[ACTION], kinds))
        if not table.num_rows:
            return None
        completions = comparable_times(table[COMPLETED])
        return instants_of(table.filter(pc.equal(completions, pc.min(completions))))[0]

    def find(self, requested_time: str) -> tuple[Instant, ...]:
        """All archived actions with that requested time."""
        found: list[Instant] = []
        for file in files_within(self.files, requested_time, requested_time):
            times = self._reader.times(file, requested_time, requested_time)
            found += instants_of(times.filter(pc.equal(times[REQUESTED], requested_time)))
        return Timeline.of(found).instants

    def body(self, instant: Instant) -> ActionBody | None:
        """What the completed action reported."""
        for found, metadata, _ in self.bodies(instant.requested_time, instant.requested_time, (instant.action,)):
            if found.action is instant.action:
                return _decoded(found, State.COMPLETED, metadata)
        return None

    def plan(self, instant: Instant) -> ActionBody | None:
        """What was planned, for actions that had a plan."""
        for found, _, plan in self.bodies(instant.requested_time, instant.requested_time, (instant.action,)):
            if plan:
                return _decoded(found, State.REQUESTED, plan)
        return None

    def loaded(self, low: str | None = None, high: str | None = None, actions: Sequence[Action] = ()) -> pa.Table:
        """The actions with the bytes of their completed and requested files, as Arrow columns, by requested time."""
        kinds = words(actions) if actions else None
        wanted = files_within(self.files, low, high)
        return in_order([self._reader.bodies(file, low, high, kinds) for file in wanted], BODIES_SCHEMA)

    def _table(self, low: str | None, high: str | None, completed: Range = ANY) -> pa.Table:
        wanted = files_within(self.files, low, high)
        if len(wanted) < _MANY_FILES:
            parts = [self._reader.times(file, low, high, completed) for file in wanted]
        else:
            runner = LocalRunner.near(is_local=self.storage.is_local)
            read = partial(self._reader.times, low=low, high=high, completed=completed)
            parts = list(runner.map(read, wanted, label="history"))
        return in_order(parts, TIMES_SCHEMA)

    def parts(self) -> Iterator[pa.Table]:
        """The stored rows a row group at a time, unchanged: a copy keeps actions with unknown names."""
        for file in self.files:
            yield from self._reader.stored(file)

    def bodies(
        self, low: str | None = None, high: str | None = None, actions: Sequence[Action] = ()
    ) -> Iterator[tuple[Instant, bytes | None, bytes | None]]:
        """The actions one by one, as instants with both bodies."""
        table = self.loaded(low, high, actions)
        for instant, metadata, plan in zip(instants_of(table), table[METADATA], table[PLAN], strict=True):
            yield instant, metadata.as_py(), plan.as_py()

    def decoded(self, actions: Sequence[Action]) -> Iterator[tuple[Instant, ActionBody | None]]:
        """Every archived action of these kinds with what it reported."""
        for instant, metadata, _ in self.bodies(actions=actions):
            yield instant, _decoded(instant, State.COMPLETED, metadata)

    def reports(self, actions: Sequence[Action], low: str) -> Iterator[tuple[Instant, ActionBody | None]]:
        """Archived actions of these kinds requested at `low` or later with what they reported, a row group at a time.

        Where files overlap there is no order between them, and an action may come twice.
        """
        for file in files_within(self.files, low, None):
            for part in self._reader.body_groups(file, low, words(actions)):
                for instant, metadata in zip(instants_of(part), part[METADATA], strict=True):
                    yield instant, _decoded(instant, State.COMPLETED, metadata.as_py())

    def newest_first(self, actions: Sequence[Action], low: str | None = None) -> Iterator[Instant]:
        """Archived actions of these kinds by descending requested time, down to `low`; files are opened on demand."""
        return newest_requested(self._reader, files_within(self.files, low, None), words(actions), low)

    def newest_completed_first(self, actions: Sequence[Action], until: str | None = None) -> Iterator[Instant]:
        """The same by descending completion time, from `until` on."""
        files = files_within(self.files, None, _requested_by(until))
        return newest_completed(self._reader, files, words(actions), until)


def _requested_by(completion: str | None) -> str | None:
    """The latest requested time of an action that completed by then; 14 digits count as the end of their second."""
    return f"{comparable(completion)[:LEGACY_LENGTH]}999" if completion is not None else None


def _decoded(instant: Instant, state: State, data: bytes | None) -> ActionBody | None:
    return decode_body(instant.action, state, data or b"", f"history of {instant}")
