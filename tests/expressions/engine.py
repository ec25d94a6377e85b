"""Where lakebed's expressions are reached: the one place that names the module they live in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.errors import LakebedError
from lakebed.expression.predicate import parse_expression

__all__ = ["FAILED", "bind"]

FAILED = LakebedError
"""How lakebed says that it cannot: at once, or on a row."""


def bind(text: str, schema: pa.Schema) -> Any:
    """A bound expression with `type` and `evaluate(batch)`."""
    return parse_expression(text, schema)
