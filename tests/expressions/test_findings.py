"""Disagreements are grouped by the shape of their smallest part, without Spark."""

from __future__ import annotations

import pytest

from tests.expressions.compare import Verdict
from tests.expressions.run import Summary, as_json, report
from tests.expressions.tree import Tree


def _sum(constant: str) -> Tree:
    return Tree("int", "{0} + {1}", (Tree("int", "i32", form="<int>"), Tree("int", constant, form="<int constant>")))


def test_findings_of_one_shape_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary(7)
    for constant in ("1", "2"):
        summary.add(_sum(constant), _sum(constant), Verdict("value", "Spark 1, lakebed 2"), 7)
    found = as_json(summary)["findings"]
    assert [(one["shape"], one["part"], one["count"]) for one in found] == [("<int> + <int constant>", "i32 + 1", 2)]
    report(summary)
    assert "2 value: <int> + <int constant>" in capsys.readouterr().out
