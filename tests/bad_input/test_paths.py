"""Names that try to lead out of the table, links inside it, and files that are nobody's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.metadata.payload import RECORD_SCHEMA_JSON, encode_record
from lakebed.format.metadata.records import FileEntry, FilesRecord, RecordType
from lakebed.format.names import PARTITION_METAFILE
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CommitMetadata, SavepointMetadata, WriteStat
from lakebed.model.instant import Action, State
from tests.bad_input.conftest import Rows, refused, rows_of

Golden = Callable[[str], Path]
RightRows = Callable[[str], Rows]
FOLDERS = {"hoodie.metadata.enable": "false"}
NAME = "cow_simple_v9"
TIMELINE = ".hoodie/timeline"
BEGIN, END = "20270101000000000", "20270101000000500"
OUTSIDE = ["../../etc/passwd", "/etc/passwd", "p0/../../x.parquet", "..", "p0\\..\\..\\x", "p0/\0x"]


@pytest.fixture
def table(golden_copy: Golden) -> Path:
    return golden_copy(NAME)


def newest_schema(root: Path) -> str:
    client = lakebed.open(root)._client
    return client.schema_json() or ""


def publish(root: Path, body: CommitMetadata, action: Action = Action.COMMIT) -> str:
    file = f"{TIMELINE}/{BEGIN}_{END}.{action}"
    (root / TIMELINE / f"{BEGIN}.{action}.requested").write_bytes(b"")
    (root / file).write_bytes(encode_body(body, action, State.COMPLETED))
    return file


# Out of the table


@pytest.mark.parametrize("path", OUTSIDE)
def test_write_stats_that_leave_the_table(table: Path, path: str) -> None:
    extra = {"schema": newest_schema(table)}
    file = publish(table, CommitMetadata("UPSERT", {"p0": (WriteStat("f-0", path, "p0"),)}, extra))
    with refused(lakebed.CorruptTable, "leaves the table|names no file|as a file of", file=file, at=table):
        rows_of(table, options=FOLDERS)


@pytest.mark.parametrize("path", OUTSIDE)
def test_change_logs_that_leave_the_table(table: Path, path: str) -> None:
    stat = WriteStat("f-0", f"p0/f-0_0-0-0_{BEGIN}.parquet", "p0", cdc_files={path: 7})
    file = publish(table, CommitMetadata("UPSERT", {"p0": (stat,)}, {"schema": newest_schema(table)}))
    with refused(lakebed.CorruptTable, "leaves the table|names no file|as a file of", file=file, at=table):
        rows_of(table, options=FOLDERS)


@pytest.mark.parametrize("partition", ["../..", "/etc", "p0/../..", "a//b", "."])
def test_partitions_that_leave_the_table(table: Path, partition: str) -> None:
    stat = WriteStat("f-0", f"{partition}/f-0_0-0-0_{BEGIN}.parquet", partition)
    file = publish(table, CommitMetadata("UPSERT", {partition: (stat,)}, {"schema": newest_schema(table)}))
    with refused(lakebed.CorruptTable, "leaves the table|names no file|as a file of", file=file, at=table):
        rows_of(table, options=FOLDERS)


def test_replaced_ids_are_names_and_never_paths(table: Path) -> None:
    """Retiring `../x` retires nothing: ids are compared, no file is looked for under them."""
    outside = table.parent / "x"
    outside.write_text("mine")
    extra = {"schema": newest_schema(table)}
    replaced = {"../..": ("../x", "/etc/passwd"), "p0": ("../../x",)}
    publish(table, CommitMetadata("REPLACE", {}, extra, replaced_file_ids=replaced), Action.REPLACE_COMMIT)
    rows = rows_of(table, options=FOLDERS)
    assert len(rows) == 153 and outside.read_text() == "mine"


def test_savepoints_name_files_that_nobody_opens(table: Path, right_rows: RightRows) -> None:
    saved = SavepointMetadata("me", 0, "", {"../..": ("../../etc/passwd",), "/etc": ("passwd",)})
    requested_time = "20261115102545870"
    (table / TIMELINE / f"{requested_time}.savepoint.inflight").write_bytes(b"")
    body = encode_body(saved, Action.SAVEPOINT, State.COMPLETED)
    (table / TIMELINE / f"{requested_time}_{END}.savepoint").write_bytes(body)
    for options in (None, FOLDERS):
        assert rows_of(table, options=options) == right_rows(NAME)


def metadata_lists(root: Path, records: dict[str, dict[str, int]]) -> None:
    """Let the metadata table's `files` partition hold just these listings."""
    folder = root / ".hoodie/metadata/files"
    base = next(iter(folder.glob("*.hfile")))
    entries = []
    for key, files in sorted(records.items()):
        kind = RecordType.ALL_PARTITIONS if key == "__all_partitions__" else RecordType.FILES
        record = FilesRecord(key, kind, {name: FileEntry(size) for name, size in files.items()})
        entries.append((key.encode(), encode_record(record)))
    for log in folder.glob(".files*"):
        log.unlink()
    for commit in (root / ".hoodie/metadata/.hoodie/timeline").glob("*_*.deltacommit"):
        commit.write_bytes(b"")
    base.write_bytes(write_hfile(entries, schema_json=RECORD_SCHEMA_JSON))


@pytest.mark.parametrize("partition", ["..", "../..", "/etc", "p0/../../x", "a\\b"])
def test_partition_names_in_the_metadata_table_that_leave_it(golden_copy: Golden, partition: str) -> None:
    root = golden_copy("mdt_all_v9")
    metadata_lists(root, {"__all_partitions__": {partition: 0}, partition: {"f-0_0-0-0_20261115103037978.parquet": 4}})
    with refused(lakebed.CorruptTable, "leaves the table", at=root):
        rows_of(root)


@pytest.mark.parametrize("name", ["../../etc/passwd", "../x_0-0-0_20261115103037978.parquet"])
def test_file_names_in_the_metadata_table_that_leave_it(golden_copy: Golden, name: str) -> None:
    root = golden_copy("mdt_all_v9")
    metadata_lists(root, {"__all_partitions__": {"p0": 0}, "p0": {name: 4}})
    with refused(lakebed.CorruptTable, "leaves the table", at=root):
        rows_of(root)


# Links


def test_a_link_in_place_of_a_data_file(table: Path) -> None:
    file = next((table / "p0").glob("*.parquet"))
    elsewhere = table.parent / "elsewhere.parquet"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    for options in (None, FOLDERS):
        with refused(lakebed.CorruptTable, "symbolic link|missing", at=table):
            for requested_time in ("20261115102545870", "20261115102604458", "20261115102608798"):
                rows_of(table, options=options, as_of=requested_time)


def test_a_link_in_place_of_a_partition(table: Path) -> None:
    elsewhere = table.parent / "elsewhere"
    (table / "p0").rename(elsewhere)
    (table / "p0").symlink_to(elsewhere)
    for options in (None, FOLDERS):
        with refused(lakebed.CorruptTable, "symbolic link|missing", at=table):
            rows_of(table, options=options)


def test_links_beside_the_data_are_not_followed(table: Path, right_rows: RightRows, tmp_path: Path) -> None:
    (table / "loop").symlink_to(table)
    (table / "p0" / "up").symlink_to(table)
    (table / "dangling").symlink_to(tmp_path / "nothing")
    (table / "p0" / "notes.txt").symlink_to("/etc/passwd")
    try:
        for options in (None, FOLDERS):
            assert rows_of(table, options=options) == right_rows(NAME)
    except lakebed.CorruptTable as error:
        assert "symbolic link" in str(error)


# Partitions and strangers


def test_a_partition_without_a_metafile_does_not_vanish(table: Path, right_rows: RightRows) -> None:
    (table / "p0" / PARTITION_METAFILE).unlink()
    assert rows_of(table) == right_rows(NAME), "the metadata table knows the partition"
    with refused(lakebed.CorruptTable, "missing", file="p0/", at=table):
        rows_of(table, options=FOLDERS)


@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"partitionDepth=many\n", b"nothing=here"])
def test_a_metafile_of_no_sense(table: Path, right_rows: RightRows, content: bytes) -> None:
    (table / "p0" / PARTITION_METAFILE).write_bytes(content)
    for options in (None, FOLDERS):
        assert rows_of(table, options=options) == right_rows(NAME)


def test_strangers_everywhere(table: Path, right_rows: RightRows) -> None:
    """Names that are none of Hudi's, at every level, change nothing."""
    names = (
        *("README.md", "_SUCCESS", "part-00000.parquet", ".DS_Store", "x_y_z.parquet", "a_0-0-0_123.parquet"),
        *(".log", ".x.log.1", ".x_1.log.1_0-0-0", "f-0_0-0-0_99990101000000000.parquet", "🙂", "-", "a b", "x" * 200),
        *(
            ".f-0_99990101000000000.log.1_0-0-0",
            "f-0_0-0-0_99990101000000000_1.log.parquet",
            ".hoodie_partition_metadatax",
        ),
    )
    folders = ("", "p0", ".hoodie", TIMELINE, f"{TIMELINE}/history", ".hoodie/metadata", ".hoodie/metadata/files")
    for folder in folders:
        for name in names:
            (table / folder / name).write_bytes(b"not ours")
        (table / folder / "a folder" / "p0").mkdir(parents=True)
        (table / folder / "a folder" / "p0" / "f-0_0-0-0_20261115102545870.parquet").write_bytes(b"not ours")
    for options in (None, FOLDERS):
        assert rows_of(table, options=options) == right_rows(NAME)


def test_files_that_may_not_be_read(table: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    file = next((table / "p0").glob("*.parquet"))
    file.chmod(0)
    with pytest.raises(lakebed.StorageUnavailable):
        for requested_time in ("20261115102545870", "20261115102604458", "20261115102608798"):
            rows_of(table, as_of=requested_time)
