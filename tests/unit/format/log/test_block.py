"""Block headers and record positions."""

from __future__ import annotations

import base64
import contextlib
import pickle
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakebed.errors import CorruptTable
from lakebed.format.log.block import (
    BlockKind,
    Header,
    LogBlock,
    decode_positions_v1,
    decode_positions_v2,
    encode_positions_v1,
    encode_positions_v2,
)

POSITIONS = st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 300)), max_size=40)


def block(kind: BlockKind = BlockKind.AVRO_DATA, version: int = 1, **header: str) -> LogBlock:
    return LogBlock(
        kind, version, MappingProxyType({Header[key]: value for key, value in header.items()}), "f", 7, 30, 9
    )


def test_ordinals_are_those_of_the_format() -> None:
    assert [kind.name for kind in BlockKind][3] == "AVRO_DATA" and BlockKind.CDC_DATA == 6
    assert Header.COMPACTED_BLOCK_TIMES == 4 and Header.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS == 8


def test_header_properties() -> None:
    full = block(INSTANT_TIME="2", COMPACTED_BLOCK_TIMES="1,2", IS_PARTIAL="TRUE", SCHEMA="{}", BLOCK_IDENTIFIER="0,1")
    assert (full.requested_time, full.compacted_times, full.is_partial) == ("2", ("1", "2"), True)
    assert (full.schema_json, full.identifier, full.is_compacted) == ("{}", "0,1", True)
    bare = block()
    assert (bare.compacted_times, bare.is_partial, bare.schema_json) == ((), False, None)
    with pytest.raises(CorruptTable) as caught:
        _ = bare.requested_time
    assert (caught.value.file, caught.value.offset) == ("f", 7)
    assert pickle.loads(pickle.dumps(full)) == full


@given(POSITIONS)
def test_positions_in_file_order(positions: list[int]) -> None:
    values = np.array(positions, dtype=np.uint64)
    text = encode_positions_v2(values)
    assert decode_positions_v2(text, len(positions), "f").tolist() == positions


def test_positions_of_version_2_are_big_endian_count_and_varlongs() -> None:
    text = encode_positions_v2(np.array([5, 300, 5], dtype=np.uint64))
    assert base64.b64decode(text) == b"\x00\x00\x00\x03" + b"\x05" + b"\xac\x02" + b"\x05"


@given(st.sets(st.integers(0, 2**40), max_size=30))
def test_positions_as_a_bitmap(positions: set[int]) -> None:
    values = np.array(sorted(positions), dtype=np.uint64)
    assert decode_positions_v1(encode_positions_v1(values), len(positions), "f").tolist() == sorted(positions)


def test_positions_that_do_not_fit_are_corrupt() -> None:
    many = BitMap64()
    many.add_range(0, 2**28)
    many.run_optimize()
    bomb = base64.b64encode(many.serialize()).decode()  # a few kilobytes that claim 2 GB of positions
    assert len(bomb) < 1 << 18
    for text in ("", "%%", "AAAA", bomb):
        with pytest.raises(CorruptTable):
            decode_positions_v1(text, 2, "f")
    one = b"\x00\x00\x00\x01"
    for raw in (b"", one, one + b"\x80", b"\xff\xff\xff\xff\x01", one + b"\xff" * 11):
        with pytest.raises(CorruptTable):
            decode_positions_v2(base64.b64encode(raw).decode(), 1, "f")
    with pytest.raises(CorruptTable):
        decode_positions_v2(base64.b64encode(b"\x00\x00\x00\x01" + b"\xff" * 9 + b"\x02").decode(), 1, "f")


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_as_positions(raw: bytes, rows: int) -> None:
    text = base64.b64encode(raw).decode()
    for decode in (decode_positions_v1, decode_positions_v2):
        with contextlib.suppress(CorruptTable):
            assert len(decode(text, rows, "f")) == rows


def test_positions_count_only_for_the_base_file_they_name() -> None:
    text = encode_positions_v1(np.array([1, 4], dtype=np.uint64))
    header = {"RECORD_POSITIONS": text, "BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS": "100"}
    found = block(**header).positions("100", 2)
    assert found is not None and found.tolist() == [1, 4]
    assert block(**header).positions("101", 2) is None
    assert block().positions("100", 2) is None
    native = {**header, "RECORD_POSITIONS": encode_positions_v2(np.array([4, 1], dtype=np.uint64))}
    found = block(version=2, **native).positions("100", 2)
    assert found is not None and found.tolist() == [4, 1]
