"""One random history to its end, many of them for a time, and how to see one again.

python -m tests.model --seconds 600                 new seeds for ten minutes
python -m tests.model --seed 17 --runs 1 --steps 40 one of them again
python -m tests.model --only table_type=mor --only columns=fixed --ask latest      where one looks for one thing
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import lakebed
from lakebed.read.merge_vector_cache import MERGE_VECTORS
from tests.model.answers import ASKED_AT_THE_END, QUESTIONS, check_answers, check_files
from tests.model.kinds import FACTORS, Kind, any_kind
from tests.model.upkeep import Upkeep

STEPS = 30


def run(
    kind: Kind,
    seed: int,
    steps: int = STEPS,
    did: Counter[str] | None = None,
    questions: frozenset[str] = QUESTIONS,
) -> int:
    """A history to its end; a failure says how to see it again."""
    work = Upkeep(kind, seed)
    done: list[str] = []
    try:
        for _ in range(steps):
            done.append(work.step())
            if did is not None:
                did[done[-1].partition(" ")[0]] += 1
            check_answers(work, questions=questions)
        work.finish()
        check_answers(work, ASKED_AT_THE_END, questions=questions)
        check_files(work, work.table.refresh())
        if work.kind.columns != "repeats":
            assert [finding for finding in lakebed.open(work.url).check() if finding.severity == "error"] == []
    except BaseException as error:
        error.add_note(f"{kind!r}, seed {seed}, after\n  " + "\n  ".join(done))
        raise
    return len(done)


@dataclass
class Summary:
    """What many histories came to."""

    runs: int = 0
    steps: int = 0
    did: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)
    """By seed, what went wrong."""


def histories(first: int, only: Mapping[str, str]) -> Iterator[tuple[int, Kind]]:
    """Seeds from one on, and the kind of table that each stands for; only kinds with these settings."""
    seed = first
    while True:
        yield seed, any_kind(random.Random(seed), only)
        seed += 1


def run_for(
    seconds: float,
    first: int,
    *,
    runs: int | None = None,
    steps: int = STEPS,
    stop: bool = True,
    only: Mapping[str, str] | None = None,
    questions: frozenset[str] = QUESTIONS,
) -> Summary:
    """Histories until the time is over; those that fail end it, or are listed where `stop` is off."""
    deadline = time.monotonic() + seconds
    summary = Summary()
    MERGE_VECTORS.in_memory_stores = (
        True  # tables here have names of their own, so what reads keep of them is tested along
    )
    for seed, kind in histories(first, only or {}):
        if time.monotonic() >= deadline or summary.runs == runs:
            break
        try:
            summary.steps += run(kind, seed, steps, summary.did, questions)
        except Exception as error:
            if stop:
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename.rpartition('lakebed/')[2]}:{last.name}"
            summary.failed[seed] = f"{kind} {type(error).__name__} {place} {str(error)[:300]}"
            print(f"seed {seed}: {summary.failed[seed]}", file=sys.stderr, flush=True)
        summary.runs += 1
    return summary


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="the first seed; by default one that no earlier run had")
    parser.add_argument("--runs", type=int, help="how many histories, by default as many as there is time for")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--only", action="append", default=[], metavar="SETTING=VALUE", help=f"of {', '.join(FACTORS)}")
    parser.add_argument("--ask", action="append", choices=sorted(QUESTIONS), help="only these questions after a step")
    parser.add_argument("--go-on", action="store_true", help="list failures instead of stopping at the first")
    given = parser.parse_args()
    first = given.seed if given.seed is not None else time.time_ns() // 1_000_000
    summary = run_for(
        given.seconds,
        first,
        runs=given.runs,
        steps=given.steps,
        stop=not given.go_on,
        only=dict(setting.split("=", 1) for setting in given.only),
        questions=frozenset(given.ask or QUESTIONS),
    )
    print(
        json.dumps(
            {
                "first_seed": first,
                "runs": summary.runs,
                "steps": summary.steps,
                "did": dict(sorted(summary.did.items())),
                "failed": {str(seed): what for seed, what in summary.failed.items()},
            }
        )
    )
    return 1 if summary.failed or not summary.steps else 0
