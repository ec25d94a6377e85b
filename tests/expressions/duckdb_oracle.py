"""What DuckDB says, where it reads the text at all: a third opinion, since its dialect is not Spark's.

Where it agrees with Spark, a disagreement of lakebed's is two to one; where it does not, Spark alone is the reference.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tests.expressions.columns import arrow_type
from tests.expressions.compare import same_values
from tests.expressions.spark_oracle import Answer


class DuckOracle:
    """A connection that sees the rows as the table `rows`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.register("rows", pa.Table.from_batches([batch]))

    def agrees(self, text: str, answer: Answer) -> bool:
        """Whether it gives Spark's value for every row; a row that fails is not compared."""
        if answer.refused is not None or not pc.all(answer.ok).as_py():
            return False
        try:
            found = self._connection.sql(f"SELECT ({text}\n) AS v FROM rows").to_arrow_table()
            values = pa.concat_arrays(found.column("v").chunks).cast(arrow_type(answer.type))
        except (duckdb.Error, pa.ArrowException):
            return False
        return same_values(values, answer.values)
