"""The history timeline: what archiving moved out of the active timeline, kept as a small LSM tree of Parquet files.

    history/_version_                          text: the number of the current manifest
    history/manifest_<N>                       JSON: which files count, and how long each is
    history/<minBegin>_<maxBegin>_<level>.parquet
        instantTime, completionTime, action: string    metadata, plan: bytes (whole timeline files)    version: int32

Only files that the manifest lists are read; others are left-overs of older versions. Names hold *begin* times, so a
range of begins skips files by name and row groups by their statistics, while a range of completion times must look
into all of them. Bodies are large and times are small: unless bodies are asked for, only the three text columns are
read, and they stay Arrow columns: nothing here makes an object per action unless instants themselves are asked for.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

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
from lakebed.runner import LocalRunner
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import INSTANT_LENGTH, LEGACY_LENGTH, comparable
from lakebed.timeline.timeline import Timeline

REQUESTED, COMPLETED, ACTION = "requested_time", "completion_time", "action"
METADATA, PLAN = "metadata", "plan"
_STORED = {"instantTime": REQUESTED, "completionTime": COMPLETED, "action": ACTION, "metadata": METADATA, "plan": PLAN}
_TIMES = ("instantTime", "completionTime", "action")
_BODIES = ("metadata", "plan")
TIMES_SCHEMA = pa.schema([(name, pa.string()) for name in (REQUESTED, COMPLETED, ACTION)])
BODIES_SCHEMA = pa.schema([*TIMES_SCHEMA, pa.field(METADATA, pa.binary()), pa.field(PLAN, pa.binary())])
_ACTIONS = {str(action): action for action in Action}
_KNOWN_ACTIONS = pa.array([str(action) for action in Action])
_MANY_FILES = 4
SORTED_KEY = "lakebed.history.sorted"
"""Footer key of files whose rows ascend by begin throughout, so that row groups are found by halving."""
_T = TypeVar("_T")


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

    def __init__(self, storage: Storage, files: Sequence[HistoryFile], version: int | None, folder: str = HISTORY_DIR):
        self.storage = storage
        self.files = tuple(files)
        self.version = version
        self.folder = folder
        self._footers: dict[str, pq.FileMetaData] = {}
        self._times: dict[tuple[str, tuple[int, ...] | None], pa.Table] = {}
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
            return cls(storage, (), None, folder)
        path = f"{folder}/{manifest_file_name(number)}"
        try:
            entries = parse_manifest(storage.read(path), path)
        except FileNotFoundError:
            hint = f"Restore it from a copy of the table; {folder}/{VERSION_FILE} names it."
            raise CorruptTable("the history's manifest is missing", file=path, hint=hint) from None
        files = [_checked(entry, folder, listed, path) for entry in entries]
        return cls(storage, sorted(files, key=lambda file: file.name.min_time if file.name else ""), number, folder)

    def __getstate__(self) -> tuple[object, ...]:
        return (self.storage, self.files, self.version, self.folder)

    def __setstate__(self, state: tuple[Storage, tuple[HistoryFile, ...], int | None, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def is_empty(self) -> bool:
        return not self.files

    def table(self, low: str | None = None, high: str | None = None) -> pa.Table:
        """Begin, completion and action of every archived action with a begin in [low, high], in order of begin."""
        wanted = [file for file in self.files if file.may_hold(low, high)]
        if len(wanted) < _MANY_FILES:
            parts = [self._file_times(file, low, high) for file in wanted]
        else:
            parts = list(LocalRunner().map(lambda file: self._file_times(file, low, high), wanted, label="history"))
        return _in_order(_within(_concat(parts, TIMES_SCHEMA), REQUESTED, low, high))

    def completed_within(self, start: str | None, end: str | None) -> pa.Table:
        """The same columns for completions in (start, end]; every file is looked at, since names do not tell."""
        table = self.table()
        if start is not None:
            table = table.filter(pc.greater(_comparable(table[COMPLETED]), comparable(start)))
        return _within(table, COMPLETED, None, end)

    def begins_within(self, start: str | None, end: str | None, actions: Sequence[Action]) -> list[str]:
        """Begins of the actions of these kinds that completed in (start, end]."""
        table = self.completed_within(start, end)
        words = pa.array([str(action) for action in actions], pa.string())
        found: list[str] = table.filter(pc.is_in(table[ACTION], words))[REQUESTED].to_pylist()
        return found

    def timeline(self, low: str | None = None, high: str | None = None) -> Timeline:
        """The archived actions with a begin in [low, high] as instants."""
        return Timeline.of(instants_of(self.table(low, high)))

    def first_completed(self, actions: Sequence[Action]) -> Instant | None:
        """The archived action of these kinds that became visible first."""
        table = self.table()
        table = table.filter(pc.is_in(table[ACTION], pa.array([str(action) for action in actions], pa.string())))
        if not table.num_rows:
            return None
        first = pc.min(_comparable(table[COMPLETED]))
        return instants_of(table.filter(pc.equal(_comparable(table[COMPLETED]), first)))[0]

    def find(self, begin: str) -> tuple[Instant, ...]:
        """All archived actions with that begin."""
        found: list[Instant] = []
        for file in self.files:
            if file.may_hold(begin, begin):
                times = self._file_times(file, begin, begin)
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

    def loaded(self, low: str | None = None, high: str | None = None, actions: Sequence[Action] = ()) -> pa.Table:
        """The actions with the bytes of their completed and requested files, as Arrow columns, by begin.

        Row groups without such an action are found out by their small columns, so their large ones are not read.
        """
        words = pa.array([str(action) for action in actions], pa.string()) if actions else _KNOWN_ACTIONS
        parts = []
        for file in self.files:
            groups = self._row_groups(file, low, high) if file.may_hold(low, high) else ()
            if actions:
                groups = [number for number in groups if self._has(file, number, words, low, high)]
            if groups:
                table = _within(self._read(file, _TIMES + _BODIES, groups), REQUESTED, low, high)
                parts.append(table.filter(pc.is_in(table[ACTION], words)) if actions else table)
        return _in_order(_concat(parts, BODIES_SCHEMA))

    def parts(self) -> Iterator[pa.Table]:
        """The stored rows a row group at a time, untouched: whoever copies them keeps words it does not know."""
        for file in self.files:
            for number in self._row_groups(file, None, None):
                yield self._open(file, lambda parquet, number=number: parquet.read_row_group(number))  # type: ignore[misc]

    def bodies(
        self, low: str | None = None, high: str | None = None, actions: Sequence[Action] = ()
    ) -> Iterator[tuple[Instant, bytes | None, bytes | None]]:
        """The same one by one, as instants with both bodies."""
        table = self.loaded(low, high, actions)
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
            alone = History(self.storage, (file,), self.version, self.folder)
            for instant, metadata, _ in reversed(list(alone.bodies(actions=actions))):
                yield instant, partial(self._decode, instant, State.COMPLETED, metadata)

    def _decode(self, instant: Instant, state: State, data: bytes | None) -> ActionBody | None:
        return decode_body(instant.action, state, data or b"", f"history of {instant}")

    def _has(self, file: HistoryFile, group: int, words: pa.Array, low: str | None, high: str | None) -> bool:
        times = _within(self._group_times(file, (group,)), REQUESTED, low, high)
        return bool(pc.any(pc.is_in(times[ACTION], words)).as_py())

    def _file_times(self, file: HistoryFile, low: str | None = None, high: str | None = None) -> pa.Table:
        """The small columns of the row groups that may hold begins in [low, high]."""
        groups = None if low is None and high is None else tuple(self._row_groups(file, low, high))
        return self._group_times(file, groups)

    def _group_times(self, file: HistoryFile, groups: tuple[int, ...] | None) -> pa.Table:
        with self._lock:
            known = self._times.get((file.path, groups))
        if known is None:
            known = self._read(file, _TIMES, groups)
            with self._lock:
                self._times[(file.path, groups)] = known
        return known

    def _row_groups(self, file: HistoryFile, low: str | None, high: str | None) -> list[int]:
        """The row groups that may hold begins in [low, high], by their statistics."""
        with self._lock:
            footer = self._footers.get(file.path)
        if footer is None:
            footer = self._open(file, lambda parquet: parquet.metadata)
            with self._lock:
                self._footers[file.path] = footer
        groups = range(footer.num_row_groups)
        if SORTED_KEY.encode() in (footer.metadata or {}):
            first = bisect_left(groups, True, key=lambda number: not _is_below(footer, number, low))
            last = bisect_left(groups, True, key=lambda number: _is_above(footer, number, high))
            return list(groups[first:last])
        return [n for n in groups if not _is_below(footer, n, low) and not _is_above(footer, n, high)]

    def _open(self, file: HistoryFile, use: Callable[[pq.ParquetFile], _T]) -> _T:
        with self._lock:
            footer = self._footers.get(file.path)
        try:
            with (
                self.storage.open_input(file.path, file.size) as source,
                pq.ParquetFile(source, metadata=footer) as parquet,
            ):
                return use(parquet)
        except FileNotFoundError:
            raise _missing(file.path) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptTable(f"the history file cannot be read: {error}", file=file.path) from error

    def _read(self, file: HistoryFile, columns: Sequence[str], groups: Sequence[int] | None = None) -> pa.Table:
        """Some columns of one file under our names and types, rows of unknown action words dropped."""
        wanted = BODIES_SCHEMA if len(columns) > len(_TIMES) else TIMES_SCHEMA

        def read(parquet: pq.ParquetFile) -> pa.Table:
            missing = set(columns) - set(parquet.schema_arrow.names)
            if missing:
                raise CorruptTable(f"the history file has no column {', '.join(sorted(missing))}", file=file.path)
            chosen = list(columns)
            table = parquet.read(chosen) if groups is None else parquet.read_row_groups(list(groups), chosen)
            table = table.rename_columns([_STORED[name] for name in table.column_names]).select(wanted.names)
            return table if table.schema.equals(wanted) else table.cast(wanted)

        table = self._open(file, read)
        if table[REQUESTED].null_count or table[ACTION].null_count:
            raise CorruptTable("the history file holds an action without begin or name", file=file.path)
        if table[COMPLETED].null_count:
            completion = pc.coalesce(table[COMPLETED], table[REQUESTED])
            table = table.set_column(1, TIMES_SCHEMA.field(COMPLETED), completion)
        if not (_are_times(table[REQUESTED]) and _are_times(table[COMPLETED])):
            raise CorruptTable("the history file holds a time that is none", file=file.path)
        known = pc.is_in(table[ACTION], _KNOWN_ACTIONS)
        return table if pc.all(known, min_count=0).as_py() else table.filter(known)


def instants_of(table: pa.Table) -> list[Instant]:
    """Rows of a history table as instants."""
    rows = zip(*(table[name].to_pylist() for name in (REQUESTED, ACTION, COMPLETED)), strict=True)
    return [Instant(begin, _ACTIONS[action], State.COMPLETED, done) for begin, action, done in rows]


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


def _is_below(footer: pq.FileMetaData, group: int, low: str | None) -> bool:
    """Whether all begins of a row group are known to lie before `low`."""
    statistics = _begin_statistics(footer, group)
    return low is not None and statistics is not None and comparable(str(statistics.max)) < comparable(low)


def _is_above(footer: pq.FileMetaData, group: int, high: str | None) -> bool:
    """Whether all begins of a row group are known to lie behind `high`."""
    statistics = _begin_statistics(footer, group)
    return high is not None and statistics is not None and comparable(str(statistics.min)) > comparable(high)


def _begin_statistics(footer: pq.FileMetaData, group: int) -> pq.Statistics | None:
    column = footer.row_group(group).column(0)
    found = column.statistics if column.path_in_schema == _TIMES[0] else None
    return found if found is not None and found.has_min_max else None


def _are_times(column: pa.ChunkedArray) -> bool:
    """Whether every text is a time; 17 digits each is the common case, and told without looking at single texts."""
    if not len(column):
        return True
    lengths = pc.min_max(pc.binary_length(column))
    if lengths["min"].as_py() == lengths["max"].as_py() == INSTANT_LENGTH:
        return all(_all_digits(chunk) for chunk in column.chunks if len(chunk))
    return bool(pc.all(pc.match_substring_regex(column, "^[0-9]{14,32}$"), min_count=0).as_py())


def _all_digits(texts: pa.Array) -> bool:
    """Whether texts of 17 bytes each hold nothing but digits."""
    _, offsets, data = texts.buffers()
    start = int(np.frombuffer(offsets, np.int32, 1, 4 * texts.offset)[0])
    found = np.frombuffer(data, np.uint8, INSTANT_LENGTH * len(texts), start)
    return bool(found.min() >= ord("0") and found.max() <= ord("9"))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`clock.comparable` as a vector."""
    if not len(column):
        return column
    lengths = pc.min_max(pc.binary_length(column))
    if lengths["min"].as_py() == lengths["max"].as_py() == INSTANT_LENGTH:
        return column
    short = pc.equal(pc.utf8_length(column), LEGACY_LENGTH)
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
    """Rows by begin, each action once: levels may overlap after a compaction of the history that broke off.

    Files come oldest first and are sorted, so mostly there is nothing to do, which numbers tell faster than texts.
    """
    if ascends(table[REQUESTED]):
        return table
    numbered = table.append_column("row", pa.array(np.arange(table.num_rows)))
    first = numbered.group_by([REQUESTED, ACTION]).aggregate([("row", "min")])
    table = table.take(first["row_min"])
    keyed = table.select([ACTION]).append_column("time", _comparable(table[REQUESTED]))
    return table.take(pc.sort_indices(keyed, [("time", "ascending"), (ACTION, "ascending")]))


def ascends(times: pa.ChunkedArray) -> bool:
    """Whether times strictly ascend."""
    if len(times) < 2:
        return True
    lengths = pc.min_max(pc.binary_length(times))
    if not lengths["min"].as_py() == lengths["max"].as_py() == INSTANT_LENGTH:
        return False
    numbers = times.cast(pa.int64()).to_numpy()
    return bool((numbers[1:] > numbers[:-1]).all())
