"""Columns as SQL text: the types of Spark, and a place named where the text cannot be read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRequest
from lakebed.model.ddl import ddl_schema

UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("string", pa.string()),
        ("STRING", pa.string()),
        ("varchar(10)", pa.string()),
        ("int", pa.int32()),
        ("integer", pa.int32()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("smallint", pa.int16()),
        ("short", pa.int16()),
        ("tinyint", pa.int8()),
        ("byte", pa.int8()),
        ("boolean", pa.bool_()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("decimal(5)", pa.decimal128(5, 0)),
        ("decimal", pa.decimal128(10, 0)),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ltz", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("binary", pa.binary()),
        ("array<string>", pa.list_(pa.string())),
        ("map<string, array<int>>", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("struct<a: int, b: struct<c: timestamp>>", pa.struct([("a", pa.int32()), ("b", pa.struct([("c", UTC)]))])),
        ("struct<a int>", pa.struct([("a", pa.int32())])),
    ],
)
def test_types(text: str, kind: pa.DataType) -> None:
    assert ddl_schema(f"a {text}") == pa.schema([("a", kind)])


def test_columns() -> None:
    found = ddl_schema("id string NOT NULL COMMENT 'the key', `odd name` int, -- a remark\n s struct<x: int NOT NULL>")
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    assert found == pa.schema([pa.field("id", pa.string(), nullable=False), ("odd name", pa.int32()), ("s", inner)])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("id strin", "character 4, near 'strin'"),
        ("id string, qty", "'qty' is not a column"),
        ("id string,, b int", "character 11"),
        ("id string,", "missing at the end"),
        ("", "missing at the end"),
        ("id string) USING x", "character 19"),
        ("id string) PARTITIONED BY (p", "not a list of columns"),
        ("id string); DROP TABLE t", "character|list of columns"),
        ("id string, PRIMARY KEY (id)", "PRIMARY KEY"),
        ("id int DEFAULT 3", "'id' cannot be 'DEFAULT 3'"),
        ("a array<int", "character 12"),
        ("a decimal(50, 2)", r"'a' is decimal\(50, 2\)"),
        ("a decimal(5, 7)", r"decimal\(5, 7\)"),
        ("a struct<b: variant>", r"'a\.b' is 'VARIANT'"),
        ("a 'text", "columns"),
    ],
)
def test_bad_text(text: str, where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        ddl_schema(text)
