"""Where Spark looks for the data source called `lakebed`: it imports every top-level module named `pyspark_*`."""

from lakebed.spark.source import LakebedSource as DefaultSource

__all__ = ["DefaultSource"]
