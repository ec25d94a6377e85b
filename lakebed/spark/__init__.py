"""The engine: everything that touches PySpark. DataFrame and Arrow API only, so that it runs on Spark Connect too."""

from lakebed.spark.runner import SparkRunner
from lakebed.spark.session import register
from lakebed.spark.types import table_schema

__all__ = ["SparkRunner", "register", "table_schema"]
