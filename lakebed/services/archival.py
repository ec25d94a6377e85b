"""Archiving: old actions move from the active timeline into the history.

    without the lock   list the data files
    under the lock     choose  ->  delete files of these writes that no commit names  ->  flush into the history
                       ->  delete the timeline files: pending states first, then completed ones, oldest first
                       ->  merge files of the history, and remove those that its retained versions do not need

A file counts as committed once its requested time is older than the active timeline, which is why no file may be left
that its commit does not name; where a plan of another program holds such a file, archiving stops before it. Between the
flush and the last deletion some actions are in both timelines, which count as one; a round that died there is finished
by the next, which only deletes what the history has already. The order of deletion never makes a completed action look
pending.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakebed.config.upkeep_options import ArchiveOptions
from lakebed.format.names import parse_instant_file
from lakebed.model.files import BaseFile, FileGroupId, LogFile
from lakebed.model.instant import Action, Instant
from lakebed.runner import LocalRunner
from lakebed.services.archival_policy import Files, Round, choose_round
from lakebed.services.reserved import Reserved
from lakebed.timeline.clock import comparable
from lakebed.timeline.history import History
from lakebed.timeline.history_columns import BODIES_SCHEMA, instants_of
from lakebed.timeline.history_writer import compact, flush, sweep
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.rollback import delete_all
from lakebed.txn.txn_context import TxnContext
from lakebed.view.committed import TimelineCommits
from lakebed.view.partitions import StorageLister
from lakebed.view.slicing import group_files


def archive(client: MetaClient, txn_context: TxnContext, options: ArchiveOptions) -> tuple[Instant, ...]:
    """Move old actions into the history; the actions that left the active timeline. `client` was just read."""
    if choose_round(client, options, {}) is None and not _archived_already(client):
        return ()
    files = _data_files(client)
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        left = _archived_already(fresh)
        chosen, unnamed = _choose(fresh, options, files)
        if chosen is not None:
            lease.confirm()
            delete_all(fresh.storage, unnamed)
        history = fresh.history
        new = [i for i in chosen.instants if i not in left] if chosen is not None else []
        if new:
            rows = _rows(fresh, new)
            lease.confirm()
            history = flush(history, rows)
        gone = sorted({*left, *new}, key=lambda i: (comparable(i.requested_time), str(i.action)))
        lease.confirm()
        forgotten = _forget(fresh, gone)
        if history.version is not None:
            history = compact(history, options.batch, options.target_size)
            sweep(history, options.versions)
        txn_context.notify(fresh.changed({}, forgotten))
    return tuple(gone)


def _choose(client: MetaClient, options: ArchiveOptions, files: Files) -> tuple[Round | None, list[str]]:
    """What is archived, and the files to delete before it is; only up to a file to be deleted that a plan holds."""
    held = Reserved.of(client).held()
    stays: set[str] = set()
    while chosen := choose_round(client, options, files, stays):
        unnamed = list(_unnamed(client, chosen, files))
        kept = {file.requested_time for file in unnamed if (file.file_group.partition_path, file.name) in held}
        if not kept:
            return chosen, [file.path for file in unnamed]
        stays |= kept
    return None, []


def _data_files(client: MetaClient) -> Files:
    lister = StorageLister(client.storage)
    found: dict[FileGroupId, list[BaseFile | LogFile]] = {}
    for partition in lister.partitions():
        for group in group_files(partition, lister.files(partition)).values():
            found.setdefault(group.id, []).extend(group.files())
    return found


def _unnamed(client: MetaClient, chosen: Round, files: Files) -> Iterator[BaseFile | LogFile]:
    """Files that would count once their requested time leaves the active timeline, although no commit names them."""
    commits = TimelineCommits(client)
    reported = {info.path for infos in commits.written().values() for info in infos}  # with appends to older logs
    for file in (file for group in files.values() for file in group):
        requested_time = file.requested_time
        if (
            file.path in reported
            or comparable(requested_time) >= chosen.start
            or client.is_before_timeline(requested_time)
        ):
            continue
        if client.timeline.completed_write(requested_time) is not None:
            if not commits.is_named(file):
                yield file
        elif not client.timeline.at(requested_time) and not any(
            i.action.adds_files for i in client.history.find(requested_time)
        ):
            yield file


def _rows(client: MetaClient, instants: list[Instant]) -> pa.Table:
    """The actions as the history keeps them: with the bytes of their completed and requested files."""

    def load(instant: Instant) -> tuple[bytes | None, bytes | None]:
        requested = client.active.requested(instant)
        return _bytes(client, instant), _bytes(client, requested) if requested is not None else None

    bodies = list(LocalRunner().map(load, instants, label="archive"))
    columns = [
        [instant.requested_time for instant in instants],
        [instant.completion_time for instant in instants],
        [str(instant.action) for instant in instants],
        [metadata for metadata, _ in bodies],
        [plan for _, plan in bodies],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BODIES_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=BODIES_SCHEMA)


def _bytes(client: MetaClient, instant: Instant) -> bytes | None:
    return client.storage.read(client.active.path(instant)) if client.active.size(instant) else None


def _archived_already(client: MetaClient) -> set[Instant]:
    """Completed actions of the active timeline that the history has as well; mostly known from its file names."""
    first = client.timeline.first
    if first is None:
        return set()
    history: History = client.history
    known = {(i.requested_time, i.action) for i in instants_of(history.table(first.requested_time))}
    done = (i for i in client.timeline.completed if i.action is not Action.SAVEPOINT)
    return {instant for instant in done if (instant.requested_time, instant.action) in known}


def _forget(client: MetaClient, instants: list[Instant]) -> list[Instant]:
    """Delete the timeline files of archived actions; the states that are gone."""
    states: dict[tuple[str, Action], list[Instant]] = {}
    for found in filter(None, map(parse_instant_file, client.active.files)):
        states.setdefault((found.requested_time, found.action.completes_as), []).append(found)
    archived = [state for i in instants for state in states.get((i.requested_time, i.action.completes_as), ())]
    for completed in (False, True):
        delete_all(client.storage, [client.active.path(i) for i in archived if i.is_completed is completed])
    return archived
