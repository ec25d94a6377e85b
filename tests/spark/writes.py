"""What the tests of writes on Spark share: tables of every kind, tasks that are lost, rows that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from tests.golden.rows import rows_of
from tests.spark.tables import SCHEMA, frame, rows

JOB = {"lakebed.spark.driver.rows": "0"}
"""Always a Spark job, however few the rows."""
SETTINGS: dict[str, Any] = {"record_key": "id", "partition_by": "part", "ordering": "version", "num_buckets": 2}
NO_META_FIELDS = {"hoodie.populate.meta.fields": "false"}
KINDS: dict[str, dict[str, Any]] = {
    "bucket": {},
    "v1 logs": {"log_format": "v1"},
    "cow bucket": {"table_type": "cow"},
    "cow simple": {"table_type": "cow", "index": "simple", "num_buckets": None},
    "consistent": {"index": "consistent_bucket"},
    "global": {"index": "global_simple", "num_buckets": None},
    "no meta fields": {"properties": NO_META_FIELDS},
    "no meta fields, simple": {"properties": NO_META_FIELDS, "index": "simple", "num_buckets": None},
}


def new_table(path: Path, **kwargs: Any) -> lakebed.Table:
    return lakebed.create(path, SCHEMA, **{**SETTINGS, **kwargs})


def content(table: lakebed.Table) -> list[list[Any]]:
    return rows_of(table.scan(columns=SCHEMA.names).to_arrow(), SCHEMA.names)


def assert_numbers_unique(table: lakebed.Table) -> None:
    found = table.scan(columns=["_hoodie_commit_seqno"]).to_arrow().column(0).to_pylist()
    assert len(set(found)) == len(found)


# ---------------------------------------------------------------------- rows that are refused
def with_nulls(df: Any, column: str) -> Any:
    """The rows with nulls in a column, in some of them."""
    from pyspark.sql import functions as F

    return df.withColumn(column, F.when(F.col("small") > 0, F.col(column)))


@contextmanager
def nothing_left_of_refused_rows(spark: Any, path: Path) -> Iterator[tuple[lakebed.Table, Any]]:
    """A table with base files and a frame for it; in the end the table holds what it held, in the files it had."""
    table = new_table(path)
    table.upsert(frame(spark, rows(range(5))), options=JOB)
    before = content(table)
    yield table, frame(spark, rows(range(5, 20)))
    assert content(table.refresh()) == before
    files = [file.name for file in path.rglob("*.parquet") if ".hoodie" not in file.parts]
    assert sorted(files) == sorted(table.inspect.file_slices().column("base_file").to_pylist())


def refuse_nulls_in_the_ordering(table: lakebed.Table, df: Any) -> None:
    with pytest.raises(lakebed.InvalidRequest, match="'version' is null"):
        table.upsert(with_nulls(df, "version"), options=JOB)


# ---------------------------------------------------------------------- tasks that are lost
def is_first_attempt() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() == 0


def failing_once(make: Any, lost: Path | None = None) -> Any:
    """Tasks that do all their work and then fail, the first time; the files they wrote are listed in `lost`."""

    def made(task: Any) -> Any:
        work = make(task)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from lakebed.spark.runner import outcome

            done = list(work(batches))
            if is_first_attempt():
                if lost is not None and done:
                    files = outcome(done[0].column(0)[0].as_py())
                    with lost.open("a") as log:
                        log.write("".join(f"{file.stat.path}\n" for file in files))
                raise OSError("the executor is gone")
            yield from done

        return run

    return made
