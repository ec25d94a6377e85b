"""Writes whose rows go from task to task by files: the same table, and nothing left of what went wrong."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.index.options import IndexOptions
from lakebed.spark import file_shuffle
from tests.spark.tables import assert_same, frame, rows
from tests.spark.writes import (
    JOB,
    KINDS,
    assert_numbers_unique,
    content,
    failing_once,
    is_first_attempt,
    new_table,
    nothing_left_of_refused_rows,
    refuse_nulls_in_the_ordering,
)


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Frames of any size go by files; the list grows by one each time."""
    monkeypatch.setattr(file_shuffle, "LEAST_BYTES", 0)
    went: list[int] = []
    write = file_shuffle.write_by_files

    def counted(df: Any, *args: Any) -> Any:
        went.append(1)
        return write(df, *args)

    monkeypatch.setattr("lakebed.spark.write_job.write_by_files", counted)
    return went


def left_behind(table: Path) -> list[Path]:
    return list((table / ".hoodie" / ".temp").rglob("*.arrow"))


@pytest.mark.parametrize("kind", ["bucket", "v1 logs", "cow bucket", "no meta fields"])
def test_the_same_table_as_without_spark(kind: str, tmp_path: Path, spark: Any, every_size: list[int]) -> None:
    plain, by_spark = (new_table(tmp_path / name, **KINDS[kind]) for name in ("plain", "spa rk%20"))
    twice = pa.concat_tables([rows(range(20, 40), 1), rows(range(30, 70), 3), rows(range(30, 50), 2)])
    plain.bulk_insert(rows(range(60), 2))
    by_spark.bulk_insert(frame(spark, rows(range(60), 2)).repartition(3), options=JOB)
    plain.upsert(twice)
    result = by_spark.upsert(frame(spark, twice).repartition(3), options=JOB)
    assert len(every_size) == 2
    assert content(by_spark) == content(plain)
    assert len(content(by_spark)) == 70
    assert len(result.files) == len(set(result.files))
    if kind != "no meta fields":
        assert_numbers_unique(by_spark)
    assert by_spark.check() == []
    assert_same(spark, by_spark.scan())
    by_spark.overwrite(frame(spark, rows(range(5), 9)), options=JOB)
    assert by_spark.scan().count() == 5
    assert not left_behind(tmp_path / "spa rk%20")


def test_keys_of_any_look(tmp_path: Path, spark: Any) -> None:
    """No expression of Spark's places rows here."""
    data = rows(range(40)).set_column(0, "id", pa.array([f"id:{n},x:{n % 7}" for n in range(40)]))
    table = new_table(tmp_path / "t", num_buckets=5)
    table.bulk_insert(frame(spark, data), options=JOB)
    table.upsert(frame(spark, data), options=JOB)
    assert table.scan().count() == 40


def test_what_goes_by_the_shuffle(tmp_path: Path, spark: Any, every_size: list[int]) -> None:
    for name in ("cow simple", "consistent"):
        new_table(tmp_path / name, **KINDS[name]).bulk_insert(frame(spark, rows(range(9))), options=JOB)
    assert not every_size
    client = new_table(tmp_path / "t")._client
    index = IndexOptions.from_properties(client.config.properties)
    assert file_shuffle.can_shuffle_by_files(client, index, 1.0)
    assert not file_shuffle.can_shuffle_by_files(client, index, None), "Spark does not know how much comes"
    assert not file_shuffle.can_shuffle_by_files(client, index, float(file_shuffle.MOST_BYTES + 1))


def test_wrong_rows_leave_no_trace(tmp_path: Path, spark: Any, every_size: list[int]) -> None:
    with nothing_left_of_refused_rows(spark, tmp_path / "t") as (table, bad):
        refuse_nulls_in_the_ordering(table, bad)
        assert len(every_size) == 2
    assert not left_behind(tmp_path / "t")


def test_lost_attempts_count_for_nothing(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task of both halves fails the first time, when all its work is done."""
    table = new_table(tmp_path / "t", partition_by=None)
    table.bulk_insert(rows(range(30)))
    monkeypatch.setattr(file_shuffle, "_in_task", failing_once(file_shuffle._in_task))
    monkeypatch.setattr(file_shuffle, "_WriteGroup", pickle.loads(pickle.dumps(FailingGroup)))
    result = table.upsert(frame(spark, rows(range(20, 50), 2)).repartition(2), options=JOB)
    assert table.scan().count() == 50
    assert_numbers_unique(table)
    there = {path.name for path in (tmp_path / "t").iterdir() if path.suffix == ".parquet"}
    named = {Path(path).name for path in result.files}
    assert named <= there
    assert len(there) == 2 + len(named), "two base files, and only those logs that the commit names"
    assert not left_behind(tmp_path / "t")


class FailingGroup(file_shuffle._WriteGroup):
    def run(self) -> Any:
        done = file_shuffle._WriteGroup.run(self)
        if is_first_attempt():
            raise OSError("the executor is gone")
        return done
