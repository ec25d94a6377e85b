"""Planning the resize of buckets under consistent hashing: large ones are split, small neighbours are merged.

    ring of a partition, size of every bucket ──► splits, largest first, up to the most buckets
                                              ──► merges of neighbours on the ring, down to the fewest

A bucket without files is not merged: a writer that is under way may be about to fill it. A partition with a resize (or
any clustering) planned gets no second one, for rings follow one another. Keys, thresholds and bounds are Hudi's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.write_options import WriteOptions
from lakebed.format.hashing_meta import HashingMetadata, HashingNode
from lakebed.index.consistent import load_hashing
from lakebed.index.consistent_ring import merge_nodes, split_node
from lakebed.index.options import IndexOptions
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.services.clustering_strategy import PlannedClustering, Resize, chosen_partitions, free_slices
from lakebed.services.reserved import Reserved
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes and numbers of buckets beyond which buckets are split or merged."""

    split_above: int
    merge_below: int
    most: int
    least: int


@dataclass(frozen=True, slots=True)
class BucketChange:
    """Buckets of a ring, in its order, and what they become."""

    file_ids: tuple[str, ...]
    children: tuple[HashingNode, ...]
    what: str


def is_resizable(properties: Mapping[str, str]) -> bool:
    """Whether clustering a table means to resize its buckets."""
    return IndexOptions.from_properties(properties).is_consistent_bucket


def propose_resize(client: MetaClient, options: ClusteringOptions, properties: Mapping[str, str]) -> PlannedClustering:
    """What would be split and merged of the table as it is now, and why not the rest."""
    reserved = Reserved.of(client)
    plans = [plan.clustering for _, plan in client.pending_clusterings() if plan.clustering is not None]
    resized = {file_slice.partition_path for plan in plans for group in plan.groups for file_slice in group.slices}
    view = FileSystemView.of(client)
    groups: list[tuple[FileSlice, ...]] = []
    resizes: list[Resize] = []
    left: dict[FileGroupId, str] = {}
    for partition in chosen_partitions(view.partitions(), options):
        free = list(free_slices(client, view, partition, reserved))
        file_slices = {file_slice.file_group.file_id: file_slice for file_slice, _ in free}
        reasons = {file_slice.file_group.file_id: taken for file_slice, taken in free if taken is not None}
        ring = load_hashing(client, partition) if file_slices and partition not in resized else None
        if ring is None:
            why = "its partition is being clustered" if partition in resized else "its partition has no ring of buckets"
            left.update(
                (file_slice.file_group, reasons.get(file_id, why)) for file_id, file_slice in file_slices.items()
            )
            continue
        sizes = {file_id: file_slice.size for file_id, file_slice in file_slices.items()}
        changes, stay = resize(ring, sizes, reasons, limits_of(ring, options, properties))
        for change in changes:
            if len(groups) < options.max_groups:
                groups.append(tuple(file_slices[file_id] for file_id in change.file_ids))
                resizes.append(Resize(change.children, ring.seq_no, change.what))
            else:
                stay |= dict.fromkeys(change.file_ids, "this plan is full")
        left.update((FileGroupId(partition, file_id), why) for file_id, why in stay.items())
    return PlannedClustering(tuple(groups), left, resizes=tuple(resizes))


def limits_of(ring: HashingMetadata, options: ClusteringOptions, properties: Mapping[str, str]) -> Limits:
    """The limits for a partition; without configured bounds its number of buckets stays what it is configured to be."""
    size = WriteOptions.from_properties(properties).max_file_size
    usual = IndexOptions.from_properties(properties).num_buckets or len(ring.ring)
    return Limits(
        int(size * options.split_threshold),
        int(size * options.merge_threshold),
        options.max_buckets if options.max_buckets is not None else max(usual, options.min_buckets or 1),
        options.min_buckets if options.min_buckets is not None else min(usual, options.max_buckets or usual),
    )


def _new_prefix() -> str:
    return str(uuid.uuid4())


def resize(
    ring: HashingMetadata,
    sizes: Mapping[str, int],
    busy: Mapping[str, str],
    limits: Limits,
    new_prefix: Callable[[], str] = _new_prefix,
) -> tuple[list[BucketChange], dict[str, str]]:
    """The changes to a ring whose file groups have these sizes, and why other groups stay as they are."""
    nodes = ring.ring
    here = {node.file_id: number for number, node in enumerate(nodes)}
    left = {one: "it is not on the ring of its partition" for one in sizes if one not in here}
    left |= {one: busy[one] for one in sizes if one in busy}
    free = {one for one in sizes if one not in left}
    changes: list[BucketChange] = []
    number = len(nodes)
    for one in sorted((o for o in free if sizes[o] > limits.split_above), key=lambda o: (-sizes[o], here[o])):
        children = split_node(nodes, here[one], (new_prefix(), new_prefix()))
        if number >= limits.most:
            left[one] = f"it takes {sizes[one]} bytes, and the partition may not have more than {limits.most} buckets"
        elif not children:
            left[one] = "its range on the ring is a single value"
        else:
            changes.append(BucketChange((one,), children, f"split at {children[0].value}"))
            number += 1
    split = {one for change in changes for one in change.file_ids}
    small = [n for n in nodes if n.file_id in free - split - left.keys() and sizes[n.file_id] <= limits.merge_below]
    for run in _runs(nodes, {node.file_id for node in small}, sizes, limits, number):
        children = merge_nodes(run, new_prefix())
        ids = tuple(node.file_id for node in run)
        changes.append(BucketChange(ids, children, f"merged into the bucket at {children[-1].value}"))
        number -= len(run) - 1
    changed = {one for change in changes for one in change.file_ids}
    for one in free - changed - left.keys():
        left[one] = _why_not(sizes[one], limits, number)
    return changes, left


def _runs(
    nodes: Sequence[HashingNode], small: set[str], sizes: Mapping[str, int], limits: Limits, number: int
) -> list[tuple[HashingNode, ...]]:
    """Small neighbours that are merged: the next one joins as long as the total of those before it is small."""
    start = next((number + 1 for number, node in enumerate(nodes) if node.file_id not in small), 0)
    runs: list[list[HashingNode]] = []
    spare, held = number - limits.least, 0
    open_run = False
    for node in (*nodes[start:], *nodes[:start]):
        if node.file_id not in small:
            open_run = False
        elif open_run and held <= limits.merge_below and spare > 0:
            runs[-1].append(node)
            held += sizes[node.file_id]
            spare -= 1
        else:
            runs.append([node])
            held, open_run = sizes[node.file_id], True
    return [tuple(run) for run in runs if len(run) > 1]


def _why_not(size: int, limits: Limits, number: int) -> str:
    if size > limits.merge_below:
        return f"its {size} bytes are between {limits.merge_below} and {limits.split_above}"
    if number <= limits.least:
        return f"it takes {size} bytes, and the partition may not have fewer than {limits.least} buckets"
    return f"it takes {size} bytes, and no neighbour on the ring is small and free"
