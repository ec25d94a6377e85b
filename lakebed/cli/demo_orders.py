"""The rows of `lakebed demo`: orders computed from their numbers, here in Arrow and in `lakebed.spark.demo` in Spark.

Half of every later batch updates existing orders, half is new.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), False),
        pa.field("region", pa.string()),
        pa.field("customer", pa.string()),
        pa.field("qty", pa.int32()),
        pa.field("price", pa.float64()),
        pa.field("version", pa.int64()),
    ]
)
BATCHES = 7


@dataclass(frozen=True, slots=True)
class Batch:
    """One upsert: orders by number, in a version."""

    version: int
    numbers: range

    @property
    def rows(self) -> int:
        return len(self.numbers)


def batches(rows: int) -> list[Batch]:
    """So many rows in all: a first batch of two fifths, then equal ones, half of each updating existing rows."""
    later = rows // 10
    first = rows - later * (BATCHES - 1)
    found = [Batch(1, range(first))]
    for number in range(1, BATCHES):
        end = found[-1].numbers.stop + later // 2
        found.append(Batch(number + 1, range(end - later, end)))
    return found


def orders(numbers: range, version: int) -> pa.Table:
    """The orders of a batch in Arrow."""
    n = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)

    def text(stem: str, values: object, digits: int) -> pa.Array:
        return pc.binary_join_element_wise(
            stem, pc.utf8_lpad(pa.array(values, pa.int64()).cast(pa.string()), digits, "0"), ""
        )

    columns = [
        text("order-", n, 7),
        pc.if_else(pa.array(n % 3 == 0), "eu", "us"),
        text("customer-", n * 7919 % 50021, 5),
        pa.array((n + version) % 9 + 1, pa.int64()).cast(pa.int32()),
        pa.array(n * 104729 % 100003 / 100 + version, pa.float64()),
        pa.array(np.full(len(n), version), pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
