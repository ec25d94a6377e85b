"""HFiles: every real one is read, rebuilt to the byte, and damaged without harm."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.format.hfile.layout import read_vint, write_vint
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log.block import BlockKind
from lakebed.format.log.v1 import scan_blocks

Golden = Callable[[str], Path]
TABLES = ["mdt_all_v9", "mdt_expr_v9", "mor_maint_v9", "cow_simple_v9", "cow_oddkeys_rli_v9"]
EXTRA = ("bloomFilterTypeCode", "minRecordKey", "maxRecordKey")
SMILE, LAST_OF_PLANE = "\U0001f600", "\uffff"


class Counted:
    """A file in memory that counts its reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def __call__(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]


def open_hfile(data: bytes) -> HFileReader:
    return HFileReader(Counted(data), len(data), "a.hfile")


def real_hfiles(table: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((table / ".hoodie" / "metadata").rglob("*.hfile"))]


def hfile_log_blocks(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob(".*.log.*")):
        data = path.read_bytes()
        for block in scan_blocks(Counted(data), len(data), path.name):
            if block.kind is BlockKind.HFILE_DATA:
                yield data[block.content_offset : block.content_offset + block.content_length]


def raw_parts(data: bytes) -> list[bytes]:
    """The file with every gzip stream unpacked, so that the choice of a zlib does not matter."""
    parts, at = [], 0
    while at < len(data) - 4096:
        size = int.from_bytes(data[at + 8 : at + 12], "big")
        packed = int.from_bytes(data[at + 29 : at + 33], "big")
        parts += [data[at : at + 8], zlib.decompress(data[at + 33 : at + packed], 31)]
        at += 33 + size
    return parts


@pytest.mark.parametrize("table", TABLES)
def test_real_files_are_rebuilt_from_their_entries(golden: Golden, table: str) -> None:
    files = real_hfiles(golden(table))
    assert files
    for data in files:
        reader = open_hfile(data)
        bloom = reader.meta_block("bloomFilter")
        assert bloom is not None
        rebuilt = write_hfile(
            reader.entries(),
            schema_json=reader.file_info[b"schema"].decode(),
            meta_blocks={"bloomFilter": bloom},
            extra_info={name: reader.file_info[name.encode()] for name in EXTRA},
            created_ms=int.from_bytes(reader.file_info[b"hfile.CREATE_TIME_TS"], "big"),
        )
        assert raw_parts(rebuilt) == raw_parts(data)
        if "ng" not in zlib.ZLIB_RUNTIME_VERSION:
            assert rebuilt == data


def test_facts_of_a_real_file(golden: Golden) -> None:
    [path] = (golden("mdt_all_v9") / ".hoodie/metadata").rglob("secondary-index-idx-txt-0000-0_*.hfile")
    read = Counted(path.read_bytes())
    reader = HFileReader(read, len(read.data), path.name)
    assert len(reader) == 30
    assert (reader.trailer.codec, reader.trailer.data_index_count, reader.trailer.meta_index_count) == ("gz", 1, 1)
    assert [key for key, _ in reader.entries()][:2] == [b"txt-1-1$k0001", b"txt-10-1$k0010"]
    assert reader.get(b"txt-12-1$k0012") is not None
    assert reader.get(b"txt-12") is None
    assert [key for key, _ in reader.prefix(b"txt-12-1$")] == [b"txt-12-1$k0012"]
    assert reader.meta_block("nothing") is None
    assert read.reads == [(0, len(read.data))], "a small file takes one read"


def test_log_blocks_of_the_metadata_table(golden: Golden) -> None:
    blocks = list(hfile_log_blocks(golden("mdt_all_v9") / ".hoodie/metadata"))
    assert len(blocks) > 10
    for data in blocks:
        reader = open_hfile(data)
        entries = list(reader.entries())
        assert reader.get_many(sorted(key for key, _ in entries)) == dict(entries)
        assert all(list(reader.prefix(key[:3])) == [e for e in entries if e[0][:3] == key[:3]] for key, _ in entries)


def test_keys_in_utf16_order_are_found(golden: Golden) -> None:
    """A real log block sorts an emoji before U+FFFF, which is not the order of bytes."""
    unordered = 0
    for data in hfile_log_blocks(golden("cow_oddkeys_rli_v9") / ".hoodie/metadata/record_index"):
        reader = open_hfile(data)
        entries = list(reader.entries())
        keys = [key for key, _ in entries]
        unordered += keys != sorted(keys)
        assert reader.get_many(sorted(keys)) == dict(entries)
        assert all(reader.get(key) == value for key, value in entries)
        for key in keys:
            assert dict(reader.prefix(key)) == {k: v for k, v in entries if k.startswith(key)}
    assert unordered == 1


def in_utf16_order(keys: list[bytes], block_size: int) -> bytes:
    """A file as Hudi's writers make it: block by block in Java's string order."""
    stand_ins = {f"{i:05d}".encode(): key for i, key in enumerate(keys)}
    data = write_hfile(stand_ins.items(), schema_json="{}", compression="none", block_size=block_size)
    for stand_in, key in stand_ins.items():
        data = data.replace(b"\x00\x05" + stand_in, b"\x00\x05" + key)
    return data


@pytest.mark.parametrize("block_size", [30, 70, 1000])
def test_utf16_order_over_many_blocks(block_size: int) -> None:
    texts = ["aaaaa", f"b{SMILE}", f"{SMILE}0", f"{SMILE}1", f"{SMILE}2", "\ue000aa", "\ufffdbb", f"{LAST_OF_PLANE}cc"]
    keys = [text.encode() for text in texts]
    reader = open_hfile(in_utf16_order(keys, block_size))
    assert [key for key, _ in reader.entries()] == keys != sorted(keys)
    assert reader.get_many(sorted(keys)) == {key: key for key in keys}
    assert [key for key, _ in reader.prefix(SMILE.encode())] == keys[2:5]
    assert reader.get(f"{SMILE}9".encode()) is None
    assert reader.get(b"\xf0\x9f\x98") is None


def test_keys_in_no_order_are_refused() -> None:
    data = write_hfile([(b"a", b""), (b"b", b""), (b"c", b"")], schema_json="{}", compression="none")
    damaged = data.replace(b"\x00\x01b\x00", b"\x00\x01d\x00")
    with pytest.raises(CorruptTable, match="order"):
        open_hfile(damaged).get(b"c")


keys_and_values = st.dictionaries(st.binary(max_size=40), st.binary(max_size=60), max_size=40)


@settings(max_examples=60, deadline=None)
@given(keys_and_values, st.sampled_from(["gz", "none"]), st.integers(1, 400), st.binary(max_size=3))
def test_round_trip(entries: dict[bytes, bytes], codec: str, block_size: int, prefix: bytes) -> None:
    ordered = sorted(entries.items())
    reader = open_hfile(write_hfile(ordered, schema_json="{}", compression=codec, block_size=block_size))
    assert list(reader.entries()) == ordered
    assert reader.get_many(sorted(entries)) == entries
    assert list(reader.prefix(prefix)) == [(k, v) for k, v in ordered if k.startswith(prefix)]
    assert reader.get(b"no such key" * 5) is None


def test_look_ups_read_only_the_blocks_they_need() -> None:
    rng = random.Random(1)
    entries = [(f"key-{i:06d}".encode(), rng.randbytes(200)) for i in range(5000)]
    data = write_hfile(entries, schema_json="{}", block_size=16 * 1024)
    read = Counted(data)
    reader = HFileReader(read, len(data), "a.hfile")
    assert len(read.reads) == 1
    assert reader.get(b"key-000100") == entries[100][1]
    assert len(read.reads) == 2
    assert read.reads[1][1] < 20 * 1024
    reader.get(b"key-000101")
    assert len(read.reads) == 2, "the block at hand is used again"
    assert reader.get_many([b"key-000300", b"key-000400", b"key-003000"]).keys() == {
        b"key-000300",
        b"key-000400",
        b"key-003000",
    }
    assert len(read.reads) == 4, "blocks side by side come together"
    assert list(reader.prefix(b"key-0042")) == entries[4200:4300]
    assert list(reader.entries()) == entries


def test_a_large_index_costs_one_more_read() -> None:
    entries = [(f"{i:06d}".encode() + b"x" * 100, b"") for i in range(3000)]
    data = write_hfile(entries, schema_json="{}", compression="none", block_size=64)
    read = Counted(data)
    assert list(HFileReader(read, len(data), "a.hfile").entries()) == entries
    assert read.reads[1][0] < read.reads[0][0]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1])
def test_vint(value: int) -> None:
    assert read_vint(write_vint(value), 0) == (value, len(write_vint(value)))


def test_negative_vints_of_hadoop() -> None:
    assert read_vint(b"\x90", 0) == (-112, 1)
    assert read_vint(b"\x8f\xff", 0) == (255, 2)
    assert read_vint(b"\x87\x70", 0) == (-113, 2)


def test_writer_refuses_what_readers_could_not_find() -> None:
    with pytest.raises(InvalidRequest, match="ascend"):
        write_hfile([(b"b", b""), (b"a", b"")], schema_json="{}")
    with pytest.raises(InvalidRequest, match="does not fit"):
        write_hfile([(b"x" * 40000, b"")], schema_json="{}")
    with pytest.raises(InvalidRequest, match="lzo"):
        write_hfile([], schema_json="{}", compression="lzo")


@pytest.mark.parametrize(("codec", "name"), [(0, "lzo"), (3, "snappy"), (4, "lz4"), (5, "bz2")])
def test_other_codecs_are_named(codec: int, name: str) -> None:
    data = write_hfile([(b"a", b"1")], schema_json="{}")
    changed = data.replace(b"Comparator`\x01", b"Comparator`" + bytes([codec]))
    with pytest.raises(UnsupportedFormat, match=name):
        open_hfile(changed)


def test_multi_level_indexes_and_other_versions_are_refused() -> None:
    data = write_hfile([(b"a", b"1")], schema_json="{}")
    at = len(data) - 4096
    with pytest.raises(UnsupportedFormat, match="levels"):
        open_hfile(data[:at] + data[at:].replace(b"@\x01H", b"@\x02H"))
    with pytest.raises(UnsupportedFormat, match="version 2"):
        open_hfile(data[:-1] + b"\x02")


def _answers(data: bytes) -> tuple[object, ...]:
    reader = open_hfile(data)
    entries = list(reader.entries())
    keys = [key for key, _ in entries]
    return entries, reader.get_many(sorted(keys)), reader.meta_block("bloomFilter"), list(reader.prefix(keys[0][:4]))


@pytest.fixture(scope="module")
def samples(golden: Golden) -> list[bytes]:
    folder = golden("mdt_all_v9") / ".hoodie/metadata"
    return [*real_hfiles(golden("mdt_all_v9"))[:2], *list(hfile_log_blocks(folder))[:2]]


def test_byte_flips_give_an_error_or_the_same_answer(samples: list[bytes]) -> None:
    rng = random.Random(7)
    for data in samples:
        whole = _answers(data)
        tail = len(data) - 4096
        spots = [*range(0, 40), *range(tail, tail + 100), *(rng.randrange(tail) for _ in range(200)), len(data) - 1]
        for at in spots:
            damaged = bytearray(data)
            damaged[at] ^= rng.randrange(1, 256)
            with contextlib.suppress(LakebedError):
                assert _answers(bytes(damaged)) == whole, at


def test_truncations_are_errors(samples: list[bytes]) -> None:
    rng = random.Random(8)
    for data in samples:
        for length in [0, 1, 4095, 4096, *(rng.randrange(len(data)) for _ in range(30)), len(data) - 1]:
            with pytest.raises(LakebedError):
                _answers(data[:length])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_uncompressed_files_never_raise_anything_else(data: st.DataObject) -> None:
    entries = [(f"k{i}".encode(), b"v" * i) for i in range(10)]
    whole = bytearray(write_hfile(entries, schema_json="{}", compression="none", block_size=60))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 4096 + 100))
        whole[at] = data.draw(st.integers(0, 255))
    try:
        reader = open_hfile(bytes(whole))
        list(reader.entries())
        reader.get(b"k3")
        list(reader.prefix(b"k"))
    except LakebedError:
        pass


def test_a_short_read_is_an_error() -> None:
    data = write_hfile([(b"a", b"1")], schema_json="{}")
    with pytest.raises(CorruptTable, match="were requested"):
        HFileReader(lambda offset, length: data[offset : offset + length - 1], len(data), "a.hfile")
