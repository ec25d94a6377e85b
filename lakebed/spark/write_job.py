"""The write pipeline on Spark, on one screen.

    df ──► route of each row (Arrow UDF over key and partition columns) ──► repartitionById: the one shuffle
       ──► mapInArrow: the same prepare, place and write_group as without Spark ──► stats, collected ──► commit in the driver

A row enters Python once and never goes back to the JVM. Rows of one file group meet in one task, so a task folds what
its batch repeats and writes one file per group. A retried or speculative task writes under a token of its own; files
that no collected stat names are deleted before the commit is published, and stay invisible if they come later.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows
from pyspark.sql.types import BinaryType, StructField, StructType

from lakebed.datafile.writers import WrittenFile
from lakebed.index.options import IndexKind, IndexOptions
from lakebed.merge.vectors import index_array
from lakebed.model.bucket_hash import bucket_ids, string_hashes
from lakebed.model.record_key import partition_path_array, record_key_array
from lakebed.model.schema import without_meta_fields
from lakebed.read.shape import table_shape
from lakebed.runner import SerialRunner
from lakebed.spark.types import arrow_schema
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.job import CommitResult, WriteRequest, begin, commit, replaced_groups, write_context
from lakebed.write.operation import Operation
from lakebed.write.operations import TableWriter
from lakebed.write.placing import Placing
from lakebed.write.prepare import Preparation, plan_preparation
from lakebed.write.scatter import Scatter
from lakebed.write.task import WriteContext, write_group

ROUTE = "_lakebed_route"
RESULT = StructType([StructField("files", BinaryType())])
DRIVER_ROWS = "lakebed.spark.driver.rows"
PARALLELISM = ("hoodie.upsert.shuffle.parallelism", "hoodie.bulkinsert.shuffle.parallelism", "lakebed.spark.tasks")
GROUPS_PER_TASK = 1_000_000
"""Sequence numbers hold a task number; each group of a Spark task gets one of its own."""


def write_frame(df: DataFrame, writer: TableWriter, operation: Operation, *, partial: bool = False) -> CommitResult:
    """Write a DataFrame as one commit: in the driver when it is small, as a Spark job otherwise."""
    limit = int(writer.properties.get(DRIVER_ROWS, "10000"))
    if limit > 0:
        head = df.limit(limit + 1).toArrow()
        if head.num_rows <= limit:
            return writer.write(head, operation, partial=partial)
    shape = table_shape(writer.client)
    incoming = arrow_schema(df.schema)
    plan = plan_preparation(
        writer.client.config,
        without_meta_fields(shape.schema),
        incoming,
        options=writer.properties,
        partial=partial,
    )
    request = writer.request(operation, shape, plan, partial=partial)
    return run_job(df, writer, request, plan)


def run_job(df: DataFrame, writer: TableWriter, request: WriteRequest, plan: Preparation) -> CommitResult:
    """The job of one write."""
    with begin(writer.client, writer.control, request) as txn:
        context = replace(write_context(txn, request), memory=request.memory)
        task = _WriteTask(context, request, plan, txn.snapshot)
        routed = _routed(df, plan, txn.snapshot, writer)
        rows = routed.mapInArrow(_runner_of(task), RESULT).collect()
        written: list[WrittenFile] = [file for row in rows for file in pickle.loads(row["files"])]
        touched = {file.stat.partition_path for file in written}
        return commit(txn, request, written, replaced_groups(txn.snapshot, request, touched))


# ---------------------------------------------------------------------- rows to tasks
def _routed(df: DataFrame, plan: Preparation, client: MetaClient, writer: TableWriter) -> DataFrame:
    """The rows, those of one file group in one partition of the frame."""
    columns = list(plan.generator.columns)
    tasks = _task_count(client, writer)
    if not columns:
        return df
    kind = IndexOptions.from_properties({**client.config.properties, **writer.properties}).kind
    route = _Route(plan, _bucket_settings(client, writer), tasks, kind.is_global)
    names = [F.col(f"`{name}`") for name in columns]
    function = F.arrow_udf(_route_function(route, columns), "int")
    return df.withColumn(ROUTE, function(*names)).repartitionById(tasks, F.col(ROUTE)).drop(ROUTE)


@dataclass(frozen=True, slots=True)
class _Buckets:
    """How keys are hashed to buckets; none means that all rows of a table partition go together."""

    count: int
    hash_fields: tuple[str, ...]
    key_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Route:
    plan: Preparation
    buckets: _Buckets | None
    tasks: int
    is_global: bool = False

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The task of every row: the same for all rows that may belong to one file group."""
        if self.is_global:
            return index_array(np.zeros(rows.num_rows, np.int64)).cast(pa.int32())
        paths = partition_path_array(self.plan.generator, rows)
        route = np.asarray(string_hashes(paths)).astype(np.int64)
        if self.buckets is not None:
            keys = record_key_array(self.plan.generator, rows)
            found = bucket_ids(keys, self.buckets.count, self.buckets.hash_fields, self.buckets.key_fields)
            route = route + np.asarray(found).astype(np.int64)
        return index_array(route % self.tasks).cast(pa.int32())


def _route_function(route: _Route, columns: Sequence[str]) -> Any:
    payload = pickle.dumps(route)

    def routes(*arrays: pa.Array) -> pa.Array:
        return pickle.loads(payload).of(pa.RecordBatch.from_arrays(list(arrays), names=list(columns)))

    routes.__annotations__ = {"arrays": pa.Array, "return": pa.Array}
    return routes


def _bucket_settings(client: MetaClient, writer: TableWriter) -> _Buckets | None:
    chosen = IndexOptions.from_properties({**client.config.properties, **writer.properties})
    if chosen.kind is not IndexKind.BUCKET or chosen.num_buckets is None:
        return None
    fields = client.config.key_fields
    return _Buckets(chosen.num_buckets, chosen.hash_fields or fields, fields)


def _task_count(client: MetaClient, writer: TableWriter) -> int:
    """As many tasks as file groups are likely to be touched, or as the options say."""
    for key in PARALLELISM:
        if key in writer.properties:
            return max(1, int(writer.properties[key]))
    buckets = _bucket_settings(client, writer)
    partitions = max(2, len(FileSystemView.of(client).partitions()))
    return min(200, partitions * (buckets.count if buckets else 1))


# ---------------------------------------------------------------------- what a task does
@dataclass(frozen=True, slots=True)
class _WriteTask:
    context: WriteContext
    request: WriteRequest
    plan: Preparation
    snapshot: MetaClient

    def run(self, batches: Iterator[pa.RecordBatch], number: int, token: str) -> list[WrittenFile]:
        """Prepare, place and write the rows of one task."""
        request = self.request
        placing = Placing(
            self.snapshot, request.operation, request.options, request.properties, SerialRunner(), request.shape
        )
        with Scatter(self.context.memory // 2) as scatter:
            placing.pile_up(scatter, self.plan.rows(batches, self.context.begin_time, number), ())
            written: list[WrittenFile] = []
            for index, placed in enumerate(placing.finish(scatter, self.snapshot)):
                group = number * GROUPS_PER_TASK + index
                written += write_group(self.context, placed.target, placed.incoming, group, token)
        return written


def _runner_of(task: _WriteTask) -> Any:
    payload = pickle.dumps(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        attempt = context.taskAttemptId() if context else secrets.randbelow(1 << 31)
        stage = context.stageId() if context else 0
        work: _WriteTask = pickle.loads(payload)
        files = work.run(batches, number, f"{number}-{stage}-{attempt}")
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(files)], pa.binary())], schema=arrow_schema(RESULT))

    return run
