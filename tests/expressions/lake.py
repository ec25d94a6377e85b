"""A table whose rows are known: sorted by a column and cut into small row groups, or partitioned by one."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from lakebed.errors import LakebedError
from tests.expressions.columns import COLUMNS, Column, rows, show, values
from tests.expressions.constants import quoted
from tests.expressions.draw import NUMBERS, TIMES
from tests.expressions.tree import Tree

ROWS = 128
_GROUP = 4
"""Rows in a row group: few, so that constants of conditions are often the first or the last value of one."""
_KEY_MARKS = ("k", "K", "é", "🙂", "a_", "a%", "z", " ")
_PARTITION_TYPES = (
    *(("string", "string"), ("int", "int"), ("bigint", "int"), ("date", "date"), ("boolean", "bool")),
    *(("decimal(9,2)", "decimal"), ("double", "float"), ("float", "float"), ("timestamp", "timestamp")),
    ("smallint", "int"),
)
_PARTITION_TEXTS = ("a", "b", "é", "a b", "5", "2024-01-01", "A", "100%")
_SORTED = {"int": 2, "float": 2, "decimal": 3, "string": 2, "date": 2, "timestamp": 2, "ntz": 1, "bool": 0.5}
_EDGES = (
    *("{0} = {1}", "{0} = {1}", "{0} <= {1}", "{0} < {1}", "{0} >= {1}", "{0} > {1}", "{1} = {0}", "{1} < {0}"),
    *("{0} <=> {1}", "{0} <> {1}", "{0} IN ({1}, {2})", "{0} NOT IN ({1})", "{0} BETWEEN {1} AND {2}"),
    *("NOT {0} < {1}", "NOT ({0} > {1} OR {0} < {2})", "{0} NOT BETWEEN {1} AND {2}"),
)
KEY = Column("k", "string", "string", "key")


@dataclass(frozen=True)
class Lake:
    """A table in memory and its rows: the key `k`, a counter `mark`, perhaps the partition column `p`, and others."""

    table: Any
    rows: pa.RecordBatch
    leaves: tuple[Column, ...]
    sorted_by: str
    partition: Column | None

    def __str__(self) -> str:
        return f"sorted by {self.sorted_by}" + (f", partitioned by {self.partition.sql_type}" if self.partition else "")

    def edge(self, chance: random.Random) -> Tree:
        """A column beside values that rows have, also written in another family: where row groups begin and end."""
        leaf = chance.choice(self.leaves)
        kind = chance.choice(_kindred(leaf.kind))
        texts = [constant_of(kind, value) for value in self.rows.column(leaf.name)]
        known = [text for text in texts if text is not None] or ["NULL"]
        parts = [Tree(leaf.kind, leaf.name, form=f"<{leaf.sql_type}>")]
        parts += [Tree(kind, chance.choice(known), form=f"<{kind} constant>") for _ in range(2)]
        return Tree("bool", chance.choice(_EDGES), tuple(parts))

    @property
    def samples(self) -> dict[str, list[str]]:
        """Constants that rows have."""
        found: dict[str, list[str]] = {}
        for leaf in self.leaves:
            for kind in _kindred(leaf.kind):
                texts = [constant_of(kind, value) for value in self.rows.column(leaf.name)]
                found.setdefault(kind, []).extend(text for text in texts if text is not None)
        return found


def _kindred(kind: str) -> tuple[str, ...]:
    """The families that a value can be written in as well."""
    return NUMBERS if kind in NUMBERS else TIMES if kind in TIMES else (kind,)


def constant_of(kind: str, scalar: pa.Scalar) -> str | None:
    """A value as an SQL constant of a family; None where there is none."""
    if not scalar.is_valid:
        return None
    try:
        value = scalar.as_py()
        match kind:
            case "bool":
                return str(value)
            case "int":
                return str(int(value))
            case "decimal":
                return f"{value:f}" if isinstance(value, Decimal) else f"{value}.0" if isinstance(value, int) else None
            case "float":
                return f"{float(value)!r}D" if abs(value) < 1e300 else None
            case "string":
                return quoted(value)
            case "date":
                return f"DATE '{value.date() if isinstance(value, datetime) else value}'"
            case _:
                text = str(value.replace(tzinfo=None)) if isinstance(value, datetime) else f"{value} 00:00:00"
                return f"{'TIMESTAMP' if kind == 'timestamp' else 'TIMESTAMP_NTZ'} '{text}'"
    except (ValueError, OverflowError):
        return None


def build(seed: int) -> Lake | None:
    """The table of a seed; None where lakebed does not take its partition values."""
    chance = random.Random(f"lake {seed}")
    columns = [column for column in COLUMNS if column.kind != "binary"]
    chosen = (
        chance.choice(columns + [column for column in columns if column.kind != "string"]),
        *chance.sample(columns, 3),
    )
    partition = None
    if chance.random() < 0.5:
        partition = Column("p", *chance.choice(_PARTITION_TYPES))
    batch = _rows(seed, chance, chosen, partition)
    extra = (Column("p", partition.sql_type, partition.kind),) if partition else ()
    table = lakebed.create(
        f"memory://expressions/{uuid.uuid4().hex}",
        batch.schema,
        record_key="k",
        partition_by="p" if partition else None,
        num_buckets=1,
        table_type=chance.choice(("mor", "cow")),
    )
    batch = batch.cast(pa.schema([table.schema.field(name) for name in batch.schema.names]))  # small integers are ints
    try:
        table.bulk_insert(pa.Table.from_batches([batch]), options={"lakebed.parquet.row.group.rows": str(_GROUP)})
    except LakebedError:
        return None
    return Lake(table, batch, (*[chosen[0]] * 3, *chosen, KEY, *extra * 2), chosen[0].name, partition)


def _rows(seed: int, chance: random.Random, chosen: tuple[Column, ...], partition: Column | None) -> pa.RecordBatch:
    batch = rows(seed, ROWS).select(list(dict.fromkeys(column.name for column in chosen)))
    order = pc.sort_indices(batch.column(chosen[0].name))
    if chance.random() < 0.3:
        order = order[::-1]
    batch = batch.take(order)
    keys = [f"{row // 16:02}{chance.choice(_KEY_MARKS)}{row:03}" for row in range(ROWS)]
    added = {"k": pa.array(keys), "mark": pa.array([0] * ROWS, pa.int32())}
    if partition is not None:
        added["p"] = _partition_values(partition, chance)
    columns = {**added, **{name: batch.column(name) for name in batch.schema.names}}
    return pa.RecordBatch.from_pydict(columns)


def _partition_values(partition: Column, chance: random.Random) -> pa.Array:
    """A few values, so that partitions hold several rows each; zeros of both signs and NaN where there are such."""
    few: list[Any] = [chance.choice(_PARTITION_TEXTS) for _ in range(6)]
    if partition.kind == "float":
        few = [0.0, -0.0, float("nan"), 1.5, -2.25, 0.1]
    elif partition.kind != "string":
        drawn = values(partition, 6, chance)
        few = [drawn[i] for i in range(6)]
    return pa.array([few[chance.randrange(6)] for _ in range(ROWS)], partition.type)


def keys_of(batch: pa.RecordBatch | pa.Table, mask: pa.BooleanArray | None = None) -> list[str]:
    """The keys of rows, sorted."""
    found = batch.column("k") if mask is None else batch.filter(mask).column("k")
    return sorted(found.to_pylist())


def show_row(batch: pa.RecordBatch, key: str, names: list[str]) -> str:
    """Some values of the row with a key."""
    row = pc.index(batch.column("k"), pa.scalar(key)).as_py()
    return f"{key!r} { ({name: show(batch.column(name)[row]) for name in names}) }"
