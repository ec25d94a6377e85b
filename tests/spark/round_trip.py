"""A write and two reads on a Spark given on the command line: `round_trip.py MASTER|connect FOLDER`.

Run as a program of its own, for a process has one Spark for its lifetime. Prints what it found, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakebed

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Rows are few: compiling takes longer than running them, so the JVMs of these tests compile little."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def session(kind: str) -> SparkSession:
    builder: Any = SparkSession.builder.remote("local[2]") if kind == "connect" else SparkSession.builder.master(kind)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    return made


def run(spark: SparkSession, folder: str) -> dict[str, Any]:
    rows = spark.range(0, 400).select(
        F.col("id").cast("string").alias("id"),
        F.concat(F.lit("p"), F.col("id") % 3).alias("part"),
        F.lit(1).cast("long").alias("version"),
        (F.col("id") * 2).alias("qty"),
    )
    table = lakebed.create(
        f"{folder}/orders",
        rows.schema,
        record_key="id",
        partition_by="part",
        ordering="version",
        num_buckets=2,
    )
    job = {"lakebed.spark.driver.rows": "0"}
    table.bulk_insert(rows)
    table.upsert(rows.where("qty < 100").withColumn("qty", F.lit(-1).cast("long")), options=job)
    loaded = spark.read.format("lakebed").schema("id STRING, part STRING, version LONG").load(table.url)
    again = loaded.where("cast(id AS INT) < 10").withColumn("qty", F.lit(-3).cast("long"))
    again.write.format("lakebed").mode("append").save(table.url)
    read = lakebed.read(spark, table.url, columns=["id", "qty"])
    counted = {row["qty"]: row["count"] for row in read.where("qty < 0").groupBy("qty").count().collect()}
    return {
        "rows": table.refresh().scan().count(),
        "updated": counted.get(-1),
        "through the source": counted.get(-3),
        "filtered": lakebed.read(spark, table.url, filter="qty % 7 = 3 OR qty IS NULL").count(),
        "connect": type(spark).__module__,
    }


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(sys.argv[1])
    found = run(spark, sys.argv[2])
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")
