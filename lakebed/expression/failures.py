"""The error of a kernel for a row without a result; the evaluator raises it as `InvalidRequest` with the expression."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]


class RowFailure(Exception):
    """A row whose value does not exist: overflow, division by zero, a text that is no number."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def checked(value: Any, bad: Bools, source: Any, lenient: bool, what: str, hint: str) -> Any:
    """The value, without bad rows: they are an error that shows the first one, or null when lenient.

    `what` holds `{}` for the value of the source. Null rows of the source are never bad.
    """
    if source.null_count:
        bad = bad & np.asarray(source.is_valid())
    if not bad.any():
        return value
    if not lenient:
        raise RowFailure(what.format(repr(shown(source[int(np.argmax(bad))]))), hint)
    return pc.if_else(pa.array(bad), pa.scalar(None, value.type), value)


def shown(value: pa.Scalar) -> Any:
    """A value for a message; Python has no dates before the year 1 or after 9999."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return f"{value.type} {value.value}" if hasattr(value, "value") else str(value.type)
