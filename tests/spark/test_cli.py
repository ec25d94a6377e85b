"""`--spark MASTER`: commands whose file groups run as Spark tasks, in a session that lives as long as the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app
from lakebed.spark.runner import SparkRunner
from tests.spark.tables import make_table, rows

SMALL_LOGS = ("--set", "hoodie.log.compaction.blocks.threshold=2")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran on Spark, by label."""
    found: list[str] = []
    run = SparkRunner.map

    def counted(self: SparkRunner, fn: Callable[[Any], Any], tasks: Iterable[Any], *, label: str) -> Iterator[Any]:
        found.append(label)
        return run(self, fn, tasks, label=label)

    monkeypatch.setattr(SparkRunner, "map", counted)
    return found


def command(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_commands_run_on_the_session(tmp_path: Path, spark: Any, jobs: list[str]) -> None:
    path = str(tmp_path / "t")
    table = make_table(tmp_path / "t", partition_by=None)
    before = table.scan().count()
    assert "deltacommit, completed" in command("compact", path, "--strategy", "log", "--spark", "local[2]", *SMALL_LOGS)
    assert len(jobs) == 1
    assert "commit, completed" in command("compact", path, "--spark", "local[2]")
    assert len(jobs) == 2
    table.upsert(rows(range(5), 9))
    command("compact", path, "--plan-only")
    assert "completed" in command("services", path, "--once", "--spark", "local[2]")
    assert len(jobs) == 3
    table.upsert(rows(range(5), 10))
    assert "version 9" in command("downgrade", path, "--spark", "local[2]")
    assert len(jobs) == 4
    assert lakebed.open(path).scan().count() == before + 1, "key 3 was deleted before"
    assert spark.range(3).count() == 3, "a session that was there before goes on"


def test_clustering_runs_on_the_session(tmp_path: Path, spark: Any, jobs: list[str]) -> None:
    table = make_table(tmp_path / "t", partition_by=None, index="simple", num_buckets=None)
    table.bulk_insert(rows(range(100, 130)))
    before = table.scan().count()
    assert "completed" in command("cluster", str(tmp_path / "t"), "--spark", "local[2]", "--memory", "64MB")
    assert jobs
    assert table.refresh().scan().count() == before


def test_a_command_makes_its_session_and_stops_it(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=None)
    before = table.scan().count()

    def shell(*words: str) -> subprocess.CompletedProcess[str]:
        given = [sys.executable, "-c", WITH_A_LOOK_BACK, *words]
        local = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.run(given, capture_output=True, text=True, env=local, timeout=300, check=False)

    done = shell("compact", str(tmp_path / "t"), "--spark", "local[1]", "--json")
    assert done.returncode == 0, done.stderr
    assert '"action": "commit"' in done.stdout
    assert "sessions left: 0" in done.stdout
    assert table.refresh().scan().count() == before
    assert not any(file_slice["logs"] for file_slice in table.inspect.file_slices().to_pylist())
    wrong = shell("compact", str(tmp_path / "t"), "--spark", "nowhere")
    assert wrong.returncode == 2
    assert "no Spark session on 'nowhere'" in wrong.stderr.replace("\n", " ")


WITH_A_LOOK_BACK = """
import atexit
import sys

from lakebed.cli.main import main


def look_back():
    from pyspark import SparkContext

    print("sessions left:", int(SparkContext._active_spark_context is not None))


atexit.register(look_back)
sys.argv[0] = "lakebed"
main()
"""
