"""Which file group every incoming row goes to, and what becomes of it there.

    hashed index      place ──► pile by group                                        (one pass)
    other indexes     pile everything up ──► look keys up ──► pile by group          (in parts whose keys fit)
    no look-up        inserts without a hash: homes by key, small files first

Under a global index a row may find its key in another partition: `partition_moves` says what becomes of it, and
`keep_partition` what its partition columns hold where a key is told to stay.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import DEFAULT_WRITE_MEMORY, LookupMemory, MemoryPlan
from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.errors import ConflictError
from lakebed.index.bucket import BucketIndex, bucket_of_file_id
from lakebed.index.choose import open_index
from lakebed.index.consistent import ConsistentBucketIndex
from lakebed.index.locations import FILE_ID, LOCATION_COLUMNS, OLD_FILE_ID, OLD_PARTITION, Index, IndexContext, nowhere
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
from lakebed.write.rows.key_parts import key_parts
from lakebed.write.tagging.keep_partition import Folders, staying
from lakebed.write.tagging.partition_moves import columns_needed, deletes_stay, settle_moves
from lakebed.write.tagging.small_files import SLOTS, InsertBucket, assign_inserts, insert_buckets
from lakebed.write.task.write_task import GroupTarget, Incoming, Target
from lakebed.write.write_checks import refuse_unnamed_buckets

_KEY_COLUMNS = [RECORD_KEY, PARTITION_PATH]
_Taken = dict[str, Counter[str]]
"""Bytes of new rows that file groups were given, by partition path and file id."""
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
    memory: int = DEFAULT_WRITE_MEMORY
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
            if isinstance(index, BucketIndex):
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
        index: BucketIndex,
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

        runner = LocalRunner(os.cpu_count(), PARTS_IN_FLIGHT) if isinstance(self.runner, LocalRunner) else self.runner
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
        assert isinstance(index, BucketIndex)
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
            if isinstance(index, ConsistentBucketIndex):
                now = group.file_id if group.file_id in index.file_ids(group.partition_path) else None
                index.save_initial(group.partition_path)
            elif isinstance(index, BucketIndex):
                bucket = bucket_of_file_id(group.file_id)
                now = index.group(group.partition_path, bucket).file_id if bucket is not None else None
            else:
                continue
            if now != group.file_id:
                raise ConflictError(
                    f"the file group {group} was replaced by another writer just now", hint="Write again."
                )

    def _target(
        self, snapshot: MetaClient, index: Index, group: FileGroupId, file_slice: FileSlice | None, is_alive: bool
    ) -> GroupTarget | None:
        if self.operation.replaces:
            new = _fresh(group, index) if is_alive else group
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
        taken: _Taken = {}
        for buffer in group_buffers.take((SPOOL, SPOOLED_DELETES)):
            is_delete = buffer.group == SPOOLED_DELETES
            if self.operation.looks_up:
                settles = index.is_global and not is_delete
                names = columns_needed(self.reader_context.rule, buffer.schema) if settles else _KEY_COLUMNS
                for part, table in key_parts(group_buffers, buffer, RECORD_KEY, names, self._lookup):
                    located, stays = self._look_up(index, table, snapshot, is_delete)
                    if not is_delete:
                        located = self._give_homes(located, snapshot, part.nbytes, taken)
                    self._buffer_located(group_buffers, part, located, stays, is_delete)
            elif not is_delete:
                self._place_new(group_buffers, buffer, snapshot)

    def _look_up(
        self, index: Index, table: pa.Table, snapshot: MetaClient, is_delete: bool
    ) -> tuple[pa.Table, Bools | None]:
        """Rows with the places of their keys, and which of them are written at all; None is all of them."""
        located = index.locate(table)
        if is_delete:
            located = deletes_stay(located)
            return located, np.asarray(valid(concat_chunks(located.column(FILE_ID))))
        if not index.is_global:
            return located, None
        slices = _all(self._view(snapshot))
        settled = settle_moves(located, self.reader_context.rule, self._reader(snapshot), slices, self.runner)
        return settled.located, settled.stays

    def _place_new(self, group_buffers: GroupBuffers, buffer: GroupBuffer, snapshot: MetaClient) -> None:
        """Rows whose keys nobody looks for: counted first, then given homes batch by batch, in their order."""
        counts: Counter[str] = Counter()
        for batch in buffer.batches(1 << 20):
            for found in batch.column(PARTITION_PATH).value_counts().to_pylist():
                counts[found["values"]] += found["counts"]
        folders = Folders.of(self.client.config, self.properties)
        buckets_in = self._insert_buckets(snapshot, buffer.nbytes / max(1, buffer.rows), {})
        places = {path: buckets_in(path, count) for path, count in counts.items()}
        for batch in buffer.batches(1 << 20):
            located = assign_inserts(
                nowhere(pa.Table.from_batches([batch.select(_KEY_COLUMNS)])), lambda path, _: places[path]
            )
            self._buffer_batch(group_buffers, batch, located, None, folders)

    def _buffer_located(
        self, group_buffers: GroupBuffers, buffer: GroupBuffer, located: pa.Table, stays: Bools | None, is_delete: bool
    ) -> None:
        start, folders = 0, None if is_delete else Folders.of(self.client.config, self.properties)
        for batch in buffer.batches(1 << 20):
            end = start + batch.num_rows
            own = stays[start:end] if stays is not None else None
            self._buffer_batch(group_buffers, batch, located.slice(start, batch.num_rows), own, folders)
            start = end

    def _buffer_batch(
        self,
        group_buffers: GroupBuffers,
        batch: pa.RecordBatch,
        located: pa.Table,
        stays: Bools | None,
        folders: Folders | None,
    ) -> None:
        """Rows to the groups they were located in; deletes have no partition columns, and so no folders."""
        places = located.select([PARTITION_PATH, *LOCATION_COLUMNS])
        rows = pa.Table.from_batches([batch])
        if folders is not None:
            rows = staying(rows, places, self.reader_context.rule, folders)
        index = rows.schema.get_field_index(PARTITION_PATH)
        rows = rows.set_column(index, rows.schema.field(index), places.column(PARTITION_PATH))
        for name in LOCATION_COLUMNS:
            rows = rows.append_column(name, places.column(name))
        if stays is not None and not stays.all():
            rows = rows.filter(bool_array(stays))
        if rows.num_rows:
            group_buffers.add(self._by_group(rows, is_delete=folders is None))

    def _give_homes(self, located: pa.Table, snapshot: MetaClient, nbytes: int, taken: _Taken) -> pa.Table:
        """A group for every key that has none yet; `taken` is what earlier parts of the write were given."""
        return assign_inserts(located, self._insert_buckets(snapshot, nbytes / max(1, located.num_rows), taken))

    def _insert_buckets(
        self, snapshot: MetaClient, row_bytes: float, taken: _Taken
    ) -> Callable[[str, int], list[InsertBucket]]:
        """The homes of so many new keys of a partition."""
        view, busy = self._view(snapshot), _clustered(snapshot)

        def insert_buckets_in(path: str, keys: int) -> list[InsertBucket]:
            slices = () if self.operation.replaces else [one for one in view.slices(path) if one.file_group not in busy]
            size, used = int(row_bytes * keys), taken.setdefault(path, Counter())
            places = insert_buckets(slices, size, self.options, _new_file_id, is_mor=snapshot.config.is_mor, taken=used)
            used.update({home.file_id: size * home.slots // SLOTS for home in places})
            self._rewritten |= {home.slice.file_group for home in places if home.slice is not None}
            return places

        return insert_buckets_in

    def _index(self, client: MetaClient) -> Index:
        context = self.index_context(client, self.reader_context, self.runner, self.lister, self.memory)
        return open_index(context, self.properties)

    def _view(self, client: MetaClient) -> FileSystemView:
        return FileSystemView.of(client, self.lister)

    @staticmethod
    def index_context(
        client: MetaClient,
        reader_context: ReaderContext,
        runner: Runner,
        lister: FileLister | None = None,
        memory: int = DEFAULT_WRITE_MEMORY,
    ) -> IndexContext:
        """The table as indexes see it."""
        reader = _reader(client, reader_context, runner, memory)
        return IndexContext(client, FileSystemView.of(client, lister), reader, runner)

    def _reader(self, client: MetaClient) -> FileGroupReader:
        return _reader(client, self.reader_context, self.runner, self.memory)

    @property
    def _lookup(self) -> LookupMemory:
        return MemoryPlan(self.memory).write.lookup

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


def _reader(client: MetaClient, reader_context: ReaderContext, runner: Runner, memory: int) -> FileGroupReader:
    """Reads slices in which keys are looked for; as many at once as the runner runs share their part of the memory."""
    share = MemoryPlan(memory).write.lookup.reader(runner.at_once if isinstance(runner, LocalRunner) else 1)
    return FileGroupReader(client.storage, reader_context, ReadOptions(memory=share), reader_context.schema)


def _by_bucket(index: BucketIndex, batch: pa.RecordBatch) -> Iterator[tuple[FileGroupId, pa.Array | None]]:
    """The numbers of each file group's rows, None for all."""
    places = index.places(pa.Table.from_batches([batch]))
    for number, rows in rows_by_group(places.of_row):
        place = places.locations[number]
        yield FileGroupId(place.partition_path, place.file_id), rows


def _clustered(snapshot: MetaClient) -> frozenset[FileGroupId]:
    """Groups that are about to be replaced: they take no new keys."""
    plans = [plan.clustering for _, plan in snapshot.pending_clusterings() if plan.clustering is not None]
    parts = (file_slice for plan in plans for group in plan.groups for file_slice in group.slices)
    return frozenset(FileGroupId(file_slice.partition_path, file_slice.file_id) for file_slice in parts)


def _latest(view: FileSystemView, partitions: set[str]) -> dict[FileGroupId, FileSlice]:
    known = set(view.partitions())
    return {
        file_slice.file_group: file_slice for path in sorted(partitions & known) for file_slice in view.slices(path)
    }


def _with_groups(rows: pa.Table, groups: Ints) -> Iterator[pa.RecordBatch]:
    yield from rows.append_column(GROUP_COLUMN, index_array(groups)).combine_chunks().to_batches()


def _constant(number: int, rows: int) -> pa.Array:
    return index_array(np.full(rows, number, dtype=np.int64))


def _new_file_id() -> str:
    return f"{uuid.uuid4()}-0"


def _all(view: FileSystemView) -> Iterator[FileSlice]:
    for path in view.partitions():
        yield from view.slices(path)


def _fresh(group: FileGroupId, index: Index) -> FileGroupId:
    """A new group in the place of one that is about to be replaced; a bucket keeps its number, or place on the ring."""
    if isinstance(index, ConsistentBucketIndex):
        places = zip(index.ring(group.partition_path).ring, index.renewed(group.partition_path).ring, strict=True)
        return FileGroupId(
            group.partition_path, next(new.file_id for old, new in places if old.file_id == group.file_id)
        )
    bucket = bucket_of_file_id(group.file_id) if index.is_hashed else None
    new = _new_file_id()
    return FileGroupId(group.partition_path, new if bucket is None else f"{bucket:08d}{new[8:]}")
