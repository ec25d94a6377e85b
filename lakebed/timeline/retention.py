"""How far back a table can be read: the guard of every query of a past state.

    file v1      file v2            file v3
    ├─────────────┼──────────────────┼───────►   completion times
                  ^ v1 is needed until here: once a clean removed it, the table is complete from this time on

Every state from `whole_since` on can be read; lakebed's cleans record that time (`WHOLE_SINCE`), for all cleans before
them as well, so it does not matter which of them were archived. Other cleans name a write to retain, or nothing at all
(Hudi's by file versions); for these a time is used that is late enough. The present state is always complete, and so is
that of a savepoint, whose files no clean removes. A query of an older state is rejected: a result from the files that
are left would be silently wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.errors import InvalidRequest
from lakebed.model.actions import CleanMetadata, CleanPlan, RestorePlan
from lakebed.model.instant import Action, Instant, State
from lakebed.timeline.clock import INSTANT_LENGTH, comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.timeline import by_completion

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
WHOLE_SINCE = "lakebed.whole.since"
"""Key under which a clean records the completion time from which on every state is complete without its files."""
EVER = "0" * INSTANT_LENGTH
"""Recorded by a clean that removed nothing any state needs: files of failed attempts and of undone writes."""
_WHOLE_FROM_WRITE = "lakebed.earliest.retained"
"""The same in earlier releases: the requested time of the first write whose state is complete."""


def require_readable(client: MetaClient, at: str, what: str, hint: str = "", *, and_later: bool = False) -> None:
    """Reject a query of the state at completion time `at`, called `what` in the error, if files of it are gone.

    With `and_later` it needs every later state as well, as a query of all changes does; a savepoint keeps one state.
    """
    since = whole_since(client)
    if since is None or comparable(at) >= since or (not and_later and _is_saved(client, at)):
        return
    raise InvalidRequest(
        f"{what} is no longer there: older file versions were cleaned", hint=f"{earliest_hint(client, since)}{hint}"
    )


def whole_since(client: MetaClient, *, planned: bool = False) -> str | None:
    """The completion time from which on every state can be read; None when no clean removed anything.

    An inflight clean may have begun to delete. With `planned`, cleans that are only requested count, too.
    """
    found = ""
    for clean, plan in _pending_cleans(client):
        if planned or clean.state is State.INFLIGHT:
            found = max(found, stated_by(client, clean, plan))
    for clean in _completed_cleans(client):
        if comparable(clean.requested_time) <= found:
            break  # the files it removed were old before it was planned
        body = client.body(clean)
        if isinstance(body, CleanMetadata) and _took_files(body):
            found = max(found, _set_back(client, clean, stated_by(client, clean, body)))
            if WHOLE_SINCE in body.extra:
                break
    if found <= EVER:
        return None
    newest = client.timeline.completed.writes.last_completion
    return min(found, comparable(newest)) if newest else found


def stated_by(client: MetaClient, clean: Instant, body: CleanPlan | CleanMetadata) -> str:
    """The completion time from which on every state is complete in spite of one clean."""
    if stated := body.extra.get(WHOLE_SINCE):
        return comparable(stated)
    if write := body.extra.get(_WHOLE_FROM_WRITE):
        return comparable(client.completion_time(write) or write)
    retained = body.earliest_to_retain if isinstance(body, CleanMetadata) else _time(body)
    writes = client.timeline.completed.writes
    if not retained:  # by file versions: the newest state that existed when it ran
        until = clean.completion_time or clean.requested_time
        return comparable(writes.completed_by(until).last_completion or clean.requested_time)
    done = client.completion_time(retained)
    if done is None:  # rolled back since
        return comparable(clean.requested_time)
    # Hudi keeps the state before the retained write, by requested times: writes pending then may have replaced more.
    late = writes.requested_before(retained).completed_within(done, None).last_completion
    return comparable(late) if late else _found_by(client, done)


def _found_by(client: MetaClient, done: str) -> str:
    """When the state before the write completed at `done` came about: at the completion before it."""
    until = before(done)
    return _last_change(client, until) or until


def _last_change(client: MetaClient, until: str) -> str | None:
    """When the state of a time came about: the last completion of a write by then, archived ones included."""
    active = client.timeline.completed.writes.completed_by(until).last_completion
    archived = next(client.history.newest_completed_first(_WRITES, until), None)
    known = (active, archived.completion_time if archived else None)
    return max((comparable(time) for time in known if time), default=None)


def before(completion: str) -> str:
    """The last time at which a write that completed then was not visible yet."""
    return f"{int(comparable(completion)) - 1:017d}"


def earliest_hint(client: MetaClient, since: str) -> str:
    """From when on the table can be read, in words."""
    first = _first_readable(client, since)
    if first is None:
        return f"The earliest time that can be read is {since}."
    return f"The earliest instant that can be read is {first.requested_time} (completed {first.completion_time})."


def _first_readable(client: MetaClient, since: str) -> Instant | None:
    """The write of the earliest state that is whole: the first that completed at that time or later."""
    known = [*client.timeline.of_actions(*_WRITES).completed_within(before(since), None)]
    archived = client.history.first_completed(_WRITES, before(since))
    return min([*known, *([archived] if archived else [])], key=by_completion, default=None)


def _is_saved(client: MetaClient, at: str) -> bool:
    """Whether the state of a time is that of a savepoint: from its write on until the next one completed."""
    saved = {client.completion_time(instant.requested_time) for instant, _ in client.savepoints()}
    times = {comparable(time) for time in saved if time}
    return bool(times) and _last_change(client, at) in times


def _pending_cleans(client: MetaClient) -> Iterator[tuple[Instant, CleanPlan]]:
    for clean in client.timeline.pending.of_actions(Action.CLEAN):
        plan = client.plan(clean)
        if isinstance(plan, CleanPlan):
            yield clean, plan


def _completed_cleans(client: MetaClient) -> Iterator[Instant]:
    """Newest first, archived ones at the end."""
    yield from reversed(client.timeline.completed.of_actions(Action.CLEAN).instants)
    yield from client.history.newest_first((Action.CLEAN,))


def _took_files(body: CleanMetadata) -> bool:
    """Whether a clean removed anything; Hudi also writes empty ones."""
    return any(done.deleted or done.patterns or done.partition_deleted for done in body.partitions.values())


def _set_back(client: MetaClient, clean: Instant, since: str) -> str:
    """The time, or that of an earlier savepoint to which the table was restored after the clean."""
    restores = list(client.timeline.completed.of_actions(Action.RESTORE))
    if client.is_before_timeline(clean.requested_time):
        restores += client.history.newest_first((Action.RESTORE,), low=clean.requested_time)
    for restore in restores:
        plan = client.plan(restore)
        later = comparable(restore.completion_time or "") > comparable(clean.completion_time or "")
        if later and isinstance(plan, RestorePlan) and plan.savepoint:
            since = min(since, comparable(client.completion_time(plan.savepoint) or plan.savepoint))
    return since


def _time(plan: CleanPlan) -> str:
    return plan.earliest_to_retain.time if plan.earliest_to_retain else ""
