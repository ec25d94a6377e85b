"""What `lakebed demo` needs of Spark: settings of a small session, and orders made inside Spark."""

from __future__ import annotations

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
