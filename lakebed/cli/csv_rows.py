"""CSV files: written from a scan and read back without loss.

    id,name,tags
    1,"",             null is nothing between the commas, the empty string a pair of quotes
    2,"NA","[1, 2]"   a quoted cell is never null; lists, structs and maps are JSON in their cell

Every value is written as its text (`text_values`), strings in quotes. When read, all cells are strings first, since
only then the reader knows whether a cell had quotes; then they are parsed as the table's types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from os import SEEK_END
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from lakebed.cli.json_values import array_of, json_values, parse_json
from lakebed.cli.row_columns import RowColumns
from lakebed.cli.text_values import from_text, is_plain, keeps_text, to_text
from lakebed.errors import InvalidRequest

_GUESSES = (
    pa.null(),
    pa.bool_(),
    pa.int64(),
    pa.float64(),
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    *(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("ms", "us")),
)
"""Types for new columns: those that a table stores without a change, so that values print as in the file."""
_BLOCK = 32 << 20
"""The length limit of a row, in bytes."""


def write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write batches; the number of rows. The writer puts strings in quotes, and only those."""
    cells = pa.schema([pa.field(item.name, item.type if _writes_itself(item.type) else pa.string()) for item in schema])
    rows = 0
    with pa_csv.CSVWriter(path, cells) as sink:
        for batch in batches:
            columns = [
                column if _writes_itself(item.type) else _cells(column, item)
                for column, item in zip(batch.columns, schema, strict=True)
            ]
            sink.write_batch(pa.RecordBatch.from_arrays(columns, schema=cells))
            rows += batch.num_rows
    return rows


def read_csv(path: Path, wanted: RowColumns) -> pa.RecordBatchReader:
    """The rows of a file in the table's types; new columns in a type that keeps the text of all their cells."""
    names = _header(path)
    new = wanted.new_names(names, path)
    known = [name for name in names if name in wanted.schema.names]
    schema = wanted.stream_schema(_new_fields(path, names, new, wanted.nulls) if new else [])
    reader = _texts(path, names, [*known, *new], wanted.nulls)

    def batches() -> Iterator[pa.RecordBatch]:
        start = 1
        for batch in reader:
            columns = [_column(batch, item, start, fill=wanted.missing_as_null) for item in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            start += batch.num_rows

    return pa.RecordBatchReader.from_batches(schema, batches())


def _texts(path: Path, names: list[str], chosen: list[str], nulls: Iterable[str]) -> pa_csv.CSVStreamingReader:
    """The cells of some columns."""
    return pa_csv.open_csv(
        _source(path),
        read_options=pa_csv.ReadOptions(block_size=_BLOCK),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(chosen, pa.string()),
            include_columns=chosen,
            null_values=["", *nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _new_fields(path: Path, names: list[str], new: list[str], nulls: Iterable[str]) -> list[pa.Field]:
    """New columns in the first type that keeps the text of each cell of the file; `07` is no number but text."""
    possible = dict.fromkeys(new, _GUESSES)
    for batch in _texts(path, names, new, nulls):
        for name, kinds in possible.items():
            cells = batch.column(name)
            possible[name] = tuple(kind for kind in kinds if keeps_text(cells, kind))
    return [pa.field(name, next(iter(kinds), pa.string())) for name, kinds in possible.items()]


def _header(path: Path) -> list[str]:
    """The names of a file's columns, without type inference."""
    options = pa_csv.ParseOptions(newlines_in_values=True)
    with pa_csv.open_csv(_source(path), pa_csv.ReadOptions(block_size=_BLOCK), options) as reader:
        return list(reader.schema.names)


def _source(path: Path) -> Any:
    """A file for Arrow, with a final newline added if missing: Arrow reads a header without one as an empty file."""
    size = path.stat().st_size
    if not 0 < size <= _BLOCK:
        return path
    with path.open("rb") as source:
        source.seek(-1, SEEK_END)
        if source.read(1) == b"\n":
            return path
        source.seek(0)
        return pa.BufferReader(source.read() + b"\n")


def _writes_itself(kind: pa.DataType) -> bool:
    """Whether the writer's own text of a type is read back as it was."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind))


def _cells(column: Any, item: pa.Field) -> Any:
    if is_plain(item.type):
        return to_text(column, item.name)
    values = json_values(column, item.name)
    return pa.array([None if v is None else json.dumps(v, ensure_ascii=False) for v in values], pa.string())


def _column(batch: pa.RecordBatch, item: pa.Field, start: int, *, fill: bool) -> Any:
    """A column in its type; `start` is the number of the first row, from 1."""
    if item.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, item.type)
    cells = batch.column(item.name)
    if is_plain(item.type):
        return from_text(cells, item.type, item.name)
    values = [_parsed(cell, item, start + at) for at, cell in enumerate(cells.to_pylist())]
    return array_of(values, item.type, item.name, fill=fill)


def _parsed(cell: str | None, item: pa.Field, row: int) -> Any:
    try:
        return None if cell is None else parse_json(cell)
    except ValueError as error:
        raise InvalidRequest(f"row {row}: the column {item.name!r} is {item.type}, JSON in CSV: {error}") from None
