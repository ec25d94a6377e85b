"""Arrow arrays as numpy vectors and back, without copying.

`pa.array(ndarray)` and `Array.to_numpy` import pandas into every worker that calls them, which costs a second, so the
merge goes through buffers. Everything here is zero-copy unless stated otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_UNCHECKED = pc.TakeOptions(boundscheck=False)
Ints = npt.NDArray[np.int64]
Heads = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Memory = tuple[Any, ...]


def index_array(values: Ints) -> pa.Array:
    """Row numbers for `take`."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def take(rows: Any, index: pa.Array) -> Any:
    """Rows of an array or a batch. Row numbers are computed here: a bounds check would double the cost."""
    return pc.call_function("take", [rows, index], _UNCHECKED)


def take_rows(batch: pa.RecordBatch, index: pa.Array) -> pa.RecordBatch:
    """Rows of a batch; columns that share memory, as a key made of one column does, are taken once and share it."""
    taken: dict[Memory, pa.Array] = {}
    arrays = []
    for column in batch.columns:
        own = memory_of(column)
        if own not in taken:
            taken[own] = take(column, index)
        arrays.append(taken[own])
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def memory_of(array: pa.Array) -> Memory:
    """An identity of an array's memory: equal only for the same values at the same address."""
    return (array.type, array.offset, len(array), *(buffer.address if buffer else 0 for buffer in array.buffers()))


def index_array_with_nulls(values: Ints) -> pa.Array:
    """Row numbers for `take`, where a negative number stands for null."""
    present = values >= 0
    if present.all():
        return index_array(values)
    bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    safe = np.where(present, values, 0)
    return pa.Array.from_buffers(pa.int64(), len(values), [bits, pa.py_buffer(safe)])


def bool_array(values: Bools) -> pa.Array:
    """A mask for `filter`; copies into bits."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def numbers(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The raw values of a fixed-width array; the values at nulls are undefined."""
    width = np.dtype(dtype).itemsize
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * width)


def _bits(buffer: pa.Buffer, offset: int, length: int) -> Bools:
    first = offset // 8
    raw = np.frombuffer(buffer, np.uint8, (offset + length + 7) // 8 - first, first)
    return np.unpackbits(raw, bitorder="little")[offset - first * 8 :][:length].view(np.bool_)


def valid(array: pa.Array) -> Bools:
    """Which rows are not null; copies out of bits."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    return _bits(array.buffers()[0], array.offset, len(array))


def truths(array: pa.Array) -> Bools:
    """Which rows of a boolean array are true (null is not); copies out of bits."""
    if len(array) == 0 or array.buffers()[1] is None:
        return np.zeros(len(array), np.bool_)
    values = _bits(array.buffers()[1], array.offset, len(array))
    return values if array.null_count == 0 else values & valid(array)


def text_buffers(array: pa.Array) -> tuple[npt.NDArray[Any], pa.Buffer]:
    """Offsets and bytes of a string or binary array."""
    _, offsets, data = array.buffers()
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.int64 if wide else np.int32
    if offsets is None or offsets.size == 0:
        return np.zeros(len(array) + 1, dtype), pa.py_buffer(b"")
    view = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize)
    return view, data if data is not None else pa.py_buffer(b"")


def is_text(kind: pa.DataType) -> bool:
    """Types made of offsets and bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )
