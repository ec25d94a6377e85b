"""Tables with `hoodie.populate.meta.fields=false`: keys are made from columns, and files keep none of them.

What operations do to rows is judged by `tests/model`; here is what is special about the files,
the services, and what is refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.datafile.sorted_check import check_sorted_file
from lakebed.format.bloom_filter import FOOTER_KEY, MIN_KEY
from lakebed.model.record_key import key_generator_of
from lakebed.model.schema import META_FIELD_NAMES
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from tests.unit.write.tables import SCHEMA, files, held, make, row, table, values

OFF = {"hoodie.populate.meta.fields": "false"}
VERSIONS = {8: "v1", 9: "v1", 10: "v2"}


def bare(version: int = 10, **settings: Any) -> Table:
    properties = OFF | {"hoodie.table.version": str(version)} | settings.pop("properties", {})
    return make(log_format=VERSIONS[version], properties=properties, **settings)


def data_files(target: Table) -> dict[str, bytes]:
    return {path: body for path, body in files(target).items() if not path.startswith(".hoodie")}


def errors(target: Table) -> list[str]:
    return [str(finding) for finding in lakebed.open(target.url).check()]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_files_have_the_meta_columns_and_nothing_in_them(version: int, table_type: str) -> None:
    t = bare(version, table_type=table_type, partition_by=None, num_buckets=1)
    t.insert(table(row("b"), row("a")))
    t.upsert(table(row("a", ts=2, v=7)))
    bodies = [body for path, body in data_files(t).items() if path.endswith(".parquet")]
    assert bodies
    for body in bodies:
        file = pq.ParquetFile(io.BytesIO(body))
        rows = file.read()
        assert rows.schema.names == [*META_FIELD_NAMES, *SCHEMA.names]
        assert all(rows.column(name).null_count == rows.num_rows for name in META_FIELD_NAMES)
        assert not {FOOTER_KEY.encode(), MIN_KEY.encode()} & set(file.metadata.metadata)
    assert t.schema.names == SCHEMA.names
    assert values(t, "id", "v") == [("a", 7), ("b", 0)]
    assert errors(t) == []


@pytest.mark.parametrize("block", ["avro", "parquet"])
@pytest.mark.parametrize("version", [8, 9])
def test_rows_in_inline_logs_keep_no_key_and_deletes_do(version: int, block: str) -> None:
    t = bare(version, partition_by=None, num_buckets=1)
    t = lakebed.open(t.url, options={"hoodie.logfile.data.block.format": block})
    t.insert(table(row("alpha"), row("beta"), row("gamma")))
    t.upsert(table(row("alpha", ts=3, txt="kept")))
    t.delete(keys=["beta"])
    logs = [body for path, body in sorted(data_files(t).items()) if ".log." in path]
    assert len(logs) == 2
    assert logs[1].count(b"beta") == 1
    assert values(t, "id", "txt") == [("alpha", "kept"), ("gamma", None)]
    assert errors(t) == []


@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key", ["id", "v", ["id", "v"]], ids=str)
def test_compaction_keeps_the_rows(version: int, layout: str, key: Any) -> None:
    t = bare(version, layout=layout, record_key=key)
    t.insert(table(*(row(f"k{number}", v=number, p="ab"[number % 2]) for number in range(30))))
    t.upsert(table(*(row(f"k{number}", ts=2, v=number, p="ab"[number % 2], txt="new") for number in range(0, 30, 3))))
    t.delete(where="v IN (3, 4)")
    t.upsert(table(row("k5", ts=0, v=5, p="b", txt="late")))
    before = held(t)
    assert len(before) == 28
    assert errors(t) == []
    assert t.services.compact()
    assert held(t) == before
    assert not any(file_slice["logs"] for file_slice in t.inspect.file_slices().to_pylist())
    assert errors(t) == []
    t.upsert(table(row("k5", ts=9, v=5, p="b", txt="last")))
    assert [item["txt"] for item in held(t) if item["v"] == 5] == ["last"]


@pytest.mark.parametrize("version", [9, 10])
def test_log_compaction_keeps_the_rows(version: int) -> None:
    t = bare(version, partition_by=None, num_buckets=1, record_key=["id", "v"])
    t.insert(table(*(row(f"k{number}", v=number) for number in range(20))))
    for ts in range(2, 6):
        t.upsert(table(*(row(f"k{number}", ts=ts, v=number, txt=f"t{ts}") for number in range(ts, 20, ts))))
    t.delete(keys=[{"id": "k7", "v": 7}])
    before = held(t)
    assert t.services.compact("log", options={"hoodie.log.compaction.blocks.threshold": "2"})
    assert held(t) == before
    assert errors(t) == []
    t.services.compact()
    assert held(t) == before


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_clustering_keeps_the_rows(table_type: str, layout: str) -> None:
    t = bare(index="simple", partition_by=None, layout=layout, table_type=table_type, record_key="v")
    small = {"hoodie.parquet.small.file.limit": "0"}
    t = lakebed.open(t.url, options=small)
    for start in range(3):
        t.insert(table(*(row(f"k{number}", v=number) for number in range(start, 30, 3))))
    before = held(t)
    assert len(t.inspect.file_slices()) == 3
    assert t.services.cluster()
    assert len(t.inspect.file_slices()) == 1
    assert held(t) == before
    assert errors(t) == []


def test_a_row_that_moves_leaves_its_old_partition() -> None:
    t = bare(index="global_simple")
    t.insert(table(row("x", p="a"), row("y", p="a")))
    t.upsert(table(row("x", ts=5, p="b", v=1)))
    t.upsert(table(row("x", ts=4, p="a", v=2)))
    assert values(t, "id", "p", "v") == [("x", "b", 1), ("y", "a", 0)]


def test_a_merge_of_some_columns_writes_whole_rows() -> None:
    t = bare(partition_by=None)
    t.insert(table(row("x", v=1, txt="old"), row("y", v=2, txt="old")))
    source = pa.table({"id": ["x"], "n": pa.array([5], pa.int64())})
    t.merge(source, on="t.id = s.id").when_matched_update(set={"v": "s.n"}).execute()
    assert values(t, "id", "v", "txt") == [("x", 5, "old"), ("y", 2, "old")]
    [log] = [body for path, body in data_files(t).items() if path.endswith(".log.parquet")]
    assert pq.ParquetFile(io.BytesIO(log)).schema_arrow.names == [*META_FIELD_NAMES, *SCHEMA.names]


def test_a_table_of_hudi_s_is_written_on(golden_copy: Callable[[str], Path]) -> None:
    t = lakebed.open(golden_copy("cow_virtualkeys_v9"), drop_metadata=True)
    before = {item["id"]: item for item in t.scan().to_arrow().to_pylist()}
    first = before[min(before)]
    changed = {**first, "ts": first["ts"] + 100, "txt": "ours"}
    t.upsert(pa.Table.from_pylist([changed], schema=t.schema))
    t.delete(keys=[max(before)])
    wanted = {**before, first["id"]: changed}
    del wanted[max(before)]
    assert {item["id"]: item for item in t.scan().to_arrow().to_pylist()} == wanted


# ---------------------------------------------------------------------- what is said of files
def test_the_order_of_rows_is_judged_by_the_keys_that_their_columns_make() -> None:
    t = bare(partition_by=None, num_buckets=1, table_type="cow", record_key="v")
    t.insert(table(*(row(f"k{99 - number}", v=number) for number in range(12))))
    storage = open_storage(t.url)
    [path] = [path for path in data_files(t) if path.endswith(".parquet")]
    generator = key_generator_of(MetaClient.open(storage).config)
    assert check_sorted_file(storage, path, generator=generator) == []
    other = key_generator_of(MetaClient.open(open_storage(bare(record_key="id").url)).config)
    assert [str(one.severity) for one in check_sorted_file(storage, path, generator=other)] == ["error"]
    [unmade] = check_sorted_file(storage, path)
    assert "not stored" in unmade.what


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"record_key": None, "ordering": None, "index": "simple"}, "needs a record key"),
        ({"index": "bloom"}, "needs keys in files"),
        ({"index": "global_bloom"}, "needs keys in files"),
        ({"properties": {"hoodie.index.type": "BLOOM"}}, "needs keys in files"),
        (
            {
                "partition_by": "ts",
                "properties": {
                    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
                    "hoodie.keygen.timebased.output.dateformat": "yyyy",
                },
            },
            "key generator TIMESTAMP",
        ),
        ({"properties": {"hoodie.table.keygenerator.type": "CUSTOM"}}, "key generator CUSTOM"),
    ],
)
def test_tables_that_hudi_would_not_write_either_are_not_made(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(lakebed.InvalidRequest, match=why) as refusal:
        bare(**settings)
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"partition_by": ["p", "txt"]}, "key generator COMPLEX"),
        ({"record_key": "at", "schema": SCHEMA.append(pa.field("at", pa.date32()))}, "date32.*'at'"),
        ({"record_key": ["id", "at"], "schema": SCHEMA.append(pa.field("at", pa.decimal128(9, 2)))}, "decimal.*'at'"),
        ({"record_key": "at", "schema": SCHEMA.append(pa.field("at", pa.binary()))}, "binary: 'at'"),
    ],
)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [8, 9])
def test_tables_in_which_hudi_loses_rows_are_not_made(
    settings: dict[str, Any], why: str, version: int, table_type: str
) -> None:
    with pytest.raises(lakebed.InvalidRequest, match=why) as refusal:
        bare(version, table_type=table_type, **settings)
    assert "leave hoodie.populate.meta.fields at true" in (refusal.value.hint or "")
    bare(10, table_type=table_type, **settings)


@pytest.mark.parametrize("name", ["_hoodie_record_key", "_hoodie_commit_time"])
def test_conditions_cannot_speak_of_meta_fields(name: str) -> None:
    t = bare()
    t.insert(table(row("x")))
    for request in (
        lambda: t.delete(where=f"{name} = 'x'"),
        lambda: t.update(set={"v": "1"}, where=f"{name} = 'x'"),
        lambda: t.scan(columns=[name]).to_arrow(),
    ):
        with pytest.raises(lakebed.InvalidRequest, match=name):
            request()
    assert values(t, "id") == [("x",)]


def test_changes_since_a_write_are_not_known() -> None:
    t = bare()
    done = t.insert(table(row("x")))
    with pytest.raises(lakebed.InvalidRequest, match="meta fields"):
        t.incremental(done.completion_time).to_arrow()


@pytest.mark.parametrize("off", [True, False])
def test_a_write_cannot_change_its_mind_about_meta_fields(off: bool) -> None:
    t = bare() if off else make()
    t.insert(table(row("x")), options={"hoodie.populate.meta.fields": str(not off).lower()})
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match=r"was made with hoodie\.populate\.meta\.fields"):
        t.insert(table(row("y")), options={"hoodie.populate.meta.fields": str(off).lower()})
    assert files(t) == before


@pytest.mark.parametrize("where", ["open", "write"])
@pytest.mark.parametrize("kind", ["BLOOM", "global_bloom"])
def test_an_index_by_stored_keys_is_refused_before_anything_is_written(kind: str, where: str) -> None:
    t = bare(index="simple")
    t.insert(table(row("x")))
    before, asked = files(t), {"hoodie.index.type": kind}
    opened = lakebed.open(t.url, options=asked if where == "open" else None)
    given = asked if where == "write" else None
    for request in (
        lambda: opened.upsert(table(row("y")), options=given),
        lambda: opened.insert(table(row("y")), options=given),
        lambda: opened.delete(keys=["x"], options=given),
        lambda: opened.update(set={"v": "1"}, options=given),
        lambda: opened.merge(table(row("y")), on="t.id = s.id", options=given).when_not_matched_insert_all().execute(),
    ):
        with pytest.raises(lakebed.InvalidRequest, match=f"index.type={kind.upper()} needs keys in files") as refusal:
            request()
        assert "SIMPLE, GLOBAL_SIMPLE, BUCKET" in (refusal.value.hint or "")
    assert files(t) == before
    t.upsert(table(row("y")), options={"hoodie.index.type": "simple"})
    assert values(t, "id") == [("x",), ("y",)]


def test_a_refused_write_leaves_the_metadata_table(golden_copy: Callable[[str], Path]) -> None:
    path = golden_copy("cow_virtualkeys_v9")
    t = lakebed.open(path, drop_metadata=True)
    with pytest.raises(lakebed.InvalidRequest, match="needs keys in files"):
        t.delete(keys=["k1"], options={"hoodie.index.type": "BLOOM"})
    assert lakebed.open(path).config.metadata_partitions
    assert (path / ".hoodie/metadata").exists()
