"""Which writes may change a table's schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRequest
from lakebed.model.schema import with_meta_fields
from lakebed.model.schema_change import evolve

TABLE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("st", pa.struct([("a", pa.int32())])),
        ("tags", pa.list_(pa.field("element", pa.int32()))),
    ]
)


def replaced(name: str, data_type: pa.DataType) -> pa.Schema:
    return TABLE.set(TABLE.get_field_index(name), pa.field(name, data_type))


def test_the_same_schema_stays() -> None:
    assert evolve(TABLE, TABLE) == TABLE
    assert evolve(with_meta_fields(TABLE), with_meta_fields(TABLE)) == TABLE


def test_columns_are_added_at_the_end_and_nullable() -> None:
    incoming = pa.schema([pa.field("new", pa.int64(), nullable=False), *TABLE])
    assert evolve(TABLE, incoming) == pa.schema([*TABLE, pa.field("new", pa.int64())])


@pytest.mark.parametrize("wider", [pa.int64(), pa.float32(), pa.float64()])
def test_numbers_widen(wider: pa.DataType) -> None:
    assert evolve(TABLE, replaced("n", wider)).field("n").type == wider


@pytest.mark.parametrize(
    ("name", "narrow"),
    [
        ("x", pa.int32()),
        ("x", pa.int64()),
        ("n", pa.int8()),
        ("n", pa.null()),
        ("at", pa.timestamp("ms", "Europe/Berlin")),
        ("price", pa.decimal128(5, 2)),
        ("price", pa.decimal128(8, 0)),
        ("id", pa.large_string()),
    ],
)
def test_narrower_data_leaves_the_table_as_it_is(name: str, narrow: pa.DataType) -> None:
    assert evolve(TABLE, replaced(name, narrow)) == TABLE


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("id", pa.int64()),
        ("id", pa.binary()),
        ("n", pa.string()),
        ("at", pa.timestamp("us")),
        ("at", pa.int64()),
        ("price", pa.decimal128(12, 2)),
        ("price", pa.decimal128(10, 3)),
        ("st", pa.string()),
        ("st", pa.struct([("a", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ],
)
def test_other_types_are_refused_with_both_types_named(name: str, other: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match=f"'{name}"):
        evolve(TABLE, replaced(name, other))


def test_nested_changes() -> None:
    incoming = replaced("st", pa.struct([("b", pa.string()), ("a", pa.int64())]))
    assert evolve(TABLE, incoming).field("st").type == pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert evolve(TABLE, replaced("tags", pa.list_(pa.float64()))).field("tags").type.value_type == pa.float64()


def test_missing_columns_need_a_partial_update() -> None:
    incoming = pa.schema([("id", pa.string()), ("n", pa.int64())])
    with pytest.raises(InvalidRequest, match="lacks the column 'x'"):
        evolve(TABLE, incoming)
    assert evolve(TABLE, incoming, allow_missing=True).field("n").type == pa.int64()


def test_case_twins_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="only by case"):
        evolve(TABLE, pa.schema([*TABLE, ("N", pa.int32())]))
