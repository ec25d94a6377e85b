"""Merge vectors for Spark: made once per set of files, in the driver for few bytes, else in tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakebed.config.memory_plan import MemoryPlan
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReadSplit
from lakebed.read.merge_vector_cache import MERGE_VECTORS, SliceVectors, key_of, untouched, vectors_for_engines
from lakebed.read.plan import Plan
from lakebed.runner import LocalRunner
from lakebed.spark.routes import SparkRoutes
from lakebed.spark.runner import SparkRunner

DRIVER_BYTES = 256 << 20
"""Up to so many bytes of files the driver makes vectors itself: it reads keys only, and a Spark job takes longer."""
_FOR_SPARK = "files"


@dataclass(frozen=True, slots=True)
class Found:
    """The vectors of a plan by split, and the splits whose files Spark would not read with the table's schema."""

    vectors: dict[ReadSplit, SliceVectors]
    misfits: tuple[ReadSplit, ...]


def find_vectors(spark: SparkSession, plan: Plan, chosen: SparkRoutes) -> Found:
    """The vectors of all splits that Spark reads, wholly or in part.

    A base file without logs has no dead rows, and while the table's schema never changed its columns need no check.
    """
    known: dict[ReadSplit, SliceVectors | None] = {}
    missing = [*chosen.vectors, *(split for split, _ in chosen.winners)]
    if chosen.native and plan.schema_is_stable:
        known |= {split: untouched(split) for split in chosen.native}
    else:
        missing += chosen.native
    keys = {split: key_of(plan.reader, split, _FOR_SPARK) for split in missing}
    known |= {split: MERGE_VECTORS.get(keys[split]) for split in missing if keys[split] in MERGE_VECTORS}
    todo = [split for split in missing if split not in known]
    keep = MemoryPlan(plan.reader.options.memory).kept_vectors
    for split, vectors in zip(todo, _made(spark, plan, todo), strict=True):
        MERGE_VECTORS.put(keys[split], vectors, MERGE_VECTORS.note_request(keys[split]), keep)
        known[split] = vectors
    return Found(
        {split: vectors for split, vectors in known.items() if vectors is not None},
        tuple(split for split, vectors in known.items() if vectors is None),
    )


def _made(spark: SparkSession, plan: Plan, splits: Sequence[ReadSplit]) -> list[SliceVectors | None]:
    here = sum(split.slice.size for split in splits) <= DRIVER_BYTES
    runner = LocalRunner.near(is_local=plan.reader.storage.is_local) if here else SparkRunner(spark)
    reader = plan.reader.without_conditions()
    return list(runner.map(_VectorTask(reader), splits, label="merge vectors"))


@dataclass(frozen=True, slots=True)
class _VectorTask:
    reader: FileGroupReader

    def __call__(self, split: ReadSplit) -> SliceVectors | None:
        return vectors_for_engines(self.reader, split)
