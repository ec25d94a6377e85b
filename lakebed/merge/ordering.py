"""Ordering values as integers of the same order, so that event-time merging compares integers.

A null counts as zero in a number column, as Hudi's readers take it, and as the smallest value in any other. Doubles
compare as Java's do (-0.0 below 0.0, NaN above all). Several ordering fields compare one after the other.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.arrow_numpy import Ints, index_array, numbers, truths, valid


def ordering_ranks(columns: list[pa.Array]) -> Ints:
    """One integer per row; greater means later."""
    if len(columns) == 1:
        direct = _as_integers(columns[0])
        return direct if direct is not None else _dense(columns[0])
    ranks = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        own = _dense(column)
        ranks = _dense_integers(ranks * (int(own.max(initial=0)) + 1) + own)
    return ranks


def _as_integers(column: pa.Array) -> Ints | None:
    """Values that are integers at heart, as they are."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_boolean(kind):
        return truths(column).astype(np.int64) + valid(column)
    if pa.types.is_floating(kind):
        wide = column if pa.types.is_float64(kind) else column.cast(pa.float64())
        values = np.where(valid(column), numbers(wide, np.float64), 0.0)
        values[np.isnan(values)] = np.nan  # one NaN, of positive sign
        raw = values.view(np.int64)
        ranks: Ints = raw ^ ((raw >> 63) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
        return ranks
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        wide = column if pa.types.is_int64(kind) else column.cast(pa.int64())
        return np.where(valid(column), numbers(wide, np.int64), 0)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        values = numbers(column, np.int64 if kind.bit_width == 64 else np.int32).astype(np.int64)
        return np.where(valid(column), values, np.iinfo(np.int64).min)
    return None


def _dense(column: pa.Array) -> Ints:
    """Ranks 0, 1, 2, ... of the values; equal values share one."""
    direct = _as_integers(column)
    if direct is not None:
        return _dense_integers(direct)
    kind = column.type
    if column.null_count and (pa.types.is_decimal(kind) or pa.types.is_uint64(kind)):
        zero = Decimal(0) if pa.types.is_decimal(kind) else 0
        column = pc.fill_null(column, pa.scalar(zero, kind))
    order = numbers(pc.array_sort_indices(column, null_placement="at_start"), np.uint64).astype(np.int64)
    in_order = column.take(index_array(order))
    ranks = np.zeros(len(column), np.int64)
    if len(column) > 1:
        before, after = in_order.slice(0, len(column) - 1), in_order.slice(1)
        steps = truths(pc.fill_null(pc.not_equal(before, after), False))
        steps |= valid(before) != valid(after)
        ranks[order[1:]] = np.cumsum(steps)
    return ranks


def _dense_integers(values: Ints) -> Ints:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
