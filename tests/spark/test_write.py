"""Writing on Spark: the same table as without, and nothing visible of tasks that were tried twice."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from tests.golden.rows import rows_of
from tests.spark.tables import SCHEMA, assert_same, frame, rows
from tests.spark.writes import (
    JOB,
    KINDS,
    SETTINGS,
    assert_numbers_unique,
    content,
    failing_once,
    new_table,
    nothing_left_of_refused_rows,
    refuse_nulls_in_the_ordering,
    with_nulls,
)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_table_as_without_spark(kind: str, tmp_path: Path, spark: Any) -> None:
    plain, by_spark = (new_table(tmp_path / name, **KINDS[kind]) for name in ("plain", "spark"))
    plain.bulk_insert(rows(range(60), 2))
    by_spark.bulk_insert(frame(spark, rows(range(60), 2)), options=JOB)
    twice = pa.concat_tables([rows(range(20, 40), 1), rows(range(30, 70), 3), rows(range(30, 50), 2)])
    plain.upsert(twice)
    result = by_spark.upsert(frame(spark, twice).repartition(3), options=JOB)
    assert content(by_spark) == content(plain)
    assert len(content(by_spark)) == 70
    if "properties" not in KINDS[kind]:
        assert_numbers_unique(by_spark)
    assert by_spark.check() == []
    assert result.completion_time > result.instant
    assert result.inserted + result.updated == 40 if "cow" in kind else result.files


def test_overwrites(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path / "t")
    table.bulk_insert(frame(spark, rows(range(44))), options=JOB)
    table.overwrite_partitions(frame(spark, rows(range(0, 110, 11), 5)), options=JOB)
    assert table.scan(filter="part = 'eu'").count() == 10
    assert table.scan().count() == 40 + 10
    table.overwrite(frame(spark, rows(range(5))), options=JOB)
    assert content(table) == rows_of(rows(range(5)), SCHEMA.names)


def test_rows_without_a_key(tmp_path: Path, spark: Any) -> None:
    table = lakebed.create(tmp_path / "t", SCHEMA, table_type="cow")
    for _ in range(2):
        table.insert(frame(spark, rows(range(20))).repartition(3), options=JOB)
    table.bulk_insert(frame(spark, rows(range(20))).repartition(3), options=JOB)
    keys = table.scan(columns=["_hoodie_record_key"]).to_arrow().column(0).to_pylist()
    assert len(keys) == len(set(keys)) == 60
    assert_numbers_unique(table)
    with pytest.raises(lakebed.InvalidRequest, match="no record key"):
        table.upsert(frame(spark, rows(range(2))), options=JOB)


def test_small_frames_are_written_by_the_driver(tmp_path: Path, spark: Any) -> None:
    from lakebed.spark.driver_write import plan_text, rows_if_few
    from lakebed.spark.types import arrow_schema

    given = frame(spark, rows(range(9)))
    schema = arrow_schema(given.schema)
    costs = plan_text(given, "COST")
    few = rows_if_few(given, schema, 9, costs)
    assert few is not None
    assert rows_of(few, SCHEMA.names) == rows_of(rows(range(9)), SCHEMA.names)
    assert rows_if_few(given, schema, 8, costs) is None
    assert rows_if_few(given, schema, 0, costs) is None
    cut = given.repartition(3)  # fetching would run all that comes before the shuffle
    assert rows_if_few(cut, schema, 9, plan_text(cut, "COST")) is None
    table = new_table(tmp_path / "t")
    table.upsert(given)
    assert content(table) == rows_of(rows(range(9)), SCHEMA.names)
    with pytest.raises(lakebed.InvalidRequest, match="number of rows"):
        table.upsert(given, options={"lakebed.spark.driver.rows": "few"})


def test_wrong_rows_are_told_as_without_spark_and_leave_no_trace(tmp_path: Path, spark: Any) -> None:
    with nothing_left_of_refused_rows(spark, tmp_path / "t") as (table, bad):
        refuse_nulls_in_the_ordering(table, bad)
        with pytest.raises(lakebed.InvalidRequest, match="id"):
            table.upsert(with_nulls(bad, "id"), options=JOB)
        with pytest.raises(lakebed.InvalidRequest, match="lacks the column 'part'"):
            table.upsert(bad.drop("part"), options=JOB)


@pytest.mark.parametrize("options", [JOB, {}], ids=["as a job", "in the driver"])
def test_values_that_give_one_key_or_folder_are_refused_by_the_tasks(
    options: dict[str, str], tmp_path: Path, spark: Any
) -> None:
    """The tasks' numbers do not tell such rows apart either: they meet in one task, which refuses them."""
    from pyspark.sql import functions as F

    allowed = {**options, "lakebed.allow.ambiguous.keys": "true"}
    one = new_table(tmp_path / "one")
    empty = frame(spark, rows(range(4))).withColumn("part", F.lit(""))
    with pytest.raises(lakebed.InvalidRequest, match="'part' holds the empty text"):
        one.upsert(empty, options=options)
    one.upsert(empty, options=allowed)
    assert one.scan().count() == 4
    several = new_table(tmp_path / "several", record_key=["id", "part"], partition_by=None)
    keyed = frame(spark, rows(range(4))).withColumn("id", F.concat(F.col("id"), F.lit(",part:1")))
    with pytest.raises(lakebed.InvalidRequest, match="with ',part:' in it"):
        several.upsert(keyed, options=options)
    several.upsert(keyed, options=allowed)
    assert several.scan().count() == 4


@pytest.mark.parametrize("options", [JOB, {}], ids=["as a job", "in the driver"])
@pytest.mark.parametrize("index", ["BLOOM", "GLOBAL_BLOOM"])
def test_an_index_by_keys_that_are_not_stored(
    index: str, options: dict[str, str], tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before anything is written, and before Spark does anything."""
    table = new_table(tmp_path / "t", **KINDS["no meta fields, simple"])
    table.bulk_insert(rows(range(5)))
    before = {file for file in (tmp_path / "t").rglob("*") if file.is_file()}
    given = frame(spark, rows(range(3, 9), 2))
    asked = {**options, "hoodie.index.type": index}
    with monkeypatch.context() as patch:
        patch.setattr("lakebed.spark.write_job.rows_if_few", pytest.fail)
        with pytest.raises(lakebed.InvalidRequest, match=f"{index} needs keys in files"):
            table.upsert(given, options=asked)
        with pytest.raises(lakebed.InvalidRequest, match=f"{index} needs keys in files"):
            lakebed.open(tmp_path / "t", options=asked).bulk_insert(given)
    assert {file for file in (tmp_path / "t").rglob("*") if file.is_file()} == before
    table.upsert(given, options={**options, "hoodie.index.type": "SIMPLE"})
    assert table.scan().count() == 9


def test_a_task_that_fails_after_writing_leaves_nothing_behind(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the lost attempt lie there until the commit, which deletes them; Spark tries the task again."""
    from lakebed.spark import write_job

    table = new_table(tmp_path / "t", partition_by=None)
    table.bulk_insert(rows(range(30)))
    monkeypatch.setattr(write_job, "_in_task", failing_once(write_job._in_task, tmp_path / "failed"))
    result = table.upsert(frame(spark, rows(range(20, 50), 2)), options=JOB)
    lost = [line for line in (tmp_path / "failed").read_text().splitlines() if line]
    assert lost
    assert not set(lost) & set(result.files)
    assert all(not (tmp_path / "t" / path).exists() for path in lost)
    assert table.scan().count() == 50
    assert_numbers_unique(table)
    assert_same(spark, table.scan())


@pytest.mark.parametrize("kind", ["bucket", "v1 logs", "cow bucket"])
def test_files_of_a_straggler_stay_invisible(kind: str, tmp_path: Path, spark: Any) -> None:
    """A second attempt that ends after the commit leaves files that look right and that no commit names."""
    table = new_table(tmp_path / "t", **{**KINDS[kind], "partition_by": None})
    table.bulk_insert(rows(range(10)))
    result = table.upsert(frame(spark, rows(range(5, 15), 2)), options=JOB)
    before = content(table)
    for path in result.files:
        file = tmp_path / "t" / path
        name = Path(path).name
        token = next(part for part in name.replace(".", "_").split("_") if part.count("-") == 2 and part[0].isdigit())
        late = file.with_name(name.replace(token, f"{token}999"))
        assert late != file
        shutil.copy(file, late)
    fresh = lakebed.open(tmp_path / "t")
    assert content(fresh) == before
    assert_same(spark, fresh.scan())
    fresh.upsert(frame(spark, rows(range(12, 16), 3)), options=JOB)
    assert fresh.scan().count() == 16


def test_rows_of_a_group_meet_in_one_task(tmp_path: Path) -> None:
    from lakebed.model.schema import without_meta_fields
    from lakebed.spark.partitioner import Buckets, TaskOfRow
    from lakebed.write.rows.prepare import plan_preparation

    table = new_table(tmp_path / "t")
    data = rows(range(500)).combine_chunks().to_batches()[0]
    plan = plan_preparation(table.config, without_meta_fields(table.schema), data.schema)
    columns = data.select(list(plan.generator.columns))
    for by in (TaskOfRow(plan, Buckets(2, ("id",), ("id",)), 7), TaskOfRow(plan, None, 7, by_key=True)):
        tasks = by(columns).to_pylist()
        assert set(tasks) <= set(range(7))
        assert len(Counter(tasks)) > 4
        assert by(columns.slice(100, 50)).to_pylist() == tasks[100:150]
    tasks = TaskOfRow(plan, None, 7)(columns).to_pylist()
    assert len({(part, task) for part, task in zip(columns.column("part").to_pylist(), tasks, strict=True)}) == 11
    missing = columns.set_column(columns.schema.get_field_index("id"), "id", pa.nulls(500, pa.string()))
    assert set(TaskOfRow(plan, None, 7, by_key=True)(missing).to_pylist()) == {0}


def test_partitions_by_time_do_not_depend_on_the_session(tmp_path: Path, spark: Any) -> None:
    """The session's zone is New York's; the table's times are in UTC."""
    plain, by_spark = (new_table(tmp_path / name, partition_by="at", num_buckets=1) for name in ("plain", "spark"))
    plain.upsert(rows(range(12)))
    by_spark.upsert(frame(spark, rows(range(12))), options=JOB)
    assert content(plain) == content(by_spark)
    assert paths_of(plain) == paths_of(by_spark)
    assert len(paths_of(plain)) == 12


def paths_of(table: lakebed.Table) -> set[str]:
    return set(table.scan(columns=["_hoodie_partition_path"]).to_arrow().column(0).to_pylist())


def test_the_runner_runs_tasks_in_order_and_raises_what_they_raise(spark: Any) -> None:
    from lakebed.spark import SparkRunner

    done: list[tuple[str, int, int | None]] = []

    class Bar:
        def advance(self, label: str, number: int, total: int | None) -> None:
            done.append((label, number, total))

    runner = SparkRunner(spark, Bar())
    assert list(runner.map(len, ["a", "bb", "", "dddd"], label="lengths")) == [1, 2, 0, 4]
    assert done == [("lengths", n, 4) for n in range(1, 5)]
    assert list(runner.map(len, [], label="nothing")) == []
    with pytest.raises(lakebed.TableNotFound):
        list(runner.map(lakebed.open, ["/no/such/table"], label="open"))


def test_one_shuffle_and_rows_enter_python_once(tmp_path: Path, spark: Any) -> None:
    """The physical plan: key columns make a task number, one exchange, one map over all columns."""
    from lakebed.config.write_options import WriteOptions
    from lakebed.read.reader_context import reader_context_of
    from lakebed.spark import write_job
    from lakebed.spark.driver_write import plan_text
    from lakebed.spark.partitioner import repartition_rows
    from lakebed.write.operation import Operation

    table = new_table(tmp_path / "t")
    table.bulk_insert(rows(range(60), 2))
    writer = table._writer(None, None)
    given = frame(spark, rows(range(20)))
    plan = writer.plan(reader_context_of(writer.client), write_job.arrow_schema(given.schema))
    request = writer.request(Operation.UPSERT, reader_context_of(writer.client), plan)
    tagged = repartition_rows(given, plan, writer.client, request, sorted(paths_of(table)))
    assert isinstance(tagged.options, WriteOptions)
    task = write_job.WriteTask(None, request, plan, writer.client)  # type: ignore[arg-type]
    text = plan_text(write_job.written_by(tagged.rows, task))
    assert text.count("Exchange ") == 1
    assert "REPARTITION_BY_NUM" in text
    assert text.count("MapInArrow ") == 1
    assert "ArrowEvalPython " not in text
    assert "Sort " not in text
    assert tagged.check is not None
    asked = repartition_rows(given, plan, writer.client, request, sorted(paths_of(table)), natively=False)
    text = plan_text(write_job.written_by(asked.rows, task))
    assert text.count("Exchange ") == 1
    assert text.count("ArrowEvalPython ") == 1
    assert re.search(r"ArrowEvalPython \[run\(\w+#\d+, \w+#\d+\)", text)
    assert asked.check is None


KEYS = ["a", "key-1", "ü", "😀x", "a,b", "a:b", "0", " ", "x" * 300]


@pytest.mark.parametrize("hive", [False, True])
@pytest.mark.parametrize("known", [(), ("eu", "part=eu", "st*r")])
def test_spark_numbers_tasks_as_lakebed_does(hive: bool, known: tuple[str, ...], tmp_path: Path, spark: Any) -> None:
    from lakebed.model.schema import without_meta_fields
    from lakebed.spark.partitioner import Buckets, TaskOfRow
    from lakebed.spark.task_expression import task_expression
    from lakebed.write.rows.prepare import plan_preparation

    parts = ["eu", "", None, "__HIVE_DEFAULT_PARTITION__", "ü€😀", "st*r", "a b"]
    data = pa.table({"id": KEYS * len(parts), "part": [part for part in parts for _ in KEYS]})
    data = data.append_column("version", pa.array(range(len(data))))
    style = {"hoodie.datasource.write.hive_style_partitioning": str(hive).lower()}
    table = lakebed.create(tmp_path / "t", data.schema, **SETTINGS, properties=style)
    assert table.config.hive_style is hive
    plan = plan_preparation(table.config, without_meta_fields(table.schema), data.schema)
    by = TaskOfRow(plan, Buckets(3, ("id",), ("id",)), 11, partitions=known)
    given = spark.createDataFrame(data.to_pandas(), "id string, part string, version long")
    number = task_expression(given, plan, 3, ("id",), 11, by.known)
    assert number is not None
    told = given.select("version", number.alias("task")).toPandas().sort_values("version")["task"].tolist()
    assert told == by(data.select(["id", "part"]).combine_chunks().to_batches()[0]).to_pylist()
    assert len(set(told)) > 5


def test_keys_that_spark_cannot_place_are_placed_by_lakebed(tmp_path: Path, spark: Any) -> None:
    """Hudi takes `a:1,b:2` for a key of several fields and hashes their values; no row may be lost by that."""
    data = rows(range(40))
    odd = [f"id:{n},x:{n % 7}" if n % 3 else f"plain-{n}" for n in range(40)]
    data = data.set_column(0, SCHEMA.field("id"), pa.array(odd))
    plain, by_spark = (new_table(tmp_path / name, num_buckets=5) for name in ("plain", "spark"))
    plain.bulk_insert(data)
    by_spark.bulk_insert(frame(spark, data), options=JOB)
    by_spark.upsert(frame(spark, data), options=JOB)
    assert content(by_spark) == content(plain)
    assert by_spark.check() == []
    for path in paths_of(by_spark):
        assert (
            len(list((tmp_path / "spark" / path).glob("*.parquet")))
            == len({file.name.split("_")[0] for file in (tmp_path / "spark" / path).glob("*.parquet")}) * 2
        ), "one base file and one log in each group"


def test_columns_are_checked_before_spark_runs_anything(tmp_path: Path, spark: Any) -> None:
    from lakebed.read.reader_context import reader_context_of

    """The table keeps its NOT NULL, new columns come in, and what cannot be is refused as it is for plain rows."""
    from pyspark.sql import functions as F

    declared = pa.schema([pa.field("id", pa.string(), False), pa.field("n", pa.int32(), False)])
    table = lakebed.create(tmp_path / "t", declared, record_key="id", num_buckets=1)
    good = spark.createDataFrame([("a", 1), ("b", 2)], "id string, n int")
    table.upsert(good, options=JOB)
    timeline = table.inspect.timeline().num_rows
    for bad, message in (
        (good.withColumn("n", F.lit("x")), "'n'"),
        (good.drop("n"), "'n'"),
    ):
        with pytest.raises(lakebed.InvalidRequest, match=message) as by_spark:
            table.upsert(bad, options=JOB)
        with pytest.raises(lakebed.InvalidRequest) as plain:
            table.upsert(bad.toArrow())
        assert str(by_spark.value) == str(plain.value)
    assert table.refresh().inspect.timeline().num_rows == timeline
    with pytest.raises(lakebed.InvalidRequest, match="'n' may not be null"):
        table.upsert(good.withColumn("n", F.when(F.col("id") != "a", F.col("n"))), options=JOB)
    table.upsert(good.withColumn("more", F.lit(1.5)), options=JOB)
    assert table.scan(columns=["id", "more"]).to_arrow().column("more").to_pylist() == [1.5, 1.5]
    stated = table.refresh()._writer(None, None)
    from lakebed.write.write_checks import declared_schema

    assert not declared_schema(stated.client, reader_context_of(stated.client)).field("n").nullable


INDEXES: dict[str, dict[str, Any]] = {
    "simple": {"index": "simple"},
    "bloom": {"index": "bloom"},
    "simple, copy-on-write": {"index": "simple", "table_type": "cow"},
    "global simple": {"index": "global_simple"},
    "global bloom": {"index": "global_bloom", "table_type": "cow"},
}


@pytest.mark.parametrize("kind", INDEXES)
def test_known_keys_go_to_the_group_that_holds_them(kind: str, tmp_path: Path, spark: Any) -> None:
    """Two writes make two groups in a partition; an update of rows of both, and new ones, finds each its own."""
    small_files_off = {"hoodie.parquet.small.file.limit": "0"}
    table = new_table(tmp_path / "t", **{**INDEXES[kind], "num_buckets": None})
    table.insert(rows(range(0, 44, 11)), options=small_files_off)
    table.insert(rows(range(44, 88, 11)), options=small_files_off)
    before = groups_of_keys(table)
    assert len(set(before.values())) == 2
    table.upsert(frame(spark, rows(range(22, 110, 11), 2)).repartition(3), options={**JOB, **small_files_off})
    after = groups_of_keys(table)
    assert len(after) == 10
    assert {key: after[key] for key in before} == before
    assert table.scan(filter="version = 2").count() == 8
    assert len({key for key in after if key not in before}) == 2
    if "global" in kind:
        moved = rows(range(0, 22, 11), 3)
        moved = moved.set_column(1, moved.schema.field(1), pa.array(["elsewhere"] * 2))
        table.upsert(frame(spark, moved), options=JOB)
        assert table.scan().count() == 10
        assert table.scan(filter="part = 'elsewhere'").count() == 2


def groups_of_keys(table: lakebed.Table) -> dict[str, str]:
    """The file group of every key, by the names of the files that hold the newest versions."""
    plan = table.refresh().scan(columns=["id"]).plan()
    return {
        key: split.slice.file_group.file_id
        for split in plan.splits
        for batch in plan.reader.read(split)
        for key in batch.column("id").to_pylist()
    }


def test_merge_of_a_frame(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the source come by streams that tasks leave beside the table, whatever their number; nothing stays."""
    from lakebed.spark import rows_to_driver

    monkeypatch.setattr(rows_to_driver, "INLINE_BYTES", 1)
    table = new_table(tmp_path / "t", partition_by=None)
    table.bulk_insert(rows(range(30)))
    source = frame(spark, rows(range(20, 50), 2)).repartition(3)
    merged = table.merge(source, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert merged.files
    assert content(table) == rows_of(pa.concat_tables([rows(range(20)), rows(range(20, 50), 2)]), SCHEMA.names)
    assert not list((tmp_path / "t" / ".hoodie").rglob("*.arrow"))
