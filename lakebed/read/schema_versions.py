"""Schema-on-read: the version of the schema that a table has at a time, and that its files were written with.

    now                        the newest version
    as of a completion time    the newest version whose change had completed by then
    a table service            the version at the requested time of its plan: the files it writes are named by that
                               time, and readers that derive the version from file names find the right one

Versions are identified by the requested time of their change. A write that was under way while a change was, too, may
have written with either version: its commit reports which (Hudi's do as well), and is read only then. One that
reports none knew of no change yet, so while the first change was under way it wrote with what was there before.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from lakebed.model.actions import CommitMetadata
from lakebed.model.internal_schema import (
    InternalSchema,
    SchemaHistory,
    SchemaOnRead,
    parse_schema_history,
    reported_version,
)
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient


def schema_on_read(client: MetaClient, at: str | None = None) -> SchemaOnRead | None:
    """The versions, with the one that the table had at completion time `at`, or has now; None without a history."""
    text = client.schema_history()
    if text is None:
        return None
    history = parse_schema_history(text)
    wanted = history.latest if at is None else _as_of(client, history, at)
    return SchemaOnRead(history, wanted, _reported(client, history))


def version_of_plan(on_read: SchemaOnRead, requested: str, inputs: Iterable[str]) -> InternalSchema:
    """The version with which a service of that requested time writes, from those of the files it reads.

    A plan holds nothing that was written later than its own time, unless another program made it so: then the newest
    file decides, for an older version would lose columns.
    """
    found = [version for time in (requested, *inputs) if (version := on_read.history.at(time)) is not None]
    return max(found, key=lambda version: version.version, default=on_read.wanted)


def _as_of(client: MetaClient, history: SchemaHistory, at: str) -> InternalSchema:
    for version in reversed(history.versions):
        if comparable(_completion(client, version)) <= comparable(at):
            return version
    return history.versions[0]


def _completion(client: MetaClient, version: InternalSchema) -> str:
    """When a version became visible; the first one precedes all recorded changes."""
    requested_time = str(version.version)
    return client.completion_time(requested_time) or requested_time if version.version else ""


def _reported(client: MetaClient, history: SchemaHistory) -> dict[str, int]:
    """The versions that commits report where their requested time would imply another."""
    found: dict[str, int] = {}
    for before, changed in pairwise(history.versions):
        requested_time = str(changed.version)
        for write in client.writes_during(requested_time, _completion(client, changed)):
            body = client.body(write) if write.requested_time != requested_time else None
            if not isinstance(body, CommitMetadata):
                continue
            reported = reported_version(body.extra)
            if reported is None and before is history.versions[0]:
                reported = before.version
            by_time = history.at(write.requested_time)
            if reported is not None and by_time is not None and reported != by_time.version:
                found[write.requested_time] = reported
    return found
