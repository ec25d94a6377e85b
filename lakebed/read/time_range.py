"""The times of a query, resolved once: which state of the table is read, and which of its rows.

    as_of(instant)            the state at that instant's completion; as_of(time): of everything completed by then
    incremental(start, end]   of the state at the end, the rows whose current version was committed after the start

So both need one state, which must still be there (`timeline/retention`). The start of a range may be of any age: rows
keep the requested time of their write, and the history keeps the completion time of that write for ever. A range in
which nothing was committed has no rows, whatever was cleaned.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from lakebed.errors import InvalidRequest
from lakebed.model.instant import Action
from lakebed.timeline.clock import INSTANT_LENGTH, comparable, to_instant_time
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import require_readable

Time = str | dt.datetime | dt.date
_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_EVER = "0" * INSTANT_LENGTH


@dataclass(frozen=True, slots=True)
class TimeRange:
    """What counts: everything completed by `at` (None: now); with `start`, only rows committed after it."""

    at: str | None = None
    start: str | None = None
    commits: frozenset[str] | None = None
    """Requested times of the writes in (start, at], which choose the rows of an incremental query; None: all rows."""


def resolve_as_of(client: MetaClient, time: Time | None) -> TimeRange:
    """The completion time that a point in time stands for; refused where a clean has removed the files."""
    if time is None:
        return TimeRange()
    at = client.resolve_time(time)
    _check_not_before_first(client, time, at)
    require_readable(client, at, f"the table as of {time}")
    return TimeRange(at=at)


def _check_not_before_first(client: MetaClient, time: Time, at: str) -> None:
    """A time before the first commit is refused: an empty answer would hide a mistyped year."""
    writes = client.timeline.completed.writes.in_completion_order()
    first = writes[0] if writes else None
    if first is None or comparable(at) >= comparable(first.completion_time or ""):
        return
    first = client.history.first_completed(_WRITES) or first
    if comparable(at) < comparable(first.completion_time or ""):
        name = f"{first.requested_time} (completed {first.completion_time})"
        raise InvalidRequest(
            f"the table had no commit yet as of {time}", hint=f"The earliest instant that can be read is {name}."
        )


def resolve_range(client: MetaClient, start: Time | None, end: Time | None) -> TimeRange:
    """A range of completion times, start exclusive, end inclusive, with the writes that completed in it.

    Refused where a clean has removed files of the state at its end.
    """
    if not client.config.populate_meta_fields:
        raise InvalidRequest(
            "an incremental query needs the commit time of each row, and this table keeps no meta fields",
            hint="Compare two scans with as_of instead.",
        )
    if start is None:
        raise InvalidRequest("an incremental query needs a start", hint="Use a completion time, or 0 for everything.")
    after = _range_end(client, start)
    until = None if end is None else _range_end(client, end)
    if until is not None and comparable(until) < comparable(after):
        raise InvalidRequest(f"the range ends ({end}) before it starts ({start})", hint="Swap start and end.")
    if until is None and after == _EVER:
        return TimeRange(start=after)
    commits = client.writes_within(after, until)
    if until is not None and commits:
        hint = " End the range there or later, or nowhere; it may start at any time."
        require_readable(client, until, f"the table as of {end}, where the range ends,", hint)
    return TimeRange(at=until, start=after, commits=commits)


def require_known(client: MetaClient, time: TimeRange, requested_times: Iterable[str]) -> None:
    """Refuse a range with writes that are missing in the history, found by the files of the state at its end.

    A file in force with a requested time after the start is in the range, so its write must be among those of the
    range. Where it is not, the history was lost or never taken over, and rows of others like it would be missed.
    """
    start, known = comparable(time.start or ""), time.commits or frozenset()
    missed = [
        requested_time
        for requested_time in requested_times
        if comparable(requested_time) > start and requested_time not in known
    ]
    unknown = [requested_time for requested_time in missed if client.completion_time(requested_time) is None]
    if unknown:
        first = client.history.first_completed(_WRITES) or client.timeline.completed.writes.first
        since = f"{first.completion_time} or 0" if first is not None else "0"
        raise InvalidRequest(
            f"the history of the table does not reach back to its write {min(unknown, key=comparable)}",
            hint=f"The earliest possible start is {since}, which returns all rows.",
        )


def _range_end(client: MetaClient, value: Time) -> str:
    if isinstance(value, str) and value and value.strip("0") == "":
        return _EVER
    return to_instant_time(value, client.config.timezone)
