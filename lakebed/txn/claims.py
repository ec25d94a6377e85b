"""Claiming a requested time, for a write or for a plan, and taking over a plan that another writer left.

A claim is the heartbeat file of the requested time. The listing that is made right after it is the snapshot of the
action, and serves for all that is looked up before the action writes: what dead writers left, and what a service plans.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lakebed.errors import StorageUnavailable
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import ActionBody
from lakebed.model.instant import Action, Instant, State
from lakebed.timeline.active import create_requested
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.heartbeat import Heartbeat, is_expired
from lakebed.txn.instants import claim_begin
from lakebed.txn.locks import Lease
from lakebed.txn.mode import policy, record_mode
from lakebed.txn.options import FailedWrites
from lakebed.txn.txn_context import TxnContext

Plan = Callable[[MetaClient, str], ActionBody | None]
"""Makes a plan from the table as it is under the lock and the requested time; None when there is nothing to do."""


@dataclass(frozen=True, slots=True)
class ClaimedPlan:
    """A plan on the timeline, the table with it, and the heartbeat of its requested time."""

    instant: Instant
    client: MetaClient
    heartbeat: Heartbeat


def claim_plan(
    client: MetaClient, action: Action, plan: Plan, txn_context: TxnContext, *, keep_claim: bool
) -> ClaimedPlan | None:
    """Plan under the lock and save the plan; `keep_claim` is for a caller that runs the plan right away.

    The heartbeat of a claim that is kept is renewed from the start, however long the planning takes: once the plan can
    be seen, other writers may check whether anybody runs it.
    """
    storage, heartbeat = client.storage, None
    record_mode(storage, txn_context)
    try:
        with txn_context.lock.hold() as lease:
            requested_time, fresh = claim_begin(client, txn_context.clock)
            heartbeat = Heartbeat(storage, requested_time, txn_context.options).start()
            try:
                found = _planned(fresh, action, plan, lease, heartbeat)
            except BaseException:
                heartbeat.remove()
                raise
            if found is None or not keep_claim:
                heartbeat.remove()
            if found is not None:
                txn_context.notify(found.client)
    except BaseException:  # the plan may be there, but nobody holds it any more: its heartbeat must expire
        if heartbeat is not None:
            heartbeat.stop()
        raise
    return found


def _planned(fresh: MetaClient, action: Action, plan: Plan, lease: Lease, heartbeat: Heartbeat) -> ClaimedPlan | None:
    """Make a plan and save it; None when there is nothing to do."""
    body = plan(fresh, heartbeat.requested_time)
    if body is None:
        return None
    lease.confirm()
    data = encode_body(body, action, State.REQUESTED)
    requested = create_requested(fresh.storage, heartbeat.requested_time, action, data, fresh.active.folder)
    return ClaimedPlan(requested, fresh.changed({requested: len(data)}), heartbeat)


def claim(client: MetaClient, txn_context: TxnContext, *, cleans: bool) -> tuple[str, MetaClient, Heartbeat]:
    """A requested time, the table as it was just after the claim, and the heartbeat; what dead writers left is undone.

    If something was undone, a new requested time is claimed, which comes after the rollbacks.
    """
    requested_time, snapshot = claim_begin(client, txn_context.clock)
    heartbeat = Heartbeat(client.storage, requested_time, txn_context.options).start()
    if not cleans:
        return requested_time, snapshot, heartbeat
    try:
        ready = clean_up(snapshot, txn_context, requested_time)
    except BaseException as error:
        heartbeat.stop()
        if isinstance(error, Exception):
            with suppress(StorageUnavailable):
                heartbeat.remove()
        raise
    if ready is snapshot:
        return requested_time, snapshot, heartbeat
    heartbeat.remove()
    return claim(ready, txn_context, cleans=False)


def may_take_over(client: MetaClient, requested_time: str, txn_context: TxnContext) -> bool:
    """Whether a plan may be taken over: always by a single writer, else only once the heartbeat has expired.

    The table must have been read after the heartbeat was seen: the writer that created the heartbeat recorded its
    concurrency mode in the table before that.
    """
    alone = policy(client.config, txn_context) is FailedWrites.EAGER
    return alone or is_expired(
        client.storage, requested_time, txn_context.store_clock(client.storage), txn_context.options
    )
