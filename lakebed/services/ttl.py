"""Partitions with a lifetime: those that nobody wrote to for so many days vanish, as a replacecommit.

    KEEP_BY_TIME            the days count from the partition's last write
    KEEP_BY_CREATION_TIME   from the write that made the partition: its metafile names it, or the first write after
                            all of the partition was replaced, for the metafile stays

Compactions rewrite rows without being news of them, so they prolong nothing: the age is told by the writes that the
newest slices hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.config.upkeep_options import TtlOptions, TtlStrategy
from lakebed.config.write_options import WriteOptions
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import is_partition_metafile
from lakebed.model.actions import CommitMetadata
from lakebed.model.files import FileSlice
from lakebed.model.instant import Action
from lakebed.runner import Runner
from lakebed.timeline.clock import comparable, instant_time_before
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.partitions import StorageLister, read_metafile
from lakebed.write.job import CommitResult
from lakebed.write.operation import Operation
from lakebed.write.operations import TableWriter

_DAY_MS = 24 * 3_600_000
_ATTEMPTS = 3


def expired_partitions(client: MetaClient, options: TtlOptions, now_ms: int) -> tuple[str, ...]:
    """The partitions whose days are over, oldest first; at most so many as one commit may take."""
    if options.days < 0:
        raise InvalidRequest(
            "partitions live for ever", hint="Set hoodie.partition.ttl.strategy.days.retain to a number of days."
        )
    if not client.config.partition_fields:
        raise InvalidRequest("the table has no partitions that could expire")
    limit = instant_time_before(now_ms, options.days * _DAY_MS, client.config.timezone)
    ages = _created(client) if options.strategy is TtlStrategy.KEEP_BY_CREATION_TIME else _last_written(client)
    chosen = {p: age for p, age in ages.items() if not options.partitions or p in options.partitions}
    expired = sorted((comparable(age), partition) for partition, age in chosen.items() if comparable(age) < limit)
    return tuple(partition for _, partition in expired[: options.most])


def drop_expired(
    client: MetaClient,
    control: Control,
    options: TtlOptions,
    runner: Runner,
    *,
    properties: Mapping[str, str],
    memory: int,
) -> CommitResult | None:
    """Let expired partitions vanish; None when none is expired. One that is written to meanwhile is looked at again."""
    files = WriteOptions.from_properties({**client.config.properties, **properties})
    left = _ATTEMPTS
    while expired := expired_partitions(client, options, control.clock.now_ms()):
        writer = TableWriter(client, control, files, properties, runner, memory)
        try:
            return writer.delete_partitions(expired, as_read=True)
        except ConflictError:
            left -= 1
            if not left:
                raise
            client = client.reload()
    return None


def _last_written(client: MetaClient) -> dict[str, str]:
    """By partition that has rows, the begin of the newest write that is no table service."""
    view = FileSystemView.of(client)
    found: dict[str, str] = {}
    for partition in view.partitions():
        slices = view.slices(partition)
        if slices:
            found[partition] = max((file.instant_time for piece in slices for file in piece.files), key=comparable)
    services = {i.requested_time for i in client.timeline.completed.writes if _is_service(client, i.requested_time)}
    doubtful = [partition for partition, begin in found.items() if begin in services]
    for partition in doubtful:
        found[partition] = _newest_write(client, partition, found[partition])
    return found


def _newest_write(client: MetaClient, partition: str, otherwise: str) -> str:
    """The newest write to a partition on the active timeline; where there is none, the service's own begin stands."""
    for instant in reversed(client.completed_writes()):
        body = client.body(instant)
        if (
            isinstance(body, CommitMetadata)
            and partition in body.stats
            and not _is_service(client, instant.requested_time)
        ):
            return instant.requested_time
    return otherwise


def _is_service(client: MetaClient, begin: str) -> bool:
    write = client.timeline.completed_write(begin)
    planned = client.active.requested(write) if write is not None else None
    return planned is not None and planned.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


def _created(client: MetaClient) -> dict[str, str]:
    lister = StorageLister(client.storage)
    view = FileSystemView.of(client, lister)
    found: dict[str, str] = {}
    for partition in lister.partitions():
        metafile = next((info for info in lister.files(partition) if is_partition_metafile(info.name)), None)
        slices = view.slices(partition)
        if metafile is None or not slices:
            continue
        made = read_metafile(client.storage, metafile).commit_time
        reborn = _reborn(client, partition, slices)
        found[partition] = max(made, reborn, key=comparable) if reborn else made
    return found


def _reborn(client: MetaClient, partition: str, slices: Sequence[FileSlice]) -> str | None:
    """The oldest write to a partition whose rows once vanished as a whole, of those that are there now."""
    vanished = [
        instant.completion_time or ""
        for instant in client.timeline.completed.of_actions(Action.REPLACE_COMMIT)
        if isinstance(body := client.body(instant), CommitMetadata)
        and body.operation == Operation.DELETE_PARTITION
        and partition in body.replaced_file_ids
    ]
    if not vanished:
        return None
    begins = [file.instant_time for piece in slices for file in piece.files]
    later = [begin for begin in begins if comparable(begin) > comparable(vanished[-1])]
    return min(later, key=comparable, default=None)
