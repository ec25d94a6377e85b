"""Files read under a newer schema: hand-made columns, and the two golden tables whose schema changed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.model.internal_schema import parse_schema_history, renames
from lakebed.model.schema import avro_to_arrow
from lakebed.model.schema_evolution import resolve
from tests.conftest import expected


def read_as(values: list[Any], source: pa.DataType, target: pa.DataType, **kwargs: Any) -> list[Any]:
    batch = pa.record_batch({"c": pa.array(values, source)})
    out = resolve(batch.schema, pa.schema([("c", target)]), **kwargs)(batch)
    out.validate(full=True)
    assert str(out.schema.field("c").type) == str(target)
    return out.column("c").to_pylist()


@pytest.mark.parametrize(
    ("values", "source", "target", "wanted"),
    [
        ([1, None], pa.int32(), pa.int64(), [1, None]),
        ([1 << 60], pa.int64(), pa.float32(), [float(1 << 60)]),
        ([3], pa.int32(), pa.float64(), [3.0]),
        ([1.1, float("inf"), None], pa.float32(), pa.float64(), [1.1, float("inf"), None]),
        ([7, -8], pa.int64(), pa.string(), ["7", "-8"]),
        ([1e7, 0.5, 1e-4, 0.001, 0.0, 123456.789, float("nan")], pa.float64(), pa.string(),
         ["1.0E7", "0.5", "1.0E-4", "0.001", "0.0", "123456.789", "NaN"]),
        ([0.1, 3.4028235e38], pa.float32(), pa.string(), ["0.1", "3.4028235E38"]),
        ([True], pa.bool_(), pa.string(), ["true"]),
        ([Decimal("1.50")], pa.decimal128(5, 2), pa.string(), ["1.50"]),
        ([dt.date(2024, 2, 29)], pa.date32(), pa.string(), ["2024-02-29"]),
        (["2024-02-29"], pa.string(), pa.date32(), [dt.date(2024, 2, 29)]),
        (["1.5"], pa.string(), pa.decimal128(9, 2), [Decimal("1.50")]),
        ([5], pa.int32(), pa.decimal128(9, 2), [Decimal("5.00")]),
        ([0.5], pa.float64(), pa.decimal128(9, 2), [Decimal("0.50")]),
        ([Decimal("1.5")], pa.decimal128(5, 1), pa.decimal128(20, 3), [Decimal("1.500")]),
        (["é"], pa.string(), pa.binary(), ["é".encode()]),
        ([b"ab"], pa.binary(), pa.string(), ["ab"]),
        (["x", "x", None], pa.dictionary(pa.int32(), pa.string()), pa.string(), ["x", "x", None]),
        (["x"], pa.large_string(), pa.string(), ["x"]),
        ([None], pa.null(), pa.int64(), [None]),
        ([1_000_000], pa.int64(), pa.timestamp("us", "UTC"), [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)]),
    ],
)  # fmt: skip
def test_promotions(values: list[Any], source: pa.DataType, target: pa.DataType, wanted: list[Any]) -> None:
    got = read_as(values, source, target)
    assert [str(item) for item in got] == [str(item) for item in wanted]


def test_timestamps_change_unit_and_zone_without_moving() -> None:
    aware = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    moment = aware.replace(tzinfo=None)
    assert read_as([moment], pa.timestamp("ns"), pa.timestamp("us", "UTC")) == [aware]
    assert read_as([aware], pa.timestamp("us", "UTC"), pa.timestamp("ms")) == [moment.replace(microsecond=678000)]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int64()),
        (pa.timestamp("us", "UTC"), pa.string()),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32())),
        (pa.bool_(), pa.int32()),
    ],
)
def test_other_changes_are_refused_and_name_the_column(source: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(UnsupportedFormat, match="'c'"):
        resolve(pa.schema([("c", source)]), pa.schema([("c", target)]))


def test_a_value_that_cannot_be_read_is_corruption() -> None:
    with pytest.raises(CorruptTable, match="'c'"):
        read_as(["not a date"], pa.string(), pa.date32())
    with pytest.raises(CorruptTable):
        read_as([b"\xff"], pa.binary(), pa.string())


def test_equal_schemas_cost_nothing() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    projection = resolve(batch.schema, batch.schema)
    assert projection.is_identity
    assert projection(batch) is batch


def test_missing_columns_are_null_and_columns_are_pruned_and_ordered() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"], "c": [True, False]})
    reader = pa.schema([("new", pa.list_(pa.int32())), ("c", pa.bool_()), ("a", pa.int64())])
    projection = resolve(batch.schema, reader)
    assert projection.columns == ("c", "a")
    assert projection(batch.select(["a", "c"])).to_pylist() == [
        {"new": None, "c": True, "a": 1},
        {"new": None, "c": False, "a": 2},
    ]


def test_a_required_column_may_not_be_missing() -> None:
    with pytest.raises(CorruptTable, match="'k'"):
        resolve(pa.schema([("a", pa.int32())]), pa.schema([pa.field("k", pa.string(), nullable=False)]))


def test_no_columns_keep_the_row_count() -> None:
    batch = pa.record_batch({"a": [1, 2]})
    assert resolve(batch.schema, pa.schema([]))(batch).num_rows == 2


def test_nested_fields_by_name_at_every_level_and_in_slices() -> None:
    inner_old = pa.struct([("x", pa.int32()), ("y", pa.string())])
    inner_new = pa.struct([("y", pa.string()), ("z", pa.list_(pa.int32())), ("x", pa.int64())])
    old = pa.struct([("l", pa.list_(pa.field("array", inner_old, False))), ("m", pa.map_(pa.string(), inner_old))])
    new = pa.struct([("m", pa.map_(pa.string(), inner_new)), ("l", pa.list_(pa.field("element", inner_new)))])
    values = [
        {"l": [{"x": 1, "y": "a"}, {"x": 2, "y": None}], "m": [("k", {"x": 5, "y": "e"})]},
        None,
        {"l": None, "m": []},
        {"l": [], "m": None},
        {"l": [{"x": 3, "y": "c"}], "m": [("p", None), ("q", {"x": 6, "y": "f"})]},
    ]

    def after(item: Any) -> Any:
        return None if item is None else {"y": item["y"], "z": None, "x": item["x"]}

    wanted = [
        None if row is None else {
            "m": None if row["m"] is None else [(key, after(value)) for key, value in row["m"]],
            "l": None if row["l"] is None else [after(item) for item in row["l"]],
        }
        for row in values
    ]  # fmt: skip
    batch = pa.record_batch({"c": pa.array(values, old)})
    projection = resolve(batch.schema, pa.schema([("c", new)]))
    for start in range(6):
        for length in range(6 - start):
            out = projection(batch.slice(start, length))
            out.validate(full=True)
            assert out.column("c").to_pylist() == wanted[start : start + length]


def test_renames_reach_nested_fields_and_hide_a_column_of_the_same_name() -> None:
    old = pa.struct([("a", pa.int32()), ("b", pa.string())])
    batch = pa.record_batch({"s": pa.array([{"a": 1, "b": "x"}], old), "d": [1.5]})
    reader = pa.schema([("t", pa.struct([("a", pa.int32()), ("c", pa.string())])), ("d", pa.float64())])
    projection = resolve(batch.schema, reader, renames={"t": "s", "t.c": "b", "d": None})
    assert projection.columns == ("s",)
    assert projection(batch).to_pylist() == [{"t": {"a": 1, "c": "x"}, "d": None}]
    same = pa.schema([("s", old)])
    assert resolve(batch.schema, same, renames={"s.a": None})(batch).to_pylist() == [{"s": {"a": None, "b": "x"}}]


def base_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.parquet") if ".hoodie" not in path.parts]


@pytest.mark.parametrize("name", ["mor_nested_evo_avro_v9", "mor_nested_evo_parquet_v9"])
def test_golden_nested_evolution(golden: Callable[[str], Path], name: str) -> None:
    """Base files of the first schema, read under the last: equal to what Hudi reads for rows no log touched."""
    root = golden(name)
    newest = max((root / ".hoodie" / "timeline").glob("*_*.deltacommit"))
    body = newest.read_bytes()
    start = body.index(b'{"type":"record","name":"' + name.encode() + b'_record"')
    reader = avro_to_arrow(json.JSONDecoder().raw_decode(body[start:].decode("utf-8", "replace"))[0])
    snapshot = expected(name)["snapshot"]
    key, file_name = (snapshot["columns"].index(column) for column in ("_hoodie_record_key", "_hoodie_file_name"))
    checked = 0
    for path in base_files(root):
        table = pq.read_table(path)
        meta = [table.schema.field(i) for i in range(5)]
        projection = resolve(table.schema, pa.schema([*meta, *reader]), file=path.name)
        rows = {}
        for batch in table.to_batches():
            for row in projection(batch).to_pylist(maps_as_pydicts="strict"):
                rows[row["_hoodie_record_key"]] = row
        for wanted in snapshot["rows"]:
            if wanted[file_name] == path.name:
                checked += 1
                got = rows[wanted[key]]
                assert [got[column] for column in snapshot["columns"]] == wanted
    assert checked > 0


def test_golden_schema_on_read(golden: Callable[[str], Path]) -> None:
    root = golden("mor_schema_evo_v9")
    newest = max((root / ".hoodie" / ".schema").glob("*_*.schemacommit"))
    history = parse_schema_history(newest.read_bytes(), file=newest.name)
    snapshot = expected("mor_schema_evo_v9")["snapshot"]
    assert history.latest.arrow.names == snapshot["columns"]
    key, name = (snapshot["columns"].index(column) for column in ("_hoodie_record_key", "_hoodie_file_name"))
    checked = 0
    for path in base_files(root):
        table = pq.read_table(path)
        before = history.at(path.stem.rpartition("_")[2])
        assert before is not None
        assert before.version == 0
        mapping = renames(before, history.latest)
        assert mapping == {"label": "txt", "extra": None}
        projection = resolve(table.schema, history.latest.arrow, renames=mapping)
        rows = [row for batch in table.to_batches() for row in projection(batch).to_pylist()]
        by_key = {row["_hoodie_record_key"]: list(row.values()) for row in rows}
        for wanted in snapshot["rows"]:
            if wanted[name] == path.name:
                checked += 1
                assert by_key[wanted[key]] == wanted
    assert checked > 0
