"""Opening what is no table: every answer says what is there instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from tests.bad_input.conftest import refused

Golden = Callable[[str], Path]


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with refused(lakebed.TableNotFound, r"empty or does not exist.*Check the path", at=tmp_path):
        lakebed.open(tmp_path / "nowhere" / "at" / "all")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder(tmp_path: Path) -> None:
    with refused(lakebed.TableNotFound, "empty or does not exist", at=tmp_path):
        lakebed.open(tmp_path)


def test_a_folder_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    with refused(lakebed.TableNotFound, r"no \.hoodie folder, but holds notes, part-0\.parquet", at=tmp_path):
        lakebed.open(tmp_path)


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    file.write_bytes(b"PAR1 and so on")
    with refused(lakebed.TableNotFound, "orders.parquet", at=tmp_path):
        lakebed.open(file)


def test_one_folder_too_high(golden_copy: Golden, tmp_path: Path) -> None:
    golden_copy("cow_simple_v9")
    with refused(lakebed.TableNotFound, "holds tables: cow_simple_v9. Open one of those", at=tmp_path):
        lakebed.open(tmp_path)


@pytest.mark.parametrize("below", [".hoodie", "p0"])
def test_one_folder_too_low(golden_copy: Golden, below: str) -> None:
    root = golden_copy("cow_simple_v9")
    with refused(lakebed.TableNotFound, "no table at", at=root):
        lakebed.open(root / below)


def test_an_empty_hoodie_folder_holds_no_table(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    with refused(lakebed.TableNotFound, "there is no table", at=tmp_path):
        lakebed.open(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://host/table", "s3:", "s3://", "nosuch://x/y", "hdfs://name/table", "table\0", "file://host/x"),
        *("s3://bucket/../other", "memory://name/a/../b", b"bytes", None, 7),
    ],
)
def test_urls_that_name_no_place(url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((lakebed.InvalidRequest, lakebed.TableNotFound)) as caught:
        lakebed.open(url)
    assert caught.value.what
    assert list(tmp_path.iterdir()) == []
