"""Repeated reads of a file slice with logs: files read one by one, dead rows dropped by cached merge vectors.

    first read     merged as usual: a slice that is read once pays for nothing else
    second read    keys and ordering values of all runs ──► merge vectors and the order of rows, if they can be kept
    from then on   the requested columns of every run ──► live rows ──► interleaved in key order ──► conditions

Rows come in the same order every time, since callers may combine the columns of two reads by row. So this is not for
the default layout, whose merge leaves rows where the base file has them; nor for conditions on the key, which skip most
of every file; for a limit, whose first rows should not wait for all keys; for rules that combine rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakebed.config.memory_plan import KEPT_VECTORS, MemoryPlan
from lakebed.datafile.parquet_metadata import Footers
from lakebed.merge.arrow_numpy import index_array, take
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.merge_vector import Numbers
from lakebed.merge.reader_context import LSM_TREE, ReadSplit
from lakebed.merge.runs import Run
from lakebed.merge.windows import guess_row_bytes
from lakebed.model.concat import concat_mixed, narrowed, plain_parts
from lakebed.read.merge_vector_cache import MERGE_VECTORS, FileVector, SliceVectors, key_of, plan_vectors

_BY_RUN = "runs"


def live_rows(reader: FileGroupReader, split: ReadSplit, keep: int = KEPT_VECTORS) -> Iterator[pa.RecordBatch]:
    """The rows of a split that the query selects, in key order where the layout has one.

    `keep` is what the process may keep of slices for a query with this memory.
    """
    keeps = reader.reader_context.layout == LSM_TREE and reader.key_range is None
    footers: Footers = {}
    vectors = cached_vectors(reader, split, keep, footers=footers) if keeps else None
    if vectors is None or vectors.order is None:
        yield from reader.read(split, footers=footers)
    else:
        yield from rows_in_order(reader, split, vectors, vectors.order)


def count_live(reader: FileGroupReader, split: ReadSplit, keep: int = KEPT_VECTORS) -> int:
    """How many rows a split has for the query."""
    conditions = reader.predicate is not None or reader.commits is not None
    vectors = None if conditions else cached_vectors(reader, split, keep, at_once=True)
    if vectors is None:
        return reader.count(split)
    return sum(vector.rows - vector.dead for _, vector in vectors.logs)


def cached_vectors(
    reader: FileGroupReader,
    split: ReadSplit,
    keep: int = KEPT_VECTORS,
    *,
    at_once: bool = False,
    footers: Footers | None = None,
) -> SliceVectors | None:
    """The vectors of a split with logs: made at the second request, or `at_once`; None where there are none.

    None as well where they could not be kept: to merge all keys for one read, and then to read, is more than to merge.
    `footers` gets what was read to find that out.
    """
    if not split.slice.log_files or not reader.reader_context.rule.picks_whole_records:
        return None
    key = key_of(reader, split, _BY_RUN)
    if not MERGE_VECTORS.takes(reader.storage):
        return None
    if key in MERGE_VECTORS:
        return MERGE_VECTORS.get(key)
    since = MERGE_VECTORS.note_request(key)
    if not (at_once or since):
        return None
    plan = plan_vectors(reader, split, footers, ordered=reader.reader_context.layout == LSM_TREE)
    if plan is None:
        MERGE_VECTORS.put(key, None, since, keep)
        return None
    size = plan.most_bytes
    if size > MemoryPlan(reader.options.memory).new_vectors or not MERGE_VECTORS.has_room(size, since, keep):
        return None
    vectors = plan.vectors(reader)
    MERGE_VECTORS.put(key, vectors, since, keep)
    return vectors


# ---------------------------------------------------------------------- file by file
def rows_by_vectors(
    reader: FileGroupReader,
    split: ReadSplit,
    vectors: tuple[tuple[int, FileVector], ...],
    footers: Footers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Live rows of some runs that the query selects; runs by their number, oldest first."""
    with reader.data_runs(split.slice, footers) as runs:
        for number, vector in vectors:
            for batch in _live(runs[number], vector, reader.options.batch_rows):
                for part in plain_parts(batch):
                    yield from reader.requested_rows(part)


def _live(run: Run, vector: FileVector, rows: int) -> Iterator[pa.RecordBatch]:
    """The live rows of one run, in file order."""
    if vector.dead == vector.rows:
        return
    live = pa.Array.from_buffers(pa.bool_(), vector.rows, [None, pa.py_buffer((~vector.words).tobytes())])
    start = 0
    for batch in run.open(rows):
        yield batch if not vector.dead else batch.filter(live.slice(start, batch.num_rows))
        start += batch.num_rows


# ---------------------------------------------------------------------- in key order
def rows_in_order(
    reader: FileGroupReader, split: ReadSplit, vectors: SliceVectors, order: Numbers
) -> Iterator[pa.RecordBatch]:
    """Live rows of all runs, interleaved by key: each run is in key order already."""
    with reader.data_runs(split.slice, vectors.footers) as runs:
        together = MemoryPlan(reader.options.memory).ordered_rows
        share = together // max(1, len(vectors.logs))
        sources = {}
        largest = guess_row_bytes(reader.schema)
        for number, vector in vectors.logs:
            row_bytes = runs[number].row_bytes or guess_row_bytes(reader.schema)
            rows = max(1, min(reader.options.batch_rows, share // row_bytes))
            sources[number] = _Source(_live(runs[number], vector, rows))
            largest = max(largest, row_bytes)
        step = max(1, min(reader.options.batch_rows, together // largest))
        for start in range(0, len(order), step):
            for batch in _next_rows(sources, order[start : start + step]):
                for part in plain_parts(batch):
                    yield from reader.requested_rows(part)


def _next_rows(sources: dict[int, _Source], order: Numbers) -> Iterator[pa.RecordBatch]:
    """The next rows by key; `order` holds the run that each comes from."""
    counts = np.bincount(order)
    used = np.flatnonzero(counts).tolist()
    parts = [part for number in used for part in sources[number].take(int(counts[number]))]
    if len(used) == 1:
        yield from parts
        return
    joined, kinds = concat_mixed(parts)
    by_run = np.argsort(order, kind="stable")
    positions = np.empty(len(order), np.int64)
    positions[by_run] = np.arange(len(order))
    yield from narrowed(take(joined, index_array(positions)), kinds)


class _Source:
    """Batches of which the next so many rows can be had."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches)
            taken = batch.slice(0, rows)
            self._rest = batch.slice(rows) if rows < batch.num_rows else None
            rows -= taken.num_rows
            if taken.num_rows:
                yield taken
