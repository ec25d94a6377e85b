"""Plans and reports of timeline actions, as values.

Field names are the Python spelling of the Avro records in the format; `format/timeline/files.py` turns bytes into
these and back. `CommitMetadata` alone changes what a reader sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.model.files import FileGroupId


@dataclass(frozen=True, slots=True)
class WriteStat:
    """What one task wrote into one file; `path` is relative to the table."""

    file_id: str
    path: str | None
    partition_path: str
    prev_commit: str | None = None
    num_writes: int = 0
    num_inserts: int = 0
    num_updates: int = 0
    num_deletes: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    file_size: int = 0
    base_file: str | None = None
    log_files: tuple[str, ...] = ()
    log_version: int | None = None
    log_offset: int | None = None
    cdc_files: Mapping[str, int] = field(default_factory=dict)
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    total_log_records: int = 0
    total_log_files: int = 0
    total_log_blocks: int = 0
    total_corrupt_log_blocks: int = 0
    total_rollback_blocks: int = 0
    total_updated_records_compacted: int = 0
    total_log_files_compacted: int = 0
    total_log_size_compacted: int = 0
    total_log_read_time_ms: int = 0
    total_scan_time_ms: int = 0
    total_create_time_ms: int = 0
    total_upsert_time_ms: int = 0

    @property
    def file_group(self) -> FileGroupId:
        return FileGroupId(self.partition_path, self.file_id)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """A completed write: which files it added, per partition, and which file groups it replaced."""

    operation: str | None
    stats: Mapping[str, tuple[WriteStat, ...]]
    extra: Mapping[str, str] = field(default_factory=dict)
    compacted: bool = False
    replaced_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def schema_json(self) -> str | None:
        """The Avro text of the table's schema at this commit, when the commit carries one."""
        return self.extra.get("schema") or None


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice to compact. `log_files` are file names; `kind` is FULL (to a base file) or LOG (to a log)."""

    partition_path: str
    file_id: str
    base_instant_time: str | None
    base_file: str | None
    log_files: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    kind: str = "FULL"

    @property
    def file_group(self) -> FileGroupId:
        return FileGroupId(self.partition_path, self.file_id)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The slices that a compaction or log compaction will merge."""

    operations: tuple[CompactionOperation, ...]
    extra: Mapping[str, str] = field(default_factory=dict)
    strategy: str | None = None
    strategy_params: Mapping[str, str] = field(default_factory=dict)
    preserve_metadata: bool = False


@dataclass(frozen=True, slots=True)
class ClusteringSlice:
    """One input slice of a clustering group; real plans hold absolute paths, of which only the name counts."""

    partition_path: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...] = ()

    @property
    def file_group(self) -> FileGroupId:
        return FileGroupId(self.partition_path, self.file_id)


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices that are rewritten together."""

    slices: tuple[ClusteringSlice, ...]
    output_groups: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The groups of a clustering, with the strategy that will write them."""

    groups: tuple[ClusteringGroup, ...]
    strategy: str | None = None
    strategy_params: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    preserve_metadata: bool = True


@dataclass(frozen=True, slots=True)
class RequestedReplace:
    """The plan of a replacecommit or clustering; everything is empty for an insert-overwrite."""

    operation: str | None = None
    clustering: ClusteringPlan | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstantRef:
    """An instant as plans name it."""

    time: str
    action: str
    state: str | None = None


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Files a clean will delete, as paths relative to the table (or absolute ones of the machine that planned)."""

    policy: str
    earliest_to_retain: InstantRef | None
    last_completed: str
    files: Mapping[str, tuple[str, ...]]
    partitions_to_delete: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanPartition:
    """What a clean did in one partition; file names."""

    partition_path: str
    policy: str
    patterns: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    partition_deleted: bool = False


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """A completed clean; time travel before `earliest_to_retain` is no longer possible."""

    start_time: str
    time_taken_ms: int
    total_files_deleted: int
    earliest_to_retain: str
    last_completed: str
    partitions: Mapping[str, CleanPartition]
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Files of one file group that a rollback deletes."""

    partition_path: str
    file_id: str | None
    latest_base_instant: str | None
    files: tuple[str, ...] = ()
    log_blocks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The instant to undo and what that takes."""

    instant: InstantRef
    requests: tuple[RollbackRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackPartition:
    """What a rollback did in one partition."""

    partition_path: str
    deleted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    rollback_logs: Mapping[str, int] = field(default_factory=dict)
    failed_logs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    """A completed rollback."""

    start_time: str
    time_taken_ms: int
    total_files_deleted: int
    commits: tuple[str, ...]
    partitions: Mapping[str, RollbackPartition]
    instants: tuple[InstantRef, ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """A savepoint: the files of the latest slices, by partition, that no clean may touch."""

    by: str
    at_ms: int
    comments: str
    files: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Instants to undo, newest first, to get back to a savepoint."""

    instants: tuple[InstantRef, ...]
    savepoint: str | None


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    """A completed restore."""

    start_time: str
    time_taken_ms: int
    instants: tuple[str, ...]
    rollbacks: Mapping[str, tuple[RollbackMetadata, ...]]
    restored: tuple[InstantRef, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexPartition:
    """One metadata-table partition under construction."""

    path: str
    up_to: str
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The plan of an indexing action."""

    partitions: tuple[IndexPartition, ...]


@dataclass(frozen=True, slots=True)
class IndexMetadata:
    """A completed indexing action."""

    operation: str | None
    partitions: tuple[IndexPartition, ...]


ActionBody = (
    CommitMetadata
    | CompactionPlan
    | RequestedReplace
    | CleanPlan
    | CleanMetadata
    | RollbackPlan
    | RollbackMetadata
    | SavepointMetadata
    | RestorePlan
    | RestoreMetadata
    | IndexPlan
    | IndexMetadata
)
"""Whatever a timeline file can hold."""
