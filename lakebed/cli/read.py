"""`lakebed read`: rows of a table to the screen or into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import typer

from lakebed.cli.output import console, errors, plain, print_json, print_table
from lakebed.errors import InvalidRequest
from lakebed.read.scan import Scan
from lakebed.table import open as open_table

SCREEN_ROWS = 20


def read(
    path: Annotated[str, typer.Argument(help="Folder or URL of the table.")],
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns; all when left out.")] = None,
    where: Annotated[str | None, typer.Option(help="A condition, e.g. \"qty > 3 and region = 'eu'\".")] = None,
    as_of: Annotated[str | None, typer.Option(help="An instant or a time, e.g. '2026-11-01 12:00:00'.")] = None,
    query: Annotated[str, typer.Option(help="snapshot, read_optimized or incremental.")] = "snapshot",
    start: Annotated[str | None, typer.Option(help="With --query incremental: after this completion time.")] = None,
    end: Annotated[str | None, typer.Option(help="With --query incremental: up to this completion time.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most this many rows.")] = None,
    memory: Annotated[str | None, typer.Option(help="Ceiling for merging, e.g. 512MB.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A .parquet, .csv or .json file.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Only the number of rows.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="The plan instead of the rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rows of a table: all of them, as of a time, or what changed since."""
    table = open_table(path)
    chosen = [name.strip() for name in columns.split(",")] if columns else None
    if query == "incremental":
        if start is None:
            raise InvalidRequest(
                "--query incremental needs --start", hint="Give a completion time, e.g. from `lakebed timeline`."
            )
        scan = table.incremental(start, end, columns=chosen, filter=where, memory=memory)
        scan = scan if limit is None else scan.limit(limit)
    else:
        scan = table.scan(chosen, filter=where, as_of=as_of, query=query, limit=limit, memory=memory)
    if explain:
        print_json({"plan": scan.explain().splitlines()}) if as_json else console.print(scan.explain(), markup=False)
    elif count:
        print_json({"rows": scan.count()}) if as_json else console.print(scan.count())
    elif output is not None:
        rows = write_rows(scan, output)
        print_json({"rows": rows, "file": str(output)}) if as_json else console.print(f"{rows} rows -> {output}")
    else:
        _to_screen(scan, limit=limit, as_json=as_json)


def _to_screen(scan: Scan, *, limit: int | None, as_json: bool) -> None:
    if as_json:
        print_json(scan.to_arrow().to_pylist())
        return
    shown = scan if limit is not None else scan.limit(SCREEN_ROWS + 1)
    table = shown.to_arrow()
    more = limit is None and table.num_rows > SCREEN_ROWS
    print_table(table.slice(0, SCREEN_ROWS) if more else table, as_json=False)
    if more:
        errors.print(f"first {SCREEN_ROWS} rows; --limit N shows more, -o FILE writes all", style="dim")


def write_rows(scan: Scan, output: Path) -> int:
    """Stream a scan into a file chosen by its ending; the file appears only when it is whole."""
    writers = {".parquet": _write_parquet, ".csv": _write_csv, ".json": _write_json}
    writer = writers.get(output.suffix.lower())
    if writer is None:
        raise InvalidRequest(
            f"cannot write {output.suffix or 'a file without an ending'}", hint="Use .parquet, .csv or .json."
        )
    if not output.parent.is_dir() or output.is_dir():
        raise InvalidRequest(f"cannot write to {output}", hint="The folder must exist, the name be free.")
    partial = output.with_name(f".{output.name}.partial")
    try:
        rows = writer(scan, partial)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return rows


def _write_parquet(scan: Scan, path: Path) -> int:
    rows = 0
    with pq.ParquetWriter(path, scan.schema, compression="zstd") as sink:
        for batch in scan.to_batches():
            sink.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_csv(scan: Scan, path: Path) -> int:
    schema = scan.schema
    nested = [field.name for field in schema if pa.types.is_nested(field.type) or pa.types.is_binary(field.type)]
    if nested:
        raise InvalidRequest(
            f"CSV cannot hold the columns {', '.join(nested)}", hint="Choose others with --columns, or write .json."
        )
    rows = 0
    with pa_csv.CSVWriter(path, schema) as sink:
        for batch in scan.to_batches():
            sink.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_json(scan: Scan, path: Path) -> int:
    rows = 0
    with path.open("w", encoding="utf-8") as sink:
        for batch in scan.to_batches():
            for row in batch.to_pylist():
                sink.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
            rows += batch.num_rows
    return rows
