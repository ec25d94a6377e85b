"""Base files that are cut, emptied, exchanged or gone.

What can be noticed at all: Parquet pages may carry a CRC, and Arrow is told to check it, but real Hudi writes none; a
compressed page guards itself only by failing to decompress or by the wrong number of bytes. A wrong byte *inside* the
values of a page therefore goes unseen in every reader, real Hudi included. What does hold, and is asserted: the number
of rows is the footer's, every other outcome is `CorruptTable`, and files with page CRCs lose nothing silently. ORC has
no checksums either.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from benchmarks.handmade import HandmadeTable
from lakebed.model.instant import Action
from tests.bad_input.conftest import Rows, refused, rows_of

Golden = Callable[[str], Path]
RightRows = Callable[[str], Rows]
FOLDERS = {"hoodie.metadata.enable": "false"}
BOTH_LISTINGS = pytest.mark.parametrize("options", [None, FOLDERS], ids=["mdt", "folders"])
LARGEST_PAGE_HEADER = 40
TABLES = pytest.mark.parametrize(("name", "extension"), [("cow_simple_v9", "parquet"), ("orc_cow_v9", "orc")])


def newest_base(root: Path, extension: str) -> Path:
    """A base file that a snapshot reads."""
    slices = lakebed.open(root).inspect.file_slices().to_pylist()
    file_slice = next(row for row in slices if row["base_file"] and row["base_file"].endswith(extension))
    return root / file_slice["partition"] / file_slice["base_file"]


@TABLES
@BOTH_LISTINGS
def test_missing(golden_copy: Golden, name: str, extension: str, options: dict[str, str] | None) -> None:
    root = golden_copy(name)
    file = newest_base(root, extension)
    file.unlink()
    with refused(lakebed.CorruptTable, "missing.*Restore", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root, options=options)
    with refused(lakebed.CorruptTable, "missing", at=root):
        lakebed.open(root).scan(options=options).count()


@BOTH_LISTINGS
def test_missing_while_an_older_version_is_there(golden_copy: Golden, options: dict[str, str] | None) -> None:
    """Without a look at what commits report, the older file version would answer in its place."""
    root = golden_copy("cow_simple_v9")
    file = newest_base(root, "parquet")
    older = [path for path in file.parent.glob(f"{file.name.partition('_')[0]}*") if path != file]
    assert older
    file.unlink()
    with refused(lakebed.CorruptTable, "missing", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root, options=options)


def test_a_whole_file_group_gone(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    file = newest_base(root, "parquet")
    for path in file.parent.glob(f"{file.name.partition('_')[0]}*"):
        path.unlink()
    with refused(lakebed.CorruptTable, "missing", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root, options=FOLDERS)


@TABLES
@BOTH_LISTINGS
@pytest.mark.parametrize("left", [0, 1, 4, 11, 500, -1, -4, -8])
def test_truncated(golden_copy: Golden, name: str, extension: str, left: int, options: dict[str, str] | None) -> None:
    root = golden_copy(name)
    file = newest_base(root, extension)
    file.write_bytes(file.read_bytes()[:left])
    with refused(lakebed.CorruptTable, ".", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root, options=options)


@TABLES
def test_longer_than_it_was(golden_copy: Golden, right_rows: RightRows, name: str, extension: str) -> None:
    """Bytes behind the end hide the footer of either format, unless the listing's size cuts them off."""
    root = golden_copy(name)
    file = newest_base(root, extension)
    file.write_bytes(file.read_bytes() + bytes(100))
    where = file.relative_to(root).as_posix()
    with refused(lakebed.CorruptTable, ".", file=where, at=root):
        rows_of(root, options=FOLDERS)
    try:
        assert rows_of(root) == right_rows(name)
    except lakebed.CorruptTable as error:
        assert error.file == where


@TABLES
def test_another_kind_of_file_under_its_name(golden_copy: Golden, name: str, extension: str) -> None:
    root = golden_copy(name)
    file = newest_base(root, extension)
    size = file.stat().st_size
    for content in (b"\0", b"#HUDI#", b"PK\x03\x04", b"hello, ", b"PAR1", b"ORC"):
        file.write_bytes((content * size)[:size])
        with refused(lakebed.CorruptTable, ".", file=file.relative_to(root).as_posix(), at=root):
            rows_of(root)


@TABLES
def test_a_flipped_byte_anywhere(golden_copy: Golden, right_rows: RightRows, name: str, extension: str) -> None:
    root = golden_copy(name)
    file = newest_base(root, extension)
    right, whole = right_rows(name), file.read_bytes()
    where = file.relative_to(root).as_posix()
    seen = {"same": 0, "refused": 0, "other values": 0}
    for at in range(0, len(whole), max(1, len(whole) // 90)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            ours = rows_of(root)
        except lakebed.LakebedError as error:
            assert type(error) in (lakebed.CorruptTable, lakebed.UnsupportedFormat)
            assert error.file == where and error.hint
            seen["refused"] += 1
            continue
        assert len(ours) == len(right)
        seen["same" if ours == right else "other values"] += 1
    assert seen["refused"] > 20


def test_a_flipped_byte_in_pages_with_checksums_is_always_noticed(tmp_path: Path) -> None:
    """The checksum covers a page's content; its header, skipped here, is as unguarded as in any Parquet file."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
    made = HandmadeTable(tmp_path / "t", schema)
    ids = [f"k{i:04d}" for i in range(500)]
    requested_time = made.base(pa.table({"id": ids, "ts": range(500), "v": [i / 7 for i in range(500)]}, schema=schema))
    (file,) = made.root.glob("*.parquet")
    table = pq.read_table(file)
    pq.write_table(
        table, file, write_page_checksum=True, compression="none", use_dictionary=False, write_statistics=False
    )
    (commit,) = (made.root / ".hoodie" / "timeline").glob("*_*.commit")
    commit.unlink()
    made._commit(requested_time, Action.COMMIT, [file.name])
    right, whole = rows_of(made.root), file.read_bytes()
    assert len(right) == 500
    group = pq.read_metadata(file).row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    for chunk in chunks:
        end = chunk.data_page_offset + chunk.total_compressed_size
        start = chunk.data_page_offset + LARGEST_PAGE_HEADER
        for at in range(start, end, max(1, (end - start) // 10)):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            with refused(lakebed.CorruptTable, "(?i)crc", file=file.name, at=made.root):
                rows_of(made.root)


# The metadata table's HFiles


def hfile_of(root: Path, partition: str) -> Path:
    return max((root / ".hoodie/metadata" / partition).glob("*.hfile"), key=lambda path: path.name)


@pytest.mark.parametrize("left", [0, 1, 3, 4000, -1, -8, -4096])
def test_an_hfile_cut_short(golden_copy: Golden, right_rows: RightRows, left: int) -> None:
    root = golden_copy("mdt_all_v9")
    file = hfile_of(root, "files")
    file.write_bytes(file.read_bytes()[:left])
    with refused(lakebed.CorruptTable, "hoodie.metadata.enable=false", file=".hoodie/metadata/files/", at=root):
        rows_of(root)
    assert rows_of(root, options=FOLDERS) == right_rows("mdt_all_v9"), "the way out that the hint names"


def test_an_hfile_with_a_wrong_trailer(golden_copy: Golden, right_rows: RightRows) -> None:
    root = golden_copy("mdt_all_v9")
    file = hfile_of(root, "files")
    whole = file.read_bytes()
    seen = set()
    for at in range(len(whole) - 4096, len(whole), 61):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert rows_of(root) == right_rows("mdt_all_v9")
            seen.add("same")
        except lakebed.LakebedError as error:
            assert type(error) in (lakebed.CorruptTable, lakebed.UnsupportedFormat) and error.file
            seen.add(type(error).__name__)
    file.write_bytes(whole[:-1] + b"\x04")
    with refused(lakebed.UnsupportedFormat, "version 4", file=".hoodie/metadata/files/", at=root):
        rows_of(root)
    assert "CorruptTable" in seen


def test_a_metadata_table_that_is_gone_names_the_way_around_it(golden_copy: Golden, right_rows: RightRows) -> None:
    root = golden_copy("mdt_all_v9")
    shutil.rmtree(root / ".hoodie/metadata")
    with refused(lakebed.CorruptTable, "hoodie.metadata.enable=false", file=".hoodie/metadata", at=root):
        rows_of(root)
    assert rows_of(root, options=FOLDERS) == right_rows("mdt_all_v9")
