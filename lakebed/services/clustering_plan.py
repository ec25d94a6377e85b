"""Planning clusterings: which slices are rewritten together, saved as <b>.clustering.requested in Hudi's own record.

    partitions (all, the newest days, or named) ──► slices that are small and that no other plan takes
      ──► groups of at most so many bytes ──► files of the target size, rows in order

Where a fixed number of buckets determines the file group of a key there is nothing to cluster; under consistent hashing
a clustering splits and merges buckets, and its plan names the new buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lakebed.config.clustering_options import SORT_COLUMNS, ClusteringOptions, Curve
from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest
from lakebed.format.hashing_meta import NodeTag, render_child_nodes
from lakebed.index.options import IndexOptions
from lakebed.merge.reader_context import LSM_TREE
from lakebed.model.actions import ClusteringGroup, ClusteringPlan, ClusteringSlice, RequestedReplace
from lakebed.model.files import FileSlice
from lakebed.model.instant import Action
from lakebed.model.schema import RECORD_KEY
from lakebed.read.reader_context import reader_context_of
from lakebed.services.clustering_order import check_sortable
from lakebed.services.clustering_strategy import (
    TARGET_SIZE,
    PlannedClustering,
    Resize,
    is_clustering,
    params_of,
    propose,
)
from lakebed.services.resize_plan import is_resizable, propose_resize
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.rollback import absolute_path
from lakebed.txn.transaction import Transaction, schedule
from lakebed.txn.txn_context import TxnContext
from lakebed.write.write_checks import refuse_unnamed_buckets, refuse_unwritable

CLUSTER = "CLUSTER"
_RUN = "org.apache.hudi.client.clustering.run.strategy"
EXECUTION = f"{_RUN}.SparkSortAndSizeExecutionStrategy"
"""What Hudi runs such a plan with."""
RESIZE_EXECUTION = f"{_RUN}.SparkConsistentBucketClusteringExecutionStrategy"
PARTITION_KEY = "clustering.group.partition"
CHILDREN_KEY = "clustering.group.child.node"
SEQUENCE_KEY = "clustering.group.sequence.no"
_MB = 1024 * 1024


def schedule_clustering(
    client: MetaClient,
    txn_context: TxnContext,
    options: ClusteringOptions,
    properties: Mapping[str, str],
    *,
    force: bool,
) -> PlannedClustering:
    """Plan under the table lock and save the plan as requested; `client` was just read."""
    ready = _ready_to_plan(client, txn_context, options, properties, force=force)
    if ready is None:
        return PlannedClustering()
    decided: list[PlannedClustering] = []
    instant = schedule(ready, Action.CLUSTERING, partial(_plan, options, properties, decided), txn_context)
    return replace(decided[-1], instants=(instant,) if instant is not None else ())


def begin_clustering(
    client: MetaClient,
    txn_context: TxnContext,
    options: ClusteringOptions,
    properties: Mapping[str, str],
    *,
    force: bool,
) -> Transaction | None:
    """Plan the same, to be run here and now; None when there is nothing to cluster."""
    ready = _ready_to_plan(client, txn_context, options, properties, force=force)
    if ready is None:
        return None
    plan = partial(_plan, options, properties, [])
    return Transaction.plan(ready, Action.CLUSTERING, plan, txn_context, operation=CLUSTER)


def _ready_to_plan(
    client: MetaClient,
    txn_context: TxnContext,
    options: ClusteringOptions,
    properties: Mapping[str, str],
    *,
    force: bool,
) -> MetaClient | None:
    """The table without what dead writers left; None when no clustering is due."""
    refuse_unclusterable(client, properties, options)
    txn_context.require_metadata_writer(client)
    client = clean_up(client, txn_context)
    return client if force or is_due(client, options) else None


def _plan(
    options: ClusteringOptions,
    properties: Mapping[str, str],
    decided: list[PlannedClustering],
    fresh: MetaClient,
    _: str,
) -> RequestedReplace | None:
    decided.append(_decide(fresh, options, properties))
    return RequestedReplace(CLUSTER, plan_of(fresh, decided[-1], options)) if decided[-1].groups else None


def explain_clustering(
    client: MetaClient, options: ClusteringOptions, properties: Mapping[str, str], *, force: bool
) -> PlannedClustering:
    """What a plan would hold; nothing is saved."""
    refuse_unclusterable(client, properties, options)
    return _decide(client, options, properties) if force or is_due(client, options) else PlannedClustering()


def _decide(client: MetaClient, options: ClusteringOptions, properties: Mapping[str, str]) -> PlannedClustering:
    known = {**client.config.properties, **properties}
    return propose_resize(client, options, known) if is_resizable(known) else propose(client, options)


def is_due(client: MetaClient, options: ClusteringOptions) -> bool:
    """Whether enough writes completed since the last clustering."""
    writes = client.completed_writes()
    last = max((comparable(one.requested_time) for one in writes if is_clustering(client, one)), default="")
    since = [one for one in writes if comparable(one.completion_time or "") > last and not is_clustering(client, one)]
    return len(since) >= options.max_commits


# ---------------------------------------------------------------------- what cannot be clustered
def refuse_unclusterable(
    client: MetaClient, properties: Mapping[str, str], options: ClusteringOptions, *, is_resize: bool = False
) -> None:
    """`InvalidRequest` for tables that this cannot cluster, and for orders that the table cannot have.

    The plan of a resize shows by itself that the table has buckets that can be resized.
    """
    config = client.config
    refuse_unwritable(config)
    index = IndexOptions.from_properties({**config.properties, **properties})
    if not is_resize and index.is_simple_bucket:
        raise InvalidRequest(
            "the table cannot be clustered: the bucket of a row follows from its key, so rows cannot change files",
            hint="Compact it instead; for another number of buckets write the table anew.",
        )
    if not is_resize and not index.is_hashed:
        refuse_unnamed_buckets(client, properties)
    refuse_order(config, options.sort_columns, options.curve)
    check_sortable(options.sort_columns, reader_context_of(client).schema)


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


# ---------------------------------------------------------------------- from groups to a plan
def plan_of(client: MetaClient, planned: PlannedClustering, options: ClusteringOptions) -> ClusteringPlan:
    """The plan as it is saved."""
    storage, params = client.storage, params_of(client.config, options)
    if not planned.resizes:
        groups = (_group(storage, group, _outputs(group, options)) for group in planned.groups)
        return ClusteringPlan(tuple(groups), EXECUTION, params)
    both = zip(planned.groups, planned.resizes, strict=True)
    resized = (_group(storage, group, _kept(change), _resize_extra(group, change)) for group, change in both)
    return ClusteringPlan(tuple(resized), RESIZE_EXECUTION, {k: v for k, v in params.items() if k != TARGET_SIZE})


def _outputs(file_slices: Sequence[FileSlice], options: ClusteringOptions) -> int:
    """How many file groups rows will need."""
    return max(1, -(-sum(file_slice.size for file_slice in file_slices) // options.target_file_size))


def _kept(change: Resize) -> int:
    return sum(node.tag is NodeTag.REPLACE for node in change.children)


def _resize_extra(file_slices: Sequence[FileSlice], change: Resize) -> dict[str, str]:
    """What the plan of a resize states about a group."""
    return {
        PARTITION_KEY: file_slices[0].file_group.partition_path,
        CHILDREN_KEY: render_child_nodes(change.children),
        SEQUENCE_KEY: str(change.seq_no),
    }


def _group(
    storage: Storage, file_slices: Sequence[FileSlice], output_groups: int, extra: Mapping[str, str] | None = None
) -> ClusteringGroup:
    total = sum(file_slice.size for file_slice in file_slices)
    logs = [log for file_slice in file_slices for log in file_slice.log_files]
    metrics = {
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(log.size for log in logs)),
        "TOTAL_IO_READ_MB": float(total // _MB),
        "TOTAL_IO_WRITE_MB": float(total // _MB),
        "TOTAL_IO_MB": float(2 * total // _MB),
    }
    slices = tuple(
        ClusteringSlice(
            file_slice.file_group.partition_path,
            file_slice.file_group.file_id,
            absolute_path(storage, file_slice.base_file.path) if file_slice.base_file else None,
            tuple(absolute_path(storage, log.path) for log in file_slice.log_files),
        )
        for file_slice in file_slices
    )
    return ClusteringGroup(slices, output_groups, metrics, extra or {})
