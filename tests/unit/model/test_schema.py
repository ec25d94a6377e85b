"""Avro <-> Arrow, on the schemas real Hudi wrote and on hand-made ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.model.avro_types import decimal_bytes
from lakebed.model.schema import (
    META_FIELD_NAMES,
    arrow_to_avro,
    avro_to_arrow,
    column_defaults,
    is_meta_field,
    stored_schema,
    table_avro,
    with_meta_fields,
    without_meta_fields,
)

TABLES = ["cow_hive_v9", "mor_nested_evo_avro_v9", "cow_key_types_complex_v9", "mor_schema_evo_v9"]


def base_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.parquet") if ".hoodie" not in path.parts]


@pytest.mark.parametrize("name", TABLES)
def test_the_schema_in_a_real_footer_survives_the_round_trip(golden: Callable[[str], Path], name: str) -> None:
    seen = 0
    for path in base_files(golden(name)):
        raw = (pq.read_schema(path).metadata or {}).get(b"parquet.avro.schema")
        if raw is None:
            continue
        seen += 1
        avro = json.loads(raw)
        arrow = avro_to_arrow(raw)
        assert arrow_to_avro(arrow, avro["name"], avro["namespace"]) == avro
        assert table_avro(arrow, avro["namespace"].partition(".")[2]) == avro
        assert tuple(arrow.names[:5]) == META_FIELD_NAMES
    assert seen


def test_every_kind_of_column(golden: Callable[[str], Path]) -> None:
    path = base_files(golden("cow_hive_v9"))[0]
    raw = pq.read_schema(path).metadata[b"parquet.avro.schema"]
    schema = without_meta_fields(avro_to_arrow(raw))
    assert {field.name: field.type for field in schema} == {
        "id": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "country": pa.string(),
        "day": pa.date32(),
        "b": pa.bool_(),
        "i": pa.int32(),
        "dec": pa.decimal128(10, 2),
        "fl": pa.float32(),
        "bin": pa.binary(),
        "arr": pa.list_(pa.field("element", pa.string())),
        "m": pa.map_(pa.string(), pa.int64()),
        "st": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    }
    assert all(field.nullable for field in schema)


def record(*fields: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": list(fields), **extra}


def one(avro: Any) -> pa.Field:
    return avro_to_arrow(record({"name": "c", "type": avro})).field("c")


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 7}, pa.binary(7)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}, pa.decimal128(5, 1)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, pa.decimal128(5, 0)),
        ({"type": "int", "logicalType": "made-up"}, pa.int32()),
        ({"type": "array", "items": "long"}, pa.list_(pa.field("element", pa.int64(), False))),
        ({"type": {"type": "string"}}, pa.string()),
        ("null", pa.null()),
    ],
)
def test_types(avro: Any, arrow: pa.DataType) -> None:
    assert str(one(avro).type) == str(arrow)


def test_nullability_follows_the_union() -> None:
    assert not one("long").nullable
    assert one(["null", "long"]).nullable
    assert one(["long", "null"]).nullable
    assert not one(["long"]).nullable


def test_a_named_type_is_used_twice() -> None:
    money = {"type": "fixed", "name": "money", "namespace": "x", "size": 5, "logicalType": "decimal", "precision": 9}
    schema = avro_to_arrow(record({"name": "a", "type": money}, {"name": "b", "type": ["null", "x.money"]}))
    assert schema.field("b").type == pa.decimal128(9, 0)


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("{", CorruptTable),
        ("[]", CorruptTable),
        ("[" * 100_000, CorruptTable),
        (record({"name": "a"}), CorruptTable),
        ('{"type":"record","name":"r","fields":[{"name":"\\ud800","type":"int"}]}', CorruptTable),
        (record({"name": "a", "type": "nope"}), CorruptTable),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), CorruptTable),
        (record({"name": "a", "type": {"type": "fixed", "name": "f", "size": -1}}), CorruptTable),
        (record({"name": "a", "type": ["int", "string"]}), UnsupportedFormat),
        (record({"name": "a", "type": ["null", "r"]}), UnsupportedFormat),
        (
            record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50}}),
            UnsupportedFormat,
        ),
    ],
)
def test_bad_schemas_are_refused(schema: Any, error: type[LakebedError]) -> None:
    with pytest.raises(error):
        avro_to_arrow(schema)


def test_a_schema_nested_without_end_is_refused() -> None:
    deep: Any = "int"
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    with pytest.raises(CorruptTable):
        one(deep)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "name", "fields", "items", "values", "size", "logicalType", "precision"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_any_json_gives_a_schema_or_a_lakebed_error(value: Any) -> None:
    try:
        avro_to_arrow(record({"name": "c", "type": value}))
    except LakebedError:
        return


def test_meta_fields_are_put_first_once() -> None:
    schema = pa.schema([("id", pa.string())])
    full = with_meta_fields(schema, operation=True)
    assert full.names == [*META_FIELD_NAMES, "_hoodie_operation", "id"]
    assert with_meta_fields(full).names == [*META_FIELD_NAMES, "id"]
    assert without_meta_fields(full) == schema
    assert not is_meta_field("_hoodie_is_deleted")


def test_defaults_are_values_of_the_column() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    schema = record(
        {"name": "a", "type": ["null", "int"], "default": None},
        {"name": "b", "type": "string", "default": "x"},
        {"name": "c", "type": {"type": "int", "logicalType": "date"}, "default": 1},
        {"name": "d", "type": decimal, "default": "\u0000\u0096"},
        {"name": "e", "type": "bytes", "default": "\u00ff"},
        {"name": "f", "type": "int"},
    )
    defaults = column_defaults(schema)
    assert defaults["a"] is None
    assert defaults["b"] == "x"
    assert str(defaults["c"]) == "1970-01-02"
    assert defaults["d"] == Decimal("1.50")
    assert defaults["e"] == b"\xff"
    assert "f" not in defaults


def test_a_default_turns_the_union_round() -> None:
    avro = arrow_to_avro(pa.schema([("a", pa.string())]), "r", defaults={"a": "x"})
    assert avro["fields"] == [{"name": "a", "type": ["string", "null"], "default": "x"}]


@pytest.mark.parametrize(("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (18, 8), (19, 9), (38, 16)])
def test_decimal_width_is_the_smallest(precision: int, size: int) -> None:
    assert decimal_bytes(precision) == size
    assert 10**precision - 1 < 1 << (size * 8 - 1)


def test_what_is_stored_is_the_plain_form() -> None:
    schema = pa.schema(
        [
            ("a", pa.uint32()),
            ("b", pa.int8()),
            ("c", pa.dictionary(pa.int8(), pa.large_string())),
            ("d", pa.large_list(pa.float16())),
            ("e", pa.timestamp("ns", "Europe/Berlin")),
            ("f", pa.date64()),
            ("g", pa.decimal256(20, 3)),
        ]
    )
    assert [str(kind) for kind in stored_schema(schema).types] == [
        "int64",
        "int32",
        "string",
        "list<element: float>",
        "timestamp[us, tz=UTC]",
        "date32[day]",
        "decimal128(20, 3)",
    ]


@pytest.mark.parametrize("bad", [pa.uint64(), pa.duration("s"), pa.map_(pa.int32(), pa.int32()), pa.decimal256(50, 0)])
def test_types_without_a_place_are_refused_by_name(bad: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match="'c'"):
        arrow_to_avro(pa.schema([("c", bad)]), "r")
