"""Which files a clean may delete: a function of the view, the timeline and the options.

    base b1        base b2              base b3
    ├─ logs ────────┼─ logs ─────────────┼─ logs ──────►   completion times
                    ^ b1 and its logs are needed until b2 completed
                                    ^ earliest write to retain: whatever was needed until before it completed may go

So every state from just before the earliest retained write on stays whole, and a write that is under way keeps the
state it began with. Files that others reserved are never deleted (services/reserved). Files that no reader counts are
deleted at once: those of attempts that lost, and of writes that were undone. Logs that a log compaction covers are
deleted before their slice is, results of earlier ones among them, if the covering log's own header names all writes
that they name: those made here name the original writes, those of Hudi may name another result, whose header is then
the only one to name these. The newest covered log stays where Hudi may read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakebed.config.upkeep_options import CleanOptions, CleanPolicy
from lakebed.datafile.log_file import open_log_file
from lakebed.format.log.block import BlockKind, LogBlock
from lakebed.model.files import FileGroup, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import Action, Instant
from lakebed.paths import file_name
from lakebed.timeline.clock import comparable, instant_time_before
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.markers import begin_of
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.slicing import group_files

_HOUR_MS = 3_600_000
_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_EVER = "9" * 17
CoveredLog = tuple[FileGroupId, str]
"""A file group and the name of one of its logs."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays readable: every state from just before `limit` on; with `versions`, so many slices of a group."""

    limit: str
    earliest: Instant | None = None
    versions: int | None = None


@dataclass(frozen=True, slots=True)
class Expendable:
    """A file that may be deleted, and since when no state needs it; None where none ever did."""

    partition_path: str
    name: str
    until: str | None


def retention(client: MetaClient, options: CleanOptions, now_ms: int) -> Retention | None:
    """What the options and the writes under way require to keep; None when nothing may be deleted yet."""
    writes = client.timeline.completed.of_actions(*_WRITES).in_completion_order()
    pending = min((comparable(i.requested_time) for i in client.timeline.pending.of_actions(*_WRITES)), default=_EVER)
    before_them = [write for write in writes if _done(write) < pending]
    if not before_them or client.timeline.pending.of_actions(Action.RESTORE).instants:
        return None
    if options.policy is CleanPolicy.FILE_VERSIONS:
        return Retention(pending, versions=options.versions)
    if options.policy is CleanPolicy.COMMITS:
        if len(writes) <= options.commits:
            return None
        earliest = writes[-options.commits]
    else:
        cutoff = instant_time_before(now_ms, options.hours * _HOUR_MS, client.config.timezone)
        earliest = next((write for write in writes if _done(write) >= cutoff), writes[-1])
    if _done(before_them[-1]) < _done(earliest):
        earliest = before_them[-1]
    return Retention(_done(earliest), earliest)


def expendable(
    client: MetaClient, view: FileSystemView, partition: str, keep: Retention, covered: Mapping[CoveredLog, Covered]
) -> Iterator[Expendable]:
    """The files of a partition that nothing needs, reserved ones included."""
    for group in view.file_groups(partition):
        for file_slice, until in _until(group, view):
            if until is not None and until < keep.limit and not _is_kept(group, file_slice, keep):
                yield from (Expendable(partition, file.name, until) for file in file_slice.files)
            elif covered:
                yield from _covered_logs(client, file_slice, covered)
    yield from _never_counted(client, view, partition)


def _until(group: FileGroup, view: FileSystemView) -> Iterator[tuple[FileSlice, str | None]]:
    """Each slice, newest first, and when the last state that needs it ended: a later base file, or a replacement."""
    until = comparable(group.replaced_at) if group.replaced_at is not None else None
    for file_slice in reversed(group.slices):
        yield file_slice, until
        if file_slice.base_file is not None:
            requested_time = file_slice.base_file.requested_time
            done = comparable(view.commits.completion_time(requested_time) or requested_time)
            until = done if until is None else min(until, done)


def _is_kept(group: FileGroup, file_slice: FileSlice, keep: Retention) -> bool:
    """Whether the slice is among the versions of its group that stay; a retired group has no versions."""
    if keep.versions is None or group.replaced_at is not None:
        return False
    newest = [item for item in reversed(group.slices) if not item.is_empty][: keep.versions]
    return file_slice in newest


@dataclass(frozen=True, slots=True)
class Covered:
    """What covers a log: the compaction, the newest requested time that it covers, and when it completed."""

    by: str
    newest: str
    until: str
    doubtful: bool
    """Whether headers must be read to decide: the log may be the result of a log compaction, or of several writes."""
    anchors: str | None = None
    """The compaction whose merged log has the place in fold order of this log."""


def log_compacted(client: MetaClient, keep: Retention) -> dict[CoveredLog, Covered]:
    """Logs that a log compaction covers which completed before the retained states."""
    done = [(instant, plan) for instant, plan in client.log_compactions() if _done(instant) < keep.limit]
    results = {instant.requested_time for instant, _ in done}
    inputs: dict[FileGroupId, dict[str, dict[str, str]]] = {}  # by group and compaction, covered logs and their times
    for instant, plan in done:
        for operation in plan.operations:
            names = {file_name(path): begin_of(file_name(path)) for path in operation.log_files}
            logs = {name: requested_time for name, requested_time in names.items() if requested_time}
            group = operation.file_group
            inputs.setdefault(group, {})[instant.requested_time] = logs
    completed = {instant.requested_time: _done(instant) for instant, _ in done}
    found: dict[CoveredLog, Covered] = {}
    for group, merged in inputs.items():
        anchors = _anchors({by: set(logs.values()) for by, logs in merged.items()})
        for by, logs in merged.items():
            newest = max(map(comparable, logs.values()), default="")
            for name, requested_time in logs.items():
                doubtful = (
                    requested_time in results
                    or client.is_before_timeline(requested_time)
                    or client.config.has_shared_logs
                )
                found[(group, name)] = Covered(by, newest, completed[by], doubtful, anchors.get(requested_time))
    return found


def _anchors(merged: Mapping[str, set[str]]) -> dict[str, str]:
    """By newest write that it replaces, each log compaction of a group whose result no later one merged again."""
    newest_of: dict[str, str] = {}
    for by in sorted(merged, key=comparable):  # oldest first: the newest write of an earlier one is known by then
        newest_of[by] = max(
            (newest_of.get(requested_time, requested_time) for requested_time in merged[by]), key=comparable, default=by
        )
    again = set().union(*merged.values())
    return {newest: by for by, newest in newest_of.items() if by not in again}


def _covered_logs(
    client: MetaClient, file_slice: FileSlice, covered: Mapping[CoveredLog, Covered]
) -> Iterator[Expendable]:
    """Logs that log compactions replaced, in a slice that is still needed.

    Where everything covered was requested before the base file, a reader knows only by the covered logs that the base
    file does not have their rows yet. And Hudi merges a compacted log in only where it meets a log that it covers:
    among logs of the form that Hudi reads, the one whose place in fold order it has is kept.
    """
    inline = {log.requested_time for log in file_slice.log_files if not log.native}
    for log in file_slice.log_files:
        by = covered.get((file_slice.file_group, log.name))
        if by is None or (
            file_slice.base_file is not None and by.newest <= comparable(file_slice.base_file.requested_time)
        ):
            continue
        covering = [one for one in file_slice.log_files if one.requested_time == by.by]
        if by.anchors not in inline and (not by.doubtful or _says_no_more(client, log, covering)):
            yield Expendable(file_slice.file_group.partition_path, log.name, by.until)


def _says_no_more(client: MetaClient, log: LogFile, covering: Sequence[LogFile]) -> bool:
    """Whether the header of the covering log names every write of a log, and none of them is a compaction itself."""
    named = {time for one in covering for block in _blocks(client, one) for time in block.compacted_times}
    return all(
        set(block.compacted_times) <= named and block.requested_time not in named
        if block.compacted_times
        else block.requested_time in named or not (block.kind.is_data or block.kind is BlockKind.DELETE)
        for block in _blocks(client, log)
    )


def _blocks(client: MetaClient, log: LogFile) -> tuple[LogBlock, ...]:
    return open_log_file(client.storage, log).blocks


def _never_counted(client: MetaClient, view: FileSystemView, partition: str) -> Iterator[Expendable]:
    """Files of attempts that lost, and of writes that were undone."""
    for group in group_files(partition, view.lister.files(partition)).values():
        for file in group.files():
            if not view.commits.is_named(file) or client.is_undone(file.requested_time):
                yield Expendable(partition, file.name, None)


def _done(instant: Instant) -> str:
    return comparable(instant.completion_time or "")
