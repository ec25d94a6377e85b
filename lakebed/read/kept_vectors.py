"""Merge vectors that were made already: they depend on nothing but the files of a slice, and files never change.

A repeated read then merges nothing. Kept per process, the newest ones, within a budget of bytes. In the LSM layout the
order goes with them, a byte per row: which run the next row by key comes from.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.datafile.parquet_metadata import Footers
from lakebed.merge.file_group_reader import FileGroupReader, none_missing
from lakebed.merge.merge_vector import MOST_ORDERED, Numbers, merge_order, merge_vectors
from lakebed.merge.table_shape import ReadSplit

KEPT_BYTES = 256 << 20
_MOST_ASKED = 100_000
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
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class SliceVectors:
    """What is dead in a slice: in files that any Parquet reader takes, and in other logs, by number of the run."""

    files: tuple[FileVector, ...]
    logs: tuple[tuple[int, FileVector], ...] = ()
    order: Numbers | None = field(default=None, compare=False, repr=False)
    """For every living row by key, the number of its run."""
    footers: Footers = field(default_factory=dict, compare=False, repr=False)
    """What was read of the files on the way, for whoever reads them next."""

    @property
    def nbytes(self) -> int:
        words = sum(vector.words.nbytes for vector in (*self.files, *(vector for _, vector in self.logs)))
        order = 0 if self.order is None else self.order.nbytes
        return words + order + sum(_PARSED * len(footer.data) for footer in self.footers.values())

    @property
    def has_winners(self) -> bool:
        return any(vector.dead < vector.rows for _, vector in self.logs)


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


def vectors_by_run(
    reader: FileGroupReader, split: ReadSplit, footers: Footers | None = None, *, ordered: bool = False
) -> SliceVectors | None:
    """The vector of every run that holds rows, whatever its format; None where rows are combined, not chosen.

    None as well where they are to be `ordered` and some run is not: only a merge can bring them into order.
    """
    footers = {} if footers is None else footers
    with none_missing():
        runs = reader.without_conditions().runs(split.slice, pa.schema([]), sized=False, footers=footers)
        if not reader.shape.rule.picks_whole_records or any(run.is_partial for run in runs):
            return None
        order = None
        if not ordered:
            made = merge_vectors(runs, reader.shape.rule, memory=reader.options.memory)
        elif len(runs) <= MOST_ORDERED and all(run.is_sorted or run.is_delete for run in runs):
            made, order = merge_order(runs, reader.shape.rule, memory=reader.options.memory)
        else:
            return None
    vectors = [FileVector(run.label or "", v.rows, v.dead, v.words) for run, v in zip(runs, made, strict=True)]
    by_number = ((number, vectors[number]) for number, run in enumerate(runs) if not run.is_delete)
    return SliceVectors((), tuple(by_number), order, footers)


def key_of(reader: FileGroupReader, split: ReadSplit, kind: str) -> _Key:
    """What vectors depend on."""
    files = tuple((file.path, file.size) for file in split.slice.files)
    schema = f"{reader.shape.schema_id} {reader.shape.schema}"  # names and types may be those of two versions
    return (reader.storage.url, files, schema, repr(reader.shape.rule), reader.committed, kind)


@dataclass(slots=True)
class KeptVectors:
    """The newest vectors, within a budget; `None` is worth keeping, too: those files do not fit."""

    budget: int = KEPT_BYTES
    in_memory_stores: bool = False
    """Whether for tables in memory, too: names of files are unique only where clocks run, and tests inject theirs."""
    _kept: dict[_Key, SliceVectors | None] = field(default_factory=dict)
    _held: int = 0
    _asked: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, key: _Key) -> bool:
        """Whether vectors of this table may be kept."""
        return self.in_memory_stores or not key[0].startswith("memory://")

    def __contains__(self, key: _Key) -> bool:
        return key in self._kept

    def get(self, key: _Key) -> SliceVectors | None:
        return self._kept.get(key)

    def asked_again(self, key: _Key) -> bool:
        """Whether somebody asked for these before; from now on somebody has."""
        with self._lock:
            before = hash(key) in self._asked
            if len(self._asked) >= _MOST_ASKED:
                self._asked.clear()
            self._asked.add(hash(key))
            return before

    def put(self, key: _Key, vectors: SliceVectors | None) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = vectors
            self._held += _cost(vectors)
            while self._held > self.budget:
                self._held -= _cost(self._kept.pop(next(iter(self._kept))))

    def clear(self) -> None:
        """Forget all of them: for measurements, and for whoever wants the memory back."""
        with self._lock:
            self._kept.clear()
            self._asked.clear()
            self._held = 0


def _cost(vectors: SliceVectors | None) -> int:
    return 512 + (vectors.nbytes if vectors is not None else 0)


KEPT = KeptVectors()
