"""Reading on Spark: rows stay in the JVM wherever Spark's own Parquet reader can give the answer.

    slices that are base files alone          spark.read.parquet over the exact list of files
    slices with native logs, whole records    spark.read.parquet over base and logs, dead rows dropped by merge vectors
    everything else                           mapInArrow over FileGroupReader: v1 logs, partial and custom merges, ORC,
                                              schema changes that Spark's reader does not do, stores it cannot open

The answer is the same whichever way is taken, and `explain()` says which and why. A merge vector is one bit per row,
made from key and ordering columns alone; it is joined by file name (unique within a table) and row index.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from lakebed.merge.file_group_reader import FileGroupReader, ReadSplit
from lakebed.model.schema import COMMIT_TIME
from lakebed.read.plan import Plan
from lakebed.read.vectors import FileVector, slice_vectors
from lakebed.spark.types import arrow_schema, conform, spark_schema

FILE = "_lakebed_file"
WORDS = "_lakebed_words"
ROW = "_lakebed_row"
LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
NO_WORDS = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class SparkRoutes:
    """Which splits go which way, and why."""

    native: tuple[ReadSplit, ...]
    vectors: tuple[ReadSplit, ...]
    python: tuple[tuple[ReadSplit, str], ...]

    def lines(self) -> list[str]:
        reasons: dict[str, int] = {}
        for _, why in self.python:
            reasons[why] = reasons.get(why, 0) + 1
        return [
            f"{len(self.native)} slices by Spark's Parquet reader",
            f"{len(self.vectors)} slices by Spark's Parquet reader and merge vectors",
            *(f"{count} slices through Python: {why}" for why, count in sorted(reasons.items())),
        ]


def routes(plan: Plan) -> SparkRoutes:
    """The way of every split."""
    native: list[ReadSplit] = []
    vectors: list[ReadSplit] = []
    python: list[tuple[ReadSplit, str]] = []
    for split in plan.splits:
        why = plan.reader.why_not_native(split)
        if why is not None:
            python.append((split, why))
        elif split.slice.log_files:
            vectors.append(split)
        else:
            native.append(split)
    return SparkRoutes(tuple(native), tuple(vectors), tuple(python))


def to_df(spark: SparkSession, plan: Plan) -> DataFrame:
    """The rows of a plan as a DataFrame."""
    chosen = routes(plan)
    vectors, misfits = _vectors(spark, plan, chosen)
    through_python = [*(split for split, _ in chosen.python), *misfits]
    parts: list[DataFrame] = []
    if vectors:
        parts.append(_native_rows(spark, plan, vectors))
    if through_python or not parts:
        parts.append(_python_rows(spark, plan, through_python))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


# ---------------------------------------------------------------------- rows that never leave the JVM
def _native_rows(spark: SparkSession, plan: Plan, vectors: Sequence[FileVector]) -> DataFrame:
    base = plan.reader.storage.url.rstrip("/")
    clean = [f"{base}/{vector.path}" for vector in vectors if not vector.dead]
    dirty = [vector for vector in vectors if vector.dead]
    parts = []
    if clean:
        parts.append(_select(_read_files(spark, plan, clean), plan))
    if dirty:
        files = _read_files(spark, plan, [f"{base}/{vector.path}" for vector in dirty])
        parts.append(_select(_alive(spark, files, dirty), plan))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def _read_files(spark: SparkSession, plan: Plan, paths: Sequence[str]) -> DataFrame:
    """The files by Spark's reader, every table column there; the list is taken as it is, without listing folders."""
    before = spark.conf.get(LISTING_THRESHOLD) or "32"
    spark.conf.set(LISTING_THRESHOLD, str(max(int(before), len(paths) + 1)))
    try:
        return spark.read.schema(spark_schema(plan.reader.shape.schema)).parquet(*paths)
    finally:
        spark.conf.set(LISTING_THRESHOLD, before)


def _alive(spark: SparkSession, files: DataFrame, vectors: Sequence[FileVector]) -> DataFrame:
    """Rows whose bit is not set."""
    schema = StructType([StructField(FILE, StringType()), StructField(WORDS, ArrayType(LongType(), False))])
    names = pa.array([vector.name for vector in vectors], pa.string())
    words = pa.array(
        [vector.words.view("int64") for vector in vectors], pa.list_(pa.field("element", pa.int64(), False))
    )
    table = pa.table([names, words], names=[FILE, WORDS])
    bits = F.broadcast(spark.createDataFrame(table, schema))
    numbered = files.withColumn(FILE, F.col("_metadata.file_name")).withColumn(ROW, F.col("_metadata.row_index"))
    word = F.element_at(F.col(WORDS), (F.floor(F.col(ROW) / 64) + 1).cast("int"))
    alive = F.getbit(word, (F.col(ROW) % 64).cast("int")) == 0
    return numbered.join(bits, FILE).where(alive)


def _select(files: DataFrame, plan: Plan) -> DataFrame:
    reader = plan.reader
    if reader.commits is not None:
        files = files.where(F.col(COMMIT_TIME).isin(sorted(reader.commits)))
    if reader.predicate is not None:
        files = files.where(reader.predicate.to_sql())
    return files.select([F.col(f"`{name}`") for name in plan.schema.names])


def _vectors(spark: SparkSession, plan: Plan, chosen: SparkRoutes) -> tuple[list[FileVector], list[ReadSplit]]:
    """The merge vectors of slices, made in tasks, one per slice, and the slices that do not fit.

    Vectors depend on nothing but the set of files, so those already made are kept. A base file alone needs none, and
    while the table's schema never changed its columns need no look either.
    """
    found: list[FileVector] = []
    misfits: list[ReadSplit] = []
    missing: list[ReadSplit] = list(chosen.vectors)
    is_stable = bool(chosen.native) and plan.schema_is_stable
    for split in chosen.native:
        base = split.slice.base_file
        if base is not None and is_stable:
            found.append(FileVector(base.path, 0, 0, NO_WORDS))
        elif base is not None:
            missing.append(split)
    known = {split: _CACHE[key] for split in missing if (key := _key(plan, split)) in _CACHE}
    todo = [split for split in missing if split not in known]
    for split, vectors in zip(todo, _run(spark, _VectorTask(plan.reader), todo) if todo else (), strict=True):
        _remember(_key(plan, split), vectors)
        known[split] = vectors
    for split, vectors in known.items():
        if vectors is None:
            misfits.append(split)
        else:
            found.extend(vectors)
    return found, misfits


def _key(plan: Plan, split: ReadSplit) -> tuple[str, tuple[str, ...], str]:
    paths = tuple(file.path for file in split.slice.files)
    return (plan.reader.storage.url, paths, str(plan.reader.shape.schema))


@dataclass(frozen=True, slots=True)
class _VectorTask:
    reader: FileGroupReader

    def __call__(self, split: ReadSplit) -> list[FileVector] | None:
        return slice_vectors(self.reader, split)


_CACHE: dict[tuple[str, tuple[str, ...], str], list[FileVector] | None] = {}
_CACHE_BYTES = 256 << 20


def _remember(key: tuple[str, tuple[str, ...], str], vectors: list[FileVector] | None) -> None:
    _CACHE[key] = vectors
    while sum(vector.words.nbytes for known in _CACHE.values() for vector in known or ()) > _CACHE_BYTES:
        _CACHE.pop(next(iter(_CACHE)))


def _run(
    spark: SparkSession, work: Callable[[ReadSplit], list[FileVector] | None], splits: Sequence[ReadSplit]
) -> list[list[FileVector] | None]:
    """Apply a picklable function to splits, one Spark task each, results in order."""
    schema = StructType([StructField("number", LongType()), StructField("result", BinaryType())])
    payload = pickle.dumps(work)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = pickle.loads(payload)
        for batch in batches:
            results = [pickle.dumps(function(pickle.loads(raw))) for raw in batch.column("split").to_pylist()]
            yield pa.RecordBatch.from_arrays(
                [batch.column("number"), pa.array(results, pa.binary())], schema=arrow_schema(schema)
            )

    rows = _split_frame(spark, splits).mapInArrow(task, schema).collect()
    return [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: row["number"])]


def _split_frame(spark: SparkSession, splits: Sequence[ReadSplit]) -> DataFrame:
    """A row per split, each in a partition of its own."""
    schema = StructType([StructField("number", LongType()), StructField("split", BinaryType())])
    rows = [(number, pickle.dumps(split)) for number, split in enumerate(splits)]
    frame = spark.createDataFrame(rows, schema)
    return frame.repartitionById(max(1, len(splits)), F.col("number").cast("int"))


# ---------------------------------------------------------------------- rows through Python
def _python_rows(spark: SparkSession, plan: Plan, splits: Sequence[ReadSplit]) -> DataFrame:
    schema = spark_schema(plan.schema)
    if not splits:
        return spark.createDataFrame([], schema)
    payload = pickle.dumps(plan.reader)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader: FileGroupReader = pickle.loads(payload)
        wanted = arrow_schema(schema)
        for batch in batches:
            for raw in batch.column("split").to_pylist():
                for rows in reader.read(pickle.loads(raw)):
                    yield conform(rows, wanted)

    return _split_frame(spark, splits).mapInArrow(task, schema)
