"""Version 2 log files, "native logs": each is one Parquet file, its block header in the footer.

    <fileId>_<token>_<requested time>_<version>.log.parquet         rows
    <fileId>_<token>_<requested time>_<version>.deletes.parquet     deletes, under the number of the rows they belong to
    .<fileId>_<requested time>.log.<number>_<token>                 either, with `hoodie.log.naming=inline` (RFC-103)

Earlier deletes take a number below the rows: a slice merges its logs by number. Files end at the size of a base file,
as Hudi's do, and the next one takes the next number. What a native file is made of is a `NativeContainer`; Parquet is
the one there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from lakebed.config.write_options import FileOptions, LogNaming
from lakebed.datafile.column_encoding import ColumnSummary
from lakebed.datafile.key_bounds import KeyBounds
from lakebed.datafile.log_writer import LogInput, LogSpec, PositionList, Positions, log_stat
from lakebed.datafile.parquet_writer import PARQUET, ParquetEncoder, RowEncoder
from lakebed.datafile.write_queue import WriteQueue
from lakebed.datafile.writers import WriteTarget, WrittenFile
from lakebed.format.log.block import ROLLBACK_COMMAND, BlockKind, Header, encode_positions_v2
from lakebed.format.log.block_content import delete_schema
from lakebed.format.log.v2 import footer_entries
from lakebed.format.names import LogFileName
from lakebed.model.files import LogKind
from lakebed.model.schema import RECORD_KEY, arrow_to_avro
from lakebed.storage.storage import OutputFile, Storage

DELETE_RECORD = "hudi_delete_log_record"
RFC_KEY, RFC_PARTITION, RFC_ORDERING = "record_key", "partition_path", "ordering_val"


class NativeContainer(Protocol):
    """A columnar file format that can be a native log: rows, and a footer of text entries."""

    @property
    def extension(self) -> str: ...

    def encoder(
        self,
        write: Callable[[Any], object],
        schema: pa.Schema,
        options: FileOptions,
        *,
        sorted_by: str | None,
        label: str,
        by_made_key: bool = False,
    ) -> RowEncoder:
        """An encoder that passes its bytes to `write`."""
        ...


class ParquetContainer:
    """Small row groups: a log is mostly read by key range."""

    extension = PARQUET

    def encoder(
        self,
        write: Callable[[Any], object],
        schema: pa.Schema,
        options: FileOptions,
        *,
        sorted_by: str | None,
        label: str,
        by_made_key: bool = False,
    ) -> RowEncoder:
        return ParquetEncoder(
            write,
            schema,
            options,
            row_group_rows=options.log_row_group_rows,
            sorted_by=sorted_by,
            label=label,
            by_made_key=by_made_key,
        )


class NativeLogWriter:
    """A `LogWriter` for version 2. `version` is the first number that may be taken."""

    def __init__(
        self,
        storage: Storage,
        target: WriteTarget,
        spec: LogSpec,
        options: FileOptions | None = None,
        *,
        version: int = 1,
        container: NativeContainer | None = None,
    ) -> None:
        self._storage = storage
        self._target = target
        self._spec = spec
        self._options = options or FileOptions()
        self._container = container or ParquetContainer()
        self._input = LogInput(spec, target, f"{target.file_group} at {target.requested_time}")
        self._numbers = _Numbers(version, self._options.log_naming, spec.has_earlier_deletes)
        self._open: dict[str, _NativeFile] = {}
        self._written: list[WrittenFile] = []
        self._queue = WriteQueue(self._options.write_buffer, target.file_group.file_id)

    def write_rows(self, batch: pa.RecordBatch, *, inserts: int = 0, positions: Positions | None = None) -> None:
        if batch.num_rows:
            rows = self._input.rows(batch, positions)
            self._queue.put(lambda: self._encode("rows", rows, positions, inserts), rows.nbytes)

    def write_deletes(self, batch: pa.RecordBatch, *, positions: Positions | None = None) -> None:
        if batch.num_rows:
            deletes = self._input.deletes(batch, positions)
            self._queue.put(lambda: self._encode("deletes", deletes, positions), deletes.nbytes)

    def write_earlier_deletes(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            deletes = self._input.earlier_deletes(batch)
            self._queue.put(lambda: self._encode("earlier", deletes, None), deletes.nbytes)

    def close(self) -> list[WrittenFile]:
        try:
            self._queue.finish()
            for role in list(self._open):
                self._end_file(role)
        except BaseException:
            self.abort()
            raise
        return sorted(self._written, key=lambda file: (file.stat.log_version or 0, file.stat.num_deletes > 0))

    def abort(self) -> None:
        self._queue.cancel()
        for file in self._open.values():
            file.abort()

    def __enter__(self) -> NativeLogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    # ------------------------------------------------------------------ in the thread
    def _encode(self, role: str, batch: pa.RecordBatch, positions: Positions | None, inserts: int = 0) -> None:
        file = self._open.get(role)
        if file is None:
            file = self._open[role] = self._new_file(role)
        file.add(batch, positions, inserts)
        if role != "earlier" and file.encoder.bytes_written >= self._options.max_file_size:
            self._end_file(role)  # earlier deletes must keep their number below the rows, and are keys only

    def _new_file(self, role: str) -> _NativeFile:
        kind = LogKind.LOG if role == "rows" else LogKind.DELETES
        number = self._numbers.take(role)
        path = _log_path(self._target, kind, number, self._options.log_naming, self._container.extension)
        inline = self._options.log_naming is LogNaming.INLINE
        if role == "rows":
            schema, shape = self._spec.schema.arrow, None
        elif inline:
            shape = _RfcDeletes(self._spec.ordering, self._target.file_group.partition_path)
            schema = shape.schema
        else:
            schema, shape = delete_schema(self._spec.ordering), None
        output = self._storage.open_output(path)
        key = schema.names[0] if role != "rows" else RECORD_KEY
        made = role == "rows" and not self._spec.populate_meta_fields
        encoder = self._container.encoder(
            output.write,
            schema,
            self._options,
            sorted_by=key if self._spec.is_sorted else None,
            label=path,
            by_made_key=made,
        )
        bounds = KeyBounds(path, is_sorted=self._spec.is_sorted, trusted=True)
        return _NativeFile(path, number, kind, None if made else key, schema, output, encoder, bounds, shape)

    def _end_file(self, role: str) -> None:
        file = self._open[role]
        positions = file.positions.all()
        encoded = None if positions is None else encode_positions_v2(positions)
        header = self._spec.header(self._target.requested_time, encoded)
        if file.kind is LogKind.LOG:
            block = BlockKind.PARQUET_DATA
            if self._spec.is_partial:
                header[Header.IS_PARTIAL] = "true"
        else:
            block = BlockKind.DELETE
            header[Header.SCHEMA] = json.dumps(arrow_to_avro(file.schema, DELETE_RECORD))
        facts = self._spec.schema.footer if file.kind is LogKind.LOG else {}
        size, columns = file.finish({**footer_entries(block, header), **facts})
        del self._open[role]
        is_rows = file.kind is LogKind.LOG
        stat = log_stat(
            self._target,
            file.path,
            file.number,
            size,
            rows=file.rows if is_rows else 0,
            inserts=file.inserts,
            deletes=0 if is_rows else file.rows,
        )
        self._written.append(WrittenFile(stat, file.rows, file.bounds.min, file.bounds.max, columns))


class _Numbers:
    """Version numbers. Native names differ for rows and deletes, so both count alike; inline names share one count."""

    def __init__(self, first: int, naming: LogNaming, has_earlier_deletes: bool) -> None:
        self._shared = naming is LogNaming.INLINE
        start = first + 1 if has_earlier_deletes else first
        self._next = {"earlier": first, "rows": start, "deletes": start + 1 if self._shared else start}

    def take(self, role: str) -> int:
        number = self._next[role]
        self._next[role] = max(self._next.values()) + 1 if self._shared else number + 1
        return number


class _RfcDeletes:
    """Deletes in the columns that RFC-103 names."""

    def __init__(self, ordering: tuple[pa.Field, ...], partition_path: str) -> None:
        self._partition = pa.scalar(partition_path, pa.string())
        fields = [pa.field(RFC_KEY, pa.string(), False), pa.field(RFC_PARTITION, pa.string(), False)]
        if len(ordering) == 1:
            fields.append(pa.field(RFC_ORDERING, ordering[0].type))
        else:
            fields += [field.with_nullable(True) for field in ordering]
        self.schema = pa.schema(fields)

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        partition = pa.array([self._partition.as_py()] * batch.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([batch.column(0), partition, *batch.columns[1:]], schema=self.schema)


class _NativeFile:
    """A native log that is being written."""

    def __init__(
        self,
        path: str,
        number: int,
        kind: LogKind,
        key: str | None,
        schema: pa.Schema,
        output: OutputFile,
        encoder: RowEncoder,
        bounds: KeyBounds,
        shape: _RfcDeletes | None,
    ) -> None:
        self.path = path
        self.number = number
        self.kind = kind
        self.schema = schema
        self.encoder = encoder
        self.bounds = bounds
        self.rows = 0
        self.inserts = 0
        self.positions = PositionList()
        self._key = key
        self._output = output
        self._shape = shape

    def add(self, batch: pa.RecordBatch, positions: Positions | None, inserts: int) -> None:
        if self._shape is not None:
            batch = self._shape.shaped(batch)
        self.rows += batch.num_rows
        self.inserts += inserts
        self.positions.add(positions)
        if self._key is not None:
            self.bounds.add(batch.column(self._key))
        self.encoder.write(batch)

    def finish(self, footer: dict[str, str]) -> tuple[int, tuple[ColumnSummary, ...]]:
        columns = self.encoder.close(footer)
        size = self._output.tell()
        self._output.close()
        return size, columns

    def abort(self) -> None:
        self.encoder.abort()
        self._output.abort()


def _log_path(target: WriteTarget, kind: LogKind, number: int, naming: LogNaming, extension: str) -> str:
    native = naming is LogNaming.NATIVE
    name = LogFileName(
        target.file_group.file_id,
        target.requested_time,
        number,
        target.write_token,
        kind if native else LogKind.LOG,
        native,
        extension if native else None,
    )
    return target.path(name.render())


def write_command_log(
    storage: Storage,
    target: WriteTarget,
    rolled_back: str,
    options: FileOptions | None = None,
    *,
    version: int = 1,
) -> WrittenFile:
    """A native log without rows whose footer rolls back the blocks of an instant.

    RFC-103 has these; tables of version 8 and later delete the files of a failed instant instead.
    """
    options = options or FileOptions()
    path = _log_path(target, LogKind.LOG, version, options.log_naming, PARQUET)
    header = {
        Header.INSTANT_TIME: target.requested_time,
        Header.TARGET_INSTANT_TIME: rolled_back,
        Header.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
    }
    with storage.open_output(path) as output:
        encoder = ParquetContainer().encoder(output.write, delete_schema(()), options, sorted_by=None, label=path)
        encoder.close(footer_entries(BlockKind.COMMAND, header))
        size = output.tell()
    return WrittenFile(log_stat(target, path, version, size), 0, None, None)
