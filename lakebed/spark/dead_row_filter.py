"""Dropping dead rows inside the JVM: files joined with their merge vectors, by file and row index.

    _metadata.file_name ──xxhash64──► file number ─┐
    _metadata.row_index ────────────────────────── bit row % 64 of word row / 64: set is dead
                         broadcast (file number, words) ─┘

Every row is looked up in the join's hash table, and keys of type long make that twice as fast as file names of eighty
bytes. File names are unique within a table (they hold the file group, the task attempt and the instant); if two files
of a query have the same hash, the join uses the names instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import xxhash
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from lakebed.read.merge_vector_cache import FileVector

FILE = "_lakebed_file"
WORDS = "_lakebed_words"
ROW = "_lakebed_row"
_SPARK_SEED = 42
_WORDS_TYPE = pa.list_(pa.field("element", pa.int64(), False))


def live_rows(spark: SparkSession, files: DataFrame, vectors: Sequence[FileVector]) -> DataFrame:
    """The rows of the files whose bit is not set."""
    file, keys = _file_keys([vector.name for vector in vectors])
    words = pa.array([vector.words.view("int64") for vector in vectors], _WORDS_TYPE)
    kind = LongType() if keys.type == pa.int64() else StringType()
    schema = StructType([StructField(FILE, kind), StructField(WORDS, ArrayType(LongType(), False))])
    bits = F.broadcast(spark.createDataFrame(pa.table([keys, words], names=[FILE, WORDS]), schema))
    numbered = files.withColumns({FILE: file, ROW: F.col("_metadata.row_index")})
    word = F.element_at(F.col(WORDS), (F.shiftright(ROW, 6) + 1).cast("int"))  # an error past the end, never a null
    is_live = F.getbit(word, F.col(ROW).bitwiseAND(63).cast("int")) == 0
    return numbered.join(bits, FILE).where(is_live)


def _file_keys(names: list[str]) -> tuple[Column, pa.Array]:
    """The Spark expression that identifies the file of a row, and its values for these files."""
    name = F.col("_metadata.file_name")
    numbers = [file_number(each) for each in names]
    if len(set(numbers)) == len(set(names)):
        return F.xxhash64(name), pa.array(numbers, pa.int64())
    return name, pa.array(names, pa.string())


def file_number(name: str) -> int:
    """Spark's `xxhash64` of a file name."""
    number = xxhash.xxh64_intdigest(name.encode(), seed=_SPARK_SEED)
    return number - (1 << 64) if number >> 63 else number
