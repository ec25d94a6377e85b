"""A Spark session on this machine for runs outside pytest."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.spark.conftest import LOCAL


def local_spark() -> Any:
    """One thread is enough: expressions are evaluated on the driver."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("lakebed expressions")
    for key, value in LOCAL.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
