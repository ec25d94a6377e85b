"""A slice with logs, read without copying rows together: each file by itself, dead rows dropped by merge vectors.

    keys and ordering values of all runs ──► merge vectors, kept for the next read
    the asked columns of every run ──► living rows ──► conditions ──► batches

Keys are compared once for all reads of the same files, and a row that nothing replaced is copied at most once. Rows
come file by file instead of in key order. Not for conditions on the key, which skip most of every file; for a limit,
whose first rows should not wait for all keys; for rules that combine rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakebed.datafile.parquet_metadata import Footers
from lakebed.merge.file_group_reader import FileGroupReader, ReadSplit
from lakebed.model.schema_evolution import plain
from lakebed.read.kept_vectors import KEPT, SliceVectors, key_of, vectors_by_run
from lakebed.read.vectors import FileVector

_BY_RUN = "runs"


def living_rows(reader: FileGroupReader, split: ReadSplit) -> Iterator[pa.RecordBatch]:
    """The rows of a split that the query asks for, by vectors where that can be, else by merging."""
    vectors = None if reader.key_range is not None else kept_vectors(reader, split)
    if vectors is None:
        yield from reader.read(split)
        return
    yield from rows_by_vectors(reader, split, vectors.logs, vectors.footers)


def count_living(reader: FileGroupReader, split: ReadSplit) -> int:
    """How many rows a split has for the query."""
    conditions = reader.predicate is not None or reader.commits is not None
    vectors = None if conditions else kept_vectors(reader, split)
    if vectors is None:
        return reader.count(split)
    return sum(vector.rows - vector.dead for _, vector in vectors.logs)


def kept_vectors(reader: FileGroupReader, split: ReadSplit) -> SliceVectors | None:
    """The vectors of a split with logs, made when nobody made them yet; None where there can be none."""
    if not split.slice.log_files or not reader.shape.rule.picks_whole_records:
        return None
    key = key_of(reader, split, _BY_RUN)
    if key not in KEPT:
        vectors = vectors_by_run(reader, split)
        KEPT.put(key, vectors)
        return vectors
    return KEPT.get(key)


def rows_by_vectors(
    reader: FileGroupReader,
    split: ReadSplit,
    vectors: tuple[tuple[int, FileVector], ...],
    footers: Footers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of some runs that are alive and that the query asks for; runs by their number, oldest first."""
    with reader.data_runs(split.slice, footers) as runs:
        for number, vector in vectors:
            if vector.dead == vector.rows:
                continue
            alive = pa.Array.from_buffers(pa.bool_(), vector.rows, [None, pa.py_buffer((~vector.words).tobytes())])
            start = 0
            for batch in runs[number].open(reader.options.batch_rows):
                kept = batch if not vector.dead else batch.filter(alive.slice(start, batch.num_rows))
                start += batch.num_rows
                yield from reader.asked_for(plain(kept))
