"""The write side of `format("lakebed")`.

    tasks: rows as they come ──► an Arrow stream each ──► driver: all streams, one plain write, one commit, upkeep
                                 (in the message while small, else a file below .hoodie/.temp)

A Python sink cannot choose which rows come to which task, and rows of one file group must come to one. So tasks only
pass rows on, and the driver tags and writes them as it would without Spark, spilling to disk past its memory limit. For
large data use `t.upsert(df)`, which shuffles rows to their file groups and writes them in tasks. Only streams that a
message names are read, so the output of a failed or repeated attempt is ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakebed.services.after_write import after_write
from lakebed.spark.rows_to_driver import Carried, Carrier, new_folder, remove_folder, rows_of
from lakebed.spark.source_options import Settings
from lakebed.spark.types import arrow_schema, conform
from lakebed.write.operation import Operation


@dataclass(frozen=True, slots=True)
class RowsOfTask(WriterCommitMessage):
    """What a task reports to the driver."""

    carried: Carried


class LakebedWriter(DataSourceArrowWriter):
    """Carries rows to the driver and commits them there; pickled between Spark's planner, tasks and driver."""

    def __init__(self, settings: Settings, schema: StructType, operation: Operation) -> None:
        self._settings = settings
        self._schema = schema
        self._operation = operation
        self._folder = new_folder()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsOfTask:
        """Store the rows of a task for the driver."""
        schema = arrow_schema(self._schema)
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else uuid.uuid4()
        with Carrier(self._settings.storage, f"{self._folder}/{attempt}.arrow", schema) as carrier:
            for batch in iterator:
                carrier.add(conform(batch, schema))
            return RowsOfTask(carrier.done())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write all rows as one commit."""
        carried = [message.carried for message in messages if isinstance(message, RowsOfTask)]
        schema = arrow_schema(self._schema)
        storage = self._settings.storage
        try:
            client = self._settings.table(schema, self._operation)
            writer = self._settings.writer(client)
            rows = pa.RecordBatchReader.from_batches(schema, rows_of(storage, carried))
            if self._operation is Operation.DELETE:
                writer.delete_rows(rows)
            else:
                writer.write(rows, self._operation)
        finally:
            remove_folder(storage, self._folder)
        after_write(self._settings.services(writer.context), writer.context)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was written to the table; only the leftover streams are deleted."""
        remove_folder(self._settings.storage, self._folder)
