"""`lakebed demo`: a tour of a table that real Hudi wrote, in under a minute and without a JVM."""

from __future__ import annotations

import tempfile
import zipfile
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.rule import Rule
from rich.tree import Tree

from lakebed.cli.output import console, print_table, size_text
from lakebed.table import Table
from lakebed.table import open as open_table

ARCHIVE = "demo_table.zip"
BAR_BYTES = 4000


def demo(
    keep: Annotated[
        Path | None, typer.Option(help="Unpack the table here and leave it, to try other commands.")
    ] = None,
) -> None:
    """The tour: open a table, look at its timeline and slices, read it, travel in time."""
    with tempfile.TemporaryDirectory() as folder:
        home = keep or Path(folder)
        packed = resources.files("lakebed.cli").joinpath(ARCHIVE)
        with packed.open("rb") as source, zipfile.ZipFile(source) as archive:
            name = archive.namelist()[0].split("/")[0]
            archive.extractall(home)
        tour(open_table(home / name))
        if keep is not None:
            console.print(f"\nThe table is in [bold]{home / name}[/]: try `lakebed show {home / name}`")


def tour(table: Table) -> None:
    """What a reader does with a table, step by step."""
    _step("1. A merge-on-read table that Apache Hudi 1.2.0 wrote; no JVM here")
    console.print(repr(table), highlight=False)
    _step("2. Its timeline: four writes, then a compaction that somebody planned and nobody ran yet")
    print_table(table.inspect.timeline().select(["instant", "action", "state", "operation"]), as_json=False)
    _step("3. Its file slices: one level-1 base file and the level-0 logs on top, per file group")
    console.print(levels(table))
    _step("4. A snapshot merges base and logs; read-optimized takes base files only")
    own = [name for name in table.schema.names if not name.startswith("_hoodie")]
    print_table(table.scan(columns=own, limit=5).to_arrow(), as_json=False)
    rows = {"snapshot": table.scan().count(), "read optimized": table.scan(query="read_optimized").count()}
    console.print(", ".join(f"{name}: {count} rows" for name, count in rows.items()))
    _step("5. Time travel: how many rows there were after each write")
    completed = [row for row in table.inspect.timeline().to_pylist() if row["state"] == "completed"]
    for row in completed:
        count = table.scan(as_of=row["instant"]).count()
        console.print(f"as of {row['instant']}  {count:4} rows  [dim]{row['operation']}[/]")
    _step("6. What changed since the first write")
    changed = table.incremental(start=completed[0]["completion"])
    console.print(f"{changed.count()} rows were inserted or updated")
    _step("7. A look-up by key, and what the plan left out")
    key = table.scan(columns=own, limit=1).to_arrow().to_pylist()[0][own[0]]
    console.print(table.scan(filter=f"{own[0]} = '{key}'").explain(), markup=False, highlight=False)


def levels(table: Table) -> Tree:
    """The LSM shape of every file group, as a tree with bars."""
    tree = Tree(table.name)
    for row in table.inspect.file_slices().to_pylist():
        group = tree.add(f"{row['partition'] or '.'} / {row['file_id'][:8]}")
        group.add(f"L0  {'▤' * max(1, row['log_files'])}  {row['log_files']} logs, {size_text(row['log_bytes'])}")
        bar = "▤" * max(1, row["base_bytes"] // BAR_BYTES) if row["base_file"] else ""
        group.add(f"L1  {bar}  {size_text(row['base_bytes']) if row['base_file'] else 'no base file yet'}")
    return tree


def _step(title: str) -> None:
    console.print(Rule(f"[bold]{title}[/]", align="left"))
