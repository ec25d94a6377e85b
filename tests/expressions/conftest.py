"""The Spark session that the tests of the source use."""

from tests.spark.conftest import spark

__all__ = ["spark"]
