"""Many random expressions, what came of them, and how to see one again.

python -m tests.expressions --count 100000 --go-on            all disagreements, grouped by their smallest part
python -m tests.expressions --seed 17 --count 250             one set of rows and expressions again
python -m tests.expressions --seed 17 --expression 's LIKE 1' one expression over the rows of a seed
python -m tests.expressions --seed 17 --lake                  the scans and writes on the table of a seed
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tests.expressions.columns import rows
from tests.expressions.compare import AGREED, DECLARED, REFUSED, Verdict, smallest, verdict
from tests.expressions.declared import declared
from tests.expressions.duckdb_oracle import DuckOracle
from tests.expressions.grammar import expression
from tests.expressions.on_tables import check_lake
from tests.expressions.session import local_spark
from tests.expressions.spark_oracle import SparkOracle
from tests.expressions.tree import Tree

CHUNK = 250
"""Expressions per set of rows: what a seed stands for."""
LAKE_EVERY = 3
"""Of the seeds, every how many also has conditions at work on a table."""
_TRACED, _THIRD_OPINION = 60, 5


@dataclass
class Finding:
    """Disagreements that share their smallest part."""

    verdict: str
    shape: str
    expression: str
    part: str
    detail: str
    replay: str
    after: int
    """The number of the expression that showed it first."""
    count: int = 1


@dataclass
class Summary:
    """What many expressions came to."""

    first_seed: int
    expressions: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    uses: Counter[str] = field(default_factory=Counter)
    """How often conditions were put to each use on a table, and agreed."""
    duckdb: Counter[str] = field(default_factory=Counter)
    """How often DuckDB was asked, and said what Spark says."""
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)

    @property
    def refused_share(self) -> float:
        return self.verdicts[REFUSED] / max(1, self.expressions)

    def add(self, tree: Tree, part: Tree, found: Verdict, seed: int, *, lake: bool = False) -> None:
        how = "--lake" if lake else f"--expression {shlex.quote(part.sql)}"
        replay = f"python -m tests.expressions --seed {seed} {how}"
        key = (found.name, part.shape)
        if key in self.findings:
            self.findings[key].count += 1
        else:
            self.findings[key] = Finding(*key, tree.sql, part.sql, found.detail, replay, self.expressions)
            print(f"{found.name}: {part.sql}  {found.detail}  {replay}", file=sys.stderr, flush=True)


def trees(seed: int, count: int = CHUNK) -> list[Tree]:
    """The expressions of a seed."""
    chance = random.Random(f"expressions {seed}")
    return [expression(chance) for _ in range(count)]


def run_chunk(oracle: SparkOracle, seed: int, count: int, summary: Summary) -> None:
    """The expressions of one seed."""
    batch, drawn = rows(seed), trees(seed, count)
    oracle.load(batch)
    texts = [tree.sql for tree in drawn]
    answers = dict(zip(texts, oracle.answers(texts), strict=True))
    verdicts = {text: verdict(text, batch, answer) for text, answer in answers.items()}
    wrong = [tree for tree in drawn if verdicts[tree.sql].disagrees]
    _trace(oracle, batch, wrong[:_TRACED], verdicts)
    third = DuckOracle(batch)
    tried = texts[::_THIRD_OPINION]
    summary.duckdb["tried"] += len(tried)
    summary.duckdb["agrees with Spark"] += sum(third.agrees(text, answers[text]) for text in tried)
    for tree in drawn:
        summary.expressions += 1
        found, part = verdicts[tree.sql], tree
        if found.disagrees:
            part, found = smallest(tree, verdicts)
            if third.agrees(tree.sql, answers[tree.sql]):
                found = replace(found, detail=f"{found.detail} (DuckDB agrees with Spark about the whole)")
            why = declared(part, found)
            found = found if why is None else Verdict(DECLARED, why)
        summary.verdicts[found.name] += 1
        if found.name in (REFUSED, DECLARED):
            summary.reasons[found.detail] += 1
            summary.examples.setdefault(found.detail, tree.sql)
        elif found.disagrees:
            summary.add(tree, part, found, seed)


def run_lake(oracle: SparkOracle, seed: int, summary: Summary) -> None:
    """Conditions on the table of one seed."""
    for check in check_lake(oracle, seed):
        summary.expressions += 1
        summary.uses[f"{check.use} {'agrees' if check.found.name in AGREED else check.found.name}"] += 1
        if check.found.disagrees and declared(check.tree, check.found) is None:
            summary.add(check.tree, check.tree, check.found, seed, lake=True)


def _trace(oracle: SparkOracle, batch: pa.RecordBatch, wrong: list[Tree], verdicts: dict[str, Verdict]) -> None:
    """Verdicts for every part of what is wrong, so that the smallest can be told."""
    parts = list(dict.fromkeys(part.sql for tree in wrong for part in tree.walk() if not part.leaf))
    missing = [text for text in parts if text not in verdicts]
    for text, answer in zip(missing, oracle.answers(missing), strict=True):
        verdicts[text] = verdict(text, batch, answer)


def run_for(
    oracle: SparkOracle, first: int, *, count: int | None = None, seconds: float | None = None, go_on: bool = True
) -> Summary:
    """Seeds from one on until the count or the time is reached, or something disagrees where `go_on` is off."""
    begun = time.monotonic()
    summary = Summary(first)
    seed = first
    while (count is None or summary.expressions < count) and (seconds is None or time.monotonic() - begun < seconds):
        run_chunk(oracle, seed, CHUNK if count is None else min(CHUNK, count - summary.expressions), summary)
        if seed % LAKE_EVERY == 0:
            run_lake(oracle, seed, summary)
        seed += 1
        summary.seconds = time.monotonic() - begun
        if summary.findings and not go_on:
            break
    return summary


def show_one(oracle: SparkOracle, seed: int, text: str) -> int:
    """One expression over the rows of a seed."""
    batch = rows(seed)
    oracle.load(batch)
    answer = oracle.answers([text])[0]
    found = verdict(text, batch, answer)
    print(f"{text}\n  Spark: {answer.refused or answer.type}\n  {found.name}: {found.detail}")
    return 1 if found.disagrees else 0


def report(summary: Summary) -> None:
    """For people."""
    rate = summary.expressions / max(summary.seconds, 0.001)
    print(
        f"{summary.expressions} expressions in {summary.seconds:.0f} s ({rate:.0f}/s), seeds from {summary.first_seed}"
    )
    print("  " + ", ".join(f"{count} {name}" for name, count in summary.verdicts.most_common()))
    print("  " + ", ".join(f"{name} {count}" for name, count in sorted(summary.uses.items())))
    print(f"  DuckDB agrees with Spark on {summary.duckdb['agrees with Spark']} of {summary.duckdb['tried']} tried")
    print(f"  refused: {summary.refused_share:.1%}")
    for why, count in summary.reasons.most_common(25):
        print(f"    {count:6} {why}    e.g. {summary.examples[why][:120]!r}")
    for found in sorted(summary.findings.values(), key=lambda finding: -finding.count):
        print(
            *(f"{found.count:6} {found.verdict}: {found.shape}", found.part, found.detail, found.replay),
            sep="\n         ",
        )


def as_json(summary: Summary) -> dict[str, Any]:
    """For machines."""
    return {
        "first_seed": summary.first_seed,
        "expressions": summary.expressions,
        "seconds": round(summary.seconds, 1),
        "verdicts": dict(summary.verdicts),
        "uses": dict(summary.uses),
        "duckdb": dict(summary.duckdb),
        "refused_share": round(summary.refused_share, 4),
        "refusals": dict(summary.reasons.most_common()),
        "findings": [vars(found) for found in summary.findings.values()],
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.expressions", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="the first seed; by default one that no earlier run had")
    parser.add_argument("--count", type=int, help="how many expressions")
    parser.add_argument("--seconds", type=float, help="for how long; by default a minute where no count says so")
    parser.add_argument("--go-on", action="store_true", help="list all disagreements instead of stopping at the first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lake", action="store_true", help="only the scans and writes on the table of the seed")
    parser.add_argument("--expression", help="only this one, over the rows of the seed")
    args = parser.parse_args()
    first = args.seed if args.seed is not None else time.time_ns() // 1_000_000
    seconds = args.seconds if args.seconds is not None or args.count is not None else 60.0
    spark = local_spark()
    try:
        oracle = SparkOracle(spark)
        if args.expression is not None:
            return show_one(oracle, first, args.expression)
        if args.lake:
            summary = Summary(first)
            run_lake(oracle, first, summary)
        else:
            summary = run_for(oracle, first, count=args.count, seconds=seconds, go_on=args.go_on)
    finally:
        spark.stop()
    if args.json:
        print(json.dumps(as_json(summary)))
    else:
        report(summary)
    sys.stdout.flush()
    return 1 if summary.findings or not summary.expressions + summary.uses.total() else 0
