"""Keys that are unique in the whole table: what is written for a row whose key is in another partition.

    one batch has a key in two partitions       one version wins, as if both were merged in one file
    the row is a delete                         it is written to the file group of the key
    the row is older than the existing row      it is a late row: nothing is written
    otherwise                                   a delete in the old file group, the row in the new one, in one commit

Only key and ordering columns are read of the old rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.index.locations import FILE_ID, INSTANT, OLD_FILE_ID, OLD_PARTITION
from lakebed.merge.arrow_numpy import Bools, Ints, bool_array, index_array, numbers, valid
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.fold import EventTime, Groups, latest
from lakebed.merge.key_index import KeyIndex
from lakebed.merge.ordering import ordering_ranks
from lakebed.merge.reader_context import ReadSplit
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.window import marked
from lakebed.model.concat import concat, concat_chunks
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.schema import IS_DELETED, OPERATION, PARTITION_PATH, RECORD_KEY
from lakebed.runner import Runner


@dataclass(frozen=True, slots=True)
class Settled:
    """Located rows, and which of them are written at all."""

    located: pa.Table
    stays: Bools


def columns_needed(rule: MergeRule, schema: pa.Schema) -> list[str]:
    """The columns of a row that decide whether it moves."""
    names = [RECORD_KEY, PARTITION_PATH, *rule.ordering, IS_DELETED, OPERATION, rule.delete_field]
    return [name for name in dict.fromkeys(names) if name is not None and name in schema.names]


def settle_moves(
    located: pa.Table,
    rule: MergeRule,
    reader: FileGroupReader,
    slices: Iterable[FileSlice],
    runner: Runner,
) -> Settled:
    """Decide about rows with `columns_needed` and their locations. Rows without `stays` are not written."""
    deleted = marked(located, rule)
    unordered = deleted & ~_has_ordering(located, rule)
    stays, forced = _one_version(located, rule, deleted, unordered)
    located = deletes_stay(located, deleted)
    moved = valid(concat_chunks(located.column(OLD_FILE_ID))) & stays & ~forced
    if not moved.any():
        return Settled(located, stays)
    if not rule.picks_whole_records:
        raise InvalidRequest(
            "rows would move to another partition, and the table combines versions of a row",
            hint="Delete them first, or set hoodie.*.index.update.partition.path=false.",
        )
    if rule.by_event_time:
        stays[np.flatnonzero(moved)[_is_late(located.filter(bool_array(moved)), rule, reader, slices, runner)]] = False
    return Settled(located, stays)


def deletes_stay(located: pa.Table, deleted: Bools | None = None) -> pa.Table:
    """Deletes go to the file group where their key was found, not to the partition in their row."""
    old = located.column(OLD_FILE_ID)
    moved = pc.is_valid(old) if deleted is None else pc.and_(pc.is_valid(old), bool_array(deleted))
    if not pc.any(moved).as_py():
        return located
    nothing = pa.scalar(None, pa.string())
    changes = {
        PARTITION_PATH: pc.if_else(moved, located.column(OLD_PARTITION), located.column(PARTITION_PATH)),
        FILE_ID: pc.if_else(moved, old, located.column(FILE_ID)),
        INSTANT: located.column(INSTANT),
        OLD_PARTITION: pc.if_else(moved, nothing, located.column(OLD_PARTITION)),
        OLD_FILE_ID: pc.if_else(moved, nothing, old),
    }
    for name, column in changes.items():
        at = located.schema.get_field_index(name)
        located = located.set_column(at, located.schema.field(at), column)
    return located


# ---------------------------------------------------------------------- one batch, two partitions
def _one_version(rows: pa.Table, rule: MergeRule, deleted: Bools, unordered: Bools) -> tuple[Bools, Bools]:
    """Which rows are written when a key is in several partitions, and which win over any row of the table.

    Rows of a key in one partition only are merged when the file is written; unless the table has the key in another
    partition: then its rows would go to the new file group and its deletes to the old one, and never be merged.
    """
    stays = np.ones(rows.num_rows, np.bool_)
    forced = np.zeros(rows.num_rows, np.bool_)
    keys, paths = _codes(rows.column(RECORD_KEY)), _codes(rows.column(PARTITION_PATH))
    order = np.lexsort((np.arange(len(keys)), keys))
    starts = _starts(keys[order])
    if not len(starts):
        return stays, forced
    spread = np.maximum.reduceat(paths[order], starts) != np.minimum.reduceat(paths[order], starts)
    spread |= np.logical_or.reduceat(valid(concat_chunks(rows.column(OLD_FILE_ID)))[order], starts)
    if not spread.any():
        return stays, forced
    among = np.repeat(spread, np.diff(np.append(starts, len(order))))
    order = order[among]
    starts = _starts(keys[order])
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    none = np.zeros(len(order), np.int64)
    groups = Groups(none, order, starts, group, none, deleted[order], unordered[order])
    barrier = groups.last(groups.unconditional) if rule.by_event_time else np.full(len(starts), -1)
    if rule.by_event_time:
        picked = rows.select(list(rule.ordering)).take(index_array(order))
        ranks = ordering_ranks([concat_chunks(picked.column(name)) for name in rule.ordering])
        winner = latest(groups, EventTime(ranks, barrier, np.arange(len(order)) > barrier[group]))
    else:
        winner = groups.ends
    stays[order] = False
    stays[order[winner]] = True
    before = barrier >= 0
    stays[order[barrier[before]]] = True
    forced[order[winner[before]]] = True
    return stays, forced


def _codes(column: pa.ChunkedArray) -> Ints:
    encoded = concat_chunks(column).dictionary_encode()
    return np.asarray(encoded.indices.cast(pa.int64()))


def _starts(ordered: Ints) -> Ints:
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else ordered


def _has_ordering(rows: pa.Table, rule: MergeRule) -> Bools:
    """Which rows carry any ordering value."""
    found = np.zeros(rows.num_rows, np.bool_)
    for name in rule.ordering:
        found |= valid(concat_chunks(rows.column(name)))
    return found


# ---------------------------------------------------------------------- against rows of the table
def _is_late(
    rows: pa.Table, rule: MergeRule, reader: FileGroupReader, slices: Iterable[FileSlice], runner: Runner
) -> Bools:
    """Which rows have a smaller ordering value than the row of their key in its old file group."""
    keys = pc.unique(rows.column(RECORD_KEY))
    wanted = {
        FileGroupId(path, file_id)
        for path, file_id in zip(
            rows.column(OLD_PARTITION).to_pylist(), rows.column(OLD_FILE_ID).to_pylist(), strict=True
        )
    }
    narrow = replace(
        reader,
        schema=pa.schema([reader.reader_context.schema.field(name) for name in (RECORD_KEY, *rule.ordering)]),
        predicate=None,
        commits=None,
    )
    tasks = [_OldRows(narrow, file_slice, keys) for file_slice in slices if file_slice.file_group in wanted]
    parts = [part for parts in runner.map(_OldRows.run, tasks, label="rows that move") for part in parts]
    if not parts:
        return np.zeros(rows.num_rows, np.bool_)
    old = pa.Table.from_batches(parts)
    known = concat_chunks(old.column(RECORD_KEY)).dictionary_encode()
    found = KeyIndex(known.dictionary).find(concat_chunks(rows.column(RECORD_KEY)))
    both = [
        concat([concat_chunks(old.column(name)), concat_chunks(rows.column(name)).cast(old.field(name).type)])
        for name in rule.ordering
    ]
    ranks = ordering_ranks(both)
    latest_of = np.full(len(known.dictionary), np.iinfo(np.int64).min)  # a base file may repeat a key
    np.maximum.at(latest_of, numbers(known.indices, np.int32), ranks[: old.num_rows])
    late: Bools = (found >= 0) & (ranks[old.num_rows :] < latest_of[np.where(found >= 0, found, 0)])
    return late


@dataclass(frozen=True, slots=True)
class _OldRows:
    """A task: the wanted rows of one slice."""

    reader: FileGroupReader
    file_slice: FileSlice
    keys: pa.Array

    def run(self) -> list[pa.RecordBatch]:
        return list(self._found())

    def _found(self) -> Iterator[pa.RecordBatch]:
        index = KeyIndex(self.keys)
        for batch in self.reader.read(ReadSplit(self.file_slice)):
            hits = np.flatnonzero(index.find(batch.column(RECORD_KEY)) >= 0)
            if len(hits):
                yield batch.take(index_array(hits))
