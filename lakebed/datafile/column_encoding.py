"""Chooses the Parquet encoding and the statistics of every column from a sample of its values.

The default writer tries a dictionary on every column and gives up on most, and hashing values is the larger part of its
cost. A sample shows the columns that a dictionary suits, and those whose numbers follow each other so closely that
their differences take less work than the numbers. Meta columns that repeat one text go in as Arrow dictionaries, which
Parquet takes over without hashing at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import InvalidRequest
from lakebed.model.concat import value_chunks
from lakebed.model.nested_cast import cast_column
from lakebed.model.schema import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME

_SAMPLE_ROWS = 4096
_DISTINCT_SHARE = 1 / 3
_LEAST_FOR_DELTA = 128
_WITHOUT_STATISTICS = frozenset({COMMIT_SEQNO, FILE_NAME})  # no query filters by these


# --- before writing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Encodings:
    """The leaves, by their Parquet paths, that are not written plainly."""

    dictionary: tuple[str, ...] = ()
    delta: tuple[str, ...] = ()


def choose_encodings(rows: pa.Table, *, dictionary: bool = True) -> Encodings:
    """Judged by rows spread evenly over the first row group, and for differences by rows that follow each other."""
    step = max(1, rows.num_rows // _SAMPLE_ROWS)
    indices = np.arange(0, rows.num_rows, step, dtype=np.int64)
    spread = rows.take(pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices)]))
    dense = rows.slice(0, _SAMPLE_ROWS)
    by_dictionary, by_delta = [], []
    for field, column in zip(spread.schema, spread.columns, strict=True):
        for path, values in _leaf_values(field.name, column.combine_chunks()):
            if pa.types.is_dictionary(values.type) or (dictionary and _repeats(values)):
                by_dictionary.append(path)
            elif path == field.name and _follows(dense.column(path)):
                by_delta.append(path)
    return Encodings(tuple(by_dictionary), tuple(by_delta))


def _repeats(values: pa.Array) -> bool:
    present = len(values) - values.null_count
    if pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
        return False
    distinct: int = pc.count_distinct(values).as_py()
    return bool(distinct <= max(1, present * _DISTINCT_SHARE))


def _follows(column: pa.ChunkedArray) -> bool:
    """Whether numbers lie so close to the ones before them that a difference takes less than half the bits."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)) or kind.bit_width < 32:
        return False
    values = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).drop_null().combine_chunks()
    if len(values) < _LEAST_FOR_DELTA:
        return False
    numbers = np.frombuffer(values.buffers()[1], np.dtype(f"<i{kind.bit_width // 8}"))
    steps = np.diff(numbers[values.offset : values.offset + len(values)].astype(np.float64))
    return bool(np.log2(steps.max() - steps.min() + 1) * 2 < kind.bit_width)


def _leaf_values(path: str, array: Any) -> Iterator[tuple[str, pa.Array]]:
    """The leaves of a column under the paths that Parquet gives them."""
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    kind = array.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind, array.flatten(), strict=True):
            yield from _leaf_values(f"{path}.{field.name}", child)
    elif pa.types.is_map(kind):
        yield from _leaf_values(f"{path}.key_value.key", array.keys)
        yield from _leaf_values(f"{path}.key_value.value", array.items)
    elif pa.types.is_list(kind):
        yield from _leaf_values(f"{path}.list.element", array.flatten())
    else:
        yield path, array


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The leaves of a schema under the paths that Parquet gives them, in its order."""
    empty = ((field.name, pa.array([], _plain(field.type))) for field in schema)
    return [path for name, array in empty for path, _ in _leaf_values(name, array)]


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def statistics_leaves(schema: pa.Schema) -> list[str]:
    """The leaves that get minimum and maximum."""
    return [path for path in leaf_paths(schema) if path not in _WITHOUT_STATISTICS]


def aligned(batch: pa.RecordBatch, schema: pa.Schema, fixed: dict[str, pa.Scalar], label: str) -> pa.RecordBatch:
    """The batch in the shape of a file: its columns in order and of its types, `fixed` ones holding one value.

    Dictionary-encoded columns stay encoded.
    """
    columns = []
    for field in schema:
        if field.name in fixed:
            columns.append(constant(fixed[field.name], batch.num_rows))
            continue
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            raise InvalidRequest(f"rows have no column {field.name!r}", file=label)
        column = _cast(batch.column(position), field, label)
        is_folded = pa.types.is_dictionary(column.type)
        columns.append(_folded(column) if field.name == COMMIT_TIME and not is_folded else column)
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _cast(array: pa.Array, field: pa.Field, label: str) -> pa.Array:
    if _plain(array.type) != field.type:
        try:
            array = cast_column(array, field.type)
        except pa.ArrowException as error:
            what = f"the column {field.name!r} of type {array.type} does not fit {field.type}: {error}"
            raise InvalidRequest(what, file=label) from error
    if not field.nullable and array.null_count:
        raise InvalidRequest(f"the column {field.name!r} must not be null", file=label)
    return array


def constant(value: pa.Scalar, count: int) -> pa.Array:
    """One value in every row, as a dictionary: Parquet takes it over without hashing the same text again and again."""
    if not value.is_valid:
        return pa.nulls(count, value.type)
    indices = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(np.zeros(count, dtype=np.int32))])
    return pa.DictionaryArray.from_arrays(indices, pa.array([value.as_py()], value.type))


def _folded(texts: pa.Array) -> pa.Array:
    """Texts as a dictionary; where all are the same, which one comparison of the bytes shows, without hashing."""
    count = len(texts)
    if count and not texts.null_count:
        _, offsets_buffer, data_buffer = texts.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + count + 1]
        width = int(offsets[1] - offsets[0])
        if width and data_buffer is not None and bool((np.diff(offsets) == width).all()):
            data = np.frombuffer(data_buffer, np.uint8)[int(offsets[0]) : int(offsets[-1])]
            if bool((data[width:] == data[:-width]).all()):
                return constant(texts[0], count)
    return texts.dictionary_encode()


def alike(batches: Sequence[pa.RecordBatch], schema: pa.Schema | None) -> pa.Table:
    """Batches as the table of a row group: a column is dictionary-encoded if `schema` has it so, or all batches."""
    columns = []
    for position in range(batches[0].num_columns):
        parts = [batch.column(position) for batch in batches]
        stays = all(pa.types.is_dictionary(part.type) for part in parts)
        if pa.types.is_dictionary(schema.field(position).type) if schema is not None else stays:
            coded = [part if pa.types.is_dictionary(part.type) else part.dictionary_encode() for part in parts]
            columns.append(_only_used(pa.chunked_array(coded).unify_dictionaries()))
        else:
            columns.append(pa.chunked_array([chunk for part in parts for chunk in value_chunks(part)]))
    first = batches[0].schema
    fields = [field.with_type(column.type) for field, column in zip(first, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _only_used(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without the values that no row has: they may be what was deleted, and a file must not keep that.

    Dictionaries of a foreign file may hold a value twice, which Arrow's Parquet writer would mix up.
    """
    values = column.chunk(0).dictionary
    if values.null_count or len(values.unique()) < len(values):
        plain = [part for chunk in column.chunks for part in value_chunks(chunk)]
        return pa.chunked_array(plain).dictionary_encode()
    used = np.zeros(len(values), np.bool_)
    for chunk in column.chunks:
        indices = chunk.indices.drop_null()
        used[np.frombuffer(indices.buffers()[1], np.int32, len(indices), 4 * indices.offset)] = True
    if used.all():
        return column
    kept = np.flatnonzero(used)
    shorter = values.take(pa.Array.from_buffers(pa.int64(), len(kept), [None, pa.py_buffer(kept)]))
    numbers = (np.cumsum(used) - 1).astype(np.int32)
    renumbered = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
    parts = [pa.DictionaryArray.from_arrays(renumbered.take(chunk.indices), shorter) for chunk in column.chunks]
    return pa.chunked_array(parts)


# --- after writing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """A file's footer statistics of a top-level column.

    Bounds are Arrow scalars of its type, None where unknown. They do not cover NaN, which Parquet leaves out.
    """

    name: str
    min: pa.Scalar | None
    max: pa.Scalar | None
    null_count: int | None
    value_count: int
    stored_bytes: int
    plain_bytes: int


def column_summaries(metadata: pq.FileMetaData, schema: pa.Schema) -> tuple[ColumnSummary, ...]:
    """Summaries of the columns that are no lists, maps or structs, in the order of the schema."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    leaves = {metadata.schema.column(index).path: index for index in range(len(metadata.schema))}
    flat = [field for field in schema if not pa.types.is_nested(field.type)]
    return tuple(_summary(field, [group.column(leaves[field.name]) for group in groups]) for field in flat)


def _summary(field: pa.Field, chunks: Sequence[Any]) -> ColumnSummary:
    known = [chunk.statistics if chunk.is_stats_set else None for chunk in chunks]
    nulls = [one.null_count for one in known if one is not None and one.has_null_count]
    low = high = None
    bounded: list[Any] = [one for one, chunk in zip(known, chunks, strict=True) if not _all_null(one, chunk)]
    if bounded and all(one is not None and one.has_min_max for one in bounded):
        low = min(_comparable(one.min_raw, field.type) for one in bounded)
        high = max(_comparable(one.max_raw, field.type) for one in bounded)
    return ColumnSummary(
        name=field.name,
        min=_scalar(low, field.type),
        max=_scalar(high, field.type),
        null_count=sum(nulls) if len(nulls) == len(chunks) else None,
        value_count=sum(chunk.num_values for chunk in chunks),
        stored_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        plain_bytes=sum(chunk.total_uncompressed_size for chunk in chunks),
    )


def _all_null(statistics: Any, chunk: Any) -> bool:
    """Such a chunk has no bounds and changes none."""
    return statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values


def _comparable(raw: Any, kind: pa.DataType) -> Any:
    """Parquet's raw value in a form whose order is that of the column: decimals are signed big-endian bytes."""
    if pa.types.is_decimal(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _scalar(raw: Any, kind: pa.DataType) -> pa.Scalar | None:
    """A raw value as a scalar; dates and times go by their number, since Python's calendar ends early."""
    if raw is None:
        return None
    if pa.types.is_decimal(kind):
        return _decimal(raw, kind)
    if pa.types.is_temporal(kind):
        return pa.scalar(raw, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if pa.types.is_string(kind) and isinstance(raw, bytes):
        return pa.scalar(raw.decode(), kind)
    return pa.scalar(raw, kind)


def _decimal(unscaled: int, kind: pa.DataType) -> pa.Scalar:
    raw = pa.py_buffer(unscaled.to_bytes(16, "little", signed=True))
    return pa.Array.from_buffers(kind, 1, [None, raw])[0]
