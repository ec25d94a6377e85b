"""Random histories of writes and table services, against a dictionary per version.

After each step the latest rows, the state as of earlier writes and the changes between any two of them are those of
the model, or are refused where a clean took their past away. Settings are combined pairwise with seeds that stay, and
by chance with seeds that no earlier run had, for `LAKEBED_MODEL_SECONDS` (`make torture`: ten minutes).
"""

from __future__ import annotations

import os
import time

import pytest

from lakebed.read.merge_vector_cache import MERGE_VECTORS
from tests.model.kinds import Kind, pairwise
from tests.model.run import run, run_for

STEPS = 15


@pytest.fixture(autouse=True)
def kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables here have names of their own, so what reads keep of them is tested along."""
    monkeypatch.setattr(MERGE_VECTORS, "in_memory_stores", True)


@pytest.mark.parametrize("kind", pairwise(1), ids=str)
def test_no_answer_depends_on_upkeep_memory_or_layout(kind: Kind) -> None:
    assert run(kind, 1, STEPS) == STEPS


def test_histories_that_no_run_has_seen_before() -> None:
    first = int(os.environ.get("LAKEBED_MODEL_SEED", time.time_ns() // 1_000_000))
    summary = run_for(float(os.environ.get("LAKEBED_MODEL_SECONDS", "60")), first)
    print(f"{summary.runs} histories, {summary.steps} steps, seeds from {first}")
    assert summary.steps
