"""`lakebed cluster` runs a clustering, `lakebed services` runs pending plans, once or in a loop (`--watch`)."""

from __future__ import annotations

import signal
from threading import Event
from typing import Annotated

import typer

from lakebed.cli.compact import print_done, print_planned
from lakebed.cli.engine import SparkOption, runner_on
from lakebed.cli.output import complain, print_json, say
from lakebed.cli.show import JsonOption, PathArgument
from lakebed.cli.upkeep import DropMetadataOption, SetOption, options_of
from lakebed.errors import InvalidRequest
from lakebed.open_table import open as open_table
from lakebed.services.clustering_strategy import PlannedClustering
from lakebed.services.watch import Outcome, Watcher


def cluster(
    path: PathArgument,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Save the plan for other processes to run, and print its reasons.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what a plan would contain and why; change nothing.")
    ] = False,
    if_due: Annotated[bool, typer.Option("--if-due", help="Only after enough writes since the last one.")] = False,
    sort: Annotated[str | None, typer.Option(help="Columns to sort by, with commas (default layout).")] = None,
    memory: Annotated[str | None, typer.Option(help="A ceiling such as 512MB; of each task with --spark.")] = None,
    spark: SparkOption = None,
    settings: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rewrite small file groups into larger ones with rows in order. Earlier plans are run first.

    Under consistent hashing buckets are split and merged instead.
    """
    table, options = open_table(path, drop_metadata=drop_metadata), options_of(settings)
    if sort is not None:
        options["hoodie.clustering.plan.strategy.sort.columns"] = sort
    if dry_run or plan_only:
        make = table.services.explain_clustering if dry_run else table.services.plan_clustering
        _print_plan(make(options, not if_due), as_json)
        return
    with runner_on(spark) as runner:
        done = table.services.on(runner).cluster(options, memory, not if_due)
    print_done(done, "nothing to cluster", as_json)


def services(
    path: PathArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Run what is planned now, then stop.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two reads of the timeline.")] = 10.0,
    spark: SparkOption = None,
    settings: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run pending compactions and clusterings. Several processes may watch one table."""
    if watch == once or every <= 0:
        raise InvalidRequest("one of --watch and --once is needed, and a positive time with --every")
    table = open_table(path, options=options_of(settings), drop_metadata=drop_metadata)
    failed = False

    def report(outcome: Outcome) -> None:
        nonlocal failed
        failed |= outcome.error is not None and not outcome.busy
        _print_outcome(outcome, as_json)

    with runner_on(spark) as runner:
        watcher = Watcher(table.services.on(runner))
        if watch:
            watcher.watch(every, _interrupted(), report)
            return
        for outcome in watcher.once():
            report(outcome)
    if failed:
        raise typer.Exit(1)


def _interrupted() -> Event:
    """Set by the first Ctrl-C or SIGTERM, so that a running plan is finished; the second ends the program."""
    stop = Event()

    def end(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return stop


def _print_outcome(outcome: Outcome, as_json: bool) -> None:
    planned = f"{outcome.planned.requested_time}.{outcome.planned.action}" if outcome.planned else "the timeline"
    if as_json:
        done = outcome.completed.completion_time if outcome.completed else None
        reason = str(outcome.error) if outcome.error else None
        print_json({"plan": planned, "completed": done, "busy": outcome.busy, "error": reason})
    elif outcome.completed is not None:
        say(f"{planned} completed {outcome.completed.completion_time}")
    elif outcome.busy:
        say(f"{planned} left: {outcome.error}")
    else:
        complain(f"{planned} failed: {outcome.error}")


def _print_plan(planned: PlannedClustering, as_json: bool) -> None:
    if as_json:
        groups = [[str(file_slice.file_group) for file_slice in group] for group in planned.groups]
        left = {str(group): reason for group, reason in (planned.left or {}).items()}
        facts = {"instants": [str(one) for one in planned.instants], "groups": groups, "left": left}
        print_json(facts | ({"resizes": [one.what for one in planned.resizes]} if planned.resizes else {}))
        return
    print_planned(planned.explain(), planned.instants)
