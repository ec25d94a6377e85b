"""Concatenation of Arrow columns without overflow of their 32-bit offsets.

    gather      `ColumnBytes` reports when a column of gathered batches would be too large: flush them before
    join        `concat` takes 64-bit offsets where the parts of one column are too large for 31
    decode      `values` and `plain_parts` allow for few numbers of a dictionary that stand for much text
    output      `narrowed` cuts rows that went through 64-bit offsets into batches of the types they shall have

All code that makes one column out of several uses this module, whatever its memory limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

LARGEST_COLUMN = 1 << 30
"""Bytes of a column that are gathered to be joined: half of what 31 bits count, for batches come whole."""
_OVERFLOW = (pa.ArrowInvalid, pa.ArrowCapacityError)


class ColumnBytes:
    """How large the columns of gathered batches are, each by itself.

    Columns are counted only once all of them together are too large for one: to weigh each column of each batch would
    cost more than to gather them.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._uncounted: list[pa.RecordBatch] = []
        self._all = 0

    def has_room(self, batch: pa.RecordBatch, nbytes: int) -> bool:
        """Whether all columns stay small enough with this batch of so many bytes; the first one always has room."""
        if self._all + nbytes <= LARGEST_COLUMN or not (self._uncounted or self._bytes):
            return True
        for gathered in self._uncounted:
            for name, size in _sizes(gathered):
                self._bytes[name] = self._bytes.get(name, 0) + size
        self._uncounted.clear()
        return all(self._bytes.get(name, 0) + size <= LARGEST_COLUMN for name, size in _sizes(batch))

    def add(self, batch: pa.RecordBatch, nbytes: int) -> None:
        self._uncounted.append(batch)
        self._all += nbytes

    def clear(self) -> None:
        self._bytes.clear()
        self._uncounted.clear()
        self._all = 0


def _sizes(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if wide_type(field.type) != field.type:
            yield field.name, column.nbytes


@lru_cache(maxsize=1024)
def wide_type(kind: pa.DataType) -> pa.DataType:
    """The same type with 64-bit offsets; a dictionary as its values."""
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return wide_type(kind.value_type)
    if pa.types.is_list(kind):
        return pa.large_list(kind.value_field.with_type(wide_type(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(wide_type(key.type)), item.with_type(wide_type(item.type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(wide_type(field.type)) for field in kind])
    return kind


def is_wider(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type is another one with 64-bit offsets."""
    return bool(actual != wanted and actual == wide_type(wanted))


def is_large(column: pa.Array) -> bool:
    """Whether a column is too large for 31 bits, or nearly so."""
    return bool(column.nbytes > LARGEST_COLUMN)


def concat(parts: Sequence[pa.Array]) -> pa.Array:
    """One array; a single part is not copied. With 64-bit offsets where a part has them or the sum needs them."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    first = parts[0].type
    if all(part.type == first for part in parts[1:]):
        try:
            return concat_arrays(parts)
        except _OVERFLOW:
            if wide_type(first) == first:
                raise
    wide = wide_type(first)
    return concat_arrays([part if part.type == wide else part.cast(wide) for part in parts])


def concat_arrays(parts: Sequence[pa.Array]) -> pa.Array:
    """Arrow's own join, which refuses what 31 bits cannot count."""
    return pa.concat_arrays(parts)


def concat_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of a batch or a table as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return concat(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one; a single batch is not copied."""
    if len(batches) == 1:
        return batches[0]
    columns = [concat([batch.column(at) for batch in batches]) for at in range(batches[0].num_columns)]
    fields = [field.with_type(column.type) for field, column in zip(batches[0].schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def concat_mixed(batches: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, pa.Schema]:
    """Batches with the same columns, text dictionary-encoded in some of them: as one, and the types of its values.

    A column stays dictionary-encoded where it is so in all of them.
    """
    columns = []
    for at in range(batches[0].num_columns):
        parts = [batch.column(at) for batch in batches]
        alike = all(part.type == parts[0].type for part in parts[1:])
        columns.append(concat(parts if alike else [values(part) for part in parts]))
    first = batches[0].schema
    fields = [field.with_type(column.type) for field, column in zip(first, columns, strict=True)]
    plain = [field.with_type(_value_type(field.type)) for field in first]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), pa.schema(plain)


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def values(column: pa.Array) -> pa.Array:
    """The values of a dictionary-encoded column, with 64-bit offsets where it needs them; others as they are."""
    return concat(list(value_chunks(column))) if pa.types.is_dictionary(column.type) else column


def value_chunks(column: pa.Array) -> Iterator[pa.Array]:
    """The same in chunks that 31 bits can count."""
    if not pa.types.is_dictionary(column.type):
        yield column
        return
    rows = _decodable_rows(column)
    for start in range(0, max(1, len(column)), rows):
        yield column.slice(start, rows).dictionary_decode()


def decodable(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces whose columns can be decoded from their dictionaries."""
    coded = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    rows = min((_decodable_rows(column) for column in coded), default=batch.num_rows)
    for start in range(0, max(1, batch.num_rows), max(1, rows)):
        yield batch if rows >= batch.num_rows else batch.slice(start, rows)


def _decodable_rows(column: pa.DictionaryArray) -> int:
    """So many rows can be decoded at once, even if each has the longest value."""
    kind = column.type.value_type
    if wide_type(kind) == kind:
        return max(1, len(column))
    if pa.types.is_nested(kind):
        return max(1, LARGEST_COLUMN // max(1, int(column.dictionary.nbytes)))
    longest: int = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    return max(1, LARGEST_COLUMN // max(1, longest))


def narrowed(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in the types of a schema, cut where columns with 64-bit offsets are too large for the others.

    Only those columns change; what is encoded stays so.
    """
    wide = [
        at
        for at, (actual, wanted) in enumerate(zip(batch.schema, schema, strict=True))
        if is_wider(actual.type, wanted.type)
    ]
    if not wide:
        yield batch
        return
    if batch.num_rows > 1 and any(is_large(batch.column(at)) for at in wide):
        half = batch.num_rows // 2
        yield from narrowed(batch.slice(0, half), schema)
        yield from narrowed(batch.slice(half), schema)
        return
    for at in wide:
        batch = batch.set_column(at, schema.field(at), batch.column(at).cast(schema.field(at).type))
    yield batch


def plain_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch whose columns all hold their values themselves; several, where dictionary-encoded text is too large."""
    coded = [at for at, kind in enumerate(batch.schema.types) if pa.types.is_dictionary(kind)]
    for part in decodable(batch) if coded else (batch,):
        for at in coded:
            column = part.column(at).dictionary_decode()
            part = part.set_column(at, part.schema.field(at).with_type(column.type), column)
        yield part
