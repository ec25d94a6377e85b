"""`lakebed demo`: a one-minute tour; a million rows in several upserts, the LSM levels, Spark and plain Python.

Spark writes and reads where it is installed and finds Java; without it the same rows go through plain Python, and the
tour prints that.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.rule import Rule
from rich.tree import Tree

from lakebed.cli.demo_orders import SCHEMA, Batch, batches, orders
from lakebed.cli.engine import why_no_spark
from lakebed.cli.output import console, print_table, say, size_text
from lakebed.open_table import create as create_table
from lakebed.table import Table

ROWS = 1_000_000
WIDTH = 100
BAR = 40
"""Characters of the longest bar in the picture of the levels."""


def demo(
    keep: Annotated[Path | None, typer.Option(help="Make the table here and leave it, to try other commands.")] = None,
    rows: Annotated[int, typer.Option(help="Rows to upsert, in seven batches.", min=1000)] = ROWS,
    spark: Annotated[bool, typer.Option(help="Write and read with Spark, where it is installed.")] = True,
) -> None:
    """A tour: create, upsert a million rows, show the levels, read, time travel, compact."""
    with tempfile.TemporaryDirectory(prefix="lakebed-demo-") as folder, _session(spark) as session:
        path = (keep or Path(folder)) / "orders"
        tour(path, rows, session)
        if keep is not None:
            say(f"\nThe table is in {path}: try `lakebed show {path}`")


def tour(path: Path, rows: int, session: Any = None) -> Table:
    """The usual operations on a table, step by step."""
    _step("1. A merge-on-read table in an LSM layout: two partitions, two buckets each")
    table = create_table(
        path, SCHEMA, record_key="id", partition_by="region", ordering="version", num_buckets=2, if_exists="error"
    )
    say(repr(table))
    _step(f"2. {rows:,} rows in {len(batches(rows))} upserts, by {'Spark' if session else 'plain Python'}")
    _upserts(table, batches(rows), session)
    _step("3. Its levels: a sorted base file (L1) and sorted logs on top (L0), per file group")
    console.print(levels(table))
    _step("4. A snapshot merges base and logs, wherever it is read")
    _reads(table, session)
    _step("5. Time travel: the table after each upsert")
    for row in table.inspect.timeline().to_pylist():
        if row["state"] == "completed":
            console.print(f"as of {row['instant']}  {table.scan(as_of=row['instant']).count():9,} rows")
    _step("6. One order, found by its key, and how it was found")
    found = table.scan(columns=SCHEMA.names, filter=f"id = 'order-{rows // 5:07d}'")
    print_table(found.to_arrow(), as_json=False)
    say(found.explain())
    _step("7. Compaction folds the logs into new base files; nothing that was read changes")
    before = table.scan().count()
    took = _timed(table.services.compact)
    console.print(levels(table.refresh()))
    console.print(f"compacted in {took:.1f} s; {table.scan().count():,} rows as before ({before:,})")
    return table


def levels(table: Table) -> Tree:
    """The LSM shape of every file group, as a tree with bars in proportion to sizes."""
    slices = table.inspect.file_slices().to_pylist()
    largest = max((max(row["base_bytes"], row["log_bytes"]) for row in slices), default=1) or 1
    tree = Tree(f"[bold]{table.name}[/]")
    for row in slices:
        group = tree.add(f"{row['partition'] or '.'} / {row['file_id'][:8]}")
        logs = f"[yellow]{_bar(row['log_bytes'], largest, row['log_files'])}[/]"
        group.add(f"L0  {logs}  {row['log_files']} logs, {size_text(row['log_bytes'])}")
        base = f"[green]{_bar(row['base_bytes'], largest, 1)}[/]  1 base file, {size_text(row['base_bytes'])}"
        group.add(f"L1  {base if row['base_file'] else 'no base file yet'}")
    return tree


def _bar(size: int, largest: int, files: int) -> str:
    """A bar for so many bytes, in as many pieces as there are files."""
    if not files:
        return "none"
    width = max(files, round(BAR * size / largest))
    piece, rest = divmod(width, files)
    return "|".join("█" * (piece + (number < rest)) for number in range(files))


def _upserts(table: Table, todo: list[Batch], session: Any) -> None:
    make = _maker(session)
    look = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*look, console=console, transient=True) as progress:
        bar = progress.add_task("upsert", total=sum(batch.rows for batch in todo))
        for number, batch in enumerate(todo, 1):
            progress.update(bar, description=f"upsert {number} of {len(todo)}")
            data = make(batch)
            took = _timed(lambda data=data: table.upsert(data))  # type: ignore[misc]
            progress.advance(bar, batch.rows)
            console.print(f"upsert {number}: {batch.rows:9,} rows in {took:5.1f} s", highlight=False)


def _maker(session: Any) -> Callable[[Batch], Any]:
    if session is None:
        return lambda batch: orders(batch.numbers, batch.version)
    from lakebed.spark.demo import orders as spark_orders

    return lambda batch: spark_orders(session, batch.numbers, batch.version)


def _reads(table: Table, session: Any) -> None:
    answers: dict[str, list[tuple[str, int, int]]] = {}
    if session is not None:

        def by_spark() -> None:
            frame = table.scan(columns=["region", "qty"]).to_df(session)
            found = frame.groupBy("region").agg({"*": "count", "qty": "sum"}).collect()
            answers["Spark"] = sorted((row["region"], row["count(1)"], row["sum(qty)"]) for row in found)

        _print_answer("Spark", by_spark, answers)
        routes = [line for line in table.scan().explain(session).splitlines() if "on Spark" in line]
        say("\n".join(routes))

    def by_python() -> None:
        rows: pa.Table = table.scan(columns=["region", "qty"]).to_arrow()
        found = rows.group_by("region").aggregate([("qty", "count"), ("qty", "sum")]).to_pylist()
        answers["Python"] = sorted((row["region"], row["qty_count"], row["qty_sum"]) for row in found)

    _print_answer("Python", by_python, answers)
    if len(answers) == 2:
        console.print("the same answer" if answers["Spark"] == answers["Python"] else "[bold red]the answers differ[/]")


def _print_answer(who: str, work: Callable[[], None], answers: dict[str, list[tuple[str, int, int]]]) -> None:
    took = _timed(work)
    text = ", ".join(f"{region}: {count:,} orders, {qty:,} pieces" for region, count, qty in answers[who])
    console.print(f"{who:6} {took:5.1f} s  {text}", highlight=False)


@contextmanager
def _session(wanted: bool) -> Iterator[Any]:
    """A Spark session for the tour; None, with a printed reason, where there cannot be one."""
    missing = why_no_spark() if wanted else "--no-spark"
    if missing is not None:
        console.print(f"[bold]Without Spark[/] ({missing}): plain Python writes and reads the same rows.")
        yield None
        return
    from lakebed.spark.demo import SETTINGS
    from lakebed.spark.session import session_on

    with ExitStack() as stack:
        with console.status("starting Spark"):
            session = stack.enter_context(session_on("local[2]", SETTINGS, name="lakebed demo"))
        yield session


def _timed(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def _step(title: str) -> None:
    console.print(Rule(f"[bold]{title}[/]", align="left"), width=min(console.width, WIDTH))
