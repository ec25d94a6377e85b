"""Sessions: making one for a command, and making one know the short name."""

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
"""A command has a bar of its own, and standard output is for its answer."""


def register(spark: SparkSession) -> None:
    """Tell a session about `format("lakebed")`.

    Needed only where Spark does not find it by itself: on a remote Connect server, where lakebed is installed as well.
    """
    spark.dataSource.register(LakebedSource)


@contextmanager
def session_on(master: str, settings: Mapping[str, str] | None = None, name: str = "lakebed") -> Iterator[SparkSession]:
    """A session on a master (or, by `sc://`, on a Connect server), stopped at the end.

    One that is there already is taken as it is, and is not ours to stop.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    if master.startswith("local"):  # workers elsewhere have a Python of their own
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.appName(name)
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for key, value in {**QUIET, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:  # the JVM's errors are of no kind of their own before there is a session
        raise InvalidRequest(f"there is no Spark session on {master!r}: {str(error).strip()}") from error
    try:
        yield session
    finally:
        session.stop()
