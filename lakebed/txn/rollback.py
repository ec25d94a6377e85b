"""Rolling back one instant, so that nothing of it is left and nobody can complete it any more.

    under the lock   the instant is still pending  ->  <r>.rollback.requested    from here on its writer must give up
                     <r>.rollback.inflight
                     delete the data files: those of the plan, of the markers, and all with its requested time by name;
                     a command after its blocks in logs that it shares with other writes (`txn/log_rollback`)
    under the lock   metadata table, then delete the instant's own timeline files, markers and heartbeat
                     <r>_<c>.rollback

Every step can be repeated, so a writer that finds a rollback half done finishes it (`finish_rollback`), whichever
program began it. A file is deleted only if its own name has the requested time of the instant. A completed instant is
left alone: undoing one is a restore. The plan of a compaction, log compaction or clustering is kept: only its run is
undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from lakebed.errors import InvalidRequest, StorageUnavailable
from lakebed.format.names import (
    HASHING_META_DIR,
    HOODIE_DIR,
    METADATA_DIR,
    SCHEMA_DIR,
    TIMELINE_DIR,
    MarkerType,
    heartbeat_file,
    parse_instant_file,
    parse_log_file,
)
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import InstantRef, RollbackMetadata, RollbackPartition, RollbackPlan, RollbackRequest
from lakebed.model.instant import Action, Instant, State
from lakebed.paths import file_name, folder_of
from lakebed.runner import LocalRunner
from lakebed.storage.storage import Storage, checked_file, joined, location_of
from lakebed.timeline.active import create_requested, load_active
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.heartbeat import Heartbeat
from lakebed.txn.instants import claim_begin
from lakebed.txn.log_rollback import take_back_blocks
from lakebed.txn.markers import begin_of, delete_markers, file_id_of, list_markers
from lakebed.txn.publish import choose_completion, publish
from lakebed.txn.txn_context import TxnContext

_BATCH = 1000


def roll_back(
    client: MetaClient, instant: Instant, txn_context: TxnContext, still: Callable[[MetaClient], bool] | None = None
) -> Instant | None:
    """Undo a pending instant; None when it is not pending any more, be it completed or undone by another.

    `still` is called under the lock and returns whether the reason to undo it holds in the table as it is then.
    """
    files = find_files(client.storage, instant.requested_time, instant.action)  # before the lock: listing takes a while
    with txn_context.lock.hold() as lease:
        fresh = client.reload()
        rollback = pending_rollback(fresh, instant.requested_time)
        if rollback is None:
            current = fresh.timeline.find(instant.requested_time, instant.action)
            if current is None or current.is_completed or not (still is None or still(fresh)):
                return None
            _require_metadata_writer(fresh, current.requested_time, txn_context)
            requested_time, fresh = claim_begin(fresh, txn_context.clock)
            plan = plan_rollback(fresh, current, files)
            body = encode_body(plan, Action.ROLLBACK, State.REQUESTED)
            lease.confirm()
            rollback = create_requested(fresh.storage, requested_time, Action.ROLLBACK, body, fresh.active.folder)
    return finish_rollback(fresh.reload(), rollback, txn_context)


def finish_rollback(client: MetaClient, rollback: Instant, txn_context: TxnContext) -> Instant | None:
    """Carry out a rollback that is on the timeline; None when another has finished it."""
    plan = client.plan(rollback)
    if not isinstance(plan, RollbackPlan):
        _forget(client, rollback.requested_time, Action.ROLLBACK)  # it never got as far as having a plan
        return None
    target = plan.instant.time
    _refuse_completed(client, plan)
    _require_metadata_writer(client, target, txn_context)
    storage, started = client.storage, txn_context.clock.now_ms()
    heartbeat = Heartbeat(storage, rollback.requested_time, txn_context.options).start()
    try:
        if rollback.state is State.REQUESTED and client.active.size(_inflight(rollback)) is None:
            storage.put_if_absent(client.active.path(_inflight(rollback)), b"")
        planned = (joined(r.partition_path, file_name(path)) for r in plan.requests for path in r.files)
        found = find_files(storage, target, Action(plan.instant.action))
        files = sorted({*(path for path in planned if begin_of(file_name(path)) == target), *found})
        delete_all(storage, [*files, *side_files(storage, target)])
        commands = take_back(client, target, rollback.requested_time)
        with txn_context.lock.hold() as lease:
            fresh = client.reload()
            current = fresh.timeline.find(rollback.requested_time, Action.ROLLBACK)
            if current is None or current.is_completed:
                return current
            _refuse_completed(fresh, plan)
            partitions = rolled_back_partitions(storage, files, commands)
            body = _metadata(rollback, plan, partitions, txn_context.clock.now_ms() - started)
            completion = choose_completion(fresh, _inflight(rollback), body, txn_context)
            lease.confirm()
            forget_instant(fresh, plan)
            done, _ = publish(fresh, _inflight(rollback), completion, body, txn_context)
    finally:
        heartbeat.stop()
    with suppress(StorageUnavailable):  # the next write removes it
        heartbeat.remove()
    return done


def pending_rollback(client: MetaClient, requested_time: str) -> Instant | None:
    """The rollback of this requested time that is under way, if there is one."""
    for instant in client.timeline.pending.of_actions(Action.ROLLBACK):
        plan = client.plan(instant)
        if isinstance(plan, RollbackPlan) and plan.instant.time == requested_time:
            return instant
    return None


def rollback_of(client: MetaClient, requested_time: str, except_for: Collection[str] = ()) -> Instant | None:
    """The newest rollback of this requested time on the active timeline, pending or completed."""
    for instant in reversed(client.timeline.of_actions(Action.ROLLBACK).instants):
        if instant.requested_time in except_for:
            continue
        plan, body = client.plan(instant), client.body(instant) if instant.is_completed else None
        planned = isinstance(plan, RollbackPlan) and plan.instant.time == requested_time
        if planned or (isinstance(body, RollbackMetadata) and requested_time in body.commits):
            return instant
    return None


def plan_rollback(client: MetaClient, instant: Instant, files: Iterable[str]) -> RollbackPlan:
    """A request per file, as real Hudi writes them: it may have to finish what we began."""
    requested_time = instant.requested_time
    requests = tuple(
        RollbackRequest(
            folder_of(path), file_id_of(file_name(path)), requested_time, (absolute_path(client.storage, path),)
        )
        for path in sorted(files)
    )
    return RollbackPlan(InstantRef(requested_time, str(instant.action)), requests)


def find_files(storage: Storage, requested_time: str, action: Action | None = None) -> frozenset[str]:
    """Data files of a requested time: by markers, and by the names in every folder, as some writers have no markers.

    A clustering writes base files only. Logs with its requested time are updates of buckets that it resizes, which it
    will need when it is run again.
    """
    marked = (m.path for m in list_markers(storage, requested_time) if m.io_type is not MarkerType.APPEND)
    found = {path for path in marked if begin_of(file_name(path)) == requested_time and storage.stat(path) is not None}
    found.update(path for path in data_files(storage) if begin_of(file_name(path)) == requested_time)
    if action is Action.CLUSTERING:
        found = {path for path in found if parse_log_file(file_name(path)) is None}
    return frozenset(found)


def forget_instant(client: MetaClient, plan: RollbackPlan) -> None:
    """Remove an instant that was undone from the timeline, with its markers and heartbeat. Plans of services stay."""
    requested_time, action = plan.instant.time, Action(plan.instant.action)
    if action.is_service:
        client.storage.delete([client.active.path(Instant(requested_time, action, State.INFLIGHT))])
    else:
        _forget(client, requested_time, action)
    delete_markers(client.storage, requested_time)
    client.storage.delete([heartbeat_file(requested_time)])


def absolute_path(storage: Storage, path: str) -> str:
    """A path as plans and reports hold them: with the table's location, a local one without its scheme."""
    return f"{location_of(storage)}/{path}"


def delete_all(storage: Storage, paths: Sequence[str]) -> None:
    """Delete files in batches."""
    for start in range(0, len(paths), _BATCH):
        storage.delete([checked_file(path) for path in paths[start : start + _BATCH]])


def data_files(storage: Storage) -> Iterator[str]:
    """The paths of all files outside `.hoodie`."""
    folders = [folder for folder in storage.list_folders("") if folder != HOODIE_DIR]
    yield from (info.path for info in storage.list(""))
    for found in LocalRunner().map(lambda f: [i.path for i in storage.list(f, recursive=True)], folders, label="list"):
        yield from found


def side_files(storage: Storage, requested_time: str) -> list[str]:
    """Other files of a requested time: hashing metadata of a resize, and the schema history of an ALTER TABLE."""
    listed = [*storage.list(HASHING_META_DIR, recursive=True), *storage.list(SCHEMA_DIR)]
    return [info.path for info in listed if info.name.startswith((f"{requested_time}.", f"{requested_time}_"))]


def _forget(client: MetaClient, requested_time: str, action: Action) -> None:
    """Delete the pending states of an action, the most advanced first."""
    names = {name: parse_instant_file(name) for name in client.active.files}
    states = [
        i
        for i in names.values()
        if i and (i.requested_time, i.action) == (requested_time, action) and not i.is_completed
    ]
    for instant in sorted(states, key=lambda i: i.state is State.REQUESTED):
        client.storage.delete([client.active.path(instant)])


def take_back(client: MetaClient, requested_time: str, by: str) -> dict[str, int]:
    """Write rollback commands against the blocks of a requested time, in tables where a log may have several writes."""
    return (
        take_back_blocks(client.storage, data_files(client.storage), requested_time, by)
        if client.config.has_shared_logs
        else {}
    )


def rolled_back_partitions(
    storage: Storage, deleted: Iterable[str], commands: Mapping[str, int]
) -> dict[str, RollbackPartition]:
    """What was done, by partition, as rollback and restore metadata record it."""
    files: dict[str, list[str]] = {}
    logs: dict[str, dict[str, int]] = {}
    for path in deleted:
        files.setdefault(folder_of(path), []).append(absolute_path(storage, path))
    for path, size in commands.items():
        logs.setdefault(folder_of(path), {})[absolute_path(storage, path)] = size
    return {
        name: RollbackPartition(name, tuple(files.get(name, ())), rollback_logs=logs.get(name, {}))
        for name in sorted(files.keys() | logs.keys())
    }


def _metadata(
    rollback: Instant, plan: RollbackPlan, partitions: Mapping[str, RollbackPartition], took_ms: int
) -> RollbackMetadata:
    return RollbackMetadata(
        start_time=rollback.requested_time,
        time_taken_ms=max(took_ms, 0),
        total_files_deleted=sum(len(done.deleted) for done in partitions.values()),
        commits=(plan.instant.time,),
        partitions=partitions,
        instants=(InstantRef(plan.instant.time, plan.instant.action),),
    )


def _refuse_completed(client: MetaClient, plan: RollbackPlan) -> None:
    if client.timeline.completed_write(plan.instant.time) is not None:
        raise InvalidRequest(
            f"a rollback of the completed instant {plan.instant.time} is under way, started by another program",
            hint="Finish it with Apache Hudi, or restore the table to a savepoint.",
        )


def _require_metadata_writer(client: MetaClient, requested_time: str, txn_context: TxnContext) -> None:
    """Without a metadata writer, only instants that are not in the metadata table can be undone."""
    if client.config.metadata_partitions and txn_context.before_publish is None:
        known = load_active(client.storage.within(METADATA_DIR), TIMELINE_DIR).timeline.at(requested_time)
        if any(instant.is_completed for instant in known):
            txn_context.require_metadata_writer(client)


def _inflight(rollback: Instant) -> Instant:
    return Instant(rollback.requested_time, Action.ROLLBACK, State.INFLIGHT)
