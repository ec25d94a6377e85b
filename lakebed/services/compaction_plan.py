"""Planning compactions: file groups as the timeline and the folders show them, and the strategy's decisions as plans.

    version 10      one plan, saved as <b>.compaction.requested, FULL or LOG per file group (RFC-103)
    versions 8, 9   FULL operations as a compaction, LOG operations as a log compaction: Hudi would run any operation of
                    a compaction as a full one

A group is left out of full compactions while another one or a clustering is planned for it, and out of log compactions
while another log compaction or a clustering is. Logs that completed after a compaction was planned belong to the next
slice, and may be merged among themselves meanwhile. A plan names no file that a pending clean will delete
(services/reserved): covered logs are left to the clean, and a group of which it deletes more waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from lakebed.config.compaction_options import CompactionOptions, Strategy
from lakebed.config.read_options import ReadOptions, TableConfig
from lakebed.errors import InvalidRequest
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.record_merger import why_not_among_logs
from lakebed.model.actions import CommitMetadata, CompactionOperation, CompactionPlan
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.read.reader_context import reader_context_of
from lakebed.runner import LocalRunner
from lakebed.services.compaction_strategy import (
    FULL,
    LOG,
    Decision,
    GroupState,
    LogState,
    SinceLast,
    decide,
    is_due,
    select,
)
from lakebed.services.log_compaction import EXECUTION, live_logs, oldest_pending
from lakebed.services.reserved import CLUSTER, Planned, Reserved
from lakebed.timeline.clock import Clock, comparable, instant_time_now, ms_of_instant_time
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.claims import Plan
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.transaction import Transaction, schedule
from lakebed.txn.txn_context import TxnContext
from lakebed.view.file_system_view import FileSystemView

OPERATIONS = {Action.COMPACTION: "COMPACT", Action.LOG_COMPACTION: "LOG_COMPACT"}
"""The operation types in the commits of compactions."""
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlannedCompaction:
    """What a strategy decided, and the instants of its plans on the timeline: none, one, or two."""

    decisions: tuple[Decision, ...] = ()
    instants: tuple[Instant, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.instants)

    def explain(self) -> str:
        """A line per file group: what happens to it and why."""
        return "\n".join(decision.line() for decision in self.decisions) or "no file group has logs"


def schedule_compaction(
    client: MetaClient, txn_context: TxnContext, strategy: Strategy, options: CompactionOptions, *, force: bool
) -> PlannedCompaction:
    """Plan under the table lock and save the plan, or both of them, as requested; `client` was just read."""
    ready = _ready_to_plan(client, txn_context, options, force=force)
    if ready is None:
        return PlannedCompaction()
    decided: list[tuple[Decision, ...]] = []
    plans = _plans(ready.config, strategy, options, decided)
    instants = [schedule(ready, action, plan, txn_context) for action, plan in plans]
    return PlannedCompaction(decided[0], tuple(instant for instant in instants if instant is not None))


def begin_compaction(
    client: MetaClient, txn_context: TxnContext, strategy: Strategy, options: CompactionOptions, *, force: bool
) -> Iterator[Transaction]:
    """Plan the same, to be run here and now: what is to be run, one after the other.

    Of two plans the second is started when the first is done, and stays on the timeline if that fails.
    """
    ready = _ready_to_plan(client, txn_context, options, force=force)
    plans = _plans(ready.config, strategy, options, []) if ready is not None else []
    if ready is not None and len(plans) == 1:
        [(action, plan)] = plans
        txn = Transaction.plan(ready, action, plan, txn_context, operation=OPERATIONS[action])
        if txn is not None:
            yield txn
    elif ready is not None:
        for planned in [schedule(ready, action, plan, txn_context) for action, plan in plans]:
            if planned is not None:
                yield Transaction.resume(ready, planned, txn_context, operation=OPERATIONS[planned.action])


def _ready_to_plan(
    client: MetaClient, txn_context: TxnContext, options: CompactionOptions, *, force: bool
) -> MetaClient | None:
    """The table without what dead writers left; None when no compaction is due."""
    refuse_uncompactable(client.config)
    txn_context.require_metadata_writer(client)
    client = clean_up(client, txn_context)
    return client if force or is_due(since_last(client, txn_context.clock), options) else None


def _plans(
    config: TableConfig, strategy: Strategy, options: CompactionOptions, decided: list[tuple[Decision, ...]]
) -> list[tuple[Action, Plan]]:
    """The plans by which a strategy is carried out, as actions; the decisions of each are appended to `decided`."""

    def plan(wanted: tuple[str, ...], fresh: MetaClient, requested_time: str) -> CompactionPlan | None:
        proposal = propose(fresh, strategy, options, requested_time)
        decided.append(proposal.decisions)
        return proposal.plan(wanted)

    kinds: list[tuple[str, ...]] = [(FULL, LOG)] if config.version.has_native_logs else [(FULL,), (LOG,)]
    if strategy is not Strategy.HYBRID:
        kinds = [(FULL,) if strategy is Strategy.FULL else (LOG,)]
    actions = [Action.LOG_COMPACTION if wanted == (LOG,) else Action.COMPACTION for wanted in kinds]
    return [(action, partial(plan, wanted)) for action, wanted in zip(actions, kinds, strict=True)]


def explain_compaction(
    client: MetaClient, clock: Clock, strategy: Strategy, options: CompactionOptions, *, force: bool
) -> PlannedCompaction:
    """What a plan would hold; nothing is saved."""
    refuse_uncompactable(client.config)
    if not force and not is_due(since_last(client, clock), options):
        return PlannedCompaction()
    now = instant_time_now(clock, client.config.timezone)
    return PlannedCompaction(propose(client, strategy, options, now).decisions)


def refuse_uncompactable(config: TableConfig) -> None:
    """`InvalidRequest` for tables that have nothing to compact, or whose files are not written here."""
    if not config.is_mor:
        raise InvalidRequest("a copy-on-write table has no logs to compact")
    reasons = {
        "it captures changes in logs of their own": config.cdc_enabled,
        "its files lack the partition columns": config.drop_partition_columns,
        f"its base files are {config.base_file_format}": config.base_file_format.upper() != "PARQUET",
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidRequest(f"the table cannot be compacted: {reason}", hint="Compact it with Hudi.")


def since_last(client: MetaClient, clock: Clock) -> SinceLast:
    """Deltas and seconds since the last completed compaction, or since the first delta where there was none."""
    writes = client.completed_writes()
    last = max((i.requested_time for i in writes if _is_compaction(client, i)), key=comparable, default=None)
    deltas = [i for i in writes if i.action is Action.DELTA_COMMIT and not _is_log_compaction(client, i)]
    if last is not None:
        deltas = [i for i in deltas if comparable(i.completion_time or "") > comparable(last)]
    start = last or (deltas[0].requested_time if deltas else None)
    if start is None:
        return SinceLast(0, 0.0)
    elapsed = clock.now_ms() - ms_of_instant_time(start, client.config.timezone)
    return SinceLast(len(deltas), max(0.0, elapsed / 1000))


def _is_compaction(client: MetaClient, instant: Instant) -> bool:
    return instant.action is Action.COMMIT and _compacted(client, instant)


def _is_log_compaction(client: MetaClient, instant: Instant) -> bool:
    return instant.action is Action.DELTA_COMMIT and _compacted(client, instant)


def _compacted(client: MetaClient, instant: Instant) -> bool:
    body = client.body(instant)
    return isinstance(body, CommitMetadata) and body.compacted


# ---------------------------------------------------------------------- from a table to decisions
@dataclass(frozen=True, slots=True)
class Proposal:
    """What would be done with each group, and the slices it is about."""

    decisions: tuple[Decision, ...]
    slices: dict[FileGroupId, FileSlice] = field(repr=False)

    def plan(self, kinds: Iterable[str]) -> CompactionPlan | None:
        """The plan of the operations of some kinds; None when there are none."""
        wanted = [one for one in self.decisions if one.kind is not None and one.kind in kinds]
        if not wanted:
            return None
        operations = tuple(_operation_of(self.slices[one.group], one) for one in wanted)
        strategy = EXECUTION if all(one.kind == LOG for one in operations) else None
        return CompactionPlan(operations, strategy=strategy, preserve_metadata=True)


def propose(client: MetaClient, strategy: Strategy, options: CompactionOptions, requested_time: str) -> Proposal:
    """What the strategy decides for the table as it is now."""
    reserved = Reserved.of(client)
    reader_context = reader_context_of(client)
    reader = FileGroupReader(client.storage, reader_context, ReadOptions(), reader_context.schema)
    pending = oldest_pending(client, requested_time) if strategy is not Strategy.FULL else None
    blocked = why_not_among_logs([], reader_context.rule)
    if not client.config.version.has_native_logs and pending is not None:
        blocked = blocked or f"the write {pending} is under way"
    unfit: dict[FileGroupId, str | None] = {}
    file_slices: list[FileSlice] = []
    for file_slice in _slices_with_logs(client):
        found, unfit[file_slice.file_group] = reserved.plannable(client, file_slice)
        file_slices.append(found)

    def state_of(file_slice: FileSlice, logs: tuple[LogState, ...], planned: _Planned) -> GroupState:
        base = file_slice.base_file
        return GroupState(
            file_slice.file_group,
            base.size if base else 0,
            logs,
            has_base=base is not None,
            full_blocked=planned.full_blocked,
            log_blocked=planned.log_blocked or blocked,
            ends_newest=not client.config.version.has_native_logs,
        )

    def decided(file_slice: FileSlice) -> Decision:
        deltas, group = _deltas(file_slice), file_slice.file_group
        planned = _Planned.of(reserved.plans.get(group, ()), unfit[group])
        found = decide(state_of(file_slice, deltas, planned), strategy, options)
        if strategy is Strategy.FULL or (found.kind is None and len(deltas) < options.log_threshold):
            return found  # names and sizes suffice: live logs are not more, so the decision would be the same
        logs = live_logs(reader, file_slice, planned=planned.taken, opened=planned.opened, pending=pending)
        return decide(state_of(file_slice, logs, planned), strategy, options)

    decisions = list(LocalRunner().map(decided, file_slices, label="plan"))
    chosen = select(decisions, options)
    taken = {one.group for one in chosen}
    waiting = [_postponed(one) for one in decisions if one.group not in taken]
    return Proposal((*chosen, *waiting), {file_slice.file_group: file_slice for file_slice in file_slices})


def _postponed(decision: Decision) -> Decision:
    if decision.kind is None:
        return decision
    return Decision(
        decision.group,
        None,
        f"this plan is full ({decision.reason})",
        runs_before=decision.runs_before,
        runs_after=decision.runs_before,
        read_before=decision.read_before,
        read_after=decision.read_before,
        write_if_full=decision.write_if_full,
    )


def _deltas(file_slice: FileSlice) -> tuple[LogState, ...]:
    """The logs of a slice by the write that brought them, from names and sizes alone."""
    by_instant: dict[str, list[tuple[str, int]]] = {}
    for log in file_slice.log_files:
        by_instant.setdefault(log.requested_time, []).append((log.name, log.size))
    return tuple(
        LogState(instant, sum(size for _, size in files), tuple(name for name, _ in files))
        for instant, files in by_instant.items()
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """What other plans mean for the decision on one group."""

    full_blocked: str | None
    log_blocked: str | None
    taken: frozenset[str]
    """Names of the logs that a full compaction will take."""
    opened: str | None
    """The requested time of the newest full compaction that is planned."""

    @classmethod
    def of(cls, plans: Sequence[Planned], unfit: str | None) -> _Planned:
        """From the plans that take the group, and the reason, if any, why it may not be taken at all."""
        full = [plan for plan in plans if plan.kind == FULL]
        clustered = "it is being clustered" if any(plan.kind == CLUSTER for plan in plans) else unfit
        merged = "a log compaction is planned for it" if any(plan.kind == LOG for plan in plans) else None
        opened = max((plan.instant.requested_time for plan in full), key=comparable, default=None)
        return cls(
            clustered or ("a compaction is planned for it" if full else None),
            clustered or merged,
            frozenset(name for plan in full for name in plan.files),
            opened,
        )


# ---------------------------------------------------------------------- from decisions to operations
def full_plan(client: MetaClient, wanted: Callable[[FileSlice], bool]) -> CompactionPlan | None:
    """A plan to compact the slices that are wanted and have logs; None when there are none."""
    reserved = Reserved.of(client)
    found = (reserved.plannable(client, file_slice) for file_slice in _slices_with_logs(client) if wanted(file_slice))
    operations = tuple(
        _full_operation(file_slice) for file_slice, unfit in found if unfit is None and file_slice.log_files
    )
    return CompactionPlan(operations, preserve_metadata=True) if operations else None


def _operation_of(file_slice: FileSlice, decision: Decision) -> CompactionOperation:
    if decision.kind == FULL:
        return _full_operation(file_slice)
    names = {name for log in decision.logs for name in log.files}
    chosen = [log for log in file_slice.log_files if log.name in names]
    taken = sum(log.size for log in chosen)
    return _operation(file_slice, tuple(log.name for log in chosen), taken, taken, taken, LOG)


def _slices_with_logs(client: MetaClient) -> Iterator[FileSlice]:
    view = FileSystemView.of(client)
    return (
        file_slice for partition in view.partitions() for file_slice in view.slices(partition) if file_slice.log_files
    )


def _full_operation(file_slice: FileSlice) -> CompactionOperation:
    """All logs of the slice, those included that a log compaction merged: readers of the plan decide what counts."""
    log_bytes = sum(log.size for log in file_slice.log_files)
    written = file_slice.base_file.size if file_slice.base_file else log_bytes
    return _operation(
        file_slice, tuple(log.name for log in file_slice.log_files), log_bytes, file_slice.size, written, FULL
    )


def _operation(
    file_slice: FileSlice, logs: tuple[str, ...], log_bytes: int, read: int, written: int, kind: str
) -> CompactionOperation:
    group, base = file_slice.file_group, file_slice.base_file
    metrics = {
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes),
        "TOTAL_IO_READ_MB": read / _MB,
        "TOTAL_IO_WRITE_MB": written / _MB,
        "TOTAL_IO_MB": (read + written) / _MB,
    }
    base_name = base.name if base else None
    return CompactionOperation(
        group.partition_path, group.file_id, file_slice.base_instant_time, base_name, logs, metrics, kind
    )
