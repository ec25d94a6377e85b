"""The log writer interface: rows and deletes of one file group into log files of either format.

    write_earlier_deletes    keys that were deleted and then written again: these come *before* the rows, and must be
                             passed in before the rows of the same keys
    write_rows               inserts and updates
    write_deletes            keys that are gone, with the ordering value of the delete, or without

Log compaction needs the first: dropping an unconditional delete that a later insert follows would let an older row
with a greater ordering value come back. Otherwise a key is in one of the three only. `write_rows` takes all columns but
the partition path and the file name, which in logs is the file id. Deletes come as `_hoodie_record_key` and the
ordering columns, all of them null where the delete has no ordering value; one that is missing is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.datafile.column_encoding import aligned
from lakebed.datafile.key_bounds import KeyBounds
from lakebed.datafile.writers import UNFILLED, FileSchema, WriteTarget, WrittenFile, key_column, place_columns
from lakebed.errors import InvalidRequest
from lakebed.format.log.block import Header
from lakebed.format.log.block_content import delete_schema
from lakebed.model.actions import WriteStat
from lakebed.model.schema import RECORD_KEY
from lakebed.paths import file_name

Positions = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class LogSpec:
    """What a log's headers record, whatever its format."""

    schema: FileSchema
    ordering: tuple[pa.Field, ...] = ()
    is_sorted: bool = True
    is_partial: bool = False
    compacted_times: tuple[str, ...] = ()
    positions_base: str | None = None
    has_earlier_deletes: bool = False
    populate_meta_fields: bool = True
    """Whether rows keep their meta columns in the log; where not, they still come with their key."""

    def header(self, requested_time: str, positions: str | None = None) -> dict[Header, str]:
        """The header entries that data and deletes share; positions and the base file they count go together."""
        header = {Header.INSTANT_TIME: requested_time, Header.SCHEMA: self.schema.avro_json}
        if self.compacted_times:
            header[Header.COMPACTED_BLOCK_TIMES] = ",".join(self.compacted_times)
        if positions is not None and self.positions_base is not None:
            header[Header.RECORD_POSITIONS] = positions
            header[Header.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] = self.positions_base
        return header


class LogWriter(Protocol):
    """One delta of one file group; `close` publishes it as one file or more."""

    def write_rows(self, batch: pa.RecordBatch, *, inserts: int = 0, positions: Positions | None = None) -> None:
        """Rows, of which `inserts` are new to the table; `positions` are their row numbers in the base file."""
        ...

    def write_deletes(self, batch: pa.RecordBatch, *, positions: Positions | None = None) -> None: ...

    def write_earlier_deletes(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> list[WrittenFile]: ...

    def abort(self) -> None: ...

    def __enter__(self) -> LogWriter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LogInput:
    """Checks what comes in and brings it into the shape of the files; in the caller's thread, so errors point there."""

    def __init__(self, spec: LogSpec, target: WriteTarget, label: str) -> None:
        self._spec = spec
        self._label = label
        stored = spec.populate_meta_fields
        self._places = place_columns(target, target.file_group.file_id) if stored else UNFILLED
        self._delete_schema = delete_schema(spec.ordering)
        self._rows = KeyBounds(label, is_sorted=spec.is_sorted)
        self._deletes = KeyBounds(label, is_sorted=spec.is_sorted)
        self._earlier = KeyBounds(label, is_sorted=spec.is_sorted)
        if RECORD_KEY not in spec.schema.arrow.names:
            raise InvalidRequest(f"rows of a log need the column {RECORD_KEY}", file=label)

    def rows(self, batch: pa.RecordBatch, positions: Positions | None) -> pa.RecordBatch:
        self._check_positions(batch, positions)
        self._rows.add(key_column(batch, self._label))
        return aligned(batch, self._spec.schema.arrow, self._places, self._label)

    def deletes(self, batch: pa.RecordBatch, positions: Positions | None = None) -> pa.RecordBatch:
        self._check_positions(batch, positions)
        batch = self._delete_rows(batch)
        self._deletes.add(batch.column(0))
        return batch

    def earlier_deletes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._spec.has_earlier_deletes:
            raise InvalidRequest("this log was opened without earlier deletes", file=self._label)
        batch = self._delete_rows(batch)
        self._earlier.add(batch.column(0))
        return batch

    def _delete_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        absent = [field for field in self._delete_schema if field.name not in batch.schema.names and field.nullable]
        for field in absent:
            batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        return aligned(batch, self._delete_schema, {}, self._label)

    def _check_positions(self, batch: pa.RecordBatch, positions: Positions | None) -> None:
        if positions is not None and len(positions) != batch.num_rows:
            raise InvalidRequest(f"{batch.num_rows} rows have {len(positions)} positions", file=self._label)


class PositionList:
    """Row numbers of everything in a block; one row without a number, and the block goes without."""

    def __init__(self) -> None:
        self._parts: list[Positions] | None = []

    def add(self, positions: Positions | None) -> None:
        if positions is None:
            self._parts = None
        elif self._parts is not None:
            self._parts.append(np.asarray(positions, dtype=np.uint64))

    def all(self) -> Positions | None:
        return np.concatenate(self._parts) if self._parts else None

    def ascending(self) -> Positions | None:
        """All of them, if they ascend strictly: version 1 keeps a set, whose order must be that of the rows."""
        found = self.all()
        return found if found is not None and bool((found[1:] > found[:-1]).all()) else None


def log_stat(
    target: WriteTarget, path: str, version: int, size: int, *, rows: int = 0, inserts: int = 0, deletes: int = 0
) -> WriteStat:
    """The stat of a log file as Hudi words it: the base file empty, the log itself in the list of logs."""
    return WriteStat(
        file_id=target.file_group.file_id,
        path=path,
        partition_path=target.file_group.partition_path,
        prev_commit=target.prev_commit or target.requested_time,
        num_writes=rows,
        num_inserts=inserts,
        num_updates=rows - inserts,
        num_deletes=deletes,
        total_write_bytes=size,
        file_size=size,
        base_file="",
        log_files=(file_name(path),),
        log_version=version,
        log_offset=0,
    )
