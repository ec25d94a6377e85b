"""Real Hudi in a child process: one Spark session that obeys JSON lines.

Starting a JVM costs several seconds, so a whole test session shares one. The child runs under a Python of its own
(pyspark 3.5 for Hudi 1.2.0, no lakebed installed) and knows nothing about the tests:

    stdin   {"id": 1, "op": "write", ...}          one request a line
    stdout  {"id": 1, "ok": true, ...}             one answer a line, in order
            {"id": 1, "ok": false, "error": ..., "trace": ...}

Rows travel as files: Parquet into Spark, JSON ({columns, types, rows}, the form of the golden tables) out of it.
File descriptor 1 belongs to the protocol; whatever Spark, Ivy and Hudi print goes to stderr.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import decimal
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HUDI_BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"


def start_session(folder: Path, bundle: str, memory: str) -> Any:
    """A local session with Hudi's extensions; everything Spark leaves behind lies under `folder`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("hudi-peer")
    settings = {
        "spark.jars" if bundle.endswith(".jar") else "spark.jars.packages": bundle,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.system.home={folder}",
        "spark.sql.orc.enableVectorizedReader": "false",  # Hudi 1.2.0 cannot read ORC base files in batches
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def as_json(value: Any) -> Any:
    """A Spark value in the notation of the golden tables' expected rows."""
    if isinstance(value, tuple) and hasattr(value, "__fields__"):
        return {name: as_json(value[name]) for name in value.__fields__}
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return {"b64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def dump(frame: Any, out: str) -> int:
    """Collect a frame into `out`; the number of rows."""
    rows = [[as_json(value) for value in row] for row in frame.collect()]
    body = {"columns": frame.columns, "types": [kind for _, kind in frame.dtypes], "count": len(rows), "rows": rows}
    Path(out).write_text(json.dumps(body))
    return len(rows)


class Peer:
    """The requests. Each takes its arguments by name and returns what the answer line adds."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def write(
        self, path: str, rows: str, options: dict[str, str], mode: str = "append", source: str = "hudi"
    ) -> dict[str, Any]:
        frame = self.session.read.parquet(rows).coalesce(1)
        frame.write.format(source).options(**options).mode(mode).save(path)
        return {}

    def read(
        self,
        path: str,
        out: str,
        options: dict[str, str] | None = None,
        columns: list[str] | None = None,
        where: str | None = None,
        source: str = "hudi",
    ) -> dict[str, Any]:
        frame = self.session.read.format(source).options(**(options or {})).load(path)
        if where:
            frame = frame.where(where)
        if columns:
            frame = frame.select(*columns)
        return {"count": dump(frame, out)}

    def sql(self, text: str, out: str | None = None, conf: dict[str, str] | None = None) -> dict[str, Any]:
        """A statement, under settings that hold for this statement only."""
        before = {key: self.session.conf.get(key, None) for key in conf or {}}
        for key, value in (conf or {}).items():
            self.session.conf.set(key, value)
        try:
            frame = self.session.sql(text)
            return {"count": dump(frame, out)} if out else {}
        finally:
            for key, value in before.items():
                if value is None:
                    self.session.conf.unset(key)
                else:
                    self.session.conf.set(key, value)

    def view(self, name: str, rows: str) -> dict[str, Any]:
        """Give rows a name that statements can select from."""
        self.session.read.parquet(rows).createOrReplaceTempView(name)
        return {}

    def version(self) -> dict[str, Any]:
        jvm = self.session.sparkContext._jvm
        return {"spark": self.session.version, "java": jvm.java.lang.System.getProperty("java.version")}


def cause(error: BaseException) -> str:
    """The innermost reason of a JVM failure, in one line."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line for line in lines if line.startswith("Caused by:")] or [x for x in lines if x.startswith(": ")]
    return (causes or lines[:1])[-1].strip()[:500]


def serve(peer: Peer, answer: Callable[[dict[str, Any]], None]) -> None:
    """Answer requests until `stop` or the end of input."""
    for line in sys.stdin:
        request = json.loads(line)
        number, op = request.pop("id"), request.pop("op")
        if op == "stop":
            answer({"id": number, "ok": True})
            return
        try:
            answer({"id": number, "ok": True, **getattr(peer, op)(**request)})
        except Exception as error:
            trace = traceback.format_exc()
            print(trace, file=sys.stderr, flush=True)
            answer({"id": number, "ok": False, "error": cause(error), "trace": trace[-6000:]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True, help="where Spark may leave temporary files")
    parser.add_argument("--bundle", default=HUDI_BUNDLE, help="Maven coordinate of the Hudi bundle, or a jar file")
    parser.add_argument("--memory", default="2g")
    chosen = parser.parse_args()
    with os.fdopen(os.dup(1), "w", buffering=1) as protocol:
        os.dup2(2, 1)

        def answer(body: dict[str, Any]) -> None:
            protocol.write(json.dumps(body) + "\n")
            protocol.flush()

        chosen.folder.mkdir(parents=True, exist_ok=True)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["TZ"] = "UTC"  # Spark hands out timestamps in the zone of this process
        time.tzset()
        session = start_session(chosen.folder, chosen.bundle, chosen.memory)
        peer = Peer(session)
        answer({"id": 0, "ok": True, **peer.version()})
        try:
            serve(peer, answer)
        finally:
            session.stop()


if __name__ == "__main__":
    main()
