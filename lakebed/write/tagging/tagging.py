"""Which file group every incoming row goes to, and what becomes of it there.

    hashed index      place ──► pile by group                                        (one pass)
    other indexes     pile everything up ──► look all keys up ──► pile by group      (two passes, keys in memory)
    no look-up        inserts without a hash: homes by key, small files first

Under a global index a row may find its key in another partition: `partition_moves` says what becomes of it, and
`keep_partition` what its partition columns hold where a key is told to stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.errors import ConflictError
from lakebed.index.choose import open_index
from lakebed.index.locations import (
    FILE_ID,
    LOCATION_COLUMNS,
    OLD_FILE_ID,
    OLD_PARTITION,
    Index,
    IndexContext,
    new_file_id,
    nowhere,
)
from lakebed.merge.arrow_numpy import (
    Bools,
    Ints,
    bool_array,
    index_array,
    numbers,
    take,
    valid,
)
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.concat import concat_chunks
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.runner import LocalRunner, Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileLister, FileSystemView
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GROUP_COLUMN, GroupBuffer, GroupBuffers, rows_by_group
from lakebed.write.tagging.keep_partition import Folders, staying
from lakebed.write.tagging.partition_moves import columns_needed, deletes_stay, settle_moves
from lakebed.write.tagging.small_files import InsertBucket, assign_inserts, insert_buckets
from lakebed.write.task.write_task import GroupTarget, Incoming, Target
from lakebed.write.write_checks import refuse_unnamed_buckets

SPOOL = -1
"""The pile of rows that wait for a look-up."""
SPOOLED_DELETES = -2
PARTS_IN_FLIGHT = 3
"""Batches that are taken apart ahead of the piles."""


@dataclass(frozen=True, slots=True)
class TaggedGroup:
    """One file group and what comes to it."""

    target: GroupTarget
    incoming: Incoming
    rows: int = 0


@dataclass(slots=True)
class Tagging:
    """The placing of one write."""

    client: MetaClient
    operation: Operation
    options: WriteOptions
    properties: Mapping[str, str]
    runner: Runner
    reader_context: ReaderContext
    lister: FileLister | None = None
    """What is known of the table's files already; None asks the store."""
    _groups: dict[FileGroupId, int] = field(default_factory=dict)
    _rewritten: set[FileGroupId] = field(default_factory=set)
    """Groups that take new keys: their base file is written anew, for other writers' indexes look for keys there."""

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
        index = self._index(self.client)
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
                    group_buffers.add(self._by_group(index.locate(pa.Table.from_batches([batch])), is_delete))
                else:
                    spool = SPOOLED_DELETES if is_delete else SPOOL
                    group_buffers.add([batch.append_column(GROUP_COLUMN, _constant(spool, batch.num_rows))])

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
            parts = list(_by_bucket(index, batch))
            batch = batch if names is None else batch.select(names)
            if in_hand:
                return batch, parts
            return batch, [(group, batch if rows is None else take(batch, rows)) for group, rows in parts]

        runner = LocalRunner(os.cpu_count(), PARTS_IN_FLIGHT) if self.runner.shares_memory else self.runner
        parts = (part for batch in batches if batch.num_rows for part in group_buffers.bounded_parts(batch))
        for batch, routed in runner.map(apart, parts, label="place"):
            own = batch.select([name for name in (RECORD_KEY, PARTITION_PATH) if name in batch.schema.names]).nbytes
            for group, part in routed:
                number = 2 * self._groups.setdefault(group, len(self._groups)) + int(is_delete)
                if in_hand:
                    group_buffers.point(number, batch, part, own)
                else:
                    group_buffers.put(number, part)

    def by_bucket(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[FileGroupId, pa.RecordBatch]]:
        """Prepared rows by file group, batch after batch, where a hash places them."""
        index = self._index(self.client)
        assert index.places_by_bucket
        for batch in batches:
            for group, rows in _by_bucket(index, batch) if batch.num_rows else ():
                yield group, batch if rows is None else take(batch, rows)

    # ------------------------------------------------------------------ once it has begun
    def finish(self, group_buffers: GroupBuffers, snapshot: MetaClient) -> list[TaggedGroup]:
        """Every group with its rows, as the table is at the beginning of the write."""
        index = self._index(snapshot)
        if not index.is_hashed:
            self._place_spooled(group_buffers, index, snapshot)
        else:
            self._check_places(index)
        targets = self._targets(self._groups, index, snapshot)
        by_number = self.groups
        buffers: dict[int, dict[bool, GroupBuffer]] = {}
        for buffer in group_buffers.buffers():
            if buffer.group >= 0:
                buffers.setdefault(buffer.group // 2, {})[bool(buffer.group % 2)] = buffer
        tagged = []
        for number, both in sorted(buffers.items()):
            target = targets.get(by_number[number])
            if target is not None:
                rows, gone = both.get(False), both.get(True)
                incoming = Incoming(
                    rows.batches if rows else None,
                    gone.batches if gone else None,
                    rows.nbytes if rows else None,
                    gone.nbytes if gone else None,
                )
                tagged.append(TaggedGroup(target, incoming, (rows.rows if rows else 0) + (gone.rows if gone else 0)))
        return tagged

    @property
    def groups(self) -> dict[int, FileGroupId]:
        """The file groups that rows were placed in, by their number."""
        return {number: group for group, number in self._groups.items()}

    def targets(self, groups: Iterable[FileGroupId], snapshot: MetaClient) -> dict[FileGroupId, GroupTarget]:
        """What becomes of rows that a hash placed elsewhere, by file group."""
        for group in groups:
            self._groups.setdefault(group, len(self._groups))
        index = self._index(snapshot)
        self._check_places(index)
        return self._targets(self._groups, index, snapshot)

    def _targets(
        self, groups: Iterable[FileGroupId], index: Index, snapshot: MetaClient
    ) -> dict[FileGroupId, GroupTarget]:
        """Groups to which nothing happens are left out."""
        view = self._view(snapshot)
        slices = _latest(view, {group.partition_path for group in groups})
        alive = {group.partition_path for group in slices}
        found = {}
        for group in groups:
            target = self._target(snapshot, index, group, slices.get(group), group.partition_path in alive)
            if target is not None:
                found[group] = target
        return found

    def _check_places(self, index: Index) -> None:
        """Rows were placed before the write began; buckets that were replaced or split since have other file groups."""
        for group in self._groups:
            if not index.is_place(group):
                raise ConflictError(
                    f"the file group {group} was replaced by another writer just now", hint="Write again."
                )

    def _target(
        self, snapshot: MetaClient, index: Index, group: FileGroupId, file_slice: FileSlice | None, is_alive: bool
    ) -> GroupTarget | None:
        if self.operation.replaces:
            new = index.successor(group) if is_alive else group
            return GroupTarget(new, Target.CREATE, None, may_roll=not index.is_hashed)
        if file_slice is None:
            if self.operation is Operation.DELETE:
                return None
            return GroupTarget(group, Target.CREATE, None, may_roll=not index.is_hashed)
        if not snapshot.config.is_mor or group in self._rewritten:
            return GroupTarget(group, Target.MERGE, file_slice)
        return GroupTarget(group, Target.APPEND, file_slice)

    # ------------------------------------------------------------------ placing rows
    def _by_group(self, located: pa.Table, is_delete: bool) -> Iterator[pa.RecordBatch]:
        """Rows with a place, as batches with the number of their group."""
        table = located.combine_chunks()
        moved = table.column(OLD_FILE_ID)
        numbered = self._numbers(table.column(PARTITION_PATH), table.column(FILE_ID))
        rows = table.select([self.reader_context.rule.key, *self.reader_context.rule.ordering]) if is_delete else table
        rows = rows.drop_columns([name for name in LOCATION_COLUMNS if name in rows.column_names])
        yield from _with_groups(rows, numbered * 2 + int(is_delete))
        if moved.null_count < len(moved):
            gone = table.filter(pc.is_valid(moved))
            old = self._numbers(gone.column(OLD_PARTITION), gone.column(OLD_FILE_ID))
            yield from _with_groups(self._delete_rows(gone), old * 2 + 1)

    def _numbers(self, partitions: pa.ChunkedArray, file_ids: pa.ChunkedArray) -> Ints:
        """The numbers of groups, given out as they turn up."""
        joined = pc.binary_join_element_wise(partitions, file_ids, "\x00").combine_chunks().dictionary_encode()
        known = []
        for text in joined.dictionary.to_pylist():
            partition, _, file_id = text.partition("\x00")
            known.append(self._groups.setdefault(FileGroupId(partition, file_id), len(self._groups)))
        codes = numbers(joined.indices.cast(pa.int64()), np.int64)
        found: Ints = np.asarray(known, dtype=np.int64)[codes]
        return found

    def _delete_rows(self, rows: pa.Table) -> pa.Table:
        """Keys to delete without an ordering value: whatever is there goes."""
        columns = {self.reader_context.rule.key: rows.column(RECORD_KEY)}
        for name in self.reader_context.rule.ordering:
            columns[name] = pa.nulls(rows.num_rows, self.reader_context.schema.field(name).type)
        return pa.table(columns)

    def _place_spooled(self, group_buffers: GroupBuffers, index: Index, snapshot: MetaClient) -> None:
        spools = {buffer.group: buffer for buffer in group_buffers.take((SPOOL, SPOOLED_DELETES))}
        for spool, buffer in spools.items():
            is_delete = spool == SPOOLED_DELETES
            settles = index.is_global and self.operation.looks_up and not is_delete
            names = columns_needed(self.reader_context.rule, buffer.schema) if settles else [RECORD_KEY, PARTITION_PATH]
            table = pa.Table.from_batches([_copied(batch.select(names)) for batch in buffer.batches(1 << 20)])
            located = index.locate(table) if self.operation.looks_up else nowhere(table)
            stays = None
            if is_delete:
                located = deletes_stay(located)
                stays = np.asarray(valid(concat_chunks(located.column(FILE_ID))))
            elif settles:
                settled = settle_moves(
                    located, self.reader_context.rule, self._reader(snapshot), _all(self._view(snapshot)), self.runner
                )
                located, stays = settled.located, settled.stays
            if not is_delete:
                located = self._give_homes(located, snapshot, buffer.nbytes)
            self._buffer_located(group_buffers, buffer, located, stays, is_delete)

    def _buffer_located(
        self, group_buffers: GroupBuffers, buffer: GroupBuffer, located: pa.Table, stays: Bools | None, is_delete: bool
    ) -> None:
        start, folders = 0, Folders.of(self.client.config, self.properties)
        for batch in buffer.batches(1 << 20):
            end = start + batch.num_rows
            places = located.slice(start, batch.num_rows).select([PARTITION_PATH, *LOCATION_COLUMNS])
            rows = pa.Table.from_batches([batch])
            if not is_delete:
                rows = staying(rows, places, self.reader_context.rule, folders)
            index = rows.schema.get_field_index(PARTITION_PATH)
            rows = rows.set_column(index, rows.schema.field(index), places.column(PARTITION_PATH))
            for name in LOCATION_COLUMNS:
                rows = rows.append_column(name, places.column(name))
            if stays is not None and not stays[start:end].all():
                rows = rows.filter(bool_array(stays[start:end]))
            start = end
            if rows.num_rows:
                group_buffers.add(self._by_group(rows, is_delete))

    def _give_homes(self, located: pa.Table, snapshot: MetaClient, nbytes: int) -> pa.Table:
        """A group for every key that has none yet."""
        view, busy = self._view(snapshot), _clustered(snapshot)
        share = nbytes / max(1, located.num_rows)

        def insert_buckets_in(path: str, keys: int) -> list[InsertBucket]:
            slices = () if self.operation.replaces else [one for one in view.slices(path) if one.file_group not in busy]
            is_mor = snapshot.config.is_mor
            places = insert_buckets(slices, int(share * keys), self.options, new_file_id, is_mor=is_mor)
            self._rewritten |= {home.slice.file_group for home in places if home.slice is not None}
            return places

        return assign_inserts(located, insert_buckets_in)

    def _index(self, client: MetaClient) -> Index:
        return open_index(self.index_context(client, self.reader_context, self.runner, self.lister), self.properties)

    def _view(self, client: MetaClient) -> FileSystemView:
        return FileSystemView.of(client, self.lister)

    @staticmethod
    def index_context(
        client: MetaClient, reader_context: ReaderContext, runner: Runner, lister: FileLister | None = None
    ) -> IndexContext:
        """The table as indexes see it."""
        reader = FileGroupReader(client.storage, reader_context, ReadOptions(), reader_context.schema)
        return IndexContext(client, FileSystemView.of(client, lister), reader, runner)

    def _reader(self, client: MetaClient) -> FileGroupReader:
        return FileGroupReader(client.storage, self.reader_context, ReadOptions(), self.reader_context.schema)

    @staticmethod
    def groups_of(
        snapshot: MetaClient, partitions: tuple[str, ...] | None, touched: set[str]
    ) -> dict[str, tuple[str, ...]]:
        """The living groups of some partitions, by partition."""
        view = FileSystemView.of(snapshot)
        paths = sorted(touched) if partitions is None else list(partitions)
        known = set(view.partitions())
        found = {path: tuple(p.file_group.file_id for p in view.slices(path)) for path in paths if path in known}
        return {path: ids for path, ids in found.items() if ids}


def _by_bucket(index: Index, batch: pa.RecordBatch) -> Iterator[tuple[FileGroupId, pa.Array | None]]:
    """The numbers of each file group's rows, None for all."""
    places = index.places(pa.Table.from_batches([batch]))
    for number, rows in rows_by_group(places.of_row):
        place = places.locations[number]
        yield FileGroupId(place.partition_path, place.file_id), rows


def _clustered(snapshot: MetaClient) -> frozenset[FileGroupId]:
    """Groups that are about to be replaced: they take no new keys."""
    plans = [plan.clustering for _, plan in snapshot.pending_clusterings() if plan.clustering is not None]
    parts = (file_slice for plan in plans for group in plan.groups for file_slice in group.slices)
    return frozenset(file_slice.file_group for file_slice in parts)


def _latest(view: FileSystemView, partitions: set[str]) -> dict[FileGroupId, FileSlice]:
    known = set(view.partitions())
    return {
        file_slice.file_group: file_slice for path in sorted(partitions & known) for file_slice in view.slices(path)
    }


def _with_groups(rows: pa.Table, groups: Ints) -> Iterator[pa.RecordBatch]:
    yield from rows.append_column(GROUP_COLUMN, index_array(groups)).combine_chunks().to_batches()


def _constant(number: int, rows: int) -> pa.Array:
    return index_array(np.full(rows, number, dtype=np.int64))


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns apart from the others they were read with, which would stay in memory as long as they do."""
    return batch.take(index_array(np.arange(batch.num_rows, dtype=np.int64)))


def _all(view: FileSystemView) -> Iterator[FileSlice]:
    for path in view.partitions():
        yield from view.slices(path)
