"""Hudi's Avro schemas of timeline and metadata records, declared in a short notation instead of JSON.

    name other: T        fields in order          [T] {T}   array, map with string keys
    T?                   null or T, default null  A|B       union         T=x   default (JSON)

A record is declared after those it contains. Strings carry the property that makes Java read them as `String`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

NAMESPACE = "org.apache.hudi.avro.model"

_WRAPPERS = "BooleanWrapper IntWrapper LongWrapper FloatWrapper DoubleWrapper BytesWrapper StringWrapper DateWrapper"
_WRAPPERS = "|".join(["null", *f"{_WRAPPERS} DecimalWrapper TimeMicrosWrapper TimestampMicrosWrapper".split()])

_DECLARED = {
    "BooleanWrapper": "value: boolean",
    "IntWrapper": "value: int",
    "LongWrapper": "value: long",
    "FloatWrapper": "value: float",
    "DoubleWrapper": "value: double",
    "BytesWrapper": "value: bytes",
    "StringWrapper": "value: string",
    "DateWrapper": "value: int",
    "DecimalWrapper": "value: decimal",
    "TimeMicrosWrapper": "value: time-micros",
    "TimestampMicrosWrapper": "value: long",
    "LocalDateWrapper": "value: int",
    "ArrayWrapper": f"wrappedValues: [{_WRAPPERS}|LocalDateWrapper]?",
    # -- writes
    "HoodieRuntimeStats": "totalScanTime totalCreateTime totalUpsertTime: long?",
    "HoodieWriteStat": """
        fileId path prevCommit: string?;
        numWrites numDeletes numUpdateWrites totalWriteBytes totalWriteErrors: long?; partitionPath: string?;
        totalLogRecords totalLogFiles totalUpdatedRecordsCompacted numInserts totalLogBlocks: long?;
        totalCorruptLogBlock totalRollbackBlocks fileSizeInBytes: long?; logVersion: int?; logOffset: long?;
        baseFile: string?; logFiles: [string]?; cdcStats: {long}?; prevBaseFile: string?;
        minEventTime maxEventTime: long?; runtimeStats: HoodieRuntimeStats?;
        totalLogFilesCompacted totalLogReadTimeMs totalLogSizeCompacted: long?; tempPath: string?; numUpdates: long?""",
    "HoodieCommitMetadata": """
        partitionToWriteStats: {[HoodieWriteStat]}?; compacted: boolean?; extraMetadata: {string}?;
        version: int|null=1; operationType: string?""",
    "HoodieReplaceCommitMetadata": """
        partitionToWriteStats: {[HoodieWriteStat]}?; compacted: boolean?; extraMetadata: {string}?;
        version: int|null=1; operationType: string?; partitionToReplaceFileIds: {[string]}?""",
    # -- clustering and compaction
    "HoodieSliceInfo": """
        dataFilePath: string?; deltaFilePaths: [string]?; fileId: null|string; partitionPath bootstrapFilePath: string?;
        version: int|null=1""",
    "HoodieClusteringGroup": """
        slices: [HoodieSliceInfo]?; metrics: {double}?; numOutputFileGroups: int|null=1; extraMetadata: {string}?;
        version: int|null=1""",
    "HoodieClusteringStrategy": "strategyClassName: string?; strategyParams: {string}?; version: int|null=1",
    "HoodieClusteringPlan": """
        inputGroups: [HoodieClusteringGroup]?; strategy: HoodieClusteringStrategy?; extraMetadata: {string}?;
        version: int|null=1; preserveHoodieMetadata: boolean?; missingSchedulePartitions: [string]?""",
    "HoodieRequestedReplaceMetadata": """
        operationType: string?; clusteringPlan: HoodieClusteringPlan?; extraMetadata: {string}?; version: int|null=1""",
    "HoodieCompactionOperation": """
        baseInstantTime: null|string; deltaFilePaths: [string]?; dataFilePath: string?; fileId: null|string;
        partitionPath: string?; metrics: {double}?; bootstrapFilePath: string?""",
    "HoodieCompactionStrategy": "compactorClassName: string?; strategyParams: {string}?; version: int|null=1",
    "HoodieCompactionPlan": """
        operations: [HoodieCompactionOperation]?; extraMetadata: {string}?; version: int|null=1;
        strategy: HoodieCompactionStrategy?; preserveHoodieMetadata: boolean|null=false;
        missingSchedulePartitions: [string]?""",
    # -- clean, rollback, savepoint, restore, indexing
    "HoodieActionInstant": "timestamp action state: string",
    "HoodieCleanFileInfo": "filePath: string?; isBootstrapBaseFile: boolean?",
    "HoodieCleanerPlan": """
        earliestInstantToRetain: HoodieActionInstant?; lastCompletedCommitTimestamp: string=""; policy: string;
        filesToBeDeletedPerPartition: {[string]}?; version: int|null=1;
        filePathsToBeDeletedPerPartition: {[HoodieCleanFileInfo]}?; partitionsToBeDeleted: [string]?;
        extraMetadata: {string}?""",
    "HoodieCleanPartitionMetadata": """
        partitionPath policy: string; deletePathPatterns successDeleteFiles failedDeleteFiles: [string];
        isPartitionDeleted: boolean?""",
    "HoodieCleanMetadata": """
        startCleanTime: string; timeTakenInMillis: long; totalFilesDeleted: int; earliestCommitToRetain: string;
        lastCompletedCommitTimestamp: string=""; partitionMetadata: {HoodieCleanPartitionMetadata};
        version: int|null=1; bootstrapPartitionMetadata: {HoodieCleanPartitionMetadata}?; extraMetadata: {string}?""",
    "HoodieInstantInfo": "commitTime action: string",
    "HoodieRollbackRequest": """
        partitionPath: string; fileId latestBaseInstant: string?; filesToBeDeleted: [string]=[];
        logBlocksToBeDeleted: {long}?""",
    "HoodieRollbackPlan": """
        instantToRollback: HoodieInstantInfo?; RollbackRequests: [HoodieRollbackRequest]?; version: int|null=1""",
    "HoodieRollbackPartitionMetadata": """
        partitionPath: string; successDeleteFiles failedDeleteFiles: [string];
        rollbackLogFiles logFilesFromFailedCommit: {long}?""",
    "HoodieRollbackMetadata": """
        startRollbackTime: string; timeTakenInMillis: long; totalFilesDeleted: int; commitsRollback: [string];
        partitionMetadata: {HoodieRollbackPartitionMetadata}; version: int|null=1;
        instantsRollback: [HoodieInstantInfo]=[]""",
    "HoodieSavepointPartitionMetadata": "partitionPath: string; savepointDataFile: [string]",
    "HoodieSavepointMetadata": """
        savepointedBy: string; savepointedAt: long; comments: string;
        partitionMetadata: {HoodieSavepointPartitionMetadata}; version: int|null=1""",
    "HoodieRestorePlan": """
        instantsToRollback: [HoodieInstantInfo]=[]; version: int|null=2; savepointToRestoreTimestamp: string?""",
    "HoodieRestoreMetadata": """
        startRestoreTime: string; timeTakenInMillis: long; instantsToRollback: [string];
        hoodieRestoreMetadata: {[null|HoodieRollbackMetadata]}; version: int|null=1;
        restoreInstantInfo: [HoodieInstantInfo]=[]""",
    "HoodieIndexPartitionInfo": """
        version: int|null=1; metadataPartitionPath indexUptoInstant: string?; extraMetadata: {string}?""",
    "HoodieIndexPlan": "version: int|null=1; indexPartitionInfos: [HoodieIndexPartitionInfo]?",
    "HoodieIndexCommitMetadata": """
        version: int|null=1; operationType: string?; indexPartitionInfos: [HoodieIndexPartitionInfo]?""",
    # -- history, delete blocks, metadata table
    "HoodieLSMTimelineInstant": "instantTime completionTime action: string?; metadata plan: bytes?; version: int=1",
    "HoodieDeleteRecord": f"recordKey partitionPath: string?; orderingVal: {_WRAPPERS}|ArrayWrapper=null",
    "HoodieDeleteRecordList": "deleteRecordList: [HoodieDeleteRecord]",
    "HoodieMetadataFileInfo": "size: long; isDeleted: boolean",
    "HoodieMetadataBloomFilter": "type timestamp: string; bloomFilter: bytes; isDeleted: boolean",
    "HoodieValueTypeInfo": "typeOrdinal: int; additionalInfo: string?",
    "HoodieMetadataColumnStats": f"""
        fileName columnName: string?; minValue maxValue: {_WRAPPERS}|LocalDateWrapper|ArrayWrapper=null;
        valueCount nullCount totalSize totalUncompressedSize: long?; isDeleted: boolean; isTightBound: boolean=false;
        valueType: HoodieValueTypeInfo?""",
    "HoodieRecordIndexInfo": """
        partitionName: string?; fileIdHighBits fileIdLowBits: long?; fileIndex: int?; fileId: string?;
        instantTime: long?; fileIdEncoding: int=0; position: long?""",
    "HoodieSecondaryIndexInfo": "isDeleted: boolean",
    "HoodieMetadataRecord": """
        key: string; type: int; filesystemMetadata: null|{HoodieMetadataFileInfo};
        BloomFilterMetadata: HoodieMetadataBloomFilter?; ColumnStatsMetadata: HoodieMetadataColumnStats?;
        recordIndexMetadata: HoodieRecordIndexInfo?; SecondaryIndexMetadata: HoodieSecondaryIndexInfo?""",
}

_SPECIAL: dict[str, Any] = {
    "string": {"type": "string", "avro.java.string": "String"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "time-micros": {"type": "long", "logicalType": "time-micros"},
}


def _record(name: str, declared: set[str]) -> dict[str, Any]:
    """The JSON form of a declared record; a record that occurs twice is spelled out the first time only."""
    declared.add(name)
    fields: list[dict[str, Any]] = []
    for line in _DECLARED[name].split(";"):
        names, _, kind = line.partition(":")
        for field_name in names.split():
            text, has_default, default = kind.strip().partition("=")
            field: dict[str, Any] = {"name": field_name, "type": _type(text, declared)}
            if has_default or text.endswith("?"):
                field["default"] = json.loads(default) if has_default else None
            fields.append(field)
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": fields}


def _type(text: str, declared: set[str]) -> Any:
    if text.endswith("?"):
        return ["null", _type(text[:-1], declared)]
    branches = re.findall(r"\[.*\]|\{.*\}|[^|]+", text)
    if len(branches) > 1:
        return [_type(branch, declared) for branch in branches]
    if text.startswith("["):
        return {"type": "array", "items": _type(text[1:-1], declared)}
    if text.startswith("{"):
        return {"type": "map", "values": _type(text[1:-1], declared), "avro.java.string": "String"}
    if text in _DECLARED:
        return f"{NAMESPACE}.{text}" if text in declared else _record(text, declared)
    return _SPECIAL.get(text, text)


SCHEMAS: Mapping[str, dict[str, Any]] = {name: _record(name, set()) for name in _DECLARED}
"""Every declared record by its short name, as Avro JSON."""
