"""Expressions mean what Spark's mean in ANSI mode: random ones, with seeds that no run had before.

`LAKEBED_EXPRESSION_SECONDS` says for how long (`make torture`: ten minutes), `LAKEBED_EXPRESSION_SEED` where from.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pyarrow as pa
import pytest

from tests.expressions.columns import SCHEMA
from tests.expressions.compare import REFUSED, verdict
from tests.expressions.known_answers import FAILS, KNOWN, exactly
from tests.expressions.run import report, run_for
from tests.expressions.spark_oracle import SparkOracle

_MOST_REFUSED = 0.10


@pytest.fixture(scope="module")
def oracle(spark: Any) -> SparkOracle:
    return SparkOracle(spark)


def test_known_answers_are_those_of_spark(oracle: SparkOracle) -> None:
    oracle.load(pa.RecordBatch.from_pylist([known.row for known in KNOWN], schema=SCHEMA))
    different = []
    for place, (known, answer) in enumerate(
        zip(KNOWN, oracle.answers([known.expression for known in KNOWN]), strict=True)
    ):
        alone = answer if answer.refused is not None else answer.row(place)
        if alone.refused is not None or not alone.ok[0].as_py():
            same = known.answer is FAILS
        else:
            same = exactly(alone.values[0].as_py()) == exactly(known.answer)
        found = verdict(known.expression, known.batch, alone)
        if not same or found.disagrees or (found.name == REFUSED and not known.may_refuse):
            different.append((known, alone, found))
    assert different == []


def test_random_expressions_answer_as_spark_does(oracle: SparkOracle, capsys: pytest.CaptureFixture[str]) -> None:
    first = int(os.environ.get("LAKEBED_EXPRESSION_SEED", time.time_ns() // 1_000_000))
    summary = run_for(oracle, first, seconds=float(os.environ.get("LAKEBED_EXPRESSION_SECONDS", "35")))
    report(summary)
    assert not summary.findings, capsys.readouterr().out
    assert summary.expressions
    assert summary.refused_share < _MOST_REFUSED
