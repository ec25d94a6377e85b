"""The rows of a MERGE: the source's keys in memory, the table's rows streamed past them, clauses on whole batches.

    source ──► keys ──► which rows of the table can match (key points or range, partitions) ──► scan
    each batch of the scan ──► its source rows ──► clauses ──► rows to write, keys to delete
    source rows without a match ──► clauses ──► rows to write

A source larger than its share of the memory is kept in a memory-mapped file. Deletes are keys only, and are kept in
memory until all rows are written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest, StorageUnavailable
from lakebed.expression.predicate import Predicate, is_in
from lakebed.expression.tree import And, Compare, Field, Literal
from lakebed.merge.arrow_numpy import Bools, Ints, bool_array, index_array, index_array_with_nulls, truths
from lakebed.merge.key_index import KeyIndex
from lakebed.model.ambiguous_keys import refuse_ambiguous_keys, refuse_ambiguous_paths
from lakebed.model.concat import concat, concat_batches, narrowed
from lakebed.model.record_key import KeyGenerator, partition_path_array, record_key_array
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.write.merge_into.clauses import SOURCE, TARGET, BoundClause, JoinColumns, Kind, Verb
from lakebed.write.merge_into.join_keys import as_table_values, floats_of, has_zero, with_one_zero
from lakebed.write.rows.set_expressions import assigned

MOST_POINTS = 10_000
"""Up to so many keys are looked up one by one; of more keys, the range is read."""
MOST_PARTITION_VALUES = 1_000


class SourceRows:
    """The rows of the source, by number, and their keys. A context manager: they may be in a temporary file."""

    def __init__(self, reader: pa.RecordBatchReader, memory: int) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._mapped: pa.MemoryMappedFile | None = None
        self.schema: pa.Schema = reader.schema
        self.batches = self._gather(reader, memory)
        self._ends: Ints = np.cumsum([batch.num_rows for batch in self.batches], dtype=np.int64)

    def __enter__(self) -> SourceRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.batches = []
        if self._folder is not None:
            self._folder.cleanup()

    def take(self, rows: Ints) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        """Some rows by number: their positions in `rows`, and the rows; in one batch unless they are too large."""
        found = self._taken(rows)
        start = 0
        for part in narrowed(found, self.schema):
            yield np.arange(start, start + part.num_rows), part
            start += part.num_rows

    def _taken(self, rows: Ints) -> pa.RecordBatch:
        """The same as one batch, each batch of the source read once; columns may have 64-bit offsets."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        cuts = np.searchsorted(ordered, self._ends)
        parts = []
        taken = first = 0
        for batch, end, cut in zip(self.batches, self._ends.tolist(), cuts.tolist(), strict=True):
            if cut > taken:
                parts.append(batch.take(index_array(ordered[taken:cut] - first)))
            taken, first = cut, end
        joined = concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=self.schema)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return joined.take(index_array(back))

    def _gather(self, reader: pa.RecordBatchReader, memory: int) -> list[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in reader:
            held.append(batch)
            size += batch.nbytes
            if size > memory:
                return self._spooled(held, reader)
        return held

    def _spooled(self, held: list[pa.RecordBatch], reader: pa.RecordBatchReader) -> list[pa.RecordBatch]:
        self._folder = tempfile.TemporaryDirectory(prefix="lakebed-merge-", ignore_cleanup_errors=True)
        path = str(Path(self._folder.name) / "source.arrow")
        try:
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, self.schema) as writer:
                while held:
                    writer.write_batch(held.pop(0))
                for batch in reader:
                    writer.write_batch(batch)
            self._mapped = pa.memory_map(path)
        except OSError as error:
            raise StorageUnavailable(f"cannot keep the source of a merge on disk: {error}") from error
        mapped = pa.ipc.open_file(self._mapped)
        return [mapped.get_batch(number) for number in range(mapped.num_record_batches)]


@dataclass(slots=True)
class MergeJoin:
    """One MERGE under way. `own` is the table's schema without meta columns, `columns` that of written rows."""

    source: SourceRows
    join_columns: JoinColumns
    clauses: Sequence[BoundClause]
    own: pa.Schema
    columns: pa.Schema
    generator: KeyGenerator
    moves: bool = False
    """Whether a row that changes partition is deleted in its old one here; a global index does that itself."""
    deletes: list[pa.RecordBatch] = field(default_factory=list)
    _keys: pa.Array = None
    _first: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _repeated: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    _has_match: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    _code: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _records: list[pa.Array] = field(default_factory=list)
    _values: dict[str, pa.Array] = field(default_factory=dict)
    _signed_keys: bool = False
    """Whether a key of the source is a zero: the table may have it with the other sign, as another key text."""

    def __post_init__(self) -> None:
        """Number the keys of the source; a row without a whole key matches nothing, and has the number -1."""
        texts = [self._key_texts(batch) for batch in self.source.batches]
        flat = concat(texts) if texts else pa.array([], pa.string())
        encoded = flat.dictionary_encode()
        self._keys = encoded.dictionary
        self._code = np.asarray(pc.fill_null(encoded.indices.cast(pa.int64()), -1))
        known = np.flatnonzero(self._code >= 0)
        codes, first, counts = np.unique(self._code[known], return_index=True, return_counts=True)
        self._first = np.zeros(len(self._keys), np.int64)
        self._first[codes] = known[first]
        self._repeated = np.zeros(len(self._keys), np.bool_)
        self._repeated[codes] = counts > 1
        self._has_match = np.zeros(len(self._keys), np.bool_)

    # ------------------------------------------------------------------ what to read
    @property
    def wanted(self) -> Predicate | None:
        """A condition that is true for every row of the table that a clause may change; None for all rows."""
        if any(clause.kind is Kind.ORPHAN for clause in self.clauses):
            return None
        found = [] if self._signed_keys else [self._wanted_keys()]
        for name, values in self._values.items():
            if len(values) <= MOST_PARTITION_VALUES:
                found.append(is_in(self.own.field(name), values.to_pylist()))
        return reduce(and_, found) if found else None

    def _wanted_keys(self) -> Predicate:
        keys = pc.unique(concat(self._records)) if self._records else pa.array([], pa.string())
        if len(keys) <= MOST_POINTS:
            return is_in(pa.field(RECORD_KEY, pa.string()), keys.to_pylist())
        bounds = pc.min_max(keys)
        key = Field((RECORD_KEY,), pa.string())
        ends = ((">=", bounds["min"].as_py()), ("<=", bounds["max"].as_py()))
        return Predicate(And(tuple(Compare(op, key, Literal(end, pa.string())) for op, end in ends)))

    # ------------------------------------------------------------------ rows out
    def rows(self, scanned: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows to write: updated ones, then inserted ones. `deletes` is complete after the last of them."""
        index = KeyIndex(self._keys)
        for batch in scanned:
            codes = index.find(self._match_text(*self._texts_of(batch)))
            hits = np.flatnonzero(codes >= 0)
            if len(hits):
                self._has_match[codes[hits]] = True
                yield from self._matched(batch.take(index_array(hits)), codes[hits])
            if len(hits) < batch.num_rows:
                yield from self._apply(Kind.ORPHAN, batch.take(index_array(np.flatnonzero(codes < 0))), None)
        yield from self._missing()

    def _matched(self, target: pa.RecordBatch, codes: Ints) -> Iterator[pa.RecordBatch]:
        if not any(clause.kind is Kind.MATCHED for clause in self.clauses):
            return
        twice = np.flatnonzero(self._repeated[codes])
        if len(twice):
            raise InvalidRequest(
                f"several rows of the source match the row with the key {target.column(RECORD_KEY)[int(twice[0])]}",
                hint="Keep one row per key in the source.",
            )
        for rows, source in self.source.take(self._first[codes]):
            part = target if source.num_rows == target.num_rows else target.take(index_array(rows))
            yield from self._apply(Kind.MATCHED, part, source)

    def _missing(self) -> Iterator[pa.RecordBatch]:
        if not any(clause.kind is Kind.MISSING for clause in self.clauses):
            return
        has_match = np.append(self._has_match, False)  # the last one is for rows without a key
        first = 0
        for batch in self.source.batches:
            alone = ~has_match[self._code[first : first + batch.num_rows]]
            first += batch.num_rows
            if alone.any():
                yield from self._apply(Kind.MISSING, None, batch.filter(bool_array(alone)))

    def _apply(
        self, kind: Kind, target: pa.RecordBatch | None, source: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        """Apply to each row the first clause of the kind whose condition holds."""
        clauses = [clause for clause in self.clauses if clause.kind is kind]
        if not clauses:
            return
        both = _side_by_side(target, source)
        left = np.ones(both.num_rows, np.bool_)
        for clause in clauses:
            holds = left if clause.condition is None else left & truths(clause.condition.evaluate(both))
            left = left & ~holds
            if not holds.any():
                continue
            mask = bool_array(holds)
            chosen = None if target is None else target.filter(mask)
            if clause.verb is Verb.DELETE:
                assert chosen is not None
                self.deletes.append(chosen.select([RECORD_KEY, PARTITION_PATH]))
                continue
            rows = self._made(clause, chosen, both.filter(mask))
            if chosen is not None and self.moves:
                self._delete_moved(chosen, rows)
            yield rows

    def _made(self, clause: BoundClause, target: pa.RecordBatch | None, both: pa.RecordBatch) -> pa.RecordBatch:
        """Whole rows from a clause: what it sets, else the table's row, else null."""
        columns = []
        for item in self.columns:
            if item.name in clause.values:
                columns.append(assigned(clause.values[item.name], both, item))
            elif target is not None:
                columns.append(target.column(item.name))
            else:
                columns.append(pa.nulls(both.num_rows, item.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.columns)

    def _delete_moved(self, target: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        moved = pc.not_equal(partition_path_array(self.generator, rows), target.column(PARTITION_PATH))
        if moved.true_count:
            self.deletes.append(target.filter(moved).select([RECORD_KEY, PARTITION_PATH]))

    # ------------------------------------------------------------------ keys of the source
    def _key_texts(self, batch: pa.RecordBatch) -> pa.Array:
        """The text by which source rows match rows of the table; null where a compared column is null.

        An empty text that no row of the table can have matches nothing either: a key of empty texts only, or an empty
        text in a partition column, which the table stores in the folder for null.
        """
        whole, has_key = np.ones(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_)
        columns = {}
        for name, source_name in self.join_columns.columns.items():
            kind = self.own.field(name).type
            column, equal = as_table_values(batch.column(source_name), kind)
            whole &= equal
            filled = equal
            if pa.types.is_string(kind):
                filled = truths(pc.fill_null(pc.greater(pc.binary_length(column), 0), False))
            if name in self.generator.key_fields:
                has_key |= filled
            if name in self.generator.partition.fields and self.own.field(name).nullable:
                whole &= filled
            columns[name] = column
        if not self.join_columns.columns.keys().isdisjoint(self.generator.key_fields):
            whole &= has_key
        kept = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)).filter(bool_array(whole))
        refuse_ambiguous_keys(self.generator, kept)
        kept = with_one_zero(kept, floats_of(kept.schema, kept.schema.names))
        self._signed_keys |= has_zero(kept, floats_of(kept.schema, self.generator.key_fields))
        keys = record_key_array(self.generator, kept) if kept.num_rows else pa.array([], pa.string())
        self._records.append(keys)
        if self.join_columns.by_partition:
            refuse_ambiguous_paths(self.generator, kept, self.own)
            for name in self.generator.partition.fields:
                known = [self._values[name]] if name in self._values else []
                self._values[name] = pc.unique(concat([*known, kept.column(name)]))
        paths = partition_path_array(self.generator, kept) if self.join_columns.by_partition else None
        positions = np.where(whole, np.cumsum(whole) - 1, -1).astype(np.int64)
        return self._match_text(paths, keys).take(index_array_with_nulls(positions))

    def _texts_of(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Path and key of rows of the table, made again where a float column may hold 0.0 and -0.0."""
        partitions, keys = (floats_of(self.own, names) for names in (self._partition_fields, self.generator.key_fields))
        plain = with_one_zero(batch, (*partitions, *keys)) if partitions or keys else batch
        return (
            partition_path_array(self.generator, plain) if partitions else batch.column(PARTITION_PATH),
            record_key_array(self.generator, plain) if keys else batch.column(RECORD_KEY),
        )

    @property
    def _partition_fields(self) -> tuple[str, ...]:
        return tuple(self.generator.partition.fields) if self.join_columns.by_partition else ()

    def _match_text(self, paths: pa.Array | None, keys: pa.Array) -> pa.Array:
        if not self.join_columns.by_partition or paths is None:
            return keys
        return pc.binary_join_element_wise(paths, keys, "\x00")


def _side_by_side(target: pa.RecordBatch | None, source: pa.RecordBatch | None) -> pa.RecordBatch:
    """Both sides in one batch, under `t.column` and `s.column`; names of one side only, also without prefix."""
    columns: dict[str, pa.Array] = {}
    for side, batch in ((TARGET, target), (SOURCE, source)):
        for name, column in zip(batch.schema.names, batch.columns, strict=True) if batch is not None else ():
            columns[side + name] = column
    names = [name[2:] for name in columns]
    columns |= {name[2:]: column for name, column in list(columns.items()) if names.count(name[2:]) == 1}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
