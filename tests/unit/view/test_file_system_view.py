"""The view against real tables: which files a reader sees now, and saw then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, InvalidRequest, LakebedError
from lakebed.format.names import parse_log_file
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.instant import Action, State
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from tests.conftest import GOLDEN_NAMES, expected

Golden = Callable[[str], Path]


def view_of(path: Path) -> tuple[MetaClient, FileSystemView]:
    client = MetaClient.open(LocalStorage(path))
    return client, FileSystemView.of(client)


def all_slices(view: FileSystemView, at: str | None = None) -> list[FileSlice]:
    return [file_slice for partition in view.partitions() for file_slice in view.slices(partition, at)]


def files_in_rows(answer: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Base file names, and file ids (of rows out of logs, which carry only those), that the answer's rows came from."""
    column = answer["columns"].index("_hoodie_file_name")
    names = {row[column] for row in answer["rows"]}
    return {name for name in names if "." in name}, {name.partition("_")[0] for name in names}


def bases(slices: list[FileSlice]) -> set[str]:
    return {file_slice.base_file.name for file_slice in slices if file_slice.base_file}


def ids(slices: list[FileSlice]) -> set[str]:
    return {file_slice.file_group.file_id for file_slice in slices}


WITH_NAMES = [n for n in GOLDEN_NAMES if "_hoodie_file_name" in expected(n)["snapshot"].get("columns", [])]


@pytest.mark.parametrize("name", WITH_NAMES)
def test_rows_come_from_visible_files_and_no_others(golden: Golden, name: str) -> None:
    client, view = view_of(golden(name))
    answer = expected(name)
    slices = all_slices(view)
    names, groups = files_in_rows(answer["snapshot"])
    assert names <= bases(slices)
    assert groups <= ids(slices)
    for file_slice in slices:  # a file that no row came from holds no row that lived on
        if file_slice.base_file and not file_slice.log_files and file_slice.base_file.name not in names:
            assert file_slice.base_file.extension == "parquet"
            assert pq.ParquetFile(golden(name) / file_slice.base_file.path).metadata.num_rows == 0
    if "rows" in answer.get("read_optimized", {}):
        optimized = [s for p in view.partitions() for s in view.read_optimized_slices(p)]
        assert files_in_rows(answer["read_optimized"])[0] <= bases(optimized)
        assert all(file_slice.base_file and not file_slice.log_files for file_slice in optimized)
    if "rows" in answer.get("as_of", {}):
        at = client.resolve_time(answer["as_of"]["instant"])
        then = all_slices(view, at)
        names, groups = files_in_rows(answer["as_of"])
        assert names <= bases(then) and groups <= ids(then)
        for file_slice in then:
            for file in (*([file_slice.base_file] if file_slice.base_file else []), *file_slice.log_files):
                assert (client.completion_time(file.requested_time) or "") <= at


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_file_of_a_committed_write_is_in_exactly_one_slice(golden: Golden, name: str) -> None:
    client, view = view_of(golden(name))
    for partition in view.partitions():
        listed = {f.name for f in view.lister.files(partition) if not f.name.startswith(".hoodie")}
        found = [
            file
            for group in view.file_groups(partition)
            for file_slice in group.slices
            for file in (*([file_slice.base_file] if file_slice.base_file else []), *file_slice.log_files)
        ]
        assert len({file.name for file in found}) == len(found)
        begins = {n: (parse_log_file(n).requested_time if parse_log_file(n) else n.split("_")[2][:17]) for n in listed}  # type: ignore[union-attr]
        assert {file.name for file in found} == {n for n in listed if client.is_committed(begins[n])}


def test_failed_writes_are_invisible(golden: Golden) -> None:
    for name, requested_time in (
        ("cow_failed_pending_v9", "20261115102952311"),
        ("mor_failed_pending_v9", "20261115103002114"),
    ):
        _, view = view_of(golden(name))
        text = repr([view.file_groups(partition) for partition in view.partitions()])
        assert list(golden(name).rglob(f"*{requested_time}*.parquet")) or list(
            golden(name).rglob(f".*{requested_time}.log*")
        )
        assert requested_time not in text


def test_replaced_groups_vanish_when_the_replacement_completes(golden: Golden) -> None:
    client, view = view_of(golden("cow_clustering_v9"))
    (replace,) = client.timeline.completed.of_actions(Action.REPLACE_COMMIT)
    done = replace.completion_time or ""
    assert len(all_slices(view)) == 2 and all_slices(view) == all_slices(view, done)
    before = all_slices(view, f"{int(done) - 1}")
    assert len(before) > 2 and not ids(before) & ids(all_slices(view))
    retired = [g for p in view.partitions() for g in view.file_groups(p) if g.replaced_at]
    assert {g.id.file_id for g in retired} == ids(before)
    assert {g.replaced_at for g in retired} == {done}


def test_overwritten_and_deleted_partitions(golden: Golden) -> None:
    client, view = view_of(golden("cow_delpart_reinsert_v9"))
    deleted, reinserted = "1caade12-3b32-43c0-8ac1-052b9425dcb7-0", "85fede69-d139-4090-834d-d79780d6fa2b-0"
    assert ids(list(view.slices("p1"))) == {reinserted}
    assert view.slices("p1", "20261115111945423") == ()
    assert ids(list(view.slices("p1", "20261115111945422"))) == {deleted}
    client, view = view_of(golden("cow_insert_overwrite_v9"))
    assert len(client.replaced) >= 1
    assert not ids(all_slices(view)) & {group.file_id for group in client.replaced}


def test_a_planned_compaction_opens_a_slice_but_snapshots_read_through_it(golden: Golden) -> None:
    client, view = view_of(golden("mor_pending_compaction_v9"))
    ((planned, plan),) = client.pending_compactions()
    logs_after = 0
    for operation in plan.operations:
        group = next(g for g in view.file_groups(operation.partition_path) if g.id.file_id == operation.file_id)
        assert [file_slice.base_instant_time for file_slice in group.slices][-1] == planned.requested_time
        older, newer = group.slices
        assert newer.base_file is None
        assert older.base_file is not None and older.base_file.name == operation.base_file
        assert [log.name for log in older.log_files] == sorted(operation.log_files, key=lambda n: n.rpartition(".")[0])
        (merged,) = [s for s in view.slices(operation.partition_path) if s.file_group == group.id]
        assert merged.base_file == older.base_file
        assert merged.log_files == (*older.log_files, *newer.log_files)
        assert merged.base_instant_time == older.base_instant_time
        logs_after += len(newer.log_files)
    assert logs_after > 0


def test_logs_of_concurrent_writers_stand_in_order_of_begin(golden: Golden) -> None:
    client, view = view_of(golden("mor_nbcc_v9"))
    first, second = "20261115112202602", "20261115112204617"  # the first to begin completed last
    assert (client.completion_time(first) or "") > (client.completion_time(second) or "")
    for file_slice in all_slices(view):
        assert file_slice.base_file is None and file_slice.file_group.file_id.endswith("-0000-0000-0000-000000000000-0")
        begins = [log.requested_time for log in file_slice.log_files]
        assert begins == sorted(begins) and file_slice.base_instant_time == begins[0]
    between = all_slices(view, client.completion_time(second))
    assert between
    assert all(log.requested_time != first for file_slice in between for log in file_slice.log_files)
    assert any(log.requested_time == second for file_slice in between for log in file_slice.log_files)


def test_restored_instants_are_gone(golden: Golden) -> None:
    client, view = view_of(golden("mor_savepoint_restore_v9"))
    ((_, savepoint),) = client.savepoints()
    for partition, names in savepoint.files.items():
        file_slices = view.slices(partition)
        found = {f.name for s in file_slices for f in (*([s.base_file] if s.base_file else []), *s.log_files)}
        assert found == set(names)


def test_change_logs_are_kept_apart(golden: Golden) -> None:
    for name in ("cow_cdc_v9", "mor_cdc_v9"):
        _, view = view_of(golden(name))
        changes = [log for partition in view.partitions() for log in view.change_logs(partition)]
        assert changes and all(log.name.endswith(".cdc") for log in changes)
        assert not any(log.kind == "cdc" for file_slice in all_slices(view) for log in file_slice.log_files)


def test_archived_writes_still_count(golden: Golden) -> None:
    """After archiving, the completion times that cut slices come out of the history."""
    _, view = view_of(golden("mor_maint_v9"))
    (file_slice,) = view.slices("")
    assert file_slice.base_instant_time == "20261115102839183" and len(file_slice.log_files) == 2
    with pytest.raises(InvalidRequest, match="no longer there"):
        view.slices("", "20261115102838774")
    (then,) = view.slices("", "20261115102841919")
    assert [log.requested_time for log in then.log_files] == ["20261115102840197"]


def test_metadata_tables(golden: Golden) -> None:
    client, _ = view_of(golden("mdt_all_v9"))
    view = FileSystemView.of(MetaClient.open(client.storage.within(".hoodie/metadata")))
    assert {"files", "column_stats", "record_index", "bloom_filters"} <= set(view.partitions())
    assert [s.file_group.file_id for s in view.slices("files")] == ["files-0000-0"]
    groups = view.slices("record_index")
    assert [s.file_group.file_id for s in groups] == ["record-index-0000-0", "record-index-0001-0"]
    # The empty log that claims a group is in no report, yet counts: keys are hashed over the number of groups.
    assert [s.log_files[0].name for s in groups] == [f".record-index-000{i}-0_{3:017d}.log.1_0-0-0" for i in (0, 1)]


# Attempts, strangers and damage


def test_a_second_attempt_that_the_commit_does_not_name_is_invisible(golden_copy: Golden) -> None:
    root = golden_copy("mor_avro_v9")
    _, view = view_of(root)
    wanted = {p: view.file_groups(p) for p in view.partitions()}
    for path in [*root.glob("p*/*.parquet"), *root.glob("p*/.*.log.*")]:
        parts = path.name.rsplit("_", 1) if ".log." in path.name else path.name.split("_")
        token = "9-9999-9"
        twin = f"{parts[0]}_{token}" if ".log." in path.name else f"{parts[0]}_{token}_{parts[2]}"
        assert twin != path.name
        (path.parent / twin).write_bytes(path.read_bytes())
    _, view = view_of(root)
    assert {p: view.file_groups(p) for p in view.partitions()} == wanted


def test_strangers_in_partition_folders_are_ignored(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    _, view = view_of(root)
    wanted = all_slices(view)
    for name in ("notes.txt", "_SUCCESS", "part-00000.parquet", ".x.crc", "a_b.parquet", "x_0-0-0_2026.parquet"):
        (root / "p0" / name).write_bytes(b"?")
    (root / "p0" / "deeper").mkdir()
    (root / "p0" / "deeper" / "file.parquet").write_bytes(b"?")
    _, view = view_of(root)
    assert all_slices(view) == wanted


def _with_commit(root: Path, metadata: CommitMetadata) -> str:
    requested_time, done = "20270101000000000", "20270101000000001"
    data = encode_body(metadata, Action.COMMIT, State.COMPLETED)
    (root / f".hoodie/timeline/{requested_time}_{done}.commit").write_bytes(data)
    return requested_time


def test_a_report_that_leaves_the_table_is_refused(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    stat = WriteStat("f-0", "../../etc/f-0_0-0-0_20270101000000000.parquet", "p0")
    requested_time = _with_commit(root, CommitMetadata("UPSERT", {"p0": (stat,)}))
    (root / "p0" / f"f-0_0-0-0_{requested_time}.parquet").write_bytes(b"x")
    _, view = view_of(root)
    with pytest.raises(CorruptTable, match="leaves the table"):
        view.slices("p0")


def test_a_report_without_names_counts_all_files_of_its_groups(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    requested_time = _with_commit(root, CommitMetadata("UPSERT", {"p0": (WriteStat("f-0", None, "p0"),)}))
    (root / "p0" / f"f-0_0-0-0_{requested_time}.parquet").write_bytes(b"x")
    (root / "p0" / f"g-0_0-0-0_{requested_time}.parquet").write_bytes(b"x")
    _, view = view_of(root)
    found = ids(list(view.slices("p0")))
    assert "f-0" in found and "g-0" not in found


def test_a_truncated_report_is_an_error_and_not_a_guess(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    client, _ = view_of(root)
    path = root / client.active.path(client.completed_writes()[-1])
    path.write_bytes(path.read_bytes()[:200])
    _, view = view_of(root)
    with pytest.raises(LakebedError, match=path.name):
        all_slices(view)


def test_groups_that_an_archived_replacecommit_retired_stay_hidden(golden_copy: Golden) -> None:
    root = golden_copy("cow_clustering_v9")
    client, view = view_of(root)
    wanted = ids(all_slices(view))
    done = client.completed_writes()
    rows = {
        "instantTime": [i.requested_time for i in done],
        "completionTime": [i.completion_time for i in done],
        "action": [str(i.action) for i in done],
        "metadata": [(root / client.active.path(i)).read_bytes() for i in done],
        "plan": pa.nulls(len(done), pa.binary()),
        "version": [1] * len(done),
    }
    history = root / ".hoodie/timeline/history"
    name = f"{done[0].requested_time}_{done[-1].requested_time}_0.parquet"
    pq.write_table(pa.table(rows), history / name)
    listed = {"files": [{"fileName": name, "fileLen": (history / name).stat().st_size}]}
    (history / "manifest_1").write_text(json.dumps(listed))
    (history / "_version_").write_text("1")
    for path in (root / ".hoodie/timeline").glob("2026*"):
        path.unlink()
    _with_commit(root, CommitMetadata("UPSERT", {}))
    client, view = view_of(root)
    assert len(client.timeline) == 1 and not client.replaced and client.replaced_in_history
    assert ids(all_slices(view)) == wanted
    before = all_slices(view, done[2].completion_time)
    assert before and not ids(before) & wanted


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_timelines_give_an_error_or_an_answer(golden: Golden, data: st.DataObject) -> None:
    storage = MemoryStorage()
    root = golden("mor_avro_v9")
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not name.startswith(".hoodie/metadata"):
            storage.put(name, path.read_bytes() if name.startswith(".hoodie") else b"")
    names = [f.path for f in storage.list(".hoodie/timeline") if f.size] + [".hoodie/hoodie.properties"]
    victim = data.draw(st.sampled_from(names))
    content = bytearray(storage.read(victim))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    storage.put(victim, bytes(content[: data.draw(st.integers(1, len(content)))]))
    try:
        client = MetaClient.open(storage)
        view = FileSystemView.of(client)
        all_slices(view)
        client.schema_json()
    except LakebedError:
        pass


def test_a_retired_file_id_may_be_written_again(golden_copy: Golden) -> None:
    """Writers with fixed file ids come back to an id that a delete of the partition retired."""
    root = golden_copy("cow_delpart_reinsert_v9")
    retired = "1caade12-3b32-43c0-8ac1-052b9425dcb7-0"
    name = f"{retired}_0-0-0_20270101000000000.parquet"
    _with_commit(root, CommitMetadata("UPSERT", {"p1": (WriteStat(retired, f"p1/{name}", "p1"),)}))
    (root / "p1" / name).write_bytes(b"x")
    _, view = view_of(root)
    again = next(s for s in view.slices("p1") if s.file_group.file_id == retired)
    assert again.base_file is not None and again.base_file.name == name
    lives = [g for g in view.file_groups("p1") if g.id.file_id == retired]
    assert [g.replaced_at for g in lives] == ["20261115111945423", None]
    assert len(lives[0].slices) == 2 and len(lives[1].slices) == 1
