"""Log files in every bad state. In table versions 8 and up a log is written once and whole by one instant, so whatever
is no block in a committed log is damage, never a failed append to be passed over."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from benchmarks.handmade import FILE_ID, TOKEN, HandmadeTable
from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.v1 import MAGIC, encode_block
from lakebed.model.instant import Action
from tests.bad_input.conftest import Rows, refused, rows_of

Golden = Callable[[str], Path]
RightRows = Callable[[str], Rows]
FOLDERS = {"hoodie.metadata.enable": "false"}
BOTH_LISTINGS = pytest.mark.parametrize("options", [None, FOLDERS], ids=["mdt", "folders"])
FORMATS = pytest.mark.parametrize("name", ["mor_avro_v9", "mor_parquet_v9", "mor_deletes_v9"])
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])


def a_log(root: Path) -> Path:
    """A log that a snapshot reads."""
    slices = lakebed.open(root).inspect.file_slices().to_pylist()
    file_slice = next(row for row in slices if row["logs"])
    return root / file_slice["partition"] / file_slice["logs"][-1]


@FORMATS
@BOTH_LISTINGS
def test_missing(golden_copy: Golden, name: str, options: dict[str, str] | None) -> None:
    root = golden_copy(name)
    file = a_log(root)
    file.unlink()
    with refused(lakebed.CorruptTable, "missing.*Restore", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root, options=options)


@FORMATS
@BOTH_LISTINGS
@pytest.mark.parametrize("left", [0, 3, 6, 20, 300, -1, -9])
def test_torn(golden_copy: Golden, name: str, left: int, options: dict[str, str] | None) -> None:
    root = golden_copy(name)
    file = a_log(root)
    file.write_bytes(file.read_bytes()[:left])
    with refused(lakebed.CorruptTable, ".", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root, options=options)


@FORMATS
@pytest.mark.parametrize("length", [0, 1, 31, 2**31 - 1, 2**62, -1])
def test_a_block_whose_length_lies(golden_copy: Golden, name: str, length: int) -> None:
    root = golden_copy(name)
    file = a_log(root)
    data = file.read_bytes()
    file.write_bytes(data[:6] + struct.pack(">q", length) + data[14:])
    with refused(lakebed.CorruptTable, "no block", file=file.relative_to(root).as_posix(), at=root) as caught:
        rows_of(root)
    assert caught.value.offset == 0


@FORMATS
@pytest.mark.parametrize(
    ("at", "value", "match"),
    [(14, 0, "version 0"), (14, 2, "version 2"), (14, -1, "version -1"), (18, 7, "type 7"), (18, 99, "type 99")],
)
def test_blocks_of_unknown_version_or_type(golden_copy: Golden, name: str, at: int, value: int, match: str) -> None:
    root = golden_copy(name)
    file = a_log(root)
    data = file.read_bytes()
    file.write_bytes(data[:at] + struct.pack(">i", value) + data[at + 4 :])
    with refused(lakebed.UnsupportedFormat, match, file=file.relative_to(root).as_posix(), at=root) as caught:
        rows_of(root)
    assert caught.value.offset == 0


@FORMATS
def test_a_block_of_another_instant_is_not_dropped_silently(golden_copy: Golden, name: str) -> None:
    root = golden_copy(name)
    file = a_log(root)
    data = file.read_bytes()
    requested_time = file.name.split("_")[1].partition(".")[0].encode()
    assert data.count(requested_time) >= 1
    at = data.index(requested_time)
    file.write_bytes(data[:at] + b"1" + data[at + 1 :])
    with refused(lakebed.CorruptTable, "instant 1", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root)


@FORMATS
def test_a_flipped_byte_anywhere(golden_copy: Golden, right_rows: RightRows, name: str) -> None:
    """Frames and headers are checked; a byte inside an uncompressed value has no checksum to betray it."""
    root = golden_copy(name)
    file = a_log(root)
    right, whole = right_rows(name), file.read_bytes()
    seen = {"same": 0, "refused": 0, "other rows": 0}
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :])
        try:
            seen["same" if rows_of(root) == right else "other rows"] += 1
        except lakebed.LakebedError as error:
            assert type(error) in (lakebed.CorruptTable, lakebed.UnsupportedFormat)
            assert (error.file or "").startswith(file.relative_to(root).as_posix()) and error.hint
            seen["refused"] += 1
    assert seen["refused"] >= 5


@FORMATS
def test_bytes_behind_the_last_block(golden_copy: Golden, name: str) -> None:
    root = golden_copy(name)
    file = a_log(root)
    data = file.read_bytes()
    file.write_bytes(data + b"\0" * 64)
    with refused(lakebed.CorruptTable, "no block", file=file.relative_to(root).as_posix(), at=root) as caught:
        rows_of(root, options=FOLDERS)
    assert caught.value.offset is not None


def test_a_stretch_full_of_magics_does_not_take_for_ever(golden_copy: Golden) -> None:
    root = golden_copy("mor_avro_v9")
    file = a_log(root)
    file.write_bytes(file.read_bytes() + (MAGIC + b"\0" * 8) * 50_000)
    with refused(lakebed.CorruptTable, "no block", file=file.relative_to(root).as_posix()):
        rows_of(root, options=FOLDERS)


# Content that real tables of today do not have, made by hand


def one_log(root: Path, *blocks: bytes) -> Path:
    """A table with a base of two rows and one log of the given blocks."""
    made = HandmadeTable(root, SCHEMA, version=9, layout="default")
    made.base(pa.table({"id": ["a", "b"], "ts": [1, 1], "v": [0, 0]}, schema=SCHEMA))
    requested_time = made.log(native=False)
    (file,) = root.glob(f".*{requested_time}.log*")
    file.write_bytes(b"".join(blocks).replace(b"00000000000000001", requested_time.encode()))
    return file


HEADER = {Header.INSTANT_TIME: "00000000000000001"}
AVRO = (
    '{"type": "record", "name": "r", "fields": [{"name": "_hoodie_record_key", "type": "string"},'
    ' {"name": "id", "type": "string"}, {"name": "ts", "type": "long"}, {"name": "v", "type": "long"}]}'
)
WITH_SCHEMA = {**HEADER, Header.SCHEMA: AVRO}


def test_deletes_written_with_kryo_are_of_older_tables(tmp_path: Path) -> None:
    for version in (1, 2):
        content = struct.pack(">ii", version, 4) + b"\x01\x02\x03\x04"
        file = one_log(tmp_path / str(version), encode_block(BlockKind.DELETE, HEADER, content))
        with refused(lakebed.UnsupportedFormat, "(?i)delete.*version", file=file.name, at=tmp_path):
            rows_of(file.parent)


@pytest.mark.parametrize(
    ("kind", "header", "content"),
    [
        ("no schema", HEADER, struct.pack(">iii", 3, 1, 4) + b"abcd"),
        ("schema of no sense", {**HEADER, Header.SCHEMA: "{"}, struct.pack(">iii", 3, 1, 4) + b"abcd"),
        ("count lies", WITH_SCHEMA, struct.pack(">ii", 3, 2**31 - 1)),
        ("negative count", WITH_SCHEMA, struct.pack(">ii", 3, -5)),
        ("record length lies", WITH_SCHEMA, struct.pack(">iii", 3, 1, 2**31 - 1) + b"ab"),
        (
            "string length lies",
            WITH_SCHEMA,
            struct.pack(">iii", 3, 1, 10) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ),
        ("not UTF-8", WITH_SCHEMA, struct.pack(">iii", 3, 1, 8) + b"\x02\xff\x02\xff\x02\x02\x00\x00"),
        ("left over", WITH_SCHEMA, struct.pack(">iii", 3, 1, 6) + b"\x02a\x02a\x02\x02" + b"junk"),
        ("empty", WITH_SCHEMA, b""),
    ],
)
def test_avro_blocks_that_contradict_themselves(
    tmp_path: Path, kind: str, header: dict[Header, str], content: bytes
) -> None:
    file = one_log(tmp_path / "t", encode_block(BlockKind.AVRO_DATA, header, content))
    with refused(lakebed.CorruptTable, ".", file=file.name, at=tmp_path):
        rows_of(file.parent)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\xff" * 64 + b"PAR1", b"\0" * 1000])
def test_parquet_blocks_that_are_none(tmp_path: Path, content: bytes) -> None:
    file = one_log(tmp_path / "t", encode_block(BlockKind.PARQUET_DATA, WITH_SCHEMA, content))
    with refused(lakebed.CorruptTable, ".", file=file.name, at=tmp_path):
        rows_of(file.parent)


def test_commands_other_than_rollback(tmp_path: Path) -> None:
    header = {**HEADER, Header.TARGET_INSTANT_TIME: "20260101000001000", Header.COMMAND_BLOCK_TYPE: "7"}
    file = one_log(tmp_path / "t", encode_block(BlockKind.COMMAND, header, b""))
    with refused(lakebed.UnsupportedFormat, "command", file=file.name, at=tmp_path):
        rows_of(file.parent)


def test_deletes_that_contradict_themselves(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"\0\0\0\x03", struct.pack(">ii", 3, 2**31 - 1), struct.pack(">ii", 3, -1))):
        file = one_log(tmp_path / str(number), encode_block(BlockKind.DELETE, HEADER, content))
        with refused(lakebed.CorruptTable, ".", file=file.name, at=tmp_path):
            rows_of(file.parent)


# Native logs


@pytest.fixture
def native(tmp_path: Path) -> Path:
    made = HandmadeTable(tmp_path / "native", SCHEMA)
    made.base(pa.table({"id": ["a", "b"], "ts": [1, 1], "v": [0, 0]}, schema=SCHEMA))
    made.log(pa.table({"id": ["b", "c"], "ts": [2, 2], "v": [1, 1]}, schema=SCHEMA), pa.table({"id": ["a"]}))
    assert [row["id"] for row in rows_of(made.root)] == ["b", "c"]
    return made.root


@pytest.mark.parametrize("word", ["log", "deletes"])
@pytest.mark.parametrize("left", [0, 4, 100, -1, -5])
def test_native_logs_torn(native: Path, word: str, left: int) -> None:
    (file,) = native.glob(f"*.{word}.parquet")
    file.write_bytes(file.read_bytes()[:left])
    with refused(lakebed.CorruptTable, ".", file=file.name, at=native):
        rows_of(native)


@pytest.mark.parametrize("word", ["log", "deletes"])
def test_native_logs_missing(native: Path, word: str) -> None:
    (file,) = native.glob(f"*.{word}.parquet")
    file.unlink()
    with refused(lakebed.CorruptTable, "missing", file=file.name, at=native):
        rows_of(native)


def test_native_logs_of_unknown_formats(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", SCHEMA)
    made.base(pa.table({"id": ["a"], "ts": [1], "v": [0]}, schema=SCHEMA))
    requested_time = made._begin()
    name = f"{FILE_ID}_{TOKEN}_{requested_time}_1.log.lance"
    (made.root / name).write_bytes(b"LANC" * 100)
    made._commit(requested_time, Action.DELTA_COMMIT, [name])
    with refused(lakebed.UnsupportedFormat, "'lance'", file=name, at=made.root):
        rows_of(made.root)
