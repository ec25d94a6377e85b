"""Reads Avro binary for many records at once: one cursor per record, each step a vector operation.

Avro has no index: a value's position follows from all values before it in its record. Records, though, do not depend on
each other. So there is a cursor in every record, and a step ("read a varint here") moves all of them:

    buf   … r0 r0 r0 r0 r0 | r1 r1 r1 | r2 r2 r2 r2 …        pos = [ ^r0, ^r1, ^r2 ]   end = [ r0|, r1|, r2| ]

Varints are decoded from one unaligned 8-byte load each: the lowest byte without its high bit ends the number, and three
shift-and-mask steps squeeze out the high bits. Every read is checked against the end of its record first, so damaged
bytes end in `CorruptTable`; the buffer carries padding, so an 8-byte load near the end stays inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptTable

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

PADDING = 16
_ONE = np.uint64(1)
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_SQUEEZE = (  # 8 x 7 bits -> 4 x 14 -> 2 x 28 -> 56
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)


@dataclass(frozen=True, slots=True)
class Records:
    """Avro records at ascending `starts`..`ends` in `data`; `offset` is the position of the data in its file."""

    data: bytes | memoryview
    starts: Ints
    ends: Ints
    file: str
    offset: int


class Chunk:
    """The bytes of some records, and what is common to all cursors in them."""

    __slots__ = ("arrow", "base", "buf", "file", "wasted", "words")

    def __init__(self, data: bytes | memoryview, file: str, base: int) -> None:
        padded = np.zeros(len(data) + PADDING, dtype=np.uint8)
        padded[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        self.buf: Bytes = padded
        self.words: Words = np.ndarray((len(data) + PADDING - 7,), "<u8", padded, 0, (1,))
        self.arrow = pa.py_buffer(padded)
        self.file = file
        self.base = base
        self.wasted = 0

    def narrow(self, width: int) -> npt.NDArray[np.void]:
        """The bytes seen as items of `width` bytes that start at every byte."""
        return np.ndarray((max(len(self.buf) - width + 1, 0),), f"V{width}", self.buf, 0, (1,))


class Rows:
    """A cursor per record. `pos` moves, `end` stays."""

    __slots__ = ("chunk", "end", "pos")

    def __init__(self, chunk: Chunk, pos: Ints, end: Ints) -> None:
        self.chunk = chunk
        self.pos = pos
        self.end = end

    def __len__(self) -> int:
        return len(self.pos)

    def some(self, rows: Ints) -> Rows:
        """Cursors of some records, to be moved apart from the others and put back with `put`."""
        return Rows(self.chunk, self.pos[rows], self.end[rows])

    def put(self, rows: Ints, moved: Rows) -> None:
        self.pos[rows] = moved.pos

    def corrupt(self, what: str, bad: npt.NDArray[np.bool_]) -> NoReturn:
        """Reports where the first of the bad records went wrong."""
        at = int(self.pos[int(np.argmax(bad))]) + self.chunk.base
        raise CorruptTable(what, file=self.chunk.file, offset=at)

    def skip(self, width: int) -> Ints:
        """Moves over `width` bytes and returns where they started."""
        start = self.pos
        bad = start + width > self.end
        if bad.any():
            self.corrupt(f"a record ends inside a value of {width} bytes", bad)
        self.pos = start + width
        return start

    def fixed(self, width: int) -> npt.NDArray[np.void]:
        """The next `width` bytes of every record."""
        return self.chunk.narrow(width)[self.skip(width)]

    def unsigned(self) -> Words:
        """The next varint of every record, as it stands."""
        start = self.skip(1)
        first = self.chunk.buf[start]
        if not len(first) or int(first.max()) < 0x80:
            return first.astype(np.uint64)
        word = self.chunk.words[start]
        stops = ~word & _HIGH_BITS
        below = (stops & (~stops + _ONE)) - _ONE  # all bits under the stop bit; all bits at all where there is no stop
        width = (np.bitwise_count(below) >> 3).astype(np.int64) + 1
        value: Words = word & below & _LOW_BITS
        for low, high, shift in _SQUEEZE:
            value = (value & low) | ((value & high) >> shift)
        if int(width.max()) == 9:
            self._long_tail(start, width, value)
        bad = start + width > self.end
        if bad.any():
            self.corrupt("a record ends inside a number", bad)
        self.pos = start + width
        return value

    def _long_tail(self, start: Ints, width: Ints, value: Words) -> None:
        """The ninth and tenth byte of the few numbers that have them."""
        rows = np.flatnonzero(width == 9)
        ninth = self.chunk.buf[start[rows] + 8].astype(np.uint64)
        value[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        rows = rows[ninth >= 0x80]
        tenth = self.chunk.buf[start[rows] + 9].astype(np.uint64)
        bad = np.zeros(len(start), dtype=np.bool_)
        bad[rows] = tenth > 1
        if bad.any():
            self.corrupt("a number is longer than 64 bits", bad)
        value[rows] |= tenth << np.uint64(63)
        width[rows] = 10

    def signed(self) -> Ints:
        """The next int or long of every record."""
        raw = self.unsigned()
        return (raw >> _ONE).view(np.int64) ^ -((raw & _ONE).view(np.int64))

    def spans(self) -> tuple[Ints, Ints]:
        """Start and length of the next string or bytes value of every record."""
        length = self.signed()
        start = self.pos
        bad = (length < 0) | (length > self.end - start)
        if bad.any():
            self.corrupt("a text or bytes value is longer than its record", bad)
        self.pos = start + length
        return start, length

    def gather(self, start: Ints, length: Ints) -> pa.Array:
        """The bytes at ascending spans as a binary array.

        The offsets start0, end0, start1, end1, … describe values and the gaps between them as one array without a copy;
        taking every other element leaves the values and costs one memcpy each.
        """
        count = len(start)
        if not count:
            return pa.array([], pa.binary())
        offsets = np.empty(2 * count, dtype=np.int32)
        offsets[0::2] = start
        offsets[1::2] = start + length
        whole = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), self.chunk.arrow])
        return whole.take(int_array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def int_array(values: npt.NDArray[np.int32], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """An int32 array over numpy's memory."""
    validity = None if valid is None else bits(valid)
    return pa.Array.from_buffers(pa.int32(), len(values), [validity, pa.py_buffer(values)])


def bits(mask: npt.NDArray[np.bool_]) -> pa.Buffer:
    """A mask as Arrow keeps it."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
