"""File groups by number: buffers are keyed by numbers, two for each file group of the write.

2n        rows of the group
2n + 1    keys that are deleted from it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.index.locations import FILE_ID, LOCATION_COLUMNS, OLD_FILE_ID, OLD_PARTITION
from lakebed.merge.arrow_numpy import Ints, index_array, numbers
from lakebed.merge.reader_context import ReaderContext
from lakebed.model.files import FileGroupId
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.write.rows.group_buffers import GROUP_COLUMN, GroupBuffer
from lakebed.write.task.write_task import Incoming


@dataclass(slots=True)
class GroupNumbers:
    """The file groups of one write, numbered in order of first use."""

    _numbers: dict[FileGroupId, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[FileGroupId]:
        return iter(self._numbers)

    def number(self, group: FileGroupId) -> int:
        """The number of a group, a new one for a group that was not seen before."""
        return self._numbers.setdefault(group, len(self._numbers))

    def buffer_number(self, group: FileGroupId, *, is_delete: bool) -> int:
        """The number of the buffer that takes rows of a group, or keys to delete from it."""
        return 2 * self.number(group) + int(is_delete)

    def numbered_rows(
        self, located: pa.Table, reader_context: ReaderContext, *, is_delete: bool
    ) -> Iterator[pa.RecordBatch]:
        """Rows with a location, as batches with the number of their buffer.

        Rows whose key was found elsewhere come with a second batch, which deletes the key there.
        """
        rule, table = reader_context.rule, located.combine_chunks()
        moved = table.column(OLD_FILE_ID)
        of_row = self._of_rows(table.column(PARTITION_PATH), table.column(FILE_ID))
        rows = table.select([rule.key, *rule.ordering]) if is_delete else table
        rows = rows.drop_columns([name for name in LOCATION_COLUMNS if name in rows.column_names])
        yield from _with_numbers(rows, of_row * 2 + int(is_delete))
        if moved.null_count < len(moved):
            gone = table.filter(pc.is_valid(moved))
            old = self._of_rows(gone.column(OLD_PARTITION), gone.column(OLD_FILE_ID))
            yield from _with_numbers(_unordered_deletes(gone, reader_context), old * 2 + 1)

    def _of_rows(self, partitions: pa.ChunkedArray, file_ids: pa.ChunkedArray) -> Ints:
        joined = pc.binary_join_element_wise(partitions, file_ids, "\x00").combine_chunks().dictionary_encode()
        known = []
        for text in joined.dictionary.to_pylist():
            partition, _, file_id = text.partition("\x00")
            known.append(self.number(FileGroupId(partition, file_id)))
        codes = numbers(joined.indices.cast(pa.int64()), np.int64)
        found: Ints = np.asarray(known, dtype=np.int64)[codes]
        return found


def incoming_by_group(buffers: list[GroupBuffer]) -> Iterator[tuple[int, Incoming, int]]:
    """The incoming data of every group, by its number: rows and deletes, and how many there are."""
    by_group: dict[int, dict[bool, GroupBuffer]] = {}
    for buffer in buffers:
        if buffer.group >= 0:
            by_group.setdefault(buffer.group // 2, {})[bool(buffer.group % 2)] = buffer
    for number, both in sorted(by_group.items()):
        rows, deletes = both.get(False), both.get(True)
        incoming = Incoming(
            rows.batches if rows else None,
            deletes.batches if deletes else None,
            rows.nbytes if rows else None,
            deletes.nbytes if deletes else None,
        )
        yield number, incoming, (rows.rows if rows else 0) + (deletes.rows if deletes else 0)


def _with_numbers(rows: pa.Table, buffers: Ints) -> Iterator[pa.RecordBatch]:
    yield from rows.append_column(GROUP_COLUMN, index_array(buffers)).combine_chunks().to_batches()


def _unordered_deletes(rows: pa.Table, reader_context: ReaderContext) -> pa.Table:
    """Keys to delete without an ordering value: they delete any version of the row."""
    columns = {reader_context.rule.key: rows.column(RECORD_KEY)}
    for name in reader_context.rule.ordering:
        columns[name] = pa.nulls(rows.num_rows, reader_context.schema.field(name).type)
    return pa.table(columns)
