"""Upkeep from the shell: the same services, words for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.main import main

ROWS = pa.table({"id": ["a", "b"], "ts": [1, 1], "p": ["x", "y"], "v": [1, 2]})
OFF = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    given = {"table_type": "cow", "log_format": "v1", "index": "simple"}
    found = lakebed.create(tmp_path / "t", ROWS, record_key="id", partition_by="p", ordering="ts", **given)
    for number in range(5):
        found.upsert(ROWS.set_column(3, "v", pa.array([number, number])), options=OFF)
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lakebed", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code, capsys.readouterr().err
    out = capsys.readouterr().out
    return json.loads(out) if "--json" in arguments else out


def values(table: lakebed.Table) -> list[int]:
    return sorted(table.refresh().scan(columns=["v"]).to_arrow()["v"].to_pylist())


def test_each_command(table: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    path = table.url.removeprefix("file://")
    assert run(capsys, "clean", path) == "nothing to do\n"
    (saved,) = run(capsys, "savepoint", path, "--comment", "fine", "--json")
    assert saved["action"] == "savepoint"
    table.upsert(ROWS, options=OFF)
    newest = table.inspect.timeline().to_pylist()[-1]
    assert values(table) == [1, 2]
    (cleaned,) = run(capsys, "clean", path, "--set", "hoodie.clean.commits.retained=1", "--json")
    assert cleaned["action"] == "clean"
    (undone,) = run(capsys, "rollback", path, newest["instant"], "--json")
    assert undone["action"] == "rollback"
    assert values(table) == [4, 4]
    table.upsert(ROWS, options=OFF)
    assert "restored" in run(capsys, "restore", path)
    assert values(table) == [4, 4]
    assert "deleted savepoint" in run(capsys, "savepoint", path, "--delete", saved["instant"])
    limits = ["--set", "hoodie.keep.max.commits=3", "--set", "hoodie.keep.min.commits=2"]
    assert len(run(capsys, "archive", path, *limits, "--json")) >= 3
    assert values(table) == [4, 4]
    assert run(capsys, "upgrade", path, "--json") == {"version": 10}
    assert "version 9" in run(capsys, "downgrade", path)
    assert run(capsys, "ttl", path, "--days", 3) == "nothing to do\n"
    assert len(run(capsys, "ttl", path, "--days", 0, "--json")) == 1
    assert values(table) == []
