"""The write side of `format("lakebed")`.

    tasks: rows as they come ──► an Arrow stream each ──► driver: all streams, one plain write, one commit
                                 (in the message while small, else a file below .hoodie/.temp)

Spark gives a Python sink no say in which rows meet in a task, and rows of one file group must. So tasks only carry
rows, and the driver places and writes them as it would without Spark, spilling past its memory. `t.upsert(df)` shuffles
rows to their file groups and writes them in tasks: the way for large data. Only streams that a message names are read,
so an attempt that was lost counts for nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakebed.format.names import TEMP_DIR
from lakebed.spark.settings import Settings
from lakebed.spark.types import arrow_schema, conform
from lakebed.storage.storage import OutputFile, Storage
from lakebed.write.operation import Operation

INLINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Carried(WriterCommitMessage):
    """The rows of one task: the stream itself, or the file that it lies in."""

    rows: int
    data: bytes = b""
    path: str | None = None


class LakebedWriter(DataSourceArrowWriter):
    """Carries rows to the driver and commits them there; pickled between Spark's planner, tasks and driver."""

    def __init__(self, settings: Settings, schema: StructType, operation: Operation) -> None:
        self._settings = settings
        self._schema = schema
        self._operation = operation
        self._folder = f"{TEMP_DIR}/rows-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Carried:
        """Take the rows of a task along."""
        schema = arrow_schema(self._schema)
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else uuid.uuid4()
        with _Carrier(self._settings.storage, f"{self._folder}/{attempt}.arrow", schema) as carrier:
            for batch in iterator:
                carrier.add(conform(batch, schema))
            return carrier.done()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write all rows as one commit."""
        carried = [message for message in messages if isinstance(message, Carried)]
        schema = arrow_schema(self._schema)
        storage = self._settings.storage
        try:
            client = self._settings.table(schema, self._operation)
            writer = self._settings.writer(client)
            rows = pa.RecordBatchReader.from_batches(schema, _rows(storage, carried))
            if self._operation is Operation.DELETE:
                writer.delete_rows(rows)
            else:
                writer.write(rows, self._operation)
        finally:
            self._forget(storage)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was written to the table; only what lies about goes."""
        self._forget(self._settings.storage)

    def _forget(self, storage: Storage) -> None:
        storage.delete([info.path for info in storage.list(self._folder, recursive=True)])


class _Carrier:
    """An Arrow stream that stays in memory while it is small."""

    def __init__(self, storage: Storage, path: str, schema: pa.Schema) -> None:
        self._storage, self._path, self._schema = storage, path, schema
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rows = 0
        self._file: OutputFile | None = None
        self._stream: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> _Carrier:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.abort()

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._stream is not None:
            self._stream.write_batch(batch)
            return
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes > INLINE_BYTES:
            self._file = self._storage.open_output(self._path)
            self._stream = pa.ipc.new_stream(self._file, self._schema, options=_COMPRESSED)
            for held in self._held:
                self._stream.write_batch(held)
            self._held.clear()

    def done(self) -> Carried:
        if self._stream is not None and self._file is not None:
            self._stream.close()
            self._file.close()
            return Carried(self._rows, path=self._path)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=_COMPRESSED) as stream:
            for batch in self._held:
                stream.write_batch(batch)
        return Carried(self._rows, data=sink.getvalue().to_pybytes())


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


def _rows(storage: Storage, carried: Sequence[Carried]) -> Iterator[pa.RecordBatch]:
    """The rows of all tasks, one batch in memory at a time."""
    for message in carried:
        if not message.rows:
            continue
        source = pa.BufferReader(message.data) if message.path is None else storage.open_input(message.path)
        with source, pa.ipc.open_stream(source) as stream:
            yield from stream
