"""Which files are reserved, and by which action: read under the table lock before files are planned over or deleted.

    held       must stay   inputs of pending compactions, log compactions, clusterings and resizes, files of savepoints
    leaving    will go     files that pending cleans are about to delete, or are deleting

Plans of every program count: they are read from the timeline. A planner takes no file that is leaving, a cleaner
deletes none that is held, so of two actions that want one file the one that was planned later does not get it,
whichever is run first. The retention decides which states stay readable (services/cleaning_policy) when a clean is
planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lakebed.model.actions import CleanPlan
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.paths import file_name
from lakebed.services.plan_inputs import silent_logs
from lakebed.timeline.meta_client import MetaClient

CLUSTER = "CLUSTER"
"""What a clustering or a resize does with a file group, beside the kinds of a compaction's operations."""
File = tuple[str, str]
"""A partition path and the name of a file in it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What one pending plan takes of a file group."""

    instant: Instant
    group: FileGroupId
    kind: str
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class Reserved:
    """The reserved files of a table, at one moment of its timeline."""

    plans: Mapping[FileGroupId, tuple[Planned, ...]]
    saved: Mapping[File, Instant]
    leaving: Mapping[File, Instant]

    @classmethod
    def of(cls, client: MetaClient) -> Reserved:
        """From the plans and savepoints of the active timeline."""
        saved = {
            (partition, file_name(path)): instant
            for instant, savepoint in client.savepoints()
            for partition, paths in savepoint.files.items()
            for path in paths
        }
        plans: dict[FileGroupId, tuple[Planned, ...]] = {}
        for plan in _planned(client):
            plans[plan.group] = (*plans.get(plan.group, ()), plan)
        return cls(plans, saved, dict(_leaving(client)))

    def held(self) -> dict[File, Instant]:
        """The files that must stay, and the instant that needs each."""
        plans = (plan for plans in self.plans.values() for plan in plans)
        inputs = {(plan.group.partition_path, name): plan.instant for plan in plans for name in plan.files}
        return {**self.saved, **inputs}

    def leaving_of(self, file_slice: FileSlice) -> dict[str, Instant]:
        """Files of a slice that pending cleans delete, by name."""
        partition = file_slice.file_group.partition_path
        return {
            file.name: by for file in file_slice.files if (by := self.leaving.get((partition, file.name))) is not None
        }

    def plannable(self, client: MetaClient, file_slice: FileSlice) -> tuple[FileSlice, str | None]:
        """The slice as a plan may take it, and why it may not be taken at all.

        Logs that do not count in the slice, because a log compaction replaces them, are left to the clean that deletes
        them.
        """
        leaving = self.leaving_of(file_slice)
        if not leaving:
            return file_slice, None
        silent = silent_logs(client, file_slice)
        counting = min(leaving.keys() - silent, default=None)
        if counting is not None:
            return file_slice, f"the clean {leaving[counting].requested_time} deletes files of it"
        return replace(
            file_slice, log_files=tuple(log for log in file_slice.log_files if log.name not in leaving)
        ), None


def _planned(client: MetaClient) -> Iterator[Planned]:
    for instant, plan in client.pending_compactions():
        for operation in plan.operations:
            files = filter(None, (operation.base_file, *operation.log_files))
            group = operation.file_group
            yield Planned(instant, group, operation.kind, frozenset(map(file_name, files)))
    for instant, replacing in client.pending_clusterings():
        for taken in replacing.clustering.groups if replacing.clustering else ():
            for file_slice in taken.slices:
                files = filter(None, (file_slice.base_file, *file_slice.log_files))
                group = file_slice.file_group
                yield Planned(instant, group, CLUSTER, frozenset(map(file_name, files)))


def _leaving(client: MetaClient) -> Iterator[tuple[File, Instant]]:
    for instant in client.timeline.pending.of_actions(Action.CLEAN):
        plan = client.plan(instant)
        for partition, paths in plan.files.items() if isinstance(plan, CleanPlan) else ():
            yield from (((partition, file_name(path)), instant) for path in paths)
