from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.errors import ConflictError, CorruptTable, LakebedError, TableNotFound, UnsupportedFormat
from lakebed.model.actions import CommitMetadata, CompactionPlan
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient
from tests.conftest import GOLDEN_NAMES

Golden = Callable[[str], Path]


def opened(path: Path) -> MetaClient:
    return MetaClient.open(LocalStorage(path))


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_body_and_plan_of_golden_tables_decodes(golden: Golden, name: str) -> None:
    client = opened(golden(name))
    for instant in client.timeline:
        body = client.body(instant)
        assert body is not None or not instant.is_completed, instant
        plan = client.plan(instant)
        if instant.action in (Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.COMPACTION, Action.CLUSTERING):
            assert plan is not None, instant
    assert json.loads(client.schema_json() or "")["type"] == "record"


def test_metadata_tables_open_like_any_table(golden: Golden) -> None:
    client = opened(golden("mor_avro_v9"))
    metadata = MetaClient.open(client.storage.within(".hoodie/metadata"))
    assert metadata.config.name == "mor_avro_v9_metadata"
    assert metadata.is_committed("00000000000000000")


def test_committed_is_active_archived_or_older(golden: Golden) -> None:
    client = opened(golden("mor_maint_v9"))
    assert client.is_committed("20261115102837362") and client.is_committed("20261115102839183")
    assert not client.is_committed("20261115102842017")  # a clean
    assert client.is_committed("20261115102815294") and client.is_committed("20200101000000000")
    assert not client.is_committed("20261115102840198") and not client.is_committed("20991115102840198")
    assert client.completion_time("20261115102840197") == "20261115102841919"
    assert client.completion_time("20261115102815294") == "20261115102816707"
    assert client.completion_time("20261115102815295") is None
    assert client.completion_time("20261115102842017") is None
    assert len(client.full_timeline) == 17 + 5


def test_pending_and_rolled_back_writes_are_not_committed(golden: Golden) -> None:
    assert not opened(golden("cow_failed_pending_v9")).is_committed("20261115102952311")
    assert not opened(golden("mor_pending_compaction_v9")).is_committed(
        opened(golden("mor_pending_compaction_v9")).pending_compactions()[0][0].requested_time
    )
    restored = opened(golden("mor_savepoint_restore_v9"))
    assert not restored.is_committed("20261115103034000")
    (savepoint,) = restored.savepoints()
    assert savepoint[0].requested_time == "20261115103032612"
    assert sorted(savepoint[1].files) == ["p0", "p1"]


def test_archiving_past_a_savepoint_leaves_no_hole(golden_copy: Golden) -> None:
    """A saved commit stays behind alone; what was archived between it and the next one still counts."""
    root = golden_copy("mor_savepoint_restore_v9")
    client = opened(root)
    first = client.timeline.first_write_not_saved
    assert first is not None and first.requested_time == "20261115103031118"
    for path in (root / ".hoodie/timeline").glob("20261115103031118*"):
        path.unlink()
    (root / ".hoodie/timeline/20261115103040000_20261115103041000.deltacommit").write_bytes(b"")
    client = client.reload()
    assert client.is_committed("20261115103031118")
    assert client.is_committed("20261115103036000")
    assert not client.is_committed("20261115103040001")


def test_times_to_travel_to(golden: Golden) -> None:
    client = opened(golden("mor_maint_v9"))
    assert client.resolve_time("20261115102840197") == "20261115102841919"
    assert client.resolve_time("20261115102815294") == "20261115102816707"
    assert client.resolve_time("20261115102840198") == "20261115102840198"
    assert client.resolve_time("2026-11-15 10:28:40") == "20261115102840000"


def test_plans_and_replacements(golden: Golden) -> None:
    client = opened(golden("mor_pending_compaction_v9"))
    ((instant, plan),) = client.pending_compactions()
    assert instant.action is Action.COMPACTION and isinstance(plan, CompactionPlan)
    assert len(plan.operations) == 4 and all(len(op.log_files) >= 2 for op in plan.operations)
    assert client.pending_clusterings() == ()

    ((_, replace),) = opened(golden("mor_pending_clustering_v9")).pending_clusterings()
    assert replace.clustering is not None and replace.clustering.groups

    client = opened(golden("cow_delpart_reinsert_v9"))
    assert list(client.replaced) == [FileGroupId("p1", "1caade12-3b32-43c0-8ac1-052b9425dcb7-0")]
    ((replacement,),) = client.replaced.values()
    assert replacement.completion_time == "20261115111945423"
    assert not client.replaced_in_history


def test_schema_is_that_of_the_newest_write(golden: Golden) -> None:
    client = opened(golden("mor_schema_evo_v9"))
    newest = client.completed_writes()[-1]
    body = client.body(newest)
    assert isinstance(body, CommitMetadata) and client.schema_json() == body.schema_json
    first = client.completed_writes()[0]
    assert client.schema_json(first.completion_time) != client.schema_json()
    history = json.loads(client.schema_history() or "")
    assert len(history["schemas"]) > 1
    assert opened(golden("mor_avro_v9")).schema_history() is None


def test_schema_of_an_archived_time_comes_from_the_history(golden: Golden) -> None:
    client = opened(golden("mor_maint_v9"))
    assert json.loads(client.schema_json("20261115102816707") or "")["type"] == "record"
    assert client.schema_json("20200101000000000") is None


def test_bodies_are_kept_and_clients_pickle(golden_copy: Golden) -> None:
    root = golden_copy("mor_avro_v9")
    client = opened(root)
    instant = client.completed_writes()[0]
    body = client.body(instant)
    (root / client.active.path(instant)).unlink()
    assert client.body(instant) is body
    assert client.commit(instant.requested_time) is body
    copy = pickle.loads(pickle.dumps(client))
    assert copy.timeline == client.timeline and copy.config == client.config
    with pytest.raises(ConflictError, match="left the timeline"):
        copy.body(instant)


def test_an_instant_archived_meanwhile_is_read_from_the_history(golden: Golden) -> None:
    client = opened(golden("mor_maint_v9"))
    (archived,) = client.history.find("20261115102819277")
    body = client.body(archived)
    assert isinstance(body, CommitMetadata) and body.compacted
    assert isinstance(client.plan(archived), CompactionPlan)


def test_reload_sees_new_instants(golden_copy: Golden) -> None:
    root = golden_copy("mor_avro_v9")
    client = opened(root)
    (root / ".hoodie/timeline/20270101000000000_20270101000000001.deltacommit").write_bytes(b"")
    assert not client.is_committed("20270101000000000")
    assert client.reload().is_committed("20270101000000000")


# What is not a table


def test_nothing_at_the_path(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="empty or does not exist"):
        opened(tmp_path)
    with pytest.raises(TableNotFound, match="empty or does not exist"):
        opened(tmp_path / "nowhere")


def test_a_folder_too_high_names_the_tables(golden_copy: Golden, tmp_path: Path) -> None:
    golden_copy("cow_simple_v9")
    with pytest.raises(TableNotFound, match="holds tables: cow_simple_v9"):
        opened(tmp_path)
    with pytest.raises(TableNotFound, match=r"no \.hoodie folder, but holds .*parquet"):
        opened(tmp_path / "cow_simple_v9" / "p0")


PROPERTIES = ".hoodie/hoodie.properties"


def test_missing_or_torn_properties_fall_back_to_the_backup(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    whole = (root / PROPERTIES).read_bytes()
    wanted = opened(root).config
    shutil.copy(root / PROPERTIES, root / f"{PROPERTIES}.backup")
    for cut in (0, 1, 60, len(whole) // 2):
        (root / PROPERTIES).write_bytes(whole[:cut])
        assert opened(root).config == wanted
    (root / PROPERTIES).unlink()
    assert opened(root).config == wanted


def test_torn_properties_without_backup(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    (root / PROPERTIES).write_bytes(b"#Updated\n")
    with pytest.raises(CorruptTable, match="cut off") as caught:
        opened(root)
    assert caught.value.file == PROPERTIES
    (root / PROPERTIES).unlink()
    with pytest.raises(CorruptTable, match="missing, and so is their backup"):
        opened(root)


def test_wrong_checksum_names_the_file_and_a_way_out(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    text = (root / PROPERTIES).read_text()
    (root / PROPERTIES).write_text(text.replace("hoodie.table.name=cow_simple_v9", "hoodie.table.name=renamed"))
    with pytest.raises(CorruptTable, match=r"hoodie\.properties.*checksum") as caught:
        opened(root)
    assert caught.value.hint


def test_unknown_version(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    text = (root / PROPERTIES).read_text()
    (root / PROPERTIES).write_text(text.replace("hoodie.table.version=9", "hoodie.table.version=99"))
    with pytest.raises(UnsupportedFormat):
        opened(root)


def test_a_timeline_folder_outside_the_table_is_refused(golden_copy: Golden) -> None:
    root = golden_copy("cow_simple_v9")
    text = (root / PROPERTIES).read_text()
    (root / PROPERTIES).write_text(text.replace("hoodie.timeline.path=timeline", "hoodie.timeline.path=../../x"))
    with pytest.raises(CorruptTable, match="leaves the table"):
        opened(root)


@pytest.mark.parametrize("keep", [1, 100, 0.5, -1])
def test_truncated_bodies(golden_copy: Golden, keep: float) -> None:
    root = golden_copy("mor_avro_v9")
    client = opened(root)
    instant = client.completed_writes()[-1]
    path = root / client.active.path(instant)
    data = path.read_bytes()
    size = int(len(data) * keep) if isinstance(keep, float) else keep
    path.write_bytes(data[:size])
    with pytest.raises(LakebedError) as caught:
        opened(root).body(instant)
    assert path.name in str(caught.value)


def test_an_empty_completed_file_has_no_body(golden_copy: Golden) -> None:
    root = golden_copy("mor_avro_v9")
    (root / ".hoodie/timeline/20270101000000000_20270101000000001.deltacommit").write_bytes(b"")
    client = opened(root)
    assert client.body(Instant("20270101000000000", Action.DELTA_COMMIT, State.COMPLETED, "20270101000000001")) is None
    assert client.schema_json()
