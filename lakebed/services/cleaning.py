"""Removing files that no current slice needs, as a `clean` on the timeline.

    plan   <b>.clean.requested    every file, by name
    run    under the lock: what others reserved since stays  ─►  delete  ─►  publish what was deleted, and what was not

Deleting a file that is gone is no error, so a clean that died is simply run again. A clean states from when on every
state is whole (`timeline/retention`), and by `earliest_to_retain` states the same to Hudi's readers. What may be
deleted is decided from a listing made without the lock: a file that no state needs is never needed again, unless the
table is restored to an earlier state. Under the lock only restores and reserved files (services/reserved) are checked
again, when planning and once more when running: plans and savepoints that come in between see that the clean is pending
and take none of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from lakebed.config.upkeep_options import CleanOptions, CleanPolicy
from lakebed.errors import ConflictError, CorruptTable
from lakebed.model.actions import CleanMetadata, CleanPartition, CleanPlan, CommitMetadata, InstantRef
from lakebed.model.files import FileGroup, FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.paths import file_name
from lakebed.services.cleaning_policy import Expendable, Retention, expendable, log_compacted, retention
from lakebed.services.plan_inputs import silent_logs
from lakebed.services.reserved import File, Reserved
from lakebed.storage.storage import joined
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import EVER, WHOLE_SINCE, whole_since
from lakebed.txn.rollback import absolute_path, delete_all
from lakebed.txn.transaction import Transaction, schedule
from lakebed.txn.txn_context import TxnContext
from lakebed.view.file_system_view import FileSystemView

POLICY = CleanPolicy.COMMITS
SAVEPOINTS_KEY = "savepointed_timestamps"
"""Where Hudi's cleans list the savepoints of their time: when one is gone since, its files are considered again."""


def clean(
    client: MetaClient, txn_context: TxnContext, options: CleanOptions, *, incremental: bool = False
) -> tuple[Instant, ...]:
    """Finish cleans that are under way, then plan and run one; the cleans that were completed. `client` was just read.

    `incremental` looks only into the partitions that writes touched which left the retained range since the last clean.
    """
    txn_context.require_metadata_writer(client)
    done = finish_cleans(client, txn_context)
    plan = _planner(client.reload() if done else client, txn_context, options, incremental=incremental)
    txn = Transaction.plan(client, Action.CLEAN, plan, txn_context) if plan is not None else None
    return done if txn is None else (*done, _remove(txn, txn_context))


def is_clean_due(client: MetaClient, options: CleanOptions) -> bool:
    """Whether an automatic clean is worth planning: by the names on the timeline alone."""
    if client.timeline.pending.of_actions(Action.CLEAN).instants:
        return True
    writes = client.timeline.completed.writes.instants
    cleans = client.timeline.completed.of_actions(Action.CLEAN).instants
    last = comparable(cleans[-1].requested_time) if cleans else ""
    since = [write for write in writes if comparable(write.requested_time) > last]
    needed = {CleanPolicy.COMMITS: options.commits, CleanPolicy.FILE_VERSIONS: options.versions}
    return len(since) >= options.every and len(writes) > needed.get(options.policy, 1)


def finish_cleans(client: MetaClient, txn_context: TxnContext) -> tuple[Instant, ...]:
    """Run cleans that somebody planned and did not finish; those that are being run by others are left alone."""
    done = []
    for instant in client.timeline.pending.of_actions(Action.CLEAN):
        try:
            done.append(run_clean(client, instant, txn_context))
        except ConflictError:
            continue
    return tuple(done)


def plan_clean(
    client: MetaClient, txn_context: TxnContext, options: CleanOptions, *, incremental: bool = False
) -> Instant | None:
    """Put a clean on the timeline; None when there is nothing to remove."""
    plan = _planner(client, txn_context, options, incremental=incremental)
    return schedule(client, Action.CLEAN, plan, txn_context) if plan is not None else None


def _planner(
    client: MetaClient, txn_context: TxnContext, options: CleanOptions, *, incremental: bool
) -> Callable[[MetaClient, str], CleanPlan | None] | None:
    """Makes the plan, under the lock, of files that may go by the table as it was read; None when there are none."""
    keep = retention(client, options, txn_context.clock.now_ms())
    if keep is None:
        return None
    view = FileSystemView.of(client)
    chosen = _touched_since_last(client, options, keep) if incremental else None
    partitions = view.partitions() if chosen is None else chosen
    covered = log_compacted(client, keep)
    found = [file for partition in partitions for file in expendable(client, view, partition, keep, covered)]
    if not _unreserved(client, found):
        return None
    known = {instant.requested_time for instant in client.completed_writes()}

    def plan(fresh: MetaClient, requested_time: str) -> CleanPlan | None:
        if not known <= {instant.requested_time for instant in fresh.completed_writes()}:
            return None  # archived, or undone: then what was found is not certain any more
        if fresh.timeline.pending.of_actions(Action.RESTORE).instants:
            return None
        files = _unreserved(fresh, found)
        return _plan(fresh, requested_time, options.policy, keep, files) if files else None

    return plan


def remove_files(
    client: MetaClient, files: Mapping[str, Sequence[str]], txn_context: TxnContext, *, retain: Instant
) -> Instant | None:
    """Delete files, by partition and name, that no state from that of the write `retain` on needs."""
    if not any(files.values()):
        return None
    earliest = InstantRef(retain.requested_time, str(retain.action), "COMPLETED")

    def plan(fresh: MetaClient, requested_time: str) -> CleanPlan | None:
        held = Reserved.of(fresh).held()
        free = {p: [name for name in names if (p, file_name(name)) not in held] for p, names in files.items()}
        if not any(free.values()):
            return None
        extra = _since(whole_since(fresh, planned=True), retain.completion_time)
        return CleanPlan(POLICY, earliest, _last_write(fresh, requested_time), _paths(fresh, free), extra=extra)

    txn = Transaction.plan(client, Action.CLEAN, plan, txn_context)
    return None if txn is None else _remove(txn, txn_context)


def run_clean(client: MetaClient, planned: Instant, txn_context: TxnContext) -> Instant:
    """Carry out a clean that is on the timeline. Files that were reserved since it was planned are left."""
    return _remove(Transaction.resume(client, planned, txn_context), txn_context)


def _remove(txn: Transaction, txn_context: TxnContext) -> Instant:
    with txn:
        started = txn_context.clock.now_ms()
        plan = txn.snapshot.plan(txn.instant)
        if not isinstance(plan, CleanPlan):
            raise CorruptTable("a clean without a plan", file=txn.snapshot.active.path(txn.instant))
        with txn_context.lock.hold() as lease:
            kept = _reserved_since(txn.snapshot.reload(), txn.instant, plan)
            lease.confirm()
        done = [_split(partition, plan, kept) for partition in plan.files]
        paths = [joined(one.partition_path, name) for one in done for name in one.deleted]
        delete_all(txn.snapshot.storage, paths)
        body = CleanMetadata(
            start_time=txn.requested_time,
            time_taken_ms=max(0, txn_context.clock.now_ms() - started),
            total_files_deleted=len(paths),
            earliest_to_retain=plan.earliest_to_retain.time if plan.earliest_to_retain else "",
            last_completed=plan.last_completed,
            partitions={one.partition_path: one for one in done},
            extra=plan.extra,
        )
        return txn.commit(body)


def _reserved_since(client: MetaClient, clean: Instant, plan: CleanPlan) -> frozenset[File]:
    """Under the lock: the files that a clean must leave, whatever was known when it was planned."""
    restore = client.timeline.pending.of_actions(Action.RESTORE).last
    if restore is not None:
        raise ConflictError(f"{restore} is under way", hint="Finish it with t.services.restore(), then clean.")
    held = frozenset(Reserved.of(client).held())
    set_back = client.timeline.of_actions(Action.RESTORE, Action.ROLLBACK)
    if any(comparable(one.requested_time) > comparable(clean.requested_time) for one in set_back):
        held |= _counting(client, plan)
    return held


def _counting(client: MetaClient, plan: CleanPlan) -> frozenset[File]:
    """The files of a plan's partitions in the newest state: after a restore or rollback the table needs them again.

    Logs that do not count, because a log compaction replaces them, are what a clean deletes of the newest slices.
    """
    view = FileSystemView.of(client)
    found: set[File] = set()
    for partition in plan.files:
        for group in view.file_groups(partition):
            if group.replaced_at is None:
                file_slice = _newest(group)
                found.update(
                    (partition, name) for name in {f.name for f in file_slice.files} - silent_logs(client, file_slice)
                )
    return frozenset(found)


def _newest(group: FileGroup) -> FileSlice:
    """The slice that a snapshot reads: the newest base file and all logs from there on, whatever is planned."""
    with_base = [number for number, file_slice in enumerate(group.slices) if file_slice.base_file is not None]
    file_slices = group.slices[with_base[-1] if with_base else 0 :]
    return replace(file_slices[0], log_files=tuple(log for file_slice in file_slices for log in file_slice.log_files))


def _split(partition: str, plan: CleanPlan, kept: Collection[File]) -> CleanPartition:
    """What is deleted in a partition and what is left; only the former must be among the patterns of a report."""
    names = tuple(map(file_name, plan.files[partition]))
    deleted = tuple(name for name in names if (partition, name) not in kept)
    left = tuple(name for name in names if (partition, name) in kept)
    return CleanPartition(partition, plan.policy, deleted, deleted, left)


def _plan(
    client: MetaClient, requested_time: str, policy: CleanPolicy, keep: Retention, found: Sequence[Expendable]
) -> CleanPlan:
    files: dict[str, list[str]] = {}
    for file in found:
        files.setdefault(file.partition_path, []).append(file.name)
    known = whole_since(client, planned=True)
    extra = _since(known, *(file.until for file in found))
    savepoints = [instant.requested_time for instant, _ in client.savepoints()]
    if savepoints:
        extra[SAVEPOINTS_KEY] = ",".join(savepoints)
    earliest = _earliest(client, keep.earliest, known)
    return CleanPlan(policy, earliest, _last_write(client, requested_time), _paths(client, files), extra=extra)


def _since(*times: str | None) -> dict[str, str]:
    """What a clean states of the states that are whole without its files: from the last of these times on all are."""
    return {WHOLE_SINCE: max((comparable(time) for time in times if time), default=EVER)}


def _earliest(client: MetaClient, chosen: Instant | None, known: str | None) -> InstantRef | None:
    """The earliest write to retain; what an earlier clean took does not come back by retaining more from now on."""
    if chosen is None:
        return None
    if known is not None and comparable(chosen.completion_time or "") < known:
        writes = client.timeline.completed.writes.in_completion_order()
        chosen = next((write for write in writes if comparable(write.completion_time or "") >= known), chosen)
    return InstantRef(chosen.requested_time, str(chosen.action), "COMPLETED")


def _touched_since_last(client: MetaClient, options: CleanOptions, keep: Retention) -> list[str] | None:
    """The partitions with something new to delete; None when all must be looked at, because a savepoint is gone.

    A slice becomes expendable through the write that superseded it, when that write leaves the retained range.
    """
    start = ""
    cleans = client.timeline.completed.of_actions(Action.CLEAN).instants
    body = client.body(cleans[-1]) if cleans else None
    if isinstance(body, CleanMetadata):
        held = {instant.requested_time for instant, _ in client.savepoints()}
        if set(filter(None, body.extra.get(SAVEPOINTS_KEY, "").split(","))) - held:
            return None
        by_versions = options.policy is CleanPolicy.FILE_VERSIONS
        policies = {(found.policy == CleanPolicy.FILE_VERSIONS) for found in body.partitions.values()}
        if policies == {by_versions}:
            start = client.completion_time(body.last_completed if by_versions else body.earliest_to_retain) or ""
    touched: set[str] = set()
    for instant in client.completed_writes():
        if comparable(start) <= comparable(instant.completion_time or "") < keep.limit:
            commit = client.body(instant)
            if isinstance(commit, CommitMetadata):
                touched.update(_superseding(commit))
    return sorted(touched)


def _superseding(commit: CommitMetadata) -> set[str]:
    """The partitions in which a write replaced older files."""
    replaced = {partition for partition, file_ids in commit.replaced_file_ids.items() if file_ids}
    rewritten = {
        partition
        for partition, stats in commit.stats.items()
        if commit.compacted or any(not stat.log_files and stat.prev_commit not in (None, "", "null") for stat in stats)
    }
    return replaced | rewritten


def _unreserved(client: MetaClient, found: Iterable[Expendable]) -> list[Expendable]:
    """The files that nobody needs and no other clean is about to delete."""
    reserved = Reserved.of(client)
    taken = {*reserved.held(), *reserved.leaving}
    return [file for file in found if (file.partition_path, file.name) not in taken]


def _paths(client: MetaClient, files: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {
        partition: tuple(absolute_path(client.storage, joined(partition, name)) for name in sorted(names))
        for partition, names in files.items()
        if names
    }


def _last_write(client: MetaClient, requested_time: str) -> str:
    return max((instant.requested_time for instant in client.completed_writes()), default=requested_time)
