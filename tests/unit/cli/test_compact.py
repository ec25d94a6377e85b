"""`lakebed compact`: what it plans, why, and what it leaves on the timeline."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli import engine
from lakebed.cli.main import app
from lakebed.errors import InvalidRequest

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
EASY = ["--set", "hoodie.log.compaction.blocks.threshold=2"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = lakebed.create(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", num_buckets=1)
    for step in range(4):
        table.upsert(pa.Table.from_pylist([{"id": f"k{i}", "ts": step, "v": step} for i in range(4)], SCHEMA))
    return str(tmp_path / "t")


def run(*given: str) -> str:
    done = CliRunner().invoke(app, ["compact", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def actions(path: str) -> list[tuple[str, str]]:
    return [(row["action"], row["state"]) for row in lakebed.open(path).inspect.timeline().to_pylist()]


def test_full_and_nothing_left_to_do(path: str) -> None:
    assert "commit, completed" in run(path)
    assert actions(path)[-1] == ("commit", "completed")
    assert "nothing to compact" in run(path)
    assert lakebed.open(path).scan(filter="v = 3").count() == 4


def test_dry_run_and_plan_only(path: str) -> None:
    before = actions(path)
    told = run(path, "--strategy", "hybrid", "--dry-run")
    assert "FULL" in told
    assert "read amplification" in told
    assert "write amplification" in told
    assert actions(path) == before
    plan = json.loads(run(path, "--strategy", "log", "--plan-only", "--json", *EASY))
    [decision] = plan["decisions"]
    assert decision["kind"] == "LOG"
    assert len(decision["logs"]) == 3
    assert (decision["runs_before"], decision["runs_after"]) == (4, 2)
    assert actions(path)[-1] == ("logcompaction", "requested")
    [done] = json.loads(run(path, "--strategy", "log", "--json", *EASY))
    assert done["action"] == "deltacommit"
    assert plan["instants"][0].startswith(done["instant"])


def test_only_when_it_is_due(path: str) -> None:
    assert "nothing to compact" in run(path, "--if-due")
    due = ["--set", "hoodie.compact.inline.max.delta.commits=4"]
    assert "commit" in run(path, "--if-due", "--memory", "64MB", *due)


def test_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="no compaction strategy"):
        run(path, "--strategy", "sideways")


@pytest.mark.parametrize("command", ["compact", "cluster", "downgrade", "services --once"])
def test_spark_is_not_installed_or_finds_no_java(path: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = actions(path)
    name, *more = command.split()

    def refused(master: str) -> str:
        with pytest.raises(InvalidRequest) as error:
            CliRunner().invoke(app, [name, path, *more, "--spark", master], catch_exceptions=False)
        return str(error.value)

    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert "--spark local[2] cannot run" in refused("local[2]")
    assert "pip install 'lakebed[spark]'" in refused("sc://host")
    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    monkeypatch.setattr(engine.shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "no Java found" in refused("spark://host:7077")
    assert engine.why_no_spark("sc://host") is None, "a Connect server has its own"
    assert actions(path) == before
