"""Writing and reading from Arrow without Spark: lakebed beside deltalake and PyIceberg on the same rows.

Each peer runs in an environment of its own and in a process of its own; answers are compared before times are.
    python -m benchmarks.arrow_peers PEERS_PYTHON [--rows N]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ["id", "qty", "price", "status"]


def run_lakebed(home: Path, data: Path, upserts: int) -> dict[str, Any]:
    """The workload on lakebed."""
    import lakebed

    path = home / "lakebed"
    first = pq.read_table(data / "base.parquet")
    table = lakebed.create(
        path, first.schema, record_key="id", partition_by="region", ordering="ts", num_buckets=4, index="bucket"
    )
    times: dict[str, Any] = {"version": lakebed.__version__}
    times["bulk"] = _timed(lambda: table.bulk_insert(first))
    times["upserts"] = []
    for number in range(1, upserts + 1):
        batch = pq.read_table(data / f"upsert_{number}.parquet")
        times["upserts"].append(_timed(lambda batch=batch: table.upsert(batch)))
    times["read"] = [_timed(lambda: _sum(table.scan(columns=COLUMNS).to_arrow(), times)) for _ in range(3)]
    return times


def run_deltalake(home: Path, data: Path, upserts: int) -> dict[str, Any]:
    """The workload on delta-rs."""
    import deltalake
    from deltalake import DeltaTable, write_deltalake

    path = str(home / "delta")
    first = pq.read_table(data / "base.parquet")
    times: dict[str, Any] = {"version": deltalake.__version__}
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
    times["read"] = [_timed(lambda: _sum(DeltaTable(path).to_pyarrow_table(columns=COLUMNS), times)) for _ in range(3)]
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
    times["bulk"] = _timed(lambda: table.append(first))
    times["upserts"] = []
    for number in range(1, min(upserts, 1) + 1):
        batch = pq.read_table(data / f"upsert_{number}.parquet")
        times["upserts"].append(_timed(lambda batch=batch: table.upsert(batch, join_cols=["id"])))
    times["read"] = [
        _timed(lambda: _sum(table.scan(selected_fields=tuple(COLUMNS)).to_arrow(), times)) for _ in range(3)
    ]
    return times


def _sum(rows: pa.Table, times: dict[str, Any]) -> None:
    import pyarrow.compute as pc

    times["answer"] = [rows.num_rows, pc.sum(rows.column("qty")).as_py()]


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _peak() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def child(name: str, home: str, data: str, upserts: int) -> None:
    """What runs in a peer's own process: prints the times as JSON."""
    work = {"lakebed": run_lakebed, "deltalake": run_deltalake, "pyiceberg": run_pyiceberg}[name]
    times = work(Path(home), Path(data), upserts)
    times["peak_mb"] = _peak() / 1e6
    times["bytes"] = sum(f.stat().st_size for f in Path(home).rglob("*.parquet"))
    sys.stdout.write(json.dumps(times) + "\n")


def compare(peers_python: str, rows: int, upserts: int = 5) -> dict[str, dict[str, Any]]:
    """All peers, one after the other, on the same files."""
    from benchmarks import orders

    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="lakebed-peers-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        pq.write_table(orders.base(rows), data / "base.parquet")
        for number in range(1, upserts + 1):
            pq.write_table(orders.upsert(rows, number), data / f"upsert_{number}.parquet")
        for name, python in (("lakebed", sys.executable), ("deltalake", peers_python), ("pyiceberg", peers_python)):
            home = Path(folder) / name
            home.mkdir()
            command = [python, __file__, "--child", name, str(home), str(data), str(upserts)]
            env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
            done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
            if done.returncode:
                raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
            found[name] = json.loads(done.stdout.splitlines()[-1])
            shutil.rmtree(home)
    return found


def main(arguments: list[str]) -> int:
    """Print the table of all peers."""
    rows = int(arguments[arguments.index("--rows") + 1]) if "--rows" in arguments else 2_000_000
    found = compare(arguments[0], rows)
    print(f"{rows} rows, 10 columns; seconds, best of the repeats")
    for name, times in found.items():
        upserts = sorted(times["upserts"])
        print(
            f"{name:10} {times['version']:8} bulk {times['bulk']:6.2f}  upsert {upserts[len(upserts) // 2]:6.2f}  "
            f"read {min(times['read']):5.2f}  peak {times['peak_mb']:6.0f} MB  stored {times['bytes'] / 1e6:6.1f} MB  "
            f"answer {times['answer']}"
        )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        sys.exit(main(sys.argv[1:]))
