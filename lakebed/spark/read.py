"""Reading on Spark: rows stay in the JVM wherever Spark's own Parquet reader can give the answer.

    plan ──► a route per slice ──► files without dead rows      spark.read.parquet over the exact list
            (spark/routes)         files with dead rows         the same, joined with their merge vectors
                                   logs of format v1            their live rows, through mapInArrow
                                   everything else              merged rows, through mapInArrow

A merge vector is one bit per row, made from key and ordering columns alone (`spark/dead_row_filter` drops the dead
rows). `explain(spark=...)` shows the route of each slice and the reason.
"""

from __future__ import annotations

import pickle
import re
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows

from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReadSplit
from lakebed.model.schema import COMMIT_TIME
from lakebed.read.cached_merge import rows_by_vectors
from lakebed.read.merge_vector_cache import FileVector, SliceVectors
from lakebed.read.plan import Plan
from lakebed.spark.dead_row_filter import live_rows
from lakebed.spark.expressions import where
from lakebed.spark.files import case_sensitive, spark_location, why_unreadable
from lakebed.spark.routes import SparkRoutes, routes
from lakebed.spark.runner import task_frame
from lakebed.spark.types import arrow_schema, conform, spark_schema
from lakebed.spark.udf import column_of, quoted
from lakebed.spark.vectors import find_vectors

MOST_VECTOR_BYTES = 128 << 20
"""Limit of the vectors that a query broadcasts: enough for a thousand million rows in files with dead rows."""
LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
MOST_FRAMES = 16
_FRAMES: weakref.WeakKeyDictionary[SparkSession, dict[object, DataFrame]] = weakref.WeakKeyDictionary()
_GLOB = re.compile(r"([{}\[\]*?\\,])")


def to_df(spark: SparkSession, plan: Plan) -> DataFrame:
    """The rows of a plan as a DataFrame."""
    if not plan.reader.storage.is_shared:
        return _rows_of_this_process(spark, plan)
    chosen = choose_routes(spark, plan)
    found = find_vectors(spark, plan, chosen)
    native, winners, too_large = _within_budget(found.vectors)
    through_python: list[_Task] = [
        *(_Task(split) for split, _ in chosen.python),
        *(_Task(split) for split in (*found.misfits, *too_large)),
        *winners,
    ]
    parts: list[DataFrame] = []
    if native:
        parts.append(_native_rows(spark, plan, native))
    if through_python or not parts:
        parts.append(_python_rows(spark, plan, through_python))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole


def choose_routes(spark: SparkSession, plan: Plan) -> SparkRoutes:
    """The route of every slice in this session."""
    files = [file.path for split in plan.splits[:1] for file in split.slice.files]
    unreadable = why_unreadable(spark, plan.reader.storage.url, files[0]) if files else None
    return routes(plan, unreadable, case_sensitive=case_sensitive(spark))


def explain_routes(plan: Plan, spark: SparkSession | None = None) -> list[str]:
    """The routes in words; without a session, those of one that can open the table's files."""
    chosen = routes(plan) if spark is None else choose_routes(spark, plan)
    return [f"on Spark: {line}" for line in chosen.lines()]


def _within_budget(
    vectors: dict[ReadSplit, SliceVectors],
) -> tuple[list[FileVector], list[_Task], list[ReadSplit]]:
    """Files for Spark's reader, logs whose live rows come through Python, and slices with too much to broadcast."""
    native: list[FileVector] = []
    winners: list[_Task] = []
    too_large: list[ReadSplit] = []
    held = 0
    for split, found in vectors.items():
        size = sum(vector.words.nbytes for vector in found.files if vector.dead)
        if held + size > MOST_VECTOR_BYTES:
            too_large.append(split)
            continue
        held += size
        native += found.files
        if found.has_winners:
            winners.append(_Task(split, found.logs))
    return native, winners, too_large


# ---------------------------------------------------------------------- rows that never leave the JVM
def _native_rows(spark: SparkSession, plan: Plan, vectors: Sequence[FileVector]) -> DataFrame:
    clean = [vector for vector in vectors if not vector.dead]
    dirty = [vector for vector in vectors if 0 < vector.dead < vector.rows]
    if dirty:  # one scan for both when vectors are joined anyway: planning each further scan takes Spark long
        dirty += [vector for vector in clean if vector.rows]
        clean = [vector for vector in clean if not vector.rows]
    parts = [_select(_frame(spark, plan, files), plan) for files in (clean, dirty) if files]
    if not parts:
        return spark.createDataFrame([], spark_schema(plan.schema))
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def _frame(spark: SparkSession, plan: Plan, vectors: Sequence[FileVector]) -> DataFrame:
    """All columns of files, without dead rows. Files never change, so frames are cached per session.

    Half of the time of a short query goes into sending Spark the same list of files and the same vectors again.
    """
    settings = (plan.reader.storage.url, str(plan.reader.reader_context.schema), case_sensitive(spark))
    key = (*settings, *((vector.path, hash(vector.words.tobytes())) for vector in vectors))
    kept = _FRAMES.setdefault(spark, {})
    frame = kept.get(key)
    if frame is None:
        frame = _read_files(spark, plan, [vector.path for vector in vectors])
        if any(vector.dead for vector in vectors):
            frame = live_rows(spark, frame, vectors)
        while len(kept) >= MOST_FRAMES:
            del kept[next(iter(kept))]
        kept[key] = frame
    return frame


def forget_frames() -> None:
    """Drop the cached frames, so that a benchmark measures the next read without them."""
    _FRAMES.clear()


def _read_files(spark: SparkSession, plan: Plan, paths: Sequence[str]) -> DataFrame:
    """The files by Spark's reader, with every column of the table; exactly these files, without listing folders.

    Session settings that would hide a lost file or shift old dates must not change the answer.
    """
    base = spark_location(spark, plan.reader.storage.url)
    urls = [_GLOB.sub(r"\\\1", f"{base}/{path}") for path in paths]
    reader = spark.read.schema(spark_schema(plan.reader.reader_context.schema)).options(
        ignoreMissingFiles=False, ignoreCorruptFiles=False, mergeSchema=False, datetimeRebaseMode="CORRECTED"
    )
    before = spark.conf.get(LISTING_THRESHOLD) or "32"
    spark.conf.set(LISTING_THRESHOLD, str(max(int(before), len(paths) + 1)))
    try:
        files = reader.parquet(*urls)
        files.schema  # noqa: B018 - a Connect client plans on demand: now, while the threshold is raised
        return files
    finally:
        spark.conf.set(LISTING_THRESHOLD, before)


def _select(files: DataFrame, plan: Plan) -> DataFrame:
    reader = plan.reader
    hidden = {item.name: column for item in reader.reader_context.schema if (column := _unpushed(item)) is not None}
    if hidden:
        files = files.withColumns(hidden)
    if reader.commits is not None:
        files = files.where(F.col(COMMIT_TIME).isin(sorted(reader.commits)))
    if reader.predicate is not None:
        files = where(files, reader.predicate, reader.reader_context.schema)
    names = [quoted((name,)) for name in plan.schema.names]
    return files.selectExpr(*(f"{name} AS {name}" for name in names))  # a table joined with itself has two of each


def _unpushed(item: pa.Field) -> Column | None:
    """The column, hidden from Spark's Parquet filters where it holds floating-point numbers.

    Bounds in a footer leave NaN out and dictionaries separate 0.0 and -0.0, while Spark treats NaN as the greatest
    number and the zeros as equal: it would skip row groups that hold matches. None where there is nothing to hide.
    """
    if pa.types.is_floating(item.type):
        column = column_of((item.name,))
        return F.nanvl(column, column)
    if _has_floating_field(item.type):
        column = column_of((item.name,))
        return F.when(column.isNotNull(), column)
    return None


def _has_floating_field(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and any(
        pa.types.is_floating(field.type) or _has_floating_field(field.type) for field in kind
    )


# ---------------------------------------------------------------------- rows through Python
@dataclass(frozen=True, slots=True)
class _Task:
    """A slice for a task: merged as a whole, or only the live rows of its logs, by the number of their run."""

    split: ReadSplit
    logs: tuple[tuple[int, FileVector], ...] | None = None

    def rows(self, reader: FileGroupReader) -> Iterator[pa.RecordBatch]:
        if self.logs is None:
            return reader.read(self.split)
        return rows_by_vectors(reader, self.split, self.logs)


def _python_rows(spark: SparkSession, plan: Plan, tasks: Sequence[_Task]) -> DataFrame:
    schema = spark_schema(plan.schema)
    if not tasks:
        return spark.createDataFrame([], schema)
    payload = pickle.dumps(plan.reader)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader: FileGroupReader = pickle.loads(payload)
        wanted = arrow_schema(schema)
        for batch in batches:
            for raw in batch.column("task").to_pylist():
                task: _Task = pickle.loads(raw)
                for rows in task.rows(reader):
                    yield conform(rows, wanted)

    return task_frame(spark, tasks).mapInArrow(run, schema)


def _rows_of_this_process(spark: SparkSession, plan: Plan) -> DataFrame:
    """A table in memory exists in this process only, so the driver reads it."""
    schema = spark_schema(plan.schema)
    wanted = arrow_schema(schema)
    batches = [conform(batch, wanted) for split in plan.splits for batch in plan.reader.read(split)]
    return spark.createDataFrame(pa.Table.from_batches(batches, schema=wanted), schema)
