"""Merge vectors for Spark: made once per set of files, in the driver while that is quick, else in tasks.

A vector depends on nothing but the files of its slice, so those already made are kept, up to a budget of bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lakebed.merge.file_group_reader import FileGroupReader, ReadSplit
from lakebed.merge.merge_vector import merge_vectors
from lakebed.read.plan import Plan
from lakebed.read.vectors import FileVector, slice_vectors
from lakebed.runner import LocalRunner
from lakebed.spark.routes import SparkRoutes
from lakebed.spark.runner import SparkRunner

DRIVER_BYTES = 256 << 20
"""Up to so many bytes of files the driver makes vectors itself: it reads keys only, and a Spark job takes longer."""
_KEPT_BYTES = 256 << 20
_NO_WORDS = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class SliceVectors:
    """What is dead in a slice: in files that Spark reads itself, and in logs that it does not, by number of the run."""

    files: tuple[FileVector, ...]
    logs: tuple[tuple[int, FileVector], ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(vector.words.nbytes for vector in (*self.files, *(vector for _, vector in self.logs)))

    @property
    def has_winners(self) -> bool:
        return any(vector.dead < vector.rows for _, vector in self.logs)


@dataclass(frozen=True, slots=True)
class Found:
    """The vectors of a plan by split, and the splits whose files Spark's reader would not read as the table says."""

    vectors: dict[ReadSplit, SliceVectors]
    misfits: tuple[ReadSplit, ...]


def find_vectors(spark: SparkSession, plan: Plan, chosen: SparkRoutes) -> Found:
    """The vectors of all splits that are left to Spark, wholly or in part.

    A base file alone has nothing dead, and while the table's schema never changed its columns need no look either.
    """
    known: dict[ReadSplit, SliceVectors | None] = {}
    missing = [*chosen.vectors, *(split for split, _ in chosen.winners)]
    if chosen.native and plan.schema_is_stable:
        known |= {split: _untouched(split) for split in chosen.native}
    else:
        missing += chosen.native
    keys = {split: _key(plan, split) for split in missing}
    known |= {split: _CACHE.get(keys[split]) for split in missing if keys[split] in _CACHE}
    todo = [split for split in missing if split not in known]
    for split, vectors in zip(todo, _made(spark, plan, todo), strict=True):
        _CACHE.put(keys[split], vectors)
        known[split] = vectors
    return Found(
        {split: vectors for split, vectors in known.items() if vectors is not None},
        tuple(split for split, vectors in known.items() if vectors is None),
    )


def _made(spark: SparkSession, plan: Plan, splits: Sequence[ReadSplit]) -> list[SliceVectors | None]:
    here = sum(split.slice.size for split in splits) <= DRIVER_BYTES
    runner = LocalRunner() if here else SparkRunner(spark)
    reader = plan.reader.without_conditions()
    return list(runner.map(_VectorTask(reader), splits, label="merge vectors"))


@dataclass(frozen=True, slots=True)
class _VectorTask:
    reader: FileGroupReader

    def __call__(self, split: ReadSplit) -> SliceVectors | None:
        if self.reader.why_not_native(split) is not None:
            return _winner_vectors(self.reader, split)
        files = slice_vectors(self.reader, split)
        return None if files is None else SliceVectors(tuple(files))


def _winner_vectors(reader: FileGroupReader, split: ReadSplit) -> SliceVectors | None:
    """The base file's vector for Spark, and those of the logs for the task that reads them."""
    base_alone = ReadSplit(replace(split.slice, log_files=()))
    if not reader.fits_natively(base_alone):
        return None
    runs = reader.runs(split.slice, pa.schema([]))
    if any(run.is_partial for run in runs):
        return None
    made = merge_vectors(runs, reader.shape.rule, memory=reader.options.memory)
    vectors = [FileVector(run.label or "", v.rows, v.dead, v.words) for run, v in zip(runs, made, strict=True)]
    logs = [(number, vectors[number]) for number, run in enumerate(runs) if number and not run.is_delete]
    return SliceVectors((vectors[0],), tuple(logs))


def _untouched(split: ReadSplit) -> SliceVectors:
    base = split.slice.base_file
    return SliceVectors((FileVector(base.path, 0, 0, _NO_WORDS),) if base is not None else ())


_Key = tuple[str, tuple[tuple[str, int], ...], str, str, frozenset[str]]


def _key(plan: Plan, split: ReadSplit) -> _Key:
    reader = plan.reader
    files = tuple((file.path, file.size) for file in split.slice.files)
    return (reader.storage.url, files, str(reader.shape.schema), repr(reader.shape.rule), reader.committed)


@dataclass(slots=True)
class _Cache:
    """The newest vectors, within a budget; `None` is worth keeping, too: those files do not fit."""

    budget: int
    kept: dict[_Key, SliceVectors | None] = field(default_factory=dict)
    held: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __contains__(self, key: _Key) -> bool:
        return key in self.kept

    def get(self, key: _Key) -> SliceVectors | None:
        return self.kept.get(key)

    def put(self, key: _Key, vectors: SliceVectors | None) -> None:
        with self.lock:
            if key in self.kept:
                return
            self.kept[key] = vectors
            self.held += _cost(vectors)
            while self.held > self.budget:
                self.held -= _cost(self.kept.pop(next(iter(self.kept))))


def _cost(vectors: SliceVectors | None) -> int:
    return 512 + (vectors.nbytes if vectors is not None else 0)


_CACHE = _Cache(_KEPT_BYTES)
