"""What a batch says of one key twice: the same on every table type and layout, whatever merges versions of a row."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.merge.record_merger import FunctionMerger, register_merger

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("n", pa.int64())])
ADDS_UP = "tests.AddsUp"
TYPES = [("cow", "lsm_tree"), ("cow", "default"), ("mor", "lsm_tree"), ("mor", "default")]
register_merger(ADDS_UP, lambda: FunctionMerger(lambda older, newer: {**newer, "n": older["n"] + newer["n"]}))


def table(table_type: str, layout: str, properties: dict[str, str], ordering: str | None = None) -> lakebed.Table:
    return lakebed.create(
        f"memory://batch-fold/{uuid.uuid4().hex}",
        SCHEMA,
        record_key="id",
        ordering=ordering,
        table_type=table_type,
        layout=layout,
        num_buckets=1,
        properties=properties,
    )


def rows(*values: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], schema=SCHEMA)


def held(made: lakebed.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in SCHEMA.names) for row in made.scan().to_arrow().to_pylist())


@pytest.mark.parametrize(("table_type", "layout"), TYPES)
@pytest.mark.parametrize("ordering", [None, "ts"])
def test_rows_of_a_batch_do_not_fill_each_other(table_type: str, layout: str, ordering: str | None) -> None:
    made = table(table_type, layout, {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, ordering)
    made.upsert(rows(("k", 1, "first", None), ("other", 1, "o", 1)))
    made.upsert(rows(("k", 2, None, 7), ("k", 3, None, None), ("new", 1, "lost", None), ("new", 2, None, 5)))
    assert held(made) == [("k", 3, "first", None), ("new", 2, None, 5), ("other", 1, "o", 1)]


@pytest.mark.parametrize(("table_type", "layout"), TYPES)
def test_a_merger_that_is_not_associative_sees_one_row_of_a_batch(table_type: str, layout: str) -> None:
    custom = {"hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": ADDS_UP}
    made = table(table_type, layout, custom)
    made.upsert(rows(("k", 1, "a", 1)))
    made.upsert(rows(("k", 1, "b", 10), ("k", 1, "c", 100)))
    assert held(made) == [("k", 1, "c", 101)]
