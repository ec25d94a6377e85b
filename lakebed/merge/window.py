"""A window: row ranges of all sources up to one key, so that every key in it is complete.

The rows of a window are numbered through, source after source, oldest first; `RowOrder`, the folds and the output all
use those numbers. `RunFacts` is what is known of each run as a whole; rows of several runs that were sorted
together carry their run's number in a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTable
from lakebed.merge.arrow_numpy import Bools, Ints, index_array, is_text, numbers, take, truths
from lakebed.merge.keys import Keys, WindowHeads, heads_of
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import COMMIT_TIME, IS_DELETED, OPERATION, ROW_COLUMN, RUN_COLUMN, Run
from lakebed.model.concat import concat, concat_batches, concat_chunks, is_large, is_wider, values

_GONE = ("D", "-U")
_MIXED_SHARE = 64


class RunFacts:
    """What the merge needs to know of each run, by its number (0 = oldest)."""

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
        self.may_stay_encoded = frozenset(schema.names) - frozenset(helpers) | {COMMIT_TIME}
        self.marks = frozenset([IS_DELETED, OPERATION] + ([rule.delete_field] if rule.delete_field else []))
        self._types = {field.name: field.type for field in schema}

    def conform(self, batch: pa.RecordBatch, number: int | None, *, encoded: bool = False) -> pa.RecordBatch:
        """Only the columns the merge needs, in the types of its output.

        With `encoded`, dictionary-encoded text stays encoded, except in columns that the merge compares.
        """
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
            if column.type != wanted and not (encoded and name in self.may_stay_encoded and encodes(column, wanted)):
                try:
                    column = _in_type(column, wanted)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise CorruptTable(f"column {name} is not {wanted}: {error}", file=name_of) from error
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, names)

    def type_of(self, name: str) -> pa.DataType | None:
        """The type in which a column goes out, if it does."""
        return self._types.get(name)

    def holds_deletes(self, number: int | None) -> bool:
        """Whether a run is a file of tombstones."""
        return number is not None and bool(self.is_delete[number])


@dataclass(frozen=True, slots=True)
class RowRange:
    """A row range of one source; `number` is None where rows of several runs are mixed."""

    batch: pa.RecordBatch
    keys: Keys
    number: int | None
    row_bytes: int = 1


class Window:
    """Pieces by source, oldest source first.

    Rows are numbered through data pieces first and pieces of tombstones last, each oldest first, so that output columns
    can leave the tombstones out. Small neighbouring pieces are joined before any column is touched: a window of many
    logs then costs as few calls as a window of one.
    """

    def __init__(self, sources: list[list[RowRange]], unique: list[bool], facts: RunFacts) -> None:
        self.facts = facts
        self.unique = unique
        self.sources = sources
        own = [(number, row_range) for number, row_ranges in enumerate(sources) for row_range in row_ranges]
        own.sort(key=lambda entry: facts.holds_deletes(entry[1].number))
        self.row_ranges = [row_range for _, row_range in own]
        sizes = [row_range.batch.num_rows for row_range in self.row_ranges]
        self.offsets: Ints = np.cumsum([0, *sizes])
        self.ranges: list[list[tuple[int, int]]] = [[] for _ in sources]
        for at, (number, _) in enumerate(own):
            self.ranges[number].append((int(self.offsets[at]), int(self.offsets[at + 1])))
        self.data_row_ranges = sum(not facts.holds_deletes(row_range.number) for row_range in self.row_ranges)
        self._parts: list[pa.RecordBatch] | None = None
        self._columns: dict[str, pa.Array] = {}

    @property
    def num_rows(self) -> int:
        return int(self.offsets[-1])

    @property
    def data_rows(self) -> int:
        """Rows that are not in a file of tombstones; they have the lower numbers."""
        return int(self.offsets[self.data_row_ranges])

    @property
    def base_may_repeat(self) -> bool:
        """Whether a key may come twice within the base file."""
        return any(
            row_range.number is None or (not is_unique and bool(self.facts.is_base[row_range.number]))
            for is_unique, row_ranges in zip(self.unique, self.sources, strict=True)
            for row_range in row_ranges
        )

    @property
    def parts(self) -> list[pa.RecordBatch]:
        """All rows as few batches; none holds both rows and tombstones of files."""
        if self._parts is None:
            if self._will_be_gathered():
                data = [row_range.batch for row_range in self.row_ranges[: self.data_row_ranges]]
                self._parts = [
                    concat_batches(data),
                    *(row_range.batch for row_range in self.row_ranges[self.data_row_ranges :]),
                ]
                return self._parts
            small = self.num_rows // 4
            self._parts = []
            group: list[pa.RecordBatch] = []
            for at, row_range in enumerate(self.row_ranges):
                batch = row_range.batch
                if group and (
                    at == self.data_row_ranges or batch.num_rows > small or not batch.schema.equals(group[0].schema)
                ):
                    self._parts.append(concat_batches(group))
                    group = []
                group.append(batch)
                if batch.num_rows > small:
                    self._parts.append(concat_batches(group))
                    group = []
            if group:
                self._parts.append(concat_batches(group))
        return self._parts

    def _will_be_gathered(self) -> bool:
        """Whether rows of several sources are so mixed that all of them will be copied: then one copy serves all.

        Sources that share few rows with the largest one leave long row ranges of it, which are output as they are.
        """
        data = self.row_ranges[: self.data_row_ranges]
        if len(data) < 2 or not all(row_range.batch.schema.equals(data[0].batch.schema) for row_range in data[1:]):
            return False
        largest = max(sum(end - start for start, end in ranges) for ranges in self.ranges)
        return (self.num_rows - largest) * _MIXED_SHARE > self.num_rows

    def joined(self, names: list[str]) -> pa.RecordBatch | None:
        """The rows that are not in files of tombstones, with these columns; None unless all parts have them alike."""
        rows = self.data_rows
        found: list[pa.RecordBatch] = []
        for part in self.parts:
            if rows <= 0:
                break
            rows -= part.num_rows
            if part.schema.names != names:
                if not set(names) <= set(part.schema.names):
                    return None
                part = part.select(names)
            if found and not part.schema.equals(found[0].schema):
                return None
            found.append(part)
        return concat_batches(found) if found else None

    def release(self) -> None:
        """Forget the rows: they have been copied, and the creator of the window still holds a reference to it."""
        for row_ranges in self.sources:
            row_ranges.clear()
        self.row_ranges, self._parts, self._columns = [], [], {}

    def column(self, name: str) -> pa.Array:
        """One column of all rows as one array; null where a run does not have it, with 64-bit offsets if need be."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = concat(self.columns(name))
        return found

    def columns(self, name: str, rows: int | None = None) -> list[pa.Array]:
        """One column part by part, of all rows or of the first so many (which must be the end of a part)."""
        known = self.facts.type_of(name)
        found: list[pa.Array | None] = []
        missing: list[int] = []
        for part in self.parts:
            if rows is not None and rows <= 0:
                break
            rows = None if rows is None else rows - part.num_rows
            index = part.schema.get_field_index(name)
            if index < 0:
                missing.append(part.num_rows)
                found.append(None)
                continue
            column = part.column(index)
            known = known or (column.type.value_type if pa.types.is_dictionary(column.type) else column.type)
            found.append(column)
        present = [column for column in found if column is not None]
        if present and known is not None and all(encodes(column, known) for column in present):
            known = present[0].type
        found = [column if column is None else _as_known(column, known) for column in found]
        if missing:
            sizes = iter(missing)
            return [pa.nulls(next(sizes), known or pa.null()) if column is None else column for column in found]
        return found

    def take(self, name: str, rows: Ints) -> pa.Array:
        """One column of some rows, as values."""
        return values(take(self.column(name), index_array(rows)))

    def has(self, name: str) -> bool:
        return any(part.schema.get_field_index(name) >= 0 for part in self.parts)

    def heads(self) -> WindowHeads:
        """Key heads of all rows."""
        key = self.facts.rule.key
        smallest = min(row_range.keys[0] for row_range in self.row_ranges)
        largest = max(row_range.keys[-1] for row_range in self.row_ranges)
        return heads_of([Keys(part.column(key)) for part in self.parts], smallest, largest)

    def run_numbers(self, rows: Ints) -> Ints:
        """Which run each row came from."""
        own = np.array(
            [-1 if row_range.number is None else row_range.number for row_range in self.row_ranges], np.int64
        )
        found: Ints = np.repeat(own, np.diff(self.offsets))[rows]
        mixed = np.flatnonzero(found < 0)
        if len(mixed):
            found[mixed] = numbers(self.column(RUN_COLUMN), np.int32)[rows[mixed]]
        return found

    def deleted(self) -> Bools | None:
        """Which rows are tombstones, by their run or by a mark they carry; None if none is."""
        flags: Bools | None = None
        for at, row_range in enumerate(self.row_ranges):
            own = _deleted(row_range, self.facts)
            if own is not None:
                flags = np.zeros(self.num_rows, np.bool_) if flags is None else flags
                flags[self.offsets[at] : self.offsets[at + 1]] = own
        return flags


def encodes(column: pa.Array, wanted: pa.DataType) -> bool:
    """Whether a column holds numbers of a dictionary of such values."""
    return bool(pa.types.is_dictionary(column.type) and column.type.value_type == wanted)


def _in_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column of a batch in another type; too large for it, a column keeps the 64-bit offsets that it came with."""
    if is_wider(column.type, wanted) and is_large(column):
        return column
    return values(column) if encodes(column, wanted) else column.cast(wanted)


def _as_known(column: pa.Array, known: pa.DataType) -> pa.Array:
    """A column in the type of its name; one with 64-bit offsets keeps them, for it may need them."""
    if column.type == known or is_wider(column.type, known):
        return column
    return values(column) if encodes(column, known) else column.cast(known)


def _deleted(row_range: RowRange, facts: RunFacts) -> Bools | None:
    """Flags of a piece's tombstones; None if there is none."""
    if row_range.number is not None:
        if facts.is_base[row_range.number]:
            return None
        if facts.is_delete[row_range.number]:
            return np.ones(row_range.batch.num_rows, np.bool_)
        if not facts.marks & facts.columns[row_range.number]:
            return None
        flags = marked(row_range.batch, facts.rule)
    else:
        own = numbers(row_range.batch.column(RUN_COLUMN), np.int32)
        flags = (marked(row_range.batch, facts.rule) & ~facts.is_base[own]) | facts.is_delete[own]
    return flags if flags.any() else None


def marked(batch: pa.RecordBatch | pa.Table, rule: MergeRule) -> Bools:
    """Data rows that are marked as deletes."""
    flags = np.zeros(batch.num_rows, np.bool_)
    names = batch.schema.names
    if IS_DELETED in names and pa.types.is_boolean(batch.schema.field(IS_DELETED).type):
        column = concat_chunks(batch.column(IS_DELETED))
        if column.true_count:
            flags |= truths(column)
    if OPERATION in names and is_text(batch.schema.field(OPERATION).type):
        column = concat_chunks(batch.column(OPERATION))
        flags |= truths(pc.is_in(column, pa.array(_GONE, column.type)))
    if rule.delete_field and rule.delete_marker is not None and rule.delete_field in names:
        column = concat_chunks(batch.column(rule.delete_field))
        text = column if is_text(column.type) else column.cast(pa.string())
        flags |= truths(pc.equal(text, pa.scalar(rule.delete_marker, text.type)))
    return flags
