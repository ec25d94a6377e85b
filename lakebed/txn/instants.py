"""Requested and completion times: unique, and never earlier than a time that is already on the timeline.

    requested   max(now, 1 + greatest time seen), claimed by creating .hoodie/.heartbeat/<requested time>, whose name is
                the claim: one name space for all actions. The timeline is listed again after the claim; if something
                completed meanwhile at or after this time, the claim is released and the next time tried.
    completion  chosen under the table lock, after listing again: greater than everything on the timeline

A clock that was set back or runs slow only makes times lie closer together: nothing sleeps and nothing depends on two
clocks agreeing. The listing after the claim is the transaction's snapshot, so all it contains completed before the
requested time.
"""

from __future__ import annotations

from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import heartbeat_file
from lakebed.timeline.clock import Clock, comparable, instant_time_now, instant_time_of_ms, ms_of_instant_time
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.timeline import Timeline

_CLAIMS = 1000
_LAST = "9" * 17


def successor(time: str) -> str:
    """The next millisecond. The text is calendar arithmetic in whatever zone; texts that are no date just count on."""
    text = comparable(time)
    try:
        after = instant_time_of_ms(ms_of_instant_time(text) + 1)
    except (InvalidRequest, OverflowError):
        if text >= _LAST or not text.isdigit():
            raise InvalidRequest(f"no instant time comes after {time!r}") from None
        after = f"{int(text) + 1:017d}"
    return after


def greatest_time(timeline: Timeline) -> str | None:
    """The greatest requested or completion time on the timeline."""
    times = (time for i in timeline for time in (i.requested_time, i.completion_time) if time)
    return max(map(comparable, times), default=None)


def next_time(clock: Clock, timezone: str, *seen: str | None) -> str:
    """The clock's time, or the millisecond after everything seen, whichever is later."""
    now = instant_time_now(clock, timezone)
    greatest = max((comparable(time) for time in seen if time), default=None)
    return now if greatest is None or now > greatest else successor(greatest)


def claim_begin(client: MetaClient, clock: Clock) -> tuple[str, MetaClient]:
    """A requested time that no other writer has, and the table as it was just after the claim."""
    storage, fresh = client.storage, client
    candidate = next_time(clock, client.config.timezone, greatest_time(client.timeline))
    for _ in range(_CLAIMS):
        if not storage.put_if_absent(heartbeat_file(candidate), b""):
            candidate = successor(candidate)
            continue
        fresh = client.reload()
        if _is_newest(candidate, fresh.timeline):
            return candidate, fresh
        storage.delete([heartbeat_file(candidate)])
        candidate = next_time(clock, client.config.timezone, greatest_time(fresh.timeline))
    raise ConflictError(f"{_CLAIMS} requested times in a row were taken by other writers", hint="Try again.")


def completion_time(requested_time: str, timeline: Timeline, clock: Clock, timezone: str, *after: str | None) -> str:
    """The time at which an action completes. The caller holds the table lock and has just listed the timeline."""
    return next_time(clock, timezone, requested_time, greatest_time(timeline), *after)


def _is_newest(requested_time: str, timeline: Timeline) -> bool:
    """Whether nothing on the timeline has this requested time, and everything completed did so before it."""
    if timeline.at(requested_time):
        return False
    greatest = greatest_time(timeline.completed)
    return greatest is None or greatest < requested_time
