"""When a compaction is due, and what becomes of each file group: pure functions of sizes, counts and times.

    is_due     the four triggers: deltas since the last compaction, seconds since, both, either
    decide     per file group   FULL  logs into a new base file
                                LOG   consecutive small logs into one log, the base file left alone
                                none  wait
    select     full compactions that fit into one plan, the most urgent first

What a decision costs and gains is stated in the terms of LSM trees. Read amplification is the sorted runs that a reader
of the group merges, and the bytes it reads per byte of a compacted slice; write amplification is the bytes written per
byte of logs that are merged. A rewrite of a large base file for a few small logs lowers read amplification at a high
write amplification; merging these logs among themselves costs little and leaves two runs: so small logs are merged with
each other first, and with the base file only when they have grown to a share of it (RFC-103).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from lakebed.config.compaction_options import CompactionOptions, Selection, Strategy, Trigger
from lakebed.merge.record_merger import DIFFERENT_COLUMNS
from lakebed.model.files import FileGroupId

_MB = 1024 * 1024
FULL, LOG = "FULL", "LOG"
"""The kinds of a compaction's operations, as plans spell them."""


# ---------------------------------------------------------------------- when
@dataclass(frozen=True, slots=True)
class SinceLast:
    """What happened since the last compaction, or since the first delta of a table that never had one."""

    deltas: int
    seconds: float


def is_due(since: SinceLast, options: CompactionOptions) -> bool:
    """Whether the trigger that the options name has fired."""
    enough = since.deltas >= options.max_delta_commits
    late = since.deltas > 0 and since.seconds >= options.max_delta_seconds
    return {
        Trigger.NUM_COMMITS: enough,
        Trigger.TIME_ELAPSED: late,
        Trigger.NUM_AND_TIME: enough and late,
        Trigger.NUM_OR_TIME: enough or late,
    }[options.trigger]


# ---------------------------------------------------------------------- what
@dataclass(frozen=True, slots=True)
class LogState:
    """What one delta added to a file group and readers still merge. `stays` is the reason why it must be left alone."""

    requested_time: str
    size: int
    files: tuple[str, ...] = ()
    stays: str | None = None
    brings: frozenset[str] | None = None
    """The columns of a partial update, which shares a log only with others of the same columns; None for whole rows."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """A file group as a strategy sees it: sizes, and the deltas that count, oldest first."""

    group: FileGroupId
    base_size: int
    logs: tuple[LogState, ...]
    has_base: bool = True
    full_blocked: str | None = None
    """Why the group must not be compacted fully now."""
    log_blocked: str | None = None
    """Why its logs must not be merged among themselves now."""
    ends_newest: bool = False
    """Whether merged logs must reach up to the newest one, for readers that rank them by their own, later instant."""

    @property
    def log_size(self) -> int:
        return sum(log.size for log in self.logs)


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done with a file group and why. `kind` is FULL, LOG or None, `logs` are the deltas that are merged."""

    group: FileGroupId
    kind: str | None
    reason: str
    logs: tuple[LogState, ...] = ()
    runs_before: int = 0
    runs_after: int = 0
    read_before: float = 1.0
    """Bytes that a reader reads per byte of a compacted slice."""
    read_after: float = 1.0
    write: float = 0.0
    """Bytes written per byte of logs merged, by this decision."""
    write_if_full: float = 0.0
    """The same if the base file were rewritten."""
    size: int = 0
    """Bytes read and written."""

    def line(self) -> str:
        """The decision in one line."""
        if self.kind is None:
            return f"{self.group}: nothing, {self.reason}"
        return (
            f"{self.group}: {self.kind}, {self.reason}; runs {self.runs_before} -> {self.runs_after}, "
            f"read amplification {self.read_before:.2f} -> {self.read_after:.2f}, "
            f"write amplification {self.write:.2f} (a full compaction: {self.write_if_full:.2f})"
        )


def decide(state: GroupState, strategy: Strategy, options: CompactionOptions) -> Decision:
    """What the strategy does with one file group."""
    if not state.logs:
        return Decision(state.group, None, "it has no logs", runs_before=int(state.has_base), runs_after=1)
    if strategy is Strategy.FULL:
        return _full(state, f"{len(state.logs)} deltas")
    run = small_run(state, options)
    if strategy is Strategy.LOG:
        return _log(state, run, options)
    return _hybrid(state, run, options)


def _hybrid(state: GroupState, run: tuple[LogState, ...], options: CompactionOptions) -> Decision:
    share = state.log_size / state.base_size if state.base_size else float("inf")
    why_full = None
    if share >= options.hybrid_ratio and state.has_base:
        why_full = f"logs are {share:.0%} of the base file, {options.hybrid_ratio:.0%} or more"
    elif len(state.logs) >= options.hybrid_most_logs:
        why_full = f"{len(state.logs)} deltas, {options.hybrid_most_logs} or more"
    elif not state.has_base and len(state.logs) >= options.log_threshold:
        why_full = f"{len(state.logs)} deltas and no base file, which costs no more to write than a log"
    if why_full is not None and state.full_blocked is None:
        return _full(state, why_full)
    if run or state.log_blocked is None:
        found = _log(state, run, options)
        if found.kind is None and state.has_base:
            found = replace(found, reason=f"{found.reason}; logs are {share:.0%} of the base file")
        return found
    return _none(state, (why_full and state.full_blocked) or state.log_blocked)


def small_run(state: GroupState, options: CompactionOptions) -> tuple[LogState, ...]:
    """The longest consecutive run of small deltas of the same columns, none skipped in the middle; empty if too short.

    Of equally long ones the newest.
    """
    if state.log_blocked is not None:
        return ()

    def shape(log: LogState) -> tuple[bool, frozenset[str] | None]:
        return log.stays is None and log.size <= options.log_small_size, log.brings

    runs = [tuple(logs) for (is_small, _), logs in groupby(state.logs, shape) if is_small]
    if state.ends_newest:
        runs = [logs for logs in runs if logs[-1] is state.logs[-1]]
    best = max(reversed(runs), key=len, default=())
    return best if len(best) >= options.log_threshold else ()


def _log(state: GroupState, run: tuple[LogState, ...], options: CompactionOptions) -> Decision:
    if not run:
        reason = next((log.stays for log in reversed(state.logs) if log.stays), None)
        if reason is None and len({log.brings for log in state.logs}) > 1:
            reason = DIFFERENT_COLUMNS
        few = f"fewer than {options.log_threshold} small deltas in a row"
        return _none(state, state.log_blocked or (f"{few} ({reason})" if reason else few))
    taken = sum(log.size for log in run)
    return replace(
        _costs(state),
        kind=LOG,
        reason=f"{len(run)} small deltas in a row, {options.log_threshold} or more",
        logs=run,
        runs_after=_runs(state) - len(run) + 1,
        write=1.0,
        size=2 * taken,
    )


def _full(state: GroupState, reason: str) -> Decision:
    if state.full_blocked is not None:
        return _none(state, state.full_blocked)
    costs = _costs(state)
    return replace(
        costs,
        kind=FULL,
        reason=reason,
        logs=state.logs,
        runs_after=1,
        read_after=1.0,
        write=costs.write_if_full,
        size=state.base_size + state.log_size + _compacted(state),
    )


def _none(state: GroupState, reason: str | None) -> Decision:
    return replace(_costs(state), reason=reason or "nothing to do")


def _costs(state: GroupState) -> Decision:
    """The group as it is, nothing decided."""
    read = (state.base_size + state.log_size) / max(1, _compacted(state))
    full = _compacted(state) / max(1, state.log_size)
    runs = _runs(state)
    return Decision(state.group, None, "", (), runs, runs, read, read, 0.0, full)


def _runs(state: GroupState) -> int:
    return int(state.has_base) + len(state.logs)


def _compacted(state: GroupState) -> int:
    """The size of the next base file, assumed to be that of the last one: updates replace existing rows."""
    return state.base_size if state.has_base else state.log_size


# ---------------------------------------------------------------------- how much
def select(decisions: Sequence[Decision], options: CompactionOptions) -> list[Decision]:
    """The full compactions that one plan takes, most urgent first. Log compactions are small and all taken."""
    full = [one for one in decisions if one.kind == FULL]
    logs = [one for one in decisions if one.kind == LOG]
    match options.selection:
        case Selection.LOG_SIZE:
            worth = [one for one in full if _log_size(one) >= options.log_size_threshold]
            chosen = _within(sorted(worth, key=_log_size, reverse=True), options)
        case Selection.LOG_COUNT:
            worth = [one for one in full if len(one.logs) >= options.log_count_threshold]
            chosen = _within(sorted(worth, key=lambda one: len(one.logs), reverse=True), options)
        case Selection.BOUNDED_IO:
            chosen = _within(full, options)
        case Selection.DAY_BASED:
            days = sorted({one.group.partition_path for one in full}, key=_day, reverse=True)
            newest = days[: options.day_partitions]
            chosen = sorted(
                (one for one in full if one.group.partition_path in newest),
                key=lambda one: newest.index(one.group.partition_path),
            )
        case Selection.UNBOUNDED:
            chosen = full
    return [*chosen, *logs]


def _log_size(decision: Decision) -> int:
    return sum(log.size for log in decision.logs)


def _within(decisions: Sequence[Decision], options: CompactionOptions) -> list[Decision]:
    """As many as fit, and at least one: a group too large for any plan would else never be compacted."""
    left = options.target_io_mb * _MB
    taken: list[Decision] = []
    for one in decisions:
        if taken and one.size > left:
            continue
        taken.append(one)
        left -= one.size
        if left <= 0:
            break
    return taken


def _day(partition: str) -> tuple[str, ...]:
    """Partitions by date compare as text, level by level; `column=` before the value does not count."""
    return tuple(part.rpartition("=")[2] for part in partition.split("/"))
