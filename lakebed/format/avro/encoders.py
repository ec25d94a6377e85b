"""One encoder per Avro type, the counterpart of `avro/readers`: an array without nulls to fragments.

null  boolean  int/long  float/double  string/bytes  enum  fixed  decimal       leaves
union with null                                         encodes those that have a value, spreads them out
record                                                  the fragments of its fields in turn
array  map                                              items as a column of their own, then a slice per row
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.format.avro.fragments import BYTES, EMPTY, Fragment, fixed, join, numbers, offsets_of, ragged, varints


class Encoder(ABC):
    """Turns an array without nulls into fragments."""

    @abstractmethod
    def fragments(self, array: pa.Array) -> list[Fragment]: ...


class NullEncoder(Encoder):
    """No bytes at all."""

    def fragments(self, array: pa.Array) -> list[Fragment]:
        return [EMPTY]


class BooleanEncoder(Encoder):
    """One byte, 0 or 1."""

    def fragments(self, array: pa.Array) -> list[Fragment]:
        return [fixed(numbers(array.cast(pa.uint8()), np.uint8).reshape(-1, 1))]


class IntegerEncoder(Encoder):
    """int and long with all their logical types; Arrow keeps the same number."""

    def fragments(self, array: pa.Array) -> list[Fragment]:
        width = array.type.bit_width // 8
        return [varints(numbers(array, np.dtype(f"<i{width}")).astype(np.int64))]


class FloatEncoder(Encoder):
    """float and double: the bytes are Arrow's."""

    def fragments(self, array: pa.Array) -> list[Fragment]:
        width = array.type.bit_width // 8
        return [fixed(numbers(array, np.dtype(f"V{width}")).view(np.uint8).reshape(-1, width))]


class BytesEncoder(Encoder):
    """bytes and string: the length, then the bytes."""

    def fragments(self, array: pa.Array) -> list[Fragment]:
        values = array.cast(BYTES)
        return [varints(np.diff(offsets_of(values))), values]


class FixedEncoder(Encoder):
    """Bytes of one length."""

    def fragments(self, array: pa.Array) -> list[Fragment]:
        width = array.type.byte_width
        return [fixed(numbers(array, np.dtype(f"V{width}")).view(np.uint8).reshape(-1, width))]


class EnumEncoder(Encoder):
    """The number of the symbol."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def fragments(self, array: pa.Array) -> list[Fragment]:
        index = pc.index_in(array, self._symbols)
        if index.null_count:
            raise InvalidRequest("a value is not one of its enum's symbols")
        return [varints(numbers(index, np.int32).astype(np.int64))]


class DecimalEncoder(Encoder):
    """Big-endian two's complement, as wide as the fixed type or as the precision needs."""

    def __init__(self, size: int | None) -> None:
        self._size = size

    def fragments(self, array: pa.Array) -> list[Fragment]:
        size = self._size if self._size is not None else decimal_bytes(array.type.precision)
        raw = numbers(array, np.dtype("V16")).view(np.uint8).reshape(-1, 16)
        out = raw[:, :size][:, ::-1]
        if size > 16:
            sign = np.where(raw[:, 15:] >= 0x80, np.uint8(0xFF), np.uint8(0))
            out = np.concatenate((np.repeat(sign, size - 16, axis=1), raw[:, ::-1]), axis=1)
        length = [] if self._size is not None else [pa.scalar(bytes([2 * size]), BYTES)]
        return [*length, fixed(out)]


class OptionalEncoder(Encoder):
    """A union of null and one type; a union of one type alone has no null branch."""

    def __init__(self, item: Encoder, value_branch: int, null_branch: int | None) -> None:
        self._item = item
        self._value = pa.scalar(bytes([2 * value_branch]), BYTES)
        self._null = None if null_branch is None else pa.scalar(bytes([2 * null_branch]), BYTES)

    def fragments(self, array: pa.Array) -> list[Fragment]:
        if not array.null_count:
            return [self._value, *self._item.fragments(array)]
        if self._null is None:
            raise InvalidRequest("a value that must be there is null")
        if array.null_count == len(array):
            return [self._null]
        valid = numbers(array.is_valid().cast(pa.uint8()), np.uint8).astype(np.bool_)
        present = array.drop_null()
        dense = join([self._value, *self._item.fragments(present)], len(present))
        value_rows = np.cumsum(valid, dtype=np.int64) - 1
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        index = pa.Array.from_buffers(pa.int64(), len(valid), [bits, pa.py_buffer(value_rows)])
        return [dense.take(index).fill_null(self._null)]


class RequiredEncoder(Encoder):
    """A type outside any union."""

    def __init__(self, item: Encoder, name: str) -> None:
        self._item = item
        self._name = name

    def fragments(self, array: pa.Array) -> list[Fragment]:
        if array.null_count:
            raise InvalidRequest(f"the column {self._name!r} must not be null")
        return self._item.fragments(array)


class RecordEncoder(Encoder):
    """A record: the fragments of its fields in turn."""

    def __init__(self, schema: pa.Schema, fields: Sequence[Encoder]) -> None:
        self.schema = schema
        self._fields = fields

    def fragments(self, array: pa.Array) -> list[Fragment]:
        children = array.flatten()
        fragments = [
            fragment
            for encoder, child in zip(self._fields, children, strict=True)
            for fragment in encoder.fragments(child)
        ]
        return fragments or [EMPTY]


class RepeatedEncoder(Encoder):
    """An array or a map: count and items as one block, then the empty block that ends it."""

    def __init__(self, item: Encoder) -> None:
        self._item = item

    def fragments(self, array: pa.Array) -> list[Fragment]:
        offsets = numbers(array.offsets, np.int32).astype(np.int64)
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        items = self._items(array, first, count)
        encoded = join(self._item.fragments(items), count)
        ends = offsets_of(encoded)
        spans = ends[offsets - first]
        body = pa.Array.from_buffers(BYTES, len(array), [None, pa.py_buffer(spans), encoded.buffers()[2]])
        counts = np.diff(offsets)
        some = np.cumsum(counts > 0, dtype=np.int64)
        end_of_items = ragged(some, np.zeros(int(some[-1]) if len(some) else 0, np.uint8))
        return [varints(counts), body, end_of_items]

    def _items(self, array: pa.Array, first: int, count: int) -> pa.Array:
        return array.values.slice(first, count)


class ConstantEncoder(Encoder):
    """A union of null alone."""

    def __init__(self, data: bytes) -> None:
        self._piece = pa.scalar(data, BYTES)

    def fragments(self, array: pa.Array) -> list[Fragment]:
        return [self._piece]


def decimal_bytes(precision: int) -> int:
    """The fewest bytes that hold every number of so many digits, with its sign."""
    bits: int = (10**precision).bit_length()
    return (bits + 8) // 8
