"""Restoring a table to a savepoint, and rolling back one write.

    restore    <t>.restore.requested    the writes that completed after the saved one, and those under way
               <t>.restore.inflight
               their completed files, the newest first     with each the table is as it was before that write
               their data files and blocks, then what is left of them on the timeline
               <t>_<c>.restore

    rollback   delete the completed file of the newest write, which then looks like one that failed, and undo it

A write is unpublished before any of its files is touched, so every reader sees a state that once was current. All steps
can be repeated: a restore that died is finished by the next call, and until then nothing can be committed. Cleans that
are pending are finished before a restore is planned: run later, they would refer to writes that are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from lakebed.errors import ConflictError, CorruptTable, InvalidRequest, StorageUnavailable
from lakebed.format.names import heartbeat_file, parse_instant_file
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import (
    CleanPlan,
    InstantRef,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    SavepointMetadata,
)
from lakebed.model.instant import Action, Instant, State
from lakebed.paths import file_name
from lakebed.services.cleaning import finish_cleans
from lakebed.services.savepoint import savepoint_named
from lakebed.storage.storage import joined
from lakebed.timeline.active import create_requested
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import before, require_readable, stated_by
from lakebed.txn.heartbeat import Heartbeat
from lakebed.txn.instants import claim_begin
from lakebed.txn.markers import begin_of, delete_markers
from lakebed.txn.publish import choose_completion, publish
from lakebed.txn.rollback import (
    data_files,
    delete_all,
    find_files,
    roll_back,
    rolled_back_partitions,
    side_files,
    take_back,
)
from lakebed.txn.txn_context import TxnContext
from lakebed.view.file_system_view import FileSystemView

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


def restore(client: MetaClient, txn_context: TxnContext, to: str | None = None) -> Instant:
    """Restore the table to a savepoint, the newest where none is named; the completed restore.

    `client` was just read.
    """
    txn_context.require_metadata_writer(client)
    for pending in client.timeline.pending.of_actions(Action.RESTORE):
        done = finish_restore(client, pending, txn_context)
        client = client.reload()
        if done is not None and (to is None or _restored_to(client, done) == to):
            return done
    if finish_cleans(client, txn_context):
        client = client.reload()
    savepoint, body = savepoint_named(client, to)
    _require_files(client, body)
    with txn_context.lock.hold() as lease:
        requested_time, fresh = claim_begin(client, txn_context.clock)
        try:
            txn_context.require_metadata_writer(fresh)
            savepoint, _ = savepoint_named(fresh, savepoint.requested_time)  # it may have been deleted meanwhile
            clean = fresh.timeline.pending.of_actions(Action.CLEAN).last
            if clean is not None:
                raise ConflictError(f"{clean} is being run by another writer", hint="Try again when it is done.")
            plan = RestorePlan(_to_undo(fresh, savepoint), savepoint.requested_time)
            lease.confirm()
            data = encode_body(plan, Action.RESTORE, State.REQUESTED)
            planned = create_requested(fresh.storage, requested_time, Action.RESTORE, data, fresh.active.folder)
        except BaseException:
            with suppress(StorageUnavailable):
                fresh.storage.delete([heartbeat_file(requested_time)])
            raise
    done = finish_restore(client, planned, txn_context)
    if done is None:
        raise ConflictError(f"{planned} was finished by another", hint="Open the table again.")
    return done


def finish_restore(client: MetaClient, restore: Instant, txn_context: TxnContext) -> Instant | None:
    """Carry out a restore that is on the timeline; None when another has finished it."""
    storage, started = client.storage, txn_context.clock.now_ms()
    inflight = Instant(restore.requested_time, Action.RESTORE, State.INFLIGHT)
    heartbeat = Heartbeat(storage, restore.requested_time, txn_context.options).start()
    try:
        with txn_context.lock.hold() as lease:
            fresh = client.reload()
            current = fresh.timeline.find(restore.requested_time, Action.RESTORE)
            plan = fresh.plan(restore)
            if current is None or current.is_completed:
                return None
            if not isinstance(plan, RestorePlan):
                raise CorruptTable("a restore without a plan", file=fresh.active.path(restore))
            storage.put_if_absent(fresh.active.path(inflight), b"")
            for undone in plan.instants:
                lease.confirm()
                _unpublish(fresh, undone)
            files = _files_of(fresh, plan.instants)
            lease.confirm()
            commands = _delete(fresh, plan.instants, files, restore.requested_time)
            body = _report(fresh, restore, plan, files, commands, txn_context.clock.now_ms() - started)
            completion = choose_completion(fresh.reload(), inflight, body, txn_context)
            lease.confirm()
            done, _ = publish(fresh, inflight, completion, body, txn_context)
    finally:
        heartbeat.stop()
    with suppress(StorageUnavailable):  # the next write removes it
        heartbeat.remove()
    return done


def rollback(client: MetaClient, txn_context: TxnContext, requested_time: str) -> Instant | None:
    """Undo one write: a pending one, or the newest that is completed; the rollback, if one was needed.

    `client` was just read.
    """
    found = client.timeline.find(requested_time)
    if found is None or not found.action.completes_as.adds_files:
        raise InvalidRequest(f"there is no write {requested_time!r} on the active timeline")
    if found.is_completed:
        with txn_context.lock.hold() as lease:
            client = client.reload()
            _refuse_rollback(client, found, txn_context)
            lease.confirm()
            _require_pending_state(client, found)
            client.storage.delete([client.active.path(found)])
        client = client.reload()
    pending = client.timeline.find(requested_time)
    if pending is None or pending.is_completed:
        raise ConflictError(f"{found} was changed by another writer meanwhile", hint="Open the table again.")
    if not pending.action.is_service:
        return roll_back(client, pending, txn_context)
    done = roll_back(client, pending, txn_context) if pending.state is State.INFLIGHT else None
    _drop_plan(client, pending, txn_context)
    return done


def _to_undo(client: MetaClient, savepoint: Instant) -> tuple[InstantRef, ...]:
    """What a restore must undo, newest completion first, then what is under way."""
    saved = client.timeline.completed_write(savepoint.requested_time)
    if saved is None:
        raise CorruptTable("a savepoint without its write", file=client.active.path(savepoint))
    limit = comparable(saved.completion_time or "")
    done = [w for w in client.timeline.completed.writes.in_completion_order() if _done(w) > limit]
    held = {i.requested_time for i in client.timeline.completed.of_actions(Action.SAVEPOINT)}
    newer = [write.requested_time for write in done if write.requested_time in held]
    if newer:
        raise InvalidRequest(
            f"the savepoint {newer[-1]} is newer and would be lost", hint="Delete it first, or restore to it."
        )
    if client.history.requested_within(limit, None, _WRITES):
        raise InvalidRequest(
            f"writes after the savepoint {savepoint.requested_time} were archived, and cannot be undone"
        )
    pending = [
        i for i in client.timeline.pending.writes if i.action in _WRITES or i.requested_time > saved.requested_time
    ]
    return tuple(InstantRef(i.requested_time, str(i.action)) for i in (*reversed(done), *reversed(pending)))


def _unpublish(client: MetaClient, undone: InstantRef) -> None:
    """Delete the completed file of a write; what is left of it looks like a write that failed."""
    wanted = (undone.time, Action(undone.action).completes_as)
    for instant in _states(client):
        if instant.is_completed and (instant.requested_time, instant.action) == wanted:
            client.storage.delete([client.active.path(instant)])


def _files_of(client: MetaClient, undone: Iterable[InstantRef]) -> dict[str, list[str]]:
    """The data files of writes by requested time."""
    found: dict[str, list[str]] = {instant.time: [] for instant in undone}
    for path in data_files(client.storage):
        requested_time = begin_of(file_name(path))
        if requested_time in found:
            found[requested_time].append(path)
    return found


def _delete(
    client: MetaClient, undone: Sequence[InstantRef], files: Mapping[str, Sequence[str]], by: str
) -> dict[str, dict[str, int]]:
    """Delete what unpublished writes left, each one's timeline files last; the rollback commands, by requested time."""
    storage = client.storage
    states = sorted((i for i in _states(client) if not i.is_completed), key=lambda i: i.state is State.REQUESTED)
    commands = {}
    for instant in undone:
        delete_all(storage, [*sorted(files[instant.time]), *side_files(storage, instant.time)])
        commands[instant.time] = take_back(client, instant.time, by)
        delete_markers(storage, instant.time)
        word = Action(instant.action).completes_as
        mine = [i for i in states if i.requested_time == instant.time and i.action.completes_as is word]
        storage.delete([*(client.active.path(i) for i in mine), heartbeat_file(instant.time)])
    return commands


def _report(
    client: MetaClient,
    restore: Instant,
    plan: RestorePlan,
    files: Mapping[str, Sequence[str]],
    commands: Mapping[str, Mapping[str, int]],
    took_ms: int,
) -> RestoreMetadata:
    rollbacks = {}
    for instant in plan.instants:
        requested_time = instant.time
        done = rolled_back_partitions(client.storage, sorted(files[requested_time]), commands[requested_time])
        deleted = len(files[requested_time])
        rollbacks[requested_time] = (
            RollbackMetadata(restore.requested_time, 0, deleted, (requested_time,), done, (instant,)),
        )
    times = tuple(instant.time for instant in plan.instants)
    return RestoreMetadata(restore.requested_time, max(0, took_ms), times, rollbacks, plan.instants)


def _require_files(client: MetaClient, body: SavepointMetadata) -> None:
    there = set(data_files(client.storage))
    for partition, names in body.files.items():
        missing = [name for name in names if joined(partition, file_name(name)) not in there]
        if missing:
            raise CorruptTable("a file that the savepoint holds is missing", file=joined(partition, missing[0]))


def _refuse_rollback(client: MetaClient, target: Instant, txn_context: TxnContext) -> None:
    """A completed write can be undone when nothing was built on it, and what was there before is still whole."""
    txn_context.require_metadata_writer(client)
    requested_time = target.requested_time
    if target not in client.timeline.completed.writes.instants:
        raise ConflictError(f"{target} was changed by another writer meanwhile", hint="Open the table again.")
    if client.timeline.find(requested_time, Action.SAVEPOINT) is not None:
        raise InvalidRequest(f"the write {requested_time} has a savepoint", hint="Delete the savepoint first.")
    newest = client.timeline.completed.writes.in_completion_order()[-1]
    if newest != target:
        raise InvalidRequest(
            f"the write {newest.requested_time} completed after {requested_time}",
            hint="Roll back newer writes first, or restore the table to a savepoint.",
        )
    later = [i for i in client.timeline.pending.writes if comparable(i.requested_time) > comparable(requested_time)]
    if later:
        raise InvalidRequest(f"{later[0]} is under way and builds on {requested_time}", hint="Roll it back first.")
    needed, what = before(target.completion_time or requested_time), f"the state before {requested_time}"
    require_readable(client, needed, what)
    for clean in client.timeline.pending.of_actions(Action.CLEAN):
        plan = client.plan(clean)
        if isinstance(plan, CleanPlan) and stated_by(client, clean, plan) > needed:
            raise InvalidRequest(
                f"{what} will no longer be there: a clean of older file versions is planned",
                hint="Finish it with t.services.clean(), then see what is left.",
            )
    view = FileSystemView.of(client)
    for partition in view.partitions():
        view.slices(partition, needed)  # refuses a state that misses a file


def _require_pending_state(client: MetaClient, done: Instant) -> None:
    """Make the write look pending once its completed file is gone, so that the next writer undoes it."""
    requested = client.active.requested(done)
    inflight = Instant(done.requested_time, requested.action if requested else done.action, State.INFLIGHT)
    client.storage.put_if_absent(client.active.path(inflight), b"")


def _drop_plan(client: MetaClient, pending: Instant, txn_context: TxnContext) -> None:
    """Remove an action that was only planned from the timeline."""
    with txn_context.lock.hold() as lease:
        client = client.reload()
        states = [i for i in _states(client) if i.requested_time == pending.requested_time]
        if any(i.is_completed or i.state is State.INFLIGHT for i in states if i.action is not Action.SAVEPOINT):
            raise ConflictError(f"{pending} is being run by another writer", hint="Try again when it is done.")
        lease.confirm()
        if pending.action is Action.CLUSTERING:  # updates of buckets that will not be created
            delete_all(client.storage, sorted(find_files(client.storage, pending.requested_time)))
        client.storage.delete([client.active.path(i) for i in states if i.action is pending.action])
        client.storage.delete([heartbeat_file(pending.requested_time)])


def _restored_to(client: MetaClient, done: Instant) -> str | None:
    plan = client.plan(done)
    return plan.savepoint if isinstance(plan, RestorePlan) else None


def _states(client: MetaClient) -> list[Instant]:
    return [instant for instant in map(parse_instant_file, client.active.files) if instant is not None]


def _done(instant: Instant) -> str:
    return comparable(instant.completion_time or "")
