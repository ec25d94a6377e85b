"""Archived actions as Arrow columns, and the operations on them: sorting, ranges, instants.

    requested_time, completion_time, action: string        always
    metadata, plan: binary                                 whole timeline files, only when bodies are requested

A history has millions of rows, and nearly all have the same form: times of 17 digits, one of a few action names, in
ascending order. So each function first checks whether the columns have that form, chunk by chunk (a chunk is a file,
and fits into a processor's cache), and is slower only where they do not: for 14-digit times of old tables and for
overlapping files.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.instant import Action, Instant, State
from lakebed.timeline.clock import INSTANT_LENGTH, LEGACY_LENGTH, comparable

REQUESTED, COMPLETED, ACTION = "requested_time", "completion_time", "action"
METADATA, PLAN = "metadata", "plan"
STORED = {"instantTime": REQUESTED, "completionTime": COMPLETED, "action": ACTION, "metadata": METADATA, "plan": PLAN}
"""Column names in the files, and here."""
TIMES_SCHEMA = pa.schema([(name, pa.string()) for name in (REQUESTED, COMPLETED, ACTION)])
BODIES_SCHEMA = pa.schema([*TIMES_SCHEMA, pa.field(METADATA, pa.binary()), pa.field(PLAN, pa.binary())])
_ACTIONS = {str(action): action for action in Action}
KNOWN_ACTIONS = pa.array(list(_ACTIONS))


def words(actions: Iterable[Action]) -> pa.Array:
    """The names of actions in the action column."""
    return pa.array([str(action) for action in actions], pa.string())


def instants_of(table: pa.Table) -> list[Instant]:
    """Rows of a history table as instants.

    Every row has both times and a known action name, so there is nothing to check row by row: the instants are created
    empty and filled a field at a time, without interpreted code per row. A constructor call for each takes over twice
    as long. None of the objects can be garbage before all are made, so the garbage collector is paused.
    """
    with _collector_paused():
        instants = list(map(object.__new__, repeat(Instant, table.num_rows)))
        fields: dict[str, Iterable[object]] = {
            "requested_time": table[REQUESTED].to_pylist(),
            "action": _actions_of(table[ACTION]),
            "state": repeat(State.COMPLETED),
            "completion_time": table[COMPLETED].to_pylist(),
        }
        for name, values in fields.items():
            deque(map(getattr(Instant, name).__set__, instants, values), maxlen=0)
    return instants


def comparable_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`clock.comparable` for a column."""
    if all(_have_17_bytes(chunk) for chunk in column.chunks):
        return column
    short = pc.equal(pc.utf8_length(column), LEGACY_LENGTH)
    return pc.if_else(short, pc.binary_join_element_wise(column, "999", ""), pc.utf8_slice_codeunits(column, 0, 17))


def within(table: pa.Table, column: str, low: str | None, high: str | None) -> pa.Table:
    """Rows whose time lies within [low, high]."""
    if low is not None:
        table = table.filter(pc.greater_equal(comparable_times(table[column]), comparable(low)))
    if high is not None:
        table = table.filter(pc.less_equal(comparable_times(table[column]), comparable(high)))
    return table


def after(table: pa.Table, column: str, start: str | None) -> pa.Table:
    """Rows whose time is after `start`."""
    if start is None:
        return table
    return table.filter(pc.greater(comparable_times(table[column]), comparable(start)))


def in_order(parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Rows by requested time, each action once: levels may overlap after an interrupted compaction of the history.

    Parts come oldest first and are sorted, so mostly there is nothing to do.
    """
    table = pa.concat_tables([schema.empty_table(), *parts])
    if ascends(table[REQUESTED]):
        return table
    numbered = table.append_column("row", pa.array(np.arange(table.num_rows)))
    first = numbered.group_by([REQUESTED, ACTION]).aggregate([("row", "min")])
    table = table.take(first["row_min"])
    keyed = table.select([ACTION]).append_column("time", comparable_times(table[REQUESTED]))
    return table.take(pc.sort_indices(keyed, [("time", "ascending"), (ACTION, "ascending")]))


def ascends(times: pa.ChunkedArray) -> bool:
    """Whether times of 17 digits strictly ascend; they are compared as integers, which is faster than as strings."""
    before = -1
    for chunk in times.chunks:
        if not len(chunk):
            continue
        if not (_have_17_bytes(chunk) and _all_digits(chunk)):
            return False
        numbers = chunk.cast(pa.int64()).to_numpy()
        if numbers[0] <= before or not (numbers[1:] > numbers[:-1]).all():
            return False
        before = numbers[-1]
    return True


def are_times(column: pa.ChunkedArray) -> bool:
    """Whether every string is a time; 17 digits each is the common case, checked without a look at single strings."""
    if all(_have_17_bytes(chunk) for chunk in column.chunks):
        return all(_all_digits(chunk) for chunk in column.chunks if len(chunk))
    return bool(pc.all(pc.match_substring_regex(column, "^[0-9]{14,32}$"), min_count=0).as_py())


def _have_17_bytes(texts: pa.Array) -> bool:
    if not len(texts):
        return True
    ends = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    return texts.null_count == 0 and bool((ends[1:] - ends[:-1] == INSTANT_LENGTH).all())


def _all_digits(texts: pa.Array) -> bool:
    """Whether texts of 17 bytes each hold nothing but digits."""
    _, offsets, data = texts.buffers()
    start = int(np.frombuffer(offsets, np.int32, 1, 4 * texts.offset)[0])
    found = np.frombuffer(data, np.uint8, INSTANT_LENGTH * len(texts), start)
    return bool(found.min() >= ord("0") and found.max() <= ord("9"))


def _actions_of(column: pa.ChunkedArray) -> list[Action]:
    """Names as actions, each distinct name looked up once."""
    found: list[Action] = []
    for chunk in column.chunks:
        encoded = chunk.dictionary_encode()
        actions = np.array([_ACTIONS[word] for word in encoded.dictionary.to_pylist()], dtype=object)
        found += actions[encoded.indices.to_numpy()].tolist()
    return found


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pauses the garbage collector; if it was off before, it stays off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
