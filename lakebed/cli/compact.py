"""`lakebed compact`: plan and run compactions; `--dry-run` prints the plan with the reason per file group."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import typer

from lakebed.cli.engine import SparkOption, runner_on
from lakebed.cli.output import print_json, say
from lakebed.cli.show import JsonOption, PathArgument
from lakebed.cli.upkeep import DropMetadataOption, SetOption, options_of
from lakebed.model.instant import Instant
from lakebed.open_table import open as open_table
from lakebed.services.compaction_plan import PlannedCompaction


def compact(
    path: PathArgument,
    strategy: Annotated[str, typer.Option(help="full: into base files; log: small logs into larger; hybrid.")] = "full",
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Save the plan for other processes to run, and print its reasons.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what a plan would contain and why; change nothing.")
    ] = False,
    if_due: Annotated[bool, typer.Option("--if-due", help="Only when the table's compaction trigger is met.")] = False,
    memory: Annotated[str | None, typer.Option(help="A ceiling such as 512MB; of each task with --spark.")] = None,
    spark: SparkOption = None,
    settings: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge logs into base files, or among themselves. Pending plans are run first."""
    table, options = open_table(path, drop_metadata=drop_metadata), options_of(settings)
    if dry_run or plan_only:
        services = table.services
        make = services.explain_compaction if dry_run else services.plan_compaction
        _print_plan(make(strategy, options, not if_due), as_json)
        return
    with runner_on(spark) as runner:
        done = table.services.on(runner).compact(strategy, options, memory, not if_due)
    print_done(done, "nothing to compact", as_json)


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
    say(explained)
    for instant in instants:
        say(f"planned as {instant.requested_time}.{instant.action}")


def print_done(done: Sequence[Instant], nothing: str, as_json: bool) -> None:
    """The plans that were run, or that there was none."""
    if as_json:
        print_json(
            [{"instant": one.requested_time, "action": one.action, "completed": one.completion_time} for one in done]
        )
    elif not done:
        say(nothing)
    for instant in () if as_json else done:
        say(f"{instant.requested_time} {instant.action}, completed {instant.completion_time}")
