"""The process-wide cache of merge vectors, keyed by the set of files of a slice, which never change.

A repeated read then merges nothing. In the LSM layout the order goes with them, a byte per row: which run the next row
by key comes from. Kept per process, within a budget of bytes and within half of the memory limit of a scan. What
they will take follows from the files' row counts, so that nothing is made which cannot be kept. Vectors are
evicted for others only if they were not used since the last request for those others: a scan over more slices than
there is room for keeps some of them, where evicting the oldest would keep none until the next scan.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.config.memory_plan import KEPT_VECTORS
from lakebed.datafile.parquet_metadata import Footers
from lakebed.merge.file_group_reader import FileGroupReader, none_missing
from lakebed.merge.merge_vector import MOST_ORDERED, Numbers, merge_order, merge_vectors
from lakebed.merge.reader_context import ReadSplit
from lakebed.merge.runs import Run
from lakebed.paths import file_name
from lakebed.storage.storage import Storage

_MOST_REQUESTED = 100_000
_ENTRY = 512
"""Bytes of an entry besides its vectors."""
_PARSED = 8
"""A footer and what was made of it, in bytes per stored byte."""
_Key = tuple[str, tuple[tuple[str, int], ...], str, str, frozenset[str], str]


@dataclass(frozen=True, slots=True)
class FileVector:
    """The dead rows of one data file: bit i of word i // 64 is row i."""

    path: str
    rows: int
    dead: int
    words: npt.NDArray[np.uint64]

    @property
    def name(self) -> str:
        return file_name(self.path)


@dataclass(frozen=True, slots=True)
class SliceVectors:
    """What is dead in a slice: in files that any Parquet reader takes, and in other logs, by number of the run."""

    files: tuple[FileVector, ...]
    logs: tuple[tuple[int, FileVector], ...] = ()
    order: Numbers | None = field(default=None, compare=False, repr=False)
    """For every live row by key, the number of its run."""
    footers: Footers = field(default_factory=dict, compare=False, repr=False)
    """Footers read on the way, for the next reader of the files."""

    @property
    def nbytes(self) -> int:
        words = sum(vector.words.nbytes for vector in (*self.files, *(vector for _, vector in self.logs)))
        order = 0 if self.order is None else self.order.nbytes
        return words + order + _footer_bytes(self.footers)

    @property
    def has_winners(self) -> bool:
        return any(vector.dead < vector.rows for _, vector in self.logs)


def _footer_bytes(footers: Footers) -> int:
    return sum(_PARSED * len(footer.data) for footer in footers.values())


def vectors_for_engines(reader: FileGroupReader, split: ReadSplit) -> SliceVectors | None:
    """What an engine needs that reads Parquet itself; None where files do not hold the columns as the table does."""
    if reader.why_not_native(split) is None:
        footers: Footers = {}
        if not reader.fits_natively(split, footers):
            return None
        if not split.slice.log_files:
            return untouched(split)
        found = vectors_by_run(reader, split, footers)
        return None if found is None else SliceVectors(tuple(vector for _, vector in found.logs))
    if not reader.fits_natively(ReadSplit(replace(split.slice, log_files=()))):
        return None
    vectors = vectors_by_run(reader, split)
    return None if vectors is None else SliceVectors((vectors.logs[0][1],), vectors.logs[1:])


def untouched(split: ReadSplit) -> SliceVectors:
    """A base file alone: nothing is dead, and how many rows there are need not be known."""
    base = split.slice.base_file
    return SliceVectors((FileVector(base.path, 0, 0, np.zeros(0, np.uint64)),) if base is not None else ())


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """The runs of a slice for which vectors can be made, and what these take at most."""

    runs: list[Run]
    ordered: bool
    footers: Footers

    @property
    def most_bytes(self) -> int:
        """A bit for every row; ordered, a byte for every row that may be live; and the footers."""
        rows = [run.most_rows or 0 for run in self.runs]
        order = sum(count for count, run in zip(rows, self.runs, strict=True) if not run.is_delete)
        words = sum((count + 63) // 64 * 8 for count in rows)
        return words + (order if self.ordered else 0) + _footer_bytes(self.footers)

    def vectors(self, reader: FileGroupReader) -> SliceVectors:
        """Make them; while they grow they count against the reader's memory."""
        rule, memory = reader.reader_context.rule, max(1, reader.options.memory - self.most_bytes)
        order = None
        with none_missing():
            if self.ordered:
                made, order = merge_order(self.runs, rule, memory=memory)
            else:
                made = merge_vectors(self.runs, rule, memory=memory)
        named = [FileVector(run.label or "", v.rows, v.dead, v.words) for run, v in zip(self.runs, made, strict=True)]
        by_number = ((number, named[number]) for number, run in enumerate(self.runs) if not run.is_delete)
        return SliceVectors((), tuple(by_number), order, self.footers)


def plan_vectors(
    reader: FileGroupReader, split: ReadSplit, footers: Footers | None = None, *, ordered: bool = False
) -> VectorPlan | None:
    """The runs of a slice, whatever their format; None where rows are combined, not chosen.

    None as well where they are to be `ordered` and some run is not: only a merge can bring them into order.
    """
    footers = {} if footers is None else footers
    with none_missing():
        runs = reader.without_conditions().runs(split.slice, pa.schema([]), sized=False, footers=footers)
    if not reader.reader_context.rule.picks_whole_records or any(run.is_partial for run in runs):
        return None
    if ordered and not (len(runs) <= MOST_ORDERED and all(run.is_sorted or run.is_delete for run in runs)):
        return None
    return VectorPlan(runs, ordered, footers)


def vectors_by_run(
    reader: FileGroupReader, split: ReadSplit, footers: Footers | None = None, *, ordered: bool = False
) -> SliceVectors | None:
    """The vector of every run that holds rows; None as in `plan_vectors`."""
    plan = plan_vectors(reader, split, footers, ordered=ordered)
    return None if plan is None else plan.vectors(reader)


def key_of(reader: FileGroupReader, split: ReadSplit, kind: str) -> _Key:
    """What vectors depend on."""
    files = tuple((file.path, file.size) for file in split.slice.files)
    context = reader.reader_context
    schema = f"{context.schema_id} {context.schema}"  # names and types may be those of two versions
    return (reader.storage.url, files, schema, repr(context.rule), reader.committed, kind)


@dataclass(slots=True)
class _Entry:
    vectors: SliceVectors | None
    cost: int
    used: int


@dataclass(slots=True)
class MergeVectorCache:
    """Vectors within a budget, the longest unused first; `None` is worth keeping, too: those files do not fit."""

    budget: int = KEPT_VECTORS
    in_memory_stores: bool = False
    """Whether for tables in memory, too: names of files are unique only where clocks run, and tests inject theirs."""
    _kept: dict[_Key, _Entry] = field(default_factory=dict)
    _held: int = 0
    _requested: dict[int, int] = field(default_factory=dict)
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, storage: Storage) -> bool:
        """Whether vectors of this table may be kept."""
        return self.in_memory_stores or storage.is_shared

    def __contains__(self, key: _Key) -> bool:
        return key in self._kept

    def get(self, key: _Key) -> SliceVectors | None:
        with self._lock:
            entry = self._kept.pop(key, None)
            if entry is None:
                return None
            self._kept[key] = entry
            self._now += 1
            entry.used = self._now
            return entry.vectors

    def note_request(self, key: _Key) -> int:
        """When these vectors were last requested, 0 for never; records this request."""
        with self._lock:
            if len(self._requested) >= _MOST_REQUESTED:
                self._requested.clear()
            before = self._requested.get(hash(key), 0)
            self._now += 1
            self._requested[hash(key)] = self._now
            return before

    def has_room(self, size: int, since: int, keep: int = KEPT_VECTORS) -> bool:
        """Whether vectors of so many bytes can be kept in `keep` bytes, besides those that were used after `since`."""
        with self._lock:
            held, most = self._held + _ENTRY + size, min(self.budget, keep)
            for entry in self._kept.values():  # the longest unused come first
                if held <= most or entry.used > since:
                    break
                held -= entry.cost
            return held <= most

    def put(self, key: _Key, vectors: SliceVectors | None, since: int, keep: int = KEPT_VECTORS) -> None:
        """Keep vectors if there is room, evicting those that were not used after `since`."""
        size = vectors.nbytes if vectors is not None else 0
        if not self.has_room(size, since, keep):
            return
        with self._lock:
            if key in self._kept:
                return
            self._now += 1
            self._kept[key] = _Entry(vectors, _ENTRY + size, self._now)
            self._held += _ENTRY + size
            most = min(self.budget, keep)
            while self._held > most:
                self._held -= self._kept.pop(next(iter(self._kept))).cost

    def clear(self) -> None:
        """Forget all of them: for measurements, and to free the memory."""
        with self._lock:
            self._kept.clear()
            self._requested.clear()
            self._held = self._now = 0


MERGE_VECTORS = MergeVectorCache()
