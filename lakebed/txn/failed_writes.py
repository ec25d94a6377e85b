"""Before a write starts: finish pending rollbacks, roll back failed writes, remove leftovers of dead writers.

    EAGER   a single writer: whatever is pending was left by a writer that died, so it is rolled back at once
    LAZY    several writers: only what has no fresh heartbeat
    NEVER   nothing is undone here

The table's concurrency mode, as it is under the table lock, decides which of them holds (`txn/mode.py`): a writer that
was the only one when it started may be one of several by the time it undoes something.

Only plain writes are undone. Planned compactions, log compactions and clusterings wait for a process that runs them,
and cleans and restores are finished by their own services. Leftovers are markers and heartbeats of instants that are
not pending: a writer that died just after its commit, a claim that never became an instant, a task that ran on after
its write was undone. Such a task's files are found by their markers and deleted, unless the instant's commit names
them. Temporary files are deleted when the process that made them is gone, or, if that ran on another machine, when they
are a day old.
"""

from __future__ import annotations

from functools import partial

from lakebed.format.names import HEARTBEAT_DIR, TEMP_DIR, MarkerType, heartbeat_file, is_instant_time
from lakebed.model.actions import RequestedReplace
from lakebed.model.instant import Action, Instant
from lakebed.paths import file_name
from lakebed.storage.local import TEMP_PREFIX, owner_of_temporary
from lakebed.storage.storage import FileInfo
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.heartbeat import is_expired
from lakebed.txn.markers import begin_of, delete_empty_folders, delete_markers, file_id_of, list_markers
from lakebed.txn.mode import policy
from lakebed.txn.options import FailedWrites
from lakebed.txn.rollback import delete_all, finish_rollback, roll_back, rollback_of
from lakebed.txn.txn_context import TxnContext
from lakebed.view.committed import NamedFiles

_FORGOTTEN_MS = 24 * 60 * 60 * 1000
_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


def clean_up(client: MetaClient, txn_context: TxnContext, own: str | None = None) -> MetaClient:
    """Undo what dead writers left, as far as the policy allows; the table as it is afterwards.

    `client` is the table as it was just read, and is returned where nothing had to be undone. `own` is a requested time
    that the caller has claimed.
    """
    if policy(client.config, txn_context) is FailedWrites.NEVER:
        return client
    for rollback in client.timeline.pending.of_actions(Action.ROLLBACK):
        if _is_dead(client, rollback.requested_time, txn_context):
            finish_rollback(client, rollback, txn_context)
            client = client.reload()
    failed = [instant for instant in failed_writes(client) if _is_dead(client, instant.requested_time, txn_context)]
    for instant in failed:
        roll_back(
            client,
            instant,
            txn_context,
            partial(_is_dead, requested_time=instant.requested_time, txn_context=txn_context),
        )
    client = client.reload() if failed else client
    remove_leftovers(client, txn_context, own)
    return client


def failed_writes(client: MetaClient) -> tuple[Instant, ...]:
    """Pending writes that are no table service."""
    pending = client.timeline.pending.of_actions(*_WRITES)
    return tuple(instant for instant in pending if not _is_clustering(client, instant))


def remove_leftovers(client: MetaClient, txn_context: TxnContext, own: str | None = None) -> None:
    """Remove markers and heartbeats that belong to nothing pending, and marked files that no commit names."""
    requested_times, temporaries = _leftovers(client, own)
    _remove_temporaries(client, temporaries, txn_context)
    done = [
        requested_time
        for requested_time in requested_times
        if client.timeline.at(requested_time) and not _is_pending(client, requested_time)
    ]
    for requested_time in done:
        _remove(client, requested_time)
    unknown = [
        requested_time
        for requested_time in requested_times
        if not client.timeline.at(requested_time) and _is_dead(client, requested_time, txn_context)
    ]
    if unknown:
        with txn_context.lock.hold():  # services claim their times under the lock: no claim of theirs is under way now
            fresh = client.reload()
            for requested_time in unknown:
                if not fresh.timeline.at(requested_time) and _is_dead(fresh, requested_time, txn_context):
                    _remove(fresh, requested_time)


def named_by(client: MetaClient, requested_time: str) -> NamedFiles | None:
    """The files that the completed write of this time reports, None when the active timeline has no such write."""
    instant, commit = client.timeline.completed_write(requested_time), client.commit(requested_time)
    return None if instant is None or commit is None else NamedFiles.of(commit, client.active.path(instant))


def delete_unnamed(client: MetaClient, requested_time: str, named: NamedFiles | None) -> None:
    """Delete the marked files of a requested time that its commit does not name; without a commit, all of them."""
    unnamed = []
    for marker in list_markers(client.storage, requested_time):
        ours = begin_of(marker.data_file) == requested_time and marker.io_type is not MarkerType.APPEND
        file_id = file_id_of(marker.data_file) or ""
        if ours and (named is None or not named.has(marker.partition_path, file_id, marker.data_file)):
            unnamed.append(marker.path)
    delete_all(client.storage, unnamed)


def _remove(client: MetaClient, requested_time: str) -> None:
    named = named_by(client, requested_time)
    if named is not None:
        delete_unnamed(client, requested_time, named)
    elif rollback_of(client, requested_time) is not None or not client.is_committed(requested_time):
        delete_unnamed(client, requested_time, None)
    delete_markers(client.storage, requested_time)
    delete_empty_folders(client.storage, requested_time)
    client.storage.delete([heartbeat_file(requested_time)])


def _leftovers(client: MetaClient, own: str | None) -> tuple[list[str], list[FileInfo]]:
    """The requested times of other writers that have a heartbeat or markers, and the temporary files."""
    names = {info.name for info in client.storage.list(HEARTBEAT_DIR)}
    names.update(file_name(folder) for folder in client.storage.list_folders(TEMP_DIR))
    temporaries = [info for info in client.storage.list(TEMP_DIR) if info.name.startswith(TEMP_PREFIX)]
    return sorted(name for name in names if is_instant_time(name) and name != own), temporaries


def _remove_temporaries(client: MetaClient, found: list[FileInfo], txn_context: TxnContext) -> None:
    owners = {info.path: owner_of_temporary(info.name) for info in found}
    gone = [path for path, owner in owners.items() if owner is not None and owner.is_gone]
    foreign = [info for info in found if (owner := owners[info.path]) is None or not owner.is_here]
    if foreign:
        now = txn_context.store_clock(client.storage).now_ms()
        gone += [info.path for info in foreign if now - info.modified_ms > _FORGOTTEN_MS and info.path not in gone]
    client.storage.delete(gone)


def _is_pending(client: MetaClient, requested_time: str) -> bool:
    return any(not instant.is_completed for instant in client.timeline.at(requested_time))


def _is_dead(client: MetaClient, requested_time: str, txn_context: TxnContext) -> bool:
    if policy(client.config, txn_context) is FailedWrites.EAGER:
        return True
    return is_expired(client.storage, requested_time, txn_context.store_clock(client.storage), txn_context.options)


def _is_clustering(client: MetaClient, instant: Instant) -> bool:
    if instant.action is not Action.REPLACE_COMMIT:
        return False
    plan = client.plan(instant)
    return isinstance(plan, RequestedReplace) and plan.clustering is not None
