"""HFile writer, byte for byte as Hudi's own writer does it (`hfile/reader.py` has the picture).

The whole file is built in memory: log blocks of the metadata table are small, and its base files are split over file
groups. The order of the file info entries and the gzip header are those of real files, so that a real file can be
rebuilt from its entries and compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakebed.errors import InvalidRequest
from lakebed.format.hfile.layout import (
    BLOCK_HEADER,
    CODECS,
    COMPARATOR,
    DATA_MAGIC,
    ENTRY_HEADER,
    INDEX_MAGIC,
    INFO_MAGIC,
    KEY_SUFFIX,
    META_MAGIC,
    render_file_info,
    render_trailer,
    write_vint,
)

BLOCK_SIZE = 1024 * 1024
BLOOM_META_BLOCK = "bloomFilter"

_BYTES_PER_CHECKSUM = 16384
_ENTRY_OVERHEAD = 21
_MAX_KEY = 0x7FFF
_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_INFO_ORDER = (
    b"schema",
    b"bloomFilterTypeCode",
    b"hfile.LASTKEY",
    b"hfile.AVG_VALUE_LEN",
    b"minRecordKey",
    b"hfile.AVG_KEY_LEN",
    b"maxRecordKey",
    b"KEY_VALUE_VERSION",
    b"MAX_MEMSTORE_TS_KEY",
    b"hfile.CREATE_TIME_TS",
)


def write_hfile(
    entries: Iterable[tuple[bytes, bytes]],
    *,
    schema_json: str,
    compression: str = "gz",
    block_size: int = BLOCK_SIZE,
    meta_blocks: Mapping[str, bytes] | None = None,
    extra_info: Mapping[str, bytes] | None = None,
    created_ms: int = 0,
) -> bytes:
    """An HFile with these entries, which must come in ascending byte order of the keys."""
    if compression not in ("gz", "none"):
        raise InvalidRequest(f"HFiles are written with gz or none, not {compression}")
    file = _File(compression)
    last_key = b""
    entry_count = key_bytes = value_bytes = data_bytes = 0
    block: list[bytes] = []
    block_bytes = 0
    first_key = b""
    for key, value in entries:
        if entry_count and key < last_key:
            raise InvalidRequest(f"the keys of an HFile must ascend, {key!r} comes after {last_key!r}")
        if len(key) > _MAX_KEY:
            raise InvalidRequest(f"a key of {len(key)} bytes does not fit an HFile")
        size = len(key) + len(value) + _ENTRY_OVERHEAD
        if block and block_bytes + size > block_size and key != last_key:
            file.add_block(DATA_MAGIC, b"".join(block), first_key)
            block, block_bytes = [], 0
        if not block:
            first_key = key
        block += (ENTRY_HEADER.pack(len(key) + 12, len(value), len(key)), key, KEY_SUFFIX, value, b"\0")
        block_bytes += size
        data_bytes += size
        entry_count, key_bytes, value_bytes = entry_count + 1, key_bytes + len(key), value_bytes + len(value)
        last_key = key
    if block:
        file.add_block(DATA_MAGIC, b"".join(block), first_key)
    for name, payload in (meta_blocks or {}).items():
        file.add_block(META_MAGIC, payload, name.encode())

    average = max(1, entry_count)
    info = {
        b"schema": schema_json.encode(),
        b"hfile.LASTKEY": len(last_key).to_bytes(2, "big") + last_key,
        b"hfile.AVG_VALUE_LEN": (value_bytes // average).to_bytes(4, "big"),
        b"hfile.AVG_KEY_LEN": (key_bytes // average).to_bytes(4, "big"),
        b"KEY_VALUE_VERSION": (1).to_bytes(4, "big"),
        b"MAX_MEMSTORE_TS_KEY": (0).to_bytes(8, "big"),
        b"hfile.CREATE_TIME_TS": created_ms.to_bytes(8, "big"),
    } | {name.encode(): value for name, value in (extra_info or {}).items()}
    return file.finish(info, entry_count, data_bytes)


@dataclass(slots=True)
class _File:
    """The bytes so far, with the offsets that the indexes will need."""

    compression: str
    out: bytearray = field(default_factory=bytearray)
    data_index: list[tuple[int, int, bytes]] = field(default_factory=list)
    meta_index: list[tuple[int, int, bytes]] = field(default_factory=list)

    def add_block(self, magic: bytes, payload: bytes, key: bytes = b"") -> int:
        """Append a block and remember it for its index; the offset at which it starts."""
        packed = _gzip(payload) if self.compression == "gz" else payload
        offset, size = len(self.out), BLOCK_HEADER.size + len(packed)
        checksums = 4 * -(-size // _BYTES_PER_CHECKSUM)
        previous = offset if magic == DATA_MAGIC and self.data_index else -1
        self.out += BLOCK_HEADER.pack(
            magic, len(packed) + checksums, len(payload), previous, 0, _BYTES_PER_CHECKSUM, size
        )
        self.out += packed + bytes(checksums)
        if magic == DATA_MAGIC:
            self.data_index.append((offset, size + checksums, key))
        elif magic == META_MAGIC:
            self.meta_index.append((offset, size + checksums, key))
        return offset

    def finish(self, info: Mapping[bytes, bytes], entry_count: int, data_bytes: int) -> bytes:
        """Append the load-on-open section and the trailer."""
        data_index = b"".join(
            offset.to_bytes(8, "big")
            + size.to_bytes(4, "big")
            + write_vint(len(key) + 2)
            + len(key).to_bytes(2, "big")
            + key
            for offset, size, key in self.data_index
        )
        meta_index = b"".join(
            offset.to_bytes(8, "big") + size.to_bytes(4, "big") + write_vint(len(name)) + name
            for offset, size, name in self.meta_index
        )
        load_on_open = self.add_block(INDEX_MAGIC, data_index)
        self.add_block(INDEX_MAGIC, meta_index)
        in_order = {key: info[key] for key in _INFO_ORDER if key in info}
        file_info = self.add_block(INFO_MAGIC, render_file_info(in_order | dict(info)))
        numbers = {
            1: file_info,
            2: load_on_open,
            3: data_bytes,
            5: len(self.data_index),
            6: len(self.meta_index),
            7: entry_count,
            8: 1,
            9: self.data_index[0][0] if self.data_index else 0,
            10: self.data_index[-1][0] if self.data_index else 0,
        }
        codec = next(number for number, name in CODECS.items() if name == self.compression)
        self.out += render_trailer(numbers, COMPARATOR, codec)
        return bytes(self.out)


def _gzip(payload: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    body = deflater.compress(payload) + deflater.flush()
    checksum = zlib.crc32(payload).to_bytes(4, "little") + (len(payload) & 0xFFFFFFFF).to_bytes(4, "little")
    return _GZIP_HEADER + body + checksum
