"""How old partitions are: when each was last written to, and when it was created.

    p1   created ── written ── deleted ──────────── written again ── written
         ^ its metafile has this time for ever      ^ and this is its creation now

The metafile of a partition stays when all of its file groups are replaced, be it by `delete_partitions` or by an
overwrite, and when the write that created it is undone. So the timeline is read as well, and the history as far back as
it matters: creation is the first write after the partition was last deleted, or the overwrite that replaced all of its
rows. Where that is unknown, the later time is used: a partition may be kept too long, but never too short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakebed.format.names import is_partition_metafile
from lakebed.model.actions import ActionBody, CommitMetadata
from lakebed.model.files import FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.partitions import StorageLister, read_metafile

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_SERVICES = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER"})


@dataclass(frozen=True, slots=True)
class Break:
    """A time before which nothing of a partition counts: it was deleted then, or the write that made it was undone."""

    time: str
    requested_time: str | None = None
    """Of the write that replaced the partition, which may have written other rows instead of the old ones."""

    def is_before(self, write: Instant) -> bool:
        return write.requested_time == self.requested_time or comparable(write.requested_time) > self.time


def last_written(client: MetaClient) -> dict[str, str]:
    """By partition that has rows, the requested time of the newest write that is no table service."""
    view = FileSystemView.of(client)
    found: dict[str, str] = {}
    for partition in view.partitions():
        times = [view.commits.writer_of(file) for file_slice in view.slices(partition) for file in file_slice.files]
        if times:
            found[partition] = max(times, key=comparable)
    services = {i.requested_time for i in client.timeline.completed.writes if _was_planned(client, i)}
    doubtful = [partition for partition, requested_time in found.items() if requested_time in services]
    for partition in doubtful:
        found[partition] = _newest_write(client, partition, found[partition])
    return found


def created(client: MetaClient) -> dict[str, str]:
    """By partition with rows and a metafile, the requested time of the write that created it, or created it anew."""
    lister = StorageLister(client.storage)
    view = FileSystemView.of(client, lister)
    made: dict[str, str] = {}
    slices: dict[str, Sequence[FileSlice]] = {}
    for partition in lister.partitions():
        metafile = next((info for info in lister.files(partition) if is_partition_metafile(info.name)), None)
        file_slices = view.slices(partition)
        if metafile is not None and file_slices:
            made[partition] = read_metafile(client.storage, metafile).commit_time
            slices[partition] = file_slices
    breaks = _breaks(client, made)
    first = _first_writes(client, breaks)
    return made | {p: first.get(p) or _oldest_file(slices[p], since) for p, since in breaks.items()}


def _was_planned(client: MetaClient, write: Instant) -> bool:
    planned = client.active.requested(write)
    return planned is not None and planned.action.is_service


def _newest_write(client: MetaClient, partition: str, otherwise: str) -> str:
    """The newest write to a partition on the active timeline; where there is none, `otherwise`, the service's time."""
    for instant in reversed(client.completed_writes()):
        body = client.body(instant)
        if isinstance(body, CommitMetadata) and partition in body.stats and not _was_planned(client, instant):
            return instant.requested_time
    return otherwise


def _breaks(client: MetaClient, made: Mapping[str, str]) -> dict[str, Break]:
    """The partitions whose metafile does not have their creation time, with the last time they did not exist."""
    found = {partition: Break(comparable(time)) for partition, time in made.items() if not client.completion_time(time)}
    oldest = min(made.values(), key=comparable, default="")
    for instant, body in _reports(client, oldest, (Action.REPLACE_COMMIT,)):
        if not isinstance(body, CommitMetadata) or body.operation in _SERVICES:
            continue
        done = comparable(instant.completion_time or "")
        for partition in body.replaced_file_ids.keys() & made.keys():
            known = found.get(partition, Break(comparable(made[partition])))
            if done > known.time:
                found[partition] = Break(done, instant.requested_time)
    return found


def _first_writes(client: MetaClient, breaks: Mapping[str, Break]) -> dict[str, str]:
    """By partition the requested time of the first write to it after its break, where commit metadata shows it."""
    found: dict[str, str] = {}
    since = min((item.requested_time or item.time for item in breaks.values()), key=comparable, default="")
    for instant, body in _reports(client, since, _WRITES) if breaks else ():
        if not isinstance(body, CommitMetadata) or body.operation in _SERVICES:
            continue
        for partition in body.stats.keys() & breaks.keys():
            if breaks[partition].is_before(instant):
                found.setdefault(partition, instant.requested_time)
        if len(found) == len(breaks):
            break
    return found


def _reports(client: MetaClient, low: str, actions: tuple[Action, ...]) -> Iterator[tuple[Instant, ActionBody | None]]:
    """The bodies of completed actions with a requested time from `low` on, archived ones first."""
    yield from client.history.reports(actions, low)
    for instant in client.timeline.completed.of_actions(*actions):
        if comparable(instant.requested_time) >= comparable(low):
            yield instant, client.body(instant)


def _oldest_file(slices: Iterable[FileSlice], since: Break) -> str:
    """The time of the oldest file after a break, if no commit shows it; files are rewritten, so it may be too late."""
    times = [file.requested_time for file_slice in slices for file in file_slice.files]
    later = [requested_time for requested_time in times if comparable(requested_time) > since.time]
    return min(later, key=comparable) if later else max(times, key=comparable)
