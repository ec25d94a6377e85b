"""Names of Avro types: words, each for one type."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.model.avro_names import avro_name, type_names
from lakebed.model.schema import avro_to_arrow, table_avro
from tests.unit.write.tables import make

POINT = pa.struct([("x", pa.int64()), ("größe", pa.decimal128(5, 1)), ("grüße", pa.decimal128(7, 1))])
VALUE = {"x": 1, "größe": Decimal("1.5"), "grüße": Decimal("22.5")}
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "decimal": (pa.decimal128(10, 2), Decimal("1.50")),
    "fixed": (pa.binary(3), b"abc"),
    "struct": (POINT, VALUE),
    "list of struct": (pa.list_(POINT), [VALUE, None]),
    "map of struct": (pa.map_(pa.string(), POINT), [("k", VALUE)]),
}
NAMES = ("net-price", "net_price", "net price", "1", "_1", "", "_")


def test_columns_whose_names_are_words_keep_them() -> None:
    assert type_names(["a-b", "a_b", "a b", "a_b_2", "ok"]) == {
        "a_b": "a_b",
        "a_b_2": "a_b_2",
        "ok": "ok",
        "a-b": "a_b_3",
        "a b": "a_b_4",
    }
    assert type_names(["a-b", "x"]) == {"x": "x", "a-b": "a_b"}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("a_-1ä ", max_size=4), unique=True, max_size=8))
def test_no_name_is_given_twice(columns: list[str]) -> None:
    found = type_names(columns)
    assert set(found) == set(columns)
    assert len(set(found.values())) == len(columns)
    assert all(avro_name(word) == word for word in found.values())
    schema = pa.schema([pa.field(name, pa.struct([("v", pa.decimal128(4, 1))])) for name in columns])
    text = table_avro(schema, "t")
    fastavro.parse_schema(json.loads(json.dumps(text)))
    assert avro_to_arrow(text) == schema


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", ["avro", "parquet"])
def test_columns_of_one_avro_name_stay_readable(kind: str, blocks: str) -> None:
    """A list so uneven that its block takes the plain decoder, beside names that become one word."""
    data_type, value = KINDS[kind]
    fields = [("id", pa.string()), ("ts", pa.int64()), *((name, data_type) for name in NAMES)]
    schema = pa.schema([*fields, ("many", pa.list_(pa.int64()))])
    properties = {"hoodie.logfile.data.block.format": blocks}
    target = make(
        schema=schema, partition_by=None, num_buckets=1, log_format="v1", layout="default", properties=properties
    )
    rows = [
        {"id": f"{i:02d}", "ts": 1, "many": list(range(3000 if i == 7 else 1))}
        | {name: value if (i + at) % 3 else None for at, name in enumerate(NAMES)}
        for i in range(40)
    ]
    data = pa.Table.from_pylist(rows, schema=schema)
    for _ in range(2):
        target.upsert(data)
    assert target.scan().to_arrow().select(schema.names).sort_by("id").to_pylist() == data.to_pylist()
    target.services.compact()
    assert target.refresh().scan().to_arrow().select(schema.names).sort_by("id").to_pylist() == data.to_pylist()
