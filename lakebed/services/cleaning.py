"""Removing files that no current slice needs, as a `clean` on the timeline.

    plan   <b>.clean.requested    every file, by name
    run    delete, then publish what was deleted

Deleting again what is gone is fine, so a clean that died is simply run again. Times before `earliest_to_retain` can no
longer be travelled to, and readers of any kind find that on the timeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.errors import CorruptTable
from lakebed.model.actions import CleanMetadata, CleanPartition, CleanPlan, InstantRef
from lakebed.model.instant import Action, Instant
from lakebed.storage.storage import joined
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.control import Control
from lakebed.txn.rollback import absolute_path, delete_all
from lakebed.txn.transaction import Transaction, schedule

POLICY = "KEEP_LATEST_COMMITS"


def remove_files(
    client: MetaClient, files: Mapping[str, Sequence[str]], control: Control, *, retain: Instant
) -> Instant | None:
    """Delete files, given by partition as names; whoever travels to a time before `retain` is told that it is gone."""
    if not any(files.values()):
        return None
    storage = client.storage
    wanted = {
        partition: tuple(absolute_path(storage, joined(partition, name)) for name in sorted(names))
        for partition, names in files.items()
        if names
    }
    earliest = InstantRef(retain.requested_time, str(retain.action), "COMPLETED")

    def plan(fresh: MetaClient, begin: str) -> CleanPlan:
        last = max((i.requested_time for i in fresh.completed_writes()), default=begin)
        return CleanPlan(POLICY, earliest, last, wanted)

    planned = schedule(client, Action.CLEAN, plan, control)
    return None if planned is None else run_clean(client, planned, control)


def run_clean(client: MetaClient, planned: Instant, control: Control) -> Instant:
    """Carry out a clean that is on the timeline."""
    with Transaction.resume(client, planned, control) as txn:
        started = control.clock.now_ms()
        plan = txn.snapshot.plan(txn.instant)
        if not isinstance(plan, CleanPlan):
            raise CorruptTable("a clean without a plan", file=txn.snapshot.active.path(planned))
        names = {partition: tuple(map(_name, files)) for partition, files in plan.files.items()}
        paths = [joined(partition, name) for partition, found in names.items() for name in found]
        delete_all(txn.snapshot.storage, paths)
        body = CleanMetadata(
            start_time=txn.begin_time,
            time_taken_ms=max(0, control.clock.now_ms() - started),
            total_files_deleted=len(paths),
            earliest_to_retain=plan.earliest_to_retain.time if plan.earliest_to_retain else "",
            last_completed=plan.last_completed,
            partitions={
                partition: CleanPartition(partition, plan.policy, found, found) for partition, found in names.items()
            },
        )
        return txn.commit(body)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
