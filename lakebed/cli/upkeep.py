"""`lakebed clean | archive | savepoint | restore | rollback | ttl | upgrade | downgrade | concurrency`: table services.

Hudi's options are set by `--set key=value`, under Hudi's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from lakebed.cli.engine import SparkOption, runner_on
from lakebed.cli.output import print_json, say
from lakebed.cli.show import JsonOption, PathArgument
from lakebed.errors import InvalidRequest
from lakebed.model.instant import Instant
from lakebed.open_table import open as open_table
from lakebed.txn.mode import table_mode
from lakebed.txn.options import Concurrency

SetOption = Annotated[list[str] | None, typer.Option("--set", help="An option of the service, as key=value.")]
DropMetadataOption = Annotated[
    bool, typer.Option("--drop-metadata", help="Drop the table's metadata table, which is not kept up to date.")
]
InstantArgument = Annotated[str, typer.Argument(help="The requested time of an instant on the timeline.")]


def clean(
    path: PathArgument,
    settings: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files that no retained state needs. How much is retained: --set hoodie.clean.commits.retained=10."""
    _print("cleaned", open_table(path, drop_metadata=drop_metadata).services.clean(options_of(settings)), as_json)


def archive(path: PathArgument, settings: SetOption = None, as_json: JsonOption = False) -> None:
    """Move old actions into the history, when there are more than hoodie.keep.max.commits."""
    _print("archived", open_table(path).services.archive(options_of(settings)), as_json)


def savepoint(
    path: PathArgument,
    comment: Annotated[str, typer.Option(help="Why the savepoint is made.")] = "",
    instant: Annotated[str | None, typer.Option(help="The write to save; the newest if left out.")] = None,
    delete: Annotated[str | None, typer.Option(help="Delete this savepoint instead.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Protect the table's state from cleaning, so that it can be restored."""
    services = open_table(path).services
    if delete is not None:
        services.delete_savepoint(delete)
        _print("deleted savepoint", [delete], as_json)
    else:
        _print("saved", [services.savepoint(comment, instant)], as_json)


def restore(
    path: PathArgument,
    savepoint: Annotated[str | None, typer.Argument(help="The savepoint; the newest if left out.")] = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set the table back to a savepoint. Writes after it are gone for good."""
    _print("restored", [open_table(path, drop_metadata=drop_metadata).services.restore(savepoint)], as_json)


def rollback(
    path: PathArgument,
    instant: InstantArgument,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Undo a pending write, a pending plan, or the newest completed write."""
    done = open_table(path, drop_metadata=drop_metadata).services.rollback(instant)
    _print("rolled back", [done] if done is not None else [instant], as_json)


def ttl(
    path: PathArgument,
    days: Annotated[int | None, typer.Option(help="How many days a partition is kept without a write.")] = None,
    settings: SetOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Drop partitions without a write for so many days."""
    done = open_table(path, drop_metadata=drop_metadata).services.drop_expired_partitions(days, options_of(settings))
    _print("dropped expired partitions", [done.instant] if done is not None else [], as_json)


def upgrade(
    path: PathArgument,
    to: Annotated[int, typer.Option(help="The table version, 9 or 10.")] = 10,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give the table a higher version; no row and no file changes."""
    open_table(path).services.upgrade(to, drop_metadata)
    _print_version(path, as_json)


def downgrade(
    path: PathArgument,
    to: Annotated[int, typer.Option(help="The table version, 8 or 9.")] = 9,
    spark: SparkOption = None,
    drop_metadata: DropMetadataOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give the table a lower version; native logs are compacted, other features that version 8 lacks are rejected."""
    with runner_on(spark) as runner:
        open_table(path).services.on(runner).downgrade(to, drop_metadata)
    _print_version(path, as_json)


def concurrency(
    path: PathArgument,
    mode: Annotated[str | None, typer.Argument(help=f"{' | '.join(Concurrency)}; shown if left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show or set who may write to the table at the same time, for all of its writers."""
    table = open_table(path)
    if mode is not None:
        table.services.set_concurrency(mode)
    found = table_mode(table.config)
    if as_json:
        print_json({"mode": found})
    else:
        say(f"the table's concurrency mode is {found}")


def options_of(settings: Iterable[str] | None) -> dict[str, str]:
    """Options from the `key=value` texts of `--set`."""
    found = {}
    for text in settings or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidRequest(f"{text!r} is not key=value")
        found[key.strip()] = value.strip()
    return found


def _print(done: str, instants: Sequence[Instant | str], as_json: bool) -> None:
    if as_json:
        print_json([_facts(instant) for instant in instants])
    elif not instants:
        say("nothing to do")
    else:
        for instant in instants:
            say(f"{done} {instant}")


def _facts(instant: Instant | str) -> dict[str, str | None]:
    if isinstance(instant, str):
        return {"instant": instant}
    return {
        "instant": instant.requested_time,
        "action": str(instant.action),
        "state": str(instant.state),
        "completion": instant.completion_time,
    }


def _print_version(path: str, as_json: bool) -> None:
    version = int(open_table(path).config.version)
    if as_json:
        print_json({"version": version})
    else:
        say(f"the table has version {version}")
