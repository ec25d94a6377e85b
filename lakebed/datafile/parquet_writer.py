"""Arrow batches into one Parquet file: base files, native logs, and Parquet blocks inside version 1 logs.

Rows are gathered into row groups of a set size; the first of them is the sample from which the encoding is chosen.
Pages carry checksums, so that a flipped bit is an error and never a wrong answer. A file whose rows ascend by key is
marked twice, in Parquet's sorting columns and in the footer key `lakebed.sorted`, which is what readers use. Decimals
are fixed-length byte arrays and lists have three levels: forms that Hudi's readers take (see `docs/format`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.config.write_options import Codec, FileOptions
from lakebed.datafile.column_encoding import (
    ColumnSummary,
    Encodings,
    alike,
    choose_encodings,
    column_summaries,
    leaf_paths,
    statistics_leaves,
)
from lakebed.datafile.parquet_source import SORTED_BY_MADE_KEY, SORTED_KEY, SORTED_UTF8
from lakebed.errors import InvalidRequest

PARQUET = "parquet"
_SINK_BUFFER = 1 << 20
"""Pages and their headers reach Python together: a call for each would take the interpreter from other tasks."""


class RowEncoder(Protocol):
    """Rows into a file of some format; it neither opens nor closes what it writes to."""

    @property
    def bytes_written(self) -> int:
        """What has reached the sink so far; rows that are still gathered do not count."""
        ...

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self, footer: Mapping[str, str]) -> tuple[ColumnSummary, ...]:
        """Write what is left and the footer with these entries; returns its summaries of the columns."""
        ...

    def abort(self) -> None:
        """Stop without another byte."""
        ...


class DetachableSink(io.RawIOBase):
    """A sink between Arrow and a file.

    Arrow's writer finishes its file when it is garbage-collected, which must not reach a file that was aborted, and it
    closes its sink, which here would publish the file.
    """

    def __init__(self, write: Callable[[Any], object]) -> None:
        self._write: Callable[[Any], object] | None = write
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        if self._write is not None:
            self._write(data)
        self._position += size
        return size

    def detach(self) -> None:
        self._write = None


class ParquetEncoder:
    """See the module. `sorted_by` names the column the rows ascend by; the caller has checked that they do.

    With `by_made_key` they ascend by a key that is not stored.
    """

    def __init__(
        self,
        write: Callable[[Any], object],
        schema: pa.Schema,
        options: FileOptions,
        *,
        row_group_rows: int,
        sorted_by: str | None,
        label: str,
        by_made_key: bool = False,
    ) -> None:
        self._sink = DetachableSink(write)
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _SINK_BUFFER)
        self._schema = schema
        self._options = options
        self._row_group_rows = row_group_rows
        self._sorted_by = None if by_made_key else sorted_by
        self._mark = (SORTED_BY_MADE_KEY if by_made_key else SORTED_UTF8) if sorted_by else None
        self._label = label
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    @property
    def bytes_written(self) -> int:
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        limit, size = self._options.row_group_size, batch.nbytes
        most = self._row_group_rows if size <= limit else max(1, batch.num_rows * limit // size)
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, min(most, self._row_group_rows - self._rows))
            if self._rows and self._bytes + part.nbytes > limit:
                self._flush()
                continue
            at += part.num_rows
            self._gathered.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            if self._rows >= self._row_group_rows:
                self._flush()

    def close(self, footer: Mapping[str, str]) -> tuple[ColumnSummary, ...]:
        if self._rows or self._writer is None:
            self._flush()
        writer = self._writer
        assert writer is not None
        marks = {SORTED_KEY: self._mark} if self._mark else {}
        with _encoding_errors(self._label):
            writer.add_key_value_metadata({**footer, **marks})
            writer.close()
            self._stream.flush()
        self._sink.detach()
        return column_summaries(writer.writer.metadata, self._schema)

    def drop_mark(self) -> None:
        """Rows ascend, but a key came twice: readers of the mark rely on unique keys."""
        self._mark = None

    def abort(self) -> None:
        self._sink.detach()
        self._gathered = []
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        """One row group out of what is gathered."""
        known = self._writer.schema if self._writer is not None else None
        rows = alike(self._gathered, known) if self._gathered else None
        self._gathered, self._rows, self._bytes = [], 0, 0
        with _encoding_errors(self._label):
            if self._writer is None:
                self._writer = self._open(rows)
            if rows is not None:
                self._writer.write_table(rows, row_group_size=rows.num_rows)
                self._stream.flush()

    def _open(self, sample: pa.Table | None) -> pq.ParquetWriter:
        schema = self._schema if sample is None else sample.schema
        chosen = Encodings() if sample is None else choose_encodings(sample, dictionary=self._options.dictionary)
        order = None
        if self._sorted_by:
            order = [pq.SortingColumn(leaf_paths(self._schema).index(self._sorted_by))]
        return pq.ParquetWriter(
            self._stream,
            schema,
            compression=str(self._options.codec),
            compression_level=None if self._options.codec is Codec.NONE else self._options.codec_level,
            use_dictionary=list(chosen.dictionary) or False,
            column_encoding=dict.fromkeys(chosen.delta, "DELTA_BINARY_PACKED") or None,
            write_statistics=statistics_leaves(self._schema),
            data_page_size=self._options.page_size,
            sorting_columns=order,
            store_schema=False,
            write_page_index=True,
            write_page_checksum=True,
        )


class _encoding_errors:  # noqa: N801 (reads as a statement)
    """Values that a file cannot hold are the caller's; failures of the store pass as they are."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, pa.ArrowException) and not isinstance(error, OSError):
            what = " ".join(str(error).split())[:300]
            raise InvalidRequest(f"rows cannot be stored: {what}", file=self._label) from error
