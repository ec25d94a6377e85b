"""Conditions that lakebed hands to Spark as columns: the same rows, whatever the session's settings.

The session here has neither ANSI mode nor UTC, which a user's need not have; the answers to hold them against come
from the oracle's session, which has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.expressions.columns import sql_type
from tests.expressions.compare import Verdict
from tests.expressions.engine import spark_column
from tests.expressions.spark_oracle import Answer
from tests.expressions.tree import Tree

_SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class SparkRoute:
    """A session over a running Spark."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark.newSession()
        for key, value in _SETTINGS.items():
            self._spark.conf.set(key, value)

    def verdicts(self, batch: pa.RecordBatch, asked: Sequence[tuple[Tree, Answer]]) -> list[tuple[Tree, Verdict]]:
        """What comes of those conditions that become columns."""
        columns = [(tree, answer, spark_column(tree.sql, batch.schema)) for tree, answer in asked]
        known = [(tree, answer, column) for tree, answer, column in columns if column is not None]
        if not known:
            return []
        types = ", ".join(f"{field.name} {sql_type(field.type)}" for field in batch.schema)
        frame = self._spark.createDataFrame(pa.Table.from_batches([batch]), types)
        found = frame.select(*[column.alias(f"c{place}") for place, (_, _, column) in enumerate(known)]).toArrow()
        return [
            (tree, _held_beside(column.combine_chunks(), answer))
            for (tree, answer, _), column in zip(known, found.columns, strict=True)
        ]


def _held_beside(found: Any, answer: Answer) -> Verdict:
    assert answer.values is not None
    values = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    differs = pc.xor(values.fill_null(False), answer.values.fill_null(False))
    rows = pc.indices_nonzero(differs).to_pylist()
    return Verdict("column", f"differs in rows {rows[:5]}") if rows else Verdict("agrees")
