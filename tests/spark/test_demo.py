"""The tour with Spark: the same orders as without, and the same answer by both ways of reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakebed.cli.demo import tour
from lakebed.cli.demo_orders import SCHEMA, batches, orders
from lakebed.spark.demo import orders as spark_orders
from tests.golden.rows import rows_of


def test_orders_are_the_same_in_spark(spark: Any) -> None:
    batch = batches(1000)[3]
    ours = orders(batch.numbers, batch.version)
    theirs = spark_orders(spark, batch.numbers, batch.version).toArrow()
    assert theirs.schema.names == SCHEMA.names
    assert rows_of(theirs, SCHEMA.names) == rows_of(ours, SCHEMA.names)


def test_the_tour(tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table = tour(tmp_path / "orders", 4000, spark)
    told = capsys.readouterr().out
    assert "by Spark" in told
    assert "the same answer" in told
    assert "slices by Spark's Parquet reader and merge vectors" in told
    assert table.scan().count() == 1600 + 6 * 200
