"""Where the tasks of a command run: threads of this process with a progress bar, or the Spark session of `--spark`.

Spark is imported only with `--spark`, and the session is stopped at the end of the command.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from lakebed.cli.output import errors
from lakebed.errors import InvalidRequest
from lakebed.runner import LocalRunner, Runner

SparkOption = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="Run file groups as tasks of Spark: local[2], spark://host:7077, yarn, or sc://host for Connect.",
    ),
]


@contextmanager
def runner_on(master: str | None) -> Iterator[Runner]:
    """A runner that shows its progress on a terminal; the bar goes to standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Bars(*columns, console=errors, disable=not errors.is_terminal, transient=True)
    if master is None:
        with bars:
            yield LocalRunner(progress=_Bar(bars))
        return
    missing = why_no_spark(master)
    if missing is not None:
        raise InvalidRequest(f"--spark {master} cannot run: {missing}")
    from lakebed.spark.runner import SparkRunner
    from lakebed.spark.session import session_on

    with session_on(master) as session, bars:
        yield SparkRunner(session, _Bar(bars))


def why_no_spark(master: str = "local") -> str | None:
    """What is missing for a session, and where to get it; a Connect server brings its own Java."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'lakebed[spark]'"
    java_home = os.environ.get("JAVA_HOME")
    has_java = shutil.which("java") or (java_home and (Path(java_home) / "bin" / "java").exists())
    if master.startswith("sc://") or has_java:
        return None
    return "no Java found: install Java 17, and put java on the PATH or set JAVA_HOME"


class _Bar:
    """A bar per kind of work."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._known: dict[str, Any] = {}

    def advance(self, label: str, done: int, total: int | None) -> None:
        if label not in self._known:
            self._known[label] = self._bars.add_task(label, total=total)
        self._bars.update(self._known[label], completed=done, total=total)
