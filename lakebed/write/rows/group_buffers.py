"""Incoming rows, buffered by file group, within a memory ceiling.

    batches with a file-group number ──► a buffer per group ──► when all buffers together exceed the ceiling, the
                                         largest go to disk ──► group by group, each buffer as one unsorted run

Order of arrival is kept within a buffer: of two rows with one key and no ordering value, the later one wins. A buffer
is passed to the merge as a run, and the merge sorts, spills and folds it like any other. Of rows that the caller holds
in memory anyway a buffer keeps only their row numbers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakebed.config.memory_plan import BufferMemory
from lakebed.errors import StorageUnavailable
from lakebed.merge.arrow_numpy import Ints, index_array, numbers, take_rows
from lakebed.merge.spill import sliced
from lakebed.model.concat import concat_batches

GROUP_COLUMN = "_lakebed_group"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a batch: all of it, or those with these numbers. `held` is the memory that is freed with them."""

    batch: pa.RecordBatch
    numbers: pa.Array | None
    held: int

    def rows(self) -> pa.RecordBatch:
        return self.batch if self.numbers is None else take_rows(self.batch, self.numbers)


@dataclass(slots=True)
class GroupBuffer:
    """The rows of one file group: those on disk arrived before those in memory."""

    group: int
    schema: pa.Schema
    rows: int = 0
    nbytes: int = 0
    in_memory: list[Part] = field(default_factory=list)
    held: int = 0
    """Bytes of memory that are freed when the buffer is spilled to disk."""
    file: Path | None = None
    writer: pa.RecordBatchStreamWriter | None = None
    sink: pa.OSFile | None = None

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows in order of arrival, in batches of at most `rows` rows."""
        if self.file is not None:
            with pa.OSFile(str(self.file), "rb") as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    yield from sliced(batch, rows)
        for part in self.in_memory:
            yield from sliced(part.rows(), rows)


class GroupBuffers:
    """The buffers of one write; a context manager, since buffers may be in a temporary folder."""

    def __init__(self, memory: int) -> None:
        self._memory = BufferMemory(memory)
        self._held = self._lowest = 0
        self._buffers: dict[int, GroupBuffer] = {}
        self._folder: Path | None = None

    def __enter__(self) -> GroupBuffers:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._buffers.values():
            _close(buffer)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add the rows of batches, which have their group in a column, to the buffers."""
        for batch in batches:
            for group, part in split_by_group(batch):
                self.put(group, part)

    def bounded_parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in slices small enough that several of them fit in memory besides the buffers."""
        yield from sliced(batch, max(1, self._memory.part * batch.num_rows // max(batch.nbytes, 1)))

    def put(self, group: int, rows: pa.RecordBatch) -> None:
        """Add rows to the buffer of a group."""
        self._put(group, Part(rows, None, rows.nbytes), rows.num_rows, rows.nbytes)

    def point(self, group: int, batch: pa.RecordBatch, numbers: pa.Array | None, own: int) -> None:
        """Add rows of a batch that the caller keeps in memory, except for `own` bytes of it, by their numbers."""
        count = batch.num_rows if numbers is None else len(numbers)
        share = count / batch.num_rows
        held = int(own * share) + (0 if numbers is None else numbers.nbytes)
        self._put(group, Part(batch, numbers, held), count, int(batch.nbytes * share))

    def _put(self, group: int, part: Part, count: int, size: int) -> None:
        buffer = self._buffers.setdefault(group, GroupBuffer(group, part.batch.schema))
        buffer.in_memory.append(part)
        buffer.held += part.held
        buffer.rows += count
        buffer.nbytes += size
        self._held += part.held
        while self._held > self._memory.ceiling:
            self._spill_largest()

    def buffers(self) -> list[GroupBuffer]:
        """All buffers, ready to be read; nothing may be added afterwards."""
        for buffer in self._buffers.values():
            _close(buffer)
        return sorted(self._buffers.values(), key=lambda buffer: buffer.group)

    def take(self, groups: Iterable[int]) -> list[GroupBuffer]:
        """Remove and return some buffers: their rows are to be buffered again by other groups."""
        taken = [self._buffers.pop(group) for group in groups if group in self._buffers]
        self._lowest = min([self._lowest, *(buffer.group for buffer in taken)])  # their files are still there
        for buffer in taken:
            _close(buffer)
            self._held -= buffer.held
        return taken

    def add_numbered(self, batch: pa.RecordBatch, numbers: Ints) -> None:
        """Add each row to the buffer with its number."""
        for number, rows in rows_by_group(numbers) if batch.num_rows else ():
            self.put(number, batch if rows is None else take_rows(batch, rows))

    @property
    def fan_out(self) -> int:
        """Into how many buffers one buffer is split at once."""
        return self._memory.fan_out

    def free_numbers(self, count: int) -> int:
        """The first of `count` consecutive numbers below zero that no buffer has."""
        self._lowest = min((self._lowest, *self._buffers)) - count
        return self._lowest

    def give_up(self, buffer: GroupBuffer) -> None:
        """Discard the rows of a buffer that was taken, in memory and on disk."""
        buffer.in_memory.clear()
        buffer.held = 0
        if buffer.file is not None:
            buffer.file.unlink(missing_ok=True)
            buffer.file = None

    def _spill_largest(self) -> None:
        buffer = max(self._buffers.values(), key=lambda buffer: buffer.held)
        try:
            if buffer.writer is None:
                if self._folder is None:
                    self._folder = Path(tempfile.mkdtemp(prefix="lakebed-write-"))
                buffer.file = self._folder / f"{buffer.group}.arrow"
                buffer.sink = pa.OSFile(str(buffer.file), "wb")
                buffer.writer = pa.ipc.new_stream(buffer.sink, buffer.schema)
            for rows in _joined((part.rows() for part in buffer.in_memory), self._memory.stored_batch):
                for stored in sliced(rows, max(16, self._memory.stored_batch * rows.num_rows // max(rows.nbytes, 1))):
                    buffer.writer.write_batch(stored)
        except OSError as error:
            raise StorageUnavailable(f"cannot spill incoming rows to disk: {error}") from error
        self._held -= buffer.held
        buffer.in_memory.clear()
        buffer.held = 0


def split_by_group(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch in parts of one group each, rows in their order, without the group column."""
    if not batch.num_rows:
        return
    index = batch.schema.get_field_index(GROUP_COLUMN)
    groups = batch.column(index)
    rest = batch.remove_column(index)
    for group, rows in rows_by_group(numbers(groups, np.int64)):
        yield group, rest if rows is None else take_rows(rest, rows)


def rows_by_group(groups: Ints) -> Iterator[tuple[int, pa.Array | None]]:
    """The numbers of each group's rows in their order, None for all; `groups` has the group of each row."""
    if (groups == groups[0]).all():
        yield int(groups[0]), None
        return
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for rows in np.split(order, starts[1:]):
        yield int(groups[rows[0]]), index_array(rows)


def _joined(batches: Iterable[pa.RecordBatch], nbytes: int) -> Iterator[pa.RecordBatch]:
    """Consecutive small batches concatenated, up to about `nbytes` bytes."""
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if small and size + batch.nbytes > nbytes:
            yield concat_batches(small)
            small, size = [], 0
        small.append(batch)
        size += batch.nbytes
    if small:
        yield concat_batches(small)


def _close(buffer: GroupBuffer) -> None:
    if buffer.writer is not None:
        buffer.writer.close()
        buffer.writer = None
    if buffer.sink is not None:
        buffer.sink.close()
        buffer.sink = None
