"""Bloom filters: rebuilt bit for bit from the keys of real base files."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.format.bloom_filter import (
    DYNAMIC_V0,
    FOOTER_KEY,
    SIMPLE,
    TYPE_CODE_KEY,
    DynamicBloomFilter,
    SimpleBloomFilter,
    Sizing,
    load_bloom_filter,
)

Golden = Callable[[str], Path]
RATES = (1e-6, 1e-9)


def slow_positions(key: bytes, hashes: int, bits: int) -> list[int]:
    """The definition, one key and one byte at a time."""
    mask, m, seed, found = 0xFFFFFFFF, 0x5BD1E995, 0, []
    for _ in range(hashes):
        h = seed ^ len(key)
        whole = len(key) // 4 * 4
        for at in range(0, whole, 4):
            word = int.from_bytes(key[at : at + 4], "little") * m & mask
            word = (word ^ word >> 24) * m & mask
            h = h * m & mask ^ word
        if key[whole:]:
            for shift, byte in enumerate(reversed(key[whole:])):
                h ^= (byte - 256 if byte > 127 else byte) << 8 * shift & mask
            h = h * m & mask
        h = (h ^ h >> 13) * m & mask
        seed = h ^ h >> 15
        found.append(abs(seed - (1 << 32) if seed >> 31 else seed) % bits)
    return found


@pytest.mark.parametrize(
    "table", ["cow_simple_v9", "cow_hive_v9", "cow_oddkeys_rli_v9", "mor_schema_evo_v9", "cow_clustering_v9"]
)
def test_real_footers_are_rebuilt(golden: Golden, table: str) -> None:
    files = [path for path in sorted(golden(table).rglob("*.parquet")) if ".hoodie" not in path.parts]
    assert files
    for path in files:
        parquet = pq.ParquetFile(path)
        footer = parquet.metadata.metadata
        text, code = footer[FOOTER_KEY.encode()].decode(), footer[TYPE_CODE_KEY.encode()].decode()
        real = load_bloom_filter(text, code, path.name)
        assert isinstance(real, DynamicBloomFilter)
        keys = parquet.read(["_hoodie_record_key"]).column(0)
        [sizing] = [s for s in (Sizing(real.keys_per_row, rate) for rate in RATES) if s.bits == real.rows[0].bits]
        assert DynamicBloomFilter.build(keys, sizing).to_base64() == text
        assert real.to_base64() == text
        assert real.might_contain_many(keys).all()


def test_the_default_size_is_that_of_hudi() -> None:
    assert (Sizing().bits, Sizing().hashes) == (2587966, 30)
    assert len(DynamicBloomFilter.build([], Sizing(10_000)).to_base64()) == 71_940


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=30))
def test_vectors_agree_with_the_definition(keys: list[str]) -> None:
    sizing = Sizing(50, 1e-3)
    built = SimpleBloomFilter.build(keys, sizing)
    bits = np.unpackbits(built.packed, bitorder="little")
    wanted = {at for key in keys for at in slow_positions(key.encode(), sizing.hashes, sizing.bits)}
    assert set(np.flatnonzero(bits).tolist()) == wanted
    assert SimpleBloomFilter.from_base64(built.to_base64()).to_bytes() == built.to_bytes()
    assert all(built.might_contain(key) for key in keys)


def test_slices_and_chunks_of_arrow_arrays() -> None:
    keys = [f"k{i}" * (i % 5 + 1) for i in range(300)]
    whole = SimpleBloomFilter.build(keys[50:250]).to_bytes()
    array = pa.array(keys)
    assert SimpleBloomFilter.build(array.slice(50, 200)).to_bytes() == whole
    assert SimpleBloomFilter.build(pa.chunked_array([array[50:60], array[60:250]])).to_bytes() == whole
    assert (
        SimpleBloomFilter.build(pa.chunked_array([], pa.string())).to_bytes() == SimpleBloomFilter.build([]).to_bytes()
    )
    with pytest.raises(InvalidRequest, match="null"):
        SimpleBloomFilter.build(pa.array(["a", None]))


def test_rows_are_opened_and_then_dealt_out() -> None:
    """Ten keys a row, room for 25: three rows, then row 0 once and after that 0, 1, 2, 0, ..."""
    keys = [f"key{i}" for i in range(37)]
    sizing = Sizing(10, 1e-6, max_keys=25)
    built = DynamicBloomFilter.build(keys, sizing)
    places = [[*range(0, 10), 30, 31, 34], [*range(10, 20), 32, 35], [*range(20, 30), 33, 36]]
    assert [row.to_bytes() for row in built.rows] == [
        SimpleBloomFilter.build([keys[i] for i in place], sizing).to_bytes() for place in places
    ]
    assert built.keys_in_last_row == 17
    assert len(DynamicBloomFilter.build(keys[:10], sizing).rows) == 1
    assert len(DynamicBloomFilter.build(keys[:11], sizing).rows) == 2
    assert DynamicBloomFilter.build(keys[:11], sizing).keys_in_last_row == 1


def test_absent_keys_are_mostly_refused() -> None:
    built = DynamicBloomFilter.build([f"in-{i}" for i in range(1000)], Sizing(1000, 1e-4))
    absent = built.might_contain_many([f"out-{i}" for i in range(5000)])
    assert absent.sum() < 10
    assert not built.might_contain("out-0") or absent[0]


def test_a_million_keys_take_no_python_object_each() -> None:
    keys = pa.array(np.char.add("key-", np.arange(200_000).astype(str)))
    assert DynamicBloomFilter.build(keys).might_contain_many(keys.slice(0, 1000)).all()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data: st.DataObject) -> None:
    raw = bytearray(DynamicBloomFilter.build([f"k{i}" for i in range(15)], Sizing(10, 1e-3)).to_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, min(40, len(raw) - 1)))] = data.draw(st.integers(0, 255))
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    for kind in (DynamicBloomFilter, SimpleBloomFilter):
        for form in (raw, cut):
            try:
                kind.from_base64(base64.b64encode(form)).might_contain("k1")
            except LakebedError:
                continue


def test_what_is_refused() -> None:
    good = SimpleBloomFilter.build(["a"], Sizing(10)).to_bytes()
    with pytest.raises(CorruptTable, match="base64"):
        SimpleBloomFilter.from_base64("no base64 at all!")
    with pytest.raises(CorruptTable, match="follow"):
        SimpleBloomFilter.from_base64(base64.b64encode(good + b"x"))
    with pytest.raises(UnsupportedFormat, match="hash 0"):
        SimpleBloomFilter.from_base64(base64.b64encode(good[:8] + b"\0" + good[9:]))
    with pytest.raises(UnsupportedFormat, match="CUCKOO"):
        load_bloom_filter("", "CUCKOO")
    with pytest.raises(InvalidRequest):
        Sizing(0)
    assert isinstance(load_bloom_filter(base64.b64encode(good), None), SimpleBloomFilter)
    assert isinstance(load_bloom_filter(base64.b64encode(good), SIMPLE), SimpleBloomFilter)
    dynamic = DynamicBloomFilter.build(["a"], Sizing(10)).to_base64()
    assert load_bloom_filter(dynamic, DYNAMIC_V0).might_contain("a")
