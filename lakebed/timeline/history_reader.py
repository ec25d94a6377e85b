"""Reads one file of the history: only the row groups, columns and rows that are needed.

    <minRequested>_<maxRequested>_<level>.parquet
        instantTime, completionTime, action: string    metadata, plan: bytes (whole timeline files)    version: int32

Bodies are large and times are small: unless bodies are requested, only the three string columns are read. Row groups
are chosen by the statistics of the requested and the completion times. All values are validated once, here: requested
times and action names are present, times are valid, and actions with names that this version does not know are left
out.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptTable
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import LEGACY_LENGTH, comparable
from lakebed.timeline.history_columns import (
    ACTION,
    BODIES_SCHEMA,
    COMPLETED,
    KNOWN_ACTIONS,
    REQUESTED,
    STORED,
    TIMES_SCHEMA,
    are_times,
    within,
)
from lakebed.timeline.history_files import HistoryFile

_REQUESTED, _COMPLETION = "instantTime", "completionTime"
Range = tuple[str | None, str | None]
"""The first and the last time that are wanted; None where there is no limit."""
ANY: Range = (None, None)
SORTED_KEY = "lakebed.history.sorted"
"""Footer key of files whose rows all ascend by requested time, so that row groups are found by binary search."""


class HistoryReader:
    """Reads files of one version of the history; footers and times are cached. Threads may share one."""

    def __init__(self, storage: Storage, manifest: str):
        self.storage = storage
        self.manifest = manifest
        self._footers: dict[str, pq.FileMetaData] = {}
        self._completions: dict[str, tuple[Range, ...]] = {}
        self._times: dict[tuple[str, tuple[int, ...] | None], pa.Table] = {}
        self._bodies: tuple[str, int, pa.Table] | None = None
        self._lock = threading.Lock()

    def times(
        self, file: HistoryFile, low: str | None = None, high: str | None = None, completed: Range = ANY
    ) -> pa.Table:
        """Requested and completion time and action of rows requested in [low, high] and completed within a range.

        Row groups without such rows by their statistics are not read: of a file without any, only the footer is.
        """
        if (low, high, completed) == (None, None, ANY):
            return self._group_times(file, None)
        groups = self._row_groups(file, low, high)
        if completed != ANY:
            bounds = self._completion_bounds(file)
            groups = [number for number in groups if _meets(bounds[number], completed)]
        if not groups:
            return TIMES_SCHEMA.empty_table()
        everything = len(groups) == self._footer(file).num_row_groups
        found = within(self._group_times(file, None if everything else tuple(groups)), REQUESTED, low, high)
        return within(found, COMPLETED, *completed)

    def bodies(self, file: HistoryFile, low: str | None, high: str | None, actions: pa.Array | None) -> pa.Table:
        """The same of these actions with their bodies, None for all actions.

        Row groups without such an action are found by their small columns, so their large ones are not read.
        """
        groups = self._row_groups(file, low, high)
        if actions is not None:
            groups = [number for number in groups if self._has(file, (number,), actions, low, high)]
        if not groups:
            return BODIES_SCHEMA.empty_table()
        read = self._group_bodies(file, groups[0]) if len(groups) == 1 else self._read(file, BODIES_SCHEMA, groups)
        return _chosen(read, low, high, actions)

    def body_groups(self, file: HistoryFile, low: str | None, actions: pa.Array) -> Iterator[pa.Table]:
        """The same a row group at a time; of a file without such an action only the small columns are read."""
        if not self._has(file, None, actions, low, None):
            return
        for group in self._row_groups(file, low, None):
            if self._has(file, (group,), actions, low, None):
                yield _chosen(self._group_bodies(file, group), low, None, actions)

    def last_completion(self, file: HistoryFile) -> str | None:
        """An upper bound of the completion times in a file, by its footer; None where that has none."""
        lasts = [last for _, last in self._completion_bounds(file)]
        return None if None in lasts else max((last for last in lasts if last is not None), default=None)

    def stored(self, file: HistoryFile) -> Iterator[pa.Table]:
        """The rows a row group at a time, unchanged: a copy keeps actions with unknown names."""
        with self._opened(file) as parquet:
            for number in range(parquet.num_row_groups):
                yield parquet.read_row_group(number)

    def _has(
        self, file: HistoryFile, groups: tuple[int, ...] | None, actions: pa.Array, low: str | None, high: str | None
    ) -> bool:
        times = within(self._group_times(file, groups), REQUESTED, low, high)
        return bool(pc.any(pc.is_in(times[ACTION], actions)).as_py())

    def _group_times(self, file: HistoryFile, groups: tuple[int, ...] | None) -> pa.Table:
        with self._lock:
            known = self._times.get((file.path, groups))
        if known is None:
            known = self._read(file, TIMES_SCHEMA, groups)
            with self._lock:
                self._times[(file.path, groups)] = known
        return known

    def _group_bodies(self, file: HistoryFile, group: int) -> pa.Table:
        """A row group with its bodies; the last one is cached, since neighbouring actions are read in sequence."""
        with self._lock:
            known = self._bodies
        if known is None or known[:2] != (file.path, group):
            known = (file.path, group, self._read(file, BODIES_SCHEMA, (group,)))
            with self._lock:
                self._bodies = known
        return known[2]

    def _footer(self, file: HistoryFile) -> pq.FileMetaData:
        with self._lock:
            footer = self._footers.get(file.path)
        if footer is None:
            with self._opened(file) as parquet:
                footer = parquet.metadata
            with self._lock:
                self._footers[file.path] = footer
        return footer

    def _row_groups(self, file: HistoryFile, low: str | None, high: str | None) -> list[int]:
        """The row groups that may hold requested times in [low, high], by their statistics."""
        footer = self._footer(file)
        groups = range(footer.num_row_groups)
        if SORTED_KEY.encode() in (footer.metadata or {}):
            first = bisect_left(groups, True, key=lambda number: not _is_below(footer, number, low))
            last = bisect_left(groups, True, key=lambda number: _is_above(footer, number, high))
            return list(groups[first:last])
        return [n for n in groups if not _is_below(footer, n, low) and not _is_above(footer, n, high)]

    def _completion_bounds(self, file: HistoryFile) -> tuple[Range, ...]:
        """Bounds of the completion times, per row group."""
        with self._lock:
            known = self._completions.get(file.path)
        if known is None:
            footer = self._footer(file)
            known = tuple(_bounds(_statistics(footer, group, _COMPLETION)) for group in range(footer.num_row_groups))
            with self._lock:
                self._completions[file.path] = known
        return known

    @contextmanager
    def _opened(self, file: HistoryFile) -> Iterator[pq.ParquetFile]:
        with self._lock:
            footer = self._footers.get(file.path)
        try:
            with self.storage.open_input(file.path, file.size) as source:
                size = source.size()
                if size != file.size:
                    problem = f"the history file has {size} bytes where {self.manifest} says {file.size}"
                    raise CorruptTable(problem, file=file.path)
                with pq.ParquetFile(source, metadata=footer) as parquet:
                    yield parquet
        except FileNotFoundError:
            raise file.missing() from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptTable(f"the history file cannot be read: {error}", file=file.path) from error

    def _read(self, file: HistoryFile, schema: pa.Schema, groups: Sequence[int] | None = None) -> pa.Table:
        """Some columns under lakebed's names and types, without rows of unknown actions."""
        columns = [name for name, ours in STORED.items() if ours in schema.names]
        with self._opened(file) as parquet:
            missing = set(columns) - set(parquet.schema_arrow.names)
            if missing:
                raise CorruptTable(f"the history file has no column {', '.join(sorted(missing))}", file=file.path)
            table = parquet.read(columns) if groups is None else parquet.read_row_groups(list(groups), columns)
            table = table.rename_columns([STORED[name] for name in table.column_names]).select(schema.names)
            table = table if table.schema.equals(schema) else table.cast(schema)
        if table[REQUESTED].null_count or table[ACTION].null_count:
            raise CorruptTable("the history file holds an action without requested time or name", file=file.path)
        if table[COMPLETED].null_count:
            completion = pc.coalesce(table[COMPLETED], table[REQUESTED])
            table = table.set_column(1, TIMES_SCHEMA.field(COMPLETED), completion)
        if not (are_times(table[REQUESTED]) and are_times(table[COMPLETED])):
            raise CorruptTable("the history file holds an invalid instant time", file=file.path)
        known = pc.is_in(table[ACTION], KNOWN_ACTIONS)
        return table if pc.all(known, min_count=0).as_py() else table.filter(known)


def _chosen(table: pa.Table, low: str | None, high: str | None, actions: pa.Array | None) -> pa.Table:
    table = within(table, REQUESTED, low, high)
    return table if actions is None else table.filter(pc.is_in(table[ACTION], actions))


def _is_below(footer: pq.FileMetaData, group: int, low: str | None) -> bool:
    """Whether all requested times of a row group are known to be before `low`."""
    if low is None:
        return False
    statistics = _statistics(footer, group, _REQUESTED)
    return statistics is not None and comparable(str(statistics.max)) < comparable(low)


def _is_above(footer: pq.FileMetaData, group: int, high: str | None) -> bool:
    """Whether all requested times of a row group are known to be after `high`."""
    if high is None:
        return False
    statistics = _statistics(footer, group, _REQUESTED)
    return statistics is not None and comparable(str(statistics.min)) > comparable(high)


def _bounds(statistics: pq.Statistics | None) -> Range:
    """Bounds of the times of a row group; a row without a completion time counts as completed at its requested time.

    In whole seconds: among times of 14 and 17 digits, the least string is not always the least time.
    """
    if statistics is None or not statistics.has_null_count or statistics.null_count:
        return ANY
    first, last = statistics.min, statistics.max
    if not (isinstance(first, str) and isinstance(last, str)):
        return ANY
    return f"{first[:LEGACY_LENGTH]}000", f"{last[:LEGACY_LENGTH]}999"


def _meets(bounds: Range, wanted: Range) -> bool:
    """Whether a time between the bounds can lie within the wanted range."""
    (first, last), (low, high) = bounds, wanted
    too_old = low is not None and last is not None and last < comparable(low)
    too_new = high is not None and first is not None and first > comparable(high)
    return not (too_old or too_new)


def _statistics(footer: pq.FileMetaData, group: int, name: str) -> pq.Statistics | None:
    """What a footer says about one of the two columns of times, which are the first two."""
    column = footer.row_group(group).column(0 if name == _REQUESTED else 1)
    found = column.statistics if column.path_in_schema == name else None
    return found if found is not None and found.has_min_max else None
