"""Conversion of numbers to the type of a column without loss, as an assignment without a cast does it.

    to         from: whole, decimal(p, 0)   decimal                    double                  float
    float      equal                        nearest                    nearest, finite stays   -
    double     equal                        nearest                    -                       equal
    decimal    equal                        equal (Arrow's own)        with its digits         with its digits
    whole      equal (Arrow's own)          equal (Arrow's own)        equal (Arrow's own)     equal (Arrow's own)

A fraction such as 0.1 has no equal in binary: FLOAT and DOUBLE columns take the nearest number, as for a constant.
A floating number keeps its digits in a decimal when it comes back out of it as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression.casts import cast
from lakebed.expression.decimals import unscaled
from lakebed.expression.failures import Bools, checked
from lakebed.expression.types import DOUBLE, FLOAT, is_decimal, is_whole, sql_name, sql_type_of


def exact_number(array: Any, target: pa.DataType) -> pa.Array:
    """The numbers in a floating or decimal type; `RowFailure` for one that would become another."""
    source = sql_type_of(array.type)
    assert source is not None
    if array.type != source:
        array = array.cast(source)
    value = cast(array, target)
    bad = _lost(array, value)
    if bad is None:
        return value
    name = sql_name(target)
    hint = f"Write cast(... as {name}), or round(...), where digits may go."
    return checked(value, bad, array, False, f"{{}} is not kept as {name}", hint)


def _lost(array: Any, value: Any) -> Bools | None:
    """Rows whose number changed; None when there can be none."""
    source, target = array.type, value.type
    if source == target or (is_whole(source) and is_decimal(target)) or (source, target) == (FLOAT, DOUBLE):
        return None
    if is_whole(source) or (is_decimal(source) and source.scale == 0):
        return _other_whole(array, value)
    if is_decimal(source):
        return None
    if is_decimal(target):
        return ~_true(pc.equal(cast(value, source), array))
    return _true(pc.and_(pc.is_finite(array), pc.is_inf(value)))


def _other_whole(array: Any, value: Any) -> Bools:
    """Whole numbers that are not equal to the float they became. 2^63 stands for none of 64 bits."""
    numbers = unscaled(array) if is_decimal(array.type) else np.asarray(array.fill_null(0)).astype(np.int64)
    floats = np.asarray(value.cast(DOUBLE).fill_null(0.0))
    if numbers.dtype == object:
        return np.fromiter((int(one) != other for one, other in zip(floats, numbers, strict=True)), np.bool_)
    least = -(2.0**63)
    found: Bools = np.where(np.abs(floats) >= -least, least, floats).astype(np.int64) != numbers
    return found


def _true(found: Any) -> Bools:
    """Where the answer is yes, neither no nor null."""
    rows: Bools = np.asarray(pc.fill_null(found, False))
    return rows
