"""How the rows of a file group are written: on top of which file slice, and into which kind of file.

    operation replaces       a new file group          CREATE
    no slice of the group    its first base file       CREATE
    copy-on-write, or the
    group takes new keys     a new base file           MERGE
    merge-on-read            a log                     APPEND

Tagging may assign rows to groups before the transaction starts; targets are determined afterwards, from the snapshot
of the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from lakebed.errors import ConflictError
from lakebed.index.locations import Index
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.operation import Operation
from lakebed.write.task.write_task import GroupTarget, Target


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What determines the target of a group besides the table's files."""

    operation: Operation
    index: Index
    is_mor: bool
    rewritten: Collection[FileGroupId] = ()
    """Groups that take new keys: their base file is rewritten, because indexes of other writers look for keys there."""

    def target(self, group: FileGroupId, latest: FileSlice | None, *, has_files: bool) -> GroupTarget | None:
        """The target of a group with the slice `latest`, None if nothing is written to it.

        `has_files` states whether its partition has any: a replaced group keeps its file id, so a new one is needed.
        """
        if self.operation.replaces:
            new = self.index.successor(group) if has_files else group
            return GroupTarget(new, Target.CREATE, None, may_roll=not self.index.is_hashed)
        if latest is None:
            if self.operation is Operation.DELETE:
                return None
            return GroupTarget(group, Target.CREATE, None, may_roll=not self.index.is_hashed)
        if not self.is_mor or group in self.rewritten:
            return GroupTarget(group, Target.MERGE, latest)
        return GroupTarget(group, Target.APPEND, latest)


def group_targets(
    groups: Iterable[FileGroupId], view: FileSystemView, rules: TargetRules
) -> dict[FileGroupId, GroupTarget]:
    """The target of every group; groups to which nothing is written are left out."""
    wanted = list(groups)
    latest = _latest_slices(view, {group.partition_path for group in wanted})
    with_files = {group.partition_path for group in latest}
    found = {}
    for group in wanted:
        target = rules.target(group, latest.get(group), has_files=group.partition_path in with_files)
        if target is not None:
            found[group] = target
    return found


def refuse_replaced_buckets(groups: Iterable[FileGroupId], index: Index) -> None:
    """`ConflictError` if a bucket was replaced or split after rows were hashed: it has other file groups now."""
    for group in groups:
        if not index.is_place(group):
            raise ConflictError(f"the file group {group} was replaced by another writer just now", hint="Write again.")


# ---------------------------------------------------------------------- what the table holds
def groups_of_partitions(
    view: FileSystemView, partitions: tuple[str, ...] | None, touched: set[str]
) -> dict[str, tuple[str, ...]]:
    """The file groups of these partitions (of the partitions of the rows, if None), by partition."""
    paths = sorted(touched) if partitions is None else list(partitions)
    found = {path: tuple(one.file_group.file_id for one in view.slices(path)) for path in paths}
    return {path: ids for path, ids in found.items() if ids}


def groups_being_clustered(snapshot: MetaClient) -> frozenset[FileGroupId]:
    """Groups that are about to be replaced: they take no new keys."""
    plans = [plan.clustering for _, plan in snapshot.pending_clusterings() if plan.clustering is not None]
    parts = (file_slice for plan in plans for group in plan.groups for file_slice in group.slices)
    return frozenset(file_slice.file_group for file_slice in parts)


def all_slices(view: FileSystemView) -> Iterator[FileSlice]:
    """The latest slices of all partitions."""
    for path in view.partitions():
        yield from view.slices(path)


def _latest_slices(view: FileSystemView, partitions: set[str]) -> dict[FileGroupId, FileSlice]:
    return {file_slice.file_group: file_slice for path in sorted(partitions) for file_slice in view.slices(path)}
