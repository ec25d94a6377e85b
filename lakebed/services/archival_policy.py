"""Which actions leave the active timeline: a function of the timeline, the options and what is still needed.

    kept:  the newest 20 writes, and everything from the first of these on
             · that is pending, of whatever kind           (older files would count as committed, newer ones not yet)
             · that has a savepoint                        (a restore needs every write after it)
             · that the last clean retains                 (Hudi's next clean continues from there)
             · that is not in a compacted metadata table   (Hudi asks the active timeline whether its logs are valid)
             · that replaced a group whose files are there (Hudi asks the active timeline alone what was replaced)

What is archived is a prefix by requested time, so that "older than the first write of the active timeline" means
committed. Cleans, rollbacks and the rest are archived with the writes around them; the newest clean stays, for it
states to all readers how far back they can travel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.config.upkeep_options import ArchiveOptions
from lakebed.format.names import METADATA_DIR
from lakebed.model.actions import CleanMetadata, CommitMetadata
from lakebed.model.files import BaseFile, FileGroupId, LogFile
from lakebed.model.instant import Action, Instant
from lakebed.timeline.active import load_active
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import whole_since

_EVER = "9" * 17
Files = Mapping[FileGroupId, Sequence[BaseFile | LogFile]]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of archiving takes; every action requested before `start` is then archived, or never committed."""

    instants: tuple[Instant, ...]
    start: str


def is_archive_due(client: MetaClient, options: ArchiveOptions) -> bool:
    """Whether there are enough writes to archive some: by the names on the timeline alone."""
    return len(client.completed_writes()) > options.max_commits


def choose_round(client: MetaClient, options: ArchiveOptions, files: Files, held: Collection[str] = ()) -> Round | None:
    """The actions to archive, oldest first; None when there are none. `files` are the data files on storage.

    `held` are requested times with a file that cannot be deleted now and that must not count later.
    """
    writes = client.completed_writes()
    if len(writes) <= options.max_commits:
        return None
    saved = {i.requested_time for i in client.timeline.of_actions(Action.SAVEPOINT) if i.is_completed}
    limit = min(
        _EVER,
        *map(comparable, held),
        *_limits(client),
        *(() if options.beyond_savepoint else _for_restores(writes, saved)),
    )
    excess = [w for w in writes[: len(writes) - options.min_commits] if w.requested_time not in saved]
    chosen: list[Instant] = []
    for write in excess:
        if comparable(write.requested_time) >= limit or _still_retires(client, write, files):
            break
        chosen.append(write)
    if not chosen:
        return None
    left = (w for w in writes if w not in chosen and w.requested_time not in saved)
    start = min(limit, *(comparable(write.requested_time) for write in left))
    return Round(tuple(sorted((*chosen, *_others(client, start)), key=_order)), start)


def _limits(client: MetaClient) -> Iterable[str]:
    """Requested times from which on everything stays."""
    for instant in client.timeline.pending:
        if instant.action is not Action.SAVEPOINT:
            yield comparable(instant.requested_time)
    yield from _retained(client)
    if client.config.metadata_partitions:
        known = load_active(client.storage.within(METADATA_DIR)).timeline
        compacted = known.completed.of_actions(Action.COMMIT).last
        yield comparable(compacted.requested_time) if compacted else ""


def _retained(client: MetaClient) -> Iterable[str]:
    """The requested time from which on the newest clean retains writes; by file versions, the first whole state."""
    clean = client.timeline.completed.of_actions(Action.CLEAN).last
    body = client.body(clean) if clean is not None else None
    if isinstance(body, CleanMetadata) and body.earliest_to_retain:
        yield comparable(body.earliest_to_retain)
    elif (since := whole_since(client)) is not None:
        whole = (w for w in client.completed_writes() if comparable(w.completion_time or "") >= since)
        yield min((comparable(write.requested_time) for write in whole), default=since)


def _for_restores(writes: Sequence[Instant], saved: Collection[str]) -> Iterable[str]:
    """Requested times of saved writes, and of all that completed after one of them, even if they began before."""
    yield from map(comparable, saved)
    times = [comparable(write.completion_time or "") for write in writes if write.requested_time in saved]
    first = min(times, default=_EVER)
    yield from (comparable(w.requested_time) for w in writes if comparable(w.completion_time or "") > first)


def _others(client: MetaClient, start: str) -> list[Instant]:
    """Completed actions that are no writes and began before the first write that stays."""
    done = client.timeline.completed.where(lambda i: not i.action.adds_files and i.action is not Action.SAVEPOINT)
    newest_clean = done.of_actions(Action.CLEAN).last
    return [i for i in done if comparable(i.requested_time) < start and i != newest_clean]


def _still_retires(client: MetaClient, write: Instant, files: Files) -> bool:
    """Whether files of a group that the write replaced are still there, and would be current again without it."""
    if write.action is not Action.REPLACE_COMMIT:
        return False
    body = client.body(write)
    replaced = body.replaced_file_ids if isinstance(body, CommitMetadata) else {}
    done = comparable(write.completion_time or "")
    for partition, file_ids in replaced.items():
        for file_id in file_ids:
            found = files.get(FileGroupId(partition, file_id), ())
            if any(f.requested_time != write.requested_time and comparable(f.requested_time) <= done for f in found):
                return True
    return False


def _order(instant: Instant) -> tuple[str, str]:
    return (comparable(instant.requested_time), str(instant.action))
