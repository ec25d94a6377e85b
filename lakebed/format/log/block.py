"""A log block as both log formats define it: a kind, header entries, and the location of its content.

A block is a value without bytes. Which blocks of a slice count is decided from headers alone, so contents that a
rollback or a log compaction excluded are never read. The numbers of `BlockKind` and `Header` are the ordinals
that format version 1 stores; version 2 stores the names.

Record positions are the one header value with a grammar of its own:

    version 1   base64 of a 64-bit Roaring bitmap, portable form: a sorted set; the i-th record has the i-th position
    version 2   base64 of  int32 big-endian count | unsigned varlong per row, in file order, repeats allowed
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from lakebed.errors import CorruptTable

FORMAT_V1 = 1
FORMAT_V2 = 2


class BlockKind(IntEnum):
    """What a block holds. CORRUPT is never stored: it stands for a byte range that is no block."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6

    @property
    def is_data(self) -> bool:
        """Whether the block holds inserts and updates that take part in merging."""
        return self in _DATA_KINDS


_DATA_KINDS = frozenset({BlockKind.AVRO_DATA, BlockKind.HFILE_DATA, BlockKind.PARQUET_DATA})


class Header(IntEnum):
    """The names of header entries, with their ordinals in format version 1."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


ROLLBACK_COMMAND = "0"


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block of one log file. In a native log (version 2) the content is the whole file."""

    kind: BlockKind
    version: int
    header: Mapping[Header, str]
    file: str
    offset: int
    content_offset: int
    content_length: int

    def __reduce__(self) -> tuple[object, ...]:
        where = (self.file, self.offset, self.content_offset, self.content_length)
        return (_rebuild, (self.kind, self.version, dict(self.header), *where))

    @property
    def requested_time(self) -> str:
        """Requested time of the action that wrote the block."""
        return self._required(Header.INSTANT_TIME)

    @property
    def target_instant_time(self) -> str:
        """The instant that a rollback command rolls back."""
        return self._required(Header.TARGET_INSTANT_TIME)

    @property
    def is_rollback(self) -> bool:
        """Whether the block is a command to drop the blocks of its target instant."""
        return self.kind is BlockKind.COMMAND and self.header.get(Header.COMMAND_BLOCK_TYPE) == ROLLBACK_COMMAND

    @property
    def compacted_times(self) -> tuple[str, ...]:
        """The instants whose blocks this log-compacted block replaces; empty for an ordinary block."""
        return tuple(time for time in self.header.get(Header.COMPACTED_BLOCK_TIMES, "").split(",") if time.strip())

    @property
    def is_compacted(self) -> bool:
        return bool(self.compacted_times)

    @property
    def is_partial(self) -> bool:
        """Whether records hold only the updated columns."""
        return self.header.get(Header.IS_PARTIAL, "").lower() == "true"

    @property
    def schema_json(self) -> str | None:
        """The Avro schema of the records; native logs may leave it to Parquet."""
        return self.header.get(Header.SCHEMA)

    @property
    def identifier(self) -> str | None:
        """The number by which two tries of one task are recognised (old tables)."""
        return self.header.get(Header.BLOCK_IDENTIFIER)

    @property
    def positions_base_time(self) -> str | None:
        """Requested time of the base file that the record positions count rows of."""
        return self.header.get(Header.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS)

    def positions(self, base_instant_time: str, rows: int) -> npt.NDArray[np.uint64] | None:
        """Row numbers in the slice's base file, one per record, or None where they may not be used.

        Positions are an optimisation, and they mean another file once the base file has been rewritten: they count
        only for the base file they name.
        """
        text = self.header.get(Header.RECORD_POSITIONS)
        if text is None or self.positions_base_time != base_instant_time:
            return None
        decode = decode_positions_v1 if self.version == FORMAT_V1 else decode_positions_v2
        return decode(text, rows, self.file, self.offset)

    def _required(self, key: Header) -> str:
        value = self.header.get(key)
        if not value:
            raise CorruptTable(f"a {self.kind.name} block has no {key.name}", file=self.file, offset=self.offset)
        return value


def _rebuild(kind: BlockKind, version: int, header: dict[Header, str], *where: object) -> LogBlock:
    return LogBlock(kind, version, MappingProxyType(header), *where)  # type: ignore[arg-type]


# --- record positions -------------------------------------------------------------------------------------------------


def encode_positions_v1(positions: npt.NDArray[np.uint64]) -> str:
    """Sorted, distinct row numbers as version 1 stores them."""
    return base64.b64encode(BitMap64(positions.tolist()).serialize()).decode("ascii")


def decode_positions_v1(text: str, rows: int, file: str, offset: int | None = None) -> npt.NDArray[np.uint64]:
    """The row numbers of `rows` records. A few bytes of bitmap can claim 2^64 members: the count is checked first."""
    raw = _unbase64(text, file, offset)
    try:
        bitmap = BitMap64.deserialize(raw)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTable("the record positions are no Roaring bitmap", file=file, offset=offset) from error
    if len(bitmap) != rows:
        raise CorruptTable(f"a block of {rows} records has {len(bitmap)} positions", file=file, offset=offset)
    return np.asarray(bitmap.to_array(), dtype=np.uint64)


def encode_positions_v2(positions: npt.NDArray[np.uint64]) -> str:
    """Row numbers in file order as version 2 stores them: seven bits a byte, lowest first."""
    values = np.asarray(positions, dtype=np.uint64)
    widths = np.ones(len(values), dtype=np.int64)
    for step in range(1, 10):
        widths += values >= np.uint64(1) << np.uint64(7 * step)
    ends = np.cumsum(widths)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for step in range(10):
        rows = np.flatnonzero(widths > step)
        if not len(rows):
            break
        low = ((values[rows] >> np.uint64(7 * step)) & np.uint64(0x7F)).astype(np.uint8)
        low[widths[rows] > step + 1] |= 0x80
        out[ends[rows] - widths[rows] + step] = low
    return base64.b64encode(len(values).to_bytes(4, "big") + out.tobytes()).decode("ascii")


def decode_positions_v2(text: str, rows: int, file: str, offset: int | None = None) -> npt.NDArray[np.uint64]:
    """The inverse of `encode_positions_v2`; the count must be that of the file's rows."""
    raw = _unbase64(text, file, offset)
    count = int.from_bytes(raw[:4], "big", signed=True) if len(raw) >= 4 else -1
    data = np.frombuffer(raw, dtype=np.uint8, offset=4) if len(raw) > 4 else np.empty(0, dtype=np.uint8)
    last = np.flatnonzero(data < 0x80)
    if count != rows or len(last) != count or (len(data) and data[-1] >= 0x80):
        raise CorruptTable(f"the record positions do not fit {rows} records", file=file, offset=offset)
    if not count:
        return np.empty(0, dtype=np.uint64)
    first = np.concatenate((np.zeros(1, dtype=np.int64), last[:-1] + 1))
    widths = last - first + 1
    if int(widths.max()) > 10 or bool((data[last[widths == 10]] > 1).any()):
        raise CorruptTable("a record position is longer than 64 bits", file=file, offset=offset)
    values = np.zeros(count, dtype=np.uint64)
    for step in range(int(widths.max())):
        rows_here = np.flatnonzero(widths > step)
        low = data[first[rows_here] + step].astype(np.uint64) & np.uint64(0x7F)
        values[rows_here] |= low << np.uint64(7 * step)
    return values


def _unbase64(text: str, file: str, offset: int | None) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptTable("the record positions are not base64", file=file, offset=offset) from error
