"""Version 1 log files: a delete block, if there are earlier deletes, then a data block, then a delete block.

    .<fileId>_<requested time>.log.<version>_<token>

A block's length comes before its content, so a block is encoded aside first, in memory and past a few megabytes in an
unnamed temporary file. Past `hoodie.logfile.data.block.max.size` the next block starts, past `hoodie.logfile.max.size`
the next file. Data blocks hold a sorted, marked Parquet file, or Avro records for readers that want those.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.write_options import FileOptions, LogBlockFormat
from lakebed.datafile.column_encoding import ColumnSummary
from lakebed.datafile.key_bounds import KeyBounds
from lakebed.datafile.log_writer import LogInput, LogSpec, PositionList, Positions, log_stat
from lakebed.datafile.parquet_writer import ParquetEncoder
from lakebed.datafile.write_queue import WriteQueue
from lakebed.datafile.writers import WriteTarget, WrittenFile
from lakebed.format.avro.columns import CHUNK_ROWS, CONTENT_VERSION
from lakebed.format.avro.writer import encode_frames_of
from lakebed.format.log.block import BlockKind, Header, encode_positions_v1
from lakebed.format.log.block_content import delete_schema
from lakebed.format.log.delete_writer import encode_deletes
from lakebed.format.log.v1 import MAGIC, encode_block
from lakebed.format.names import LogFileName
from lakebed.model.files import LogKind
from lakebed.model.schema import RECORD_KEY
from lakebed.storage.storage import OutputFile, Storage

_IN_MEMORY = 16 << 20
_COPY = 1 << 20


class InlineLogWriter:
    """A `LogWriter` for version 1. `version` is the number in the first file's name."""

    def __init__(
        self,
        storage: Storage,
        target: WriteTarget,
        spec: LogSpec,
        options: FileOptions | None = None,
        *,
        version: int = 1,
    ) -> None:
        self._storage = storage
        self._target = target
        self._spec = spec
        self._options = options or FileOptions()
        self._version = version
        self._input = LogInput(spec, target, self._path())
        self._file: _File | None = None
        self._block: _DataBlock | None = None
        self._deletes = _Deletes()
        self._earlier = _Deletes()
        self._written: list[WrittenFile] = []
        self._queue = WriteQueue(self._options.write_buffer, target.file_group.file_id)

    def write_rows(self, batch: pa.RecordBatch, *, inserts: int = 0, positions: Positions | None = None) -> None:
        if batch.num_rows:
            rows = self._input.rows(batch, positions)
            self._queue.put(lambda: self._encode(rows, inserts, positions), rows.nbytes)

    def write_deletes(self, batch: pa.RecordBatch, *, positions: Positions | None = None) -> None:
        if batch.num_rows:
            deletes = self._input.deletes(batch, positions)
            self._queue.put(lambda: self._deletes.add(deletes, positions), 0)

    def write_earlier_deletes(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            deletes = self._input.earlier_deletes(batch)
            self._queue.put(lambda: self._earlier.add(deletes, None), 0)

    def close(self) -> list[WrittenFile]:
        try:
            self._queue.finish()
            self._end_block()
            self._put_deletes(self._deletes)
            self._end_file()
        except BaseException:
            self.abort()
            raise
        return self._written

    def abort(self) -> None:
        self._queue.cancel()
        if self._block is not None:
            self._block.abort()
        if self._file is not None:
            self._file.output.abort()

    def __enter__(self) -> InlineLogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    # ------------------------------------------------------------------ in the thread
    def _encode(self, batch: pa.RecordBatch, inserts: int, positions: Positions | None) -> None:
        if self._block is None:
            self._block = _DataBlock(self._spec, self._options, self._path())
        self._block.add(batch, inserts, positions)
        if self._block.size >= self._options.log_block_max_size:
            self._end_block()
            if self._file is not None and self._file.output.tell() >= self._options.log_max_size:
                self._end_file()

    def _end_block(self) -> None:
        self._put_deletes(self._earlier)
        self._earlier = _Deletes()
        block, self._block = self._block, None
        if block is None:
            return
        content, size = block.finish()
        positions = block.positions.ascending()
        header = self._spec.header(self._target.requested_time, _encoded(positions))
        if self._spec.is_partial:
            header[Header.IS_PARTIAL] = "true"
        file = self._current_file()
        file.put_block(block.kind, header, content, size)
        file.blocks.append(block)

    def _put_deletes(self, deletes: _Deletes) -> None:
        """Deletes with and without an ordering value get a block each: hudi-rs rejects a block with both."""
        if not deletes.batches:
            return
        rows = pa.Table.from_batches(deletes.batches, delete_schema(self._spec.ordering)).combine_chunks()
        positions = deletes.positions.ascending()
        bare = np.ones(rows.num_rows, dtype=np.bool_)
        for column in rows.columns[1:]:
            nulls = pc.is_null(column).combine_chunks().cast(pa.uint8())
            bare &= np.frombuffer(nulls.buffers()[1], np.uint8)[nulls.offset :][: len(nulls)].astype(np.bool_)
        for chosen in (~bare, bare):
            at = np.flatnonzero(chosen)
            if len(at):
                index = pa.Array.from_buffers(pa.int64(), len(at), [None, pa.py_buffer(at.astype(np.int64))])
                self._put_delete_block(rows.take(index), None if positions is None else positions[at])

    def _put_delete_block(self, rows: pa.Table, positions: Positions | None) -> None:
        content = encode_deletes(rows, self._target.file_group.partition_path)
        header = self._spec.header(self._target.requested_time, _encoded(positions))
        file = self._current_file()
        file.output.write(encode_block(BlockKind.DELETE, header, content))
        file.deletes += rows.num_rows
        file.bounds.add(rows.column(0).combine_chunks())

    def _current_file(self) -> _File:
        if self._file is None:
            path = self._path()
            self._file = _File(path, self._version, self._storage.open_output(path))
        return self._file

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        size = file.output.tell()
        file.output.close()
        self._version += 1
        rows = sum(block.rows for block in file.blocks)
        inserts = sum(block.inserts for block in file.blocks)
        stat = log_stat(self._target, file.path, file.version, size, rows=rows, inserts=inserts, deletes=file.deletes)
        bounds = [file.bounds, *(block.bounds for block in file.blocks)]
        low = min((one.min for one in bounds if one.min is not None), default=None)
        high = max((one.max for one in bounds if one.max is not None), default=None)
        columns = file.blocks[0].columns if len(file.blocks) == 1 else ()
        self._written.append(WrittenFile(stat, rows, low, high, columns))

    def _path(self) -> str:
        group = self._target.file_group
        name = LogFileName(
            group.file_id,
            self._target.requested_time,
            self._version,
            self._target.write_token,
            LogKind.LOG,
            native=False,
        )
        return self._target.path(name.render())


class _Deletes:
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.positions = PositionList()

    def add(self, batch: pa.RecordBatch, positions: Positions | None) -> None:
        self.batches.append(batch)
        self.positions.add(positions)


class _File:
    """The file being written."""

    def __init__(self, path: str, version: int, output: OutputFile) -> None:
        self.path = path
        self.version = version
        self.output = output
        self.blocks: list[_DataBlock] = []
        self.deletes = 0
        self.bounds = KeyBounds(path, is_sorted=False)

    def put_block(self, kind: BlockKind, header: Mapping[Header, str], content: IO[bytes], size: int) -> None:
        head, tail = block_frame(kind, header, size)
        self.output.write(head)
        while chunk := content.read(_COPY):
            self.output.write(chunk)
        self.output.write(tail)
        content.close()


class _DataBlock:
    """The rows of one block, encoded aside."""

    def __init__(self, spec: LogSpec, options: FileOptions, label: str) -> None:
        self.kind = BlockKind.PARQUET_DATA
        self.rows = 0
        self.inserts = 0
        self.positions = PositionList()
        self.columns: tuple[ColumnSummary, ...] = ()
        self.bounds = KeyBounds(label, is_sorted=spec.is_sorted, trusted=True)
        self._schema = spec.schema
        self._has_keys = spec.populate_meta_fields
        self._content: Any = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (closed by its reader)
        self._parquet: ParquetEncoder | None = None
        if options.log_block_format is LogBlockFormat.AVRO:
            self.kind = BlockKind.AVRO_DATA
            self._content.write(bytes(8))
        else:
            self._parquet = ParquetEncoder(
                self._content.write,
                spec.schema.arrow,
                options,
                row_group_rows=options.log_row_group_rows,
                sorted_by=RECORD_KEY if spec.is_sorted else None,
                label=label,
                by_made_key=not spec.populate_meta_fields,
            )

    @property
    def size(self) -> int:
        return int(self._content.tell())

    def add(self, batch: pa.RecordBatch, inserts: int, positions: Positions | None) -> None:
        self.rows += batch.num_rows
        self.inserts += inserts
        self.positions.add(positions)
        if self._has_keys:
            self.bounds.add(batch.column(RECORD_KEY))
        if self._parquet is not None:
            self._parquet.write(batch)
            return
        for at in range(0, batch.num_rows, CHUNK_ROWS):
            self._content.write(encode_frames_of(batch.slice(at, CHUNK_ROWS), self._schema.avro_json))

    def finish(self) -> tuple[IO[bytes], int]:
        """The content from its beginning, and its size."""
        if self._parquet is not None:
            self.columns = self._parquet.close(self._schema.footer)
        size = self.size
        self._content.seek(0)
        if self._parquet is None:
            self._content.write(struct.pack(">ii", CONTENT_VERSION, self.rows))
            self._content.seek(0)
        return self._content, size

    def abort(self) -> None:
        if self._parquet is not None:
            self._parquet.abort()
        self._content.close()


def _encoded(positions: Positions | None) -> str | None:
    return None if positions is None else encode_positions_v1(positions)


def block_frame(kind: BlockKind, header: Mapping[Header, str], content_size: int) -> tuple[bytes, bytes]:
    """The bytes before and after a content of this size: the frame of an empty block with its three lengths changed.

    magic | length | … | content size | content | footer 4 | way back 8
    """
    empty = encode_block(kind, header, b"")
    start = len(MAGIC) + 8
    length = len(empty) - start + content_size
    head = MAGIC + struct.pack(">q", length) + empty[start:-20] + struct.pack(">q", content_size)
    return head, empty[-12:-8] + struct.pack(">q", len(MAGIC) + length)
