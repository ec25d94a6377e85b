"""Reading on Spark: the same answer as plain Python, whatever the route."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.spark import dead_row_filter
from lakebed.spark.read import forget_frames
from lakebed.storage.open import open_storage
from tests.conftest import GOLDEN_NAMES, expected
from tests.schema_changes import Add, Drop, Rename, alter
from tests.spark.tables import PARTS, SCHEMA, assert_same, frame, make_table, row, rows
from tests.unit.write.test_repeated_keys import foreign
from tests.unit.write.test_repeated_keys import rows as some_rows


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_tables_read_as_without_spark(name: str, golden: Callable[[str], Path], spark: Any) -> None:
    assert_same(spark, lakebed.open(golden(name)).scan())


@pytest.mark.parametrize("name", ["mor_avro_v9", "mor_schema_evo_v9", "cow_hive_v9", "mor_partialpayload_v9"])
def test_other_queries_of_golden_tables(name: str, golden: Callable[[str], Path], spark: Any) -> None:
    table = lakebed.open(golden(name))
    assert_same(spark, table.scan(query="read_optimized"))
    incremental = expected(name).get("incremental", {})
    if "rows" in incremental:
        assert_same(spark, table.incremental(start=incremental["begin_exclusive_completion_time"]))
    as_of = expected(name).get("as_of", {})
    if "rows" in as_of:
        assert_same(spark, table.scan(as_of=as_of["instant"]))


@pytest.mark.parametrize("log_format", ["v1", "v2"])
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_base_files_that_repeat_keys_read_as_without_spark(
    layout: str, log_format: str, tmp_path: Path, spark: Any
) -> None:
    table = foreign(tmp_path, layout=layout, log_format=log_format)
    assert_same(spark, table.scan())
    table.upsert(some_rows(("a", 3, "late"), ("d", 3, "late")))
    assert_same(spark, table.scan())
    assert sorted(row["v"] for row in table.scan().to_df(spark).collect()) == ["a9", "b1", "b2", "c1", "d4"]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Table:
    return make_table(tmp_path_factory.mktemp("native") / "table {n}")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Table:
    return make_table(tmp_path_factory.mktemp("older") / "table", log_format="v1")


@pytest.fixture(scope="module")
def cow(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Table:
    return make_table(tmp_path_factory.mktemp("cow") / "table", table_type="cow")


FILTERS = [
    "version = 2",
    "small > -20 AND small <= 300 AND part IN ('eu', 'x=y', '100%')",
    "ratio > 10 OR ratio IS NULL",
    "NOT (flag <=> true) AND place.city = 'city 1'",
    "at >= TIMESTAMP '2024-03-12 05:00:00' AND wall < TIMESTAMP_NTZ '2024-03-10 08:00:00'",
    "day > DATE '1990-01-01' AND price >= 12.125",
    "id IN ('key-00003', 'key-00021', 'key-00044')",
    "`odd ``name``.x` = 'odd 1'",
    "small % nullif(version, 2) IS NULL AND upper(part) LIKE '%U%'",
    "version <> 2 AND 1 / (version - 2) < 5",
    "id NOT LIKE '%4' AND price = 12125e-3",
    "nullif(1, 1) IS NULL",
    "startswith(id, 'key-0002') AND raw = X'0500FF'",
]


@pytest.mark.parametrize("where", FILTERS)
def test_filters_mean_the_same(where: str, native: lakebed.Table, spark: Any) -> None:
    assert_same(spark, native.scan(columns=["id", "part", "version", "ratio"], filter=where))


def test_every_type_by_merge_vectors(native: lakebed.Table, spark: Any) -> None:
    scan = native.scan()
    lines = scan.explain(spark).splitlines()
    assert any("by Spark's Parquet reader and merge vectors" in line for line in lines)
    assert not any("through Python" in line for line in lines)
    assert "on Spark" not in scan.explain()
    theirs = assert_same(spark, scan)
    assert theirs.num_rows == 67
    assert set(theirs.column("part").to_pylist()) == set(PARTS)


def test_files_are_told_apart_by_numbers_and_by_names_where_numbers_meet(
    native: lakebed.Table, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["0-0_0-0-1_20240101000000000.parquet", "ü€😀", ""]
    theirs = spark.createDataFrame([(name,) for name in names], "name string").selectExpr("xxhash64(name)").collect()
    assert [number for (number,) in theirs] == [dead_row_filter.file_number(name) for name in names]
    by_number = spark_files_of(native.scan().to_df(spark))
    assert_same(spark, native.scan())
    monkeypatch.setattr(dead_row_filter, "file_number", len)  # as if two names had one number
    forget_frames()
    assert_same(spark, native.scan())
    assert (by_number, spark_files_of(native.scan().to_df(spark))) == ("bigint", "string")
    forget_frames()


def spark_files_of(frame: Any) -> str:
    """The type by which files and their vectors are joined."""
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    return "bigint" if "xxhash64(" in plan else "string"


def test_every_type_with_logs_of_format_v1(older: lakebed.Table, spark: Any) -> None:
    scan = older.scan()
    assert "their logs through Python: logs of format v1" in scan.explain(spark)
    assert_same(spark, scan)
    assert_same(spark, older.scan(columns=["tags", "id"], filter="version = 3 AND small > 0"))


def test_every_type_of_base_files_alone(cow: lakebed.Table, spark: Any) -> None:
    text = cow.scan().explain(spark=True)
    assert "slices by Spark's Parquet reader" in text
    assert "vectors" not in text
    assert_same(spark, cow.scan())


@pytest.mark.parametrize("kind", ["native", "older", "cow"])
def test_times_and_limits(kind: str, spark: Any, request: pytest.FixtureRequest) -> None:
    table: lakebed.Table = request.getfixturevalue(kind)
    timeline = table.inspect.timeline().to_pylist()
    assert_same(spark, table.scan(as_of=timeline[1]["instant"]))
    assert_same(spark, table.incremental(start=timeline[0]["completion"], end=timeline[2]["completion"]))
    assert table.scan(limit=7).to_df(spark).count() == 7
    assert table.scan(columns=[]).to_df(spark).columns == []


def test_rows_pruned_in_spark_are_those_of_the_merged_table(native: lakebed.Table, spark: Any) -> None:
    """A filter on the frame reaches the files, where old versions of rows still lie."""
    frame = native.scan().to_df(spark)
    assert frame.where("version = 1").count() == native.scan(filter="version = 1").count() == 9
    assert frame.select("id").where("version = 2").count() == native.scan(filter="version = 2").count()


@pytest.mark.parametrize("key", ["id", "version", ["id", "small"]], ids=str)
@pytest.mark.parametrize("log_format", ["v1", "v2"])
def test_rows_without_meta_fields(key: Any, log_format: str, tmp_path: Path, spark: Any) -> None:
    settings = {"record_key": key, "partition_by": "part", "num_buckets": 2, "log_format": log_format}
    table = lakebed.create(tmp_path / "t", SCHEMA, **settings, properties={"hoodie.populate.meta.fields": "false"})
    known = [{**row(number), "version": number, "small": number} for number in range(60)]
    table.bulk_insert(pa.Table.from_pylist(known, schema=SCHEMA))
    table.upsert(pa.Table.from_pylist([{**known[n], "flag": True} for n in range(0, 60, 3)], schema=SCHEMA))
    table.delete(where="version % 7 = 0")
    assert table.scan().count() == 51
    assert_same(spark, table.scan())
    assert_same(spark, table.scan(columns=["flag"], filter="flag AND version > 20"))


def test_read_function(native: lakebed.Table, spark: Any) -> None:
    completion = native.inspect.timeline().to_pylist()[0]["completion"]
    assert lakebed.read(spark, native.url, columns=["id", "small"], filter="small > 0").columns == ["id", "small"]
    optimized = native.scan(query="read_optimized").count()
    assert lakebed.read(spark, native.url, query="read_optimized").count() == optimized == 61
    assert lakebed.read(spark, native.url, start=completion).count() == native.incremental(start=completion).count()
    assert lakebed.read(spark, native.url, as_of=completion).count() == 60
    with pytest.raises(lakebed.InvalidRequest, match="cannot be combined with as_of"):
        lakebed.read(spark, native.url, start="0", as_of=completion)
    with pytest.raises(lakebed.InvalidRequest, match="needs a start"):
        lakebed.read(spark, native.url, query="incremental")
    with pytest.raises(lakebed.InvalidRequest, match="no column 'smal'"):
        lakebed.read(spark, native.url, columns=["smal"])


def test_reading_again_tells_spark_nothing_new(
    native: lakebed.Table, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.spark import read

    told: list[int] = []
    reads = read._read_files

    def counted(session: Any, plan: Any, paths: Any) -> Any:
        told.append(len(paths))
        return reads(session, plan, paths)

    read.forget_frames()
    monkeypatch.setattr(read, "_read_files", counted)
    one = native.scan(columns=["id", "version"]).to_df(spark)
    first = len(told)
    assert first
    other = native.scan(columns=["id", "version"]).to_df(spark)
    both = one.join(other, one.id == other.id).where(one.version == other.version)
    assert both.count() == one.count() == native.scan().count(), "a table joined with itself"
    assert one.join(other, one.id < other.id).count() == one.count() * (one.count() - 1) // 2
    assert_same(spark, native.scan(filter="version = 2"))
    assert len(told) == first


def test_a_lost_file_is_an_error_whatever_the_session_says(tmp_path: Path, spark: Any) -> None:
    table = make_table(tmp_path / "t", table_type="cow")
    frame = table.scan().to_df(spark)
    base = table.scan().plan().splits[0].slice.base_file
    assert base is not None
    (tmp_path / "t" / base.path).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=r"(?i)does not exist|FILE_NOT_EXIST|FileNotFound"):
            frame.toArrow()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_columns_that_spark_would_mix_up_come_through_python(tmp_path: Path, spark: Any) -> None:
    data = rows(range(5)).select(["id", "version"]).append_column("ID", rows(range(5)).column("small"))
    table = lakebed.create(tmp_path / "t", data.schema, record_key="id")
    table.upsert(data)
    assert "differ by case only" in table.scan().explain(spark)
    assert assert_same(spark, table.scan()).num_rows == 5


def test_tables_in_memory_are_read_here(spark: Any) -> None:
    table = lakebed.create("memory://spark-tests/t", rows(range(3)).schema, record_key="id")
    table.upsert(frame(spark, rows(range(8))))
    assert assert_same(spark, table.scan()).num_rows == 8


def test_a_store_that_spark_cannot_open(native: lakebed.Table, spark: Any) -> None:
    from lakebed.spark.files import spark_location, why_unreadable
    from lakebed.spark.routes import routes

    why = why_unreadable(spark, "s3://nobody-has-this/table", "part/file.parquet")
    assert why == "Spark here cannot open s3://"
    found = routes(native.scan().plan(), why)
    assert not found.native
    assert not found.vectors
    assert found.lines() == [f"{len(found.python)} slices through Python: {why}"]
    assert why_unreadable(spark, native.url, "x") is None
    assert spark_location(spark, open_storage("/a/b").url) == "file:///a/b"


@pytest.mark.parametrize("settings", [{}, {"log_format": "v1"}, {"table_type": "cow"}], ids=["native", "v1", "cow"])
def test_columns_with_ids_at_every_time(settings: dict[str, str], tmp_path: Path, spark: Any) -> None:
    """A column that was dropped and added again is another one, though name and type are the same."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("n", pa.int32())])
    table = lakebed.create(tmp_path / "t", schema, record_key="id", ordering="ts", num_buckets=1, **settings)
    for ts in (1, 2):
        table.upsert(pa.Table.from_pylist([{"id": str(i), "ts": ts, "a": f"{i}", "n": i} for i in range(9)], schema))
    before = table.inspect.timeline().to_pylist()[-1]["instant"]
    planned = table.services.plan_compaction() if table.config.is_mor else None
    alter(table, Drop("n"), Add("n", pa.int32()), Rename("a", "b"))
    if planned is not None:
        table.services.run(planned)
    table.refresh().update(set={"n": "7"}, where="id = '3'")
    for _ in range(2):
        assert_same(spark, table.scan(as_of=before))
        assert_same(spark, table.scan())
        assert_same(spark, table.incremental(start="0", end=before))
    assert {one["n"] for one in table.scan().to_arrow().to_pylist()} == {None, 7}
    assert {one["n"] for one in table.scan(as_of=before).to_arrow().to_pylist()} == set(range(9))
