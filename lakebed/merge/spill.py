"""Spilling to disk: sorted parts of unsorted runs, and runs merged in passes, as Arrow files.

Rows of several runs that are sorted together keep their run's number in a column, and nothing is folded on the way:
versions of a key stay side by side in fold order. So a pass cannot change an answer, whatever the merge rule, and needs
no notion of which rules may be applied in parts.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import SORT_READS
from lakebed.errors import StorageUnavailable
from lakebed.merge.arrow_numpy import Ints, Memory, index_array, is_text, memory_of, take
from lakebed.merge.keys import Keys, check_keys, heads_of
from lakebed.merge.row_order import order_rows
from lakebed.merge.runs import RUN_COLUMN, Run
from lakebed.merge.window import RunFacts, Window
from lakebed.model.concat import ColumnBytes, concat, is_wider, narrowed, values
from lakebed.model.nested_cast import cast_column

STORED_BATCH = 64 << 10
_SAMPLE_ROWS = 1024
_LARGEST_DICTIONARY = 512 << 10


class Spill:
    """A temporary folder that is made when first needed and removed with the merge."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self.files = 0

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Callable[[int], Iterator[pa.RecordBatch]]:
        """Write batches of one schema; the returned function reads them back in slices of the requested size."""
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="lakebed-merge-"))
            path = self._folder / f"{self.files}.arrow"
            self.files += 1
            writer: pa.RecordBatchStreamWriter | None = None
            with pa.OSFile(str(path), "wb") as sink:
                for batch in batches:
                    if writer is None:
                        writer = pa.ipc.new_stream(sink, batch.schema)
                    writer.write_batch(batch)
                if writer is not None:
                    writer.close()
        except OSError as error:
            raise StorageUnavailable(f"cannot spill a merge to disk: {error}") from error
        return lambda rows: _read(path, rows)


def _read(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    if path.stat().st_size == 0:
        return
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield from sliced(batch, rows)


def sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """A batch in slices of at most so many rows."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch cut for disk: reading one row of a stored batch holds all of it in memory, and many are read at once."""
    return sliced(batch, max(16, STORED_BATCH * batch.num_rows // max(batch.nbytes, 1)))


class Sorted:
    """A sorted piece: rows of one or several neighbouring runs, in memory or on disk."""

    def __init__(
        self, table: pa.RecordBatch, open_rows: Callable[[int], Iterator[pa.RecordBatch]], unique: bool
    ) -> None:
        self.row_bytes = max(1, table.nbytes // max(table.num_rows, 1))
        self.nbytes = table.nbytes
        self.num_rows = table.num_rows
        self.open = open_rows
        self.unique = unique


def sort_runs(
    runs: list[tuple[int, Run]],
    facts: RunFacts,
    spill: Spill,
    *,
    buffer_bytes: int,
    keep_bytes: int,
    encoded: bool = False,
) -> Iterator[Sorted]:
    """Neighbouring unsorted runs as sorted pieces, oldest rows first; past `keep_bytes` they go to disk.

    A piece ends at `buffer_bytes`, or where one of its columns would grow too large to be joined. With `encoded`, text
    that repeats comes out dictionary-encoded.
    """
    held: list[pa.RecordBatch] = []
    columns = ColumnBytes()
    size = kept = 0

    def flush() -> Sorted:
        nonlocal kept, size
        whole, unique = sorted_rows(held, facts, encoded)
        held.clear()
        columns.clear()
        size = 0
        if kept + whole.nbytes <= keep_bytes:
            kept += whole.nbytes
            return Sorted(whole, lambda rows: sliced(whole, rows), unique)
        return Sorted(whole, spill.write(small_batches(whole)), unique)

    for batch in numbered_rows(runs, facts, buffer_bytes, encoded=encoded):
        nbytes = batch.nbytes
        if not columns.has_room(batch, nbytes):
            yield flush()
        held.append(batch)
        columns.add(batch, nbytes)
        size += nbytes
        if size >= buffer_bytes:
            yield flush()
    if held:
        yield flush()


def gather_runs(runs: list[tuple[int, Run]], facts: RunFacts, most_bytes: int) -> list[pa.RecordBatch] | None:
    """All rows of some runs, oldest first, each with its run's number; None where they are too many to be one batch."""
    held: list[pa.RecordBatch] = []
    columns = ColumnBytes()
    size = 0
    for batch in numbered_rows(runs, facts, most_bytes):
        nbytes = batch.nbytes
        size += nbytes
        if size > most_bytes or not columns.has_room(batch, nbytes):
            return None
        held.append(batch)
        columns.add(batch, nbytes)
    return held


def numbered_rows(
    runs: list[tuple[int, Run]], facts: RunFacts, buffer_bytes: int, *, encoded: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of some runs in the columns that the merge needs, each with its run's number."""
    for number, run in runs:
        rows = max(1, buffer_bytes // SORT_READS // (run.row_bytes or 256))
        for batch in run.open(rows):
            if batch.num_rows:
                batch = facts.conform(batch, number, encoded=encoded)
                check_keys(batch.column(facts.rule.key), run.name)
                own = np.full(batch.num_rows, number, np.int32)
                index = pa.Array.from_buffers(pa.int32(), batch.num_rows, [None, pa.py_buffer(own)])
                yield batch.append_column(RUN_COLUMN, index)


def sorted_rows(batches: list[pa.RecordBatch], facts: RunFacts, encoded: bool) -> tuple[pa.RecordBatch, bool]:
    """Batches of several runs as one by (key, age, position in the run), and whether no key repeats.

    One column at a time is there twice. Columns that are the same memory are moved once.
    """
    names = list(dict.fromkeys(name for batch in batches for name in batch.schema.names))
    keys = concat([batch.column(facts.rule.key) for batch in batches])
    ends = pc.min_max(keys)
    smallest, largest = (ends[name].as_buffer().to_pybytes() for name in ("min", "max"))
    heads = heads_of([Keys(keys)], smallest, largest)
    ordered = order_rows([[(0, len(keys))]], [False], heads, lambda: keys)
    order = index_array(ordered.order)
    moved: dict[tuple[Memory, ...], pa.Array] = {}
    arrays: dict[str, pa.Array] = {}
    for name in names:
        parts = _parts(batches, name)
        same = tuple(memory_of(part) for part in parts)
        if same not in moved:
            column = keys if name == facts.rule.key else concat(parts)
            if encoded and name in facts.may_stay_encoded:
                column = repeating_text(column)
            moved[same] = _moved(column, order)
        arrays[name] = moved[same]
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=names), bool(ordered.first.all())


def _parts(batches: list[pa.RecordBatch], name: str) -> list[pa.Array]:
    """One column of every batch, all of one type; null where a batch does not have it."""
    positions = [batch.schema.get_field_index(name) for batch in batches]
    found = [None if at < 0 else batch.column(at) for batch, at in zip(batches, positions, strict=True)]
    kinds = {part.type for part in found if part is not None and not pa.types.is_null(part.type)}
    if len(kinds) > 1:
        found = [part if part is None else values(part) for part in found]
        kinds = {part.type for part in found if part is not None and not pa.types.is_null(part.type)}
    kind = next(iter(kinds), pa.null())
    return [
        pa.nulls(batch.num_rows, kind)
        if part is None or pa.types.is_null(part.type)
        else (part if is_wider(part.type, kind) else cast_column(part, kind))
        for batch, part in zip(batches, found, strict=True)
    ]


def _moved(column: pa.Array, order: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return take(column, order)
    return pa.DictionaryArray.from_arrays(take(column.indices, order), column.dictionary, safe=False)


def repeating_text(column: pa.Array) -> pa.Array:
    """Text that repeats as numbers of a dictionary, which cost a third to move and nothing to encode; others as is."""
    if not is_text(column.type) or len(column) < _SAMPLE_ROWS or column.null_count == len(column):
        return column
    positions = index_array(np.linspace(0, len(column) - 1, _SAMPLE_ROWS, dtype=np.int64))
    if pc.count_distinct(take(column, positions)).as_py() > _SAMPLE_ROWS // 3:
        return column
    coded = column.dictionary_encode()
    words = coded.dictionary
    return column if words.nbytes > _LARGEST_DICTIONARY or len(words) > len(column) // 4 else coded


def mixed_batches(window: Window, order: Ints, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows of a window in order, with their run's number: one step of a pass."""
    runs = window.run_numbers(order).astype(np.int32)
    index = index_array(order)
    arrays = []
    for wanted in schema:
        if wanted.name == RUN_COLUMN:
            arrays.append(pa.Array.from_buffers(pa.int32(), len(runs), [None, pa.py_buffer(runs)]))
        else:
            array = values(take(concat(window.columns(wanted.name)), index))
            kept = array.type == wanted.type or is_wider(array.type, wanted.type)
            arrays.append(array if kept else array.cast(wanted.type))
    fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
    yield from narrowed(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), schema)
