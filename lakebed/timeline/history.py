"""The history timeline: what archiving moved out of the active timeline, kept as a small LSM tree of Parquet files.

    history/_version_                          text: the number of the current manifest
    history/manifest_<N>                       JSON: which files count, and how long each is
    history/<minBegin>_<maxBegin>_<level>.parquet
        instantTime, completionTime, action: string    metadata, plan: bytes (whole timeline files)    version: int32

Only files that the manifest lists are read; others are left-overs of older versions. Names hold *begin* times, so a
range of begins skips files by name, while a range of completion times must look into all of them. Bodies are large and
times are small: unless bodies are asked for, only the three text columns are read, and they stay Arrow columns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptTable
from lakebed.format.names import (
    HISTORY_DIR,
    VERSION_FILE,
    HistoryFileName,
    manifest_file_name,
    parse_history_file,
    parse_manifest_file,
)
from lakebed.format.timeline_files import ManifestEntry, decode_body, parse_manifest, parse_version
from lakebed.model.actions import ActionBody
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import comparable
from lakebed.timeline.timeline import Timeline

REQUESTED, COMPLETED, ACTION = "requested_time", "completion_time", "action"
METADATA, PLAN = "metadata", "plan"
_STORED = {"instantTime": REQUESTED, "completionTime": COMPLETED, "action": ACTION, "metadata": METADATA, "plan": PLAN}
_TIMES = ("instantTime", "completionTime", "action")
_BODIES = ("metadata", "plan")
TIMES_SCHEMA = pa.schema([(name, pa.string()) for name in (REQUESTED, COMPLETED, ACTION)])
BODIES_SCHEMA = pa.schema([*TIMES_SCHEMA, pa.field(METADATA, pa.binary()), pa.field(PLAN, pa.binary())])
_KNOWN_ACTIONS = pa.array([str(action) for action in Action])


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file that the manifest lists. A name of an unknown shape has no range, so the file is never skipped."""

    path: str
    size: int
    name: HistoryFileName | None

    def may_hold(self, low: str | None, high: str | None) -> bool:
        """Whether begins within [low, high] can be in the file."""
        if self.name is None:
            return True
        below = high is not None and comparable(high) < comparable(self.name.min_time)
        above = low is not None and comparable(low) > comparable(self.name.max_time)
        return not (below or above)


class History:
    """One version of the history. Loaded columns are kept; an object never sees a later version."""

    def __init__(self, storage: Storage, files: Sequence[HistoryFile], version: int | None) -> None:
        self.storage = storage
        self.files = tuple(files)
        self.version = version
        self._times: dict[str, pa.Table] = {}
        self._lock = threading.Lock()

    @classmethod
    def load(cls, storage: Storage, folder: str = HISTORY_DIR) -> History:
        """The version that `_version_` names; without a readable one, the greatest manifest there is.

        An archiving writer may put a new manifest between our listing and our look at `_version_`: then we list again.
        A manifest that is named and still not there is lost, and an older one would hide what was archived since.
        """
        for _ in range(2):
            listed = {info.name: info.size for info in storage.list(folder)}
            number = _current_version(storage, folder, listed)
            if number is None or manifest_file_name(number) in listed:
                break
        if number is None:
            return cls(storage, (), None)
        path = f"{folder}/{manifest_file_name(number)}"
        try:
            entries = parse_manifest(storage.read(path), path)
        except FileNotFoundError:
            hint = f"Restore it from a copy of the table; {folder}/{VERSION_FILE} names it."
            raise CorruptTable("the history's manifest is missing", file=path, hint=hint) from None
        return cls(storage, [_checked(entry, folder, listed, path) for entry in entries], number)

    def __getstate__(self) -> tuple[object, ...]:
        return (self.storage, self.files, self.version)

    def __setstate__(self, state: tuple[Storage, tuple[HistoryFile, ...], int | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def is_empty(self) -> bool:
        return not self.files

    def table(self, low: str | None = None, high: str | None = None) -> pa.Table:
        """Begin, completion and action of every archived action with a begin in [low, high], in order of begin."""
        parts = [self._file_times(file) for file in self.files if file.may_hold(low, high)]
        return _in_order(_within(_concat(parts, TIMES_SCHEMA), REQUESTED, low, high))

    def completed_within(self, start: str | None, end: str | None) -> pa.Table:
        """The same columns for completions in (start, end]; every file is looked at, since names do not tell."""
        table = self.table()
        if start is not None:
            table = table.filter(pc.greater(_comparable(table[COMPLETED]), comparable(start)))
        return _within(table, COMPLETED, None, end)

    def timeline(self, low: str | None = None, high: str | None = None) -> Timeline:
        """The archived actions with a begin in [low, high] as instants."""
        return Timeline.of(instants_of(self.table(low, high)))

    def find(self, begin: str) -> tuple[Instant, ...]:
        """All archived actions with that begin."""
        found: list[Instant] = []
        for file in self.files:
            if file.may_hold(begin, begin):
                times = self._file_times(file)
                found += instants_of(times.filter(pc.equal(times[REQUESTED], begin)))
        return Timeline.of(found).instants

    def body(self, instant: Instant) -> ActionBody | None:
        """What the completed action reported."""
        for found, metadata, _ in self.bodies(instant.requested_time, instant.requested_time, (instant.action,)):
            if found.action is instant.action:
                return self._decode(found, State.COMPLETED, metadata)
        return None

    def plan(self, instant: Instant) -> ActionBody | None:
        """What was planned, for actions that had a plan."""
        for found, _, plan in self.bodies(instant.requested_time, instant.requested_time, (instant.action,)):
            if plan:
                return self._decode(found, State.REQUESTED, plan)
        return None

    def bodies(
        self, low: str | None = None, high: str | None = None, actions: Sequence[Action] = ()
    ) -> Iterator[tuple[Instant, bytes | None, bytes | None]]:
        """Instants with the bytes of their completed and requested files, by begin.

        Files without such an action are found out by their small columns, so their large ones are not read.
        """
        words = pa.array([str(action) for action in actions] or _KNOWN_ACTIONS, pa.string())
        parts = []
        for file in self.files:
            if not file.may_hold(low, high):
                continue
            times = _within(self._file_times(file), REQUESTED, low, high)
            if pc.any(pc.is_in(times[ACTION], words)).as_py():
                table = _within(self._read(file, _TIMES + _BODIES), REQUESTED, low, high)
                parts.append(table.filter(pc.is_in(table[ACTION], words)))
        table = _in_order(_concat(parts, BODIES_SCHEMA))
        for instant, metadata, plan in zip(instants_of(table), table[METADATA], table[PLAN], strict=True):
            yield instant, metadata.as_py(), plan.as_py()

    def decoded(self, actions: Sequence[Action]) -> Iterator[tuple[Instant, ActionBody | None]]:
        """Every archived action of these kinds with what it reported."""
        for instant, metadata, _ in self.bodies(actions=actions):
            yield instant, self._decode(instant, State.COMPLETED, metadata)

    def newest_first(self, actions: Sequence[Action]) -> Iterator[tuple[Instant, Callable[[], ActionBody | None]]]:
        """Archived actions of these kinds by falling begin, with a way to their bodies; one file is read at a time."""
        files = sorted(self.files, key=lambda file: file.name.max_time if file.name else "", reverse=True)
        for file in files:
            alone = History(self.storage, (file,), self.version)
            for instant, metadata, _ in reversed(list(alone.bodies(actions=actions))):
                yield instant, partial(self._decode, instant, State.COMPLETED, metadata)

    def _decode(self, instant: Instant, state: State, data: bytes | None) -> ActionBody | None:
        return decode_body(instant.action, state, data or b"", f"history of {instant}")

    def _file_times(self, file: HistoryFile) -> pa.Table:
        with self._lock:
            known = self._times.get(file.path)
        if known is None:
            known = self._read(file, _TIMES)
            with self._lock:
                self._times[file.path] = known
        return known

    def _read(self, file: HistoryFile, columns: Sequence[str]) -> pa.Table:
        """Some columns of one file under our names and types, rows of unknown action words dropped."""
        wanted = BODIES_SCHEMA if len(columns) > len(_TIMES) else TIMES_SCHEMA
        try:
            with self.storage.open_input(file.path, file.size) as source, pq.ParquetFile(source) as parquet:
                missing = set(columns) - set(parquet.schema_arrow.names)
                if missing:
                    raise CorruptTable(f"the history file has no column {', '.join(sorted(missing))}", file=file.path)
                table = parquet.read(columns=list(columns))
            table = table.rename_columns([_STORED[name] for name in table.column_names]).select(wanted.names)
            table = table.cast(wanted)
        except FileNotFoundError:
            raise _missing(file.path) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptTable(f"the history file cannot be read: {error}", file=file.path) from error
        if table[REQUESTED].null_count or table[ACTION].null_count:
            raise CorruptTable("the history file holds an action without begin or name", file=file.path)
        times = pc.and_(
            _is_time(table[REQUESTED]), pc.or_kleene(_is_time(table[COMPLETED]), table[COMPLETED].is_null())
        )
        if not pc.all(times, min_count=0).as_py():
            raise CorruptTable("the history file holds a time that is none", file=file.path)
        completion = pc.coalesce(table[COMPLETED], table[REQUESTED])
        table = table.set_column(1, TIMES_SCHEMA.field(COMPLETED), completion)
        return table.filter(pc.is_in(table[ACTION], _KNOWN_ACTIONS))


def instants_of(table: pa.Table) -> list[Instant]:
    """Rows of a history table as instants."""
    rows = zip(*(table[name].to_pylist() for name in (REQUESTED, ACTION, COMPLETED)), strict=True)
    return [Instant(begin, Action(action), State.COMPLETED, done) for begin, action, done in rows]


def _current_version(storage: Storage, folder: str, listed: dict[str, int]) -> int | None:
    manifests = [n for n in map(parse_manifest_file, listed) if n is not None]
    if not manifests and VERSION_FILE not in listed:
        return None
    path = f"{folder}/{VERSION_FILE}"
    try:
        number = parse_version(storage.read(path), path) if VERSION_FILE in listed else None
    except (CorruptTable, FileNotFoundError):
        number = None
    return number if number is not None else max(manifests, default=None)


def _checked(entry: ManifestEntry, folder: str, listed: dict[str, int], manifest: str) -> HistoryFile:
    """A listed file, which must be there and as long as the manifest says."""
    path = f"{folder}/{entry.file_name}"
    if "/" in entry.file_name:
        raise CorruptTable(f"the manifest names {entry.file_name!r}, which is no file of the history", file=manifest)
    if entry.file_name not in listed:
        raise _missing(path)
    size = listed[entry.file_name]
    if size != entry.file_len:
        raise CorruptTable(
            f"the history file has {size} bytes where {manifest.rpartition('/')[2]} says {entry.file_len}", file=path
        )
    return HistoryFile(path, size, parse_history_file(entry.file_name))


def _missing(path: str) -> CorruptTable:
    hint = "Restore the file from a backup; without it old completion times and archived commits are unknown."
    return CorruptTable("a history file that the manifest lists is missing", file=path, hint=hint)


def _is_time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.match_substring_regex(column, "^[0-9]{14,32}$")


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`clock.comparable` as a vector."""
    short = pc.equal(pc.utf8_length(column), 14)
    if not pc.any(short).as_py():
        return pc.utf8_slice_codeunits(column, 0, 17)
    return pc.if_else(short, pc.binary_join_element_wise(column, "999", ""), pc.utf8_slice_codeunits(column, 0, 17))


def _within(table: pa.Table, column: str, low: str | None, high: str | None) -> pa.Table:
    """Rows whose time lies within [low, high]."""
    if low is not None:
        table = table.filter(pc.greater_equal(_comparable(table[column]), comparable(low)))
    if high is not None:
        table = table.filter(pc.less_equal(_comparable(table[column]), comparable(high)))
    return table


def _concat(parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *parts])


def _in_order(table: pa.Table) -> pa.Table:
    """Rows by begin, each action once: levels may overlap after a compaction of the history that broke off."""
    numbered = table.append_column("row", pa.array(np.arange(table.num_rows)))
    first = numbered.group_by([REQUESTED, ACTION]).aggregate([("row", "min")])
    table = table.take(first["row_min"])
    keyed = table.select([ACTION]).append_column("time", _comparable(table[REQUESTED]))
    return table.take(pc.sort_indices(keyed, [("time", "ascending"), (ACTION, "ascending")]))
