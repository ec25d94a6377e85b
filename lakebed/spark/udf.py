"""A function over Arrow batches as a Spark column: only the columns it names go to Python, one array comes back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows
from pyspark.sql.pandas import functions as arrow_functions


def over_columns(function: Callable[[pa.RecordBatch], pa.Array], columns: pa.Schema, returns: str) -> Column:
    """The function's value for each row; it gets the columns in just these types, whatever the session's time zone."""
    payload = pickle.dumps((function, columns))

    def run(*arrays: pa.Array) -> pa.Array:
        work, kinds = pickle.loads(payload)
        cast = [
            array if array.type == item.type else array.cast(item.type)
            for array, item in zip(arrays, kinds, strict=True)
        ]
        return work(pa.RecordBatch.from_arrays(cast, schema=kinds))

    run.__annotations__ = {"arrays": pa.Array, "return": pa.Array}
    make: Any = arrow_functions.arrow_udf
    made: Column = make(run, returns)(*(column_of((name,)) for name in columns.names))
    return made


def column_of(path: tuple[str, ...]) -> Column:
    """A column or a field of a struct, whatever characters its name has."""
    return F.col(quoted(path))


def quoted(path: tuple[str, ...]) -> str:
    """The same as Spark SQL, in backquotes."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in path)
