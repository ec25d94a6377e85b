"""The merge kernel: rows of one window in key order, and where a key repeats.

The rows of a window are numbered through, source after source, oldest first. The answer is `order`, those numbers by
(key, age), and `first`, true where a new key starts. There are two ways to compute them:

    one source holds most rows    sort the other rows, then look up where each of their keys falls among the big
                                  source's (`searchsorted`); the big source itself is never sorted
    no source does                sort the whole window; numpy's stable sort detects ascending runs by itself

Both compare key heads (keys.py). Where heads tie, equality is decided by Arrow on the whole keys, and rows whose heads
tie without being equal are put in order by Arrow's sort: exact in every case, fast in the usual one.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.arrow_numpy import Bools, Heads, Ints, index_array, numbers, truths
from lakebed.merge.keys import Keys, WindowHeads, equal_keys

_MAX_SINGLE_SEARCHES = 256  # ambiguous look-ups done one by one before the window is sorted as a whole


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Row numbers by (key, age), and where each key starts."""

    order: Ints
    first: Bools


def order_rows(
    sources: Sequence[Sequence[tuple[int, int]]],
    unique: Sequence[bool],
    heads: WindowHeads,
    all_keys: Callable[[], pa.Array],
) -> RowOrder:
    """Order the rows of a window: `sources` are the row numbers of each source as ranges, oldest source first.

    `unique` marks the sources that repeat no key; `all_keys` returns the keys of all rows, called only if needed.
    """
    sizes = [sum(end - start for start, end in ranges) for ranges in sources]
    total = sum(sizes)
    if not total:
        return RowOrder(np.zeros(0, np.int64), np.zeros(0, np.bool_))
    big = max(range(len(sizes)), key=sizes.__getitem__)
    if unique[big] and 2 * sizes[big] >= total > sizes[big]:
        before, after = _rows(sources[:big]), _rows(sources[big + 1 :])
        found = _look_up(heads, (sources[big][0][0], sources[big][-1][1]), before, after, all_keys)
        if found is not None:
            return found
    order, first = _sort(heads, _rows(sources), all_keys)
    return RowOrder(order, first)


def _rows(sources: Sequence[Sequence[tuple[int, int]]]) -> Ints:
    """Row numbers, oldest first."""
    ranges = [np.arange(start, end) for source in sources for start, end in source]
    return np.concatenate(ranges) if ranges else np.zeros(0, np.int64)


def _sort(window: WindowHeads, rows: Ints, all_keys: Callable[[], pa.Array]) -> tuple[Ints, Bools]:
    """Rows (passed oldest first) by (key, age), and where each key starts."""
    own = window.heads[rows]
    by_head = own.argsort(kind="stable")
    order, own = rows[by_head], own[by_head]
    first = np.ones(len(order), np.bool_)
    ties = np.flatnonzero(own[1:] == own[:-1])
    if window.exact:
        first[ties + 1] = False
    elif len(ties):
        keys = all_keys()
        same = truths(equal_keys(keys, order[ties], order[ties + 1]))
        if not same.all():
            tied = np.union1d(ties, ties + 1)
            by_key = pc.array_sort_indices(keys.take(index_array(order[tied])))
            order[tied] = order[tied][numbers(by_key, np.uint64).astype(np.int64)]
            same = truths(equal_keys(keys, order[ties], order[ties + 1]))
        first[ties + 1] = ~same
    return order, first


def _look_up(
    window: WindowHeads, big: tuple[int, int], before: Ints, after: Ints, all_keys: Callable[[], pa.Array]
) -> RowOrder | None:
    """Merge few rows, older and younger than the big source, into its rows; None where heads tie too often to pay."""
    heads = window.heads
    start, end = big
    total = end - start + len(before) + len(after)
    few, few_first = _sort(window, np.concatenate([before, after]), all_keys)
    key_starts = np.flatnonzero(few_first)
    many = heads[start:end]
    wanted = heads[few[key_starts]]
    at = many.searchsorted(wanted)
    hit = many[np.minimum(at, len(many) - 1)] == wanted
    hit &= at < len(many)
    matched = (
        hit
        if window.exact
        else _match(hit, at, few[key_starts], many=many, start=start, wanted=wanted, all_keys=all_keys)
    )
    if matched is None:
        return None

    # a row goes before the big source's row of the same key if it is older than the big source, else after it
    group = np.cumsum(few_first) - 1
    older = np.isin(few, before) if len(before) else np.zeros(len(few), np.bool_)
    offsets = at[group] + (matched[group] & ~older)
    slots = offsets + np.arange(len(few))
    order = np.empty(total, np.int64)
    from_many = np.ones(total, np.bool_)
    from_many[slots] = False
    order[slots] = few
    order[np.flatnonzero(from_many)] = np.arange(start, end)  # three times faster than by the mask itself
    first = np.ones(total, np.bool_)
    first[slots] = few_first
    leads = older[key_starts]  # the key's oldest version is older than the big source
    first[slots[key_starts[matched & ~leads]]] = False
    led = at[matched & leads]
    if len(led):
        first[led + offsets.searchsorted(led, side="right")] = False
    return RowOrder(order, first)


def _match(
    hit: Bools, at: Ints, rows: Ints, *, many: Heads, start: int, wanted: Heads, all_keys: Callable[[], pa.Array]
) -> Bools | None:
    """Which wanted keys the big source has; corrects `at` where the head alone pointed to the wrong row."""
    hits = np.flatnonzero(hit)
    matched = np.zeros(len(wanted), np.bool_)
    if not len(hits):
        return matched
    keys = all_keys()
    same = truths(equal_keys(keys, at[hits] + start, rows[hits]))
    unsure = hits[~same]  # another key has the same head: search among all rows with this head
    if len(unsure) > max(_MAX_SINGLE_SEARCHES, len(wanted) // 16):
        return None
    matched[hits[same]] = True
    own = Keys(keys)
    for query, last in zip(unsure.tolist(), many.searchsorted(wanted[unsure], side="right").tolist(), strict=True):
        key = own[int(rows[query])]
        row = bisect.bisect_left(own, key, start + int(at[query]), start + last)
        at[query] = row - start
        matched[query] = row < start + last and own[row] == key
    return matched
