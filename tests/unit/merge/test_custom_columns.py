"""A merger of one's own sees whole rows, whatever columns a query asks for."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.merge.record_merger import register_merger

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("x", pa.string())])
NAME = "tests.LargestWins"


class LargestWins:
    """The whole row with the larger `v`."""

    associative = True

    def merge_batch(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        is_newer = pc.greater_equal(newer["v"], older["v"])
        columns = [pc.if_else(is_newer, newer[name], older[name]) for name in newer.schema.names]
        return pa.table(columns, schema=newer.schema)


register_merger(NAME, LargestWins)


@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_a_merger_sees_every_column_whatever_is_asked_for(layout: str) -> None:
    table = lakebed.create(
        f"memory://custom-columns/{uuid.uuid4().hex}",
        SCHEMA,
        record_key="id",
        num_buckets=1,
        layout=layout,
        properties={"hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": NAME},
    )
    table.upsert(pa.table({"id": ["a", "b"], "v": [5, 1], "x": ["large", "small"]}, schema=SCHEMA))
    table.upsert(pa.table({"id": ["a", "b"], "v": [3, 2], "x": ["late", "new"]}, schema=SCHEMA))
    assert sorted(table.scan(columns=["x"]).to_arrow()["x"].to_pylist()) == ["large", "new"]
    assert table.scan(columns=["id"], filter="x = 'late'").to_arrow().num_rows == 0
    assert table.scan().count() == 2
    assert table.check() == []
