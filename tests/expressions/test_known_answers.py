"""Expressions whose answers are known, without Spark."""

from __future__ import annotations

import pytest

from tests.expressions.engine import FAILED, bind
from tests.expressions.known_answers import FAILS, KNOWN, Known, exactly


@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_known_answer(known: Known) -> None:
    try:
        bound = bind(known.expression, known.batch.schema)
    except FAILED:
        assert known.may_refuse or known.answer is FAILS
        return
    try:
        found = bound.evaluate(known.batch)[0].as_py()
    except FAILED:
        assert known.answer is FAILS
        return
    assert exactly(found) == exactly(known.answer)
