"""Rows in the order of some columns: each row gets a binary sort key, so one sort implements every order.

    linear    the columns after one another, in bytes that compare as their values do; nulls first
    z-order   the bits of the columns' ranks, interleaved
    hilbert   the position on Hilbert's curve through the same ranks: neighbours on it are neighbours in every column

Ranks are positions among quantiles of a sample (a value that repeats takes several, and has the first of them), so that
a column of few or small values counts for as much as one of many or large ones. A prefix that all text of a column has
in common is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.clustering_options import Curve
from lakebed.errors import InvalidRequest
from lakebed.merge.arrow_numpy import Heads, numbers, valid
from lakebed.merge.keys import Keys, shared_prefix
from lakebed.model.concat import concat_chunks

SAMPLE_ROWS = 1 << 16
_MOST_BITS = 12
_SIGN = np.uint64(1 << 63)
_ESCAPED = {b"\x00": b"\x00\xff"}
Ranks = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class RowOrdering:
    """The order, and the quantiles and common prefixes of the columns; picklable."""

    columns: tuple[str, ...]
    curve: Curve
    prefixes: tuple[int, ...] = ()
    bounds: tuple[tuple[int, ...], ...] = ()

    @property
    def bits(self) -> int:
        return min(_MOST_BITS, 63 // len(self.columns))

    def learned(self, batches: Iterable[pa.RecordBatch]) -> RowOrdering:
        """The same with the quantiles of rows; linear order needs none."""
        if self.curve is Curve.LINEAR:
            return self
        table = _sample(batches, self.columns)
        prefixes, bounds = [], []
        for name in self.columns:
            column = concat_chunks(table.column(name)) if table is not None else pa.array([], pa.int64())
            prefix = _common_prefix(column)
            found = np.sort(_ordered(column, prefix))
            positions = np.linspace(0, max(len(found) - 1, 0), 1 << self.bits).astype(np.int64)
            prefixes.append(prefix)
            bounds.append(tuple(found[positions].tolist()) if len(found) else ())
        return RowOrdering(self.columns, self.curve, tuple(prefixes), tuple(bounds))

    def keys(self, batch: pa.RecordBatch) -> pa.Array:
        """The sort key of every row."""
        if self.curve is Curve.LINEAR:
            return _linear([batch.column(name) for name in self.columns])
        ranks = [
            np.searchsorted(np.asarray(bounds, np.uint64), _ordered(batch.column(name), prefix)).astype(np.uint64)
            for name, prefix, bounds in zip(self.columns, self.prefixes, self.bounds, strict=True)
        ]
        ranks = [np.minimum(rank, np.uint64((1 << self.bits) - 1)) for rank in ranks]
        positions = interleaved(hilbert(ranks, self.bits) if self.curve is Curve.HILBERT else ranks, self.bits)
        return _fixed(positions)


def check_sortable(columns: Sequence[str], schema: pa.Schema) -> None:
    """`InvalidRequest` for columns that are not there or have no order."""
    for name in columns:
        if name not in schema.names:
            raise InvalidRequest(f"the table has no column {name!r} to sort by")
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise InvalidRequest(f"rows cannot be sorted by {name!r}, which is {kind}")


def interleaved(ranks: Sequence[Ranks], bits: int) -> Ranks:
    """The bits of several numbers interleaved, the first number's before the others'."""
    found = np.zeros(len(ranks[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            found = (found << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
    return found


def hilbert(ranks: Sequence[Ranks], bits: int) -> list[Ranks]:
    """Coordinates whose interleaved bits are the position on Hilbert's curve (Skilling's transform)."""
    axes = [rank.copy() for rank in ranks]
    high = np.uint64(1 << (bits - 1))
    bit = high
    while bit > 1:
        mask = bit - np.uint64(1)
        for at, axis in enumerate(axes):
            is_set = (axis & bit) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & mask)
            axes[0] = np.where(is_set, axes[0] ^ mask, axes[0] ^ swapped)
            if at:
                axes[at] = axis ^ swapped
        bit >>= np.uint64(1)
    for at in range(1, len(axes)):
        axes[at] = axes[at] ^ axes[at - 1]
    turned = np.zeros(len(axes[0]), np.uint64)
    bit = high
    while bit > 1:
        turned = np.where((axes[-1] & bit) != 0, turned ^ (bit - np.uint64(1)), turned)
        bit >>= np.uint64(1)
    return [axis ^ turned for axis in axes]


# ---------------------------------------------------------------------- values as bytes and numbers
def _linear(columns: Sequence[pa.Array]) -> pa.Array:
    parts: list[pa.Array] = []
    for column in map(_plain, columns):
        present = valid(column)
        parts.append(_fixed_bytes(present.astype(np.uint8)))
        if _is_text(column.type):
            text = pc.fill_null(column.cast(pa.binary()), b"")
            for old, new in _ESCAPED.items():
                text = pc.replace_substring(text, pattern=old, replacement=new)
            parts += [text, pa.scalar(b"\x00\x00", pa.binary())]
        else:
            parts.append(_fixed(_ordered(column, 0)))
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _ordered(column: pa.Array, prefix: int) -> Heads:
    """Numbers that ascend with the values; null is the least."""
    column = _plain(column)
    present = valid(column)
    kind = column.type
    if _is_text(kind):
        found = Keys(pc.fill_null(column.cast(pa.binary()), b"")).heads(prefix)
    elif pa.types.is_floating(kind):
        raw = numbers(pc.fill_null(column.cast(pa.float64()), 0.0), np.uint64)
        found = np.where(raw >> np.uint64(63) != 0, ~raw, raw | _SIGN)
    else:
        found = numbers(pc.fill_null(_whole_numbers(column), 0), np.int64).view(np.uint64) ^ _SIGN
    return np.where(present, found, np.uint64(0))


def _whole_numbers(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.int64(), safe=False)
    width = kind.bit_width
    return column.view(pa.int32() if width == 32 else pa.int64()).cast(pa.int64())


def _plain(column: pa.Array) -> pa.Array:
    """Dictionaries and decimals as types with an order of their own bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _common_prefix(column: pa.Array) -> int:
    if not _is_text(column.type) or len(column) == column.null_count:
        return 0
    ends = pc.min_max(column.cast(pa.binary()))
    return shared_prefix(ends["min"].as_py(), ends["max"].as_py())


def _sample(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> pa.Table | None:
    """Some rows from everywhere: every n-th, and every second of those once they are too many."""
    held: list[pa.RecordBatch] = []
    rows = seen = 0
    stride = 1
    for batch in batches:
        first = -seen % stride
        seen += batch.num_rows
        part = _every(batch.select(list(columns)), first, stride)
        held.append(part)
        rows += part.num_rows
        while rows > SAMPLE_ROWS:
            stride *= 2
            held = [_every(one, 0, 2) for one in held]
            rows = sum(one.num_rows for one in held)
    return pa.Table.from_batches(held) if held else None


def _every(batch: pa.RecordBatch, first: int, stride: int) -> pa.RecordBatch:
    return batch.take(pa.array(range(first, batch.num_rows, stride), pa.int64()))


def _fixed(values: Ranks) -> pa.Array:
    """Eight bytes each, most significant first."""
    data = pa.py_buffer(np.ascontiguousarray(values.astype(">u8")))
    return pa.Array.from_buffers(pa.binary(8), len(values), [None, data]).cast(pa.binary())


def _fixed_bytes(values: npt.NDArray[np.uint8]) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.binary(1), len(values), [None, data]).cast(pa.binary())


def with_keys(batches: Iterable[pa.RecordBatch], ordering: RowOrdering, name: str) -> Iterator[pa.RecordBatch]:
    """Batches with their sort keys in a column more."""
    for batch in batches:
        yield batch.append_column(name, ordering.keys(batch))
