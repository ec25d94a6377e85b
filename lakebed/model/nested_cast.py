"""Arrow's cast, with a workaround for sliced nested arrays.

A struct, list or map that is a slice of a longer one and has a child of type null comes out of Arrow's `cast` with a
child that is too short (Arrow 26 and before): the child is cut to the slice, and the array keeps its offsets all the
same. What is done with the result then fails, or reads past its end. An array without offsets is cast well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def cast_column(column: Any, kind: pa.DataType, *, safe: bool = True) -> Any:
    """The array or chunked array in another type; as it is where it has that type."""
    if column.type.equals(kind):
        return column
    if has_null_child(column.type):
        column = column.take(pa.array(np.arange(len(column), dtype=np.int64)))
    return column.cast(kind, safe=safe)


def has_null_child(kind: pa.DataType) -> bool:
    """Whether something in the type can hold nothing but nulls."""
    children = [kind.field(number).type for number in range(kind.num_fields)]
    return any(pa.types.is_null(child) or has_null_child(child) for child in children)
