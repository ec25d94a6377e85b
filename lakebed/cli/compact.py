"""`lakebed compact`: merge logs, with the reasons on request and a bar while it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from lakebed.cli.output import console, errors, print_json
from lakebed.cli.show import JsonOption, PathArgument
from lakebed.cli.upkeep import SetOption, options_of
from lakebed.model.instant import Instant
from lakebed.runner import LocalRunner
from lakebed.services.compaction_plan import PlannedCompaction
from lakebed.table import open as open_table


def compact(
    path: PathArgument,
    strategy: Annotated[str, typer.Option(help="full: into base files; log: small logs into larger; hybrid.")] = "full",
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Save the plan for others to run, and say why.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what a plan would hold and why; change nothing.")
    ] = False,
    if_due: Annotated[bool, typer.Option("--if-due", help="Only when the table's trigger says so.")] = False,
    memory: Annotated[str | None, typer.Option(help="A ceiling such as 512MB.")] = None,
    given: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge logs into base files, or among themselves. What was planned before and is not done is run first."""
    table, options = open_table(path), options_of(given)
    if dry_run or plan_only:
        services = table.services
        make = services.explain_compaction if dry_run else services.plan_compaction
        _print_plan(make(strategy, options, not if_due), as_json)
        return
    with progress_runner() as runner:
        services = dataclasses.replace(table.services, runner=runner)
        done = services.compact(strategy, options, memory, not if_due)
    print_done(done, "nothing to compact", as_json)


@contextmanager
def progress_runner() -> Iterator[LocalRunner]:
    """A runner that shows how far it is, on a terminal; the bar goes to standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=errors, disable=not errors.is_terminal, transient=True) as bars:
        yield LocalRunner(progress=_Bar(bars))


class _Bar:
    """A bar per kind of work."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._known: dict[str, Any] = {}

    def advance(self, label: str, done: int, total: int | None) -> None:
        if label not in self._known:
            self._known[label] = self._bars.add_task(label, total=total)
        self._bars.update(self._known[label], completed=done, total=total)


def _print_plan(planned: PlannedCompaction, as_json: bool) -> None:
    if as_json:
        rows = []
        for one in planned.decisions:
            row = dataclasses.asdict(one)
            row["group"] = str(one.group)
            row["logs"] = [name for log in one.logs for name in log.files]
            rows.append(row)
        print_json({"instants": [str(one) for one in planned.instants], "decisions": rows})
        return
    print_planned(planned.explain(), planned.instants)


def print_planned(explained: str, instants: Sequence[Instant]) -> None:
    """A plan with its reasons, and the names under which it was saved, if it was."""
    console.print(explained, markup=False, highlight=False)
    for instant in instants:
        console.print(f"planned as {instant.requested_time}.{instant.action}", highlight=False)


def print_done(done: Sequence[Instant], nothing: str, as_json: bool) -> None:
    """The plans that were run, or that there was none."""
    if as_json:
        print_json(
            [{"instant": one.requested_time, "action": one.action, "completed": one.completion_time} for one in done]
        )
    elif not done:
        console.print(nothing)
    for instant in () if as_json else done:
        console.print(
            f"{instant.requested_time} {instant.action}, completed {instant.completion_time}", highlight=False
        )
