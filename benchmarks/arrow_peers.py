"""Writing and reading from Arrow without Spark: lakebed beside deltalake and PyIceberg on the same rows.

    python -m benchmarks.arrow_peers [--rows N] [--rounds N] [--peers deltalake,pyiceberg]

Every engine is a process of its own, a round takes each once; answers are compared before times are, and times are
medians. The peers live in `.cache/arrow-peers`, made on first use (or where LAKEBED_PEERS_PYTHON says). PyIceberg's
upsert takes so long that it is done once: its reads have less to merge, and its answer is not compared. The first read
of a process merges, the second also notes what it learnt, "read" is any after that. The peak is what a process holds
above its imports and the rows of the bulk insert, which it has in hand.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.claims import Claims, report
from benchmarks.measure import reset_peak, status

ROOT = Path(__file__).parent.parent
COLUMNS = ["id", "qty", "price", "status"]
STEPS = ("bulk", "upsert", "first read", "second read", "read", "hundred")


def run_lakebed(home: Path, data: Path, upserts: int) -> dict[str, Any]:
    """The workload on lakebed."""
    import lakebed

    path = home / "lakebed"
    first = pq.read_table(data / "base.parquet")
    table = lakebed.create(
        path, first.schema, record_key="id", partition_by="region", ordering="ts", num_buckets=4, index="bucket"
    )
    times: dict[str, Any] = {"version": lakebed.__version__}
    times["loaded"] = reset_peak()
    times["bulk"] = _timed(lambda: table.bulk_insert(first))
    times["upserts"] = []
    for number in range(1, upserts + 1):
        batch = pq.read_table(data / f"upsert_{number}.parquet")
        times["upserts"].append(_timed(lambda batch=batch: table.upsert(batch)))
    times["read"] = [_timed(lambda: _sum(table.scan(columns=COLUMNS).to_arrow(), times)) for _ in range(8)]
    times["peak"] = status("VmHWM")
    hundred = batch.slice(0, 100)
    times["hundred"] = [_timed(lambda: table.upsert(hundred)) for _ in range(7)]
    return times


def run_deltalake(home: Path, data: Path, upserts: int) -> dict[str, Any]:
    """The workload on delta-rs."""
    import deltalake
    from deltalake import DeltaTable, write_deltalake

    path = str(home / "delta")
    first = pq.read_table(data / "base.parquet")
    times: dict[str, Any] = {"version": deltalake.__version__}
    times["loaded"] = reset_peak()
    times["bulk"] = _timed(lambda: write_deltalake(path, first, partition_by=["region"]))
    times["upserts"] = []
    for number in range(1, upserts + 1):
        batch = pq.read_table(data / f"upsert_{number}.parquet")

        def merge(batch: pa.Table = batch) -> None:
            table = DeltaTable(path)
            (
                table.merge(batch, "t.id = s.id and t.region = s.region", source_alias="s", target_alias="t")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )

        times["upserts"].append(_timed(merge))
    times["read"] = [_timed(lambda: _sum(DeltaTable(path).to_pyarrow_table(columns=COLUMNS), times)) for _ in range(8)]
    times["peak"] = status("VmHWM")
    return times


def run_pyiceberg(home: Path, data: Path, upserts: int) -> dict[str, Any]:
    """The workload on PyIceberg with a SQLite catalog."""
    import pyiceberg
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = home / "iceberg"
    warehouse.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.create_namespace("b")
    first = pq.read_table(data / "base.parquet")
    table = catalog.create_table("b.orders", schema=first.schema)
    with table.update_spec() as spec:
        spec.add_identity("region")
    times: dict[str, Any] = {"version": pyiceberg.__version__}
    times["loaded"] = reset_peak()
    times["bulk"] = _timed(lambda: table.append(first))
    times["upserts"] = []
    for number in range(1, min(upserts, 1) + 1):
        batch = pq.read_table(data / f"upsert_{number}.parquet")
        times["upserts"].append(_timed(lambda batch=batch: table.upsert(batch, join_cols=["id"])))
    times["read"] = [
        _timed(lambda: _sum(table.scan(selected_fields=tuple(COLUMNS)).to_arrow(), times)) for _ in range(8)
    ]
    times["peak"] = status("VmHWM")
    return times


def _sum(rows: pa.Table, times: dict[str, Any]) -> None:
    import pyarrow.compute as pc

    times["answer"] = [rows.num_rows, pc.sum(rows.column("qty")).as_py()]


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def child(name: str, home: str, data: str, upserts: int) -> None:
    """What runs in a peer's own process: prints the times as JSON."""
    work = {"lakebed": run_lakebed, "deltalake": run_deltalake, "pyiceberg": run_pyiceberg}[name]
    times = work(Path(home), Path(data), upserts)
    times["bytes"] = sum(f.stat().st_size for f in Path(home).rglob("*.parquet"))
    sys.stdout.write(json.dumps(times) + "\n")
    sys.stdout.flush()
    os._exit(0)  # one of the peers may crash while the interpreter goes down


def run(rows: int = 2_000_000, rounds: int = 3, peers: tuple[str, ...] = ("deltalake", "pyiceberg")) -> Claims:
    """lakebed's part of the others' time; targets are upper bounds."""
    found = compare(("lakebed", *peers), rows, rounds)
    print(f"{rows:,} rows x 10 columns; seconds, medians of {rounds} rounds")
    for name, times in found.items():
        steps = "  ".join(f"{step} {times[step]:6.2f}" for step in STEPS)
        print(
            f"{name:10} {times['version']:8} {steps}  peak {times['above'] / 1e6:5.0f} MB above the input, "
            f"{times['peak'] / 1e6:5.0f} in all  stored {times['bytes'] / 1e6:6.1f} MB"
        )
    ours, delta = found["lakebed"], found["deltalake"]
    upsert = min(times["upsert"] for name, times in found.items() if name != "lakebed")
    return [
        ("upsert: lakebed / the better peer", ours["upsert"] / upsert, 1 / 2),
        ("bulk insert: lakebed / deltalake", ours["bulk"] / delta["bulk"], 2.0),
        ("snapshot read: lakebed / deltalake", ours["read"] / delta["read"], 1.5),
        ("peak above the input: lakebed / deltalake", ours["above"] / delta["above"], 0.5),
        ("upsert of 100 rows, warm: seconds", ours["hundred"], 0.3),
    ]


def compare(names: tuple[str, ...], rows: int, rounds: int, upserts: int = 5) -> dict[str, dict[str, Any]]:
    """Every engine once a round, on the same files; the medians."""
    from benchmarks import orders

    collected: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="lakebed-peers-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        pq.write_table(orders.base(rows), data / "base.parquet")
        for number in range(1, upserts + 1):
            pq.write_table(orders.upsert(rows, number), data / f"upsert_{number}.parquet")
        for _ in range(rounds):
            for name in names:
                home = Path(folder) / name
                home.mkdir()
                command = [python_of(name), __file__, "--child", name, str(home), str(data), str(upserts)]
                env = {**os.environ, "PYTHONPATH": str(ROOT)}
                done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
                if done.returncode:
                    raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
                collected[name].append(json.loads(done.stdout.splitlines()[-1]))
                shutil.rmtree(home)
    answers = {str(result["answer"]) for name in names if name != "pyiceberg" for result in collected[name]}
    if len(answers) != 1:
        raise RuntimeError(f"the engines answer differently: {answers}")
    return {name: _medians(results) for name, results in collected.items()}


def _medians(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **results[-1],
        "bulk": median(result["bulk"] for result in results),
        "upsert": median(second for result in results for second in result["upserts"]),
        "first read": median(result["read"][0] for result in results),
        "second read": median(result["read"][1] for result in results),
        "read": median(second for result in results for second in result["read"][2:]),
        "hundred": median(second for result in results for second in result.get("hundred", [0.0])[1:] or [0.0]),
        "above": median(result["peak"] - result["loaded"] for result in results),
        "peak": median(result["peak"] for result in results),
    }


def python_of(engine: str) -> str:
    """The Python of an engine's environment, which is made when it is not there."""
    if engine == "lakebed":
        return sys.executable
    python = Path(os.environ.get("LAKEBED_PEERS_PYTHON", ROOT / ".cache" / "arrow-peers" / "bin" / "python"))
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        peers = ["deltalake>=1.6,<2", "pyiceberg[sql-sqlite,pyarrow]>=0.10", "pyarrow"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *peers], check=True)
    return str(python)


def main(arguments: list[str]) -> int:
    """Run the comparison as asked on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="deltalake,pyiceberg")
    given = parser.parse_args(arguments)
    return report(run(given.rows, given.rounds, tuple(given.peers.split(","))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        sys.exit(main(sys.argv[1:]))
