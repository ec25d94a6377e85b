"""What `lakebed demo` needs of Spark: whether it is here, a small session, and orders made inside Spark."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "OFF",
}


def was_running() -> bool:
    """Whether somebody else has a session here already, which is not ours to stop."""
    return SparkSession.getActiveSession() is not None


def local_session() -> SparkSession:
    """A session on two cores of this machine, or the one that is there."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.master("local[2]").appName("lakebed demo")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def orders(spark: SparkSession, numbers: range, version: int) -> DataFrame:
    """Orders by number, as `lakebed.cli.demo_orders` makes them without Spark."""
    n = F.col("id")
    return spark.range(numbers.start, numbers.stop, numbers.step, 2).select(
        F.format_string("order-%07d", n).alias("id"),
        F.when(n % 3 == 0, "eu").otherwise("us").alias("region"),
        F.format_string("customer-%05d", n * 7919 % 50021).alias("customer"),
        ((n + version) % 9 + 1).cast("int").alias("qty"),
        (n * 104729 % 100003 / 100 + version).alias("price"),
        F.lit(version).cast("long").alias("version"),
    )
