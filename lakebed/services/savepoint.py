"""Savepoints: a state of the table that no clean touches, and to which it can be restored.

    <b>.savepoint.inflight  ->  <b>_<c>.savepoint      <b> is the requested time of the write that is saved

The savepoint lists every file of the slices that a snapshot at that write reads, but for covered logs that a pending
clean deletes: these do not count there. A clean that was planned while the list was made may have deleted one of the
files, so cleans are checked once more when the savepoint is on the timeline: those that are planned later see it.
"""

from __future__ import annotations

import getpass

from lakebed.errors import ConflictError, InvalidRequest
from lakebed.model.actions import CleanMetadata, SavepointMetadata
from lakebed.model.instant import Action, Instant, State
from lakebed.paths import file_name
from lakebed.services.reserved import Reserved
from lakebed.storage.storage import joined
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import require_readable
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from lakebed.view.file_system_view import FileSystemView


def create_savepoint(client: MetaClient, txn_context: TxnContext, comment: str = "", at: str | None = None) -> Instant:
    """Save the table as it is now, or as it was at a write that is still retained; the savepoint."""
    saved = _write_to_save(client, at)
    if client.timeline.find(saved.requested_time, Action.SAVEPOINT) in _completed(client):
        raise InvalidRequest(f"the write {saved.requested_time} has a savepoint already")
    require_readable(client, saved.completion_time or "", f"the state at {saved.requested_time}")
    view, reserved = FileSystemView.of(client), Reserved.of(client)
    files = {
        partition: tuple(
            file.name
            for file_slice in view.slices(partition, saved.completion_time)
            for file in reserved.plannable(client, file_slice)[0].files
        )
        for partition in view.partitions()
    }
    body = SavepointMetadata(
        _user(), txn_context.clock.now_ms(), comment, {p: names for p, names in files.items() if names}
    )
    with Transaction.begin(client, Action.SAVEPOINT, txn_context, requested_time=saved.requested_time) as txn:
        done = txn.commit(body)
    taken = _taken_by_a_clean(client.reload(), body)
    if taken is not None:
        delete_savepoint(client.reload(), txn_context, saved.requested_time)
        raise ConflictError(
            f"a clean is removing files of the write {saved.requested_time}",
            file=taken,
            hint="Finish it with t.services.clean(), then save a write that is still whole.",
        )
    return done


def delete_savepoint(client: MetaClient, txn_context: TxnContext, at: str) -> None:
    """Release what a savepoint held to cleans and archiving. The completed file goes last: until then it holds."""
    with txn_context.lock.hold() as lease:
        client = client.reload()
        found = client.timeline.find(at, Action.SAVEPOINT)
        if found is None:
            raise InvalidRequest(f"there is no savepoint {at!r}", hint=_known(client))
        lease.confirm()
        inflight = Instant(at, Action.SAVEPOINT, State.INFLIGHT)
        client.storage.delete([client.active.path(inflight)])
        if found.is_completed:
            client.storage.delete([client.active.path(found)])
        txn_context.notify(client.changed({}, (inflight, found)))


def savepoint_named(client: MetaClient, at: str | None) -> tuple[Instant, SavepointMetadata]:
    """The savepoint of a write, the newest where none is named."""
    known = client.savepoints()
    if at is None and known:
        return known[-1]
    for instant, body in known:
        if instant.requested_time == at:
            return instant, body
    raise InvalidRequest(f"there is no savepoint {at!r}" if at else "the table has no savepoint", hint=_known(client))


def _completed(client: MetaClient) -> tuple[Instant, ...]:
    return client.timeline.completed.of_actions(Action.SAVEPOINT).instants


def _known(client: MetaClient) -> str:
    names = [instant.requested_time for instant in _completed(client)]
    return f"There are: {', '.join(names)}." if names else "Make one with savepoint()."


def _write_to_save(client: MetaClient, at: str | None) -> Instant:
    writes = client.timeline.completed.writes.in_completion_order()
    if not writes:
        raise InvalidRequest("the table has no completed write to save")
    if at is None:
        return writes[-1]
    found = client.timeline.completed_write(at)
    if found is None:
        raise InvalidRequest(
            f"there is no completed write {at!r} on the active timeline",
            hint=f"The oldest is {writes[0].requested_time}, the newest {writes[-1].requested_time}.",
        )
    return found


def _taken_by_a_clean(client: MetaClient, body: SavepointMetadata) -> str | None:
    """A file of the savepoint that a clean on the active timeline deletes or deleted."""
    taken = set(Reserved.of(client).leaving)
    for instant in client.timeline.completed.of_actions(Action.CLEAN):
        done = client.body(instant)
        for partition, found in done.partitions.items() if isinstance(done, CleanMetadata) else ():
            taken.update((partition, file_name(path)) for path in found.deleted)
    saved = ((partition, name) for partition, names in body.files.items() for name in names)
    return next((joined(*file) for file in saved if file in taken), None)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "lakebed"
