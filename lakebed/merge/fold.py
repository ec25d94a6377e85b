"""Which version of a repeated key survives, for all repeated keys of a window at once.

The versions of a key are in fold order, base first. Folding them one by one would be a loop per row; these rules have
a closed form over segments (`numpy.ufunc.reduceat`):

    commit time    the last version
    event time     everything up to the last *unconditional* delete is gone, and whatever follows it beats it; of the
                   versions after it the greatest ordering value wins, the later one of equals. A delete with an
                   ordering value is a version like any other

One exception to "the later one of equals": a base row of a later commit than the log row it ties with wins (with
non-blocking concurrent writers a compaction may run in between, and the answer must not depend on when).

A base file that others wrote may repeat a key. While no log holds the key, its rows stay as they are, all of them; once
one does, the base rows of that key are versions like any other, in file order, below those of the logs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.arrow_numpy import Bools, Ints, index_array, truths, valid
from lakebed.merge.ordering import ordering_ranks
from lakebed.merge.row_order import RowOrder
from lakebed.merge.runs import COMMIT_TIME
from lakebed.merge.window import Window


@dataclass(frozen=True, slots=True)
class Groups:
    """The versions of all repeated keys of a window, key after key, oldest version first."""

    slots: Ints  # position of each version in the row order
    rows: Ints  # its row number in the window
    starts: Ints  # where each key starts in the two above
    group: Ints  # number of the key each version belongs to
    runs: Ints  # run each version came from
    deleted: Bools
    unconditional: Bools  # deletes without ordering value

    @property
    def ends(self) -> Ints:
        return np.append(self.starts[1:], len(self.rows)) - 1

    def last(self, wanted: Bools) -> Ints:
        """Per key, the last version that is wanted; -1 if none."""
        return np.maximum.reduceat(np.where(wanted, np.arange(len(wanted)), -1), self.starts)

    def first(self, wanted: Bools) -> Ints:
        """Per key, the first version that is wanted; -1 if none."""
        found = np.minimum.reduceat(np.where(wanted, np.arange(len(wanted)), len(wanted)), self.starts)
        return np.where(found == len(wanted), -1, found)


def repeated_keys(window: Window, ordered: RowOrder, deleted: Bools | None) -> Groups | None:
    """The repeated keys that a log holds; duplicates inside a base file alone are left as they are."""
    first, order = ordered.first, ordered.order
    later = np.flatnonzero(~first)
    if not len(later):
        return None
    starts = later[first[later - 1]] - 1
    followed = np.append(first, True)[later + 1]
    sizes = later[followed] - starts + 1
    group_starts = np.cumsum(sizes) - sizes
    slots = np.repeat(starts - group_starts, sizes) + np.arange(int(sizes.sum()))
    group = np.repeat(np.arange(len(starts)), sizes)
    rows = order[slots]
    runs = window.run_numbers(rows)
    only_base = np.zeros(0, np.bool_)
    if window.base_may_repeat:
        only_base = np.logical_and.reduceat(window.facts.is_base[runs], group_starts)
    if only_base.any():
        keep = ~only_base[group]
        if not keep.any():
            return None
        slots, rows, runs, sizes = slots[keep], rows[keep], runs[keep], sizes[~only_base]
        group_starts = np.cumsum(sizes) - sizes
        group = np.repeat(np.arange(len(sizes)), sizes)
    gone = np.zeros(len(rows), np.bool_) if deleted is None else deleted[rows]
    return Groups(slots, rows, group_starts, group, runs, gone, without_ordering(window, rows, gone))


def without_ordering(window: Window, rows: Ints, deleted: Bools) -> Bools:
    """Deletes that carry no ordering value at all."""
    at = np.flatnonzero(deleted)
    found = deleted.copy()
    if not len(at):
        return found
    for name in window.facts.rule.ordering:
        if window.has(name):
            found[at] &= ~valid(window.take(name, rows[at]))
    return found


@dataclass(frozen=True, slots=True)
class EventTime:
    """How versions compare by event time."""

    ranks: Ints  # compare these, within a key
    barrier: Ints  # per key, the last unconditional delete; -1 if none
    counts: Bools  # versions after the barrier


def event_time(window: Window, groups: Groups) -> EventTime:
    """Ordering values of all versions, ties with the base already decided."""
    columns = [window.take(name, groups.rows) for name in window.facts.rule.ordering]
    ranks = ordering_ranks(columns)
    barrier = groups.last(groups.unconditional)
    counts = np.arange(len(ranks)) > barrier[groups.group]
    return EventTime(_decide_ties(window, groups, ranks), barrier, counts)


def _decide_ties(window: Window, groups: Groups, ranks: Ints) -> Ints:
    """Lower the rank of log versions that tie with a base row of a later commit."""
    is_base = window.facts.is_base[groups.runs]
    if not is_base.any() or not window.has(COMMIT_TIME):
        return ranks
    lowest = np.iinfo(np.int64).min
    best = np.maximum.reduceat(np.where(is_base, ranks, lowest), groups.starts)
    base = groups.last(is_base & (ranks == best[groups.group]))[groups.group]
    tied = np.flatnonzero((base >= 0) & ~is_base & (ranks == ranks[base]))
    if not len(tied):
        return ranks
    base_time = window.take(COMMIT_TIME, groups.rows[base[tied]])
    own_time = window.take(COMMIT_TIME, groups.rows[tied])
    instants = pa.array([run.requested_time or None for run in window.facts.runs], own_time.type)
    own_time = pc.coalesce(own_time, instants.take(index_array(groups.runs[tied])))
    base_wins = truths(pc.fill_null(pc.greater(base_time, own_time), False))
    if not base_wins.any():
        return ranks
    dense = np.unique(ranks, return_inverse=True)[1].astype(np.int64) * 2 + 1
    dense[tied[base_wins]] -= 1
    return dense


def latest(groups: Groups, times: EventTime) -> Ints:
    """Per key, the version that wins by event time (an unconditional delete if nothing follows it)."""
    scores = np.where(times.counts, times.ranks, np.iinfo(np.int64).min)
    best = np.maximum.reduceat(scores, groups.starts)
    winner = groups.last(times.counts & (scores == best[groups.group]))
    return np.where(winner < 0, times.barrier, winner)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Per repeated key: the version that wins, whether it is a tombstone, and a delete to keep before it (or -1)."""

    winner: Ints
    gone: Bools
    barrier: Ints


def whole_records(window: Window, groups: Groups) -> Verdict:
    """One version of each key survives as it is."""
    if not window.facts.rule.by_event_time:
        winner = groups.ends
        return Verdict(winner, groups.deleted[winner], np.full(len(winner), -1))
    times = event_time(window, groups)
    winner = latest(groups, times)
    barrier = np.where(times.barrier == winner, -1, times.barrier)
    return Verdict(winner, groups.deleted[winner], barrier)
