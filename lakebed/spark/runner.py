"""The `Runner` of Spark: maps a function over tasks on executors.

Function and tasks travel as pickles, each task in a partition of its own, and the results are collected in order.
An error about a table or a request would repeat at every attempt, so it comes back as a value and is raised unchanged
in the driver; an unavailable store raises in the task, and Spark retries it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from lakebed.errors import LakebedError, StorageUnavailable
from lakebed.runner import Progress
from lakebed.spark.types import arrow_schema

MOST_PARTITIONS = 2048
_T = TypeVar("_T")
_R = TypeVar("_R")
RESULT = StructType([StructField("number", LongType()), StructField("result", BinaryType())])
_TASK = StructType([StructField("number", LongType()), StructField("task", BinaryType())])


@dataclass(frozen=True, slots=True)
class SparkRunner:
    """Runs picklable functions over picklable tasks as one Spark job per `map`."""

    spark: SparkSession
    progress: Progress | None = None

    shares_memory: ClassVar[bool] = False
    threads: ClassVar[int | None] = None
    at_once: ClassVar[int] = 1

    def limited_to(self, threads: int) -> SparkRunner:
        return self

    def map(self, fn: Callable[[_T], _R], tasks: Iterable[_T], *, label: str) -> Iterator[_R]:
        listed = list(tasks)
        if not listed:
            return
        rows = task_frame(self.spark, listed).mapInArrow(_applied(fn), RESULT).collect()
        ordered = sorted(rows, key=lambda row: row["number"])
        for done, row in enumerate(ordered, 1):
            result = outcome(bytes(row["result"]))
            if self.progress is not None:
                self.progress.advance(label, done, len(listed))
            yield result


def task_frame(spark: SparkSession, tasks: Sequence[Any]) -> DataFrame:
    """A row per task, each in a partition of its own while there are not too many."""
    numbers, pickled = pa.array(range(len(tasks)), pa.int64()), [pickle.dumps(task) for task in tasks]
    rows = pa.table([numbers, pa.array(pickled, pa.binary())], schema=arrow_schema(_TASK))
    partitions = min(max(1, len(tasks)), MOST_PARTITIONS)
    return spark.createDataFrame(rows, _TASK).repartitionById(partitions, (F.col("number") % partitions).cast("int"))


def captured(work: Callable[[], Any]) -> bytes:
    """What the work returned, or its error where another attempt would fail in the same way."""
    try:
        return pickle.dumps((True, work()))
    except StorageUnavailable:
        raise
    except LakebedError as error:
        return pickle.dumps((False, error))


def outcome(data: bytes) -> Any:
    """The value of `captured`, or its error raised."""
    done, value = pickle.loads(data)
    if done:
        return value
    raise value


def _applied(fn: Callable[[Any], Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    payload = pickle.dumps(fn)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = pickle.loads(payload)
        for batch in batches:
            numbers = batch.column("number").to_pylist()
            for number, raw in zip(numbers, batch.column("task").to_pylist(), strict=True):
                result = captured(partial(function, pickle.loads(raw)))
                arrays = [pa.array([number], pa.int64()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(RESULT))

    return run
