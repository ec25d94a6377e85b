"""Which slices a clustering takes: small ones that no other plan takes, in groups, and why not the rest.

In the LSM layout slices with neighbouring keys are grouped, so that the files of a partition end up with key ranges of
their own. What an earlier clustering wrote in the same order is not taken again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakebed.config.clustering_options import LAYOUT_STRATEGY, SORT_COLUMNS, ClusteringOptions, PartitionFilter
from lakebed.config.read_options import TableConfig
from lakebed.datafile.base_file import open_base_file
from lakebed.format.hashing_meta import HashingNode
from lakebed.merge.reader_context import LSM_TREE
from lakebed.model.actions import RequestedReplace
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.runner import LocalRunner
from lakebed.services.reserved import Reserved
from lakebed.storage.storage import Storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

Free = tuple[FileSlice, str | None]
TARGET_SIZE = "hoodie.clustering.plan.strategy.target.file.max.bytes"


@dataclass(frozen=True, slots=True)
class Resize:
    """The buckets that replace those of one group, and the version of the ring from which that was decided."""

    children: tuple[HashingNode, ...]
    seq_no: int
    what: str


@dataclass(frozen=True, slots=True)
class PlannedClustering:
    """Slices that are rewritten together, those that stay with the reason why, and the instant of the plan, if any."""

    groups: tuple[tuple[FileSlice, ...], ...] = ()
    left: Mapping[FileGroupId, str] | None = None
    instants: tuple[Instant, ...] = ()
    resizes: tuple[Resize, ...] = ()
    """By group, what happens to buckets under consistent hashing; empty elsewhere."""

    def __bool__(self) -> bool:
        return bool(self.instants)

    def explain(self) -> str:
        """A line per file group: what happens to it, or why nothing does."""
        lines = []
        for number, group in enumerate(self.groups):
            with_it = f"with {len(group) - 1} others" if len(group) > 1 else "alone"
            what = f", {self.resizes[number].what}" if self.resizes else ""
            lines += [
                f"{file_slice.file_group}: group {number}, {with_it}{what}, {file_slice.size} bytes"
                for file_slice in group
            ]
        lines += [f"{group}: stays, {reason}" for group, reason in (self.left or {}).items()]
        return "\n".join(lines) or "the table has no file groups"


def is_clustering(client: MetaClient, instant: Instant) -> bool:
    """Whether a completed write is a clustering."""
    planned = client.active.requested(instant) if instant.action is Action.REPLACE_COMMIT else None
    return planned is not None and planned.action is Action.CLUSTERING


def params_of(config: TableConfig, options: ClusteringOptions) -> dict[str, str]:
    """The options that the run of the plan needs: the order of rows, and the size of files."""
    found = {TARGET_SIZE: str(options.target_file_size)}
    if options.sort_columns and config.layout != LSM_TREE:
        found |= {SORT_COLUMNS: ",".join(options.sort_columns), LAYOUT_STRATEGY: str(options.curve)}
    return found


def propose(client: MetaClient, options: ClusteringOptions) -> PlannedClustering:
    """What would be rewritten of the table as it is now, and why not the rest."""
    reserved = Reserved.of(client)
    view = FileSystemView.of(client)
    params = params_of(client.config, options)
    by_key = client.config.layout == LSM_TREE
    groups: list[tuple[FileSlice, ...]] = []
    left: dict[FileGroupId, str] = {}
    for partition in chosen_partitions(view.partitions(), options):
        eligible = []
        for file_slice, taken in free_slices(client, view, partition, reserved):
            reason = taken or _too_large(file_slice, options)
            if reason is None:
                eligible.append(file_slice)
            else:
                left[file_slice.file_group] = reason
        for group in pack(_in_turn(client.storage, eligible, options, by_key=by_key), options.max_group_bytes):
            reason = _nothing_to_gain(client, group, params, options)
            if reason is None and len(groups) >= options.max_groups:
                reason = "this plan is full"
            if reason is None:
                groups.append(group)
            else:
                left.update((file_slice.file_group, reason) for file_slice in group)
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


def pack(file_slices: Sequence[FileSlice], most_bytes: int) -> list[tuple[FileSlice, ...]]:
    """Neighbours together as long as they fit; a slice that does not fit with any is a group of its own."""
    groups: list[list[FileSlice]] = []
    held = 0
    for file_slice in file_slices:
        if not groups or held + file_slice.size > most_bytes:
            groups.append([])
            held = 0
        groups[-1].append(file_slice)
        held += file_slice.size
    return [tuple(group) for group in groups]


def _in_turn(
    storage: Storage, file_slices: Sequence[FileSlice], options: ClusteringOptions, *, by_key: bool
) -> list[FileSlice]:
    """Large slices first, as Hudi packs them; by smallest key where rows stay in key order and one group is too few."""
    if not by_key or sum(file_slice.size for file_slice in file_slices) <= options.max_group_bytes:
        return sorted(file_slices, key=lambda file_slice: (-file_slice.size, file_slice.file_group))

    def low(file_slice: FileSlice) -> str:
        if file_slice.base_file is None:
            return ""
        with open_base_file(storage, file_slice.base_file) as source:
            found = source.key_range
            return found.low or "" if found is not None else ""

    lows = dict(
        zip((one.file_group for one in file_slices), LocalRunner().map(low, file_slices, label="plan"), strict=True)
    )
    return sorted(file_slices, key=lambda file_slice: (lows[file_slice.file_group].encode(), file_slice.file_group))


def _too_large(file_slice: FileSlice, options: ClusteringOptions) -> str | None:
    size = file_slice.base_file.size if file_slice.base_file else 0
    return f"its base file has {size} bytes" if size >= options.small_file_limit else None


def _nothing_to_gain(
    client: MetaClient, group: Sequence[FileSlice], params: Mapping[str, str], options: ClusteringOptions
) -> str | None:
    if len(group) == 1 and not options.single_groups:
        return "no other slice goes with it"
    if any(file_slice.log_files for file_slice in group):
        return None
    if len(group) == 1 and SORT_COLUMNS not in params:
        return "it is one file already"
    times = {file_slice.base_instant_time for file_slice in group}
    instant = client.timeline.completed_write(times.pop()) if len(times) == 1 else None
    planned = client.active.requested(instant) if instant is not None and is_clustering(client, instant) else None
    body = client.body(planned) if planned is not None else None
    if isinstance(body, RequestedReplace) and body.clustering and dict(body.clustering.strategy_params) == dict(params):
        return "a clustering left it so"
    return None


def free_slices(client: MetaClient, view: FileSystemView, partition: str, reserved: Reserved) -> Iterator[Free]:
    """The slices of a partition as a plan may take them, each with the reason why it may not, if there is one."""
    for file_slice in view.slices(partition):
        found, unfit = reserved.plannable(client, file_slice)
        for plan in reserved.plans.get(file_slice.file_group, ()):
            unfit = f"the {plan.instant.action} {plan.instant.requested_time} will take it"
        yield found, unfit
