"""The `lakebed` command. Exit codes: 0 done, 1 the table or the data is at fault, 2 wrong use."""

from __future__ import annotations

import sys
from importlib.metadata import version as package_version
from typing import Annotated

import typer

from lakebed.cli.check import check
from lakebed.cli.cluster import cluster, services
from lakebed.cli.compact import compact
from lakebed.cli.demo import demo
from lakebed.cli.dump import hfile_app, log_app
from lakebed.cli.output import complain
from lakebed.cli.read import read
from lakebed.cli.show import commit, config, show, slices, timeline
from lakebed.cli.upkeep import archive, clean, concurrency, downgrade, restore, rollback, savepoint, ttl, upgrade
from lakebed.cli.write import delete, upsert
from lakebed.errors import InvalidRequest, LakebedError

app = typer.Typer(
    name="lakebed",
    help="Read, write, inspect and maintain Apache Hudi tables: no Spark, no JVM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    add_completion=False,
)
for command in (show, timeline, slices, commit, config, read, upsert, delete, check, demo):
    app.command()(command)
for service in (compact, cluster, services, clean, archive, savepoint, restore, rollback, ttl):
    app.command()(service)
for change in (upgrade, downgrade, concurrency):
    app.command()(change)
app.add_typer(log_app, name="log")
app.add_typer(hfile_app, name="hfile")


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Options before any command."""
    if version:
        typer.echo(f"lakebed {package_version('lakebed')}")
        raise typer.Exit


def main() -> None:
    """Entry point: errors become one message and an exit code."""
    try:
        app()
    except InvalidRequest as error:
        complain(f" {error}", title="lakebed:")
        sys.exit(2)
    except LakebedError as error:
        complain(f" {error}", title="lakebed:")
        sys.exit(1)
