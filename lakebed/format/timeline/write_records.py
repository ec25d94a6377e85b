"""The Avro records of commits, compaction plans and clustering plans.

Each value of `model/actions.py` has a reader `..._from(fields)` and a writer `..._record(value)` side by side. Numbers
that a writer left null read as 0 and are written as 0, since real Hudi's services fail on nulls there; the other
oddities kept are the text `null` for "no previous commit" and a version that commits leave null and plans set to 2.
"""

from __future__ import annotations

from typing import Any

from lakebed.errors import CorruptTable
from lakebed.format.avro.fields import Fields
from lakebed.model.actions import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    RequestedReplace,
    WriteStat,
)
from lakebed.model.instant import Action

COMPACTION_KINDS_KEY = "lakebed.compaction.kinds"
"""Extra metadata of a compaction plan whose operations are not all of one kind: one word per operation."""

_NO_PREVIOUS = "null"  # Hudi's text in `prevCommit` for the first file of a group

_STAT_NUMBERS = {
    "num_writes": "numWrites",
    "num_inserts": "numInserts",
    "num_updates": "numUpdateWrites",
    "num_deletes": "numDeletes",
    "total_write_bytes": "totalWriteBytes",
    "total_write_errors": "totalWriteErrors",
    "file_size": "fileSizeInBytes",
    "total_log_records": "totalLogRecords",
    "total_log_files": "totalLogFiles",
    "total_log_blocks": "totalLogBlocks",
    "total_corrupt_log_blocks": "totalCorruptLogBlock",
    "total_rollback_blocks": "totalRollbackBlocks",
    "total_updated_records_compacted": "totalUpdatedRecordsCompacted",
    "total_log_files_compacted": "totalLogFilesCompacted",
    "total_log_size_compacted": "totalLogSizeCompacted",
    "total_log_read_time_ms": "totalLogReadTimeMs",
}
_STAT_RUNTIMES = {
    "total_scan_time_ms": "totalScanTime",
    "total_create_time_ms": "totalCreateTime",
    "total_upsert_time_ms": "totalUpsertTime",
}


def _write_stat(fields: Fields, partition_path: str) -> WriteStat:
    if "path" not in fields.record:
        raise CorruptTable("the schema of the write statistics has no path", file=fields.file)
    runtime = fields.one("runtimeStats") or Fields({}, fields.file)
    previous = fields.text("prevCommit")
    numbers = {ours: fields.number(theirs) for ours, theirs in _STAT_NUMBERS.items()}
    numbers |= {ours: runtime.number(theirs) for ours, theirs in _STAT_RUNTIMES.items()}
    stated = fields.text("partitionPath")
    return WriteStat(
        file_id=fields.text("fileId") or "",
        path=fields.text("path"),
        partition_path=partition_path if stated is None else stated,
        prev_commit=None if previous == _NO_PREVIOUS else previous,
        base_file=fields.text("baseFile"),
        log_files=fields.texts("logFiles"),
        log_version=fields.maybe("logVersion"),
        log_offset=fields.maybe("logOffset"),
        cdc_files=fields.number_map("cdcStats"),
        prev_base_file=fields.text("prevBaseFile"),
        min_event_time=fields.maybe("minEventTime"),
        max_event_time=fields.maybe("maxEventTime"),
        **numbers,
    )


def _write_stat_record(stat: WriteStat) -> dict[str, Any]:
    """A stat without a path only announces work (inflight files): Hudi leaves partition and timings out of those."""
    record: dict[str, Any] = {theirs: getattr(stat, ours) for ours, theirs in _STAT_NUMBERS.items()}
    is_written = stat.path is not None
    return record | {
        "fileId": stat.file_id,
        "path": stat.path,
        "prevCommit": stat.prev_commit if stat.prev_commit is not None else _NO_PREVIOUS,
        "partitionPath": stat.partition_path if is_written else None,
        "baseFile": stat.base_file,
        "logFiles": list(stat.log_files) or None,
        "logVersion": stat.log_version,
        "logOffset": stat.log_offset,
        "cdcStats": dict(stat.cdc_files) or None,
        "prevBaseFile": stat.prev_base_file,
        "minEventTime": stat.min_event_time,
        "maxEventTime": stat.max_event_time,
        "runtimeStats": {theirs: getattr(stat, ours) for ours, theirs in _STAT_RUNTIMES.items()}
        if is_written
        else None,
        "numUpdates": 0,
    }


def commit_from(fields: Fields) -> CommitMetadata:
    """From `HoodieCommitMetadata` or `HoodieReplaceCommitMetadata`."""
    stats = fields.records_map("partitionToWriteStats")
    return CommitMetadata(
        operation=fields.text("operationType"),
        stats={partition: tuple(_write_stat(stat, partition) for stat in found) for partition, found in stats.items()},
        extra=fields.text_map("extraMetadata"),
        compacted=fields.flag("compacted"),
        replaced_file_ids=fields.texts_map("partitionToReplaceFileIds"),
    )


def commit_record(body: CommitMetadata) -> dict[str, Any]:
    """To `HoodieCommitMetadata`."""
    return {
        "partitionToWriteStats": {
            partition: [_write_stat_record(stat) for stat in stats] for partition, stats in body.stats.items()
        },
        "compacted": body.compacted,
        "extraMetadata": dict(body.extra),
        "version": None,
        "operationType": body.operation,
    }


def replace_commit_record(body: CommitMetadata) -> dict[str, Any]:
    """To `HoodieReplaceCommitMetadata`."""
    replaced = {partition: list(file_ids) for partition, file_ids in body.replaced_file_ids.items()}
    return commit_record(body) | {"partitionToReplaceFileIds": replaced}


def _kind_of(action: Action) -> str:
    return "LOG" if action in (Action.LOG_COMPACTION, Action.DELTA_COMMIT) else "FULL"


def compaction_plan_from(fields: Fields, action: Action) -> CompactionPlan:
    """From `HoodieCompactionPlan`."""
    extra = fields.text_map("extraMetadata")
    operations = fields.many("operations")
    stated = extra.pop(COMPACTION_KINDS_KEY, None)
    kinds = stated.split(",") if stated else [_kind_of(action)] * len(operations)
    if len(kinds) != len(operations) or not {"FULL", "LOG"}.issuperset(kinds):
        raise CorruptTable(f"{COMPACTION_KINDS_KEY} does not fit the plan's operations", file=fields.file)
    strategy = fields.one("strategy") or Fields({}, fields.file)
    return CompactionPlan(
        operations=tuple(
            CompactionOperation(
                partition_path=operation.text("partitionPath") or "",
                file_id=operation.need("fileId"),
                base_instant_time=operation.text("baseInstantTime"),
                base_file=operation.text("dataFilePath"),
                log_files=operation.texts("deltaFilePaths"),
                metrics=operation.number_map("metrics"),
                kind=kind,
            )
            for operation, kind in zip(operations, kinds, strict=True)
        ),
        extra=extra,
        strategy=strategy.text("compactorClassName"),
        strategy_params=strategy.text_map("strategyParams"),
        preserve_metadata=fields.flag("preserveHoodieMetadata"),
    )


def compaction_plan_record(body: CompactionPlan, action: Action) -> dict[str, Any]:
    """To `HoodieCompactionPlan`."""
    extra, kinds = dict(body.extra), [operation.kind for operation in body.operations]
    if any(kind != _kind_of(action) for kind in kinds):
        extra[COMPACTION_KINDS_KEY] = ",".join(kinds)
    strategy = {"compactorClassName": body.strategy, "strategyParams": dict(body.strategy_params), "version": 1}
    return {
        "operations": [
            {
                "baseInstantTime": operation.base_instant_time,
                "deltaFilePaths": list(operation.log_files),
                "dataFilePath": operation.base_file,
                "fileId": operation.file_id,
                "partitionPath": operation.partition_path,
                "metrics": dict(operation.metrics),
                "bootstrapFilePath": None,
            }
            for operation in body.operations
        ],
        "extraMetadata": extra,
        "version": 2,
        "strategy": strategy if body.strategy is not None else None,
        "preserveHoodieMetadata": body.preserve_metadata,
        "missingSchedulePartitions": [],
    }


def _clustering_plan(fields: Fields) -> ClusteringPlan:
    strategy = fields.one("strategy") or Fields({}, fields.file)
    return ClusteringPlan(
        groups=tuple(
            ClusteringGroup(
                slices=tuple(
                    ClusteringSlice(
                        partition_path=file_slice.text("partitionPath") or "",
                        file_id=file_slice.need("fileId"),
                        base_file=file_slice.text("dataFilePath") or None,
                        log_files=file_slice.texts("deltaFilePaths"),
                    )
                    for file_slice in group.many("slices")
                ),
                output_groups=1 if group.maybe("numOutputFileGroups") is None else group.number("numOutputFileGroups"),
                metrics=group.number_map("metrics"),
                extra=group.text_map("extraMetadata"),
            )
            for group in fields.many("inputGroups")
        ),
        strategy=strategy.text("strategyClassName"),
        strategy_params=strategy.text_map("strategyParams"),
        extra=fields.text_map("extraMetadata"),
        preserve_metadata=fields.record.get("preserveHoodieMetadata") is None or fields.flag("preserveHoodieMetadata"),
    )


def _clustering_plan_record(plan: ClusteringPlan) -> dict[str, Any]:
    def file_slice(part: ClusteringSlice) -> dict[str, Any]:
        return {
            "dataFilePath": part.base_file or "",
            "deltaFilePaths": list(part.log_files),
            "fileId": part.file_id,
            "partitionPath": part.partition_path,
            "bootstrapFilePath": "",
            "version": 1,
        }

    groups = [
        {
            "slices": [file_slice(part) for part in group.slices],
            "metrics": dict(group.metrics),
            "numOutputFileGroups": group.output_groups,
            "extraMetadata": dict(group.extra) or None,
            "version": 1,
        }
        for group in plan.groups
    ]
    strategy = {"strategyClassName": plan.strategy, "strategyParams": dict(plan.strategy_params), "version": 1}
    return {
        "inputGroups": groups,
        "strategy": strategy if plan.strategy is not None else None,
        "extraMetadata": dict(plan.extra),
        "version": 1,
        "preserveHoodieMetadata": plan.preserve_metadata,
        "missingSchedulePartitions": [],
    }


def requested_replace_from(fields: Fields) -> RequestedReplace:
    """From `HoodieRequestedReplaceMetadata`."""
    plan = fields.one("clusteringPlan")
    return RequestedReplace(
        operation=fields.text("operationType"),
        clustering=_clustering_plan(plan) if plan else None,
        extra=fields.text_map("extraMetadata"),
    )


def requested_replace_record(body: RequestedReplace) -> dict[str, Any]:
    """To `HoodieRequestedReplaceMetadata`."""
    if body == RequestedReplace():
        return {"operationType": None, "clusteringPlan": None, "extraMetadata": None, "version": None}
    return {
        "operationType": body.operation,
        "clusteringPlan": _clustering_plan_record(body.clustering) if body.clustering else None,
        "extraMetadata": dict(body.extra),
        "version": 1,
    }
