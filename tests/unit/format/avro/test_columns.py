"""The columnar Avro decoder against fastavro, on made-up schemas and records and on damaged bytes."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from fastavro.schema import SchemaParseException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, LakebedError, UnsupportedFormat
from lakebed.format.avro import by_record, readers
from lakebed.format.avro import columns as avro_columns
from lakebed.format.avro.by_record import bare_schema, decode_plain
from lakebed.format.avro.columns import avro_batches, decode_avro_block, decode_values
from lakebed.format.avro.cursor import Records
from lakebed.format.avro.writer import encode_records
from lakebed.model.schema import avro_to_arrow, load_avro, table_avro
from tests.unit.format.record_encoders import encode_frames

LONG = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200))
INT = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-70, 70))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)


def leaves(number: int) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """Avro leaf types with a strategy for values as fastavro writes them under a schema without logical types."""

    def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
        return st.integers(-(10**precision) + 1, 10**precision - 1).map(lambda n: Decimal(n).scaleb(-scale))

    decimal = {"logicalType": "decimal", "precision": 21, "scale": 4}
    return st.sampled_from(
        [
            ("null", st.none()),
            ("boolean", st.booleans()),
            ("int", INT),
            ("long", LONG),
            ("float", st.floats(width=32, allow_nan=False)),
            ("double", st.floats(allow_nan=False)),
            ("string", TEXT),
            ("bytes", st.binary(max_size=20)),
            ({"type": "int", "logicalType": "date"}, st.integers(-100000, 100000)),
            ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999)),
            ({"type": "long", "logicalType": "time-micros"}, st.integers(0, 86_399_999_999)),
            ({"type": "long", "logicalType": "timestamp-micros"}, LONG),
            ({"type": "long", "logicalType": "timestamp-millis"}, LONG),
            ({"type": "long", "logicalType": "local-timestamp-micros"}, LONG),
            ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
            ({"type": "bytes", **decimal}, decimals(21, 4)),
            ({"type": "fixed", "name": f"dec{number}", "size": 10, **decimal}, decimals(21, 4)),
            ({"type": "fixed", "name": f"fix{number}", "size": 5}, st.binary(min_size=5, max_size=5)),
            ({"type": "enum", "name": f"en{number}", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
        ]
    )


@st.composite
def avro_types(draw: st.DrawFn, counter: list[int], depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    counter[0] += 1
    number = counter[0]
    reader_context = draw(
        st.sampled_from(["leaf", "leaf", "nullable", "nullable", "array", "map", "record"] if depth else ["leaf"])
    )
    if reader_context == "leaf":
        return draw(leaves(number))
    inner, values = draw(avro_types(counter, depth - 1))
    if reader_context == "nullable":
        if inner == "null" or isinstance(inner, list):
            return inner, values
        return draw(st.sampled_from([["null", inner], [inner, "null"]])), st.none() | values
    if reader_context == "record":
        fields = {"f0": (inner, values), "f1": draw(avro_types(counter, depth - 1))}
        schema = {
            "type": "record",
            "name": f"rec{number}",
            "fields": [{"name": name, "type": kind} for name, (kind, _) in fields.items()],
        }
        return schema, st.fixed_dictionaries({name: value for name, (_, value) in fields.items()})
    if inner == "null":
        inner, values = "long", LONG
    if isinstance(inner, dict) and inner.get("type") == "record":
        inner = ["null", inner]  # a record of nulls takes no bytes
    if reader_context == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=5)
    return {"type": "map", "values": inner}, st.dictionaries(TEXT, values, max_size=4)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    counter = [0]
    columns = draw(st.lists(avro_types(counter), min_size=1, max_size=5))
    schema = {
        "type": "record",
        "name": "row",
        "namespace": "a.b",
        "fields": [{"name": f"c{i}", "type": kind} for i, (kind, _) in enumerate(columns)],
    }
    rows = draw(st.lists(st.fixed_dictionaries({f"c{i}": values for i, (_, values) in enumerate(columns)}), max_size=8))
    parsed = bare_schema(schema)
    records = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        records.append(stream.getvalue())
    return json.dumps(schema), records


def plainly(schema_json: str, records: list[bytes]) -> pa.Table:
    """What fastavro says."""
    ends = np.cumsum([len(record) for record in records], dtype=np.int64)
    starts = ends - np.array([len(record) for record in records], dtype=np.int64)
    schema = avro_to_arrow(schema_json)
    arrays = decode_plain(Records(b"".join(records), starts, ends, "f", 0), schema_json, schema)
    return pa.Table.from_arrays(arrays, schema=schema)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(blocks())
def test_the_vector_decoder_agrees_with_fastavro(block: tuple[str, list[bytes]]) -> None:
    schema_json, records = block
    table = decode_avro_block(encode_frames(records), schema_json, "f", 0)
    table.validate(full=True)
    assert table.schema == avro_to_arrow(schema_json)
    assert table.equals(plainly(schema_json, records))
    one = decode_avro_block(encode_frames(records), schema_json, "f", 0, columns=["c0"])
    assert one.equals(table.select(["c0"]))
    assert pa.Table.from_batches([decode_values(records, schema_json, "f", 0)]).equals(table.combine_chunks())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(blocks(), st.data())
def test_damage_is_corrupt_or_a_valid_table(block: tuple[str, list[bytes]], data: st.DataObject) -> None:
    schema_json, records = block
    content = bytearray(encode_frames(records))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    try:
        decode_avro_block(bytes(content), schema_json, "f", 0).validate(full=True)
    except LakebedError as error:
        assert error.file == "f"


@pytest.mark.parametrize(("kind", "most"), [("time-millis", 86_400_000), ("time-micros", 86_400_000_000)])
def test_a_time_beyond_the_day_is_corrupt(kind: str, most: int) -> None:
    schema = schema_of({"type": "int" if kind == "time-millis" else "long", "logicalType": kind})
    for value in (-1, most):
        with pytest.raises(LakebedError, match="not within a day"):
            decode_avro_block(encode_frames([zigzag(value)]), schema, "f", 0)
    assert decode_avro_block(encode_frames([zigzag(most - 1)]), schema, "f", 0).num_rows == 1


def schema_of(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": kind}]})


def zigzag(number: int) -> bytes:
    value, out = (number << 1) ^ (number >> 63), bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def column(kind: Any, *records: bytes) -> list[Any]:
    return decode_avro_block(encode_frames(records), schema_of(kind), "f", 0).column("c").to_pylist()


def test_numbers_of_every_length() -> None:
    numbers = [sign * (1 << bits) + nudge for bits in range(63) for sign in (1, -1) for nudge in (-1, 0)]
    numbers += [2**63 - 1, -(2**63), 0]
    assert column("long", *map(zigzag, numbers)) == numbers


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("long", b"\x80" * 10 + b"\x01"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\x80"),
        ("long", b""),
        ("int", zigzag(2**31)),
        ("boolean", b"\x02"),
        ("double", b"\x00" * 7),
        ("string", b"\x06ab"),
        ("string", zigzag(-1) + b"a"),
        ("string", b"\x02\xff"),
        (["null", "long"], b"\x04"),
        (["null", "long"], b"\x01"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02"),
        ({"type": "array", "items": "long"}, zigzag(2**62)),
        ({"type": "array", "items": "double"}, zigzag(2**40) + b"\x00" * 40),
        ({"type": "array", "items": "long"}, zigzag(-(2**63)) + b"\x00\x00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, b"\x08\x7f\xff\xff\xff"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, b"\x22\x01" + b"\x00" * 16),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, b"\x22\x00\xff" + b"\x00" * 15),
        ("long", b"\x02\x02"),
    ],
)
def test_impossible_records_are_corrupt(kind: Any, record: bytes) -> None:
    with pytest.raises(CorruptTable) as caught:
        column(kind, record)
    assert caught.value.file == "f" and caught.value.offset is not None


def test_decimals_may_be_padded() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    assert column(kind, b"\x28" + b"\xff" * 20, b"\x28" + b"\x00" * 19 + b"\x07", b"\x00") == [
        Decimal("-0.01"),
        Decimal("0.07"),
        Decimal("0.00"),
    ]


def test_arrays_in_several_blocks_and_with_sizes() -> None:
    items = {"type": "array", "items": "long"}
    split = zigzag(2) + zigzag(1) + zigzag(2) + zigzag(1) + zigzag(3) + b"\x00"
    sized = zigzag(-2) + zigzag(2) + zigzag(4) + zigzag(5) + b"\x00"
    assert column(items, split, b"\x00", sized) == [[1, 2, 3], [], [4, 5]]
    doubles = {"type": "array", "items": "double"}
    one, two = struct.pack("<d", 1.0), struct.pack("<d", 2.0)
    assert column(doubles, zigzag(1) + one + zigzag(-1) + zigzag(8) + two + b"\x00", b"\x00") == [[1.0, 2.0], []]


def test_uneven_arrays_are_left_to_the_plain_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_WASTE", 1000)
    schema = schema_of({"type": "array", "items": ["null", "string"]})
    long = b"".join((zigzag(300), *(b"\x02\x02x" for _ in range(300)), b"\x00"))
    records = [b"\x00", long]
    calls = []
    monkeypatch.setattr(avro_columns, "decode_plain", lambda *args: calls.append(1) or decode_plain(*args))
    table = decode_avro_block(encode_frames(records), schema, "f", 0)
    assert table.column("c").to_pylist() == [[], ["x"] * 300]
    assert calls == [1]


def test_blocks_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_columns, "CHUNK_BYTES", 64)
    records = [zigzag(len(text)) + text for text in (b"a" * (i % 50) + b"z" * 200 * (i % 7 == 0) for i in range(90))]
    content = encode_frames(records)
    reads: list[int] = []

    def read(at: int, count: int) -> bytes:
        reads.append(count)
        return content[at : at + count]

    batches = list(avro_batches(read, len(content), schema_of("string"), "f", 0, batch_rows=7))
    values = [value for batch in batches for value in batch.column(0).to_pylist()]
    assert values == [record[1 if len(record) < 65 else 2 :].decode() for record in records]
    assert max(batch.num_rows for batch in batches) == 7
    assert sum(reads) == len(content)


def test_frames_that_lie() -> None:
    schema = schema_of("long")
    good = encode_frames([b"\x02", b"\x04"])
    for bad in (
        good[:-1],
        good + b"\x00",
        good[:4] + struct.pack(">i", 3) + good[8:],
        good[:4] + b"\xff" * 4 + good[8:],
    ):
        with pytest.raises(CorruptTable):
            decode_avro_block(bad, schema, "f", 0)
    with pytest.raises(UnsupportedFormat):
        decode_avro_block(struct.pack(">ii", 2, 0), schema, "f", 0)
    with pytest.raises(CorruptTable):
        decode_avro_block(struct.pack(">iii", 3, 1, -1), schema, "f", 0)
    assert decode_avro_block(struct.pack(">ii", 3, 0), schema, "f", 0).num_rows == 0
    assert decode_avro_block(good, schema, "f", 0, columns=[]).num_columns == 0


def test_schemas_without_an_arrow_type_are_refused() -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        column(["null", "long", "string"], b"\x00")
    assert caught.value.file == "f"
    with pytest.raises(UnsupportedFormat):
        column({"type": "array", "items": "null"}, zigzag(1 << 40))
    with pytest.raises(CorruptTable):
        decode_avro_block(encode_frames([]), "[]", "f", 0)


def test_named_types_are_found_again() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "namespace": "x",
        "fields": [
            {"name": "a", "type": {"type": "record", "name": "p", "fields": [{"name": "v", "type": "long"}]}},
            {"name": "b", "type": ["null", "p"]},
            {"name": "c", "type": {"type": "array", "items": "x.p"}},
        ],
    }
    table = decode_avro_block(encode_frames([b"\x02\x02\x04\x02\x06\x00"]), json.dumps(schema), "f", 0)
    assert table.to_pylist() == [{"a": {"v": 1}, "b": {"v": 2}, "c": [{"v": 3}]}]
    assert load_avro(json.dumps(schema))["name"] == "r"


def test_types_of_one_name_are_told_apart_by_the_plain_decoder() -> None:
    """Blocks with such a schema were committed: the names of two columns may differ in characters Avro has not."""

    def fixed(size: int) -> dict[str, object]:
        return {"type": "fixed", "name": "fixed", "namespace": "t.net_price", "size": size}

    record = {"type": "record", "name": "net_price", "namespace": "t", "fields": [{"name": "x", "type": "int"}]}
    again = {**record, "fields": [{"name": "y", "type": "string"}]}
    fields = [("net-price", fixed(1)), ("net_price", fixed(2)), ("a-b", record), ("a_b", again), ("c", "t.net_price")]
    schema = json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    )
    records = [b"A" + b"BC" + zigzag(7) + zigzag(1) + b"d" + zigzag(1) + b"e"]
    expected = [{"net-price": b"A", "net_price": b"BC", "a-b": {"x": 7}, "a_b": {"y": "d"}, "c": {"y": "e"}}]
    assert plainly(schema, records).to_pylist() == expected
    assert decode_avro_block(encode_frames(records), schema, "f", 0).to_pylist() == expected


def test_a_record_named_like_a_primitive_does_not_hide_it_from_the_plain_decoder() -> None:
    columns = pa.schema(
        [("string", pa.struct([("a", pa.int64())])), ("after", pa.struct([("z", pa.string()), ("n", pa.int64())]))]
    )
    rows = [{"string": {"a": 1}, "after": {"z": "x", "n": 5}}, {"string": None, "after": {"z": None, "n": None}}]
    schema_json = json.dumps(table_avro(columns, "t"))
    records = encode_records(pa.RecordBatch.from_pylist(rows, columns), schema_json).to_pylist()
    assert plainly(schema_json, records).to_pylist() == rows


def test_a_schema_that_the_plain_decoder_cannot_parse_is_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_record, "parse_schema", _refuse)
    with pytest.raises(CorruptTable, match="not readable"):
        plainly(schema_of("int"), [zigzag(1)])


def _refuse(_schema: object) -> None:
    raise SchemaParseException("redefined named type")
