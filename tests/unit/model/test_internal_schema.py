"""Schema on read: ids through renames, drops, nested changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, LakebedError, UnsupportedFormat
from lakebed.model.internal_schema import parse_internal_schema, parse_schema_history, renames


def field(number: int, name: str, kind: Any, optional: bool = True) -> dict[str, Any]:
    return {"id": number, "name": name, "optional": optional, "type": kind}


def schema(version: int, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"max_column_id": 99, "version_id": version, "type": "record", "fields": list(fields)}


def test_the_golden_history(golden: Callable[[str], Path]) -> None:
    folder = golden("mor_schema_evo_v9") / ".hoodie" / ".schema"
    history = parse_schema_history(max(folder.glob("*_*.schemacommit")).read_bytes())
    assert [version.version for version in history.versions] == [
        0,
        20261115103114158,
        20261115103114525,
        20261115103116335,
        20261115103116691,
    ]
    assert history.latest.ids["label"] == history.versions[0].ids["txt"] == 8
    assert history.latest.arrow.names[5:] == ["id", "ts", "v", "label", "p", "extra"]
    at = history.at("20261115103115300")
    assert at is not None
    assert at.version == 20261115103114525
    assert renames(at, history.latest) == {"label": "txt"}


def test_nested_ids() -> None:
    before = parse_internal_schema(
        json.dumps(
            schema(
                1,
                field(0, "s", {"type": "record", "fields": [field(1, "a", "int"), field(2, "b", "string")]}),
                field(3, "l", {"type": "array", "element_id": 4, "element_optional": False,
                               "element": {"type": "record", "fields": [field(5, "x", "decimal(10, 2)")]}}),
                field(6, "m", {"type": "map", "key_id": 7, "key": "string", "value_id": 8, "value_optional": True,
                               "value": {"type": "record", "fields": [field(9, "q", "fixed[4]")]}}),
                field(10, "gone", "double"),
            )
        )
    )  # fmt: skip
    now = parse_internal_schema(
        json.dumps(
            schema(
                2,
                field(0, "t", {"type": "record", "fields": [field(2, "b2", "string"), field(11, "a", "long")]}),
                field(3, "l", {"type": "array", "element_id": 4, "element_optional": False,
                               "element": {"type": "record", "fields": [field(5, "y", "decimal(10, 2)")]}}),
                field(6, "m", {"type": "map", "key_id": 7, "key": "string", "value_id": 8, "value_optional": True,
                               "value": {"type": "record",
                                         "fields": [field(9, "q", "fixed[4]"), field(12, "r", "date")]}}),
                field(13, "gone", "double"),
            )
        )
    )  # fmt: skip
    assert str(before.arrow.field("l").type) == "list<element: struct<x: decimal128(10, 2)> not null>"
    assert before.arrow.field("m").type == pa.map_(pa.string(), pa.struct([("q", pa.binary(4))]))
    assert before.ids["m.value.q"] == 9
    assert renames(before, now) == {
        "t": "s",
        "t.b2": "b",
        "t.a": None,
        "l.element.y": "x",
        "m.value.r": None,
        "gone": None,
    }


def test_the_older_spelling_of_ids_is_read() -> None:
    old = {"max_column_id": 1, "version-id": 7, "type": "record", "fields": [
        field(0, "l", {"type": "array", "element-id": 1, "element": "int", "element_optional": True})]}  # fmt: skip
    parsed = parse_internal_schema(json.dumps(old))
    assert parsed.version == 7
    assert parsed.ids == {"l": 0, "l.element": 1}


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        '{"schemas": []}',
        '{"schemas": [1]}',
        '{"schemas": [{"fields": [{"name": "a"}]}]}',
        '{"schemas": [{"fields": [{"name": "a", "id": 1, "type": {"type": "array"}}]}]}',
        '{"schemas": [{"version_id": "x", "fields": []}]}',
    ],
)
def test_bad_histories(bad: str) -> None:
    with pytest.raises(CorruptTable):
        parse_schema_history(bad)


def test_unknown_types_are_named() -> None:
    with pytest.raises(UnsupportedFormat, match="vector"):
        parse_internal_schema(json.dumps(schema(0, field(0, "a", "vector"))))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_histories_never_raise_anything_else(golden: Callable[[str], Path], data: st.DataObject) -> None:
    folder = golden("mor_schema_evo_v9") / ".hoodie" / ".schema"
    raw = bytearray(max(folder.glob("*_*.schemacommit")).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        history = parse_schema_history(bytes(raw[: data.draw(st.integers(len(raw) - 50, len(raw)))]))
        renames(history.versions[0], history.latest)
    except LakebedError:
        return
