"""Arrow schemas as Spark schemas, and batches in exactly the types that Spark expects back from Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from lakebed.errors import UnsupportedFormat
from lakebed.model.nested_cast import cast_column


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of rows of an Arrow schema; everything nullable at every depth, as in Spark's file sources."""
    try:
        found: StructType = from_arrow_schema(schema)
    except Exception as error:  # pyspark raises its own exceptions for types it does not know
        raise UnsupportedFormat(
            f"Spark has no type for a column: {error}", hint="Read without Spark, or select other columns."
        ) from error
    return StructType([StructField(item.name, _nullable(item.dataType)) for item in found])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark passes rows of a Spark schema to Python and back; instants are in UTC."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except Exception as error:  # pyspark raises its own exceptions for types it cannot convert
        raise UnsupportedFormat(
            f"a column of the frame has no type in Arrow: {error}", hint="Cast it, or leave it out."
        ) from error


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly this schema: Spark checks names, types and nullability, nested ones too."""
    if batch.schema.equals(schema, check_metadata=False):
        return batch
    arrays: list[Any] = []
    for item in schema:
        column = batch.column(item.name)
        arrays.append(cast_column(column, item.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def by_number(df: DataFrame) -> DataFrame:
    """The frame with its columns named by number for Python: Spark would parse names with dots or quotes."""
    return df.toDF(*(f"c{number}" for number in range(len(df.columns))))


def by_name(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of a frame renamed by `by_number`, in their original schema."""
    return (conform(batch.rename_columns(schema.names), schema) for batch in batches)


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(item.name, _nullable(item.dataType)) for item in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), valueContainsNull=True)
    return kind
