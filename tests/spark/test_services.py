"""Table services on Spark: the same table as without, nothing of tasks that failed or were tried twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.runner import SerialRunner
from lakebed.services import clustering_rewrite, compaction
from tests.golden.rows import rows_of
from tests.spark.tables import PARTS, SCHEMA, frame, make_table, rows

OFF = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
SMALL_LOGS = {"hoodie.log.compaction.blocks.threshold": "2", **OFF}
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "version,id"}
KINDS: dict[str, dict[str, Any]] = {
    "native logs": {"partition_by": None, "num_buckets": 3},
    "inline logs": {"partition_by": None, "log_format": "v1", "layout": "default"},
}


def content(table: lakebed.Table) -> list[list[Any]]:
    """All rows, with who wrote them."""
    columns = [name for name in table.schema.names if name != "_hoodie_file_name"]
    return rows_of(table.scan(columns=columns).to_arrow(), columns)


def reader_context_of(table: lakebed.Table) -> list[tuple[Any, ...]]:
    """The slices, without what differs from one run to the next: times, tokens, sizes."""
    slices = table.refresh().inspect.file_slices().to_pylist()
    return sorted(
        (file_slice["partition"], bool(file_slice["base_file"]), len(file_slice["logs"])) for file_slice in slices
    )


def twins(tmp_path: Path, **kwargs: Any) -> tuple[lakebed.Table, lakebed.Table]:
    make_table(tmp_path / "plain", **kwargs)
    shutil.copytree(tmp_path / "plain", tmp_path / "spark")
    return lakebed.open(tmp_path / "plain"), lakebed.open(tmp_path / "spark")


def data_files(path: Path) -> set[str]:
    return {file.name for file in path.rglob("*") if file.is_file() and ".hoodie" not in file.parts}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["full", "log", "hybrid"])
def test_compaction(kind: str, strategy: str, tmp_path: Path, spark: Any) -> None:
    plain, by_spark = twins(tmp_path, **KINDS[kind])
    before = content(plain)
    (done,) = plain.services.compact(strategy, SMALL_LOGS)
    (also,) = by_spark.services.on(spark).compact(strategy, SMALL_LOGS)
    assert also.action is done.action
    assert also.is_completed
    assert content(by_spark) == content(plain) == before
    assert reader_context_of(by_spark) == reader_context_of(plain)
    assert by_spark.check() == []
    by_spark.upsert(rows(range(60, 70), 9))
    assert by_spark.scan(filter="version = 9").count() == 10


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"table_type": "cow", "index": "simple", "num_buckets": None, "layout": "default"}, SORTED),
        ({"index": "simple", "num_buckets": None}, {}),
    ],
    ids=["cow by columns", "mor in key order"],
)
def test_clustering(settings: dict[str, Any], options: dict[str, str], tmp_path: Path, spark: Any) -> None:
    plain, by_spark = twins(tmp_path, partition_by=None, **settings)
    for table in (plain, by_spark):
        table.bulk_insert(rows(range(100, 130)), options=OFF)
    before = rows_of(plain.scan(columns=SCHEMA.names).to_arrow(), SCHEMA.names)
    assert plain.services.cluster(options)
    assert by_spark.services.on(spark).cluster(options)
    assert rows_of(by_spark.scan(columns=SCHEMA.names).to_arrow(), SCHEMA.names) == before
    assert reader_context_of(by_spark) == reader_context_of(plain)
    assert by_spark.check() == []


def test_a_plan_made_here_is_run_there(tmp_path: Path, spark: Any) -> None:
    table = make_table(tmp_path / "t")
    before = content(table)
    planned = table.services.plan_compaction("hybrid")
    assert planned.instants
    table.upsert(rows(range(4, 9), 9), options=OFF)
    table.services.on(spark).run(planned)
    assert table.services.pending_compactions() == ()
    assert len(content(table)) == len(before)
    assert table.scan(filter="version = 9").count() == 5
    assert table.check() == []


def test_what_follows_a_write_of_a_frame_runs_on_spark(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.spark import runner

    table = make_table(tmp_path / "t", partition_by=None)
    labels: list[str] = []
    mapped = runner.SparkRunner.map

    def noted(self: Any, fn: Any, tasks: Any, *, label: str) -> Any:
        labels.append(label)
        return mapped(self, fn, tasks, label=label)

    monkeypatch.setattr(runner.SparkRunner, "map", noted)
    always = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    table.upsert(frame(spark, rows(range(5), 9)), options=always)
    assert labels == ["compact"]
    assert all(count == 0 for _, _, count in reader_context_of(table))
    table.upsert(rows(range(5), 10), options=always)
    assert labels == ["compact"], "rows without Spark are followed by services without Spark"


@pytest.mark.parametrize("strategy", ["full", "log"])
def test_a_task_that_fails_leaves_nothing(
    strategy: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task writes its files; one of them then finds its group damaged."""
    table = make_table(tmp_path / "t", partition_by=None)
    before, files = content(table), data_files(tmp_path / "t")
    merged = compaction._merging

    def failing(*given: Any) -> Any:
        return Failing(merged(*given))

    monkeypatch.setattr(compaction, "_merging", failing)
    with pytest.raises(CorruptTable, match="task 1"):
        table.services.on(spark).compact(strategy, SMALL_LOGS)
    monkeypatch.undo()
    assert content(lakebed.open(tmp_path / "t")) == before
    table = lakebed.open(tmp_path / "t")
    assert len(table.services.pending_compactions()) == 1, "the plan stays, for another try"
    assert table.services.on(spark).compact(strategy, SMALL_LOGS)
    assert content(table) == before
    assert table.check() == []
    named = {name for file_slice in table.inspect.file_slices().to_pylist() for name in file_slice["logs"]}
    named |= {file_slice["base_file"] for file_slice in table.inspect.file_slices().to_pylist()}
    assert {name for name in data_files(tmp_path / "t") - files if not name.startswith(".hoodie")} <= named


class Failing:
    """The tasks of a compaction, of which one fails after its work is done."""

    def __init__(self, merging: Any) -> None:
        self.merging = merging
        self.reader = merging.reader

    def run(self, task: Any) -> Any:
        done = self.merging.run(task)
        if task.number == 1:
            raise CorruptTable("task 1 is broken", file="x")
        return done


class Dying:
    """Tasks whose first attempt dies after writing."""

    def __init__(self, work: Any, marker: Path) -> None:
        self.work, self.marker, self.reader = work, marker, work.reader

    def run(self, task: Any) -> Any:
        from pyspark import TaskContext

        done = self.work.run(task)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            with self.marker.open("a") as log:
                log.write("".join(f"{stat.path}\n" for stat in done))
            raise OSError("the executor is gone")
        return done


@pytest.mark.parametrize("service", ["full", "log", "cluster"])
def test_files_of_a_first_attempt_do_not_show(
    service: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.services import clustering

    settings: dict[str, Any] = {"partition_by": None}
    if service == "cluster":
        settings |= {"index": "simple", "num_buckets": None}
    table = make_table(tmp_path / "t", **settings)
    if service == "cluster":
        table.bulk_insert(rows(range(100, 130)), options=OFF)
    wanted = rows_of(table.scan(columns=SCHEMA.names).to_arrow(), SCHEMA.names)
    where, name = (clustering, "rewriting_of") if service == "cluster" else (compaction, "_merging")
    make = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *given: Dying(make(*given), tmp_path / "lost"))
    there = table.services.on(spark)
    (done,) = there.cluster() if service == "cluster" else there.compact(service, SMALL_LOGS)
    lost = [line for line in (tmp_path / "lost").read_text().splitlines() if line]
    assert lost
    assert all(not (tmp_path / "t" / path).exists() for path in lost), "deleted before the commit"
    assert done.is_completed
    fresh = lakebed.open(tmp_path / "t")
    assert rows_of(fresh.scan(columns=SCHEMA.names).to_arrow(), SCHEMA.names) == wanted
    assert fresh.check() == []


def test_where_services_run(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=None)
    assert table.services.on(SerialRunner()).compact()
    for wrong in (None, "spark", 3):
        with pytest.raises(InvalidRequest, match="a Spark session or a runner"):
            table.services.on(wrong)


def test_a_downgrade_compacts_on_spark(tmp_path: Path, spark: Any) -> None:
    table = make_table(tmp_path / "t")
    before = rows_of(table.scan(columns=SCHEMA.names).to_arrow(), SCHEMA.names)
    table.services.on(spark).downgrade(to=8)
    assert int(table.config.version) == 8
    assert len({file_slice["partition"] for file_slice in table.inspect.file_slices().to_pylist()}) == len(PARTS)
    assert rows_of(table.scan(columns=SCHEMA.names).to_arrow(), SCHEMA.names) == before


def test_no_two_attempts_share_a_token() -> None:
    from lakebed.write.task.marking_storage import attempt_token

    assert clustering_rewrite.attempt_token is attempt_token
    found = {attempt_token(3, 1) for _ in range(50)}
    assert len(found) == 50
    assert all(token.startswith("3-1-") for token in found)
