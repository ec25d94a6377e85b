"""Arrow to Avro by columns: byte for byte what fastavro writes, and what real Hudi wrote."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import InvalidRequest
from lakebed.format.avro.columns import decode_avro_block
from lakebed.format.avro.writer import encode_frames_of, encode_records
from lakebed.format.log.block import BlockKind
from lakebed.format.log.v1 import scan_blocks
from lakebed.format.names import parse_log_file
from lakebed.model.schema import avro_to_arrow, table_avro
from tests.unit.format.record_encoders import encode_avro_block

FIXTURES = Path(__file__).parents[3] / "golden" / "fixtures"

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int32(), False),
        pa.field("n", pa.int64()),
        pa.field("t", pa.string()),
        pa.field("b", pa.binary()),
        pa.field("x", pa.binary(3)),
        pa.field("f", pa.float32()),
        pa.field("d", pa.float64()),
        pa.field("o", pa.bool_()),
        pa.field("m", pa.decimal128(10, 2)),
        pa.field("w", pa.decimal128(38, 0)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("l", pa.list_(pa.string())),
        pa.field("ll", pa.list_(pa.list_(pa.int32()))),
        pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))])),
        pa.field("p", pa.map_(pa.string(), pa.int64())),
    ]
)
JSON = json.dumps(table_avro(SCHEMA, "t"))
STORED = avro_to_arrow(JSON)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def maybe(some: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | some


ROWS = st.fixed_dictionaries(
    {
        "i": INT32,
        "n": maybe(INT64),
        "t": maybe(st.text(max_size=70)),
        "b": maybe(st.binary(max_size=5)),
        "x": maybe(st.binary(min_size=3, max_size=3)),
        "f": maybe(st.floats(width=32, allow_nan=False)),
        "d": maybe(st.floats(allow_nan=False)),
        "o": maybe(st.booleans()),
        "m": maybe(st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2))),
        "w": maybe(st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
        "day": maybe(st.integers(-(2**31), 2**31 - 1)),
        "at": maybe(INT64),
        "l": maybe(st.lists(maybe(st.text(max_size=3)), max_size=3)),
        "ll": maybe(st.lists(maybe(st.lists(maybe(INT32), max_size=2)), max_size=3)),
        "s": maybe(st.fixed_dictionaries({"a": maybe(INT32), "b": maybe(st.lists(maybe(INT64), max_size=2))})),
        "p": maybe(st.dictionaries(st.text(max_size=2), maybe(INT64), max_size=3).map(lambda d: list(d.items()))),
    }
)


def batch_of(rows: list[dict[str, object]]) -> pa.RecordBatch:
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in STORED]
    return pa.RecordBatch.from_arrays(arrays, schema=STORED)


@given(rows=st.lists(ROWS, max_size=8), cut=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_the_same_bytes_as_fastavro(rows: list[dict[str, object]], cut: int) -> None:
    batch = batch_of(rows).slice(cut)
    content = struct.pack(">ii", 3, batch.num_rows) + bytes(encode_frames_of(batch, JSON))
    assert content == encode_avro_block(pa.table(batch), JSON)
    assert decode_avro_block(content, JSON, "f", 0).to_batches()[:1] == ([batch] if batch.num_rows else [])


def golden_avro_blocks() -> Iterator[tuple[str, str, bytes]]:
    for fixture in sorted(FIXTURES.glob("*.zip")):
        with zipfile.ZipFile(fixture) as archive:
            for entry in archive.namelist():
                if not parse_log_file(entry.rpartition("/")[2]) or ".hoodie/" in entry:
                    continue
                data = archive.read(entry)
                for block in scan_blocks(lambda at, n, data=data: data[at : at + n], len(data), entry):
                    if block.kind is BlockKind.AVRO_DATA and block.schema_json:
                        content = data[block.content_offset : block.content_offset + block.content_length]
                        yield entry, block.schema_json, content


def test_the_same_bytes_as_real_hudi() -> None:
    seen = 0
    for entry, schema, content in golden_avro_blocks():
        rows = decode_avro_block(content, schema, entry, 0).combine_chunks().to_batches()
        if rows:
            assert bytes(encode_frames_of(rows[0], schema)) == content[8:], entry
            seen += 1
    assert seen > 40


def test_a_null_where_none_may_be_is_refused() -> None:
    nullable = pa.schema([field.with_nullable(True) for field in STORED])
    batch = pa.RecordBatch.from_pylist([{"n": 1}], schema=nullable)
    with pytest.raises(InvalidRequest, match="'i' must not be null"):
        encode_frames_of(batch, JSON)


@pytest.mark.parametrize(
    "item", [pa.field("element", pa.null()), pa.field("element", pa.struct([("n", pa.null())]), False)]
)
def test_lists_that_could_not_be_read_again_are_refused(item: pa.Field) -> None:
    schema = pa.schema([pa.field("l", pa.list_(item))])
    with pytest.raises(InvalidRequest, match="take no bytes"):
        encode_records(pa.RecordBatch.from_pylist([{"l": []}], schema=schema), json.dumps(table_avro(schema, "t")))


def test_a_missing_column_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no column 'i'"):
        encode_records(pa.record_batch({"n": [1]}), JSON)


def test_named_types_enums_and_odd_unions() -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
                {"name": "again", "type": ["string", "null"]},
                {"name": "same", "type": ["null", "E"]},
                {"name": "v", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
            ],
        }
    )
    batch = pa.record_batch(
        {
            "e": ["B", "A"],
            "again": [None, "x"],
            "same": ["A", None],
            "v": pa.array([Decimal("-1.50"), Decimal("99.99")], pa.decimal128(4, 2)),
        }
    )
    content = struct.pack(">ii", 3, 2) + bytes(encode_frames_of(batch, schema))
    assert decode_avro_block(content, schema, "f", 0).to_pylist() == batch.to_pylist()
    with pytest.raises(InvalidRequest, match="symbols"):
        encode_frames_of(batch.set_column(0, "e", pa.array(["C", "A"])), schema)


EMPTY = pa.struct([("n", pa.null()), ("x", pa.int64())])
HOLLOW = pa.schema(
    [
        pa.field("z", pa.null()),
        pa.field("s", EMPTY),
        pa.field("ss", pa.struct([("s", EMPTY), ("z", pa.null())])),
        pa.field("l", pa.list_(pa.field("element", EMPTY))),
        pa.field("d", pa.struct([("s", pa.struct([("n", pa.null())]))])),
        pa.field("m", pa.map_(pa.string(), EMPTY)),
        pa.field("mn", pa.map_(pa.string(), pa.null())),
    ]
)


def hollow(number: int) -> dict[str, object]:
    some = {"n": None, "x": number if number % 3 else None}
    return {
        "z": None,
        "s": some if number % 4 else None,
        "ss": {"s": some if number % 5 else None, "z": None},
        "l": [some, None, some][: number % 4],
        "d": {"s": {"n": None} if number % 3 else None} if number % 7 else None,
        "m": [(f"k{i}", some) for i in range(number % 3)],
        "mn": [(f"k{i}", None) for i in range(number % 4)] if number % 6 else None,
    }


@pytest.mark.parametrize("stored", [True, False], ids=["as stored", "with other names of elements"])
def test_a_sliced_struct_with_a_null_typed_child(stored: bool) -> None:
    schema = HOLLOW
    if not stored:
        schema = schema.set(3, pa.field("l", pa.list_(pa.field("item", EMPTY))))
        schema = schema.set(1, pa.field("s", pa.struct([("n", pa.null()), ("x", pa.int32())])))
    text = json.dumps(table_avro(HOLLOW, "t"))
    whole = pa.RecordBatch.from_pylist([hollow(i) for i in range(24)], schema=schema)
    expected = [bytes(one) for one in encode_records(whole, text).to_pylist()]
    for start in range(24):
        for length in (0, 1, 5, 24):
            part = whole.slice(start, length)
            assert encode_records(part, text).to_pylist() == expected[start : start + length]
            content = struct.pack(">ii", 3, part.num_rows) + bytes(encode_frames_of(part, text))
            assert decode_avro_block(content, text, "f", 0).to_pylist() == part.to_pylist()


@given(rows=st.lists(ROWS, min_size=1, max_size=12), start=st.integers(0, 12), length=st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_a_slice_of_every_type_is_encoded_as_its_rows(rows: list[dict[str, object]], start: int, length: int) -> None:
    whole = batch_of(rows)
    expected = encode_records(whole, JSON).to_pylist()
    assert encode_records(whole.slice(start, length), JSON).to_pylist() == expected[start:][:length]
    inner = pa.schema([pa.field("s", pa.struct(list(STORED)))])
    nested = pa.record_batch([pa.StructArray.from_arrays(whole.columns, fields=list(STORED))], schema=inner)
    text = json.dumps(table_avro(inner, "t"))
    expected = encode_records(nested, text).to_pylist()
    assert encode_records(nested.slice(start, length), text).to_pylist() == expected[start:][:length]
