"""The result of an index: rows with the file group of each in further columns.

| column | meaning |
|---|---|
| `_lakebed_file_id` | the file group to write the row to; null: a new key, whose file group the writer chooses |
| `_lakebed_instant` | base instant of the slice there; null: the group does not exist yet |
| `_lakebed_old_partition`, `.._old_file_id` | where the key must be deleted, for its row moves to another partition |

An index object serves one write: it sees the table as of one client, and the file ids that it allocates for new buckets
are the same for every call, in every process. Bucket indexes work batch by batch; the others should get all keys of a
write at once, since each call reads the keys of the files.
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
"""Rows that get their location columns together: the texts of a location take up to a thousand bytes."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyLocation:
    """The file group of a key, existing or new: the instant is empty while the file group does not exist."""

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
    """Finds the file groups of rows. A subclass implements `places`, and sets the flags below.

    The defaults are those of an index that looks keys up and whose file groups take any key.
    """

    is_global: bool = False
    """Whether a key is unique in the table, not only in its partition."""
    moves: bool = True
    """For a global index: whether a key follows its row to another partition."""
    is_hashed: bool = False
    """Whether file groups follow from keys alone: rows may come batch by batch, and every row gets a file group."""
    places_by_bucket: bool = False
    """Whether a location depends on a fixed bucket of the key only: `places` may be called from several threads."""

    @abstractmethod
    def places(self, rows: pa.Table) -> Places:
        """The locations of the rows, which have a record key and a partition path."""

    def locate(self, rows: pa.Table) -> pa.Table:
        """The rows with the location columns; order is kept."""
        return with_places(rows, self.places(rows), is_global=self.is_global, moves=self.moves)

    def is_place(self, group: FileGroupId) -> bool:
        """After a write has begun: whether a hashed index still assigns rows to a group that it chose before.

        If the group is new, what later writers need to find it is stored here.
        """
        return True

    def successor(self, group: FileGroupId) -> FileGroupId:
        """A new group for one that is about to be replaced, with an id by which a hashed index finds it later.

        The replaced id must not be allocated again.
        """
        return FileGroupId(group.partition_path, new_file_id())

    def renew_partition(self, partition_path: str, requested_time: str) -> None:
        """Before a commit that replaces the file groups of a partition: store where rows go from then on."""
        return


def with_places(rows: pa.Table, places: Places, *, is_global: bool = False, moves: bool = True) -> pa.Table:
    """The rows with their location columns.

    A global index may find a key in another partition than that of the row. With `moves` the row then goes to its new
    partition as a new key and the old location is returned for the delete; otherwise it goes where the key is, and its
    partition path changes (the writer changes its partition columns accordingly).
    """
    names = ("partition_path", "file_id", "requested_time")
    known = [_column(places, name) for name in names]
    parts = [
        _tagged(rows.slice(start, ROWS_AT_ONCE), known, places.of_row[start : start + ROWS_AT_ONCE], is_global, moves)
        for start in range(0, max(1, rows.num_rows), ROWS_AT_ONCE)
    ]
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def new_file_id() -> str:
    """A file id that has not been used before."""
    return f"{uuid.uuid4()}-0"


def nowhere(rows: pa.Table) -> pa.Table:
    """The rows with empty location columns: all keys are new."""
    for name in LOCATION_COLUMNS:
        rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
    return rows


def _tagged(rows: pa.Table, known: list[pa.Array], of_row: Ints, is_global: bool, moves: bool) -> pa.Table:
    """Some rows with their location columns: texts repeated for all rows may be too large for one array."""
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
