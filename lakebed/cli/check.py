"""`lakebed check`: runs the consistency check of a table and prints its findings."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import pyarrow as pa
import typer

from lakebed.cli.output import print_json, print_table, say
from lakebed.cli.show import JsonOption, PathArgument
from lakebed.model.finding import Severity
from lakebed.open_table import open as open_table


def check(
    path: PathArgument,
    memory: Annotated[str | None, typer.Option(help="A ceiling such as 512MB.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look for damage: files, timeline, order of rows, keys. Exit code 1 when a query result may be wrong."""
    findings = open_table(path).check(memory)
    rows = [{name: str(value) for name, value in dataclasses.asdict(finding).items()} for finding in findings]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(pa.Table.from_pylist(rows), as_json=False, title=f"{len(rows)} findings")
    else:
        say("nothing found: the table is consistent")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(1)
