"""The parts of an HFile that its reader and its writer share: constants, block header, trailer, file info.

    trailer    =  `TRABLK"$` | varint length | protobuf message | zeros | version 4 (major in the last byte); 4096 bytes
    file info  =  `PBUF` | varint length | protobuf message { repeated 1: { 1: key, 2: value } }
    vint       =  -112..127 in one byte, else one byte -112-n and n big-endian bytes (Hadoop's)

The two messages need so little of protobuf that thirty lines do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakebed.errors import CorruptTable, UnsupportedFormat

TRAILER_SIZE = 4096
TRAILER_MAGIC = b'TRABLK"$'
MAJOR_VERSION = 3
DATA_MAGIC, META_MAGIC, INDEX_MAGIC, INFO_MAGIC = b"DATABLK*", b"METABLKc", b"IDXROOT2", b"FILEINF2"
BLOCK_HEADER = struct.Struct(">8siiqBii")
ENTRY_HEADER = struct.Struct(">iih")
KEY_SUFFIX = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
COMPARATOR = "org.apache.hudi.io.storage.HoodieHBaseKVComparator"
CODECS = {0: "lzo", 1: "gz", 2: "none", 3: "snappy", 4: "lz4", 5: "bz2", 6: "zstd"}
INFO_PREFIX = b"PBUF"


@dataclass(frozen=True, slots=True)
class Trailer:
    """Where the parts of the file are, and how many."""

    file_info_offset: int
    load_on_open_offset: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    codec: str
    comparator: str


def read_vint(data: bytes, pos: int) -> tuple[int, int]:
    """A Hadoop variable-length integer at `pos`, and the position after it; IndexError when it is cut short."""
    first = data[pos] - 256 if data[pos] > 127 else data[pos]
    if first >= -112:
        return first, pos + 1
    count = -(first + 112) if first >= -120 else -(first + 120)
    if pos + 1 + count > len(data):
        raise IndexError(pos)
    value = int.from_bytes(data[pos + 1 : pos + 1 + count], "big")
    return (value if first >= -120 else ~value), pos + 1 + count


def parse_trailer(data: bytes, size: int, file: str) -> Trailer:
    """The trailer, refused when it names a version, codec or index form that is not read."""
    at = size - TRAILER_SIZE
    if data[: len(TRAILER_MAGIC)] != TRAILER_MAGIC:
        raise CorruptTable("the HFile trailer is missing", file=file, offset=at)
    if data[-1] != MAJOR_VERSION:
        raise UnsupportedFormat(f"HFile version {data[-1]} is not read, only {MAJOR_VERSION}", file=file, offset=at)
    fields = dict(_delimited_message(data, len(TRAILER_MAGIC), file, at))

    def number(field: int) -> int:
        value = fields.get(field)
        if not isinstance(value, int):
            raise CorruptTable(f"the HFile trailer has no field {field}", file=file, offset=at)
        return value

    codec, levels = number(12), number(8)
    if codec not in CODECS:
        raise UnsupportedFormat(f"the HFile codec number {codec} is not known", file=file, offset=at)
    if levels != 1:
        raise UnsupportedFormat(
            f"the HFile has an index of {levels} levels", file=file, offset=at, hint="Only HBase writes such files."
        )
    comparator = fields.get(11, b"")
    trailer = Trailer(
        file_info_offset=number(1),
        load_on_open_offset=number(2),
        data_index_count=number(5),
        meta_index_count=number(6),
        entry_count=number(7),
        index_levels=levels,
        codec=CODECS[codec],
        comparator=comparator.decode("utf-8", "replace") if isinstance(comparator, bytes) else "",
    )
    if not 0 <= trailer.load_on_open_offset <= trailer.file_info_offset < at:
        raise CorruptTable("the HFile trailer points outside the file", file=file, offset=at)
    return trailer


def parse_file_info(payload: bytes, file: str, at: int) -> dict[bytes, bytes]:
    """The entries of the file info block."""
    if not payload.startswith(INFO_PREFIX):
        raise CorruptTable("the HFile's file info has an unknown form", file=file, offset=at)
    info: dict[bytes, bytes] = {}
    for field, entry in _delimited_message(payload, len(INFO_PREFIX), file, at):
        if field != 1 or not isinstance(entry, bytes):
            continue
        pair = dict(_message(entry, file, at))
        key, value = pair.get(1, b""), pair.get(2, b"")
        if isinstance(key, bytes) and isinstance(value, bytes):
            info[key] = value
    return info


def _delimited_message(data: bytes, pos: int, file: str, at: int) -> Iterator[tuple[int, int | bytes]]:
    length, pos = _varint(data, pos, file, at)
    if length > len(data) - pos:
        raise CorruptTable("a message in the HFile is cut short", file=file, offset=at)
    return _message(data[pos : pos + length], file, at)


def _message(data: bytes, file: str, at: int) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message; fixed-width fields do not occur in HFiles."""
    pos = 0
    while pos < len(data):
        tag, pos = _varint(data, pos, file, at)
        value, pos = _varint(data, pos, file, at)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2 and value <= len(data) - pos:
            yield tag >> 3, data[pos : pos + value]
            pos += value
        else:
            raise CorruptTable("a message in the HFile does not parse", file=file, offset=at)


def _varint(data: bytes, pos: int, file: str, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if pos >= len(data):
            break
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise CorruptTable("a number in the HFile does not end", file=file, offset=at)


def write_vint(value: int) -> bytes:
    """A non-negative number in Hadoop's form."""
    if value <= 127:
        return bytes([value])
    count = (value.bit_length() + 7) // 8
    return bytes([256 - 112 - count]) + value.to_bytes(count, "big")


def render_trailer(numbers: Mapping[int, int], comparator: str, codec: int) -> bytes:
    """The 4096 bytes at the end of the file; `numbers` are the protobuf fields 1 to 10."""
    message = b"".join(_encode_varint(field << 3) + _encode_varint(value) for field, value in numbers.items())
    message += _encode_bytes(11, comparator.encode()) + _encode_varint(12 << 3) + _encode_varint(codec)
    head = TRAILER_MAGIC + _encode_varint(len(message)) + message
    return head.ljust(TRAILER_SIZE - 4, b"\0") + MAJOR_VERSION.to_bytes(4, "big")


def render_file_info(info: Mapping[bytes, bytes]) -> bytes:
    """The payload of the file info block, entries in the order passed."""
    message = b"".join(_encode_bytes(1, _encode_bytes(1, key) + _encode_bytes(2, value)) for key, value in info.items())
    return INFO_PREFIX + _encode_varint(len(message)) + message


def _encode_bytes(field: int, value: bytes) -> bytes:
    return _encode_varint(field << 3 | 2) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
