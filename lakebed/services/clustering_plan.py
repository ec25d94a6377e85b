"""Planning clusterings: which slices are rewritten together, saved as <b>.clustering.requested in Hudi's own record.

    partitions (all, the newest days, or named) ──► slices that are small and that no other plan speaks of
      ──► groups of at most so many bytes ──► files of the target size, rows in order

In the LSM layout slices with neighbouring keys go together, so that the files of a partition end up with key ranges of
their own. What a clustering has left in the same order before is not taken again. Where a hash says which file group a
key is in there is nothing to cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.config.clustering_options import (
    LAYOUT_STRATEGY,
    SORT_COLUMNS,
    ClusteringOptions,
    Curve,
    PartitionFilter,
)
from lakebed.config.options import TableConfig
from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.parquet_source import ParquetSource
from lakebed.errors import InvalidRequest
from lakebed.index.options import BucketEngine, IndexKind, IndexOptions
from lakebed.merge.file_group_reader import LSM_TREE
from lakebed.model.actions import ClusteringGroup, ClusteringPlan, ClusteringSlice, RequestedReplace
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.model.schema import RECORD_KEY
from lakebed.read.shape import table_shape
from lakebed.runner import LocalRunner
from lakebed.services.clustering_order import check_sortable
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.rollback import absolute_path
from lakebed.txn.transaction import schedule
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.writable import refuse_unnamed_buckets, refuse_unwritable

CLUSTER = "CLUSTER"
EXECUTION = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
"""What Hudi runs such a plan with."""
TARGET_SIZE = "hoodie.clustering.plan.strategy.target.file.max.bytes"
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlannedClustering:
    """Slices that go together, those that stay with the reason why, and the instant that stands for it, if any."""

    groups: tuple[tuple[FileSlice, ...], ...] = ()
    left: Mapping[FileGroupId, str] | None = None
    instants: tuple[Instant, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.instants)

    def explain(self) -> str:
        """A line per file group: what happens to it, or why nothing does."""
        lines = []
        for number, group in enumerate(self.groups):
            with_it = f"with {len(group) - 1} others" if len(group) > 1 else "alone"
            lines += [f"{piece.file_group}: group {number}, {with_it}, {piece.size} bytes" for piece in group]
        lines += [f"{group}: stays, {reason}" for group, reason in (self.left or {}).items()]
        return "\n".join(lines) or "the table has no file groups"


def schedule_clustering(
    client: MetaClient, control: Control, options: ClusteringOptions, properties: Mapping[str, str], *, force: bool
) -> PlannedClustering:
    """Plan under the table lock and save the plan as requested."""
    refuse_unclusterable(client, properties, options)
    control.require_metadata_writer(client)
    client = clean_up(client, control)
    if not force and not is_due(client, options):
        return PlannedClustering()
    decided: list[PlannedClustering] = []

    def plan(fresh: MetaClient, _: str) -> RequestedReplace | None:
        decided.append(propose(fresh, options))
        groups = decided[-1].groups
        return RequestedReplace(CLUSTER, plan_of(fresh, groups, options)) if groups else None

    instant = schedule(client, Action.CLUSTERING, plan, control)
    return PlannedClustering(decided[-1].groups, decided[-1].left, (instant,) if instant is not None else ())


def explain_clustering(
    client: MetaClient, options: ClusteringOptions, properties: Mapping[str, str], *, force: bool
) -> PlannedClustering:
    """What a plan would hold; nothing is saved."""
    refuse_unclusterable(client, properties, options)
    return propose(client, options) if force or is_due(client, options) else PlannedClustering()


def is_due(client: MetaClient, options: ClusteringOptions) -> bool:
    """Whether enough writes completed since the last clustering."""
    writes = client.completed_writes()
    last = max((comparable(one.requested_time) for one in writes if is_clustering(client, one)), default="")
    since = [one for one in writes if comparable(one.completion_time or "") > last and not is_clustering(client, one)]
    return len(since) >= options.max_commits


def is_clustering(client: MetaClient, instant: Instant) -> bool:
    """Whether a completed write is a clustering."""
    planned = client.active.requested(instant) if instant.action is Action.REPLACE_COMMIT else None
    return planned is not None and planned.action is Action.CLUSTERING


# ---------------------------------------------------------------------- what cannot be clustered
def refuse_unclusterable(client: MetaClient, properties: Mapping[str, str], options: ClusteringOptions) -> None:
    """`InvalidRequest` for tables that this cannot cluster, and for orders that the table cannot have."""
    config = client.config
    refuse_unwritable(config)
    index = IndexOptions.from_properties({**config.properties, **properties})
    if index.kind is IndexKind.BUCKET:
        if index.engine is BucketEngine.SIMPLE:
            raise InvalidRequest(
                "the table cannot be clustered: the bucket of a row follows from its key, so rows cannot change files",
                hint="Compact it instead; for another number of buckets write the table anew.",
            )
        raise InvalidRequest(
            "the table cannot be clustered here: under consistent hashing that means to split and merge buckets",
            hint="Resize its buckets with Hudi; compaction works here.",
        )
    refuse_unnamed_buckets(client, properties)
    refuse_order(config, options.sort_columns, options.curve)
    check_sortable(options.sort_columns, table_shape(client).schema)


def refuse_order(config: TableConfig, columns: Sequence[str], curve: Curve) -> None:
    """Files of the LSM layout are in key order, or merges could not stream."""
    if config.layout != LSM_TREE or not columns:
        return
    by_key = tuple(columns) in ((RECORD_KEY,), tuple(config.key_fields))
    if not by_key or curve is not Curve.LINEAR:
        what = ", ".join(columns) if curve is Curve.LINEAR else f"{curve} of {', '.join(columns)}"
        raise InvalidRequest(
            f"in the LSM layout files are sorted by record key, not by {what}",
            hint=f"Leave {SORT_COLUMNS} empty; other orders are for tables with layout='default'.",
        )


# ---------------------------------------------------------------------- from a table to groups
def propose(client: MetaClient, options: ClusteringOptions) -> PlannedClustering:
    """What would be rewritten of the table as it is now, and why not the rest."""
    busy = _busy(client)
    view = FileSystemView.of(client)
    params = params_of(client.config, options)
    by_key = client.config.layout == LSM_TREE
    groups: list[tuple[FileSlice, ...]] = []
    left: dict[FileGroupId, str] = {}
    for partition in chosen_partitions(view.partitions(), options):
        eligible = []
        for piece in view.slices(partition):
            reason = busy.get(piece.file_group) or _too_large(piece, options)
            if reason is None:
                eligible.append(piece)
            else:
                left[piece.file_group] = reason
        for group in pack(_in_turn(client.storage, eligible, options, by_key=by_key), options.max_group_bytes):
            reason = _nothing_to_gain(client, group, params, options)
            if reason is None and len(groups) >= options.max_groups:
                reason = "this plan is full"
            if reason is None:
                groups.append(group)
            else:
                left.update((piece.file_group, reason) for piece in group)
    return PlannedClustering(tuple(groups), left)


def chosen_partitions(partitions: Iterable[str], options: ClusteringOptions) -> list[str]:
    """The partitions that a plan looks at; the newest are those whose names come last."""
    found = sorted(partitions)
    if options.partitions:
        found = [one for one in found if one in options.partitions]
    if options.partition_pattern:
        found = [one for one in found if re.fullmatch(options.partition_pattern, one)]
    if options.partition_filter is PartitionFilter.RECENT_DAYS:
        return found[::-1][options.skip_latest : options.skip_latest + options.lookback]
    if options.partition_filter is PartitionFilter.SELECTED_PARTITIONS:
        low, high = options.first_partition, options.last_partition
        found = [one for one in found if (low is None or one >= low) and (high is None or one <= high)]
    return found


def pack(pieces: Sequence[FileSlice], most_bytes: int) -> list[tuple[FileSlice, ...]]:
    """Neighbours together as long as they fit; a slice that does not fit with any stands alone."""
    groups: list[list[FileSlice]] = []
    held = 0
    for piece in pieces:
        if not groups or held + piece.size > most_bytes:
            groups.append([])
            held = 0
        groups[-1].append(piece)
        held += piece.size
    return [tuple(group) for group in groups]


def _in_turn(
    storage: Storage, pieces: Sequence[FileSlice], options: ClusteringOptions, *, by_key: bool
) -> list[FileSlice]:
    """Large slices first, as Hudi packs them; by smallest key where rows stay in key order and one group is too few."""
    if not by_key or sum(piece.size for piece in pieces) <= options.max_group_bytes:
        return sorted(pieces, key=lambda piece: (-piece.size, piece.file_group))

    def low(piece: FileSlice) -> str:
        if piece.base_file is None:
            return ""
        with open_base_file(storage, piece.base_file) as source:
            found = source.key_range if isinstance(source, ParquetSource) else None
            return found.low or "" if found is not None else ""

    lows = dict(zip((one.file_group for one in pieces), LocalRunner().map(low, pieces, label="plan"), strict=True))
    return sorted(pieces, key=lambda piece: (lows[piece.file_group].encode(), piece.file_group))


def _too_large(piece: FileSlice, options: ClusteringOptions) -> str | None:
    size = piece.base_file.size if piece.base_file else 0
    return f"its base file has {size} bytes" if size >= options.small_file_limit else None


def _nothing_to_gain(
    client: MetaClient, group: Sequence[FileSlice], params: Mapping[str, str], options: ClusteringOptions
) -> str | None:
    if len(group) == 1 and not options.single_groups:
        return "no other slice goes with it"
    if any(piece.log_files for piece in group):
        return None
    if len(group) == 1 and SORT_COLUMNS not in params:
        return "it is one file already"
    begins = {piece.base_instant_time for piece in group}
    instant = client.timeline.completed_write(begins.pop()) if len(begins) == 1 else None
    planned = client.active.requested(instant) if instant is not None and is_clustering(client, instant) else None
    body = client.body(planned) if planned is not None else None
    if isinstance(body, RequestedReplace) and body.clustering and dict(body.clustering.strategy_params) == dict(params):
        return "a clustering left it so"
    return None


def _busy(client: MetaClient) -> dict[FileGroupId, str]:
    """Groups that other plans speak of."""
    found: dict[FileGroupId, str] = {}
    for instant, plan in client.pending_compactions():
        for operation in plan.operations:
            group = FileGroupId(operation.partition_path, operation.file_id)
            found[group] = f"the {instant.action} {instant.requested_time} will take it"
    for instant, replace in client.pending_clusterings():
        for planned in replace.clustering.groups if replace.clustering else ():
            for piece in planned.slices:
                group = FileGroupId(piece.partition_path, piece.file_id)
                found[group] = f"the clustering {instant.requested_time} will take it"
    return found


# ---------------------------------------------------------------------- from groups to a plan
def params_of(config: TableConfig, options: ClusteringOptions) -> dict[str, str]:
    """What whoever runs the plan must know of the options: the order of rows, and the size of files."""
    found = {TARGET_SIZE: str(options.target_file_size)}
    if options.sort_columns and config.layout != LSM_TREE:
        found |= {SORT_COLUMNS: ",".join(options.sort_columns), LAYOUT_STRATEGY: str(options.curve)}
    return found


def plan_of(client: MetaClient, groups: Iterable[Sequence[FileSlice]], options: ClusteringOptions) -> ClusteringPlan:
    """The plan as it is saved."""
    storage, params = client.storage, params_of(client.config, options)
    return ClusteringPlan(tuple(_group(storage, group, options) for group in groups), EXECUTION, params)


def _group(storage: Storage, pieces: Sequence[FileSlice], options: ClusteringOptions) -> ClusteringGroup:
    total = sum(piece.size for piece in pieces)
    logs = [log for piece in pieces for log in piece.log_files]
    metrics = {
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(log.size for log in logs)),
        "TOTAL_IO_READ_MB": float(total // _MB),
        "TOTAL_IO_WRITE_MB": float(total // _MB),
        "TOTAL_IO_MB": float(2 * total // _MB),
    }
    slices = tuple(
        ClusteringSlice(
            piece.file_group.partition_path,
            piece.file_group.file_id,
            absolute_path(storage, piece.base_file.path) if piece.base_file else None,
            tuple(absolute_path(storage, log.path) for log in piece.log_files),
        )
        for piece in pieces
    )
    return ClusteringGroup(slices, max(1, -(-total // options.target_file_size)), metrics)
