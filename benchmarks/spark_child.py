"""One engine of the Spark comparison, in a process and with a Python of its own: a job in, measurements out, both JSON.

    python spark_child.py '{"engine": "hudi", "home": ..., "data": ..., "upserts": 5, "repeats": 3, "memory": "3g"}'

    session ─► everything once on a tiny table ─► bulk insert ─► upserts ─► snapshot reads ─► reads of two columns
            ─► compaction

The file stands alone (no import of other benchmarks, no pyarrow), for most engines live where lakebed is not installed.
What is timed begins with Spark's frame over the input files and ends with the commit, or with the answer of an
aggregate; starting the JVM and the warm-up are not. Last on stdout is one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

CORES, BUCKETS, PARTITIONS = 2, 4, 2
PAID = "count_if(status = 'paid')"
SNAPSHOT = {
    "columns": ["id", "qty", "price", "status"],
    "answer": ["count(1)", "sum(qty)", "cast(sum(rint(price * 100)) as bigint)", "sum(length(id))", PAID],
}
TWO_COLUMNS = {"columns": ["qty", "status"], "answer": ["count(1)", "sum(qty)", PAID]}
SAME_FOR_ALL = {
    "spark.sql.shuffle.partitions": str(BUCKETS * PARTITIONS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
MERGE = (
    "merge into {table} t using incoming s on t.id = s.id and t.region = s.region "
    "when matched then update set * when not matched then insert *"
)
"""No condition on `ts`: batches come in order, and without it Delta and Iceberg have less to do."""


class Engine(ABC):
    """What a table format has to do here; `name` is a table's name below the engine's home."""

    settings: Mapping[str, str] = {}
    options: Mapping[str, str] = {}
    version = ""
    in_sql = ""

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def session(self) -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession()

    @abstractmethod
    def fill(self, name: str, rows: Any) -> None:
        """Make a table of these rows."""

    def upsert(self, name: str, rows: Any) -> None:
        rows.createOrReplaceTempView("incoming")
        self.session.sql(MERGE.format(table=self.in_sql.format(home=self.home, name=name)))

    def read(self, name: str, columns: list[str]) -> Any:
        return self.session.table(self.in_sql.format(home=self.home, name=name)).select(*columns)

    @abstractmethod
    def compact(self, name: str) -> None:
        """Bring what upserts left beside the files into them."""

    def forget(self) -> None:
        """Drop what an earlier query left for the next one, where that is half the work."""
        self.session.catalog.clearCache()


class Lakebed(Engine):
    """lakebed by its Python API; it makes no metadata table, and zstd is its default."""

    def __init__(self, home: Path, log_format: str) -> None:
        import lakebed

        super().__init__(home)
        self.lakebed = lakebed
        self.version = f"lakebed {lakebed.__version__}"
        reader_context = {"record_key": "id", "partition_by": "region", "ordering": "ts", "index": "bucket"}
        self.reader_context: dict[str, Any] = {**reader_context, "num_buckets": BUCKETS, "log_format": log_format}
        self.options = {key: str(value) for key, value in self.reader_context.items()}

    def fill(self, name: str, rows: Any) -> None:
        self.lakebed.create(self.home / name, rows.schema, **self.reader_context).bulk_insert(rows)

    def upsert(self, name: str, rows: Any) -> None:
        self.lakebed.open(self.home / name).upsert(rows)

    def read(self, name: str, columns: list[str]) -> Any:
        return self.lakebed.read(self.session, self.home / name, columns=columns)

    def compact(self, name: str) -> None:
        self.lakebed.open(self.home / name).services.compact()

    def forget(self) -> None:
        """Merge vectors and frames of an earlier query must not make the next "first" read a repeated one."""
        from lakebed.read.merge_vector_cache import MERGE_VECTORS
        from lakebed.spark.read import forget_frames

        MERGE_VECTORS.clear()
        forget_frames()


class Hudi(Engine):
    """Real Hudi by its data source, everything not named here as Hudi has it by default."""

    def __init__(self, home: Path, bundle: str, metadata: bool) -> None:
        super().__init__(home)
        self.version = f"Hudi {bundle.rpartition(':')[2]}"
        self.settings = {
            "spark.jars.packages": bundle,
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }
        self.metadata = {"hoodie.metadata.enable": str(metadata).lower()}
        self.options = {
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "region",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(BUCKETS),
            "hoodie.parquet.compression.codec": "zstd",
            "hoodie.compact.inline": "false",  # its Spark writer compacts in the fifth upsert otherwise
            **self.metadata,
        }

    def fill(self, name: str, rows: Any) -> None:
        self._write(name, rows, "bulk_insert", "overwrite")

    def upsert(self, name: str, rows: Any) -> None:
        self._write(name, rows, "upsert", "append")

    def _write(self, name: str, rows: Any, operation: str, mode: str) -> None:
        options = {**self.options, "hoodie.table.name": name, "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**options).mode(mode).save(str(self.home / name))

    def compact(self, name: str) -> None:
        given = ",".join(f"{key}={value}" for key, value in self.metadata.items())
        for step in ("schedule", "run"):
            where = f"path => '{self.home / name}', options => '{given}'"
            self.session.sql(f"call run_compaction(op => '{step}', {where})").collect()

    def read(self, name: str, columns: list[str]) -> Any:
        return self.session.read.format("hudi").options(**self.metadata).load(str(self.home / name)).select(*columns)


class Iceberg(Engine):
    """Iceberg merge-on-read in a catalog of folders."""

    in_sql = "ice.b.{name}"

    def __init__(self, home: Path, bundle: str) -> None:
        super().__init__(home)
        self.version = f"Iceberg {bundle.rpartition(':')[2]}"
        self.settings = {
            "spark.jars.packages": bundle,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(home),
        }  # zstd is its default
        self.options = {"format-version": "2", "write.merge.mode": "merge-on-read"}

    def fill(self, name: str, rows: Any) -> None:
        options = ", ".join(f"'{key}' = '{value}'" for key, value in self.options.items())
        rows.createOrReplaceTempView("incoming")
        rows.sparkSession.sql(
            f"create table ice.b.{name} using iceberg partitioned by (region) tblproperties ({options}) "
            "as select * from incoming"
        )

    def compact(self, name: str) -> None:
        everything = "options => map('rewrite-all', 'true')"
        self.session.sql(f"call ice.system.rewrite_data_files(table => 'b.{name}', {everything})").collect()


class Delta(Engine):
    """Delta with deletion vectors; its log, like everything else, is not cut into more tasks than the cores take."""

    in_sql = "delta.`{home}/{name}`"

    def __init__(self, home: Path, bundle: str) -> None:
        super().__init__(home)
        self.version = f"Delta {bundle.rpartition(':')[2]}"
        self.settings = {
            "spark.jars.packages": bundle,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": str(CORES),
        }
        self.options = {"delta.enableDeletionVectors": "true"}

    def fill(self, name: str, rows: Any) -> None:
        rows.write.format("delta").partitionBy("region").options(**self.options).save(str(self.home / name))

    def compact(self, name: str) -> None:
        self.session.sql(f"optimize {self.in_sql.format(home=self.home, name=name)}").collect()


def engine_named(name: str, home: Path, bundle: str) -> Engine:
    """The engines that a job may ask for."""
    known: dict[str, Callable[[], Engine]] = {
        "lakebed": lambda: Lakebed(home, "v2"),
        "lakebed_v1": lambda: Lakebed(home, "v1"),
        "hudi": lambda: Hudi(home, bundle, metadata=False),
        "hudi_metadata": lambda: Hudi(home, bundle, metadata=True),
        "iceberg": lambda: Iceberg(home, bundle),
        "delta": lambda: Delta(home, bundle),
    }
    return known[name]()


def start(engine: Engine, memory: str) -> Any:
    """The session of an engine, everything of it below the engine's home."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    places = {"spark.local.dir": str(engine.home / "local"), "spark.sql.warehouse.dir": str(engine.home / "warehouse")}
    builder: Any = SparkSession.builder.master(f"local[{CORES}]")
    for key, value in {**SAME_FOR_ALL, "spark.driver.memory": memory, **places, **engine.settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Clock:
    """Seconds of every step, and the Spark jobs that it took: [what, seconds, stages, tasks] each."""

    def __init__(self, session: Any) -> None:
        self._spark = session.sparkContext._jsc.sc()
        self.seconds: dict[str, list[float]] = {}
        self.jobs: dict[str, list[list[Any]]] = {}

    def __call__(self, step: str, work: Callable[[], Any]) -> Any:
        before = {job.jobId() for job in self._all()}
        start = time.perf_counter()
        answer = work()
        self.seconds.setdefault(step, []).append(time.perf_counter() - start)
        self.jobs[step] = [_summary(job) for job in reversed(self._all()) if job.jobId() not in before]
        return answer

    def _all(self) -> list[Any]:
        """Every job so far, newest first; events reach Spark's books a moment after the fact."""
        self._spark.listenerBus().waitUntilEmpty()
        jobs = self._spark.statusStore().jobsList(None)
        return [jobs.apply(number) for number in range(jobs.size())]


def _summary(job: Any) -> list[Any]:
    begun, ended = job.submissionTime(), job.completionTime()
    took = (ended.get().getTime() - begun.get().getTime()) / 1000 if begun.isDefined() and ended.isDefined() else 0.0
    return [job.name().split(" at ")[0], took, job.stageIds().size() - job.numSkippedStages(), job.numCompletedTasks()]


def dry_run(engine: Engine, session: Any, data: Path) -> None:
    """Everything once on a tiny table: classes are loaded, Python workers are there."""
    engine.fill("warm", session.read.parquet(str(data / "warm_base.parquet")))
    engine.upsert("warm", session.read.parquet(str(data / "warm_upsert.parquet")))
    for query in (SNAPSHOT, TWO_COLUMNS):
        ask(engine, "warm", query)
    engine.compact("warm")


def ask(engine: Engine, name: str, query: Mapping[str, list[str]]) -> list[int]:
    """The answer of a query, whole numbers so that engines can be compared."""
    row = engine.read(name, query["columns"]).selectExpr(*query["answer"]).collect()[0]
    return [int(value) for value in row]


def work(engine: Engine, session: Any, job: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """The workload; the answers of all reads must agree with each other."""
    data = Path(job["data"])
    clock("bulk insert", partial(engine.fill, "orders", session.read.parquet(str(data / "base.parquet"))))
    for number in range(1, job["upserts"] + 1):
        batch = session.read.parquet(str(data / f"upsert_{number}.parquet"))
        clock("upsert", partial(engine.upsert, "orders", batch))
    answers: dict[str, list[int]] = {}
    for name, query in (("snapshot", SNAPSHOT), ("two columns", TWO_COLUMNS)):
        engine.forget()
        for number in range(job["repeats"] + 1):
            step = f"{name}, {'repeated' if number else 'first'}"
            answer = clock(step, partial(ask, engine, "orders", query))
            if answers.setdefault(name, answer) != answer:
                raise SystemExit(f"{name} reads differ: {answers[name]} and {answer}")
    return answers


def main(job: dict[str, Any]) -> None:
    """Run one job and print what came of it."""
    home = Path(job["home"])
    engine = engine_named(job["engine"], home, job.get("bundle", ""))
    session = start(engine, job["memory"])
    clock = Clock(session)
    dry_run(engine, session, Path(job["data"]))
    answers = work(engine, session, job, clock)
    files = [file for file in home.rglob("*") if file.is_file() and "orders" in file.relative_to(home).parts]
    stored = sum(file.stat().st_size for file in files if file.suffix != ".crc")
    clock("compaction", partial(engine.compact, "orders"))
    engine.forget()
    if ask(engine, "orders", SNAPSHOT) != answers["snapshot"]:
        raise SystemExit("compaction changed the answer")
    found = {
        "version": f"{engine.version} on Spark {session.version}",
        "options": engine.options,
        "seconds": clock.seconds,
        "jobs": clock.jobs,
        "answers": answers,
        "bytes": stored,
    }
    session.stop()
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
