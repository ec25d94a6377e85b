"""A transaction: an action from the claim of its requested time to its publication, or to its rollback.

    begin   mode recorded in the table (under the lock, if it changes)                     (no lock)
            claim a requested time, read the table -> clean up after others -> requested -> inflight
    ...     markers and data files, written by tasks anywhere
    commit  our files are all there, lost attempts are deleted
            lock -> still ours? conflicts? -> metadata table -> completion time -> publish -> unlock
            markers and heartbeat removed
    abort   rollback of our own instant

    with Transaction.begin(client, Action.DELTA_COMMIT, txn_context, operation="UPSERT") as txn:
        ...                       # write files whose names have txn.requested_time
        txn.commit(metadata)      # leaving the block without it, or by an exception, undoes the write

Readers see all or nothing, for only the completed file counts. Table services plan first (`schedule`, under the lock)
and run later, perhaps elsewhere (`Transaction.resume`), or plan and begin at once (`Transaction.plan`). When the store
does not answer whether the publish succeeded, nothing is undone: the next writer learns it from the timeline.

The table is read once after the claim and once under the lock of the commit; all work in between is done on the first
of these snapshots, by one view of its files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import cached_property
from types import TracebackType

from lakebed.errors import ConflictError, InvalidRequest, StorageUnavailable
from lakebed.format.names import MarkerType, heartbeat_file
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import ActionBody, CommitMetadata, RequestedReplace, SavepointMetadata
from lakebed.model.instant import Action, Instant, State
from lakebed.timeline.active import create_requested, to_inflight
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.claims import Plan, claim, claim_plan, may_take_over
from lakebed.txn.conflicts import (
    Touched,
    completed_since,
    completion_time_moves_forward,
    conflicts,
    every_file_exists,
    files_are_of,
    instant_still_ours,
    no_file_group_written_twice,
    nothing_was_undone,
    rolled_back_since,
    saved_write_is_there,
    schema_still_the_same,
    version_still_the_same,
)
from lakebed.txn.failed_writes import delete_unnamed, named_by
from lakebed.txn.heartbeat import Heartbeat
from lakebed.txn.locks import Lease
from lakebed.txn.markers import create_marker, delete_markers
from lakebed.txn.mode import record_mode, table_mode
from lakebed.txn.options import Concurrency
from lakebed.txn.publish import choose_completion, publish
from lakebed.txn.rollback import roll_back
from lakebed.txn.txn_context import TxnContext
from lakebed.view.committed import NamedFiles
from lakebed.view.file_system_view import FileSystemView


class _Phase(Enum):
    OPEN = "open"
    PUBLISHING = "the outcome is not known"
    COMMITTED = "committed"
    ABORTED = "undone"


def schedule(client: MetaClient, action: Action, plan: Plan, txn_context: TxnContext) -> Instant | None:
    """Plan a table service under the lock and save the plan as requested; None when there is nothing to do.

    `plan` gets the table as it is now and the requested time: whatever completes later completes after that time.
    """
    found = claim_plan(client, action, plan, txn_context, keep_claim=False)
    return found.instant if found is not None else None


class Transaction:
    """One action under way. Made by `begin`, `plan` or `resume`, ended by `commit` or `abort`."""

    def __init__(
        self,
        snapshot: MetaClient,
        inflight: Instant,
        txn_context: TxnContext,
        heartbeat: Heartbeat | None,
        operation: str | None,
    ) -> None:
        self.snapshot = snapshot
        """The table as the action may see it: everything in it completed before the action began."""
        self.instant = inflight
        self.operation = operation
        self._txn_context = txn_context
        self._heartbeat = heartbeat
        self._phase = _Phase.OPEN

    @cached_property
    def view(self) -> FileSystemView:
        """The files of the snapshot: one view for all look-ups of the action, which lists each partition once."""
        return FileSystemView.of(self.snapshot)

    # Beginning

    @classmethod
    def begin(
        cls,
        client: MetaClient,
        action: Action,
        txn_context: TxnContext,
        *,
        operation: str | None = None,
        plan: ActionBody | None = None,
        profile: CommitMetadata | None = None,
        requested_time: str | None = None,
    ) -> Transaction:
        """Start an action. `profile` is the workload that an inflight write may state.

        `requested_time` is for an action that shares it with another: a savepoint, or the metadata table's part of a
        commit. Such an action claims nothing, has no heartbeat, and cleans up nothing before it.
        """
        record_mode(client.storage, txn_context)
        if action.completes_as.adds_files:
            txn_context.require_metadata_writer(client)
        if plan is None and action is Action.REPLACE_COMMIT:
            plan = RequestedReplace("DELETE_PARTITION") if operation == "DELETE_PARTITION" else RequestedReplace()
        heartbeat = None
        if requested_time is not None:
            snapshot = client.reload()
        else:
            cleans = action.completes_as.adds_files
            requested_time, snapshot, heartbeat = claim(client, txn_context, cleans=cleans)
        txn = cls(snapshot, Instant(requested_time, action, State.INFLIGHT), txn_context, heartbeat, operation)
        try:
            txn._announce(plan, profile)
        except BaseException as error:
            txn._withdraw(error)
            raise
        return txn

    @classmethod
    def plan(
        cls, client: MetaClient, action: Action, plan: Plan, txn_context: TxnContext, *, operation: str | None = None
    ) -> Transaction | None:
        """Plan a table service as `schedule` does, and begin to run it; None when there is nothing to do.

        The claim on the requested time is kept in between, so nobody else can run the plan, and the table from which it
        was made is the snapshot of the run.
        """
        if action.completes_as.adds_files:
            txn_context.require_metadata_writer(client)
        found = claim_plan(client, action, plan, txn_context, keep_claim=True)
        if found is None:
            return None
        return cls._running(found.client, found.instant, txn_context, found.heartbeat, operation)

    @classmethod
    def resume(
        cls, client: MetaClient, planned: Instant, txn_context: TxnContext, *, operation: str | None = None
    ) -> Transaction:
        """Run an action that was planned before. What an earlier run left half done is undone first."""
        storage, requested_time, action = client.storage, planned.requested_time, planned.action
        record_mode(storage, txn_context)
        if action.completes_as.adds_files:
            txn_context.require_metadata_writer(client)
        taken_over = not storage.put_if_absent(heartbeat_file(requested_time), b"")
        fresh = client.reload()
        if taken_over and not may_take_over(fresh, requested_time, txn_context):
            raise ConflictError(f"{planned} is being run by another writer", hint="Try again when it is done.")
        heartbeat = Heartbeat(storage, requested_time, txn_context.options)
        current = fresh.timeline.find(requested_time, action)
        if current is None or current.is_completed:
            heartbeat.remove()
            raise ConflictError(f"{planned} was completed or undone by another writer", hint="Open the table again.")
        if action.is_service and (taken_over or current.state is State.INFLIGHT):
            roll_back(fresh, current, txn_context)
            if not storage.put_if_absent(heartbeat_file(requested_time), b""):
                raise ConflictError(f"{planned} is being run by another writer", hint="Try again when it is done.")
            fresh = fresh.reload()
        return cls._running(fresh, planned, txn_context, heartbeat.start(), operation)

    @classmethod
    def _running(
        cls,
        snapshot: MetaClient,
        planned: Instant,
        txn_context: TxnContext,
        heartbeat: Heartbeat,
        operation: str | None,
    ) -> Transaction:
        """The run of a plan whose requested time is claimed."""
        inflight = Instant(planned.requested_time, planned.action, State.INFLIGHT)
        txn = cls(snapshot, inflight, txn_context, heartbeat, operation)
        try:
            if snapshot.active.size(inflight) is None:
                to_inflight(snapshot.storage, replace(inflight, state=State.REQUESTED), b"", snapshot.active.folder)
        except BaseException:
            heartbeat.stop()
            raise
        return txn

    def _announce(self, plan: ActionBody | None, profile: CommitMetadata | None) -> None:
        storage, folder, action = self.snapshot.storage, self.snapshot.active.folder, self.instant.action
        requested = replace(self.instant, state=State.REQUESTED)
        if action is not Action.SAVEPOINT:
            body = encode_body(plan, action, State.REQUESTED)
            requested = create_requested(storage, self.requested_time, action, body, folder)
        elif self.snapshot.active.size(self.instant) is not None:
            return  # a savepoint that an earlier call began
        to_inflight(storage, requested, encode_body(profile, action, State.INFLIGHT), folder)

    def _withdraw(self, error: BaseException) -> None:
        """Delete the timeline files and the heartbeat: nothing else was written yet."""
        self._stop()
        if isinstance(error, Exception) and self._heartbeat is not None:
            requested = replace(self.instant, state=State.REQUESTED)
            with suppress(StorageUnavailable):
                paths = [self.snapshot.active.path(state) for state in (self.instant, requested)]
                self.snapshot.storage.delete(paths)
                self._heartbeat.remove()

    # While it runs

    @property
    def requested_time(self) -> str:
        return self.instant.requested_time

    def mark(self, partition_path: str, data_file: str, io_type: MarkerType = MarkerType.CREATE) -> None:
        """Announce a data file before it is created; tasks elsewhere call `create_marker` themselves."""
        create_marker(self.snapshot.storage, self.requested_time, partition_path, data_file, io_type)

    # Ending

    def commit(
        self, body: ActionBody, settle: Callable[[MetaClient, CommitMetadata], CommitMetadata] | None = None
    ) -> Instant:
        """Publish the action; the completed instant. On any error but an unknown outcome the write is not visible.

        `settle` reduces the commit metadata to what counts in the table as it is under the lock; files that it leaves
        out are deleted.
        """
        if self._phase is not _Phase.OPEN:
            raise InvalidRequest(f"the transaction {self.requested_time} is over: {self._phase.value}")
        if isinstance(body, CommitMetadata):
            body = replace(body, operation=body.operation or self.operation)
            self._check_files(body)
        with self._txn_context.lock.hold() as lease:
            now = self.snapshot.reload()
            alive = self._heartbeat is None or self._heartbeat.is_there()
            instant_still_ours(self.snapshot, now, self.instant, alive=alive)
            version_still_the_same(self.snapshot, now)
            if self.instant.action.completes_as.adds_files:
                self._txn_context.require_metadata_writer(now)
            if isinstance(body, SavepointMetadata):
                saved_write_is_there(now, self.requested_time)
            if isinstance(body, CommitMetadata):
                nothing_was_undone(self.snapshot, now)
                body = self._settled(now, body, settle)
                self._check_conflicts(now, body)
                if not self.instant.action.is_service:
                    schema_still_the_same(self.snapshot, now)
            completion = choose_completion(now, self.instant, body, self._txn_context)
            completion_time_moves_forward(now.timeline, self.requested_time, completion)
            lease.confirm()
            self._phase = _Phase.PUBLISHING
            done, after = publish(now, self.instant, completion, body, self._txn_context)
            self._check_not_undone(lease, done)
            self._phase = _Phase.COMMITTED
            self._txn_context.notify(after)  # in the order of commits: later, another thread's may have come first
        self._tidy()
        return done

    def abort(self) -> None:
        """Undo the action: files, timeline, markers, heartbeat. The plan of a service stays, to be run again."""
        if self._phase is not _Phase.OPEN:
            raise InvalidRequest(f"the transaction {self.requested_time} is over: {self._phase.value}")
        self._stop()
        action = self.instant.action
        if action.completes_as.adds_files:
            self._undo()
        elif action is Action.SAVEPOINT:
            self.snapshot.storage.delete([self.snapshot.active.path(self.instant)])
        elif self._heartbeat is not None:
            self._heartbeat.remove()
        self._phase = _Phase.ABORTED

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._phase is _Phase.OPEN:
                self.abort()
        except Exception as problem:
            if error is None:
                raise
            error.add_note(
                f"Undoing the write {self.requested_time} failed as well, the next write will do it: {problem}"
            )
        finally:
            self._stop()

    def _check_files(self, body: CommitMetadata) -> None:
        files_are_of(self.requested_time, body)
        no_file_group_written_twice(body)
        every_file_exists(self.snapshot.storage, body)
        delete_unnamed(self.snapshot, self.requested_time, NamedFiles.of(body, self.snapshot.active.path(self.instant)))

    def _settled(
        self,
        now: MetaClient,
        body: CommitMetadata,
        settle: Callable[[MetaClient, CommitMetadata], CommitMetadata] | None,
    ) -> CommitMetadata:
        settled = settle(now, body) if settle is not None else body
        if settled != body:
            named = NamedFiles.of(settled, self.snapshot.active.path(self.instant))
            delete_unnamed(now, self.requested_time, named)
        return settled

    def _check_conflicts(self, now: MetaClient, body: CommitMetadata) -> None:
        ours = Touched.by(self.requested_time, body)
        non_blocking = table_mode(now.config) is Concurrency.NON_BLOCKING
        conflict = conflicts(ours, completed_since(self.snapshot, now), non_blocking=non_blocking)
        if conflict is not None:
            raise conflict

    def _undo(self) -> None:
        """Roll back, unless another writer took the instant over; then delete only files that nobody else can own."""
        now = self.snapshot.reload()
        named = named_by(now, self.requested_time)
        undone = rolled_back_since(self.snapshot, now, self.requested_time)
        if named is not None:
            delete_unnamed(now, self.requested_time, named)
        elif undone is None or not undone.is_completed:
            roll_back(now, self.instant, self._txn_context)
        elif not now.timeline.at(self.requested_time):
            delete_unnamed(now, self.requested_time, None)
            delete_markers(now.storage, self.requested_time)

    def _check_not_undone(self, lease: Lease, done: Instant) -> None:
        """A publish so slow that the lock was lost over it may have come after our rollback; then it does not count."""
        if not lease.lapsed():
            return
        now = self.snapshot.reload()
        undone = rolled_back_since(self.snapshot, now, self.requested_time)
        if undone is not None:
            now.storage.delete([now.active.path(done)])
            raise ConflictError(f"{self.instant} was rolled back by {undone} during its publish", hint="Try again.")

    def _tidy(self) -> None:
        """The action is published: what fails from here on is left for the next write to remove."""
        with suppress(StorageUnavailable):
            delete_markers(self.snapshot.storage, self.requested_time)
            if self._heartbeat is not None:
                self._heartbeat.remove()
        self._stop()

    def _stop(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
