"""Everything that uses PySpark: DataFrame and Arrow API only, so that it runs on Spark Connect too."""

from lakebed.spark.runner import SparkRunner
from lakebed.spark.session import register

__all__ = ["SparkRunner", "register"]
