"""The same round trip wherever Spark runs: executors of their own, a standalone cluster, Spark Connect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

SPARK_HOME = Path(pyspark.__file__).parent
PROGRAM = Path(__file__).parent / "round_trip.py"
FOUND = {"rows": 400, "updated": 40, "through the source": 10, "filtered": 50}
PATIENCE = 240
WORKER = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "2", "-m", "1g"]


def environment() -> dict[str, str]:
    wanted = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {key: value for key, value in wanted.items() if not key.startswith(("SPARK_REMOTE", "MASTER"))}


def round_trip(kind: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(folder)],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_executors_in_processes_of_their_own(tmp_path: Path) -> None:
    found = round_trip("local-cluster[2,1,512]", tmp_path)
    assert {key: found[key] for key in FOUND} == FOUND


def test_spark_connect(tmp_path: Path) -> None:
    found = round_trip("connect", tmp_path)
    assert {key: found[key] for key in FOUND} == FOUND
    assert "connect" in found["connect"]


@pytest.mark.slow  # a master and a worker more than the other two: `make clusters`
def test_a_standalone_cluster(tmp_path: Path) -> None:
    with (
        daemon("deploy.master.Master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], tmp_path) as master,
        daemon(
            "deploy.worker.Worker",
            [*WORKER, "-d", str(tmp_path / "work"), master.wait_for(r"Starting Spark master at (spark://\S+)")],
            tmp_path,
        ) as worker,
    ):
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        assert worker.wait_for(r"Successfully registered with master (\S+)") == url
        found = round_trip(url, tmp_path)
    assert {key: found[key] for key in FOUND} == FOUND


class Daemon:
    """A process of Spark, and what it says."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def wait_for(self, pattern: str) -> str:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found.group(1)
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.2)
        pytest.fail(f"{pattern} was not said: {self.log.read_text()[-3000:]}")


@contextmanager
def daemon(name: str, arguments: list[str], folder: Path) -> Iterator[Daemon]:
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.{name}", *arguments],
            env=environment() | {"SPARK_DAEMON_MEMORY": "256m"},
            cwd=folder,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Daemon(process, log)
        finally:
            process.terminate()
            process.wait(30)
