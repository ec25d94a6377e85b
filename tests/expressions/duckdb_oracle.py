"""What DuckDB says, where it reads the text at all: a third opinion, since its dialect differs from Spark's."""

from __future__ import annotations

import duckdb
import pyarrow as pa


class DuckOracle:
    """A connection that sees the rows as the table `rows`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.register("rows", pa.Table.from_batches([batch]))

    def values(self, text: str) -> pa.Array | None:
        """A value per row; None where DuckDB refuses the text or fails on a row."""
        try:
            found = self._connection.execute(f"SELECT ({text}\n) AS v FROM rows").to_arrow_table()
        except (duckdb.Error, pa.ArrowException):
            return None
        return pa.concat_arrays(found.column("v").chunks) if found.num_rows else None
