"""Damage to the timeline, active and archived: refused, or without effect on the answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from tests.bad_input.conftest import Rows, refused, rows_of

Golden = Callable[[str], Path]
RightRows = Callable[[str], Rows]
TIMELINE = ".hoodie/timeline"
HISTORY = f"{TIMELINE}/history"
BOTH_LISTINGS = pytest.mark.parametrize("options", [None, {"hoodie.metadata.enable": "false"}], ids=["mdt", "folders"])


def completed(root: Path, action: str, number: int = -1) -> Path:
    return sorted((root / TIMELINE).glob(f"*_*.{action}"))[number]


@BOTH_LISTINGS
@pytest.mark.parametrize(("name", "action"), [("cow_simple_v9", "commit"), ("mor_avro_v9", "deltacommit")])
def test_a_commit_cut_short_at_every_97th_byte(
    golden_copy: Golden, right_rows: RightRows, name: str, action: str, options: dict[str, str] | None
) -> None:
    root = golden_copy(name)
    file = completed(root, action)
    whole = file.read_bytes()
    where = file.relative_to(root).as_posix()
    for end in range(97, len(whole), 97):
        file.write_bytes(whole[:end])
        with pytest.raises(lakebed.CorruptTable) as caught:
            rows_of(root, options=options)
        assert caught.value.file == where and caught.value.hint
    file.write_bytes(whole)
    assert rows_of(root, options=options) == right_rows(name)


def test_the_body_of_an_older_commit_cut_short(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    file = completed(root, "commit", 0)
    file.write_bytes(file.read_bytes()[:-9])
    where = file.relative_to(root).as_posix()
    with refused(lakebed.CorruptTable, ".", file=where, at=root):
        rows_of(root, options={"hoodie.metadata.enable": "false"})
    with refused(lakebed.CorruptTable, ".", file=where, at=root):
        lakebed.open(root).inspect.timeline()


def test_an_empty_replacecommit_would_bring_retired_rows_back(golden_copy: Golden) -> None:
    root = golden_copy("cow_insert_overwrite_v9")
    file = completed(root, "replacecommit")
    file.write_bytes(b"")
    with refused(lakebed.CorruptTable, "empty", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root, options={"hoodie.metadata.enable": "false"})


@pytest.mark.parametrize("garbage", [b"\0", b"Obj\x01", b"Obj\x01" + b"\xff" * 64])
def test_a_commit_of_garbage(golden_copy: Golden, garbage: bytes) -> None:
    root = golden_copy("cow_simple_v9")
    file = completed(root, "commit")
    file.write_bytes(garbage)
    with refused(lakebed.CorruptTable, ".", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root)


def test_a_commit_in_the_json_of_old_versions(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    file = completed(root, "commit")
    file.write_bytes(b'{"operationType": "UPSERT"}')
    with refused(lakebed.UnsupportedFormat, "JSON.*Upgrade", file=file.relative_to(root).as_posix(), at=root):
        rows_of(root)


def test_strange_names_on_the_timeline_are_left_alone(golden_copy: Golden, right_rows: RightRows) -> None:
    root = golden_copy("mor_avro_v9")
    for name in (
        "notes.txt",
        ".commit",
        "_.commit",
        "abc_def.commit",
        "20261115.commit",
        "20261115102715000.commit.strange",
        "20261115102715000.unheardof.inflight",
        "20261115102715000_20261115102715001.unheardof",
        "20261115102715000_.deltacommit",
        "_20261115102715000.deltacommit",
        "２０２６１１１５１０２７１５０００.commit.requested",
        "20261115102715000.commit.requested.tmp",
        ".20261115102715000_20261115102715001.commit.crc",
        "🙂.commit",
        " ",
    ):
        (root / TIMELINE / name).write_bytes(b"x")
    (root / TIMELINE / "20261115102715000_20261115102715001.commit").mkdir()
    assert rows_of(root) == right_rows("mor_avro_v9")
    assert rows_of(root, options={"hoodie.metadata.enable": "false"}) == right_rows("mor_avro_v9")
    assert len(lakebed.open(root).inspect.timeline()) == 4


def test_a_pipe_on_the_timeline_is_no_commit_and_does_not_hang(golden_copy: Golden, golden: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    before = completed(root, "commit", -2).name.partition("_")[0]
    file = completed(root, "commit")
    file.unlink()
    os.mkfifo(file)
    assert rows_of(root) == rows_of(golden("cow_simple_v9"), as_of=before)


# The history


def listed_file(root: Path) -> Path:
    """A history file that counts."""
    manifest = json.loads((root / HISTORY / "manifest_9").read_text())
    return root / HISTORY / str(manifest["files"][0]["fileName"])


@pytest.fixture
def archived(golden_copy: Golden) -> Path:
    return golden_copy("mor_maint_v9")


def test_a_manifest_that_names_a_missing_file(archived: Path) -> None:
    file = listed_file(archived)
    file.unlink()
    with refused(lakebed.CorruptTable, "missing", file=f"{HISTORY}/{file.name}", at=archived) as caught:
        lakebed.open(archived).inspect.timeline(history=True)
    assert "Restore" in str(caught.value)


def test_a_manifest_with_a_wrong_length(archived: Path) -> None:
    file = listed_file(archived)
    file.write_bytes(file.read_bytes() + b"\0")
    with refused(lakebed.CorruptTable, r"bytes where manifest_9 says", file=f"{HISTORY}/{file.name}", at=archived):
        lakebed.open(archived).inspect.timeline(history=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"files": 3}',
        '{"files": [{"fileName": 7, "fileLen": "x"}]}',
        '{"files": [{}]}',
        "\udcff",
    ],
)
def test_a_manifest_that_is_none(archived: Path, text: str) -> None:
    (archived / HISTORY / "manifest_9").write_bytes(text.encode("utf-8", "surrogateescape"))
    with refused(lakebed.CorruptTable, ".", file=f"{HISTORY}/manifest_9", at=archived):
        lakebed.open(archived).inspect.timeline(history=True)


@pytest.mark.parametrize("name", ["../../../hoodie.properties", "/etc/passwd", "a/b.parquet", "", "..", "x\0y"])
def test_a_manifest_that_points_elsewhere(archived: Path, name: str) -> None:
    manifest = {"files": [{"fileName": name, "fileLen": 1}]}
    (archived / HISTORY / "manifest_9").write_text(json.dumps(manifest))
    with refused(lakebed.CorruptTable, ".", at=archived):
        lakebed.open(archived).inspect.timeline(history=True)


@pytest.mark.parametrize("text", [b"", b"two", b"-1", b"\xff", b"1" * 400])
def test_a_version_file_of_no_use_means_the_newest_manifest(archived: Path, golden: Golden, text: bytes) -> None:
    (archived / HISTORY / "_version_").write_bytes(text)
    ours = lakebed.open(archived).inspect.timeline(history=True)
    assert ours == lakebed.open(golden("mor_maint_v9")).inspect.timeline(history=True)


@pytest.mark.parametrize("lost", ["manifest_9", "manifest_*"])
def test_a_manifest_that_is_named_and_lost(archived: Path, lost: str) -> None:
    """An older manifest, or none, would hide what was archived since it was made."""
    for file in (archived / HISTORY).glob(lost):
        file.unlink()
    with refused(lakebed.CorruptTable, "manifest is missing", file=f"{HISTORY}/manifest_9", at=archived):
        lakebed.open(archived).inspect.timeline(history=True)


def test_a_history_file_with_a_flipped_byte(archived: Path, golden: Golden) -> None:
    """Either refused, or the same instants. Parquet pages of real Hudi have no checksum, so a byte of a *value* may
    change unseen in any reader; begins, completions and actions are checked to be some."""
    right = lakebed.open(golden("mor_maint_v9")).inspect.timeline(history=True)
    file = listed_file(archived)
    whole = file.read_bytes()
    seen = set()
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            ours = lakebed.open(archived).inspect.timeline(history=True)
            seen.add(ours.equals(right))
            assert ours.num_rows == right.num_rows
        except lakebed.LakebedError as error:
            assert type(error) is lakebed.CorruptTable and error.file == f"{HISTORY}/{file.name}"
            seen.add(None)
    assert None in seen and True in seen
