"""`lakebed read`: print rows of a table, or write them into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebed.cli.json_values import json_rows
from lakebed.cli.output import errors, print_json, print_table, say
from lakebed.cli.row_files import write_rows
from lakebed.errors import InvalidRequest
from lakebed.open_table import open as open_table
from lakebed.read.scan import Scan

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
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .parquet, .arrow, .csv or .json file.")
    ] = None,
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
        print_json({"plan": scan.explain().splitlines()}) if as_json else say(scan.explain())
    elif count:
        print_json({"rows": scan.count()}) if as_json else say(str(scan.count()))
    elif output is not None:
        rows = write_rows(scan, output)
        print_json({"rows": rows, "file": str(output)}) if as_json else say(f"{rows} rows -> {output}")
    else:
        _to_screen(scan, limit=limit, as_json=as_json)


def _to_screen(scan: Scan, *, limit: int | None, as_json: bool) -> None:
    if as_json:
        print_json(json_rows(scan.to_arrow(), exact=False))
        return
    shown = scan if limit is not None else scan.limit(SCREEN_ROWS + 1)
    table = shown.to_arrow()
    more = limit is None and table.num_rows > SCREEN_ROWS
    print_table(table.slice(0, SCREEN_ROWS) if more else table, as_json=False)
    if more:
        errors.print(f"first {SCREEN_ROWS} rows; --limit N shows more, -o FILE writes all", style="dim")
