"""Moves rows from tasks that read to tasks that write through files beside the table, instead of Spark's shuffle.

    df ──► mapInArrow: prepare, split by bucket ──► one file of Arrow messages per task, and their offsets
       ──► a task per file group: its messages of every file ──► write_group ──► stats, collected ──► commit

Spark's shuffle moves rows one by one: out of columns, into bytes, out of bytes, into columns again, which is most of
what a write of a gigabyte costs. Here rows leave the JVM once, as columns, and stay columns. This needs a bucket index
(tasks compute the file group of a row without a look-up); a file system that all tasks see under one path, which holds
for any table at a `file://` path; and a size estimate of Spark's that is worth a second job and not too large, since
every task opens every file. All other writes use Spark's shuffle. Only files that a collected task result names are
read, so the output of a failed or repeated attempt is ignored.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from lakebed.datafile.writers import WrittenFile
from lakebed.index.options import IndexOptions
from lakebed.merge.spill import sliced
from lakebed.model.concat import ColumnBytes, concat_batches
from lakebed.model.files import FileGroupId
from lakebed.runner import SerialRunner
from lakebed.spark.listing import KnownFiles
from lakebed.spark.rows_to_driver import new_folder
from lakebed.spark.runner import RESULT, SparkRunner, captured, outcome
from lakebed.spark.types import arrow_schema, by_name, by_number
from lakebed.storage.storage import location_of
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.job import WriteRequest, refuse_pending_clustering, tagging_of
from lakebed.write.rows.prepare import BATCH_ROWS, Preparation
from lakebed.write.task.marking_storage import attempt_token
from lakebed.write.task.write_task import GroupTarget, Incoming, WriteContext, write_group

LEAST_BYTES, MOST_BYTES = 64 << 20, 4 << 30
"""Frames that Spark expects to be smaller or larger use its shuffle."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one file group in the file of one task: a message per batch."""

    path: str
    messages: tuple[tuple[int, int], ...]
    """Offset and length of each."""

    @property
    def nbytes(self) -> int:
        return sum(length for _, length in self.messages)

    def batches(self, rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self.path) as file:
            for offset, length in self.messages:
                file.seek(offset)
                yield from sliced(pa.ipc.read_record_batch(file.read_buffer(length), schema), rows)


def can_shuffle_by_files(client: MetaClient, index_options: IndexOptions, size: float | None) -> bool:
    """Whether a write of about so many bytes can be shuffled by files."""
    fits = size is not None and LEAST_BYTES <= size <= MOST_BYTES
    return index_options.is_simple_bucket and fits and client.storage.is_local


def write_by_files(
    df: DataFrame,
    plan: Preparation,
    context: WriteContext,
    request: WriteRequest,
    snapshot: MetaClient,
    files: KnownFiles | None,
) -> list[WrittenFile]:
    """Write the rows of a frame: what the tasks wrote, for the commit."""
    tagging = tagging_of(snapshot, request, SerialRunner(), files)
    folder = f"{unquote(location_of(snapshot.storage))}/{new_folder()}"
    split = _SplitByGroup(plan, request, snapshot, files, context.requested_time, folder)
    try:
        rows = by_number(df).mapInArrow(_in_task(split), RESULT).collect()
        answers = sorted(((row["number"], bytes(row["result"])) for row in rows), key=lambda answer: answer[0])
        segments: dict[FileGroupId, list[Segment]] = {}
        for _, answer in answers:
            for group, segment in outcome(answer).items():
                segments.setdefault(group, []).append(segment)
        refuse_pending_clustering(snapshot, segments)
        targets = tagging.targets(segments, snapshot)
        tasks = [
            _WriteGroup(context, target, plan.schema, tuple(segments[group]), number)
            for number, (group, target) in enumerate(targets.items())
        ]
        runner = SparkRunner(df.sparkSession)
        return [file for written in runner.map(_WriteGroup.run, tasks, label="write") for file in written]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _SplitByGroup:
    """The first half of a write: rows in, messages by file group out."""

    plan: Preparation
    request: WriteRequest
    snapshot: MetaClient
    files: KnownFiles | None
    requested_time: str
    folder: str

    def run(self, batches: Iterator[pa.RecordBatch], number: int, attempt: int) -> dict[FileGroupId, Segment]:
        tagging = tagging_of(self.snapshot, self.request, SerialRunner(), self.files)
        arrived = by_name(_larger(batches), self.plan.incoming)
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        path = f"{self.folder}/{number}-{attempt}.arrow"
        found: dict[FileGroupId, list[tuple[int, int]]] = {}
        with pa.OSFile(path, "wb") as out:
            for group, rows in tagging.by_bucket(self.plan.rows(arrived, self.requested_time, number)):
                message = rows.serialize()
                found.setdefault(group, []).append((out.tell(), message.size))
                out.write(message)
        return {group: Segment(path, tuple(messages)) for group, messages in found.items()}


@dataclass(frozen=True, slots=True)
class _WriteGroup:
    """The second half: one file group."""

    context: WriteContext
    target: GroupTarget
    schema: pa.Schema
    segments: tuple[Segment, ...]
    number: int

    def run(self) -> list[WrittenFile]:
        rows = Incoming(self._rows, rows_bytes=sum(segment.nbytes for segment in self.segments))
        return write_group(self.context, self.target, rows, self.number, attempt_token(self.number))

    def _rows(self, rows: int) -> Iterator[pa.RecordBatch]:
        for segment in self.segments:
            yield from segment.batches(rows, self.schema)


def _in_task(task: _SplitByGroup) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    payload = pickle.dumps(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        work: _SplitByGroup = pickle.loads(payload)
        answer = captured(lambda: work.run(batches, number, attempt))
        yield pa.RecordBatch.from_arrays(
            [pa.array([number], pa.int64()), pa.array([answer], pa.binary())], schema=arrow_schema(RESULT)
        )

    return run


def _larger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark's batches, several combined into one: small batches cost more per batch than for their rows."""
    held: list[pa.RecordBatch] = []
    columns = ColumnBytes()
    count = 0
    for batch in batches:
        nbytes = batch.nbytes
        if held and (count >= BATCH_ROWS or not columns.has_room(batch, nbytes)):
            yield concat_batches(held)
            held, count = [], 0
            columns.clear()
        held.append(batch)
        columns.add(batch, nbytes)
        count += batch.num_rows
    if held:
        yield concat_batches(held)
