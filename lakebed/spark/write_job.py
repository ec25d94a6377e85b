"""The write pipeline on Spark.

    df ──► task of each row (an expression, or an Arrow UDF over key and partition columns) ──► the one shuffle
       ──► mapInArrow: the same prepare, tagging and write_group as without Spark ──► stats, collected ──► commit

Where it is cheaper, rows pass from task to task by files instead (`file_shuffle`). A row enters Python once and never
goes back to the JVM. Rows of one file group come to one task, so a task merges rows with equal keys and writes one file
per group.
A retried or speculative task writes under a token of its own; files that no collected stat names are deleted before the
commit is published, and are invisible to readers if they appear later.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from lakebed.config.write_options import Duplicates
from lakebed.datafile.writers import WrittenFile
from lakebed.errors import InvalidRequest
from lakebed.index.bucket import bucket_of_file_id
from lakebed.model.files import FileGroupId
from lakebed.read.reader_context import keyed_reader_context
from lakebed.runner import SerialRunner
from lakebed.spark.driver_write import expected_bytes, plan_text, rows_if_few
from lakebed.spark.file_shuffle import can_shuffle_by_files, write_by_files
from lakebed.spark.listing import KnownFiles, known_files
from lakebed.spark.partitioner import TaskOfRow, repartition_rows
from lakebed.spark.rows_to_driver import carried_rows
from lakebed.spark.runner import captured, outcome
from lakebed.spark.task_expression import MisplacedRows
from lakebed.spark.types import arrow_schema, by_name, by_number
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.job import (
    CommitResult,
    WriteRequest,
    begin,
    commit,
    refuse_pending_clustering,
    replaced_groups,
    tagging_of,
    write_context,
)
from lakebed.write.merge_into.builder import MergeBuilder, run_merge
from lakebed.write.operation import Operation
from lakebed.write.rows.group_buffers import GroupBuffers
from lakebed.write.rows.prepare import Preparation
from lakebed.write.table_writer import TableWriter
from lakebed.write.tagging.duplicates import duplicate_policy, known_keys_of, new_rows
from lakebed.write.task.parallelism import Parallelism
from lakebed.write.task.write_task import WriteContext, write_group

RESULT = StructType([StructField("files", BinaryType())])
DRIVER_ROWS = "lakebed.spark.driver.rows"
GROUPS_PER_TASK = 1_000_000
"""Sequence numbers hold a task number; each group of a Spark task gets one of its own."""


def write_frame(df: DataFrame, writer: TableWriter, operation: Operation) -> CommitResult:
    """Write a DataFrame as one commit: in the driver when it is small, as a Spark job otherwise."""
    if operation is Operation.UPSERT and not writer.client.config.key_fields:
        raise InvalidRequest("the table has no record key, so nothing can be updated", hint="Use insert.")
    incoming = arrow_schema(df.schema)
    reader_context = keyed_reader_context(writer.client)
    plan = writer.plan(reader_context, incoming)  # errors in the columns are raised before Spark does anything
    costs = plan_text(df, "COST")
    few = rows_if_few(df, incoming, _driver_rows(writer), costs)
    if few is not None:
        return writer.write(few, operation)
    request, parallelism = (
        writer.request(operation, reader_context, plan),
        Parallelism(SerialRunner()),
    )  # a Spark task has one core
    with begin(writer.client, writer.context.txn_context, request) as txn:
        files = known_files(txn.snapshot)
        partitions = (files or txn.view).partitions()
        looks = duplicate_policy(operation, request.options, plan.generator) is not Duplicates.NONE
        by_files = not looks and can_shuffle_by_files(txn.snapshot, request.index_options, expected_bytes(costs))

        def run(*, natively: bool) -> list[WrittenFile]:
            tagged = repartition_rows(df, plan, txn.snapshot, request, partitions, natively=natively)
            own = replace(request, options=tagged.options)
            task = WriteTask(write_context(txn, own, parallelism), own, plan, txn.snapshot, files, tagged.check)
            rows = written_by(tagged.rows, task).collect()
            return [file for row in rows for file in outcome(bytes(row["files"]))]

        if by_files:
            written = write_by_files(df, plan, write_context(txn, request, parallelism), request, txn.snapshot, files)
        else:
            try:
                written = run(natively=True)
            except MisplacedRows:  # no stat names the files of those tasks, so they are deleted before the commit
                written = run(natively=False)
        touched = {file.stat.partition_path for file in written}
        return commit(txn, request, written, replaced_groups(txn.view, request, touched))


def merge_frame(writer: TableWriter, merge: MergeBuilder) -> CommitResult:
    """A MERGE whose source is a DataFrame: its rows are joined with the table's in the driver."""
    with carried_rows(merge.source, writer.client.storage) as rows:
        return run_merge(writer, replace(merge, source=rows))


def written_by(rows: DataFrame, task: WriteTask) -> DataFrame:
    """What the tasks of a write report."""
    return by_number(rows).mapInArrow(_in_task(task), RESULT)


def _driver_rows(writer: TableWriter) -> int | None:
    """Up to how many rows the driver writes itself; None is no limit, for a table in this process's memory."""
    if not writer.client.storage.is_shared:
        return None
    text = writer.context.properties.get(DRIVER_ROWS, "10000")
    if not text.isdecimal():
        raise InvalidRequest(f"{DRIVER_ROWS} is a number of rows, not {text!r}", hint="0 always runs a Spark job.")
    return int(text)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The work of one task of a write, with all that it needs."""

    context: WriteContext
    request: WriteRequest
    plan: Preparation
    snapshot: MetaClient
    files: KnownFiles | None = None
    task_of_row: TaskOfRow | None = None
    """The task of each bucket, to check rows against where a Spark expression computed their task; else None."""

    def run(self, batches: Iterator[pa.RecordBatch], number: int, token: str) -> list[WrittenFile]:
        """Prepare, tag and write the rows of one task."""
        tagging = tagging_of(self.snapshot, self.request, SerialRunner(), self.files)
        rows = self._new(self.plan.rows(by_name(batches, self.plan.incoming), self.context.requested_time, number))
        written: list[WrittenFile] = []
        with GroupBuffers(self.context.memory.buffers) as group_buffers:
            tagging.buffer_rows(group_buffers, rows, ())
            found = tagging.finish(group_buffers, self.snapshot)
            groups = [tagged.target.file_group for tagged in found]
            self._check_tasks(groups, number)
            refuse_pending_clustering(self.snapshot, groups)
            for index, tagged in enumerate(found):
                group = number * GROUPS_PER_TASK + index
                written += write_group(self.context, tagged.target, tagged.incoming, group, token)
        return written

    def _new(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that the write keeps, by the policy for keys that the table already has."""
        policy = duplicate_policy(self.request.operation, self.request.options, self.plan.generator)
        if policy is Duplicates.NONE:
            return rows
        is_global = self.request.index_options.is_global
        known = known_keys_of(self.snapshot, self.context.merge_memory, SerialRunner(), is_global=is_global)
        return new_rows(rows, known, policy)

    def _check_tasks(self, groups: list[FileGroupId], number: int) -> None:
        """Two tasks must never write one bucket: only one of their files would be read."""
        if self.task_of_row is None:
            return
        for group in groups:
            bucket = bucket_of_file_id(group.file_id)
            if bucket is None or self.task_of_row.of_bucket(group.partition_path, bucket) != number:
                raise MisplacedRows(f"rows of {group} came to task {number}")


def _in_task(task: WriteTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    payload = pickle.dumps(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        attempt = context.taskAttemptId() if context else secrets.randbelow(1 << 31)
        stage = context.stageId() if context else 0
        work: WriteTask = pickle.loads(payload)
        files = captured(lambda: work.run(_rest(first, batches), number, f"{number}-{stage}-{attempt}"))
        yield pa.RecordBatch.from_arrays([pa.array([files], pa.binary())], schema=arrow_schema(RESULT))

    return run


def _rest(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from batches
