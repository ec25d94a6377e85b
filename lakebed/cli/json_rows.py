"""JSON files: written as one row per line, read back without loss; a list of rows, as `--json` prints, is read, too.

A row names every column: a missing one is not taken as null unless the user allows it, since a misspelt name looks the
same. Lines are parsed in blocks, and columns are made from a whole block; memory holds one block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from lakebed.cli.json_values import array_of, json_rows, parse_json
from lakebed.cli.row_columns import RowColumns
from lakebed.errors import InvalidRequest
from lakebed.model.schema import META_FIELD_NAMES

_LINES = 8192
Row = dict[str, Any]
Parse = Callable[[str], Any]
Block = tuple[int, list[Row]]
"""The number of the first row, from 1, and rows."""


def write_json(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write batches, an object per line; the number of rows."""
    rows = 0
    with path.open("w", encoding="utf-8", newline="\n") as sink:
        for batch in batches:
            sink.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in json_rows(batch))
            rows += batch.num_rows
    return rows


def read_json(path: Path, wanted: RowColumns) -> pa.RecordBatchReader:
    """The rows of a file in the table's types; new columns in those that Arrow infers from the first rows."""
    keep_digits = any(_has_decimals(item.type) for item in wanted.schema)
    blocks = _blocks(path, lambda text: parse_json(text, keep_digits=keep_digits))
    first = next(blocks, (1, []))
    found = list(dict.fromkeys(chain.from_iterable(first[1])))
    new = wanted.new_names(found, path) if first[1] else []
    guessed = {name: _guessed(path, name, [row.get(name) for row in first[1]]) for name in new}
    schema = wanted.stream_schema([pa.field(name, kind) for name, kind in guessed.items()])

    def batches() -> Iterator[pa.RecordBatch]:
        for start, rows in chain([first] if first[1] else [], blocks):
            yield _batch(path, start, rows, schema, wanted)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _batch(path: Path, start: int, rows: list[Row], schema: pa.Schema, wanted: RowColumns) -> pa.RecordBatch:
    for name in set(chain.from_iterable(rows)).difference(schema.names, META_FIELD_NAMES):
        at = start + next(at for at, row in enumerate(rows) if name in row)
        wanted.new_names([*schema.names, name], f"row {at} of {path}")
        raise InvalidRequest(
            f"row {at} of {path} is the first with the column {name!r}",
            hint="The types of new columns are inferred from the first rows: name it there.",
        )
    columns = []
    for item in schema:
        try:
            values = [row.get(item.name) if wanted.missing_as_null else row[item.name] for row in rows]
        except KeyError:
            at = start + next(at for at, row in enumerate(rows) if item.name not in row)
            raise InvalidRequest(
                f"row {at} of {path} lacks the column {item.name!r}",
                hint="Write null for it, or give --missing-as-null.",
            ) from None
        columns.append(array_of(values, item.type, item.name, fill=wanted.missing_as_null))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _blocks(path: Path, parse: Parse) -> Iterator[Block]:
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as source:
            yield from (_of_list if _is_list(source) else _of_lines)(path, source, parse)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8 text: {error}") from None


def _is_list(source: IO[str]) -> bool:
    """Whether the first character that is not blank opens a list."""
    letter = " "
    while letter.isspace():
        letter = source.read(1)
    source.seek(0)
    return letter == "["


def _of_list(path: Path, source: IO[str], parse: Parse) -> Iterator[Block]:
    try:
        rows = parse(source.read())
    except ValueError as error:
        raise InvalidRequest(f"{path} is no JSON: {error}") from None
    for start in range(0, len(rows), _LINES):
        yield start + 1, _checked(path, start + 1, rows[start : start + _LINES])


def _of_lines(path: Path, source: IO[str], parse: Parse) -> Iterator[Block]:
    start = 1
    filled = (line for line in source if not line.isspace())
    while lines := list(islice(filled, _LINES)):
        try:
            rows = parse(f"[{','.join(lines)}]")
            if len(rows) != len(lines):
                raise ValueError("a line holds several values")
        except ValueError:
            rows = [_line(path, start + at, line, parse) for at, line in enumerate(lines)]
        yield start, _checked(path, start, rows)
        start += len(rows)


def _line(path: Path, at: int, line: str, parse: Parse) -> Any:
    try:
        return parse(line)
    except ValueError as error:
        raise InvalidRequest(f"row {at} of {path} is no JSON: {error}", hint="Write one object per line.") from None


def _checked(path: Path, start: int, rows: list[Any]) -> list[Row]:
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InvalidRequest(f"row {start + at} of {path} is no JSON object")
    return rows


def _guessed(path: Path, name: str, values: list[Any]) -> pa.DataType:
    """The type of a new column."""
    try:
        return pa.array([_floats(value) for value in values]).type
    except (pa.ArrowException, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"the new column {name!r} of {path} has no type for all its values: {error}") from None


def _floats(value: Any) -> Any:
    """A value with floats instead of decimals, and of integers that do not fit into a long."""
    if isinstance(value, Decimal) or (type(value) is int and not -(2**63) <= value < 2**63):
        return float(value)
    if isinstance(value, list):
        return [_floats(item) for item in value]
    return {name: _floats(item) for name, item in value.items()} if isinstance(value, dict) else value


def _has_decimals(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or any(_has_decimals(kind.field(at).type) for at in range(kind.num_fields))
