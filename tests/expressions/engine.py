"""Where lakebed's expressions are reached: the one place that names the module they live in."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa

from lakebed.errors import LakebedError
from lakebed.expression.predicate import parse_expression, parse_predicate

__all__ = ["FAILED", "bind", "spark_column"]

FAILED = LakebedError
"""How lakebed says that it cannot: at once, or on a row."""


def bind(text: str, schema: pa.Schema) -> Any:
    """A bound expression with `type` and `evaluate(batch)`."""
    return parse_expression(text, schema)


def spark_column(text: str, schema: pa.Schema) -> Any:
    """A condition as the column that lakebed gives Spark; None where it evaluates the condition itself."""
    from lakebed.spark.expressions import exact_column

    parts = [exact_column(part.root) for part in parse_predicate(text, schema).conjuncts]
    return None if any(part is None for part in parts) else reduce(and_, parts)
