"""Rows of indexes without a hash: keys are looked up in parts that fit the memory, and new keys get a file group.

buffered rows ──► parts by key whose keys fit ──► look-up ──► keys that move or stay ──► groups of new keys ──► buffers
inserts without a look-up                          counted ──► groups of new keys, in their order            ──► buffers
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.config.memory_plan import MemoryPlan
from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.index.locations import FILE_ID, LOCATION_COLUMNS, Index, new_file_id, nowhere
from lakebed.merge.arrow_numpy import Bools, bool_array, valid
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.concat import concat_chunks
from lakebed.model.files import FileGroupId
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.runner import Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GroupBuffer, GroupBuffers
from lakebed.write.rows.key_parts import key_parts
from lakebed.write.tagging.group_numbers import GroupNumbers
from lakebed.write.tagging.keep_partition import Folders, with_kept_partitions
from lakebed.write.tagging.partition_moves import columns_needed, deletes_stay, settle_moves
from lakebed.write.tagging.small_files import SLOTS, InsertBucket, assign_inserts, insert_buckets
from lakebed.write.tagging.targets import all_slices, groups_being_clustered

UNTAGGED = -1
"""The buffer of rows that wait for a look-up."""
UNTAGGED_DELETES = -2
_BATCH_ROWS = 1 << 20
_KEY_COLUMNS = [RECORD_KEY, PARTITION_PATH]
_Taken = dict[str, Counter[str]]
"""Bytes of new rows that file groups took, by partition path and file id."""


@dataclass(frozen=True, slots=True)
class UntaggedRows:
    """The rows of one write that wait for a look-up, and the table as it is when the write begins."""

    operation: Operation
    options: WriteOptions
    properties: Mapping[str, str]
    reader_context: ReaderContext
    runner: Runner
    memory: int
    index: Index
    snapshot: MetaClient
    view: FileSystemView
    groups: GroupNumbers
    rewritten: set[FileGroupId]
    """Collects the groups whose base file takes new keys."""

    def tag(self, group_buffers: GroupBuffers) -> None:
        """Buffer all rows by file group."""
        taken: _Taken = {}
        for buffer in group_buffers.take((UNTAGGED, UNTAGGED_DELETES)):
            is_delete = buffer.group == UNTAGGED_DELETES
            if self.operation.looks_up:
                settles = self.index.is_global and not is_delete
                names = columns_needed(self.reader_context.rule, buffer.schema) if settles else _KEY_COLUMNS
                share = MemoryPlan(self.memory).write.lookup
                for part, table in key_parts(group_buffers, buffer, RECORD_KEY, names, share):
                    located, kept = self._look_up(table, is_delete)
                    if not is_delete:
                        buckets_in = self._insert_buckets(part.nbytes / max(1, located.num_rows), taken)
                        located = assign_inserts(located, buckets_in)
                    self._buffer_located(group_buffers, part, located, kept, is_delete)
            elif not is_delete:
                self._buffer_new(group_buffers, buffer)

    def _look_up(self, table: pa.Table, is_delete: bool) -> tuple[pa.Table, Bools | None]:
        """Rows with the locations of their keys, and which of them are written at all; None is all of them."""
        located = self.index.locate(table)
        if is_delete:
            located = deletes_stay(located)
            return located, np.asarray(valid(concat_chunks(located.column(FILE_ID))))
        if not self.index.is_global:
            return located, None
        reader = look_up_reader(self.snapshot, self.reader_context, self.runner, self.memory)
        settled = settle_moves(located, self.reader_context.rule, reader, all_slices(self.view), self.runner)
        return settled.located, settled.stays

    def _buffer_new(self, group_buffers: GroupBuffers, buffer: GroupBuffer) -> None:
        """Rows whose keys are not looked up: counted first, then tagged batch by batch, in their order."""
        counts: Counter[str] = Counter()
        for batch in buffer.batches(_BATCH_ROWS):
            for found in batch.column(PARTITION_PATH).value_counts().to_pylist():
                counts[found["values"]] += found["counts"]
        folders = Folders.of(self.snapshot.config, self.properties)
        buckets_in = self._insert_buckets(buffer.nbytes / max(1, buffer.rows), {})
        buckets = {path: buckets_in(path, count) for path, count in counts.items()}
        for batch in buffer.batches(_BATCH_ROWS):
            new = nowhere(pa.Table.from_batches([batch.select(_KEY_COLUMNS)]))
            located = assign_inserts(new, lambda path, _: buckets[path])
            self._buffer_batch(group_buffers, batch, located, None, folders)

    def _buffer_located(
        self, group_buffers: GroupBuffers, buffer: GroupBuffer, located: pa.Table, kept: Bools | None, is_delete: bool
    ) -> None:
        """Buffer the rows by group, as their keys were located; those that are not `kept` are left out."""
        start, folders = 0, None if is_delete else Folders.of(self.snapshot.config, self.properties)
        for batch in buffer.batches(_BATCH_ROWS):
            end = start + batch.num_rows
            own = kept[start:end] if kept is not None else None
            self._buffer_batch(group_buffers, batch, located.slice(start, batch.num_rows), own, folders)
            start = end

    def _buffer_batch(
        self,
        group_buffers: GroupBuffers,
        batch: pa.RecordBatch,
        located: pa.Table,
        kept: Bools | None,
        folders: Folders | None,
    ) -> None:
        """Rows to the groups they were located in; deletes have no partition columns, and so no folders."""
        locations = located.select([PARTITION_PATH, *LOCATION_COLUMNS])
        rows = pa.Table.from_batches([batch])
        if folders is not None:
            rows = with_kept_partitions(rows, locations, self.reader_context.rule, folders)
        index = rows.schema.get_field_index(PARTITION_PATH)
        rows = rows.set_column(index, rows.schema.field(index), locations.column(PARTITION_PATH))
        for name in LOCATION_COLUMNS:
            rows = rows.append_column(name, locations.column(name))
        if kept is not None and not kept.all():
            rows = rows.filter(bool_array(kept))
        if rows.num_rows:
            group_buffers.add(self.groups.numbered_rows(rows, self.reader_context, is_delete=folders is None))

    def _insert_buckets(self, row_bytes: float, taken: _Taken) -> Callable[[str, int], list[InsertBucket]]:
        """The groups of so many new keys of a partition; `taken` is what earlier parts of the write took."""
        busy, is_mor = groups_being_clustered(self.snapshot), self.snapshot.config.is_mor

        def insert_buckets_in(path: str, keys: int) -> list[InsertBucket]:
            slices = [] if self.operation.replaces else self.view.slices(path)
            free = [one for one in slices if one.file_group not in busy]
            size, used = int(row_bytes * keys), taken.setdefault(path, Counter())
            buckets = insert_buckets(free, size, self.options, new_file_id, is_mor=is_mor, taken=used)
            used.update({bucket.file_id: size * bucket.slots // SLOTS for bucket in buckets})
            self.rewritten.update(bucket.slice.file_group for bucket in buckets if bucket.slice is not None)
            return buckets

        return insert_buckets_in


def look_up_reader(client: MetaClient, reader_context: ReaderContext, runner: Runner, memory: int) -> FileGroupReader:
    """Reads slices in which keys are looked for; as many as the runner runs at once share the memory for look-ups."""
    share = MemoryPlan(memory).write.lookup.reader(runner.at_once)
    return FileGroupReader(client.storage, reader_context, ReadOptions(memory=share), reader_context.schema)
