"""`lakebed upsert` and `lakebed delete`: rows from files into a table, one commit, no Spark.

Files stream: a batch at a time goes from the reader into the write, so a file may be larger than memory. CSV and JSON
have no types of their own worth keeping; their columns are read as the table's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import typer

from lakebed.cli.output import console, print_json
from lakebed.cli.show import JsonOption, PathArgument
from lakebed.cli.upkeep import DropMetadataOption, SetOption, options_of
from lakebed.errors import InvalidRequest
from lakebed.model.schema import without_meta_fields
from lakebed.table import open as open_table
from lakebed.write.job import CommitResult

MemoryOption = Annotated[str | None, typer.Option(help="A ceiling such as 512MB.")]


def upsert(
    path: PathArgument,
    files: Annotated[list[Path], typer.Argument(help="Parquet, CSV or JSON (a value per line) files, told by name.")],
    memory: MemoryOption = None,
    given: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Insert the rows of files, or update those whose key is there already; all files in one commit."""
    table = open_table(path)
    data = rows_of_files(files, without_meta_fields(table.schema))
    _print(table.upsert(data, options=options_of(given), memory=memory, drop_metadata=drop_metadata), as_json)


def delete(
    path: PathArgument,
    where: Annotated[str | None, typer.Option(help="The rows to delete, as a condition.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A record key to delete; may be repeated.")] = None,
    memory: MemoryOption = None,
    given: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the rows that a condition matches, or those with the given keys."""
    done = open_table(path).delete(where, key, options_of(given), memory, drop_metadata)
    _print(done, as_json)


def rows_of_files(files: Sequence[Path], schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows of all files as one stream; all must have the columns of the first."""
    for file in files:
        if not file.is_file():
            raise InvalidRequest(f"{file} is not a file")
    first = _reader(files[0], schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for at, file in enumerate(files):
            reader = first if at == 0 else _reader(file, schema)
            if reader.schema.names != first.schema.names:
                raise InvalidRequest(
                    f"{file} has other columns than {files[0]}", hint="Write them one after the other."
                )
            try:
                for batch in reader:
                    yield batch if batch.schema.equals(first.schema) else batch.cast(first.schema)
            except pa.ArrowException as error:
                raise InvalidRequest(f"{file} cannot be read as the table's columns: {error}") from error

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _reader(file: Path, schema: pa.Schema) -> Any:
    """One file as a stream of batches."""
    suffix = file.suffix.lower()
    try:
        if suffix == ".parquet":
            opened = pq.ParquetFile(file)
            return pa.RecordBatchReader.from_batches(opened.schema_arrow, opened.iter_batches())
        if suffix == ".csv":
            types = pa_csv.ConvertOptions(column_types=schema, strings_can_be_null=True)
            return pa_csv.open_csv(file, convert_options=types)
        if suffix in (".json", ".jsonl", ".ndjson"):
            return _json(file, schema)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from error
    raise InvalidRequest(f"{file} is neither Parquet nor CSV nor JSON by its name", hint="Use .parquet, .csv or .json.")


def _json(file: Path, schema: pa.Schema) -> pa.RecordBatchReader:
    """JSON rows in the table's types; Arrow takes days and times for numbers there, so they come as text first."""
    texts = {item.name: item.type for item in schema if pa.types.is_date(item.type) or pa.types.is_time(item.type)}
    asked = pa.schema([item.with_type(pa.string()) if item.name in texts else item for item in schema])
    table = pa_json.read_json(file, parse_options=pa_json.ParseOptions(explicit_schema=asked))
    for name, kind in texts.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, pa.field(name, kind), table.column(at).cast(kind))
    return table.to_reader()


def _print(done: CommitResult, as_json: bool) -> None:
    facts = {
        "instant": done.instant,
        "completion_time": done.completion_time,
        "inserted": done.inserted,
        "updated": done.updated,
        "deleted": done.deleted,
        "files": list(done.files),
    }
    if as_json:
        print_json(facts)
        return
    console.print(
        f"{done.instant}: {done.inserted:,} inserted, {done.updated:,} updated, {done.deleted:,} deleted, "
        f"in {len(done.files):,} files",
        highlight=False,
    )
