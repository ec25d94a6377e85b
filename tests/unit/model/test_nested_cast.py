"""Casting slices of nested arrays that hold nothing but nulls somewhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.model.nested_cast import cast_column, has_null_child
from tests.unit.write.tables import make

NARROW = pa.struct([("n", pa.null()), ("x", pa.int32())])
WIDE = pa.struct([("n", pa.null()), ("x", pa.int64())])
CASES: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "struct": (NARROW, WIDE, [{"n": None, "x": 1}, None, {"n": None, "x": 3}, {"n": None, "x": None}]),
    "list": (pa.list_(NARROW), pa.large_list(WIDE), [[{"n": None, "x": 1}, None], [], None, [{"n": None, "x": 2}]]),
    "list of nulls": (pa.list_(pa.null()), pa.large_list(pa.null()), [[None], [None, None], None, []]),
    "map": (pa.map_(pa.string(), NARROW), pa.map_(pa.string(), WIDE), [[("a", {"n": None, "x": 1})], None, [], []]),
    "deep": (
        pa.struct([("s", pa.struct([("n", pa.null())])), ("x", pa.int32())]),
        pa.struct([("s", pa.struct([("n", pa.null())])), ("x", pa.int64())]),
        [{"s": {"n": None}, "x": 1}, {"s": None, "x": 2}, None, {"s": {"n": None}, "x": 3}],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_slices_are_cast_whole(case: str) -> None:
    source, target, values = CASES[case]
    assert has_null_child(source)
    whole = pa.array(values, source)
    for start in range(len(values)):
        for length in range(len(values) - start + 1):
            found = cast_column(whole.slice(start, length), target)
            found.validate(full=True)
            assert found.type == target
            assert found.to_pylist() == values[start : start + length]
    chunked = pa.chunked_array([whole.slice(1), whole.slice(0, 2)])
    assert cast_column(chunked, target).to_pylist() == [*values[1:], *values[:2]]


def test_an_array_that_has_the_type_is_not_touched() -> None:
    array = pa.array([{"n": None, "x": 1}], NARROW)
    assert cast_column(array, NARROW) is array


@pytest.mark.parametrize(
    "settings",
    [
        {"log_format": "v1", "properties": {"hoodie.logfile.data.block.format": "avro"}},
        {"log_format": "v1", "layout": "default"},
        {"log_format": "v2"},
        {"table_type": "cow"},
    ],
    ids=["avro", "v1", "v2", "cow"],
)
def test_tables_with_columns_that_hold_nothing(settings: dict[str, Any]) -> None:
    own = [(name, kind, values) for name, (_, kind, values) in CASES.items() if name != "list of nulls"]
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), *((name, kind) for name, kind, _ in own)])
    rows = [{"id": f"{i:02d}", "ts": i} | {name: values[i % 4] for name, _, values in own} for i in range(40)]
    target = make(schema=schema, partition_by=None, num_buckets=3, **settings)
    data = pa.Table.from_pylist(rows, schema=schema)
    target.upsert(data.slice(0, 30))
    target.upsert(pa.Table.from_batches([data.slice(3, 5).to_batches()[0], data.slice(21, 19).to_batches()[0]]))
    for _ in range(2):
        found = target.refresh().scan().to_arrow().select(schema.names).sort_by("id")
        assert found.to_pylist() == rows
        if target.config.is_mor:
            target.services.compact()
