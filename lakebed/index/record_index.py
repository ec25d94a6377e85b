"""The record index: the metadata table stores the file group of every key of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.errors import InvalidRequest
from lakebed.format.metadata.keys import partition_path
from lakebed.format.metadata.records import RecordIndexRecord
from lakebed.index.kinds import IndexKind
from lakebed.index.locations import Index, IndexContext, KeyLocation, Places, distinct_keys
from lakebed.index.options import IndexOptions
from lakebed.metadata.metadata_table import MetadataTable
from lakebed.model.files import FileGroupId

RECORD_INDEX = "record_index"
_KEYS_AT_ONCE = 100_000


@dataclass(slots=True)
class RecordIndex(Index):
    """The record index of one write. A location whose file group no longer exists is ignored."""

    context: IndexContext
    table: MetadataTable
    moves: bool = False

    is_global = True

    def __post_init__(self) -> None:
        if not self.table.has(RECORD_INDEX):
            raise InvalidRequest("the table has no record index", hint="Build it first, or choose another index.")

    def places(self, rows: pa.Table) -> Places:
        """The locations in the metadata table."""
        keys, key_of = distinct_keys(rows)
        owners = np.full(len(keys), -1, np.int64)
        numbers: dict[FileGroupId, int] = {}
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            texts = keys.slice(start, _KEYS_AT_ONCE).to_pylist()
            found = self.table.lookup(RECORD_INDEX, texts)
            for at, text in enumerate(texts, start):
                record = found.get(text)
                if isinstance(record, RecordIndexRecord):
                    group = FileGroupId(partition_path(record.partition), record.file_id)
                    owners[at] = numbers.setdefault(group, len(numbers))
        locations = self._locations(list(numbers))
        known = np.array([location.requested_time != "" for location in locations] or [False], np.bool_)
        owners = np.where((owners >= 0) & known[owners], owners, -1)
        return Places(tuple(locations), owners[key_of])

    def _locations(self, groups: list[FileGroupId]) -> list[KeyLocation]:
        instants: dict[FileGroupId, str] = {}
        for path in {group.partition_path for group in groups}:
            instants |= {
                file_slice.file_group: file_slice.base_instant_time for file_slice in self.context.view.slices(path)
            }
        return [KeyLocation(group.partition_path, group.file_id, instants.get(group, "")) for group in groups]


def open_record_index(context: IndexContext, options: IndexOptions, properties: Mapping[str, str]) -> RecordIndex:
    """The record index of one write, of a table that has one."""
    table = MetadataTable.open(context.client)
    if table is None:
        raise InvalidRequest("the table has no metadata table, and so no record index")
    return RecordIndex(context, table, moves=options.record_moves)


RECORD_INDEX_KIND = IndexKind("RECORD_INDEX", open_record_index, is_global=True, can_create=False)
