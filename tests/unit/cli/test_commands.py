"""The `lakebed` command: what it prints, for people and for programs, and the codes it ends with."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli.main import main
from lakebed.cli.output import plain, size_text
from tests.conftest import GOLDEN_NAMES

Golden = Callable[[str], Path]


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process, as the entry point does."""

    def command(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["lakebed", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(int(ended.value.code or 0), out, err)

    return command


# Looking


def test_help_and_version(run: Run) -> None:
    assert run("--version").out.startswith("lakebed 0.")
    done = run("--help")
    assert done.code == 0
    for command in ("show", "timeline", "slices", "commit", "config", "read", "demo", "log", "hfile"):
        assert command in done.out
        assert run(command, "--help").code == 0
    assert "Usage" in run().out + run().err


@pytest.mark.parametrize("name", ["cow_simple_v9", "mor_pending_compaction_v9", "cow_virtualkeys_v9"])
def test_show(run: Run, golden: Golden, name: str) -> None:
    facts = run("show", golden(name), "--json").json
    table = lakebed.open(golden(name))
    assert facts["name"] == name and facts["table version"] == 9
    assert [column["name"] for column in facts["columns"]] == table.schema.names
    slices = table.inspect.file_slices().to_pylist()
    assert facts["bytes"] == sum(row["bytes"] for row in slices) and facts["file groups"] == len(slices)
    states = table.inspect.timeline()["state"].to_pylist()
    assert facts["completed instants"] == states.count("completed")
    assert facts["pending instants"] == len(states) - states.count("completed")
    done = run("show", golden(name))
    assert done.code == 0 and name in done.out and "record key" in done.out


def test_timeline(run: Run, golden: Golden) -> None:
    root = golden("mor_maint_v9")
    inspect = lakebed.open(root).inspect
    assert run("timeline", root, "--json").json == inspect.timeline().to_pylist()
    assert run("timeline", root, "--history", "--json").json == inspect.timeline(history=True).to_pylist()
    assert "deltacommit" in run("timeline", root).out


def test_slices(run: Run, golden: Golden) -> None:
    root = golden("mor_avro_v9")
    inspect = lakebed.open(root).inspect
    first = inspect.timeline().to_pylist()[0]["instant"]
    assert run("slices", root, "--json").json == inspect.file_slices().to_pylist()
    assert run("slices", root, "--as-of", first, "--json").json == inspect.file_slices(as_of=first).to_pylist()
    assert "file_id" in run("slices", root).out


def test_commit_and_config(run: Run, golden: Golden) -> None:
    root = golden("mor_avro_v9")
    inspect = lakebed.open(root).inspect
    first = inspect.timeline().to_pylist()[0]["instant"]
    assert run("commit", root, first, "--json").json == inspect.commit(first).to_pylist()
    assert "inserts" in run("commit", root, first).out
    assert run("config", root, "--json").json == inspect.config().to_pylist()
    assert "hoodie.table.name" in run("config", root).out


# Reading


def test_read_to_the_screen(run: Run, golden: Golden) -> None:
    root = golden("mor_avro_v9")
    done = run("read", root, "--columns", "id, ts")
    assert done.code == 0 and "k0046" in done.out and "first 20 rows" in done.err
    done = run("read", root, "--limit", 3, "--columns", "id", "--json")
    assert len(done.json) == 3 and set(done.json[0]) == {"id"}
    assert run("read", root, "--limit", 0, "--json").json == []


def test_read_with_conditions_and_times(run: Run, golden: Golden) -> None:
    root = golden("mor_avro_v9")
    table = lakebed.open(root)
    first = table.inspect.timeline().to_pylist()[0]
    count = lambda *arguments: run("read", root, "--count", "--json", *arguments).json["rows"]  # noqa: E731
    assert count() == 95
    assert count("--where", "p = 'p1' and ts > 1") == table.scan(filter="p = 'p1' and ts > 1").count()
    assert count("--as-of", first["instant"]) == table.scan(as_of=first["instant"]).count()
    assert count("--query", "read_optimized") == table.scan(query="read_optimized").count()
    assert (
        count("--query", "incremental", "--start", first["completion"])
        == table.incremental(first["completion"]).count()
    )
    assert count("--memory", "1MB") == 95
    assert count("--query", "incremental", "--start", "0", "--limit", "4") == 4
    assert run("read", root, "--count").out.strip() == "95"


def test_explain(run: Run, golden: Golden) -> None:
    root = golden("mor_avro_v9")
    done = run("read", root, "--explain", "--where", "p = 'p1'")
    assert "1 of 2 partitions" in done.out
    assert "\n".join(run("read", root, "--explain", "--json").json["plan"]) == lakebed.open(root).scan().explain()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_table_can_be_printed_as_json(run: Run, golden: Golden, name: str) -> None:
    done = run("read", golden(name), "--json")
    rows = json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert done.code == 0 and len(rows) == lakebed.open(golden(name)).scan().count()


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_read_into_a_file(run: Run, golden: Golden, tmp_path: Path, ending: str) -> None:
    root, target = golden("mor_avro_v9"), tmp_path / f"rows.{ending}"
    scan = lakebed.open(root).scan()
    done = run("read", root, "-o", target, "--json")
    assert done.json == {"rows": 95, "file": str(target)}
    if ending == "parquet":
        assert pq.read_table(target) == scan.to_arrow()
    elif ending == "csv":
        with target.open(newline="") as source:
            rows = list(csv.DictReader(source))
        assert [row["id"] for row in rows] == scan.to_arrow()["id"].to_pylist()
    else:
        rows = [json.loads(line) for line in target.read_text().splitlines()]
        assert rows == [plain(row) for row in scan.to_arrow().to_pylist()]
    assert list(tmp_path.iterdir()) == [target], "nothing else is left behind"
    assert run("read", root, "-o", target, "--limit", 1).code == 0, "a file is replaced"


@pytest.mark.parametrize(
    "name", ["cow_key_decimal_v9", "cow_key_timestamp_v9", "cow_key_date_v9", "cow_key_boolean_v9"]
)
def test_csv_of_many_types(run: Run, golden: Golden, tmp_path: Path, name: str) -> None:
    done = run("read", golden(name), "-o", tmp_path / "x.csv")
    assert done.code == 0, done.err
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert len(lines) == 1 + lakebed.open(golden(name)).scan().count()


def test_a_file_appears_only_when_it_is_whole(run: Run, golden_copy: Golden, tmp_path: Path) -> None:
    root = golden_copy("cow_simple_v9")
    piece = lakebed.open(root).inspect.file_slices().to_pylist()[-1]
    file = root / piece["partition"] / piece["base_file"]
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "rows.parquet"
    target.write_bytes(b"from before")
    for ending in ("parquet", "csv", "json"):
        done = run("read", root, "-o", target.with_suffix(f".{ending}"))
        assert done.code == 1 and piece["base_file"] in done.err.replace("\n", "")
    assert target.read_bytes() == b"from before" and list(folder.iterdir()) == [target]


# Wrong use and bad tables


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("read", "TABLE", "--columns", "nosuch"), "no column 'nosuch'"),
        (("read", "TABLE", "--where", "ts >"), "ts >"),
        (("read", "TABLE", "--query", "psychic"), "no query 'psychic'"),
        (("read", "TABLE", "--query", "incremental"), "--start"),
        (("read", "TABLE", "--as-of", "1999-01-01"), "earliest instant"),
        (("read", "TABLE", "--memory", "lots"), "'lots' is not a size"),
        (("read", "TABLE", "--limit", "-1"), "limit"),
        (("read", "TABLE", "-o", "rows.xlsx"), "Use .parquet, .arrow, .csv or .json"),
        (("read", "TABLE", "-o", "rows"), "without an ending"),
        (("read", "TABLE", "-o", "/no/such/folder/rows.csv"), "/no/such/folder"),
        (("commit", "TABLE", "20990101000000000"), "no instant 20990101000000000"),
        (("slices", "TABLE", "--as-of", "yesterday"), "'yesterday' is no time"),
        (("log", "dump", "/no/such/file"), "there is no such file"),
        (("hfile", "dump", "/no/such/file"), "there is no such file"),
        (("log", "dump", "TABLE/.hoodie/hoodie.properties"), "not the name of a log file"),
        (("nosuchcommand",), "nosuchcommand"),
        (("show",), "path"),
        (("show", "TABLE", "--nosuch"), "--nosuch"),
    ],
)
def test_wrong_use_ends_with_two(run: Run, golden: Golden, arguments: tuple[str, ...], text: str) -> None:
    root = str(golden("mor_avro_v9"))
    done = run(*(argument.replace("TABLE", root) for argument in arguments))
    assert done.code == 2
    assert text in done.err.replace("\n", " ") and not done.out


def test_bad_tables_end_with_one(run: Run, golden_copy: Golden, tmp_path: Path) -> None:
    done = run("show", tmp_path / "nowhere")
    assert done.code == 1 and done.err.startswith("lakebed: there is no table at") and not done.out
    root = golden_copy("cow_simple_v9")
    (root / ".hoodie/hoodie.properties").write_bytes(b"\0")
    for command in ("show", "timeline", "slices", "config", "read"):
        done = run(command, root)
        assert done.code == 1 and "hoodie.properties" in done.err and "Restore" in done.err


def test_square_brackets_in_messages_and_data_are_not_markup(run: Run, tmp_path: Path) -> None:
    done = run("show", tmp_path / "[red]x[/red]")
    assert "[red]x[/red]" in done.err


# Files


def test_log_dump(run: Run, golden: Golden) -> None:
    for name in ("mor_avro_v9", "mor_parquet_v9", "mor_deletes_v9"):
        for log in sorted(golden(name).glob("p*/.*.log*")):
            blocks = run("log", "dump", log, "--json").json
            assert blocks and {"block", "kind", "INSTANT_TIME"} <= blocks[0].keys()
            assert all(block["INSTANT_TIME"] in log.name for block in blocks)
            assert any(block["rows"] for block in blocks)
            assert not any(block["rows"] for block in run("log", "dump", log, "--rows", 0, "--json").json)
            text = run("log", "dump", log)
            assert text.code == 0 and blocks[0]["kind"] in text.out


def test_log_dump_of_a_torn_log_shows_the_damage(run: Run, golden_copy: Golden) -> None:
    log = next(golden_copy("mor_avro_v9").glob("p*/.*.log*"))
    log.write_bytes(log.read_bytes()[:-5])
    (block,) = run("log", "dump", log, "--json").json
    assert block["kind"] == "CORRUPT"


def test_hfile_dump(run: Run, golden: Golden) -> None:
    hfile = next((golden("mdt_all_v9") / ".hoodie/metadata/files").glob("*.hfile"))
    shown = run("hfile", "dump", hfile, "--json").json
    assert "__all_partitions__" in [entry["key"] for entry in shown["entries"]]
    assert "filesystemMetadata" in shown["entries"][0]["value"], "values of the metadata table are decoded"
    assert run("hfile", "dump", hfile, "--rows", 0, "--json").json["entries"] == []
    done = run("hfile", "dump", hfile, "--rows", 0)
    assert done.code == 0 and "--rows N shows more" in done.out


@pytest.mark.parametrize("command", ["log", "hfile"])
def test_dumps_of_other_files_are_refused(run: Run, golden: Golden, tmp_path: Path, command: str) -> None:
    log = next(golden("mor_avro_v9").glob("p*/.*.log*"))
    other = tmp_path / log.name
    other.write_bytes(b"neither the one nor the other" * 300)
    done = run(command, "dump", other, "--json")
    assert done.code == (0 if command == "log" else 1)  # a log of nothing but damage is shown as such
    assert "CORRUPT" in done.out or "trailer" in done.err


# The tour


def test_demo(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--no-spark", "--rows", "7000", "--keep", tmp_path)
    assert done.code == 0
    for text in ("Without Spark", "upsert 7:", "Time travel", "L0  █", "6 logs", "L1  █", "order-0001400"):
        assert text in done.out
    assert re.search(r"as of \d{17}\s+4,900 rows", done.out)
    kept = tmp_path / "orders"
    assert f"lakebed show {kept}" in done.out.replace("\n", "")
    table = lakebed.open(kept)
    assert table.scan().count() == 2800 + 6 * 350
    assert table.check() == []
    assert set(table.inspect.file_slices().column("log_files").to_pylist()) == {0}
    assert run("demo", "--no-spark", "--rows", "7000", "--keep", tmp_path).code == 2


def test_demo_without_java(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Where Spark cannot start, the tour says why and goes on without it."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = run("demo", "--rows", "1000")
    assert done.code == 0
    assert "no Java found" in done.out
    assert "compacted in" in done.out


# As a program


def test_as_a_program(golden: Golden) -> None:
    command = [sys.executable, "-c", "from lakebed.cli.main import main; main()", "read"]
    root = str(golden("cow_simple_v9"))
    done = subprocess.run([*command, root, "--count"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "153")
    done = subprocess.run([*command, root, "--where", "x = 1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(golden: Golden) -> None:
    text = "from lakebed.cli.main import main; main()"
    root = str(golden("cow_simple_v9"))
    process = subprocess.Popen(
        [sys.executable, "-c", text, "read", root, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    assert process.wait() == 1
    process.stderr.close()


def test_sizes_for_people() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 1_500_000, 10**16)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "10000.0 TB",
    ]
