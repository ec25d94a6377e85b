"""Spark sessions: creates one for a command, and registers the short name `lakebed` with one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from lakebed.errors import InvalidRequest
from lakebed.spark.source import LakebedSource

QUIET = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
"""A command shows its own progress bar, and its standard output is for the result."""


def register(spark: SparkSession) -> None:
    """Register `format("lakebed")` with a session.

    Needed only where Spark does not find it by itself: on a remote Connect server, where lakebed is installed as well.
    """
    spark.dataSource.register(LakebedSource)


@contextmanager
def session_on(master: str, settings: Mapping[str, str] | None = None, name: str = "lakebed") -> Iterator[SparkSession]:
    """A session on a master (or, by `sc://`, on a Connect server), stopped at the end.

    A session that exists already is used as it is, and is not stopped.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    if master.startswith("local"):  # workers on other machines have a Python of their own
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.appName(name)
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for key, value in {**QUIET, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:  # without a session PySpark has no specific class for errors of the JVM
        raise InvalidRequest(f"there is no Spark session on {master!r}: {str(error).strip()}") from error
    try:
        yield session
    finally:
        session.stop()
