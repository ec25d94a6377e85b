"""Row numbers of a window to output batches, with as few copies as possible.

    long row ranges of one piece    go out as zero-copy slices
    everything else                 the parts are joined, and Arrow takes the rows, all columns in one call where it
                                    can be; dictionary-encoded text is taken as numbers, and becomes text only here,
                                    or, where a writer takes the rows, not at all

Measured on 48,000-row windows of 15 columns, a fifth of the rows replaced from logs: joining and taking costs 2 ns a
number and 7 ns a string; `take` on a chunked array is 1.3 to 2 times slower, `replace_with_mask` 3 times, and numpy
items of fixed width for strings of one length gain something only beyond 40 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.merge.arrow_numpy import Ints, index_array, index_array_with_nulls, take
from lakebed.merge.record_merger import Op
from lakebed.merge.runs import OP_COLUMN
from lakebed.merge.window import Window, encodes
from lakebed.model.concat import concat, is_wider, narrowed, values

_SLICE_ROWS = 1024  # shorter row ranges are cheaper to copy than to return as batches of their own


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows of a window that go out, in order."""

    rows: Ints
    ops: npt.NDArray[np.int8] | None = None  # with tombstones kept
    picks: dict[str, tuple[Ints, Ints]] = field(default_factory=dict)  # column -> (positions in `rows`, row or -1)
    extra: pa.RecordBatch | None = None  # merged rows, numbered after the window's own


def output_schema(schema: pa.Schema, key: pa.Field, ordering: list[pa.Field], keep_deletes: bool) -> pa.Schema:
    """The output of a merge: the wanted columns, and for kept tombstones their key, ordering values and kind."""
    if not keep_deletes:
        return schema
    for helper in (key, *ordering):
        if schema.get_field_index(helper.name) < 0:
            schema = schema.append(helper)
    return schema.append(pa.field(OP_COLUMN, pa.int8(), nullable=False))


def slice_out(batch: pa.RecordBatch, schema: pa.Schema, op: Op = Op.ROW, *, encoded: bool = False) -> pa.RecordBatch:
    """A batch of one run as output, without copying; with `encoded`, dictionary-encoded text stays encoded."""
    arrays = []
    for wanted in schema:
        index = batch.schema.get_field_index(wanted.name)
        if index >= 0:
            arrays.append(_as_wanted(batch.column(index), wanted, encoded))
        elif wanted.name == OP_COLUMN:
            arrays.append(_ops_array(np.full(batch.num_rows, op, np.int8)))
        else:
            arrays.append(pa.nulls(batch.num_rows, wanted.type))
    return _batch(arrays, schema)


def _as_wanted(column: pa.Array, wanted: pa.Field, encoded: bool) -> pa.Array:
    """A column in the type it goes out in; 64-bit offsets stay until the rows are cut to fit."""
    if column.type == wanted.type or is_wider(column.type, wanted.type):
        return column
    if encodes(column, wanted.type):
        return column if encoded else values(column)
    return column.cast(wanted.type)


def _batch(arrays: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def materialise(
    window: Window, chosen: Chosen, schema: pa.Schema, *, encoded: bool = False
) -> Iterator[pa.RecordBatch]:
    """The chosen rows as batches."""
    for batch in _batches(window, chosen, schema, encoded=encoded):
        yield from narrowed(batch, schema)


def _batches(window: Window, chosen: Chosen, schema: pa.Schema, *, encoded: bool) -> Iterator[pa.RecordBatch]:
    rows = chosen.rows
    if not len(rows):
        return
    if chosen.picks or chosen.extra is not None or (chosen.ops is not None and chosen.ops.any()):
        yield _gather(window, chosen, schema, encoded=encoded)
        return
    for start, end, is_slice in _consecutive_runs(rows):
        if is_slice:
            yield from _slices(window, int(rows[start]), end - start, schema, encoded)
        else:
            ops = None if chosen.ops is None else chosen.ops[start:end]
            yield _gather(window, Chosen(rows[start:end], ops), schema, encoded=encoded, is_last=end == len(rows))


def _consecutive_runs(rows: Ints) -> Iterator[tuple[int, int, bool]]:
    """Ranges of `rows` that are worth slicing, and the ranges between them."""
    total = len(rows)
    breaks = np.flatnonzero(rows[1:] != rows[:-1] + 1) + 1
    if len(breaks) * _SLICE_ROWS // 4 > total:
        yield 0, total, False
        return
    edges = np.concatenate([[0], breaks, [total]])
    long = np.flatnonzero(np.diff(edges) >= _SLICE_ROWS)
    done = 0
    for at in long.tolist():
        start, end = int(edges[at]), int(edges[at + 1])
        if done < start:
            yield done, start, False
        yield start, end, True
        done = end
    if done < total:
        yield done, total, False


def _slices(window: Window, first: int, count: int, schema: pa.Schema, encoded: bool) -> Iterator[pa.RecordBatch]:
    row_range = int(window.offsets[1:].searchsorted(first, side="right"))
    while count:
        start = first - int(window.offsets[row_range])
        rows = min(count, window.row_ranges[row_range].batch.num_rows - start)
        if rows:
            yield slice_out(window.row_ranges[row_range].batch.slice(start, rows), schema, encoded=encoded)
        first, count, row_range = first + rows, count - rows, row_range + 1


def _gather(
    window: Window, chosen: Chosen, schema: pa.Schema, *, encoded: bool = False, is_last: bool = False
) -> pa.RecordBatch:
    """Copy the chosen rows: all columns in one call where every part has them, else column after column."""
    index = index_array(chosen.rows)
    if chosen.ops is None and chosen.extra is None and not chosen.picks:
        joined = window.joined(schema.names)
        if joined is not None:
            if is_last:
                window.release()
            taken = take(joined, index)
            del joined
            return slice_out(taken, schema, encoded=encoded)
    # rows of files of tombstones have the highest numbers: a column that never shows them need not hold them
    limit = window.data_rows if chosen.ops is None and chosen.extra is None else None
    arrays = []
    for wanted in schema:
        if wanted.name == OP_COLUMN:
            assert chosen.ops is not None
            arrays.append(_ops_array(chosen.ops))
            continue
        arrays.append(_as_wanted(_picked(window, chosen, wanted, index, limit), wanted, encoded))
    return _batch(arrays, schema)


def _picked(window: Window, chosen: Chosen, wanted: pa.Field, index: pa.Array, limit: int | None) -> pa.Array:
    """The chosen rows of one column."""
    parts = window.columns(wanted.name, limit)
    if chosen.extra is not None:
        at = chosen.extra.schema.get_field_index(wanted.name)
        parts = [values(part) for part in parts]  # merged rows hold their values themselves
        parts.append(chosen.extra.column(at) if at >= 0 else pa.nulls(chosen.extra.num_rows, wanted.type))
    picked = chosen.picks.get(wanted.name)
    if picked is None:
        return take(concat(parts), index)
    rows = chosen.rows.copy()
    rows[picked[0]] = picked[1]
    return take(concat(parts), index_array_with_nulls(rows))


def _ops_array(ops: npt.NDArray[np.int8]) -> pa.Array:
    return pa.Array.from_buffers(pa.int8(), len(ops), [None, pa.py_buffer(np.ascontiguousarray(ops))])
