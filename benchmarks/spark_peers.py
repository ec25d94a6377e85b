"""The write and read paths on Spark: lakebed beside real Hudi, Iceberg and Delta, by turns on the same rows.

    python -m benchmarks.spark_peers [--rows N] [--rounds N] [--engines lakebed,hudi] [--jobs] [--keep FILE.json]

Every engine runs in a process of its own (`spark_child.py`), one at a time; a round takes each engine once, so that
what changes on the machine meanwhile meets them all. Answers are compared before times are; times are medians.

| engine | Python | jars |
|---|---|---|
| lakebed | this one | none |
| Hudi, metadata table off and on | `.venv-hudi`, PySpark 3.5 | hudi-spark3.5-bundle |
| Iceberg, Delta | `.cache/spark-4.0`, PySpark 4.0, made on first use | from Maven Central by `spark.jars.packages` |
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks import orders
from benchmarks.claims import Claims, report

ROOT = Path(__file__).parent.parent
CHILD = Path(__file__).with_name("spark_child.py")
BUNDLES = {
    "hudi": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
    "hudi_metadata": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    "delta": "io.delta:delta-spark_2.13:4.0.1",
}
ENGINES = ("lakebed", *BUNDLES)
STEPS = (
    "bulk insert",
    "upsert",
    "snapshot, first",
    "snapshot, repeated",
    "two columns, first",
    "two columns, repeated",
    "compaction",
)
AGAINST_HUDI = {
    "snapshot, first": 3.0,
    "snapshot, repeated": 4.5,
    "two columns, first": 3.0,
    "two columns, repeated": 5.0,
}
CHILD_SECONDS = 1800.0
WARM_ROWS, WARM_UPSERT = 20_000, 12_000
"""More rows in an upsert than lakebed writes in the driver, so that its tasks are warm as well."""

Measured = dict[str, Any]


def run(rows: int = orders.ROWS, rounds: int = 3, upserts: int = orders.UPSERTS) -> Claims:
    """All engines; lakebed's time divided by theirs."""
    found = compare(list(ENGINES), rows, rounds, upserts)
    show(found, rows)
    return claims(found)


def compare(engines: list[str], rows: int, rounds: int, upserts: int = orders.UPSERTS) -> dict[str, Measured]:
    """Every engine once a round; the medians, the last round's jobs."""
    pythons = {name: python_of(name) for name in engines}
    collected: dict[str, list[Measured]] = {name: [] for name in engines}
    with tempfile.TemporaryDirectory(prefix="lakebed-spark-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        make_rows(data, rows, upserts)
        for number in range(1, rounds + 1):
            for name in engines:
                collected[name].append(in_child(name, pythons[name], Path(folder) / name, data, upserts))
                print(f"round {number} of {rounds}: {name} done", file=sys.stderr, flush=True)
    found = {name: _medians(results) for name, results in collected.items()}
    answers = {json.dumps(measured["answers"]) for measured in found.values()}
    if len(answers) != 1:
        raise RuntimeError(f"the engines answer differently: { {name: m['answers'] for name, m in found.items()} }")
    expected = rows + upserts * (int(rows * orders.SHARE) // 10)
    counted = next(iter(found.values()))["answers"]["snapshot"][0]
    if counted != expected:
        raise RuntimeError(f"the tables have {counted} rows, and should have {expected}")
    return found


def make_rows(data: Path, rows: int, upserts: int) -> None:
    """The input of every engine; row groups small enough that all cores read."""
    tables = {
        "warm_base": orders.base(WARM_ROWS),
        "warm_upsert": orders.orders(np.arange(WARM_UPSERT), 1),
        "base": orders.base(rows),
        **{f"upsert_{number}": orders.upsert(rows, number) for number in range(1, upserts + 1)},
    }
    for name, table in tables.items():
        pq.write_table(table, data / f"{name}.parquet", row_group_size=max(1, table.num_rows // 8))


def in_child(name: str, python: str, home: Path, data: Path, upserts: int) -> Measured:
    """One engine, one round; its table and everything that it started are gone afterwards."""
    home.mkdir()
    job = {"engine": name, "home": str(home), "data": str(data), "upserts": upserts, "repeats": 3, "memory": "3g"}
    command = [python, str(CHILD), json.dumps({**job, "bundle": BUNDLES.get(name, "")})]
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")}
    with (home / "stderr").open("w+") as log:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=home, env=env, start_new_session=True
        )
        try:
            out, _ = child.communicate(timeout=CHILD_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the JVM and its Python workers, should any be left
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child.returncode:
            log.seek(0)
            raise RuntimeError(f"{name} failed: {log.read()[-3000:]}")
    shutil.rmtree(home)
    measured: Measured = json.loads(out.splitlines()[-1])
    return measured


def python_of(engine: str) -> str:
    """The Python of an engine's environment, which is made when it is not there."""
    if engine.startswith("lakebed"):
        return sys.executable
    if engine.startswith("hudi"):
        python = Path(os.environ.get("LAKEBED_HUDI_PYTHON", ROOT / ".venv-hudi" / "bin" / "python"))
        if not python.exists():
            subprocess.run(["make", ".venv-hudi/.ready"], cwd=ROOT, check=True)
        return str(python)
    python = Path(os.environ.get("LAKEBED_SPARK40_PYTHON", ROOT / ".cache" / "spark-4.0" / "bin" / "python"))
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "pyspark==4.0.*"], check=True)
    return str(python)


def _medians(results: list[Measured]) -> Measured:
    took = {step: [second for result in results for second in result["seconds"][step]] for step in STEPS}
    return {
        **results[-1],
        "median": {step: median(seconds) for step, seconds in took.items()},
        "spread": {step: (min(seconds), max(seconds)) for step, seconds in took.items()},
    }


def claims(found: dict[str, Measured]) -> Claims:
    """lakebed's part of the others' time; targets are upper bounds."""
    ours = found["lakebed"]
    made: Claims = []

    def claim(step: str, peers: tuple[str, ...], label: str, target: float) -> None:
        known = [found[peer]["median"][step] for peer in peers if peer in found]
        if known:
            made.append((f"{step}: lakebed / {label}", ours["median"][step] / min(known), target))

    for step in ("bulk insert", "upsert"):
        claim(step, ("hudi",), "Hudi without metadata table", 1 / 2)
    for step, times in AGAINST_HUDI.items():
        claim(step, ("hudi", "hudi_metadata"), "the faster Hudi", 1 / times)
    claim("compaction", ("hudi", "hudi_metadata"), "the faster Hudi", 1 / 5)
    others = ("iceberg", "delta")
    claim("bulk insert", others, "the faster of Iceberg and Delta", 1.2)
    claim("upsert", others, "the faster of Iceberg and Delta", 1 / 1.5)
    for step in ("snapshot, repeated", "two columns, repeated"):
        claim(step, others, "the faster of Iceberg and Delta", 2.0)
    if "hudi" in found:
        made.append(
            ("stored bytes: lakebed / Hudi without metadata table", ours["bytes"] / found["hudi"]["bytes"], 1.0)
        )
    return made


def show(found: dict[str, Measured], rows: int, jobs: bool = False) -> None:
    """Versions, options, medians with the fastest and slowest, and Spark jobs where they are asked for."""
    console = Console()
    for name, measured in found.items():
        console.print(f"{name}: {measured['version']}", highlight=False)
        options = ", ".join(f"{key}={value}" for key, value in measured["options"].items())
        console.print(f"  {options}", highlight=False, soft_wrap=True)
    answer = next(iter(found.values()))["answers"]["snapshot"]
    table = Table(title=f"{rows:,} rows, local[2]; seconds (fastest-slowest); same answer {answer}")
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
    for step in STEPS:
        table.add_row(step, *(_time(measured, step) for measured in found.values()))
    table.add_row("stored MB", *(f"{measured['bytes'] / 1e6:.1f}" for measured in found.values()))
    console.print(table)
    for name, measured in found.items() if jobs else ():
        for step, done in measured["jobs"].items():
            each = "; ".join(
                f"{what} {took:.2f} s, {stages} stages, {tasks} tasks" for what, took, stages, tasks in done
            )
            console.print(f"{name}, {step}: {len(done)} jobs: {each}", highlight=False, soft_wrap=True)


def _time(measured: Measured, step: str) -> str:
    low, high = measured["spread"][step]
    return f"{measured['median'][step]:.2f} ({low:.2f}-{high:.2f})"


def main(arguments: list[str]) -> int:
    """Run the comparison as asked on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=orders.ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"of {', '.join(ENGINES)}, lakebed_v1")
    parser.add_argument("--jobs", action="store_true", help="show the Spark jobs of every step")
    parser.add_argument("--keep", type=Path, help="where to leave all that was measured, as JSON")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without ending the child and removing its files
    found = compare(given.engines.split(","), given.rows, given.rounds)
    if given.keep:
        given.keep.write_text(json.dumps(found, indent=1))
    show(found, given.rows, given.jobs)
    return report(claims(found)) if "lakebed" in found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
