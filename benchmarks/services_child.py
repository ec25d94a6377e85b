"""Real Hudi's compactions, in its own process: a job in, seconds and bytes out, both JSON.

    python services_child.py '{"home": ..., "data": ..., "upserts": 5, "repeats": 2, "memory": "4g", "bundle": ...}'

The table is filled as in `spark_child.py`; every run starts from a copy of it. A full compaction is the procedure
`run_compaction`, planned and run; a log compaction has no procedure and is asked of the write client, which is what
Hudi's own inline log compaction does. Both run once on a tiny table before the clock.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from spark_child import Hudi, start

LOG_COMPACTION = {
    "hoodie.log.compaction.enable": "true",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.log.record.reader.use.scanV2": "true",
}


def log(engine: Hudi, name: str) -> int:
    """Plan and run a log compaction by the write client; how many log files it wrote."""
    session, path = engine.session, engine.home / name
    before = set(path.rglob("*.log.*"))
    java = session._jvm
    options = {**engine.options, **LOG_COMPACTION, "hoodie.table.name": name.split("-", maxsplit=1)[0]}
    given = java.java.util.HashMap()
    for key, value in options.items():
        given.put(key, value)
    client = java.org.apache.hudi.DataSourceUtils.createHoodieClient(
        session._jsc, _schema(session, path), str(path), options["hoodie.table.name"], given
    )
    try:
        planned = client.scheduleLogCompaction(java.org.apache.hudi.common.util.Option.empty())
        if not planned.isPresent():
            raise SystemExit("Hudi plans no log compaction")
        client.logCompact(planned.get(), True)
    finally:
        client.close()
    return len([file for file in set(path.rglob("*.log.*")) - before if file.suffix != ".crc"])


def _schema(session: Any, path: Path) -> str:
    java = session._jvm
    conf = java.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(session._jsc.hadoopConfiguration())
    client = (
        java.org.apache.hudi.common.table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(str(path)).build()
    )
    resolver = java.org.apache.hudi.common.table.TableSchemaResolver(client)
    return str(resolver.getTableSchema(False).toString())


def bytes_in(path: Path) -> int:
    """Data files only."""
    files = (file for file in path.rglob("*") if file.is_file() and ".hoodie" not in file.relative_to(path).parts)
    return sum(file.stat().st_size for file in files if ".parquet" in file.name or ".log." in file.name)


def main(job: dict[str, Any]) -> None:
    """Run one job and print what came of it."""
    home, data = Path(job["home"]), Path(job["data"])
    engine = Hudi(home, job["bundle"], metadata=False)
    session = start(engine, job["memory"])
    engine.fill("warm", session.read.parquet(str(data / "warm_base.parquet")))
    for _ in range(3):
        engine.upsert("warm", session.read.parquet(str(data / "warm_upsert.parquet")))
    engine.fill("orders", session.read.parquet(str(data / "base.parquet")))
    for number in range(1, job["upserts"] + 1):
        engine.upsert("orders", session.read.parquet(str(data / f"upsert_{number}.parquet")))
    found: dict[str, Any] = {"version": engine.version, "bytes": {"before": bytes_in(home / "orders")}}
    for name, work in (("full", Hudi.compact), ("log", log)):
        seconds = []
        for source in ("warm", *(["orders"] * job["repeats"])):
            copy = f"{source}-{name}"
            shutil.rmtree(home / copy, ignore_errors=True)
            shutil.copytree(home / source, home / copy)
            started = time.perf_counter()
            work(engine, copy)
            seconds.append(time.perf_counter() - started)
        found[name] = seconds[1:]
        found["bytes"][name] = bytes_in(home / f"orders-{name}") - found["bytes"]["before"]
    session.stop()
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
