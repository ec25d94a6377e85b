"""Rows from tasks to the driver, without the driver holding them all.

    task: batches ──► an Arrow stream: in the task result while small, else a file below .hoodie/.temp
    driver: the streams one after the other, one batch in memory at a time

Only streams that a collected result names are read, so the output of a failed or repeated attempt is ignored.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from lakebed.format.names import TEMP_DIR
from lakebed.spark.types import arrow_schema, by_name, by_number, conform
from lakebed.storage.storage import OutputFile, Storage

INLINE_BYTES = 1 << 20
_ANSWER = StructType([StructField("carried", BinaryType())])
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True)
class Carried:
    """The rows of one task: the stream itself, or the file that holds it."""

    rows: int
    data: bytes = b""
    path: str | None = None


@contextmanager
def carried_rows(df: DataFrame, storage: Storage) -> Iterator[pa.RecordBatchReader]:
    """All rows of a frame as a stream. A store in memory exists in this process only, so its rows come by `toArrow`."""
    schema = arrow_schema(df.schema)
    if not storage.is_shared:
        batches = (conform(batch, schema) for batch in df.toArrow().to_batches())
        yield pa.RecordBatchReader.from_batches(schema, batches)
        return
    folder = new_folder()
    payload = pickle.dumps((storage, folder, schema))

    def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store, target, wanted = pickle.loads(payload)
        with Carrier(store, f"{target}/{uuid.uuid4()}.arrow", wanted) as carrier:
            for batch in by_name(batches, wanted):
                carrier.add(batch)
            answer = pickle.dumps(carrier.done())
        yield pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], schema=arrow_schema(_ANSWER))

    try:
        answers = by_number(df).mapInArrow(carry, _ANSWER).collect()
        carried = [pickle.loads(bytes(row["carried"])) for row in answers]
        yield pa.RecordBatchReader.from_batches(schema, rows_of(storage, carried))
    finally:
        remove_folder(storage, folder)


def new_folder() -> str:
    """A new folder for the streams of one job."""
    return f"{TEMP_DIR}/rows-{uuid.uuid4()}"


def remove_folder(storage: Storage, folder: str) -> None:
    """Delete the streams of a job."""
    storage.delete([info.path for info in storage.list(folder, recursive=True)])


class Carrier:
    """An Arrow stream that stays in memory while it is small."""

    def __init__(self, storage: Storage, path: str, schema: pa.Schema) -> None:
        self._storage, self._path, self._schema = storage, path, schema
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rows = 0
        self._file: OutputFile | None = None
        self._stream: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Carrier:
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


def rows_of(storage: Storage, carried: Sequence[Carried]) -> Iterator[pa.RecordBatch]:
    """The rows of all tasks, one batch in memory at a time."""
    for message in carried:
        if not message.rows:
            continue
        source = pa.BufferReader(message.data) if message.path is None else storage.open_input(message.path)
        with source, pa.ipc.open_stream(source) as stream:
            yield from stream
