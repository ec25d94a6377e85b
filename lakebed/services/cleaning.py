"""Removing files that no current slice needs, as a `clean` on the timeline.

    plan   <b>.clean.requested    every file, by name
    run    delete, then publish what was deleted

Deleting again what is gone is fine, so a clean that died is simply run again. A clean says from when on every state is
whole (`timeline/retention`), and by `earliest_to_retain` tells Hudi's readers the same. What may go is decided from a
listing made without the lock: a file that no state needs is never needed again, unless the table is set back. Under the
lock only that is looked at anew, and what savepoints and plans name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakebed.config.upkeep_options import CleanOptions, CleanPolicy
from lakebed.errors import ConflictError, CorruptTable
from lakebed.model.actions import CleanMetadata, CleanPartition, CleanPlan, CommitMetadata, InstantRef
from lakebed.model.instant import Action, Instant
from lakebed.services.cleaning_policy import Expendable, Retention, expendable, protected_files, retention
from lakebed.storage.storage import joined
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import WHOLE_SINCE, whole_since
from lakebed.txn.control import Control
from lakebed.txn.rollback import absolute_path, delete_all
from lakebed.txn.transaction import Transaction, schedule
from lakebed.view.file_system_view import FileSystemView

POLICY = CleanPolicy.COMMITS
SAVEPOINTS_KEY = "savepointed_timestamps"
"""Where Hudi's cleans say which savepoints there were: when one is gone since, its files are looked at again."""


def clean(
    client: MetaClient, control: Control, options: CleanOptions, *, incremental: bool = False
) -> tuple[Instant, ...]:
    """Finish cleans that are under way, then plan and run one; the cleans that were completed.

    `incremental` looks only into the partitions that writes touched which left the retained range since the last clean.
    """
    control.require_metadata_writer(client)
    done = finish_cleans(client, control)
    planned = plan_clean(client.reload(), control, options, incremental=incremental)
    return done if planned is None else (*done, run_clean(client, planned, control))


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


def finish_cleans(client: MetaClient, control: Control) -> tuple[Instant, ...]:
    """Run cleans that somebody planned and did not finish; those that are being run by others are left alone."""
    done = []
    for instant in client.timeline.pending.of_actions(Action.CLEAN):
        try:
            done.append(run_clean(client, instant, control))
        except ConflictError:
            continue
    return tuple(done)


def plan_clean(
    client: MetaClient, control: Control, options: CleanOptions, *, incremental: bool = False
) -> Instant | None:
    """Put a clean on the timeline; None when there is nothing to remove."""
    keep = retention(client, options, control.clock.now_ms())
    if keep is None:
        return None
    view = FileSystemView.of(client)
    chosen = _touched_since_last(client, options, keep) if incremental else None
    partitions = view.partitions() if chosen is None else chosen
    found = [file for partition in partitions for file in expendable(client, view, partition, keep)]
    if not _unprotected(client, found):
        return None
    known = {instant.requested_time for instant in client.completed_writes()}

    def plan(fresh: MetaClient, begin: str) -> CleanPlan | None:
        if not known <= {instant.requested_time for instant in fresh.completed_writes()}:
            return None  # archived, or undone: then what was found is not certain any more
        if fresh.timeline.pending.of_actions(Action.RESTORE).instants:
            return None
        files = _unprotected(fresh, found)
        return _plan(fresh, begin, options.policy, keep, files) if files else None

    return schedule(client, Action.CLEAN, plan, control)


def remove_files(
    client: MetaClient, files: Mapping[str, Sequence[str]], control: Control, *, retain: Instant
) -> Instant | None:
    """Delete files, given by partition as names, which no state from that of the write `retain` on needs."""
    if not any(files.values()):
        return None
    earliest = InstantRef(retain.requested_time, str(retain.action), "COMPLETED")

    def plan(fresh: MetaClient, begin: str) -> CleanPlan:
        extra = _since(whole_since(fresh, planned=True), retain.completion_time)
        return CleanPlan(POLICY, earliest, _last_write(fresh, begin), _paths(fresh, files), extra=extra)

    planned = schedule(client, Action.CLEAN, plan, control)
    return None if planned is None else run_clean(client, planned, control)


def run_clean(client: MetaClient, planned: Instant, control: Control) -> Instant:
    """Carry out a clean that is on the timeline."""
    with Transaction.resume(client, planned, control) as txn:
        started = control.clock.now_ms()
        plan = txn.snapshot.plan(txn.instant)
        if not isinstance(plan, CleanPlan):
            raise CorruptTable("a clean without a plan", file=txn.snapshot.active.path(planned))
        names = {partition: tuple(map(_name, files)) for partition, files in plan.files.items()}
        paths = [joined(partition, name) for partition, found in names.items() for name in found]
        delete_all(txn.snapshot.storage, paths)
        body = CleanMetadata(
            start_time=txn.begin_time,
            time_taken_ms=max(0, control.clock.now_ms() - started),
            total_files_deleted=len(paths),
            earliest_to_retain=plan.earliest_to_retain.time if plan.earliest_to_retain else "",
            last_completed=plan.last_completed,
            partitions={
                partition: CleanPartition(partition, plan.policy, found, found) for partition, found in names.items()
            },
            extra=plan.extra,
        )
        return txn.commit(body)


def _plan(
    client: MetaClient, begin: str, policy: CleanPolicy, keep: Retention, found: Sequence[Expendable]
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
    return CleanPlan(policy, earliest, _last_write(client, begin), _paths(client, files), extra=extra)


def _since(*times: str | None) -> dict[str, str]:
    """What a clean says of the states that are whole without its files: from the last of these times on all are."""
    latest = max((comparable(time) for time in times if time), default=None)
    return {WHOLE_SINCE: latest} if latest else {}


def _earliest(client: MetaClient, chosen: Instant | None, known: str | None) -> InstantRef | None:
    """The earliest write to retain; what an earlier clean took does not come back by retaining more from now on."""
    if chosen is None:
        return None
    if known is not None and comparable(chosen.completion_time or "") < known:
        writes = client.timeline.completed.writes.in_completion_order()
        chosen = next((write for write in writes if comparable(write.completion_time or "") >= known), chosen)
    return InstantRef(chosen.requested_time, str(chosen.action), "COMPLETED")


def _touched_since_last(client: MetaClient, options: CleanOptions, keep: Retention) -> list[str] | None:
    """The partitions with something new to take; None when all must be looked at, for a savepoint is gone.

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
    """The partitions in which a write put something in the place of older files."""
    replaced = {partition for partition, file_ids in commit.replaced_file_ids.items() if file_ids}
    rewritten = {
        partition
        for partition, stats in commit.stats.items()
        if commit.compacted or any(not stat.log_files and stat.prev_commit not in (None, "", "null") for stat in stats)
    }
    return replaced | rewritten


def _unprotected(client: MetaClient, found: Iterable[Expendable]) -> list[Expendable]:
    safe = protected_files(client)
    return [file for file in found if (file.partition_path, file.name) not in safe]


def _paths(client: MetaClient, files: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {
        partition: tuple(absolute_path(client.storage, joined(partition, name)) for name in sorted(names))
        for partition, names in files.items()
        if names
    }


def _last_write(client: MetaClient, begin: str) -> str:
    return max((instant.requested_time for instant in client.completed_writes()), default=begin)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
