"""Which commit is rejected: its named invariants, and the rule for two writers that touched the same file group.

Each invariant is a function that raises when it does not hold, run under the table lock just before the publish (those
that look at our own files only, just before the lock). A `ConflictError` means that another writer committed first and
that the same call may be retried.

    ours / theirs          appended logs     rewrote or replaced     compacted                  merged logs
    appended logs          conflict (*)      conflict                fine: slices are cut by completion time
    rewrote or replaced    conflict          conflict                conflict                   conflict
    compaction             fine              conflict                conflict                   fine
    log compaction         fine              conflict                fine                       conflict

(*) not under non-blocking concurrency control, where the ordering field decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakebed.errors import ConflictError, CorruptTable, InvalidRequest
from lakebed.format.names import parse_base_file, parse_log_file
from lakebed.model.actions import ActionBody, CommitMetadata
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Action, Instant
from lakebed.model.internal_schema import reported_version
from lakebed.paths import file_name
from lakebed.runner import LocalRunner
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.timeline import Timeline
from lakebed.txn.instants import greatest_time
from lakebed.txn.rollback import rollback_of


@dataclass(frozen=True, slots=True)
class Touched:
    """The file groups of one write, by what it did to them."""

    requested_time: str
    appended: frozenset[FileGroupId]
    rewritten: frozenset[FileGroupId]
    compacted: bool = False

    @classmethod
    def by(cls, requested_time: str, commit: CommitMetadata) -> Touched:
        appended: set[FileGroupId] = set()
        rewritten: set[FileGroupId] = set()
        for partition, stats in commit.stats.items():
            for stat in stats:
                is_log = bool(stat.path) and parse_log_file(file_name(stat.path or "")) is not None
                (appended if is_log else rewritten).add(FileGroupId(partition, stat.file_id))
        for partition, file_ids in commit.replaced_file_ids.items():
            rewritten.update(FileGroupId(partition, file_id) for file_id in file_ids)
        return cls(requested_time, frozenset(appended), frozenset(rewritten), commit.compacted)

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return self.appended | self.rewritten


def conflicts(ours: Touched, others: Iterable[Touched], *, non_blocking: bool = False) -> ConflictError | None:
    """The conflict with the first of the writes that completed since we began and touched a file group of ours."""
    for theirs in others:
        shared = _contested(ours, theirs, non_blocking)
        if shared:
            return ConflictError(
                f"the write {theirs.requested_time} completed while {ours.requested_time} was running and touched "
                f"{len(shared)} of the same file groups, such as {min(shared)}",
                hint="This write is undone; try again.",
            )
    return None


def _contested(ours: Touched, theirs: Touched, non_blocking: bool) -> frozenset[FileGroupId]:
    if ours.compacted:
        if (
            theirs.compacted
        ):  # a log compaction and a full one may pass each other: either finds its inputs as they were
            return (ours.rewritten & theirs.rewritten) | (ours.appended & theirs.appended)
        return ours.groups & theirs.rewritten
    shared = ours.rewritten & theirs.groups
    if not theirs.compacted:
        shared |= ours.appended & (theirs.rewritten if non_blocking else theirs.groups)
    return shared


def completed_since(snapshot: MetaClient, now: MetaClient) -> Iterator[Touched]:
    """Writes that are completed now and were not in the snapshot, archived ones included."""
    for instant, body in _reports_since(snapshot, now):
        yield Touched.by(instant.requested_time, body)


def _reports_since(snapshot: MetaClient, now: MetaClient) -> Iterator[tuple[Instant, CommitMetadata]]:
    known = {instant.requested_time for instant in snapshot.completed_writes()}
    for instant in now.completed_writes():
        if instant.requested_time not in known:
            yield from _report(instant, now.body(instant))
    for pending in snapshot.timeline.pending.writes:
        if not now.timeline.at(pending.requested_time):
            for instant in now.history.find(pending.requested_time):
                yield from _report(instant, now.history.body(instant))


def _report(instant: Instant, body: ActionBody | None) -> Iterator[tuple[Instant, CommitMetadata]]:
    if isinstance(body, CommitMetadata):
        yield instant, body


# Invariants


def instant_still_ours(snapshot: MetaClient, now: MetaClient, inflight: Instant, *, alive: bool) -> None:
    """No other writer completed the action, rolled it back or started to roll it back since the snapshot."""
    requested_time = inflight.requested_time
    done = now.timeline.find(requested_time, inflight.action.completes_as)
    if done is not None and done.is_completed:
        raise ConflictError(f"{inflight} was completed by another writer", hint="Open the table again.")
    if now.active.size(inflight) is None:
        raise ConflictError(f"{inflight} was rolled back by another writer", hint="Try again.")
    undone = rolled_back_since(snapshot, now, requested_time)
    if undone is not None:
        raise ConflictError(f"{inflight} is being rolled back by {undone}", hint="Try again.")
    if not alive:
        raise ConflictError(f"another writer took {inflight} for dead and removed its heartbeat", hint="Try again.")


def nothing_was_undone(snapshot: MetaClient, now: MetaClient) -> None:
    """The writes that the action builds on are still there: the table was not restored, and no restore is pending."""
    pending = (*snapshot.timeline.pending, *now.timeline.pending)
    restore = next((instant for instant in pending if instant.action is Action.RESTORE), None)
    if restore is not None:
        raise ConflictError(f"{restore} is under way", hint="Let it finish, or run restore again; then try again.")
    there = {instant.requested_time for instant in now.completed_writes()}
    for instant in snapshot.completed_writes():
        if instant.requested_time not in there and not now.is_committed(instant.requested_time):
            raise ConflictError(f"{instant}, on which this write builds, was undone meanwhile", hint="Try again.")


def version_still_the_same(snapshot: MetaClient, now: MetaClient) -> None:
    """The files were written for one table version; readers of another may take them for something else."""
    if snapshot.config.version != now.config.version:
        raise ConflictError(
            f"the table went from version {int(snapshot.config.version)} to {int(now.config.version)} meanwhile",
            hint="This write is undone; try again.",
        )


def saved_write_is_there(now: MetaClient, requested_time: str) -> None:
    """A savepoint is of a completed write on the active timeline: an undone or archived one cannot be restored to."""
    if now.timeline.completed_write(requested_time) is None:
        raise ConflictError(f"the write {requested_time} was undone or archived before it was saved", hint="Try again.")


def schema_still_the_same(snapshot: MetaClient, now: MetaClient) -> None:
    """Nobody changed the columns by ALTER TABLE: the newest write states the schema, and ours would revert it."""
    for instant, body in _reports_since(snapshot, now):
        if reported_version(body.extra) == int(instant.requested_time):
            raise ConflictError(
                f"{instant.requested_time} changed the schema of the table meanwhile",
                hint="This write is undone; open the table again and try again.",
            )


def rolled_back_since(snapshot: MetaClient, now: MetaClient, requested_time: str) -> Instant | None:
    """A rollback of this requested time, pending or completed, that the snapshot did not have."""
    known = {instant.requested_time for instant in snapshot.timeline.of_actions(Action.ROLLBACK)}
    return rollback_of(now, requested_time, except_for=known)


def completion_time_moves_forward(timeline: Timeline, requested_time: str, completion: str) -> None:
    """Completions are published in the order of their times, each later than every time that is on the timeline."""
    greatest = max(comparable(requested_time), greatest_time(timeline) or "")
    if completion <= greatest:
        raise ConflictError(
            f"the completion time {completion} is not after {greatest}, which is on the timeline", hint="Try again."
        )


def every_file_exists(storage: Storage, commit: CommitMetadata) -> None:
    """Every file that the commit names is on storage, in the size its writer reported."""
    sizes: dict[str, int] = {}
    for partition, stats in commit.stats.items():
        for stat in stats:
            for name in stat.log_files:
                sizes.setdefault(f"{partition}/{name}" if partition else name, 0)
            if stat.path:
                sizes[stat.path] = stat.file_size
            sizes.update(stat.cdc_files)
    for path, found in zip(sizes, LocalRunner().map(storage.stat, list(sizes), label="stat"), strict=True):
        if found is None:
            raise ConflictError("a file of this commit is gone: its write was undone", file=path, hint="Try again.")
        if sizes[path] and found.size != sizes[path]:
            raise CorruptTable(f"{found.size} bytes where {sizes[path]} were written", file=path)


def no_file_group_written_twice(commit: CommitMetadata) -> None:
    """One task attempt per file group: of two, one is a lost attempt whose rows would count double."""
    tokens: dict[FileGroupId, set[str]] = {}
    bases: set[FileGroupId] = set()
    for partition, stats in commit.stats.items():
        for stat in stats:
            group, name = FileGroupId(partition, stat.file_id), file_name(stat.path or "")
            base = parse_base_file(name)
            parsed = base or parse_log_file(name)
            if parsed is None:
                continue
            if base is not None and group in bases:
                raise InvalidRequest(f"two base files for the file group {group} in one commit", file=stat.path)
            if base is not None:
                bases.add(group)
            tokens.setdefault(group, set()).add(parsed.write_token)
            if len(tokens[group]) > 1:
                raise InvalidRequest(f"two task attempts wrote the file group {group} in one commit", file=stat.path)


def files_are_of(requested_time: str, commit: CommitMetadata) -> None:
    """Every file name of the commit has its requested time: the name decides to which commit a file belongs."""
    for stats in commit.stats.values():
        for stat in stats:
            parsed = parse_base_file(file_name(stat.path or "")) or parse_log_file(file_name(stat.path or ""))
            if stat.path and (parsed is None or parsed.requested_time != requested_time):
                raise InvalidRequest(f"a file that does not belong to the instant {requested_time}", file=stat.path)
