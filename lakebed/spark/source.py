"""`spark.read.format("lakebed")` and `df.write.format("lakebed")`: lakebed as a Python data source.

Spark finds the short name by itself, through the module `pyspark_lakebed` that the wheel ships. Rows come and go
through Python here, and Spark asks for all columns unless a schema is given: `lakebed.read(spark, path)` and
`t.upsert(df)` are the fast ways. A reader is planned once, where Spark plans; tasks get what they need of the plan and
no timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from lakebed.errors import InvalidRequest
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.model.predicate import Predicate
from lakebed.read.plan import Plan
from lakebed.read.scan import Scan
from lakebed.spark.filters import split_filters
from lakebed.spark.settings import Settings
from lakebed.spark.sink import LakebedWriter
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


class _PushFilters:
    """The reader's `pushFilters`, which Spark must not take for one while it keeps filters to itself.

    With `spark.sql.python.filterPushdown.enabled` off, Spark refuses every reader that defines the method, instead of
    not calling it. It tells by the function behind the bound method, and here it finds its own.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: LakebedReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)


class LakebedReader(DataSourceReader):
    """Reads one scan, a task per file slice."""

    def __init__(self, scan: Scan, schema: StructType) -> None:
        self._schema = schema
        self._scan: Scan | None = scan.select(*_checked(schema, scan.schema))
        self._plan: Plan | None = None
        self._reader: FileGroupReader | None = None

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name
        """Takes over what lakebed evaluates exactly; also lets whole partitions, files and row groups unread."""
        return _PushFilters(self)

    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Those that are left to Spark."""
        assert self._scan is not None
        predicate: Predicate | None
        predicate, left = split_filters(filters, self._scan.schema)
        if predicate is not None:
            self._scan = replace(self._scan, where=predicate)
            self._plan = None
        return left

    def partitions(self) -> list[InputPartition]:
        """A partition per slice."""
        return [InputPartition(split) for split in self._planned().splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice. Spark asks for a partition without a slice when there are none."""
        if partition.value is None:
            return
        wanted = arrow_schema(self._schema)
        reader = self._reader if self._reader is not None else self._planned().reader
        for batch in reader.read(partition.value):
            yield conform(batch, wanted)

    def _planned(self) -> Plan:
        if self._plan is None:
            assert self._scan is not None
            self._plan = self._scan.plan()
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need; Spark pickles the reader before it asks for the partitions."""
        return {
            "_schema": self._schema,
            "_scan": None,
            "_plan": None,
            "_reader": self._reader or self._planned().reader,
        }


def _checked(asked: StructType, there: pa.Schema) -> list[str]:
    """The names of the asked columns, which must be the table's own in name and type."""
    known = {item.name: item.dataType for item in spark_schema(there)}
    for item in asked:
        if item.name not in known:
            raise InvalidRequest(f"the table has no column {item.name!r}", hint=f"It has: {', '.join(known)}.")
        if known[item.name] != spark_schema(arrow_schema(StructType([item])))[0].dataType:
            raise InvalidRequest(
                f"the column {item.name!r} is {known[item.name].simpleString()}, not {item.dataType.simpleString()}",
                hint="A schema chooses columns; cast them afterwards.",
            )
    return [item.name for item in asked]
