"""Contents of version 1 blocks: deletes with all wrappers, HFile values, Avro out and in again."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.avro.columns import decode_avro_block
from lakebed.format.avro.container import encode_binary
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log.block import BlockKind
from lakebed.format.log.block_content import (
    cdc_mode,
    decode_delete_block,
    decode_hfile_block,
    delete_schema,
    normalize_deletes,
)
from lakebed.format.log.v1 import scan_blocks
from lakebed.model.schema import table_avro
from tests.unit.format.record_encoders import encode_avro_block, encode_delete_block

SPACE = "org.apache.hudi.avro.model."


def deletes(*ordering: Any) -> bytes:
    """A delete block as Hudi writes it; an ordering value is None or (wrapper, value)."""
    records = []
    for number, value in enumerate(ordering):
        wrapped = None
        if value is not None:
            name, inner = value
            field = "wrappedValues" if name == "ArrayWrapper" else "value"
            if name == "ArrayWrapper":
                inner = [item and (SPACE + item[0], {"value": item[1]}) for item in inner]
            wrapped = (SPACE + name, {field: inner})
        records.append({"recordKey": f"k{number}", "partitionPath": "p", "orderingVal": wrapped})
    payload = encode_binary("HoodieDeleteRecordList", {"deleteRecordList": records})
    return struct.pack(">ii", 3, len(payload)) + payload


def decoded(kind: pa.DataType, *ordering: Any) -> list[Any]:
    table = decode_delete_block(deletes(*ordering), [pa.field("ts", kind, nullable=False)], "f", 0)
    assert table.column("_hoodie_record_key").to_pylist() == [f"k{i}" for i in range(len(ordering))]
    assert table.schema.field("ts") == pa.field("ts", kind)
    return table.column("ts").to_pylist()


def test_integer_zero_is_no_ordering_value_but_long_zero_is() -> None:
    assert decoded(pa.int64(), ("IntWrapper", 0), ("LongWrapper", 0), None, ("LongWrapper", -5)) == [None, 0, None, -5]
    assert decoded(pa.int32(), ("IntWrapper", 5), ("IntWrapper", 0)) == [5, None]
    assert decoded(pa.string(), ("IntWrapper", 0), ("StringWrapper", "0")) == [None, "0"]


@pytest.mark.parametrize(
    ("kind", "wrapped", "expected"),
    [
        (pa.bool_(), ("BooleanWrapper", True), True),
        (pa.int64(), ("IntWrapper", 7), 7),
        (pa.float32(), ("FloatWrapper", 1.5), 1.5),
        (pa.float64(), ("FloatWrapper", 1.5), 1.5),
        (pa.float64(), ("DoubleWrapper", 0.1), 0.1),
        (pa.float64(), ("LongWrapper", 3), 3.0),
        (pa.binary(), ("BytesWrapper", b"\x00\xff"), b"\x00\xff"),
        (pa.date32(), ("DateWrapper", 19000), dt.date(2022, 1, 8)),
        (pa.date32(), ("LongWrapper", 19000), dt.date(2022, 1, 8)),
        (pa.decimal128(10, 2), ("DecimalWrapper", Decimal("12.340000000000000")), Decimal("12.34")),
        (pa.decimal128(10, 2), ("LongWrapper", 12), Decimal("12.00")),
        (
            pa.timestamp("us", "UTC"),
            ("TimestampMicrosWrapper", 1),
            dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC),
        ),
        (
            pa.timestamp("ms", "UTC"),
            ("TimestampMicrosWrapper", 5000),
            dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC),
        ),
        (pa.timestamp("us"), ("LongWrapper", 1), dt.datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        (pa.time64("us"), ("TimeMicrosWrapper", dt.time(1, 2, 3, 4)), dt.time(1, 2, 3, 4)),
    ],
)
def test_wrappers_become_the_type_of_the_column(kind: pa.DataType, wrapped: Any, expected: Any) -> None:
    assert decoded(kind, wrapped, None) == [expected, None]


def test_several_ordering_fields() -> None:
    ordering = [pa.field("ts", pa.int64()), pa.field("seq", pa.int32()), pa.field("s", pa.string())]
    values = ("ArrayWrapper", [("LongWrapper", 11), ("IntWrapper", 0), None])
    table = decode_delete_block(deletes(values, ("IntWrapper", 0), None), ordering, "f", 0)
    assert table.select(["ts", "seq", "s"]).to_pylist() == [
        {"ts": 11, "seq": 0, "s": None},  # inside an array an integer 0 is a value
        {"ts": None, "seq": None, "s": None},
        {"ts": None, "seq": None, "s": None},
    ]
    with pytest.raises(CorruptTable):
        decode_delete_block(deletes(values), ordering[:2], "f", 0)
    assert decode_delete_block(deletes(values), [], "f", 0).column_names == ["_hoodie_record_key"]


def test_golden_deletes(golden: Callable[[str], Path]) -> None:
    values: set[Any] = set()
    for path in sorted(golden("mor_deletes_v9").rglob(".*.log.*")):
        data = path.read_bytes()
        for block in scan_blocks(lambda at, count, data=data: data[at : at + count], len(data), path.name):
            if block.kind is BlockKind.DELETE and ".hoodie" not in path.as_posix():
                content = data[block.content_offset : block.content_offset + block.content_length]
                table = decode_delete_block(content, [pa.field("ts", pa.int64())], path.name, block.content_offset)
                values |= set(table.column("ts").to_pylist())
                again = encode_delete_block(table, "p")
                assert decode_delete_block(again, [pa.field("ts", pa.int64())], "f", 0).equals(table)
    assert {None, 20} <= values


def test_deletes_that_cannot_be_read() -> None:
    good = deletes(("LongWrapper", 1))
    for version in (1, 2, 4):
        with pytest.raises(UnsupportedFormat) as caught:
            decode_delete_block(struct.pack(">i", version) + good[4:], [], "f", 77)
        assert caught.value.offset == 77
    for bad in (b"", good[:-1], good + b"\x00", good[:8], good[:4] + b"\x7f\xff\xff\xff" + good[8:]):
        with pytest.raises(CorruptTable):
            decode_delete_block(bad, [], "f", 0)
    nameless = encode_binary("HoodieDeleteRecordList", {"deleteRecordList": [{"recordKey": None}]})
    with pytest.raises(CorruptTable):
        decode_delete_block(struct.pack(">ii", 3, len(nameless)) + nameless, [], "f", 0)
    with pytest.raises(CorruptTable):
        decoded(pa.int64(), ("StringWrapper", "x"))
    with pytest.raises(CorruptTable):
        decoded(pa.decimal128(4, 2), ("DecimalWrapper", Decimal("1.234")))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, -(2**63)], pa.int64()),
        pa.array([1, None, 2], pa.int32()),
        pa.array(["x", None, "é"]),
        pa.array([1.5, None, 2.5], pa.float64()),
        pa.array([Decimal("1.25"), None, Decimal("-3.50")], pa.decimal128(12, 2)),
        pa.array([1, None, 2], pa.int32()).cast(pa.date32()),
        pa.array([1, None, 2], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([1, None, 2], pa.int64()).cast(pa.timestamp("ms")),
        pa.array([True, None, False]),
        pa.array([b"a", None, b"\xff"], pa.binary()),
    ],
)
def test_written_deletes_come_back(values: pa.Array) -> None:
    field = pa.field("ts", values.type)
    table = pa.Table.from_arrays([pa.array(["a", "b", "c"]), values], schema=delete_schema([field]))
    assert decode_delete_block(encode_delete_block(table, "p"), [field], "f", 0).equals(table)
    two = table.append_column(pa.field("seq", pa.int64()), pa.array([0, None, 5]))
    ordering = [field, pa.field("seq", pa.int64())]
    assert decode_delete_block(encode_delete_block(two, "p"), ordering, "f", 0).equals(two)


def test_ordering_types_that_deletes_cannot_carry() -> None:
    with pytest.raises(InvalidRequest):
        encode_delete_block(pa.table({"_hoodie_record_key": ["a"], "l": [[1]]}), "p")
    wide = pa.array([Decimal("1e25")], pa.decimal128(38, 2))
    with pytest.raises(InvalidRequest):
        encode_delete_block(pa.table({"_hoodie_record_key": ["a"], "d": wide}), "p")


def test_native_deletes_need_keys() -> None:
    ordering = [pa.field("ts", pa.int64())]
    with pytest.raises(CorruptTable):
        normalize_deletes(pa.RecordBatch.from_pydict({"ts": [1]}), ordering, "f")
    with pytest.raises(CorruptTable):
        normalize_deletes(pa.RecordBatch.from_pydict({"record_key": pa.array([None], pa.string())}), ordering, "f")
    missing = normalize_deletes(pa.RecordBatch.from_pydict({"_hoodie_record_key": ["a"]}), ordering, "f")
    assert missing.to_pylist() == [{"_hoodie_record_key": "a", "ts": None}]


def test_avro_blocks_out_and_in() -> None:
    schema = pa.schema(
        [
            pa.field("_hoodie_record_key", pa.string()),
            pa.field("ts", pa.timestamp("us", "UTC")),
            pa.field("day", pa.date32(), False),
            pa.field("amount", pa.decimal128(20, 3)),
            pa.field("tags", pa.list_(pa.field("element", pa.string()))),
            pa.field("props", pa.map_(pa.string(), pa.field("value", pa.int64()))),
            pa.field("inner", pa.struct([pa.field("at", pa.timestamp("us")), pa.field("raw", pa.binary())])),
        ]
    )
    rows = [
        {
            "_hoodie_record_key": "k",
            "ts": 2**62,
            "day": 5,
            "amount": Decimal("-7.125"),
            "tags": ["a", None],
            "props": [("x", 1), ("y", None)],
            "inner": {"at": -1, "raw": b"\x00"},
        },
        {"_hoodie_record_key": None, "ts": None, "day": 0, "amount": None, "tags": None, "props": None, "inner": None},
    ]
    table = pa.Table.from_pylist(rows, schema)
    avro = json.dumps(table_avro(schema, "t"))
    again = decode_avro_block(encode_avro_block(table, avro), avro, "f", 0)
    assert again.equals(table)


def test_hfile_blocks_get_their_keys_back() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "key", "type": "string"}, {"name": "v", "type": ["null", "long"]}],
    }
    parsed = {**schema}
    values = [encode_binary(parsed, {"key": "", "v": v}) for v in (1, None, 3)]
    entries = list(zip([b"a", b"b", "é".encode()], values, strict=True))
    data = write_hfile(entries, schema_json=json.dumps(schema))
    reader = HFileReader(lambda at, count: data[at : at + count], len(data), "f")
    batch = decode_hfile_block(reader, json.dumps(schema), "f", 0)
    assert batch.to_pydict() == {"key": ["a", "b", "é"], "v": [1, None, 3]}
    assert decode_hfile_block(reader, json.dumps(schema), "f", 0, columns=["v"]).to_pydict() == {"v": [1, None, 3]}


def test_cdc_modes() -> None:
    assert cdc_mode(["op", "record_key"]) == "OP_KEY_ONLY"
    assert cdc_mode(["op", "record_key", "before"]) == "DATA_BEFORE"
    assert cdc_mode(["op", "ts_ms", "before", "after"]) == "DATA_BEFORE_AFTER"
