"""Which file group every incoming row goes to.

    hashed index      locate ──► buffer by group                                        (one pass)
    other indexes     buffer everything ──► look keys up ──► buffer by group        (in parts whose keys fit)
    no look-up        inserts without a hash: groups by key, small files first

Under a global index the key of a row may be in another partition: `partition_moves` decides what is written then, and
`keep_partition` sets the partition columns of rows that are kept in the old one. `targets` decides how each group is
written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.config.memory_plan import DEFAULT_WRITE_MEMORY
from lakebed.config.write_options import WriteOptions
from lakebed.index.choose import open_index
from lakebed.index.locations import Index, IndexContext
from lakebed.index.options import IndexOptions
from lakebed.merge.arrow_numpy import index_array, take
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.files import FileGroupId
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.runner import LocalRunner, Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileLister, FileSystemView
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GROUP_COLUMN, GroupBuffers, rows_by_group
from lakebed.write.tagging.group_numbers import GroupNumbers, incoming_by_group
from lakebed.write.tagging.targets import (
    TargetRules,
    group_targets,
    refuse_replaced_buckets,
)
from lakebed.write.tagging.untagged import UNTAGGED, UNTAGGED_DELETES, UntaggedRows, look_up_reader
from lakebed.write.task.write_task import GroupTarget, Incoming
from lakebed.write.write_checks import refuse_unnamed_buckets

PARTS_IN_FLIGHT = 3
"""Batches that are split by group ahead of the buffers."""


@dataclass(frozen=True, slots=True)
class TaggedGroup:
    """One file group and its incoming data."""

    target: GroupTarget
    incoming: Incoming
    rows: int = 0


@dataclass(slots=True)
class Tagging:
    """The tagging of one write's rows."""

    client: MetaClient
    operation: Operation
    options: WriteOptions
    index_options: IndexOptions
    properties: Mapping[str, str]
    runner: Runner
    reader_context: ReaderContext
    memory: int = DEFAULT_WRITE_MEMORY
    lister: FileLister | None = None
    """A listing of the table's files that was made already; None lists the storage."""
    _groups: GroupNumbers = field(default_factory=GroupNumbers)
    _rewritten: set[FileGroupId] = field(default_factory=set)

    # ------------------------------------------------------------------ before the write begins
    def buffer_rows(
        self,
        group_buffers: GroupBuffers,
        rows: Iterable[pa.RecordBatch],
        deletes: Iterable[pa.RecordBatch],
        *,
        in_memory: bool = False,
    ) -> None:
        """Buffer all rows; errors in the data are raised here, before anything is written.

        With `in_memory` the caller keeps the rows in memory, and they are not copied.
        """
        index = self._index(self.client, self._view(self.client))
        if not index.is_hashed:
            refuse_unnamed_buckets(self.client, self.properties)
        for is_delete, batches in ((False, rows), (True, deletes)):
            if index.places_by_bucket:
                self._buffer_buckets(group_buffers, index, batches, is_delete, in_memory and not is_delete)
                continue
            for batch in batches:
                if not batch.num_rows:
                    continue
                if index.is_hashed:
                    located = index.locate(pa.Table.from_batches([batch]))
                    group_buffers.add(self._groups.numbered_rows(located, self.reader_context, is_delete=is_delete))
                else:
                    buffer = UNTAGGED_DELETES if is_delete else UNTAGGED
                    of_row = np.full(batch.num_rows, buffer, dtype=np.int64)
                    group_buffers.add([batch.append_column(GROUP_COLUMN, index_array(of_row))])

    def _buffer_buckets(
        self,
        group_buffers: GroupBuffers,
        index: Index,
        batches: Iterable[pa.RecordBatch],
        is_delete: bool,
        in_memory: bool,
    ) -> None:
        """The same where the group follows from a hash alone: keys are hashed in threads."""
        names = [self.reader_context.rule.key, *self.reader_context.rule.ordering] if is_delete else None

        def split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[FileGroupId, Any]]]:
            parts = list(_rows_of_buckets(index, batch))
            batch = batch if names is None else batch.select(names)
            if in_memory:
                return batch, parts
            return batch, [(group, batch if rows is None else take(batch, rows)) for group, rows in parts]

        runner = LocalRunner(os.cpu_count(), PARTS_IN_FLIGHT) if self.runner.shares_memory else self.runner
        parts = (part for batch in batches if batch.num_rows for part in group_buffers.bounded_parts(batch))
        for batch, routed in runner.map(split, parts, label="tag"):
            own = batch.select([name for name in (RECORD_KEY, PARTITION_PATH) if name in batch.schema.names]).nbytes
            for group, part in routed:
                number = self._groups.buffer_number(group, is_delete=is_delete)
                if in_memory:
                    group_buffers.point(number, batch, part, own)
                else:
                    group_buffers.put(number, part)

    def by_bucket(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[FileGroupId, pa.RecordBatch]]:
        """Prepared rows by file group, batch after batch, where a hash determines the group."""
        index = self._index(self.client, self._view(self.client))
        assert index.places_by_bucket
        for batch in batches:
            for group, rows in _rows_of_buckets(index, batch) if batch.num_rows else ():
                yield group, batch if rows is None else take(batch, rows)

    # ------------------------------------------------------------------ once it has begun
    def finish(
        self, group_buffers: GroupBuffers, snapshot: MetaClient, view: FileSystemView | None = None
    ) -> list[TaggedGroup]:
        """Every group with its rows, for the table as of the start of the write; `view` is that of the snapshot."""
        view = view or self._view(snapshot)
        index = self._index(snapshot, view)
        if not index.is_hashed:
            self._untagged(index, snapshot, view).tag(group_buffers)
        else:
            refuse_replaced_buckets(self._groups, index)
        targets, by_number = self._targets(index, snapshot, view), list(self._groups)
        tagged = []
        for number, incoming, rows in incoming_by_group(group_buffers.buffers()):
            target = targets.get(by_number[number])
            if target is not None:
                tagged.append(TaggedGroup(target, incoming, rows))
        return tagged

    def targets(self, groups: Iterable[FileGroupId], snapshot: MetaClient) -> dict[FileGroupId, GroupTarget]:
        """The targets of groups whose rows were hashed by Spark tasks."""
        for group in groups:
            self._groups.number(group)
        view = self._view(snapshot)
        index = self._index(snapshot, view)
        refuse_replaced_buckets(self._groups, index)
        return self._targets(index, snapshot, view)

    def _targets(self, index: Index, snapshot: MetaClient, view: FileSystemView) -> dict[FileGroupId, GroupTarget]:
        rules = TargetRules(self.operation, index, snapshot.config.is_mor, self._rewritten)
        return group_targets(self._groups, view, rules)

    # ------------------------------------------------------------------ the table as tagging sees it
    def _index(self, client: MetaClient, view: FileSystemView) -> Index:
        context = index_context(client, view, self.reader_context, self.runner, self.memory)
        return open_index(context, self.index_options, self.properties)

    def _view(self, client: MetaClient) -> FileSystemView:
        return FileSystemView.of(client, self.lister)

    def _untagged(self, index: Index, snapshot: MetaClient, view: FileSystemView) -> UntaggedRows:
        return UntaggedRows(
            self.operation,
            self.options,
            self.properties,
            self.reader_context,
            self.runner,
            self.memory,
            index,
            snapshot,
            view,
            self._groups,
            self._rewritten,
        )


def index_context(
    client: MetaClient, view: FileSystemView, reader_context: ReaderContext, runner: Runner, memory: int
) -> IndexContext:
    """The table as indexes see it."""
    return IndexContext(client, view, look_up_reader(client, reader_context, runner, memory), runner)


def _rows_of_buckets(index: Index, batch: pa.RecordBatch) -> Iterator[tuple[FileGroupId, pa.Array | None]]:
    """The numbers of each file group's rows, None for all."""
    found = index.places(pa.Table.from_batches([batch]))
    for number, rows in rows_by_group(found.of_row):
        location = found.locations[number]
        yield FileGroupId(location.partition_path, location.file_id), rows
