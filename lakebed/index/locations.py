"""What an index answers: rows with the place each belongs to, as further columns.

| column | meaning |
|---|---|
| `_lakebed_file_id` | the file group to write the row to; null: a new key, whose home the writer chooses |
| `_lakebed_instant` | base instant of the slice there; null: the group does not exist yet |
| `_lakebed_old_partition`, `.._old_file_id` | where the key must be deleted, for its row moves to another partition |

An index object serves one write: it sees the table as of one client, and what it hands out for new buckets is the same
for every call, in every process. Bucket indexes work batch by batch; the others want all keys of a write at once, since
each call reads the keys of the files.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.arrow_numpy import index_array_with_nulls
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.model.concat import concat_chunks
from lakebed.model.files import FileGroupId
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.runner import Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

FILE_ID = "_lakebed_file_id"
INSTANT = "_lakebed_instant"
OLD_PARTITION = "_lakebed_old_partition"
OLD_FILE_ID = "_lakebed_old_file_id"
LOCATION_COLUMNS = (FILE_ID, INSTANT, OLD_PARTITION, OLD_FILE_ID)
ROWS_AT_ONCE = 1 << 20
"""Rows that get their location columns together: names of places take up to a thousand bytes each."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyLocation:
    """Where a key lives, or shall live: the instant is empty while the file group does not exist."""

    partition_path: str
    file_id: str
    requested_time: str


@dataclass(frozen=True, slots=True)
class IndexContext:
    """The table as one write sees it. The reader knows the table's schema and merge rule; its columns do not matter."""

    client: MetaClient
    view: FileSystemView
    reader: FileGroupReader
    runner: Runner


@dataclass(frozen=True, slots=True)
class Places:
    """A list of locations, and for each row its number in the list or -1."""

    locations: tuple[KeyLocation, ...]
    of_row: Ints


class Index(ABC):
    """Finds the file groups of rows. An index of its own kind answers `places`, and says what it is good for.

    What it does not say is as for an index that looks keys up and whose file groups take any key.
    """

    is_global: bool = False
    """Whether a key is unique in the table, not only in its partition."""
    moves: bool = True
    """For a global index: whether a key follows its row to another partition."""
    is_hashed: bool = False
    """Whether places follow from keys alone: rows may come batch by batch, and every row gets a place."""
    places_by_bucket: bool = False
    """Whether a fixed bucket of the key is all there is to a place: threads may ask for places at once."""

    @abstractmethod
    def places(self, rows: pa.Table) -> Places:
        """Where the rows, which have a record key and a partition path, belong."""

    def locate(self, rows: pa.Table) -> pa.Table:
        """The rows with the location columns; order is kept."""
        return with_places(rows, self.places(rows), is_global=self.is_global, moves=self.moves)

    def is_place(self, group: FileGroupId) -> bool:
        """Once a write has begun: whether a hashed index still sends rows to a group where it sent some before.

        What later writers must find of a place that is new is left behind here.
        """
        return True

    def successor(self, group: FileGroupId) -> FileGroupId:
        """A new group in the place of one that is about to be replaced, where a hashed index has to find it later.

        The id that is replaced is retired, and must not be handed out again.
        """
        return FileGroupId(group.partition_path, new_file_id())

    def renew_partition(self, partition_path: str, requested_time: str) -> None:
        """Before a commit that retires the file groups of a partition: leave what says where rows go from then on."""
        return


def with_places(rows: pa.Table, places: Places, *, is_global: bool = False, moves: bool = True) -> pa.Table:
    """The rows with their location columns.

    A global index may find a key in another partition than the row says. With `moves` the row then goes to its new
    partition as a new key and the old place is named for the delete; otherwise it goes where the key is, and its
    partition path changes (the writer sees to it that its partition columns follow).
    """
    names = ("partition_path", "file_id", "requested_time")
    known = [_column(places, name) for name in names]
    parts = [
        _tagged(rows.slice(start, ROWS_AT_ONCE), known, places.of_row[start : start + ROWS_AT_ONCE], is_global, moves)
        for start in range(0, max(1, rows.num_rows), ROWS_AT_ONCE)
    ]
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def new_file_id() -> str:
    """A file id that nobody has used."""
    return f"{uuid.uuid4()}-0"


def nowhere(rows: pa.Table) -> pa.Table:
    """The rows with location columns that say nothing: all keys are new."""
    for name in LOCATION_COLUMNS:
        rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
    return rows


def _tagged(rows: pa.Table, known: list[pa.Array], of_row: Ints, is_global: bool, moves: bool) -> pa.Table:
    """Some rows with their location columns: the names of few places, repeated for all rows, outgrow a column."""
    found = index_array_with_nulls(of_row)
    partitions, file_ids, instants = (column.take(found) for column in known)
    nothing = pa.nulls(rows.num_rows, pa.string())
    old_partitions = old_file_ids = nothing
    if is_global:
        stated = concat_chunks(rows.column(PARTITION_PATH))
        moved = pc.fill_null(pc.not_equal(partitions, stated), False)
        if moves:
            old_partitions = pc.if_else(moved, partitions, nothing)
            old_file_ids = pc.if_else(moved, file_ids, nothing)
            file_ids, instants = (pc.if_else(moved, nothing, column) for column in (file_ids, instants))
        else:
            index = rows.schema.get_field_index(PARTITION_PATH)
            rows = rows.set_column(index, rows.schema.field(index), pc.if_else(moved, partitions, stated))
    for name, column in zip(LOCATION_COLUMNS, (file_ids, instants, old_partitions, old_file_ids), strict=True):
        rows = rows.append_column(pa.field(name, pa.string()), column)
    return rows


def distinct(rows: pa.Table, column: str) -> tuple[pa.Array, Ints]:
    """The distinct values of a text column (64-bit offsets if need be), and for each row the number of its value."""
    encoded = concat_chunks(rows.column(column)).dictionary_encode()
    return encoded.dictionary, np.asarray(encoded.indices.cast(pa.int64()))


def distinct_keys(rows: pa.Table) -> tuple[pa.Array, Ints]:
    """The distinct record keys, and for each row the number of its key."""
    return distinct(rows, RECORD_KEY)


def _column(places: Places, name: str) -> pa.Array:
    values = [getattr(location, name) for location in places.locations]
    return pa.array([value or None for value in values] if name == "requested_time" else values, pa.string())
