"""A window: stretches of all sources that end at one key, so that every key in it is complete.

The rows of a window are numbered through, source after source, oldest first; `RowOrder`, the folds and the output all
speak in those numbers. `RunFacts` is what is known of each run as a whole; rows of several runs that were sorted
together carry their run's number in a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTable
from lakebed.merge.keys import Keys
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import COMMIT_TIME, IS_DELETED, OPERATION, ROW_COLUMN, RUN_COLUMN, Run
from lakebed.merge.vectors import Bools, Ints, index_array, is_text, numbers, truths

_GONE = pa.array(["D", "-U"])


class RunFacts:
    """What the merge knows of each run, by its number (0 = oldest)."""

    def __init__(self, runs: Sequence[Run], rule: MergeRule, schema: pa.Schema) -> None:
        self.runs = list(runs)
        self.rule = rule
        self.schema = schema
        self.is_delete: Bools = np.array([run.is_delete for run in runs], np.bool_)
        self.is_base: Bools = np.array([run.is_base for run in runs], np.bool_)
        self.is_partial: Bools = np.array([run.is_partial for run in runs], np.bool_)
        self.columns: list[frozenset[str]] = [frozenset()] * len(self.runs)
        helpers = [rule.key, *rule.ordering, IS_DELETED, OPERATION, RUN_COLUMN, ROW_COLUMN]
        helpers += [rule.delete_field] if rule.delete_field else []
        helpers += [COMMIT_TIME] if rule.by_event_time else []
        self.wanted = frozenset(schema.names) | frozenset(helpers)
        self._types = {field.name: field.type for field in schema}

    def conform(self, batch: pa.RecordBatch, number: int | None) -> pa.RecordBatch:
        """Only the columns the merge needs, in the types it hands out."""
        names = [name for name in batch.schema.names if name in self.wanted]
        name_of = self.runs[number].name if number is not None else "merged runs"
        if number is not None and not self.columns[number]:
            self.columns[number] = frozenset(names)
        if self.rule.key not in names:
            raise CorruptTable(f"has no column {self.rule.key}", file=name_of)
        arrays = []
        for name in names:
            column = batch.column(name)
            wanted = self._types.get(name, column.type)
            if name == self.rule.key and not is_text(wanted):
                wanted = pa.string()
            if column.type != wanted:
                try:
                    column = column.cast(wanted)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise CorruptTable(f"column {name} is not {wanted}: {error}", file=name_of) from error
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, names)

    def field(self, name: str) -> pa.Field | None:
        """The output's field of that name."""
        index = self.schema.get_field_index(name)
        return self.schema.field(index) if index >= 0 else None


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one source; `number` is None where rows of several runs are mixed."""

    batch: pa.RecordBatch
    keys: Keys
    number: int | None


@dataclass(slots=True)
class Window:
    """Pieces by source, oldest source first."""

    sources: list[list[Piece]]
    unique: list[bool]
    facts: RunFacts
    pieces: list[Piece] = field(init=False)
    offsets: Ints = field(init=False)
    _columns: dict[str, pa.Array] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pieces = [piece for source in self.sources for piece in source]
        self.offsets = np.cumsum([0] + [piece.batch.num_rows for piece in self.pieces])

    @property
    def num_rows(self) -> int:
        return int(self.offsets[-1])

    def column(self, name: str) -> pa.Array:
        """One column of all rows as one array; null where a run does not have it."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self.joined(name)
        return found

    def joined(self, name: str) -> pa.Array:
        """The same, not kept for later."""
        found = self._columns.get(name)
        return concat(self.columns(name)) if found is None else found

    def columns(self, name: str) -> list[pa.Array]:
        """One column of all rows, piece by piece."""
        known = self.facts.field(name)
        kind = known.type if known is not None else None
        parts: list[pa.Array | None] = []
        for piece in self.pieces:
            index = piece.batch.schema.get_field_index(name)
            part = piece.batch.column(index) if index >= 0 else None
            if part is not None:
                kind = kind or part.type
                part = part if part.type == kind else part.cast(kind)
            parts.append(part)
        kind = kind or pa.null()
        return [
            pa.nulls(piece.batch.num_rows, kind) if part is None else part
            for piece, part in zip(self.pieces, parts, strict=True)
        ]

    def take(self, name: str, rows: Ints) -> pa.Array:
        """One column of some rows; copies only what the wanted pieces hold."""
        return self.column(name).take(index_array(rows))

    def has(self, name: str) -> bool:
        return any(piece.batch.schema.get_field_index(name) >= 0 for piece in self.pieces)

    def run_numbers(self, rows: Ints) -> Ints:
        """Which run each row came from."""
        of_piece = self.offsets[1:].searchsorted(rows, side="right")
        numbers_: Ints = np.array([-1 if piece.number is None else piece.number for piece in self.pieces], np.int64)
        found = numbers_[of_piece]
        mixed = np.flatnonzero(found < 0)
        if len(mixed):
            own = numbers(self.column(RUN_COLUMN), np.int32)
            found[mixed] = own[rows[mixed]]
        return found

    def deleted(self) -> Bools | None:
        """Which rows are tombstones, by their run or by a mark they carry; None if none is."""
        flags: list[Bools] = []
        for piece in self.pieces:
            flags.append(_deleted(piece, self.facts))
        if not any(flag.any() for flag in flags):
            return None
        return np.concatenate(flags)


def concat(parts: list[pa.Array]) -> pa.Array:
    """One array; a single part is not copied."""
    parts = [part for part in parts if len(part)] or parts[:1]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _deleted(piece: Piece, facts: RunFacts) -> Bools:
    rows = piece.batch.num_rows
    if piece.number is not None:
        if facts.is_base[piece.number]:
            return np.zeros(rows, np.bool_)
        if facts.is_delete[piece.number]:
            return np.ones(rows, np.bool_)
        return marked(piece.batch, facts.rule)
    own = numbers(piece.batch.column(RUN_COLUMN), np.int32)
    return (marked(piece.batch, facts.rule) & ~facts.is_base[own]) | facts.is_delete[own]


def marked(batch: pa.RecordBatch | pa.Table, rule: MergeRule) -> Bools:
    """Data rows that say they are deletes."""
    flags = np.zeros(batch.num_rows, np.bool_)
    names = batch.schema.names
    if IS_DELETED in names and pa.types.is_boolean(batch.schema.field(IS_DELETED).type):
        column = concat_chunks(batch.column(IS_DELETED))
        if column.true_count:
            flags |= truths(column)
    if OPERATION in names and is_text(batch.schema.field(OPERATION).type):
        column = concat_chunks(batch.column(OPERATION))
        flags |= truths(pc.is_in(column, _GONE.cast(column.type)))
    if rule.delete_field and rule.delete_marker is not None and rule.delete_field in names:
        column = concat_chunks(batch.column(rule.delete_field))
        text = column if is_text(column.type) else column.cast(pa.string())
        flags |= truths(pc.equal(text, pa.scalar(rule.delete_marker, text.type)))
    return flags


def concat_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of a batch or a table as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return concat(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
