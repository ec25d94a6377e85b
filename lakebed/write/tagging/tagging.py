"""Which file group every incoming row goes to.

    hashed index      locate ──► buffer by group                                        (one pass)
    other indexes     buffer everything ──► look all keys up ──► buffer by group        (two passes, keys in memory)
    no look-up        inserts without a hash: groups by key, small files first

Under a global index a row may find its key in another partition: `partition_moves` says what becomes of it, and
`keep_partition` what its partition columns hold where a key is told to stay. What is done to each group then is for
`targets` to say.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.index.choose import open_index
from lakebed.index.locations import FILE_ID, LOCATION_COLUMNS, Index, IndexContext, new_file_id, nowhere
from lakebed.index.options import IndexOptions
from lakebed.merge.arrow_numpy import Bools, bool_array, index_array, take, valid
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.concat import concat_chunks
from lakebed.model.files import FileGroupId
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.runner import LocalRunner, Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileLister, FileSystemView
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GROUP_COLUMN, GroupBuffer, GroupBuffers, rows_by_group
from lakebed.write.tagging.group_numbers import GroupNumbers, incoming_by_group
from lakebed.write.tagging.keep_partition import Folders, staying
from lakebed.write.tagging.partition_moves import columns_needed, deletes_stay, settle_moves
from lakebed.write.tagging.small_files import InsertBucket, assign_inserts, insert_buckets
from lakebed.write.tagging.targets import (
    TargetRules,
    all_slices,
    group_targets,
    groups_being_clustered,
    refuse_replaced_buckets,
)
from lakebed.write.task.write_task import GroupTarget, Incoming
from lakebed.write.write_checks import refuse_unnamed_buckets

UNTAGGED = -1
"""The buffer of rows that wait for a look-up."""
UNTAGGED_DELETES = -2
PARTS_IN_FLIGHT = 3
"""Batches that are taken apart ahead of the buffers."""


@dataclass(frozen=True, slots=True)
class TaggedGroup:
    """One file group and what comes to it."""

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
    lister: FileLister | None = None
    """What is known of the table's files already; None lists the store."""
    _groups: GroupNumbers = field(default_factory=GroupNumbers)
    _rewritten: set[FileGroupId] = field(default_factory=set)

    # ------------------------------------------------------------------ before the write begins
    def buffer_rows(
        self,
        group_buffers: GroupBuffers,
        rows: Iterable[pa.RecordBatch],
        deletes: Iterable[pa.RecordBatch],
        *,
        in_hand: bool = False,
    ) -> None:
        """Take all rows in; errors of the data show here, when nothing is written yet.

        Rows that are `in_hand` lie in the caller's memory and stay there.
        """
        index = self._index(self.client, self._view(self.client))
        if not index.is_hashed:
            refuse_unnamed_buckets(self.client, self.properties)
        for is_delete, batches in ((False, rows), (True, deletes)):
            if index.places_by_bucket:
                self._buffer_buckets(group_buffers, index, batches, is_delete, in_hand and not is_delete)
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
        in_hand: bool,
    ) -> None:
        """The same where a hash is all there is to it: keys are hashed in threads."""
        names = [self.reader_context.rule.key, *self.reader_context.rule.ordering] if is_delete else None

        def apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[FileGroupId, Any]]]:
            parts = list(_rows_of_buckets(index, batch))
            batch = batch if names is None else batch.select(names)
            if in_hand:
                return batch, parts
            return batch, [(group, batch if rows is None else take(batch, rows)) for group, rows in parts]

        runner = LocalRunner(os.cpu_count(), PARTS_IN_FLIGHT) if self.runner.shares_memory else self.runner
        parts = (part for batch in batches if batch.num_rows for part in group_buffers.bounded_parts(batch))
        for batch, routed in runner.map(apart, parts, label="tag"):
            own = batch.select([name for name in (RECORD_KEY, PARTITION_PATH) if name in batch.schema.names]).nbytes
            for group, part in routed:
                number = self._groups.buffer_number(group, is_delete=is_delete)
                if in_hand:
                    group_buffers.point(number, batch, part, own)
                else:
                    group_buffers.put(number, part)

    def by_bucket(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[FileGroupId, pa.RecordBatch]]:
        """Prepared rows by file group, batch after batch, where a hash tells the group."""
        index = self._index(self.client, self._view(self.client))
        assert index.places_by_bucket
        for batch in batches:
            for group, rows in _rows_of_buckets(index, batch) if batch.num_rows else ():
                yield group, batch if rows is None else take(batch, rows)

    # ------------------------------------------------------------------ once it has begun
    def finish(
        self, group_buffers: GroupBuffers, snapshot: MetaClient, view: FileSystemView | None = None
    ) -> list[TaggedGroup]:
        """Every group with its rows, as the table is at the beginning of the write; `view` is that of the snapshot."""
        view = view or self._view(snapshot)
        index = self._index(snapshot, view)
        if not index.is_hashed:
            self._look_up_untagged(group_buffers, index, snapshot, view)
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
        """What becomes of rows that tasks elsewhere hashed to their groups, by file group."""
        for group in groups:
            self._groups.number(group)
        view = self._view(snapshot)
        index = self._index(snapshot, view)
        refuse_replaced_buckets(self._groups, index)
        return self._targets(index, snapshot, view)

    def _targets(self, index: Index, snapshot: MetaClient, view: FileSystemView) -> dict[FileGroupId, GroupTarget]:
        rules = TargetRules(self.operation, index, snapshot.config.is_mor, self._rewritten)
        return group_targets(self._groups, view, rules)

    # ------------------------------------------------------------------ keys that are looked up
    def _look_up_untagged(
        self, group_buffers: GroupBuffers, index: Index, snapshot: MetaClient, view: FileSystemView
    ) -> None:
        for buffer in group_buffers.take((UNTAGGED, UNTAGGED_DELETES)):
            is_delete = buffer.group == UNTAGGED_DELETES
            settles = index.is_global and self.operation.looks_up and not is_delete
            names = columns_needed(self.reader_context.rule, buffer.schema) if settles else [RECORD_KEY, PARTITION_PATH]
            table = pa.Table.from_batches([_copied(batch.select(names)) for batch in buffer.batches(1 << 20)])
            located = index.locate(table) if self.operation.looks_up else nowhere(table)
            kept = None
            if is_delete:
                located = deletes_stay(located)
                kept = np.asarray(valid(concat_chunks(located.column(FILE_ID))))
            elif settles:
                reader = FileGroupReader(
                    snapshot.storage, self.reader_context, ReadOptions(), self.reader_context.schema
                )
                settled = settle_moves(located, self.reader_context.rule, reader, all_slices(view), self.runner)
                located, kept = settled.located, settled.stays
            if not is_delete:
                located = self._assign_new_keys(located, snapshot, view, buffer.nbytes)
            self._buffer_located(group_buffers, buffer, located, kept, is_delete)

    def _buffer_located(
        self, group_buffers: GroupBuffers, buffer: GroupBuffer, located: pa.Table, kept: Bools | None, is_delete: bool
    ) -> None:
        """Buffer the rows by group, as their keys were located; those that are not `kept` are left out."""
        start, folders = 0, Folders.of(self.client.config, self.properties)
        for batch in buffer.batches(1 << 20):
            end = start + batch.num_rows
            locations = located.slice(start, batch.num_rows).select([PARTITION_PATH, *LOCATION_COLUMNS])
            rows = pa.Table.from_batches([batch])
            if not is_delete:
                rows = staying(rows, locations, self.reader_context.rule, folders)
            index = rows.schema.get_field_index(PARTITION_PATH)
            rows = rows.set_column(index, rows.schema.field(index), locations.column(PARTITION_PATH))
            for name in LOCATION_COLUMNS:
                rows = rows.append_column(name, locations.column(name))
            if kept is not None and not kept[start:end].all():
                rows = rows.filter(bool_array(kept[start:end]))
            start = end
            if rows.num_rows:
                group_buffers.add(self._groups.numbered_rows(rows, self.reader_context, is_delete=is_delete))

    def _assign_new_keys(self, located: pa.Table, snapshot: MetaClient, view: FileSystemView, nbytes: int) -> pa.Table:
        """A group for every key that has none yet."""
        busy = groups_being_clustered(snapshot)
        share = nbytes / max(1, located.num_rows)

        def insert_buckets_in(path: str, keys: int) -> list[InsertBucket]:
            slices = () if self.operation.replaces else [one for one in view.slices(path) if one.file_group not in busy]
            is_mor = snapshot.config.is_mor
            buckets = insert_buckets(slices, int(share * keys), self.options, new_file_id, is_mor=is_mor)
            self._rewritten |= {bucket.slice.file_group for bucket in buckets if bucket.slice is not None}
            return buckets

        return assign_inserts(located, insert_buckets_in)

    # ------------------------------------------------------------------ the table as tagging sees it
    def _index(self, client: MetaClient, view: FileSystemView) -> Index:
        context = index_context(client, view, self.reader_context, self.runner)
        return open_index(context, self.index_options, self.properties)

    def _view(self, client: MetaClient) -> FileSystemView:
        return FileSystemView.of(client, self.lister)


def index_context(
    client: MetaClient, view: FileSystemView, reader_context: ReaderContext, runner: Runner
) -> IndexContext:
    """The table as indexes see it."""
    reader = FileGroupReader(client.storage, reader_context, ReadOptions(), reader_context.schema)
    return IndexContext(client, view, reader, runner)


def _rows_of_buckets(index: Index, batch: pa.RecordBatch) -> Iterator[tuple[FileGroupId, pa.Array | None]]:
    """The numbers of each file group's rows, None for all."""
    places = index.places(pa.Table.from_batches([batch]))
    for number, rows in rows_by_group(places.of_row):
        location = places.locations[number]
        yield FileGroupId(location.partition_path, location.file_id), rows


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns apart from the others they were read with, which would stay in memory as long as they do."""
    return batch.take(index_array(np.arange(batch.num_rows, dtype=np.int64)))
