"""Input and output files of rows, by file extension: what `read -o` writes, `upsert` reads back without loss.

    .parquet   .arrow, .feather (Arrow's IPC format)   .csv   .json, .jsonl, .ndjson (a row per line)

Files stream: a batch at a time goes from the scan into the file, and from the file into the write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.cli.csv_rows import read_csv, write_csv
from lakebed.cli.json_rows import read_json, write_json
from lakebed.cli.row_columns import RowColumns
from lakebed.errors import InvalidRequest
from lakebed.read.scan import Scan

ARROW = frozenset({".arrow", ".feather"})
JSON = frozenset({".json", ".jsonl", ".ndjson"})
ENDINGS = "Use .parquet, .arrow, .csv or .json."


def write_rows(scan: Scan, output: Path) -> int:
    """Stream a scan into a file, in the format of its extension; the file appears only when it is complete."""
    if output.suffix.lower() not in {".parquet", ".csv", *ARROW, *JSON}:
        raise InvalidRequest(f"cannot write {output.suffix or 'a file without an ending'}", hint=ENDINGS)
    if not output.parent.is_dir() or output.is_dir():
        raise InvalidRequest(f"cannot write to {output}", hint="The folder must exist, the name be free.")
    partial = output.with_name(f".{output.name}.partial")
    try:
        rows = _write(scan.schema, scan.to_batches(), partial, output.suffix.lower())
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return rows


def rows_of_files(files: Sequence[Path], wanted: RowColumns) -> pa.RecordBatchReader:
    """The rows of all files as one stream; all must have the columns of the first."""
    for file in files:
        if not file.is_file():
            raise InvalidRequest(f"{file} is not a file")
    first = _reader(files[0], wanted)

    def batches() -> Iterator[pa.RecordBatch]:
        for at, file in enumerate(files):
            reader = first if at == 0 else _reader(file, wanted)
            if reader.schema.names != first.schema.names:
                raise InvalidRequest(
                    f"{file} has other columns than {files[0]}", hint="Write them one after the other."
                )
            _check_texts(files[0], first.schema, file, reader.schema)
            try:
                for batch in reader:
                    yield batch if batch.schema.equals(first.schema) else batch.cast(first.schema)
            except pa.ArrowException as error:
                raise InvalidRequest(f"{file} cannot be read as the table's columns: {error}") from error
            except InvalidRequest as error:
                named = error.what if str(file) in error.what else f"{file}: {error.what}"
                raise InvalidRequest(named, hint=error.hint) from None

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _check_texts(first: Path, wanted: pa.Schema, file: Path, found: pa.Schema) -> None:
    """Reject a text column that has another type in the first file: as a number, `07` would become 7."""
    for item, own in zip(found, wanted, strict=True):
        if _is_text(item.type) and not _is_text(own.type):
            raise InvalidRequest(
                f"the column {item.name!r} is text in {file}, but {own.type} in {first}",
                hint="Name the file with text first, or write the files one after the other.",
            )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _write(schema: pa.Schema, batches: Iterable[pa.RecordBatch], path: Path, ending: str) -> int:
    if ending == ".csv":
        return write_csv(schema, batches, path)
    if ending in JSON:
        return write_json(batches, path)
    rows = 0
    if ending in ARROW:
        with pa.ipc.new_file(path, schema) as arrow:
            for batch in batches:
                arrow.write_batch(batch)
                rows += batch.num_rows
        return rows
    with pq.ParquetWriter(path, schema, compression="zstd") as parquet:
        for batch in batches:
            parquet.write_batch(batch)
            rows += batch.num_rows
    return rows


def _reader(file: Path, wanted: RowColumns) -> pa.RecordBatchReader:
    """One file as a stream of batches."""
    ending = file.suffix.lower()
    try:
        if ending == ".csv":
            return read_csv(file, wanted)
        if ending in JSON:
            return read_json(file, wanted)
        if ending == ".parquet":
            parquet = pq.ParquetFile(file)
            return _typed(file, parquet.schema_arrow, parquet.iter_batches(), wanted)
        if ending in ARROW:
            arrow = pa.ipc.open_file(pa.memory_map(str(file)))
            return _typed(file, arrow.schema, map(arrow.get_batch, range(arrow.num_record_batches)), wanted)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from error
    raise InvalidRequest(f"{file} is neither Parquet nor Arrow nor CSV nor JSON by its name", hint=ENDINGS)


def _typed(
    file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], wanted: RowColumns
) -> pa.RecordBatchReader:
    """Rows of a file that has types: they stay as they are, and the write compares them with the table's."""
    new = wanted.new_names(schema.names, file)
    fields = [schema.field(item.name) if item.name in schema.names else item for item in wanted.stream_schema(())]
    chosen = pa.schema([*fields, *(schema.field(name) for name in new)])

    def completed() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                batch.column(item.name) if item.name in schema.names else pa.nulls(batch.num_rows, item.type)
                for item in chosen
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=chosen)

    return pa.RecordBatchReader.from_batches(chosen, completed())
