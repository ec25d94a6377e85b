"""The version 1 container: real files, torn files, lying files."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.format.log import v1
from lakebed.format.log.block import BlockKind, Header, LogBlock
from lakebed.format.log.v1 import MAGIC, encode_block, scan_blocks

HEADER = {Header.INSTANT_TIME: "20250101000000000", Header.SCHEMA: '{"é": 1}'}


def scan(data: bytes) -> list[LogBlock]:
    def read(offset: int, length: int) -> bytes:
        assert offset >= 0 and length >= 0 and offset + length <= len(data), "reads stay inside the file"
        return data[offset : offset + length]

    return list(scan_blocks(read, len(data), "f"))


def reader_context_of(blocks: list[LogBlock]) -> list[tuple[str, int, int]]:
    return [(block.kind.name, block.offset, block.content_length) for block in blocks]


def test_real_blocks_encode_to_the_same_bytes_but_for_header_order(golden: Callable[[str], Path]) -> None:
    found = 0
    for path in sorted(golden("mor_deletes_v9").rglob(".*.log.*")):
        data = path.read_bytes()
        for block in scan(data):
            content = data[block.content_offset : block.content_offset + block.content_length]
            end = block.content_offset + block.content_length + 12
            again = encode_block(block.kind, block.header, content)
            assert len(again) == end - block.offset
            assert again[:22] == data[block.offset : block.offset + 22]
            assert again[-12 - len(content) :] == data[end - 12 - len(content) : end]
            assert scan(again)[0].header == block.header
            found += 1
    assert found > 10


def test_the_byte_picture() -> None:
    block = encode_block(BlockKind.DELETE, {Header.INSTANT_TIME: "7"}, b"abc")
    header = struct.pack(">iii", 1, 0, 1) + b"7"
    body = struct.pack(">ii", 1, 1) + header + struct.pack(">q", 3) + b"abc" + struct.pack(">i", 0)
    assert block == MAGIC + struct.pack(">q", len(body) + 8) + body + struct.pack(">q", 6 + len(body) + 8)
    (found,) = scan(block)
    assert found == LogBlock(BlockKind.DELETE, 1, {Header.INSTANT_TIME: "7"}, "f", 0, len(block) - 15, 3)
    with pytest.raises(InvalidRequest):
        encode_block(BlockKind.CORRUPT, {}, b"")


ONE = encode_block(BlockKind.AVRO_DATA, HEADER, b"x" * 50)
TWO = encode_block(BlockKind.DELETE, HEADER, b"y" * 20)


def test_a_torn_end_is_a_corrupt_stretch() -> None:
    for cut in (1, 5, 6, 13, 14, 40, len(TWO) - 1):
        assert reader_context_of(scan(ONE + TWO[:cut])) == [("AVRO_DATA", 0, 50), ("CORRUPT", len(ONE), cut)]


def test_a_block_followed_by_rubbish_is_corrupt_too() -> None:
    assert reader_context_of(scan(ONE + b"rubbish" + TWO)) == [
        ("CORRUPT", 0, len(ONE) + 7),
        ("DELETE", len(ONE) + 7, 20),
    ]


def test_reading_goes_on_at_the_next_magic() -> None:
    torn = ONE[: len(ONE) // 2]
    start = len(torn) + len(TWO)
    assert reader_context_of(scan(torn + TWO + torn + torn + ONE)) == [
        ("CORRUPT", 0, len(torn)),
        ("DELETE", len(torn), 20),
        ("CORRUPT", start, 2 * len(torn)),
        ("AVRO_DATA", start + 2 * len(torn), 50),
    ]


def test_a_wrong_trailer_and_a_length_past_the_end() -> None:
    wrong = ONE[:-8] + struct.pack(">q", 5)
    assert [block.kind for block in scan(wrong + TWO)] == [BlockKind.CORRUPT, BlockKind.DELETE]
    for length in (2**62, -1, 0, len(ONE)):
        lying = ONE[:6] + struct.pack(">q", length) + ONE[14:]
        assert [block.kind for block in scan(lying + TWO)] == [BlockKind.CORRUPT, BlockKind.DELETE]


@pytest.mark.parametrize("chunk", [6, 7, 8, 13, 64])
def test_magics_on_chunk_borders_are_found(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1, "_RESYNC_CHUNK", chunk)
    for pad in range(20):
        assert [block.kind.name for block in scan(b"r" * (pad + 1) + TWO)] == ["CORRUPT", "DELETE"]


def test_a_magic_inside_content_is_content() -> None:
    tricky = encode_block(BlockKind.AVRO_DATA, HEADER, MAGIC * 5 + TWO)
    assert reader_context_of(scan(tricky + ONE)) == [("AVRO_DATA", 0, 30 + len(TWO)), ("AVRO_DATA", len(tricky), 50)]


def test_a_file_of_magics_takes_linear_work() -> None:
    reads: list[int] = []
    data = MAGIC * 20_000

    def read(offset: int, length: int) -> bytes:
        reads.append(length)
        return data[offset : offset + length]

    (block,) = scan_blocks(read, len(data), "f")
    assert block.kind is BlockKind.CORRUPT and block.content_length == len(data)
    assert sum(reads) < 4 * len(data)


def patched(at: int, value: int, width: str = ">i") -> bytes:
    raw = bytearray(ONE)
    struct.pack_into(width, raw, at, value)
    return bytes(raw)


def test_versions_and_types_out_of_reach_are_refused_with_their_place() -> None:
    for version in (0, 2, 99, -1):
        with pytest.raises(UnsupportedFormat) as caught:
            scan(TWO + patched(14, version))
        assert caught.value.offset == len(TWO)
    for kind in (7, -1):
        with pytest.raises(UnsupportedFormat):
            scan(patched(18, kind))
    with pytest.raises(CorruptTable):
        scan(patched(18, 2))


def test_a_sound_frame_with_a_lying_inside_is_an_error() -> None:
    for at, value in ((22, 99), (22, -1), (22, 2**31 - 1), (30, 2**31 - 1), (30, -1), (22, 1), (22, 3)):
        with pytest.raises(CorruptTable) as caught:
            scan(patched(at, value))
        assert caught.value.file == "f" and caught.value.offset is not None
    content_length_at = len(ONE) - 8 - 4 - 50 - 8
    for value in (-1, 51, 49, 2**62):
        with pytest.raises(CorruptTable):
            scan(patched(content_length_at, value, ">q"))


def test_unknown_header_entries_are_passed_over() -> None:
    block = encode_block(BlockKind.AVRO_DATA, {Header.INSTANT_TIME: "1", Header.IS_PARTIAL: "true"}, b"")
    later = block.replace(struct.pack(">ii", 7, 4) + b"true", struct.pack(">ii", 77, 4) + b"true")
    (found,) = scan(later)
    assert dict(found.header) == {Header.INSTANT_TIME: "1"}


def test_contents_are_skipped() -> None:
    data = encode_block(BlockKind.AVRO_DATA, HEADER, bytes(8 << 20)) + TWO
    tracemalloc.start()
    reads: list[int] = []

    def read(offset: int, length: int) -> bytes:
        reads.append(length)
        return data[offset : offset + length]

    assert len(list(scan_blocks(read, len(data), "f"))) == 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(reads) < 200_000 and peak < 2 << 20


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_is_a_known_error_or_a_corrupt_stretch(data: st.DataObject) -> None:
    raw = bytearray(ONE + TWO + ONE)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        blocks = scan(bytes(raw))
    except LakebedError:
        return
    assert sum(block.content_length for block in blocks if block.kind is BlockKind.CORRUPT) <= len(raw)
    assert [block.offset for block in blocks] == sorted({block.offset for block in blocks})
