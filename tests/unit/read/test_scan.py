"""The scan as a value and the doors out of it: narrowing, formats, counts, plans in words, other processes."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from benchmarks.handmade import HandmadeTable
from lakebed.config.read_options import ReadOptions
from lakebed.expression.predicate import parse_predicate
from tests.conftest import GOLDEN_NAMES

Golden = Callable[[str], Path]
SOME = [
    "cow_simple_v9",
    "mor_avro_v9",
    "mor_parquet_v9",
    "mor_deletes_v9",
    "orc_mor_v9",
    "mor_bucket_v9",
    "cow_hive_v9",
]


@pytest.fixture(scope="module")
def table(golden: Golden) -> lakebed.Table:
    return lakebed.open(golden("mor_avro_v9"))


# A value


def test_a_scan_is_frozen(table: lakebed.Table) -> None:
    scan = table.scan()
    with pytest.raises(dataclasses.FrozenInstanceError):
        scan.columns = ("id",)  # type: ignore[misc]


def test_narrowing_makes_new_scans(table: lakebed.Table) -> None:
    scan = table.scan()
    narrow = scan.select("id", "ts").filter("ts > 1").limit(3).as_of("2999-01-01")
    assert (scan.columns, scan.where, scan.limit_rows, scan.as_of_time) == (None, None, None, None)
    assert narrow.columns == ("id", "ts") and narrow.limit_rows == 3 and narrow.as_of_time == "2999-01-01"
    assert scan.to_arrow().num_rows == 95
    answer = narrow.to_arrow()
    assert answer.column_names == ["id", "ts"] and answer.num_rows == 3


def test_building_a_scan_reads_nothing(table: lakebed.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("read")

    for name in ("read", "read_ranges", "list", "open_input", "stat"):
        monkeypatch.setattr(type(table._client.storage), name, fail)
    scan = table.scan(columns=["id"], filter="ts > 1", as_of="2999-01-01", limit=3).filter("ts < 9").select("ts")
    assert "mor_avro_v9" in repr(scan) and "limit=3" in repr(scan)
    with pytest.raises(AssertionError, match="read"):
        scan.to_arrow()


def test_filters_combine_with_and(table: lakebed.Table) -> None:
    one = table.scan(filter="ts > 2 or p = 'p0'").filter("ts < 4")
    assert one.to_arrow() == table.scan(filter="(ts > 2 or p = 'p0') and ts < 4").to_arrow()
    assert 0 < one.count() < 95
    predicate = parse_predicate("ts > 2 or p = 'p0'", table.schema)
    assert table.scan(filter=predicate).filter("ts < 4").to_arrow() == one.to_arrow()
    assert table.scan(filter="ts < 4").filter(predicate).count() == one.count()


def test_a_filter_may_read_columns_that_are_not_asked_for(table: lakebed.Table) -> None:
    ours = table.scan(columns=["txt"], filter="p = 'p1' and ts > 1").to_arrow()
    everything = table.scan().to_arrow().to_pylist()
    wanted = sorted(row["txt"] for row in everything if row["p"] == "p1" and row["ts"] > 1)
    assert ours.column_names == ["txt"] and sorted(ours["txt"].to_pylist()) == wanted


@pytest.mark.parametrize("limit", [0, 1, 7, 94, 95, 96, 10**9])
def test_limits(table: lakebed.Table, limit: int) -> None:
    scan = table.scan(limit=limit)
    assert scan.to_arrow().num_rows == scan.count() == min(limit, 95)
    assert scan.to_arrow().schema == table.schema


def test_an_early_stop_leaves_no_threads(golden: Golden) -> None:
    before = threading.active_count()
    for _ in range(5):
        stream = lakebed.open(golden("mor_bucket_v9")).scan(options={"lakebed.threads": "4"}).to_batches()
        next(iter(stream))
        stream.close()  # type: ignore[attr-defined]
    assert threading.active_count() <= before


def test_no_columns_are_rows_all_the_same(table: lakebed.Table) -> None:
    answer = table.scan(columns=[]).to_arrow()
    assert answer.num_columns == 0 and answer.num_rows == 95


def test_columns_come_in_the_asked_order(table: lakebed.Table) -> None:
    answer = table.scan(columns=["txt", "_hoodie_commit_time", "id"]).to_arrow()
    assert answer.column_names == ["txt", "_hoodie_commit_time", "id"]
    assert table.scan(columns=["txt", "id"]).schema.names == ["txt", "id"]


def test_an_empty_table_has_a_schema_and_no_rows(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", pa.schema([("id", pa.string()), ("ts", pa.int64())]))
    scan = lakebed.open(made.root).scan()
    assert scan.to_arrow().num_rows == scan.count() == 0
    assert "0 of 0 slices" in scan.explain()


# Ways out


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_counts_are_those_of_the_rows(golden: Golden, name: str) -> None:
    table = lakebed.open(golden(name))
    for scan in (table.scan(), table.scan(query="read_optimized"), table.scan(filter="1 = 1")):
        assert scan.count() == scan.to_arrow().num_rows
        assert scan.select(table.schema.names[-1]).count() == scan.count()


@pytest.mark.parametrize("name", SOME)
def test_all_ways_out_hold_the_same_rows(golden: Golden, name: str) -> None:
    polars = pytest.importorskip("polars")
    scan = lakebed.open(golden(name)).scan()
    rows = scan.to_arrow()
    assert pa.Table.from_batches(list(scan.to_batches()), schema=scan.schema) == rows
    assert scan.to_reader().read_all() == rows
    assert pa.table(scan) == rows, "by __arrow_c_stream__"
    assert pa.RecordBatchReader.from_stream(scan).schema == rows.schema
    frame = scan.to_pandas()
    assert list(frame.columns) == rows.column_names and len(frame) == rows.num_rows
    by_stream = polars.DataFrame(scan)
    assert by_stream.height == rows.num_rows and by_stream.equals(scan.to_polars())
    assert by_stream["_hoodie_record_key"].to_list() == rows["_hoodie_record_key"].to_pylist()


def test_batches_are_no_larger_than_asked(table: lakebed.Table) -> None:
    batches = list(table.scan(options={"lakebed.batch.rows": "7"}).to_batches())
    assert max(batch.num_rows for batch in batches) <= 7 and sum(batch.num_rows for batch in batches) == 95


@pytest.mark.parametrize("threads", [0, 1, 2, 9])
def test_threads_change_nothing(golden: Golden, threads: int) -> None:
    table = lakebed.open(golden("mor_bucket_v9"))
    alone = table.scan(options={"lakebed.threads": "1"}).to_arrow()
    assert table.scan(options={"lakebed.threads": str(threads)}).to_arrow() == alone
    assert table.scan(options=ReadOptions(threads=threads)).count() == alone.num_rows


@pytest.mark.parametrize("memory", [1, "64KB", "1MB", 1 << 40])
def test_memory_changes_nothing(table: lakebed.Table, memory: int | str) -> None:
    ours = table.scan(memory=memory).to_arrow()
    assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, table.scan().to_arrow().to_pylist()))


def test_options_of_the_table_hold_for_its_scans(golden: Golden) -> None:
    table = lakebed.open(golden("mor_avro_v9"), options={"hoodie.metadata.enable": "false"})
    assert "listing: storage folders" in table.scan().explain()
    assert "listing: metadata table" in table.scan(options={"hoodie.metadata.enable": "true"}).explain()


def test_a_table_sees_later_commits_after_refresh(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    made = HandmadeTable(tmp_path / "t", schema)
    made.base(pa.table({"id": ["a"], "ts": [1]}, schema=schema))
    table = lakebed.open(made.root)
    kept = table.scan()
    made.log(pa.table({"id": ["b"], "ts": [1]}, schema=schema))
    assert kept.count() == table.scan().count() == 1
    assert table.refresh() is table
    assert table.scan().count() == 2 and kept.count() == 1


# Plans in words


def test_explain_counts_what_it_prunes(table: lakebed.Table) -> None:
    everything, some = table.scan().explain(), table.scan(columns=["id"], filter="p = 'p1' and id = 'k0001'").explain()
    assert "snapshot query, now" in everything and "reads 2 of 2 slices" in everything
    assert "columns: 11 of 11" in everything and "columns: 1 of 11" in some
    assert "1 of 2 partitions" in some and "reads 1 of 1 slices: 1 base files" in some
    assert "key range pushed into every file: 1 keys" in some
    assert "filter after the merge" in some


def test_explain_tells_times_and_queries(table: lakebed.Table) -> None:
    first, *_ = table.inspect.timeline().to_pylist()
    assert f"as of completion time {first['completion']}" in table.scan(as_of=first["instant"]).explain()
    assert "read_optimized query" in table.scan(query="read-optimized").explain()
    assert f"rows committed in ({first['completion']}, now]" in table.incremental(first["completion"]).explain()


def test_pruning_leaves_the_answer_as_it_is(golden: Golden) -> None:
    off = {"hoodie.enable.data.skipping": "false"}
    for name in SOME:
        table = lakebed.open(golden(name))
        partition = table.config.partition_fields[0] if table.config.partition_fields else "id"
        value = table.scan(columns=[partition], limit=1).to_arrow().column(0)[0].as_py()
        text = f"{partition} = '{value}' and _hoodie_record_key < 'k0040'"
        with_it, without = table.scan(filter=text), table.scan(filter=text, options=off)
        assert with_it.to_arrow().num_rows == without.to_arrow().num_rows == with_it.count()


# Other processes

_READ_ONE = """
import pickle, sys
reader, splits = pickle.load(sys.stdin.buffer)
rows = sum(batch.num_rows for split in splits for batch in reader.read(split))
assert rows == sum(map(reader.count, splits))
sys.stdout.write(str(rows))
"""


@pytest.mark.parametrize("name", ["mor_avro_v9", "mor_schema_evo_v9"])
def test_a_split_can_be_read_in_another_process(golden: Golden, name: str) -> None:
    scan = lakebed.open(golden(name)).scan(filter="_hoodie_record_key >= 'k0003'")
    plan = scan.plan()
    data = pickle.dumps((plan.reader, plan.splits))
    done = subprocess.run([sys.executable, "-c", _READ_ONE], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) == scan.count() > 0


def test_errors_can_be_sent_between_processes() -> None:
    error = lakebed.CorruptTable("bad bytes", file="p/x.parquet", offset=7, hint="Look.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is lakebed.CorruptTable and str(again) == str(error) and again.offset == 7
