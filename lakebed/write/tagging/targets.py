"""What becomes of the rows of a file group: which file slice they are written on top of, and how.

    operation replaces       a new file group          CREATE
    no slice of the group    its first base file       CREATE
    copy-on-write, or the
    group takes new keys     a new base file           MERGE
    merge-on-read            a log                     APPEND

Tagging says which group a row belongs to before the write begins; targets are found once it has, for only then is it
settled what the table holds.
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
    """What decides the target of a group besides the table's files."""

    operation: Operation
    index: Index
    is_mor: bool
    rewritten: Collection[FileGroupId] = ()
    """Groups that take new keys: their base file is written anew, for other writers' indexes look for keys there."""

    def target(self, group: FileGroupId, latest: FileSlice | None, *, has_files: bool) -> GroupTarget | None:
        """The target of a group with that latest slice, None if nothing happens to it.

        `has_files` says whether its partition has any: a replaced group leaves its file id behind there.
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
    """The target of every group; those to which nothing happens are left out."""
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
    """Rows were hashed before the write began; buckets that were replaced or split since have other file groups."""
    for group in groups:
        if not index.is_place(group):
            raise ConflictError(f"the file group {group} was replaced by another writer just now", hint="Write again.")


# ---------------------------------------------------------------------- what the table holds
def groups_of_partitions(
    view: FileSystemView, partitions: tuple[str, ...] | None, touched: set[str]
) -> dict[str, tuple[str, ...]]:
    """The file groups of these partitions (of those that rows came for, if None), by partition."""
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
