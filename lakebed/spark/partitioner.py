"""Which task every row of a write goes to: rows that may belong to one file group go to one task.

| index | rows that go together |
|---|---|
| bucket | those of one bucket of a partition: a hash of the key, no look-up |
| no look-up: bulk insert, overwrite | those of one key; tasks make file groups of their own and fill no small files |
| any other, within partitions | those of a partition: the task looks the keys up |
| global | all of them |
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows

from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest, LakebedError
from lakebed.index.options import IndexOptions
from lakebed.merge.arrow_numpy import Ints, index_array, numbers
from lakebed.model.bucket_hash import bucket_ids, string_hashes
from lakebed.model.record_key import partition_path_array, record_key_array
from lakebed.model.schema_evolution import resolve
from lakebed.spark.driver_write import plan_text
from lakebed.spark.task_expression import task_expression
from lakebed.spark.udf import over_columns
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.job import WriteRequest
from lakebed.write.operation import Operation
from lakebed.write.rows.prepare import Preparation

TASK = "_lakebed_task"
TASKS = ("lakebed.spark.tasks", "hoodie.bulkinsert.shuffle.parallelism", "hoodie.upsert.shuffle.parallelism")
MOST_TASKS = 2000
GUESSED_PARTITIONS = 4
_SPREADING = (Operation.BULK_INSERT, Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE)


@dataclass(frozen=True, slots=True)
class TaggedRows:
    """Rows in the partitions of their tasks, the options that tasks must write with, and the check of each task."""

    rows: DataFrame
    options: WriteOptions
    check: TaskOfRow | None = None


def repartition_rows(
    df: DataFrame,
    plan: Preparation,
    client: MetaClient,
    request: WriteRequest,
    partitions: Sequence[str],
    *,
    natively: bool = True,
) -> TaggedRows:
    """The frame, every row in the task that writes it; `partitions` are those that the table has already.

    `natively` lets Spark compute the task of a row where it can; those tasks must check the rows that they receive.
    """
    index = request.index_options
    spreads = not index.is_hashed and request.operation in _SPREADING
    columns = pa.schema([plan.incoming.field(name).with_nullable(True) for name in plan.generator.columns])
    stays = not columns.names or (spreads and plan.generator.is_keyless)
    options = replace(request.options, small_file_limit=0) if spreads or stays else request.options
    if stays:
        return TaggedRows(df, options)
    buckets = _buckets(index, client)
    partitions = [path for path in partitions if path] if client.config.partition_fields else []
    tasks = 1 if index.is_global and not spreads else _task_count(df, client, request, buckets, len(partitions))
    by = TaskOfRow(plan, buckets, tasks, by_key=spreads, partitions=tuple(partitions))
    native = None
    if natively and buckets is not None and tasks > 1:
        native = task_expression(df, plan, buckets.count, buckets.hash_fields, tasks, by.known)
    number = over_columns(by, columns, "int") if native is None else native
    tagged = df.withColumn(TASK, number).repartitionById(tasks, F.col(TASK)).drop(TASK)
    return TaggedRows(tagged, options, None if native is None else by)


@dataclass(frozen=True, slots=True)
class Buckets:
    """How keys are hashed to buckets."""

    count: int
    hash_fields: tuple[str, ...]
    key_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskOfRow:
    """The number of each row's task, from the columns that keys and partitions are made of.

    Known partitions are numbered, so that no task gets two file groups while there are enough tasks; new partitions are
    assigned by their hash.
    """

    plan: Preparation
    buckets: Buckets | None
    tasks: int
    by_key: bool = False
    partitions: tuple[str, ...] = ()

    @property
    def known(self) -> dict[str, int]:
        return {path: number for number, path in enumerate(self.partitions)}

    def of_bucket(self, partition_path: str, bucket: int) -> int:
        """The task of a bucket's rows."""
        count = self.buckets.count if self.buckets is not None else 1
        number = self._of_partitions(pa.array([partition_path], pa.string()))
        return int((number[0] * count + bucket) % self.tasks)

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        if self.tasks == 1:
            return index_array(np.zeros(rows.num_rows, np.int64)).cast(pa.int32())
        try:
            return index_array(self._numbers(rows) % self.tasks).cast(pa.int32())
        except LakebedError:  # a row without a key: the task that prepares it raises the error, which names the column
            return index_array(np.zeros(rows.num_rows, np.int64)).cast(pa.int32())

    def _numbers(self, rows: pa.RecordBatch) -> Ints:
        wanted = pa.schema([self.plan.columns.field(name).with_nullable(True) for name in rows.schema.names])
        rows = resolve(rows.schema, wanted, exact=self.plan.exact)(rows)
        number = self._of_partitions(partition_path_array(self.plan.generator, rows))
        if self.buckets is not None or self.by_key:
            keys = record_key_array(self.plan.generator, rows)
            count = self.buckets.count if self.buckets is not None else 1
            number = number * count + np.asarray(self._of_keys(keys)).astype(np.int64)
        return number

    def _of_partitions(self, paths: pa.Array) -> Ints:
        coded = paths.dictionary_encode()
        known = self.known
        hashes = np.asarray(string_hashes(coded.dictionary)).astype(np.int64).tolist()
        texts = coded.dictionary.to_pylist()
        of_path = [known.get(path, at & 0x7FFFFFFF) for path, at in zip(texts, hashes, strict=True)]
        found: Ints = np.asarray(of_path, dtype=np.int64)[numbers(coded.indices.cast(pa.int64()), np.int64)]
        return found

    def _of_keys(self, keys: pa.Array) -> object:
        if self.buckets is None:
            return string_hashes(keys)
        return bucket_ids(keys, self.buckets.count, self.buckets.hash_fields, self.buckets.key_fields)


def _buckets(index: IndexOptions, client: MetaClient) -> Buckets | None:
    """The buckets of a simple bucket index; consistent hashing has other buckets in each partition: None."""
    if not index.is_simple_bucket or index.num_buckets is None:
        return None
    fields = client.config.key_fields
    return Buckets(index.num_buckets, index.hash_fields or fields, fields)


def _task_count(
    df: DataFrame, client: MetaClient, request: WriteRequest, buckets: Buckets | None, partitions: int
) -> int:
    """The number that an option sets, else the number of file groups likely touched, or a few tasks per core."""
    for key in TASKS:
        text = request.properties.get(key)
        if text is not None:
            if not text.isdecimal() or not int(text):
                raise InvalidRequest(f"{key} is a number of tasks, not {text!r}")
            return int(text)
    per_partition = buckets.count if buckets else 1
    if not client.config.partition_fields and (buckets or request.operation not in _SPREADING):
        return min(MOST_TASKS, per_partition)
    if not partitions:  # new ones are assigned by hash: with tasks to spare, few of them share a task
        partitions = GUESSED_PARTITIONS if buckets else 1
    return min(MOST_TASKS, max(partitions * per_partition, 2 * cores(df.sparkSession)))


_CORES: weakref.WeakKeyDictionary[SparkSession, int] = weakref.WeakKeyDictionary()


def cores(spark: SparkSession) -> int:
    """How many tasks run at once: the number of partitions that Spark gives a range."""
    if spark not in _CORES:
        found = re.search(r"splits=(?:Some\()?(\d+)", plan_text(spark.range(1 << 20)))
        _CORES[spark] = int(found.group(1)) if found else 8
    return _CORES[spark]
