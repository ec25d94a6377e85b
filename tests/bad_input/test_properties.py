"""`hoodie.properties` in every bad state. Its checksum covers the table's name only, as in real Hudi: a wrong byte in
another property that still parses is not detectable by anybody, and that is not claimed here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from tests.bad_input.conftest import Rows, refused, rows_of

Golden = Callable[[str], Path]
NAME = "cow_simple_v9"
FILE = ".hoodie/hoodie.properties"


@pytest.fixture
def table(golden_copy: Golden) -> Path:
    return golden_copy(NAME)


def change(root: Path, pattern: str, by: str, file: str = FILE) -> None:
    path = root / file
    text = path.read_text()
    assert re.search(pattern, text, re.MULTILINE), pattern
    path.write_text(re.sub(pattern, by, text, flags=re.MULTILINE))


def test_empty(table: Path) -> None:
    (table / FILE).write_bytes(b"")
    with refused(lakebed.CorruptTable, "hoodie.table.name", file=FILE, at=table):
        lakebed.open(table)


def test_missing_without_backup(table: Path) -> None:
    (table / FILE).unlink()
    with refused(lakebed.CorruptTable, "missing, and so is their backup", file=FILE, at=table):
        lakebed.open(table)


def test_missing_with_a_backup(table: Path, right_rows: Callable[[str], Rows]) -> None:
    (table / FILE).rename(table / f"{FILE}.backup")
    assert rows_of(table) == right_rows(NAME)


@pytest.mark.parametrize("state", ["cut", "empty", "garbage", "checksum"])
def test_damaged_with_a_backup(table: Path, right_rows: Callable[[str], Rows], state: str) -> None:
    whole = (table / FILE).read_bytes()
    (table / f"{FILE}.backup").write_bytes(whole)
    damaged = {
        "cut": whole[: len(whole) // 3],
        "empty": b"",
        "garbage": bytes(range(256)) * 4,
        "checksum": re.sub(rb"(checksum=)\d+", rb"\g<1>1", whole),
    }[state]
    (table / FILE).write_bytes(damaged)
    assert rows_of(table) == right_rows(NAME)


def test_a_damaged_backup_does_not_count(table: Path) -> None:
    (table / FILE).unlink()
    (table / f"{FILE}.backup").write_bytes(b"hoodie.table.name=x\n")
    with refused(lakebed.CorruptTable, "missing, and so is their backup", file=FILE, at=table):
        lakebed.open(table)


def test_wrong_checksum(table: Path) -> None:
    change(table, r"^hoodie.table.checksum=\d+$", "hoodie.table.checksum=12345")
    with refused(lakebed.CorruptTable, "checksum", file=FILE, at=table):
        lakebed.open(table)


def test_cut_at_every_byte(table: Path, right_rows: Callable[[str], Rows]) -> None:
    """Lines of the file stand in any order, so a cut file is whole where only optional lines are gone.

    What such a file still says must then be enough for the right rows, or be refused.
    """
    whole = (table / FILE).read_bytes()
    outcomes = set()
    for end in range(0, len(whole), 31):
        (table / FILE).write_bytes(whole[:end])
        try:
            outcomes.add(rows_of(table) == right_rows(NAME))
        except lakebed.LakebedError as error:
            assert error.file is None or "hoodie" in error.file
            outcomes.add(type(error))
    assert lakebed.CorruptTable in outcomes
    assert False not in outcomes


@pytest.mark.parametrize("garbage", [b"\0" * 4096, bytes(range(256)) * 64, b"\xff\xfe" * 1000, b"=\n" * 100, b"\\u12"])
def test_binary_garbage(table: Path, garbage: bytes) -> None:
    (table / FILE).write_bytes(garbage)
    with refused(lakebed.CorruptTable, ".", file=FILE, at=table):
        lakebed.open(table)


@pytest.mark.parametrize("version", ["0", "5", "6", "7", "11", "99", "1000000000000", "nine", "-1", "8.5", "９"])
def test_unknown_versions(table: Path, version: str) -> None:
    change(table, r"^hoodie.table.version=\d+$", f"hoodie.table.version={version}")
    with refused(lakebed.UnsupportedFormat, f"version {version} is not one of 8, 9 and 10", file=FILE, at=table):
        lakebed.open(table)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.type", "COPY_ON_READ"),
        ("hoodie.table.base.file.format", "AVRO"),
        ("hoodie.record.merge.mode", "SOMETIMES"),
        ("hoodie.populate.meta.fields", "perhaps"),
        ("hoodie.table.timeline.timezone", "MARS"),
        ("hoodie.timeline.path", "../../elsewhere"),
        ("hoodie.timeline.history.path", "/etc"),
        ("hoodie.table.storage.layout", "heap"),
    ],
)
def test_settings_of_no_meaning(table: Path, key: str, value: str) -> None:
    text = (table / FILE).read_text()
    lines = [line for line in text.splitlines() if not line.startswith(f"{key}=")]
    (table / FILE).write_text("\n".join([*lines, f"{key}={value}", ""]))
    with pytest.raises((lakebed.CorruptTable, lakebed.UnsupportedFormat)) as caught:
        rows_of(table)
    assert value in str(caught.value) and caught.value.hint


def test_a_folder_in_place_of_the_file(table: Path) -> None:
    (table / FILE).unlink()
    (table / FILE).mkdir()
    with refused(lakebed.CorruptTable, "missing", file=FILE, at=table):
        lakebed.open(table)


def test_a_link_in_place_of_the_file(table: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "properties"
    (table / FILE).rename(elsewhere)
    (table / FILE).symlink_to(elsewhere)
    with refused(lakebed.CorruptTable, "symbolic link", file=FILE, at=table):
        lakebed.open(table)
