"""`spark.read.format("lakebed")` and `df.write.format("lakebed")`: lakebed as a Python data source.

Spark finds the short name by itself, through the module `pyspark_lakebed` that the wheel ships. Rows pass
through Python here, and Spark requests all columns unless a schema is set: `lakebed.read(spark, path)` and
`t.upsert(df)` are faster. Spark plans a frame once, at its first action, so a frame is one snapshot; tasks get
what they need of the plan and no timeline.

Filters are an option and do not come from Spark's pushdown: Spark 4.3 keeps what one query pushed for the next query
of the same frame (`df.where("id = 1")`, then `df.count()`), which would silently lose rows.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakebed.errors import InvalidRequest
from lakebed.read.scan import Scan
from lakebed.spark.sink import LakebedWriter
from lakebed.spark.source_options import Settings
from lakebed.spark.types import arrow_schema, conform, spark_schema

SHORT_NAME = "lakebed"


class LakebedSource(DataSource):
    """The data source behind the short name."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._settings = Settings(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        """The short name."""
        return SHORT_NAME

    def schema(self) -> StructType:
        """The table's columns, meta columns first, as of the time that is read."""
        return spark_schema(self._settings.scan().schema)

    def reader(self, schema: StructType) -> LakebedReader:
        """A reader of the columns in the schema: the table's own, or fewer that the user named."""
        return LakebedReader(self._settings.scan(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> LakebedWriter:
        """A writer of rows of the schema."""
        return LakebedWriter(self._settings, schema, self._settings.operation(overwrite))


class LakebedReader(DataSourceReader):
    """Reads one scan, a task per file slice."""

    def __init__(self, scan: Scan, schema: StructType) -> None:
        plan = scan.select(*_checked(schema, scan.schema)).plan()
        self._schema = schema
        self._reader = plan.reader
        self._splits = plan.splits

    def partitions(self) -> list[InputPartition]:
        """A partition per slice."""
        return [InputPartition(split) for split in self._splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice. Spark reads one partition without a slice when there are no slices."""
        if partition.value is None:
            return
        wanted = arrow_schema(self._schema)
        for batch in self._reader.read(partition.value):
            yield conform(batch, wanted)

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: each gets its own slice, and no other."""
        return {"_schema": self._schema, "_reader": self._reader, "_splits": ()}


def _checked(requested: StructType, there: pa.Schema) -> list[str]:
    """The names of the requested columns, which must be the table's own in name and type."""
    known = {item.name: item.dataType for item in spark_schema(there)}
    for item in requested:
        if item.name not in known:
            raise InvalidRequest(f"the table has no column {item.name!r}", hint=f"It has: {', '.join(known)}.")
        if known[item.name] != spark_schema(arrow_schema(StructType([item])))[0].dataType:
            raise InvalidRequest(
                f"the column {item.name!r} is {known[item.name].simpleString()}, not {item.dataType.simpleString()}",
                hint="A schema chooses columns; cast them afterwards.",
            )
    return [item.name for item in requested]
