"""`lakebed upsert` and `lakebed delete`: files in, one commit out."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app
from lakebed.errors import InvalidRequest

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("day", pa.date32()), ("price", pa.decimal128(8, 2))])
CSV = "id,ts,day,price\n7,1,2026-11-01,1.50\n007,2,2026-11-02,\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    lakebed.create(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", num_buckets=2)
    return str(tmp_path / "t")


def run(*given: str) -> str:
    done = CliRunner().invoke(app, list(given), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(path: str) -> dict[str, tuple[int, str, str | None]]:
    found = lakebed.open(path).scan(columns=SCHEMA.names).to_arrow().to_pylist()
    return {
        row["id"]: (row["ts"], str(row["day"]), None if row["price"] is None else str(row["price"])) for row in found
    }


WANTED = {"7": (1, "2026-11-01", "1.50"), "007": (2, "2026-11-02", None)}


def test_csv_is_read_with_the_types_of_the_table(path: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    facts = json.loads(run("upsert", path, str(tmp_path / "a.csv"), "--json"))
    assert (facts["inserted"], facts["updated"]) == (2, 0)
    assert rows(path) == WANTED, "007 is a key of its own, not the number 7"


def test_several_files_are_one_commit(path: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": "7", "ts": 1, "day": "2026-11-01", "price": "1.50"}\n')
    (tmp_path / "b.csv").write_text(CSV)
    table = pa_csv.read_csv(tmp_path / "b.csv", convert_options=pa_csv.ConvertOptions(column_types=SCHEMA))
    pq.write_table(table.slice(1), tmp_path / "c.parquet")
    run("upsert", path, str(tmp_path / "a.json"), str(tmp_path / "c.parquet"))
    assert rows(path) == WANTED
    assert lakebed.open(path).inspect.timeline().num_rows == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "id,ts,day,price\nx,one,2026-11-01,1\n", "a.csv"),
        ("a.json", '{"id": 5, "ts": ', "a.json"),
        ("a.parquet", "PAR1 nothing", "a.parquet"),
        ("a.txt", "x", "Use .parquet"),
        ("gone.csv", None, "not a file"),
    ],
)
def test_bad_files_leave_nothing_behind(path: str, tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidRequest, match=message):
        run("upsert", path, str(tmp_path / name))
    assert rows(path) == {}
    assert "completed" not in lakebed.open(path).inspect.timeline().column("state").to_pylist()


def test_other_columns_in_a_later_file(path: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_text("id,ts\n1,1\n")
    with pytest.raises(InvalidRequest, match=r"b\.csv lacks the column 'day'"):
        run("upsert", path, str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))
    assert rows(path) == {}


def test_delete_by_key_and_by_condition(path: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV + "8,1,2026-11-03,2\n")
    run("upsert", path, str(tmp_path / "a.csv"))
    assert json.loads(run("delete", path, "--key", "007", "--json"))["deleted"] == 1
    assert "1 deleted" in run("delete", path, "--where", "price > 1.75")
    assert rows(path) == {"7": WANTED["7"]}
    with pytest.raises(InvalidRequest, match="either"):
        run("delete", path)
