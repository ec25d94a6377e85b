"""What a table is made of, checked against the files of real tables and what real Hudi said of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.inspect import COMMIT_SCHEMA, CONFIG_SCHEMA, SLICES_SCHEMA, TIMELINE_SCHEMA
from lakebed.model.actions import CleanMetadata, CommitMetadata, CompactionPlan
from tests.conftest import GOLDEN_NAMES, expected

Golden = Callable[[str], Path]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_the_timeline_is_that_of_the_folder(golden: Golden, name: str) -> None:
    table = lakebed.open(golden(name))
    shown = table.inspect.timeline()
    assert shown.schema == TIMELINE_SCHEMA
    begins = {file.name.replace("_", ".").split(".")[0] for file in (golden(name) / ".hoodie/timeline").glob("2*")}
    assert {row["instant"] for row in shown.to_pylist()} == begins
    assert shown["instant"].to_pylist() == sorted(shown["instant"].to_pylist())
    for row in shown.to_pylist():
        assert (row["completion"] is None) == (row["state"] != "completed") and not row["archived"]
    operations = {row["operation"] for row in shown.to_pylist() if row["action"] in ("commit", "deltacommit")}
    assert operations, "every write says what it was"


def test_the_archived_timeline(golden: Golden) -> None:
    inspect = lakebed.open(golden("mor_maint_v9")).inspect
    active, full = inspect.timeline().to_pylist(), inspect.timeline(history=True).to_pylist()
    archived = [row for row in full if row["archived"]]
    assert archived and [row for row in full if not row["archived"]] == active
    assert max(row["instant"] for row in archived) < min(row["instant"] for row in active)
    assert {row["state"] for row in archived} == {"completed"}
    assert {"deltacommit", "commit", "clean"} >= {row["action"] for row in archived}


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_slices_are_files_on_disk(golden: Golden, name: str) -> None:
    root = golden(name)
    slices = lakebed.open(root).inspect.file_slices()
    assert slices.schema == SLICES_SCHEMA
    for row in slices.to_pylist():
        folder = root / row["partition"]
        if row["base_file"]:
            assert (folder / row["base_file"]).stat().st_size == row["base_bytes"]
        sizes = [(folder / log).stat().st_size for log in row["logs"]]
        assert sum(sizes) == row["log_bytes"] and len(sizes) == row["log_files"]
        assert row["bytes"] == row["base_bytes"] + row["log_bytes"]
    assert slices.num_rows == len({(row["partition"], row["file_id"]) for row in slices.to_pylist()})


def test_slices_as_of_a_time(golden: Golden) -> None:
    inspect = lakebed.open(golden("mor_avro_v9")).inspect
    first = inspect.timeline().to_pylist()[0]
    then = inspect.file_slices(as_of=first["instant"]).to_pylist()
    assert {row["base_instant"] for row in then} == {first["instant"]}
    assert (
        sum(row["log_files"] for row in then) == 0 < sum(row["log_files"] for row in inspect.file_slices().to_pylist())
    )
    with pytest.raises(lakebed.InvalidRequest, match="no commit yet"):
        inspect.file_slices(as_of="1999-01-01")


@pytest.mark.parametrize("name", ["cow_simple_v9", "mor_avro_v9", "cow_insert_overwrite_v9", "cow_clustering_v9"])
def test_commits_say_what_they_wrote(golden: Golden, name: str) -> None:
    root = golden(name)
    inspect = lakebed.open(root).inspect
    for row in inspect.timeline().to_pylist():
        if row["state"] != "completed" or row["action"] not in ("commit", "deltacommit", "replacecommit"):
            continue
        shown = inspect.commit(row["instant"])
        assert shown.schema == COMMIT_SCHEMA
        assert shown == inspect.commit(row["completion"]), "by begin or by completion"
        for stat in shown.to_pylist():
            if stat["replaced"]:
                assert stat["path"] is None and stat["writes"] == 0
            else:
                assert (root / stat["path"]).stat().st_size == stat["bytes"]
        replaced = sum(stat["replaced"] for stat in shown.to_pylist())
        assert (replaced > 0) == (row["action"] == "replacecommit")


def test_bodies_of_other_actions(golden: Golden) -> None:
    inspect = lakebed.open(golden("mor_maint_v9")).inspect
    (clean,) = [row for row in inspect.timeline().to_pylist() if row["action"] == "clean"]
    assert isinstance(inspect.body(clean["instant"]), CleanMetadata)
    with pytest.raises(lakebed.InvalidRequest, match=r"no completed write.*inspect\.body"):
        inspect.commit(clean["instant"])
    archived = next(row for row in inspect.timeline(history=True).to_pylist() if row["archived"])
    assert isinstance(inspect.body(archived["instant"]), CommitMetadata)
    pending = lakebed.open(golden("mor_pending_compaction_v9")).inspect
    (plan,) = [row for row in pending.timeline().to_pylist() if row["action"] == "compaction"]
    assert plan["state"] == "requested" and isinstance(pending.body(plan["instant"]), CompactionPlan)


def test_settings_and_where_they_come_from(golden: Golden) -> None:
    table = lakebed.open(golden("mor_avro_v9"))
    shown = table.inspect.config()
    assert shown.schema == CONFIG_SCHEMA
    rows = {row["key"]: row for row in shown.to_pylist()}
    assert rows["hoodie.table.name"]["value"] == "mor_avro_v9"
    assert rows["hoodie.table.name"]["source"] == "hoodie.properties" and rows["hoodie.table.name"]["meaning"]
    assert "default" in {row["source"] for row in rows.values()}
    written = (golden("mor_avro_v9") / ".hoodie/hoodie.properties").read_text().splitlines()
    keys = {line.partition("=")[0] for line in written if line and not line.startswith("#")}
    assert keys <= rows.keys(), "nothing that is written is left out"
    assert shown["key"].to_pylist() == sorted(shown["key"].to_pylist())


@pytest.mark.parametrize("name", ["cow_simple_v9", "mor_schema_evo_v9", "cow_virtualkeys_v9"])
def test_the_schema_is_that_of_the_answer(golden: Golden, name: str) -> None:
    table = lakebed.open(golden(name))
    assert set(expected(name)["snapshot"]["columns"]) == set(table.schema.names)
    assert isinstance(table.schema, pa.Schema) and table.schema == table.scan().to_arrow().schema
    assert name in repr(table) and table.name.endswith(name)
