"""The Avro records of clean, rollback, savepoint, restore and indexing actions.

Each value of `model/actions.py` has a reader `..._from(fields)` and a writer `..._record(value)` side by side. Paths
are kept as they are: plans of real Hudi hold absolute ones, of the machine that planned; only the name counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakebed.format.avro.fields import Fields
from lakebed.model.actions import (
    CleanMetadata,
    CleanPartition,
    CleanPlan,
    IndexMetadata,
    IndexPartition,
    IndexPlan,
    InstantRef,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    SavepointMetadata,
)


def clean_plan_from(fields: Fields) -> CleanPlan:
    """Old plans list names under `filesToBeDeletedPerPartition`, newer ones paths; both count."""
    retained = fields.one("earliestInstantToRetain")
    files = fields.texts_map("filesToBeDeletedPerPartition")
    for partition, found in fields.records_map("filePathsToBeDeletedPerPartition").items():
        files[partition] = (*files.get(partition, ()), *(one.need("filePath") for one in found))
    return CleanPlan(
        policy=fields.need("policy"),
        earliest_to_retain=InstantRef(retained.need("timestamp"), retained.need("action"), retained.need("state"))
        if retained
        else None,
        last_completed=fields.text("lastCompletedCommitTimestamp") or "",
        files=files,
        partitions_to_delete=fields.texts("partitionsToBeDeleted"),
        extra=fields.text_map("extraMetadata"),
    )


def clean_plan_record(body: CleanPlan) -> dict[str, Any]:
    """To `HoodieCleanerPlan`."""
    retained = body.earliest_to_retain
    return {
        "earliestInstantToRetain": retained
        and {"timestamp": retained.time, "action": retained.action, "state": retained.state or "COMPLETED"},
        "lastCompletedCommitTimestamp": body.last_completed,
        "policy": body.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": path, "isBootstrapBaseFile": False} for path in paths]
            for partition, paths in body.files.items()
        },
        "partitionsToBeDeleted": list(body.partitions_to_delete),
        "extraMetadata": dict(body.extra),
    }


def clean_metadata_from(fields: Fields) -> CleanMetadata:
    """From `HoodieCleanMetadata`."""
    return CleanMetadata(
        start_time=fields.need("startCleanTime"),
        time_taken_ms=fields.number("timeTakenInMillis"),
        total_files_deleted=fields.number("totalFilesDeleted"),
        earliest_to_retain=fields.text("earliestCommitToRetain") or "",
        last_completed=fields.text("lastCompletedCommitTimestamp") or "",
        partitions={
            partition: CleanPartition(
                partition_path=found.need("partitionPath"),
                policy=found.need("policy"),
                patterns=found.texts("deletePathPatterns"),
                deleted=found.texts("successDeleteFiles"),
                failed=found.texts("failedDeleteFiles"),
                partition_deleted=found.flag("isPartitionDeleted"),
            )
            for partition, found in fields.record_map("partitionMetadata").items()
        },
        extra=fields.text_map("extraMetadata"),
    )


def clean_metadata_record(body: CleanMetadata) -> dict[str, Any]:
    """To `HoodieCleanMetadata`."""
    return {
        "startCleanTime": body.start_time,
        "timeTakenInMillis": body.time_taken_ms,
        "totalFilesDeleted": body.total_files_deleted,
        "earliestCommitToRetain": body.earliest_to_retain,
        "lastCompletedCommitTimestamp": body.last_completed,
        "partitionMetadata": {
            partition: {
                "partitionPath": done.partition_path,
                "policy": done.policy,
                "deletePathPatterns": list(done.patterns),
                "successDeleteFiles": list(done.deleted),
                "failedDeleteFiles": list(done.failed),
                "isPartitionDeleted": done.partition_deleted,
            }
            for partition, done in body.partitions.items()
        },
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(body.extra),
    }


def _instant_from(fields: Fields) -> InstantRef:
    return InstantRef(fields.need("commitTime"), fields.need("action"))


def _instant_records(instants: Sequence[InstantRef]) -> list[dict[str, str]]:
    return [{"commitTime": instant.time, "action": instant.action} for instant in instants]


def rollback_plan_from(fields: Fields) -> RollbackPlan:
    """From `HoodieRollbackPlan`."""
    return RollbackPlan(
        instant=_instant_from(fields.need_one("instantToRollback")),
        requests=tuple(
            RollbackRequest(
                partition_path=request.need("partitionPath"),
                file_id=request.text("fileId"),
                latest_base_instant=request.text("latestBaseInstant"),
                files=request.texts("filesToBeDeleted"),
                log_blocks=request.number_map("logBlocksToBeDeleted"),
            )
            for request in fields.many("RollbackRequests")
        ),
    )


def rollback_plan_record(body: RollbackPlan) -> dict[str, Any]:
    """To `HoodieRollbackPlan`."""
    return {
        "instantToRollback": _instant_records([body.instant])[0],
        "RollbackRequests": [
            {
                "partitionPath": request.partition_path,
                "fileId": request.file_id,
                "latestBaseInstant": request.latest_base_instant,
                "filesToBeDeleted": list(request.files),
                "logBlocksToBeDeleted": dict(request.log_blocks),
            }
            for request in body.requests
        ],
        "version": 1,
    }


def rollback_metadata_from(fields: Fields) -> RollbackMetadata:
    """From `HoodieRollbackMetadata`."""
    return RollbackMetadata(
        start_time=fields.need("startRollbackTime"),
        time_taken_ms=fields.number("timeTakenInMillis"),
        total_files_deleted=fields.number("totalFilesDeleted"),
        commits=fields.texts("commitsRollback"),
        partitions={
            partition: RollbackPartition(
                partition_path=found.need("partitionPath"),
                deleted=found.texts("successDeleteFiles"),
                failed=found.texts("failedDeleteFiles"),
                rollback_logs=found.number_map("rollbackLogFiles"),
                failed_logs=found.number_map("logFilesFromFailedCommit"),
            )
            for partition, found in fields.record_map("partitionMetadata").items()
        },
        instants=tuple(_instant_from(instant) for instant in fields.many("instantsRollback")),
    )


def rollback_metadata_record(body: RollbackMetadata) -> dict[str, Any]:
    """To `HoodieRollbackMetadata`."""
    return {
        "startRollbackTime": body.start_time,
        "timeTakenInMillis": body.time_taken_ms,
        "totalFilesDeleted": body.total_files_deleted,
        "commitsRollback": list(body.commits),
        "partitionMetadata": {
            partition: {
                "partitionPath": done.partition_path,
                "successDeleteFiles": list(done.deleted),
                "failedDeleteFiles": list(done.failed),
                "rollbackLogFiles": dict(done.rollback_logs),
                "logFilesFromFailedCommit": dict(done.failed_logs),
            }
            for partition, done in body.partitions.items()
        },
        "version": 1,
        "instantsRollback": _instant_records(body.instants),
    }


def savepoint_metadata_from(fields: Fields) -> SavepointMetadata:
    """From `HoodieSavepointMetadata`."""
    return SavepointMetadata(
        by=fields.text("savepointedBy") or "",
        at_ms=fields.number("savepointedAt"),
        comments=fields.text("comments") or "",
        files={
            partition: found.texts("savepointDataFile")
            for partition, found in fields.record_map("partitionMetadata").items()
        },
    )


def savepoint_metadata_record(body: SavepointMetadata) -> dict[str, Any]:
    """To `HoodieSavepointMetadata`."""
    return {
        "savepointedBy": body.by,
        "savepointedAt": body.at_ms,
        "comments": body.comments,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in body.files.items()
        },
        "version": 1,
    }


def restore_plan_from(fields: Fields) -> RestorePlan:
    """From `HoodieRestorePlan`."""
    instants = tuple(_instant_from(instant) for instant in fields.many("instantsToRollback"))
    return RestorePlan(instants, fields.text("savepointToRestoreTimestamp"))


def restore_plan_record(body: RestorePlan) -> dict[str, Any]:
    """To `HoodieRestorePlan`."""
    instants = _instant_records(body.instants)
    return {"instantsToRollback": instants, "version": 2, "savepointToRestoreTimestamp": body.savepoint}


def restore_metadata_from(fields: Fields) -> RestoreMetadata:
    """From `HoodieRestoreMetadata`."""
    return RestoreMetadata(
        start_time=fields.need("startRestoreTime"),
        time_taken_ms=fields.number("timeTakenInMillis"),
        instants=fields.texts("instantsToRollback"),
        rollbacks={
            instant: tuple(rollback_metadata_from(one) for one in found)
            for instant, found in fields.records_map("hoodieRestoreMetadata").items()
        },
        restored=tuple(_instant_from(instant) for instant in fields.many("restoreInstantInfo")),
    )


def restore_metadata_record(body: RestoreMetadata) -> dict[str, Any]:
    """To `HoodieRestoreMetadata`."""
    return {
        "startRestoreTime": body.start_time,
        "timeTakenInMillis": body.time_taken_ms,
        "instantsToRollback": list(body.instants),
        "hoodieRestoreMetadata": {
            instant: [rollback_metadata_record(one) for one in done] for instant, done in body.rollbacks.items()
        },
        "version": 1,
        "restoreInstantInfo": _instant_records(body.restored),
    }


def _index_partitions_from(fields: Fields) -> tuple[IndexPartition, ...]:
    return tuple(
        IndexPartition(
            path=found.need("metadataPartitionPath"),
            up_to=found.need("indexUptoInstant"),
            extra=found.text_map("extraMetadata"),
        )
        for found in fields.many("indexPartitionInfos")
    )


def _index_partition_records(partitions: Sequence[IndexPartition]) -> list[dict[str, Any]]:
    return [
        {
            "version": 1,
            "metadataPartitionPath": partition.path,
            "indexUptoInstant": partition.up_to,
            "extraMetadata": dict(partition.extra),
        }
        for partition in partitions
    ]


def index_plan_from(fields: Fields) -> IndexPlan:
    """From `HoodieIndexPlan`."""
    return IndexPlan(_index_partitions_from(fields))


def index_plan_record(body: IndexPlan) -> dict[str, Any]:
    """To `HoodieIndexPlan`."""
    return {"version": 1, "indexPartitionInfos": _index_partition_records(body.partitions)}


def index_metadata_from(fields: Fields) -> IndexMetadata:
    """From `HoodieIndexCommitMetadata`."""
    return IndexMetadata(fields.text("operationType"), _index_partitions_from(fields))


def index_metadata_record(body: IndexMetadata) -> dict[str, Any]:
    """To `HoodieIndexCommitMetadata`."""
    return {"version": 1, "operationType": body.operation, **index_plan_record(IndexPlan(body.partitions))}
