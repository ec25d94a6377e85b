"""Files of rows as other programs write them, and files that are broken: taken whole, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli import csv_rows
from lakebed.cli.main import app
from lakebed.cli.text_values import to_text
from lakebed.errors import InvalidRequest


def upserted(tmp_path: Path, kind: pa.DataType, files: dict[str, str], *more: str) -> pa.Table:
    """What a table of `id` and `v` holds after files were written to it."""
    path = tmp_path / "t"
    if not path.exists():
        lakebed.create(path, pa.schema([pa.field("id", pa.int64(), False), ("v", kind)]), record_key="id")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    names = [str(tmp_path / name) for name in files]
    done = CliRunner().invoke(app, ["upsert", str(path), *names, *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    schema = lakebed.open(path).schema
    columns = [name for name in schema.names if not name.startswith("_hoodie")]
    return lakebed.open(path).scan(columns=columns).to_arrow().sort_by("id")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.float64(), "100000000000000000000", 1e20),
        (pa.float64(), "-100000000000000000000", -1e20),
        (pa.float64(), str(2**60), 2.0**60),
        (pa.float64(), "1152921504606847000", 2.0**60),
        (pa.float64(), str(2**53 - 1), 2.0**53 - 1),
        (pa.float64(), str(2**1000), 2.0**1000),
        (pa.float32(), str(2**100), 2.0**100),
        (pa.list_(pa.float64()), "[1, 0.5, 100000000000000000000, null]", [1.0, 0.5, 1e20, None]),
    ],
)
def test_whole_numbers_that_a_double_holds_are_taken(kind: pa.DataType, text: str, value: Any, tmp_path: Path) -> None:
    found = upserted(tmp_path, kind, {"x.json": f'{{"id": 1, "v": {text}}}\n{{"id": 2, "v": null}}\n'})
    assert found["v"].to_pylist() == [value, None]


DEEP = "[" * 100_000


def test_json_that_lies_too_deep_is_named_with_its_place(tmp_path: Path) -> None:
    kind = pa.list_(pa.int64())
    row = '{"id": 1, "v": []}'
    for name, text, match in (
        ("list.json", DEEP, r"list\.json is no JSON: .* too deep .*line 1 column 100000"),
        ("list.json", f'[{row},\n{{"id": 2, "v": {DEEP}', r"list\.json is no JSON: .* too deep .*line 2 "),
        ("lines.json", f'{row}\n{{"id": 2, "v": {DEEP}', r"row 2 of .*lines\.json is no JSON: .* too deep"),
        ("cell.csv", f'id,v\n1,[]\n2,"{DEEP}"\n', r"cell\.csv: row 2: .*'v' is list.* too deep"),
    ):
        with pytest.raises(InvalidRequest, match=match):
            upserted(tmp_path, kind, {name: text})
    with pytest.raises(InvalidRequest, match=r"row 1 .* line 1 column 100022 "):
        upserted(tmp_path, kind, {"texts.json": '{"id": "[[\\"[[", "v": ' + DEEP})


def test_a_new_json_column_of_numbers_beyond_a_long_is_double(tmp_path: Path) -> None:
    text = '{"id": 1, "v": 1, "n": 100000000000000000000}\n'
    found = upserted(tmp_path, pa.int64(), {"x.json": text}, "--add-columns")
    assert found.schema.field("n").type == pa.float64()
    assert found["n"].to_pylist() == [1e20]
    with pytest.raises(InvalidRequest, match=r"new column 'm' of .*x\.json"):
        text = '{"id": 1, "v": 1, "n": 1, "m": 1' + "0" * 400 + "}\n"
        upserted(tmp_path, pa.int64(), {"x.json": text}, "--add-columns")


@pytest.mark.parametrize("depth", [300, 600, 900, 990])
def test_json_that_is_deep_but_parsed_is_refused_by_name(depth: int, tmp_path: Path) -> None:
    nested = "[" * depth + "]" * depth
    for name, text in (("x.json", f'{{"id": 1, "v": {nested}}}'), ("x.csv", f'id,v\n1,"{nested}"\n')):
        with pytest.raises(InvalidRequest, match=name):
            upserted(tmp_path, pa.list_(pa.int64()), {name: text})


@pytest.mark.parametrize("text", ["id,v", "\ufeffid,v", "\n\nid,v", '"id","v"', "id,v\n", "id,v\r"])
def test_a_csv_of_a_header_without_a_newline_has_no_rows(text: str, tmp_path: Path) -> None:
    assert upserted(tmp_path, pa.string(), {"x.csv": text}).num_rows == 0
    assert upserted(tmp_path, pa.string(), {"x.csv": "id,v\n1,a\n2,b"})["v"].to_pylist() == ["a", "b"]


def test_a_csv_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"x\.csv cannot be read: Empty CSV file"):
        upserted(tmp_path, pa.string(), {"x.csv": ""})


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["7", "-8"], pa.int64()),
        (["7", "1.5", "nan"], pa.float64()),
        (["true", "false"], pa.bool_()),
        (["2026-11-01", "2024-02-29"], pa.date32()),
        (["2026-11-01T09:30:00.123"], pa.timestamp("ms")),
        (["2026-11-01T09:30:00.123456Z"], pa.timestamp("us", "UTC")),
        (["09:30:00.000001"], pa.time64("us")),
        (["8", "07"], pa.string()),
        (["8", "+7"], pa.string()),
        (["8", "-0"], pa.float64()),
        ([" 8", "9"], pa.string()),
        (["1.50", "2.5"], pa.string()),
        (["1e5"], pa.string()),
        (["0x10"], pa.string()),
        (["18446744073709551616"], pa.string()),
        (["0.1000000000000000055"], pa.string()),
        (["True"], pa.string()),
        (["NaN"], pa.string()),
        (["2026-11-01 09:30:00"], pa.string()),
        (["2026-11-01T09:30:00.123456789"], pa.string()),
        (["2026-11-01", "soon"], pa.string()),
    ],
)
def test_a_new_csv_column_keeps_the_text_of_its_cells(cells: list[str], kind: pa.DataType, tmp_path: Path) -> None:
    rows = "".join(f"{at},x,{cell}\n" for at, cell in enumerate([*cells, ""]))
    found = upserted(tmp_path, pa.string(), {"x.csv": f"id,v,n\n{rows}"}, "--add-columns")
    assert found.schema.field("n").type == kind
    assert to_text(found["n"].combine_chunks(), "n").to_pylist() == [*cells, None]


def test_a_zero_that_only_a_late_row_of_a_new_csv_column_has_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK", 1024)
    rows = "".join(f"{at},x,{at}\n" for at in range(1000))
    found = upserted(tmp_path, pa.string(), {"x.csv": f"id,v,n\n{rows}1000,x,07\n"}, "--add-columns")
    assert found["n"].to_pylist() == [*map(str, range(1000)), "07"]


def test_a_zero_that_only_a_later_csv_file_has_is_not_lost(tmp_path: Path) -> None:
    plain, zero = "id,v,n\n1,x,8\n", "id,v,n\n2,x,07\n"
    with pytest.raises(InvalidRequest, match=r"'n' is text in .*b\.csv, but int64 in .*a\.csv.*text first"):
        upserted(tmp_path, pa.string(), {"a.csv": plain, "b.csv": zero}, "--add-columns")
    found = upserted(tmp_path, pa.string(), {"b.csv": zero, "a.csv": plain}, "--add-columns")
    assert found["n"].to_pylist() == ["8", "07"]


def test_a_new_csv_column_of_nothing_is_not_added(tmp_path: Path) -> None:
    found = upserted(tmp_path, pa.string(), {"x.csv": "id,v,n\n1,x,\n2,y,\n"}, "--add-columns")
    assert found.to_pylist() == [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}]
