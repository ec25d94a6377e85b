"""The schema of a table from its timeline: the newest that a write reported, and the history of all of them.

    <timeline>/<requested>_<completed>.<action>             a report with the Avro text `schema`, and under
                                                            schema-on-read with `latest_schema`, the version that the
                                                            files of the write have
    .hoodie/.schema/<requested>_<completed>.schemacommit    all versions, saved by every ALTER TABLE and by the writes
                                                            after it

Tables without schema-on-read have files of the first kind only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakebed.errors import ConflictError, CorruptTable
from lakebed.format.names import SCHEMA_DIR, instant_file_name, parse_instant_file
from lakebed.model.actions import ActionBody, CommitMetadata
from lakebed.model.instant import Instant
from lakebed.model.internal_schema import LATEST_SCHEMA
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import comparable
from lakebed.timeline.timeline import Timeline

Report = tuple[Instant, Callable[[], ActionBody | None]]
"""A completed write, and a function that reads what it reported."""
_REWRITES = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER"})


def reported_schema(newest_first: Iterable[Report], at: str | None = None) -> str | None:
    """Avro text of the schema in the report of the newest write, of those completed by `at`.

    A table service rewrites existing rows: its report has the schema of its plan, perhaps older than the table's, and
    is used only where no report of a write has a schema.
    """
    rewritten = None
    for instant, read in newest_first:
        if at is not None and comparable(instant.completion_time or "") > comparable(at):
            continue
        body = read()
        if isinstance(body, CommitMetadata) and body.schema_json:
            if not body.compacted and (body.operation or "").upper() not in _REWRITES:
                return body.schema_json
            rewritten = rewritten or body.schema_json
    return rewritten


def saved_history(storage: Storage, is_committed: Callable[[str], bool], newest_first: Iterable[Report]) -> str | None:
    """The JSON text that was saved last, None where none was.

    Writers save it again, and delete what archived actions saved. A client whose timeline has none of the saved
    versions is older than all of them, and must not go on: without a history it would find columns by name.
    """
    found = (parse_instant_file(info.name) for info in storage.list(SCHEMA_DIR))
    saved = Timeline.of(one for one in found if one is not None).completed.instants
    for instant in sorted(saved, key=lambda one: comparable(one.completion_time or one.requested_time), reverse=True):
        if is_committed(instant.requested_time):
            path = f"{SCHEMA_DIR}/{instant_file_name(instant)}"
            try:
                return storage.read(path).decode("utf-8")
            except UnicodeDecodeError:
                raise CorruptTable("the schema history is not UTF-8 text", file=path) from None
            except FileNotFoundError:
                raise _history_changed(path) from None
    if saved and _reports_versions(newest_first):
        raise _history_changed(SCHEMA_DIR)
    return None


def _reports_versions(newest_first: Iterable[Report]) -> bool:
    for _, read in newest_first:
        body = read()
        if isinstance(body, CommitMetadata) and body.schema_json:
            return LATEST_SCHEMA in body.extra
    return False


def _history_changed(file: str) -> ConflictError:
    return ConflictError("the history of the schema has changed", file=file, hint="Open the table again and retry.")
