"""Making a session know the short name."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakebed.spark.source import LakebedSource


def register(spark: SparkSession) -> None:
    """Tell a session about `format("lakebed")`.

    Needed only where Spark does not find it by itself: on a remote Connect server, where lakebed is installed as well.
    """
    spark.dataSource.register(LakebedSource)
