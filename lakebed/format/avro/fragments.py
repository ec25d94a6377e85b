"""Avro values as bytes for many rows at once: fragments, which Arrow joins row by row.

A fragment is an Arrow array of bytes with one element per row and no nulls, or one constant for all rows. Offsets are
64 bits wide, so numpy builds them and Arrow takes them over without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Fragment = Any
BYTES = pa.large_binary()
EMPTY = pa.scalar(b"", BYTES)


def join(fragments: Sequence[Fragment], rows: int) -> pa.Array:
    """The fragments of every row, one after the other."""
    if any(isinstance(fragment, pa.Array) for fragment in fragments):
        return pc.binary_join_element_wise(*fragments, EMPTY)
    whole = b"".join(fragment.as_py() for fragment in fragments)
    return fixed(np.tile(np.frombuffer(whole, np.uint8), (rows, 1)).reshape(rows, len(whole)))


def lengths_of(fragment: Fragment, rows: int) -> npt.NDArray[np.int64]:
    """How many bytes each row has in a fragment."""
    if isinstance(fragment, pa.Array):
        return np.diff(offsets_of(fragment))
    return np.full(rows, len(fragment.as_py()), dtype=np.int64)


def offsets_of(array: pa.Array) -> npt.NDArray[np.int64]:
    """Where the elements start, and where the last one ends."""
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]


def data_of(array: pa.Array) -> pa.Buffer:
    """The bytes of all elements."""
    offsets, data = offsets_of(array), array.buffers()[2]
    if data is None or not len(array):
        return pa.py_buffer(b"")
    return data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def ragged(ends: npt.NDArray[np.int64], data: Any) -> pa.Array:
    """Elements that are consecutive in `data`, from the end of each."""
    offsets = np.concatenate((np.zeros(1, np.int64), ends))
    return pa.Array.from_buffers(BYTES, len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def fixed(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """A row of the matrix per element."""
    rows, width = matrix.shape
    return ragged(np.arange(1, rows + 1, dtype=np.int64) * width, np.ascontiguousarray(matrix))


def varints(values: npt.NDArray[np.int64]) -> pa.Array:
    """Numbers in zigzag form, seven bits a byte, lowest first."""
    words = ((values << 1) ^ (values >> 63)).view(np.uint64)
    highest = int(words.max()) if len(words) else 0
    widths = np.ones(len(words), dtype=np.int64)
    steps = max(1, -(-highest.bit_length() // 7))
    for step in range(1, steps):
        widths += words >= np.uint64(1) << np.uint64(7 * step)
    ends = np.cumsum(widths)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    starts = ends - widths
    for step in range(steps):
        rows = np.flatnonzero(widths > step) if step else slice(None)
        low = ((words[rows] >> np.uint64(7 * step)) & np.uint64(0x7F)).astype(np.uint8)
        low |= (widths[rows] > step + 1).astype(np.uint8) << 7
        out[starts[rows] + step] = low
    return ragged(ends, out)


def numbers(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of a fixed-width array without nulls, over Arrow's own memory."""
    if not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
