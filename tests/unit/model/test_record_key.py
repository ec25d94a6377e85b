"""Record keys: recomputed for golden tables, and the rules one by one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.config.read_options import TableConfig
from lakebed.errors import InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.format.table_files import parse_properties
from lakebed.model.bucket_hash import split_key
from lakebed.model.record_key import (
    LOGICAL_TIMESTAMPS,
    KeyGenerator,
    auto_keys,
    key_generator_of,
    partition_path_array,
    record_key_array,
    register_key_generator,
)
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.model.value_text import column_of
from tests.conftest import expected

WHOLE = [
    "complex_keys_mor_v9",
    "cow_hive_v9",
    "cow_key_boolean_v9",
    "cow_key_date_v9",
    "cow_key_decimal_fine_v9",
    "cow_key_decimal_v9",
    "cow_key_double_v9",
    "cow_key_float_v9",
    "cow_key_int_v9",
    "cow_key_long_v9",
    "cow_oddkeys_rli_v9",
    "cow_tskeygen_v9",
    "mor_maint_v9",
    "mor_oddkeys_complex_v8",
    "nonpart_cow_v9",
]


def config(**properties: str) -> TableConfig:
    base = {"hoodie.table.name": "t", "hoodie.table.version": "9"}
    return TableConfig.from_properties(base | {key.replace("__", "."): value for key, value in properties.items()})


def keyed(kind: str, fields: str, version: str = "9", **more: str) -> KeyGenerator:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.version": version,
        "hoodie.table.keygenerator.type": kind,
        "hoodie.table.recordkey.fields": fields,
        **more,
    }
    return key_generator_of(TableConfig.from_properties(properties))


def rows_of(path: Path) -> tuple[TableConfig, list[pa.RecordBatch]]:
    """The table's settings, and the rows of all its base files, old ones too."""
    properties = parse_properties((path / ".hoodie/hoodie.properties").read_bytes(), "hoodie.properties")
    files = [file for file in path.rglob("*.parquet") if ".hoodie" not in file.parts]
    tables = (pq.read_table(file, partitioning=None) for file in files)
    return TableConfig.from_properties(properties), [batch for table in tables for batch in table.to_batches()]


@pytest.mark.parametrize("name", WHOLE)
def test_keys_and_paths_of_golden_tables_come_out_again(name: str, golden: Callable[[str], Path]) -> None:
    settings, batches = rows_of(golden(name))
    generator = key_generator_of(settings)
    assert sum(batch.num_rows for batch in batches) > 1
    for batch in batches:
        assert record_key_array(generator, batch).to_pylist() == batch.column(RECORD_KEY).to_pylist()
        assert partition_path_array(generator, batch).to_pylist() == batch.column(PARTITION_PATH).to_pylist()


@pytest.mark.parametrize("name", ["cow_key_timestamp_v9", "cow_key_binary_v9", "cow_key_types_complex_v9"])
def test_keys_are_those_of_an_upsert(name: str, golden: Callable[[str], Path]) -> None:
    """The rows were bulk-inserted, which spells these types otherwise, and upserted: both keys are in the table."""
    settings, batches = rows_of(golden(name))
    facts = expected(name)
    upserted = {row[0] for row in facts["keys_after_upsert"]} - {row[0] for row in facts["keys_after_bulk_insert"]}
    made = {key for batch in batches for key in record_key_array(key_generator_of(settings), batch).to_pylist()}
    assert upserted and upserted <= made
    assert made <= {row[0] for row in facts["keys_after_upsert"]}


def test_timestamps_as_text_where_the_writer_says_so(golden: Callable[[str], Path]) -> None:
    settings, batches = rows_of(golden("cow_key_timestamp_logical_v9"))
    generator = key_generator_of(settings, {LOGICAL_TIMESTAMPS: "true"})
    for batch in batches:
        assert record_key_array(generator, batch).to_pylist() == batch.column(RECORD_KEY).to_pylist()


def test_a_table_that_stores_no_keys(golden: Callable[[str], Path]) -> None:
    settings, batches = rows_of(golden("cow_virtualkeys_v9"))
    generator = key_generator_of(settings)
    keys = [key for batch in batches for key in record_key_array(generator, batch).to_pylist()]
    assert sorted(keys) == sorted(row[0] for row in expected("cow_virtualkeys_v9")["snapshot"]["rows"])


def test_complex_spells_null_and_empty_and_keeps_the_order_of_fields() -> None:
    batch = pa.record_batch({"a": ["x", None, ""], "b": [None, 7, 8]})
    keys = record_key_array(keyed("COMPLEX", "b,a"), batch)
    assert keys.to_pylist() == ["b:__null__,a:x", "b:7,a:__null__", "b:8,a:__empty__"]


@pytest.mark.parametrize(
    ("kind", "version", "more", "key"),
    [
        ("COMPLEX", "9", {}, "id:5"),
        ("COMPLEX", "9", {"hoodie.write.complex.keygen.new.encoding": "true"}, "id:5"),
        ("COMPLEX", "8", {}, "id:5"),
        ("COMPLEX", "8", {"hoodie.write.complex.keygen.new.encoding": "true"}, "5"),
        ("GLOBAL_DELETE", "9", {}, "id:5"),
        ("SIMPLE", "9", {}, "5"),
        ("NON_PARTITION", "9", {}, "5"),
        ("CUSTOM", "9", {}, "5"),
        ("TIMESTAMP_AVRO", "9", {}, "5"),
    ],
)
def test_a_single_key_field(kind: str, version: str, more: dict[str, str], key: str) -> None:
    assert record_key_array(keyed(kind, "id", version, **more), pa.record_batch({"id": [5]})).to_pylist() == [key]


@pytest.mark.parametrize("kind", ["NON_PARTITION", "CUSTOM", "TIMESTAMP", "COMPLEX"])
def test_several_key_fields_are_named_in_every_kind(kind: str) -> None:
    batch = pa.record_batch({"a": [1], "b": ["x,y:z"]})
    assert record_key_array(keyed(kind, "a,b"), batch).to_pylist() == ["a:1,b:x,y:z"]


def test_types_one_by_one() -> None:
    values: dict[str, tuple[Any, str]] = {
        "i": (pa.array([-1], pa.int8()), "-1"),
        "u": (pa.array([2**63], pa.uint64()), "9223372036854775808"),
        "b": (pa.array([True]), "true"),
        "day": (pa.array([dt.date(1, 1, 1)]), "0001-01-01"),
        "dec": (pa.array([Decimal("-0.0000012345")], pa.decimal128(38, 10)), "-0.0000012345"),
        "tiny": (pa.array([Decimal("1E-10")], pa.decimal128(38, 10)), "1E-10"),
        "ms": (pa.array([5], pa.timestamp("ms", "UTC")), "5"),
        "bin": (pa.array([b"\x00\xff"], pa.large_binary()), "00ff"),
        "fixed": (pa.array([b"ab"], pa.binary(2)), "6162"),
        "dict": (pa.array(["x"]).dictionary_encode(), "x"),
        "view": (pa.array(["v"], pa.string_view()), "v"),
        "f": (pa.array([0.1], pa.float32()), "0.1"),
    }
    for name, (array, text) in values.items():
        assert record_key_array(keyed("SIMPLE", name), pa.record_batch({name: array})).to_pylist() == [text]


def test_nested_fields_by_dots() -> None:
    batch = pa.record_batch({"s": [{"a": {"b": 1}}, {"a": {"b": 2}}]})
    assert record_key_array(keyed("COMPLEX", "s.a.b"), batch).to_pylist() == ["s.a.b:1", "s.a.b:2"]
    with pytest.raises(InvalidRequest, match="null or empty in 1 of 2"):
        record_key_array(keyed("SIMPLE", "s.a.b"), pa.record_batch({"s": [{"a": {"b": 1}}, None]}))
    with pytest.raises(InvalidRequest, match="no 'c'"):
        column_of(batch, "s.c")


@pytest.mark.parametrize("kind", ["SIMPLE", "COMPLEX", "NON_PARTITION"])
def test_a_null_or_empty_key_is_refused_with_the_count(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="'id' is null or empty in 2 of 3 rows"):
        record_key_array(keyed(kind, "id"), pa.record_batch({"id": ["a", None, ""]}))


def test_a_composite_key_may_be_blank_in_part_only() -> None:
    batch = pa.record_batch({"a": [None, "x", ""], "b": pa.array([None, None, None], pa.int64())})
    with pytest.raises(InvalidRequest, match="'a', 'b' are all null or empty in 2 of 3"):
        record_key_array(keyed("COMPLEX", "a,b"), batch)


def test_what_cannot_be_a_key() -> None:
    with pytest.raises(InvalidRequest, match="list"):
        record_key_array(keyed("SIMPLE", "l"), pa.record_batch({"l": [[1]]}))
    with pytest.raises(InvalidRequest, match=r"lacks the column 'idd'.*'id'"):
        record_key_array(keyed("SIMPLE", "idd"), pa.record_batch({"id": [1]}))
    with pytest.raises(UnsupportedFormat, match="MAGIC"):
        keyed("MAGIC", "id")


def test_the_key_generator_is_inferred_where_the_table_names_none() -> None:
    plain = config(**{"hoodie__table__recordkey__fields": "a"})
    assert key_generator_of(plain).kind == "NON_PARTITION"
    one = replace(plain, partition_fields=("p",), partition_types=(None,))
    assert key_generator_of(one).kind == "SIMPLE"
    two = replace(one, partition_fields=("p", "q"), partition_types=(None, None))
    assert key_generator_of(two).kind == "COMPLEX"


def test_keys_of_ones_own() -> None:
    mine = config(
        **{"hoodie__table__keygenerator__class": "com.example.Reversed", "hoodie__table__recordkey__fields": "a"}
    )
    generator = key_generator_of(mine)
    batch = pa.record_batch({"a": ["ab", "cd"]})
    with pytest.raises(InvalidRequest, match="register_key_generator"):
        record_key_array(generator, batch)
    register_key_generator("Reversed", lambda rows: pa.array([text.as_py()[::-1] for text in rows.column("a")]))
    assert record_key_array(generator, batch).to_pylist() == ["ba", "dc"]
    register_key_generator("Reversed", lambda rows: pa.array(["x"]))
    with pytest.raises(InvalidRequest, match="a key for every row"):
        record_key_array(generator, batch)


def test_keys_made_while_writing() -> None:
    assert auto_keys("20260101000000000", 3, 10, 2).to_pylist() == ["20260101000000000_3_10", "20260101000000000_3_11"]
    generator = key_generator_of(config())
    assert generator.is_keyless
    with pytest.raises(InvalidRequest):
        record_key_array(generator, pa.record_batch({"a": [1]}))


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters=",:")), st.integers()), min_size=1))
def test_a_composite_key_can_be_taken_apart(values: list[tuple[str, int]]) -> None:
    batch = pa.record_batch({"a": [a for a, _ in values], "b": [str(b) for _, b in values]})
    keys = record_key_array(keyed("COMPLEX", "a,b"), batch).to_pylist()
    assert [dict(split_key(key)) for key in keys] == [{"a": a or "__empty__", "b": str(b)} for a, b in values]


@given(st.lists(st.none() | st.binary()))
def test_hex_of_any_bytes(values: list[bytes | None]) -> None:
    array = pa.array(values, pa.binary())
    try:
        keys = record_key_array(keyed("SIMPLE", "k"), pa.record_batch({"k": array})).to_pylist()
    except LakebedError:
        assert any(not value for value in values)
    else:
        assert keys == [value.hex() for value in values if value is not None]
