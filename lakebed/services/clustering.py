"""Running clusterings that are planned: the rows of several file groups in new ones, and no answer changes.

One task per group of the plan, wherever the runner runs it; published as a replacecommit. A group of the plan is left
as it is when one of its file groups got other files since: the next plan finds it. A run that died is undone and run
again under the same requested time. A plan whose groups name nodes of a ring is a resize of buckets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakebed.config.clustering_options import LAYOUT_STRATEGY, SORT_COLUMNS, ClusteringOptions
from lakebed.config.memory_plan import DEFAULT_MEMORY, MemoryPlan
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.model.actions import ClusteringGroup, CommitMetadata, RequestedReplace, WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.instant import Action, Instant, State
from lakebed.paths import file_name
from lakebed.read.reader_context import reader_context_of_plan
from lakebed.runner import Runner
from lakebed.services.clustering_plan import CHILDREN_KEY, CLUSTER, refuse_unclusterable
from lakebed.services.clustering_rewrite import RewriteTask, rewriting_of
from lakebed.services.clustering_strategy import TARGET_SIZE
from lakebed.services.plan_inputs import changes
from lakebed.services.resize import Resizing
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from lakebed.write.job import SCHEMA_KEY, table_schema_json
from lakebed.write.task.parallelism import Parallelism
from lakebed.write.write_checks import version_report


def run_clustering(
    client: MetaClient,
    planned: Instant,
    txn_context: TxnContext,
    runner: Runner,
    *,
    properties: Mapping[str, str],
    memory: int = DEFAULT_MEMORY,
) -> Instant:
    """Carry out a clustering that is on the timeline; the completed replacecommit."""
    if planned.action is not Action.CLUSTERING:
        raise InvalidRequest(f"{planned} is no clustering")
    txn = Transaction.resume(client, planned, txn_context, operation=CLUSTER)
    return cluster(txn, runner, properties=properties, memory=memory)


def cluster(txn: Transaction, runner: Runner, *, properties: Mapping[str, str], memory: int = 256 << 20) -> Instant:
    """Carry out a clustering that is inflight; the completed replacecommit."""
    with txn:
        body = txn.snapshot.plan(txn.instant)
        path = txn.snapshot.active.path(replace(txn.instant, state=State.REQUESTED))
        if not isinstance(body, RequestedReplace) or body.clustering is None:
            raise CorruptTable("a clustering without a plan", file=path)
        options, groups = _options(body.clustering.strategy_params, properties), body.clustering.groups
        is_resize = any(CHILDREN_KEY in group.extra for group in groups)
        refuse_unclusterable(txn.snapshot, properties, options, is_resize=is_resize)
        known = {**txn.snapshot.config.properties, **properties}
        resizing = Resizing(txn.snapshot, txn.requested_time, path, known)
        tasks = _tasks(txn, groups, resizing if is_resize else None)
        parallelism = Parallelism.of(runner, len(tasks), MemoryPlan(memory).rewrites_at_once)
        inputs = {file.requested_time for task in tasks for file_slice in task.slices for file in file_slice.files}
        reader_context = reader_context_of_plan(txn.snapshot, txn.requested_time, inputs)
        rewriting = rewriting_of(txn, reader_context, options, properties, memory, parallelism)
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for found in parallelism.runner.map(rewriting.run, tasks, label="cluster"):
            for stat in found:
                stats[stat.partition_path] = (*stats.get(stat.partition_path, ()), stat)
        replaced: dict[str, tuple[str, ...]] = {}
        for group in (file_slice.file_group for task in tasks for file_slice in task.slices):
            replaced[group.partition_path] = (*replaced.get(group.partition_path, ()), group.file_id)
        extra = {
            **version_report(reader_context),
            SCHEMA_KEY: table_schema_json(reader_context.schema, txn.snapshot.config.name),
        }
        resizing.save()
        done = txn.commit(CommitMetadata(CLUSTER, stats, extra, replaced_file_ids=replaced))
        resizing.mark()
        return done


def _options(params: Mapping[str, str], properties: Mapping[str, str]) -> ClusteringOptions:
    """The order of rows and the size of files: by the plan; Hudi's plans leave the curve and the size to the run."""
    wanted = {key: properties[key] for key in (LAYOUT_STRATEGY, TARGET_SIZE) if key in properties} | dict(params)
    if not wanted.get(SORT_COLUMNS, "").strip():
        wanted.pop(LAYOUT_STRATEGY, None)
    return ClusteringOptions.from_properties(wanted)


def _tasks(txn: Transaction, groups: tuple[ClusteringGroup, ...], resizing: Resizing | None) -> list[RewriteTask]:
    """The groups of a plan whose file groups hold just what they held when it was made."""
    snapshot, view = txn.snapshot, txn.view
    known = {file_slice.partition_path for group in groups for file_slice in group.slices}
    current = {file_slice.file_group: file_slice for path in sorted(known) for file_slice in view.slices(path)}
    tasks = []
    for number, group in enumerate(groups):
        partitions = {file_slice.partition_path for file_slice in group.slices}
        now = [current.get(file_slice.file_group) for file_slice in group.slices]
        if resizing is not None:
            taken = resizing.take(group, now)
            if taken is not None:
                tasks.append(RewriteTask(number, partitions.pop(), *taken))
        elif now and len(partitions) == 1 and _is_as_planned(snapshot, group, now):
            tasks.append(
                RewriteTask(number, partitions.pop(), tuple(file_slice for file_slice in now if file_slice is not None))
            )
    return tasks


def _is_as_planned(snapshot: MetaClient, group: ClusteringGroup, now: list[FileSlice | None]) -> bool:
    for wanted, file_slice in zip(group.slices, now, strict=True):
        names = {file_name(path) for path in (wanted.base_file, *wanted.log_files) if path}
        if file_slice is None or any(changes(snapshot, file_slice, names)):
            return False
    return True
