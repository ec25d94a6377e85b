"""What `lakebed read -o` writes, `lakebed upsert` takes back unchanged: every type in every format."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app
from lakebed.errors import InvalidRequest

FORMATS = ["csv", "json", "jsonl", "ndjson", "parquet", "arrow", "feather"]
TEXTS = [
    "", "NA", "null", "NULL", "nan", "None", "N/A", "#N/A", "-", " ", "  x ", '"', '""', 'q"q', "a,b", "l\nm", "l\r\nm",
    "\r", "\n", "\t", "\\", "\\n", "'", ";", "é", "日本", "😀", "\u200d", "\u2028", "\x00", "\x1b[31m", "\x85", "[red]",
    "{}", "[]", "0", "007", "1e5", "true", "2024-01-01", "\ufeffbom", "=1+1", "x" * 5000,
]  # fmt: skip
AWARE = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1582, 10, 14, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 10, 27, 1, 30, 0, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
]
MOMENTS = [moment.replace(tzinfo=None) for moment in AWARE]
FLOATS = [math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1e20, 1e-7, 5e-324, 1.7976931348623157e308, 2.0**53 + 2, 1 / 3]
DECIMALS = [Decimal(text) for text in ("0", "-0.01", "1.50", "99999999.99", "-99999999.99")]
STRUCT = pa.struct([("x", pa.int64()), ("day", pa.date32()), ("raw", pa.binary()), ("texts", pa.list_(pa.string()))])
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [0, -(2**31), 2**31 - 1]),
    "long": (pa.int64(), [0, -(2**63), 2**63 - 1, 2**53 + 1]),
    "float": (pa.float32(), [math.nan, math.inf, -math.inf, -0.0, 0.1, 3.4028234663852886e38, 1.401298464324817e-45]),
    "double": (pa.float64(), FLOATS),
    "decimal": (pa.decimal128(10, 2), DECIMALS),
    "small decimal": (pa.decimal128(38, 20), [Decimal("1E-20"), Decimal("0"), Decimal("123456789012345678.5")]),
    "wide decimal": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(-(10**38) + 1)]),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"text", bytes(range(256))]),
    "fixed": (pa.binary(3), [b"\x00\x01\xff", b"abc"]),
    "date": (pa.date32(), [moment.date() for moment in MOMENTS]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999), dt.time(9, 30, 0, 1)]),
    "milli time": (pa.time32("ms"), [dt.time(0), dt.time(23, 59, 59, 999000)]),
    "timestamp": (pa.timestamp("us", "UTC"), AWARE),
    "milli timestamp": (
        pa.timestamp("ms", "UTC"),
        [m.replace(microsecond=m.microsecond // 1000 * 1000) for m in AWARE],
    ),
    "timestamp_ntz": (pa.timestamp("us"), MOMENTS),
    "list": (pa.list_(pa.string()), [[], [None], ["", "NA", None, 'a"b'], TEXTS]),
    "list of doubles": (pa.list_(pa.float64()), [[], FLOATS, [None, 1.0]]),
    "list of times": (pa.list_(pa.timestamp("us", "UTC")), [[], [*AWARE, None]]),
    "list of lists": (pa.list_(pa.list_(pa.int64())), [[], [[]], [None, [1, None], [2**63 - 1]]]),
    "list of decimals": (pa.list_(pa.decimal128(38, 2)), [[Decimal(10**35), None, Decimal("0.01")]]),
    "struct": (
        STRUCT,
        [
            {"x": None, "day": None, "raw": None, "texts": None},
            {"x": 2**63 - 1, "day": dt.date(2024, 2, 29), "raw": b"\xff", "texts": ["", None]},
        ],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("", 1), ("NA", None)], [("a", 2**63 - 1), ("[red]", 0)]]),
    "map of structs": (pa.map_(pa.string(), STRUCT), [[], [("k", {"x": 1, "day": None, "raw": b"", "texts": []})]]),
}


def bits(value: Any) -> Any:
    """A value that is equal only to itself: NaN to NaN, -0.0 not to 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, list | tuple):
        return [bits(item) for item in value]
    return {name: bits(item) for name, item in value.items()} if isinstance(value, dict) else value


def held(path: Path) -> dict[int, Any]:
    found = lakebed.open(path).scan(columns=["id", "v"]).to_arrow()
    return {row["id"]: bits(row["v"]) for row in found.to_pylist()}


def made(path: Path, kind: pa.DataType, nullable: bool = True) -> lakebed.Table:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", kind, nullable), ("w", pa.int32())])
    return lakebed.create(path, schema, record_key="id", num_buckets=1)


def run(*given: Any) -> str:
    done = CliRunner().invoke(app, [str(one) for one in given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("name", COLUMNS)
def test_what_read_writes_upsert_takes_back_unchanged(name: str, ending: str, tmp_path: Path) -> None:
    kind, values = COLUMNS[name]
    values = [*values, None, *values]
    table = made(tmp_path / "a", kind)
    data = pa.table([range(len(values)), pa.array(values, kind), [None] * len(values)], schema=table_schema(kind))
    table.upsert(data)
    made(tmp_path / "b", kind)
    file = tmp_path / f"rows.{ending}"
    run("read", tmp_path / "a", "-o", file)
    run("upsert", tmp_path / "b", file)
    assert held(tmp_path / "b") == held(tmp_path / "a") == {at: bits(v) for at, v in enumerate(data[1].to_pylist())}
    assert lakebed.open(tmp_path / "b").schema == lakebed.open(tmp_path / "a").schema


def table_schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), False), ("v", kind), ("w", pa.int32())])


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_all_types_side_by_side_and_in_batches(ending: str, tmp_path: Path) -> None:
    """Every column in one file of more rows than a block of lines, so that values lie in slices of columns."""
    rows = 9000
    fields = [
        pa.field("id", pa.int64(), False),
        *(pa.field(name.replace(" ", "_"), kind) for name, (kind, _) in COLUMNS.items()),
    ]
    few = [(kind, [v for v in values if v not in (TEXTS, "x" * 5000)]) for kind, values in COLUMNS.values()]
    columns = [pa.array([[*values, None][at % (len(values) + 1)] for at in range(rows)], kind) for kind, values in few]
    data = pa.table([pa.array(range(rows)), *columns], schema=pa.schema(fields))
    for name in ("a", "b"):
        lakebed.create(tmp_path / name, data.schema, record_key="id", num_buckets=2)
    lakebed.open(tmp_path / "a").upsert(data)
    run("read", tmp_path / "a", "-o", tmp_path / f"rows.{ending}")
    run("upsert", tmp_path / "b", tmp_path / f"rows.{ending}")
    names = data.schema.names
    wanted, found = (lakebed.open(tmp_path / t).scan(columns=names).to_arrow().sort_by("id") for t in ("a", "b"))
    assert wanted.num_rows == found.num_rows == rows
    for name in names:
        assert bits(found[name].to_pylist()) == bits(wanted[name].to_pylist()), name


def test_what_json_prints_is_taken_back(tmp_path: Path) -> None:
    kind, values = COLUMNS["struct"]
    made(tmp_path / "a", kind).upsert(pa.table([[0, 1], pa.array(values, kind), [1, 2]], schema=table_schema(kind)))
    made(tmp_path / "b", kind)
    (tmp_path / "rows.json").write_text(run("read", tmp_path / "a", "--json"))
    run("upsert", tmp_path / "b", tmp_path / "rows.json")
    assert held(tmp_path / "b") == held(tmp_path / "a")


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()])
def test_times_without_text_are_refused_with_the_formats_that_hold_them(
    kind: pa.DataType, ending: str, tmp_path: Path
) -> None:
    far = 10_000_000 if pa.types.is_date(kind) else 2**62
    storage = pa.int32() if pa.types.is_date(kind) else pa.int64()
    value = pa.array([far], storage).cast(kind)
    made(tmp_path / "t", kind).upsert(pa.table([[1], value, [1]], schema=table_schema(kind)))
    with pytest.raises(InvalidRequest, match=r"'v' holds times outside the years 0 to 9999.*\.parquet or \.arrow"):
        run("read", tmp_path / "t", "-o", tmp_path / f"rows.{ending}")
    assert not (tmp_path / f"rows.{ending}").exists()
    assert "1" in run("read", tmp_path / "t"), "a screen shows them as well as it can"
    run("read", tmp_path / "t", "-o", tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet")["v"].cast(storage).to_pylist() == [far]


# ---------------------------------------------------------------------- null and words
def imported(tmp_path: Path, name: str, text: str, *more: str, kind: pa.DataType | None = None) -> dict[int, Any]:
    path = tmp_path / "t"
    if not path.exists():
        made(path, kind or pa.string())
    (tmp_path / name).write_text(text)
    run("upsert", path, tmp_path / name, *more)
    return held(path)


def test_words_in_csv_are_words_and_nothing_is_null(tmp_path: Path) -> None:
    text = 'id,v,w\n1,NA,1\n2,"NA",1\n3,null,\n4,"null",1\n5,"",1\n6,,1\n7,nan,1\n'
    assert imported(tmp_path, "x.csv", text) == {1: "NA", 2: "NA", 3: "null", 4: "null", 5: "", 6: None, 7: "nan"}


def test_a_word_for_null_is_the_users_choice(tmp_path: Path) -> None:
    text = 'id,v,w\n1,NA,NULL\n2,"NA",1\n3,NULL,1\n'
    assert imported(tmp_path, "x.csv", text, "--null", "NA", "--null", "NULL") == {1: None, 2: "NA", 3: None}


def test_a_word_in_a_column_of_numbers_is_refused(tmp_path: Path) -> None:
    for text, match in (("1,NA,1", "'v' is int64: .*'NA'"), ('1,"",1', "'v' is int64"), ("1,1.5,1", "'v' is int64")):
        with pytest.raises(InvalidRequest, match=match):
            imported(tmp_path, "x.csv", f"id,v,w\n{text}\n", kind=pa.int64())


def test_blanks_around_numbers_of_csv_do_no_harm(tmp_path: Path) -> None:
    assert imported(tmp_path, "x.csv", "id,v,w\n1, 5 ,1\n", kind=pa.int64()) == {1: 5}


@pytest.mark.parametrize(
    ("kind", "value", "match"),
    [
        (pa.int64(), "1.5", "'1.5' is a number"),
        (pa.int64(), '"5"', "'5' is text"),
        (pa.int64(), "true", "a boolean"),
        (pa.int64(), str(2**63), "too large|out of|overflow"),
        (pa.string(), "5", "'5' is a number"),
        (pa.bool_(), "1", "'1' is a number"),
        (pa.float64(), "1e400", "too large"),
        (pa.float32(), "1e39", "too large"),
        (pa.float64(), '"x"', "'x' is text"),
        (pa.float64(), "true", "a boolean"),
        (pa.float64(), str(2**53 + 1), "9007199254740993 has more digits than the type holds exactly"),
        (pa.float64(), str(2**60 + 1), "has more digits than the type holds exactly"),
        (pa.float64(), str(10**400), "too large"),
        (pa.float32(), str(2**24 + 1), "has more digits than the type holds exactly"),
        (pa.float32(), str(10**39), "too large"),
        (pa.decimal128(5, 2), "1.239", "data loss"),
        (pa.decimal128(5, 2), '"NaN"', "NaN"),
        (pa.binary(), '"%%"', "not base64"),
        (pa.binary(3), '"AAA="', "3"),
        (pa.timestamp("us"), '"2024-01-01T00:00:00Z"', "zone"),
        (pa.timestamp("us", "UTC"), '"2024-01-01T00:00:00"', "zone"),
        (pa.timestamp("us"), '"2024-01-01T00:00:00.0000001"', "parse"),
        (pa.time64("us"), '"24:00:00"', "parse"),
        (pa.list_(pa.int64()), "5", "no list"),
        (pa.map_(pa.string(), pa.int64()), "5", "no object"),
        (STRUCT, "5", "no object"),
        (STRUCT, '{"x": 1}', "lacks the field 'day'"),
        (STRUCT, '{"x": 1, "day": null, "raw": null, "text": null}', "no field 'text'.*mean 'texts'"),
        (pa.int64(), '1, "v": 2', "'v' stands twice"),
        (pa.int64(), "}", "row 1 .* is no JSON"),
    ],
)
def test_json_that_is_not_of_the_columns_type_is_refused(
    kind: pa.DataType, value: str, match: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match=match):
        imported(tmp_path, "x.json", f'{{"id": 1, "w": null, "v": {value}}}\n', kind=kind)
    assert held(tmp_path / "t") == {}


def test_json_as_other_programs_write_it(tmp_path: Path) -> None:
    lines = ['{"id": 1, "v": 1.10, "w": 1}', "", '{"id": 2, "v": 3, "w": 1}', '{"id": 3, "v": "4.5", "w": 1}']
    found = imported(tmp_path, "x.json", "\ufeff" + "\r\n".join(lines), kind=pa.decimal128(38, 20))
    assert found == {1: Decimal("1.10"), 2: Decimal(3), 3: Decimal("4.5")}


def test_maps_of_json_in_every_form(tmp_path: Path) -> None:
    lines = ['{"id": 1, "w": 1, "v": {"a": 1}}', '{"id": 2, "w": 1, "v": [["a", 1]]}']
    lines.append('{"id": 3, "w": 1, "v": [{"key": "a", "value": 1}]}')
    found = imported(tmp_path, "x.json", "\n".join(lines), kind=pa.map_(pa.string(), pa.int64()))
    assert list(found.values()) == [[["a", 1]]] * 3


def test_a_bare_nan_of_json_is_one(tmp_path: Path) -> None:
    lines = '{"id": 1, "w": 1, "v": NaN}\n{"id": 2, "w": 1, "v": -Infinity}\n'
    assert imported(tmp_path, "x.json", lines, kind=pa.float64()) == {1: "nan", 2: bits(-math.inf)}


# ---------------------------------------------------------------------- columns
def file_with(tmp_path: Path, ending: str, **columns: Any) -> Path:
    file = tmp_path / f"x.{ending}"
    names, values = list(columns), list(columns.values())
    if ending == "csv":
        file.write_text(f"{','.join(names)}\n{','.join(map(str, values))}\n")
    elif ending == "json":
        file.write_text(json.dumps(columns) + "\n")
    elif ending == "parquet":
        pq.write_table(pa.table({name: [value] for name, value in columns.items()}), file)
    else:
        data = pa.table({name: [value] for name, value in columns.items()})
        with pa.ipc.new_file(file, data.schema) as sink:
            sink.write_table(data)
    return file


KINDS = ["csv", "json", "parquet", "arrow"]


@pytest.mark.parametrize("ending", KINDS)
def test_a_misspelt_field_adds_no_column(ending: str, tmp_path: Path) -> None:
    made(tmp_path / "t", pa.string())
    file = file_with(tmp_path, ending, id=1, vv="x", w=1)
    with pytest.raises(InvalidRequest, match=r"has the column 'vv', which .* mean 'v'\?.*--add-columns"):
        run("upsert", tmp_path / "t", file)
    with pytest.raises(InvalidRequest, match=r"lacks the column 'v'.*--missing-as-null"):
        run("upsert", tmp_path / "t", file, "--add-columns")
    assert "vv" not in lakebed.open(tmp_path / "t").schema.names


@pytest.mark.parametrize("ending", KINDS)
def test_columns_are_added_when_asked_for(ending: str, tmp_path: Path) -> None:
    made(tmp_path / "t", pa.string())
    file = file_with(tmp_path, ending, new=2.5, w=1, v="x", id=1)
    run("upsert", tmp_path / "t", file, "--add-columns")
    table = lakebed.open(tmp_path / "t")
    assert table.schema.field("new").type == pa.float64()
    assert table.scan(columns=["id", "v", "w", "new"]).to_arrow().to_pylist() == [
        {"id": 1, "v": "x", "w": 1, "new": 2.5}
    ]


@pytest.mark.parametrize("ending", KINDS)
def test_a_field_that_the_file_lacks_is_not_null_in_silence(ending: str, tmp_path: Path) -> None:
    made(tmp_path / "t", pa.string())
    file = file_with(tmp_path, ending, id=1, w=1)
    with pytest.raises(InvalidRequest, match=r"lacks the column 'v'.*--missing-as-null"):
        run("upsert", tmp_path / "t", file)
    run("upsert", tmp_path / "t", file, "--missing-as-null")
    assert held(tmp_path / "t") == {1: None}


def test_a_row_of_json_that_lacks_a_field_is_named(tmp_path: Path) -> None:
    text = '{"id": 1, "v": "x", "w": 1}\n{"id": 2, "w": 1}\n'
    with pytest.raises(InvalidRequest, match=r"row 2 of .* lacks the column 'v'"):
        imported(tmp_path, "x.json", text)
    assert imported(tmp_path, "x.json", text, "--missing-as-null") == {1: "x", 2: None}


def test_a_field_that_only_a_late_row_has_is_named(tmp_path: Path) -> None:
    rows = [json.dumps({"id": at, "v": "x", "w": 1}) for at in range(9000)]
    rows.append('{"id": 9000, "v": "x", "w": 1, "late": 1}')
    for more, match in (((), "row 9001 .* has the column 'late'"), (("--add-columns",), "row 9001 .* is the first")):
        with pytest.raises(InvalidRequest, match=match):
            imported(tmp_path, "x.json", "\n".join(rows), *more)
