"""The contents of timeline files: Avro bodies to the values of `model/actions.py` and back, and the history manifest.

    state       action                          record in the file (an Avro container, `format/avro/container.py`)
    requested   commit, deltacommit             empty
                compaction, logcompaction       HoodieCompactionPlan
                replacecommit, clustering       HoodieRequestedReplaceMetadata
                clean, rollback, restore,       HoodieCleanerPlan, HoodieRollbackPlan, HoodieRestorePlan,
                indexing                        HoodieIndexPlan
    inflight    commit, deltacommit, replace    HoodieCommitMetadata (the work to come) or empty; others empty
    completed   commit, deltacommit             HoodieCommitMetadata
                replacecommit                   HoodieReplaceCommitMetadata
                clean, rollback, savepoint,     Hoodie{Clean,Rollback,Savepoint,Restore}Metadata,
                restore, indexing               HoodieIndexCommitMetadata

    history     _version_    the number of the current manifest as text
                manifest_N   {"files": [{"fileName": ..., "fileLen": ...}, ...]}

History rows keep `metadata` (completed) and `plan` (requested) as the same bytes under the completed action's word, so
a `commit` may have a compaction plan, and `decode_body` takes it. The record is identified by the name in its own
schema and must be one that the action can have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.avro.container import read_named_container, write_container
from lakebed.format.avro.fields import Fields
from lakebed.format.names import is_history_file
from lakebed.format.timeline import service_records, write_records
from lakebed.model.actions import (
    ActionBody,
    CleanMetadata,
    CleanPlan,
    CommitMetadata,
    CompactionPlan,
    IndexMetadata,
    IndexPlan,
    RequestedReplace,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPlan,
    SavepointMetadata,
)
from lakebed.model.instant import Action, State

_COMPACTION = "HoodieCompactionPlan"
_COMMIT = "HoodieCommitMetadata"
_REPLACED = "HoodieReplaceCommitMetadata"
_RECORDS: dict[Action, tuple[str | None, str | None]] = {
    Action.COMMIT: (_COMPACTION, _COMMIT),
    Action.DELTA_COMMIT: (_COMPACTION, _COMMIT),
    Action.COMPACTION: (_COMPACTION, _COMMIT),
    Action.LOG_COMPACTION: (_COMPACTION, _COMMIT),
    Action.REPLACE_COMMIT: ("HoodieRequestedReplaceMetadata", _REPLACED),
    Action.CLUSTERING: ("HoodieRequestedReplaceMetadata", _REPLACED),
    Action.CLEAN: ("HoodieCleanerPlan", "HoodieCleanMetadata"),
    Action.ROLLBACK: ("HoodieRollbackPlan", "HoodieRollbackMetadata"),
    Action.SAVEPOINT: (None, "HoodieSavepointMetadata"),
    Action.RESTORE: ("HoodieRestorePlan", "HoodieRestoreMetadata"),
    Action.INDEXING: ("HoodieIndexPlan", "HoodieIndexCommitMetadata"),
    Action.SCHEMA_COMMIT: (None, None),
}
"""Per action the record of its plan and the record of its completion."""

_READERS: dict[str, Callable[[Fields], ActionBody]] = {
    _COMMIT: write_records.commit_from,
    _REPLACED: write_records.commit_from,
    "HoodieRequestedReplaceMetadata": write_records.requested_replace_from,
    "HoodieCleanerPlan": service_records.clean_plan_from,
    "HoodieCleanMetadata": service_records.clean_metadata_from,
    "HoodieRollbackPlan": service_records.rollback_plan_from,
    "HoodieRollbackMetadata": service_records.rollback_metadata_from,
    "HoodieSavepointMetadata": service_records.savepoint_metadata_from,
    "HoodieRestorePlan": service_records.restore_plan_from,
    "HoodieRestoreMetadata": service_records.restore_metadata_from,
    "HoodieIndexPlan": service_records.index_plan_from,
    "HoodieIndexCommitMetadata": service_records.index_metadata_from,
}


_ESSENTIAL: dict[str, tuple[str, ...]] = {
    _COMMIT: ("partitionToWriteStats", "extraMetadata"),
    _REPLACED: ("partitionToWriteStats", "extraMetadata", "partitionToReplaceFileIds"),
    _COMPACTION: ("operations",),
    "HoodieRequestedReplaceMetadata": ("clusteringPlan",),
    "HoodieCleanMetadata": ("earliestCommitToRetain",),
    "HoodieSavepointMetadata": ("partitionMetadata",),
}
"""Fields that every version of a record has. A file brings its own schema: one wrong letter in that, and the field is
simply not there, which must not be taken for an empty one."""


def decode_body(action: Action, state: State, data: bytes, file: str) -> ActionBody | None:
    """The value of a timeline file, or of `metadata` or `plan` in a history row; None for an empty one."""
    if not data:
        return None
    if data[:1] == b"{":
        raise UnsupportedFormat(
            "a timeline file in JSON, as table version 6 and older wrote them",
            file=file,
            hint="Upgrade the table to version 8 or 9 with Apache Hudi 1.x first.",
        )
    name, record = read_named_container(data, file)
    plan, completed = _RECORDS[action]
    allowed = {State.REQUESTED: {plan}, State.INFLIGHT: {plan, _COMMIT}, State.COMPLETED: {completed}}[state]
    if action in (Action.COMMIT, Action.DELTA_COMMIT):
        allowed = allowed | {_COMMIT}  # an upgrade from version 6 leaves one, without files, as requested
    if name not in allowed:
        raise CorruptTable(f"{name} is not the record of a {action} that is {state}", file=file)
    fields = Fields(record, file)
    body = write_records.compaction_plan_from(fields, action) if name == _COMPACTION else _READERS[name](fields)
    for key in _ESSENTIAL.get(name, ()):
        if key not in record:
            raise CorruptTable(f"the schema of the record has no {key}", file=file)
    return body


def encode_body(body: ActionBody | None, action: Action, state: State) -> bytes:
    """The content of the timeline file of an action in a state; the counterpart of `decode_body`."""
    if body is None:
        return b""
    plan, completed = _RECORDS[action]
    if isinstance(body, CommitMetadata) and state is State.INFLIGHT:
        return write_container(_COMMIT, write_records.commit_record(body))
    name = completed if state is State.COMPLETED else plan
    match body:
        case CommitMetadata() if name == _REPLACED:
            return write_container(_REPLACED, write_records.replace_commit_record(body))
        case CommitMetadata() if name == _COMMIT and not body.replaced_file_ids:
            return write_container(_COMMIT, write_records.commit_record(body))
        case CompactionPlan() if name == _COMPACTION:
            return write_container(_COMPACTION, write_records.compaction_plan_record(body, action))
        case RequestedReplace() if name == "HoodieRequestedReplaceMetadata":
            return write_container(name, write_records.requested_replace_record(body))
        case CleanPlan() if name == "HoodieCleanerPlan":
            return write_container(name, service_records.clean_plan_record(body))
        case CleanMetadata() if name == "HoodieCleanMetadata":
            return write_container(name, service_records.clean_metadata_record(body))
        case RollbackPlan() if name == "HoodieRollbackPlan":
            return write_container(name, service_records.rollback_plan_record(body))
        case RollbackMetadata() if name == "HoodieRollbackMetadata":
            return write_container(name, service_records.rollback_metadata_record(body))
        case SavepointMetadata() if name == "HoodieSavepointMetadata":
            return write_container(name, service_records.savepoint_metadata_record(body))
        case RestorePlan() if name == "HoodieRestorePlan":
            return write_container(name, service_records.restore_plan_record(body))
        case RestoreMetadata() if name == "HoodieRestoreMetadata":
            return write_container(name, service_records.restore_metadata_record(body))
        case IndexPlan() if name == "HoodieIndexPlan":
            return write_container(name, service_records.index_plan_record(body))
        case IndexMetadata() if name == "HoodieIndexCommitMetadata":
            return write_container(name, service_records.index_metadata_record(body))
    raise InvalidRequest(f"a {action} that is {state} cannot hold a {type(body).__name__}")


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One current file of the history."""

    file_name: str
    file_len: int


def parse_manifest(data: bytes, file: str) -> tuple[ManifestEntry, ...]:
    """The files that make up the history, as one manifest lists them."""
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise CorruptTable(f"a manifest that is not JSON: {problem}", file=file) from None
    files = loaded.get("files") if isinstance(loaded, dict) else None
    if not isinstance(files, list):
        raise CorruptTable("a manifest without a list of files", file=file)
    entries: list[ManifestEntry] = []
    for found in files:
        name, size = (found.get("fileName"), found.get("fileLen")) if isinstance(found, dict) else (None, None)
        if not isinstance(name, str) or not is_history_file(name) or type(size) is not int or size < 0:
            raise CorruptTable(f"a manifest entry that names no history file: {str(found)[:80]}", file=file)
        entries.append(ManifestEntry(name, size))
    return tuple(entries)


def render_manifest(entries: Sequence[ManifestEntry]) -> bytes:
    """The content of a manifest."""
    files = [{"fileName": entry.file_name, "fileLen": entry.file_len} for entry in entries]
    return json.dumps({"files": files}, indent=2).encode()


def parse_version(data: bytes, file: str) -> int:
    """The number in `_version_`, that of the current manifest."""
    if not re.fullmatch(rb"[0-9]{1,18}", data.strip()):
        raise CorruptTable(f"{data[:20]!r} is not a manifest number", file=file)
    return int(data)


def render_version(number: int) -> bytes:
    """The content of `_version_`: no line end."""
    return str(number).encode()
