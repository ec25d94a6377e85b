"""Which log blocks of a file slice are merged, oldest to newest: a pure function of block headers.

    blocks of all log files, in slice order
      - CORRUPT                 skipped, reported
      - CDC                     for the change feed, no part of merging
      - rolled back             a rollback command drops every earlier block of its target, whatever is in between
      - not committed           the caller's predicate: not completed, or completed after the time that is read
      - repeated                two tries of one task left the same block (old tables, BLOCK_IDENTIFIER)
      - log-compacted           blocks of instants that a counting compacted block covers, directly or through another,
                                and compacted blocks all of whose originals a later one covers
      = what is left, in fold order: by the requested time at which a block stands (datafile/fold_order)

A compacted block that does not count itself hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakebed.datafile.fold_order import fold_order
from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.log.block import BlockKind, LogBlock
from lakebed.model.files import LogFile


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """A log file and the headers of its blocks."""

    log: LogFile
    blocks: tuple[LogBlock, ...]


class Why(StrEnum):
    """Why a block does not count."""

    CORRUPT = "corrupt"
    CHANGE_DATA = "change data"
    COMMAND = "command"
    ROLLED_BACK = "rolled back"
    NOT_COMMITTED = "not committed"
    REPEATED = "repeated"
    COMPACTED = "log-compacted"
    IN_BASE = "already in the base file"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A block that does not count. `committed` is whether the file's own instant is, which makes damage serious."""

    block: LogBlock
    why: Why
    committed: bool


@dataclass(frozen=True, slots=True)
class LogRun:
    """One block that counts. Runs of a slice merge in ascending rank; the base file is below all of them.

    `instant_time` is when the block was written; `stands_at` is the instant at whose place it stands, which differs
    for log-compacted blocks.
    """

    block: LogBlock
    rank: int
    requested_time: str
    stands_at: str

    @property
    def is_delete(self) -> bool:
        return self.block.kind is BlockKind.DELETE

    @property
    def is_partial(self) -> bool:
        return self.block.is_partial

    @property
    def is_compacted(self) -> bool:
        return self.stands_at != self.requested_time

    def has_positions_for(self, base_instant_time: str | None) -> bool:
        """Whether the record positions may be used: only against the base file they were taken from."""
        return base_instant_time is not None and self.block.positions_base_time == base_instant_time


@dataclass(frozen=True, slots=True)
class LogScan:
    """The runs of a slice, and what was left out and why."""

    runs: tuple[LogRun, ...]
    dropped: tuple[Dropped, ...]
    covered: frozenset[str] = frozenset()
    """The instants that compacted runs stand for: their own logs do not count here, and may be gone."""

    @property
    def corrupt(self) -> tuple[LogBlock, ...]:
        return tuple(item.block for item in self.dropped if item.why is Why.CORRUPT)

    def require_intact(self) -> LogScan:
        """Refuses damage in files of committed instants, for tables whose log files are written once and whole.

        A block that does not count although its file does has another instant in its header than in its name.
        """
        for item in self.dropped:
            block = item.block
            if item.why is Why.CORRUPT and item.committed:
                what = f"{block.content_length} bytes of a committed log are no block"
                raise CorruptTable(what, file=block.file, offset=block.offset)
            if item.why is Why.NOT_COMMITTED and item.committed:
                what = f"a committed log holds a block of the instant {block.requested_time}, which is not committed"
                raise CorruptTable(what, file=block.file, offset=block.offset)
        return self


def completed_by(completion_times: Mapping[str, str], until: str | None = None) -> Callable[[str], bool]:
    """A predicate for `scan_slice`: completed at all, or not later than `until`."""

    def is_committed(requested_time: str) -> bool:
        completed = completion_times.get(requested_time)
        return completed is not None and (until is None or completed <= until)

    return is_committed


def scan_slice(
    files: Iterable[ScannedLog],
    is_committed: Callable[[str], bool],
    *,
    base_instant_time: str | None = None,
) -> LogScan:
    """The runs of a slice. `base_instant_time` is that of its base file, None where it has none."""
    ordered = sorted(files, key=lambda scanned: scanned.log.order)
    tagged = [(block, scanned.log) for scanned in ordered for block in scanned.blocks]
    dropped: list[Dropped] = []
    live = _live_blocks(tagged, is_committed, dropped)
    live = _drop(live, _repeated([block for _, block in live]), Why.REPEATED, dropped)
    order = fold_order([block for _, block in live], base_instant_time)
    _drop(live, set(order.superseded), Why.COMPACTED, dropped)
    _drop(live, set(order.in_base), Why.IN_BASE, dropped)
    runs = tuple(
        LogRun(live[one.index][1], rank, live[one.index][1].requested_time, one.stands_at)
        for rank, one in enumerate(order.standing)
    )
    return LogScan(runs, tuple(dropped), order.covered)


_Positioned = tuple[int, LogBlock]  # a block and its position in the slice


def _live_blocks(
    tagged: Sequence[tuple[LogBlock, LogFile]], is_committed: Callable[[str], bool], dropped: list[Dropped]
) -> list[_Positioned]:
    """Data and delete blocks that are committed and not rolled back."""
    rolled_back: dict[str, int] = {}  # instant -> position of the last command against it
    for position, (block, _) in enumerate(tagged):
        if block.kind is BlockKind.COMMAND:
            if not block.is_rollback:
                raise UnsupportedFormat("a command block is no rollback", file=block.file, offset=block.offset)
            rolled_back[block.target_instant_time] = position
    live: list[_Positioned] = []
    known: dict[str, bool] = {}
    for position, (block, log) in enumerate(tagged):
        why = None
        if block.kind is BlockKind.CORRUPT:
            why = Why.CORRUPT
        elif block.kind is BlockKind.COMMAND:
            why = Why.COMMAND
        elif block.kind is BlockKind.CDC_DATA:
            why = Why.CHANGE_DATA
        else:
            instant = block.requested_time
            if instant not in known:
                known[instant] = is_committed(instant)
            if position < rolled_back.get(instant, -1):
                why = Why.ROLLED_BACK
            elif not known[instant]:
                why = Why.NOT_COMMITTED
        if why is None:
            live.append((position, block))
        else:
            dropped.append(Dropped(block, why, is_committed(log.requested_time)))
    return live


def _drop(
    live: Sequence[_Positioned], out: set[int], why: Why, dropped: list[Dropped], *, committed: bool = True
) -> list[_Positioned]:
    """`live` without the blocks at some indexes."""
    dropped.extend(Dropped(block, why, committed) for index, (_, block) in enumerate(live) if index in out)
    return [item for index, item in enumerate(live) if index not in out]


def _repeated(blocks: Sequence[LogBlock]) -> set[int]:
    """Indexes of blocks left by another try of the task whose blocks count.

    An identifier is `attempt,sequence`. Of several attempts of an instant the one that came furthest counts, of equals
    the first; identifiers of any other form count once each.
    """
    furthest: dict[str, tuple[int, int]] = {}  # instant -> (highest sequence, minus the attempt)
    for block in blocks:
        tried = _attempt(block)
        if tried is not None:
            reached = (tried[1], -tried[0])
            furthest[block.requested_time] = max(reached, furthest.get(block.requested_time, reached))
    seen: set[tuple[str, str]] = set()
    out: set[int] = set()
    for index, block in enumerate(blocks):
        if block.identifier is None:
            continue
        name = (block.requested_time, block.identifier)
        tried = _attempt(block)
        if name in seen or (tried is not None and -tried[0] != furthest[block.requested_time][1]):
            out.add(index)
        seen.add(name)
    return out


def _attempt(block: LogBlock) -> tuple[int, int] | None:
    attempt, comma, sequence = (block.identifier or "").partition(",")
    if comma and attempt.isascii() and attempt.isdigit() and sequence.isascii() and sequence.isdigit():
        return int(attempt[:18]), int(sequence[:18])
    return None
