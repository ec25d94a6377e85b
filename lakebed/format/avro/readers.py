"""One reader per Avro type: each moves a cursor per record over its value and returns an Arrow array.

    null  boolean  int/long  float/double  string/bytes  enum  fixed  decimal       leaves
    union with null                                         reads those that have a value, spreads them out
    record                                                  its fields in turn
    array  map                                              rounds: one item of every record that still has one

`read(rows, want)` returns None for `want=False`: the cursors move, nothing is built. `least` is the fewest bytes a
value takes, which bounds how many items a damaged count can promise; `width` is set where all values take the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptTable
from lakebed.format.avro.cursor import Ints, Rows, bits, int_array

_FULL_ROUND = 64
_WASTE = 64 * 1024


class UnevenItemsError(Exception):
    """So few records have so many items that one round per item would be slow."""


class Reader(ABC):
    """Reads one Avro type."""

    type: pa.DataType
    least: int = 1
    width: int | None = None

    @abstractmethod
    def read(self, rows: Rows, want: bool) -> pa.Array | None: ...


class NullReader(Reader):
    """Nothing is stored."""

    type = pa.null()
    least = width = 0

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        return pa.nulls(len(rows)) if want else None


class BooleanReader(Reader):
    """One byte, 0 or 1."""

    type = pa.bool_()
    width = 1

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        values = rows.chunk.buf[rows.skip(1)]
        bad = values > 1
        if bad.any():
            rows.corrupt("a boolean is neither 0 nor 1", bad)
        return pa.Array.from_buffers(pa.bool_(), len(rows), [None, bits(values.view(np.bool_))]) if want else None


class IntegerReader(Reader):
    """int and long with all their logical types; Arrow keeps the same number."""

    def __init__(self, data_type: pa.DataType, *, is_long: bool) -> None:
        self.type = data_type
        self._is_long = is_long
        per_second = {"ms": 1_000, "us": 1_000_000}
        self._day = per_second[data_type.unit] * 86_400 if pa.types.is_time(data_type) else None

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        values = rows.signed()
        if self._day is not None:
            bad = (values < 0) | (values >= self._day)
            if bad.any():
                rows.corrupt("a time of day is not within a day", bad)
        if not self._is_long:
            bad = (values < -(1 << 31)) | (values >= 1 << 31)
            if bad.any():
                rows.corrupt("an int has more than 32 bits", bad)
        if not want:
            return None
        return _primitive(self.type, values if self._is_long else values.astype(np.int32))


class FloatReader(Reader):
    """float and double: the bytes are Arrow's."""

    def __init__(self, data_type: pa.DataType) -> None:
        self.type = data_type
        self.least = self.width = data_type.bit_width // 8

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        if not want:
            rows.skip(self.least)
            return None
        return _primitive(self.type, rows.fixed(self.least))


class BytesReader(Reader):
    """bytes and string; a string must be UTF-8."""

    def __init__(self, data_type: pa.DataType) -> None:
        self.type = data_type

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        start, length = rows.spans()
        if not want:
            return None
        values = rows.gather(start, length)
        if self.type == pa.binary():
            return values
        try:
            return values.cast(self.type)
        except pa.ArrowInvalid as error:
            raise CorruptTable("a string is not UTF-8", file=rows.chunk.file, offset=rows.chunk.base) from error


class EnumReader(Reader):
    """The number of a symbol, read as its text."""

    type = pa.string()

    def __init__(self, symbols: list[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        index = rows.signed()
        bad = (index < 0) | (index >= len(self._symbols))
        if bad.any():
            rows.corrupt("an enum value is not one of its symbols", bad)
        return self._symbols.take(int_array(index.astype(np.int32))) if want else None


class FixedReader(Reader):
    """Bytes of one length."""

    def __init__(self, size: int) -> None:
        self.type = pa.binary(size)
        self.least = self.width = size

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        if not want:
            rows.skip(self.least)
            return None
        return _primitive(self.type, rows.fixed(self.least))


class DecimalReader(Reader):
    """A big-endian two's complement number of any length into Arrow's 16 little-endian bytes."""

    def __init__(self, data_type: pa.DataType, size: int | None) -> None:
        self.type = data_type
        self.width = size
        self.least = 1 if size is None else size

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        if self.width is None:
            start, length = rows.spans()
        else:
            start = rows.skip(self.width)
            length = np.full(len(rows), self.width, dtype=np.int64)
        if not want:
            return None
        buf, end = rows.chunk.buf, start + length
        sign = np.where((length > 0) & (buf[start] >= 0x80), np.uint8(0xFF), np.uint8(0))
        longest = int(length.max()) if len(length) else 0
        out = np.repeat(sign[:, None], 16, axis=1)
        for byte in range(longest):  # from the lowest byte up
            has = np.flatnonzero(length > byte)
            values = buf[end[has] - 1 - byte]
            if byte < 16:
                out[has, byte] = values
            elif bool((values != sign[has]).any()):
                raise CorruptTable("a decimal has more than 128 bits", file=rows.chunk.file, offset=rows.chunk.base)
        if longest > 16 and bool(((out[:, 15] >= 0x80) != (sign == 0xFF)).any()):
            raise CorruptTable("a decimal has more than 128 bits", file=rows.chunk.file, offset=rows.chunk.base)
        array = _primitive(self.type, out)
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            what = f"a decimal does not fit {self.type}"
            raise CorruptTable(what, file=rows.chunk.file, offset=rows.chunk.base) from error
        return array


class UnionReader(Reader):
    """A union of one type, with null or without."""

    def __init__(self, item: Reader, branches: int, value_branch: int) -> None:
        self.type = item.type
        self._item = item
        self._branches = branches
        self._value_branch = value_branch

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        branch = rows.unsigned()
        bad = (branch >= 2 * self._branches) | (branch & 1 == 1)
        if bad.any():
            rows.corrupt("a union has no such branch", bad)
        has = branch == 2 * self._value_branch
        if bool(has.all()):
            return self._item.read(rows, want)
        present = np.flatnonzero(has)
        if not len(present):
            return pa.nulls(len(rows), self.type) if want else None
        some = rows.some(present)
        values = self._item.read(some, want)
        rows.put(present, some)
        if values is None:
            return None
        return values.take(int_array((np.cumsum(has) - 1).astype(np.int32), has))


class RecordReader(Reader):
    """A record: its fields in turn."""

    def __init__(self, data_type: pa.DataType, fields: list[tuple[str, Reader]]) -> None:
        self.type = data_type
        self.schema = pa.schema(list(data_type))
        self.least = sum(reader.least for _, reader in fields)
        self._fields = fields

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        arrays = self.read_fields(rows, None if want else ())
        if not want:
            return None
        if not arrays:
            return pa.Array.from_buffers(self.type, len(rows), [None])
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))

    def read_fields(self, rows: Rows, wanted: Collection[str] | None) -> list[pa.Array]:
        """Arrays of the wanted fields; None wants all."""
        arrays = []
        for name, reader in self._fields:
            array = reader.read(rows, wanted is None or name in wanted)
            if array is not None:
                arrays.append(array)
        return arrays


class RepeatedReader(Reader):
    """An array, or a map as an array of entries.

    Blocks of items follow each other until an empty one: a count and the items, or a negative count, the size of
    the block in bytes, and the items.
    """

    def __init__(self, data_type: pa.DataType, item: Reader) -> None:
        self.type = data_type
        self._item = item

    def read(self, rows: Rows, want: bool) -> pa.Array | None:
        left = np.zeros(len(rows), dtype=np.int64)
        live = np.arange(len(rows))
        owners: list[Ints] = []
        fragments: list[pa.Array] = []
        while True:
            fresh = live[left[live] == 0]
            if len(fresh):
                left[fresh] = self._open_block(rows, fresh)
                live = live[left[live] > 0]
            if not len(live):
                break
            some = rows.some(live)
            owner = live
            if self._item.width is None:
                left[live] -= 1
                rows.chunk.wasted += max(0, _FULL_ROUND - len(live))
                if rows.chunk.wasted > _WASTE:
                    raise UnevenItemsError
                fragment = self._item.read(some, want)
                rows.put(live, some)
            else:  # items of one width: all of a block at once
                owner, some = _spread(some, left[live], self._item.width, live)
                fragment = self._item.read(some, want)
                rows.pos[live] += left[live] * self._item.width
                left[live] = 0
            if fragment is not None:
                owners.append(owner)
                fragments.append(fragment)
        return self._build(len(rows), owners, fragments) if want else None

    def _open_block(self, rows: Rows, fresh: Ints) -> Ints:
        """Item counts of the next blocks of some records, checked against the bytes that are left."""
        some = rows.some(fresh)
        counts = some.signed()
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            inner = some.some(sized)
            inner.signed()
            some.put(sized, inner)
            counts[sized] = -counts[sized]
        bad = (counts < 0) | (counts > (some.end - some.pos) // self._item.least)
        if bad.any():
            some.corrupt("an array or map claims more items than its record can hold", bad)
        rows.put(fresh, some)
        return counts

    def _build(self, count: int, owners: list[Ints], fragments: list[pa.Array]) -> pa.Array:
        """Rounds are interleaved records; a stable sort by record puts each record's items together, in order."""
        offsets = np.zeros(count + 1, dtype=np.int32)
        if fragments:
            owner = np.concatenate(owners)
            items = pa.concat_arrays(fragments)
            offsets[1:] = np.cumsum(np.bincount(owner, minlength=count))
            if len(fragments) > 1:
                items = items.take(int_array(np.argsort(owner, kind="stable").astype(np.int32)))
        else:
            items = pa.nulls(0, self._item.type)
        return pa.Array.from_buffers(self.type, count, [None, pa.py_buffer(offsets)], children=[items])


def _spread(some: Rows, counts: Ints, width: int, live: Ints) -> tuple[Ints, Rows]:
    """A cursor for every item of blocks whose items have one width."""
    first = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(first, counts)
    pos = np.repeat(some.pos, counts) + within * width
    return np.repeat(live, counts), Rows(some.chunk, pos, np.repeat(some.end, counts))


def _primitive(data_type: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(data_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
