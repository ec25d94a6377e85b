"""Conditions at work: the rows that a scan finds, and that a delete, an update and a merge touch, beside Spark's.

A condition whose value over all rows is Spark's already, but whose scan finds other rows, was spoilt by pruning.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tests.expressions.compare import Verdict, verdict
from tests.expressions.grammar import condition
from tests.expressions.lake import Lake, build, keys_of
from tests.expressions.merges import merges
from tests.expressions.spark_oracle import Answer, SparkOracle
from tests.expressions.spark_route import SparkRoute
from tests.expressions.touched import Check, marked, touched
from tests.expressions.tree import Tree

SCANS, EDGES, DELETES, UPDATES = 60, 40, 2, 2


def check_lake(oracle: SparkOracle, seed: int) -> Iterator[Check]:
    """All uses of random conditions on the table of a seed."""
    lake = build(seed)
    if lake is None:
        return
    chance = random.Random(f"conditions {seed}")
    samples = lake.samples
    trees = [condition(chance, lake.leaves, samples) for _ in range(SCANS)]
    trees += [lake.edge(chance) for _ in range(EDGES)]
    oracle.load(lake.rows)
    usable: list[tuple[Tree, Answer]] = []
    for tree, answer in zip(trees, oracle.answers([tree.sql for tree in trees]), strict=True):
        found = verdict(tree.sql, lake.rows, answer)
        if found.name == "agrees":
            usable.append((tree, answer))
            found = _scan(lake, tree, answer)
        yield Check("scan", tree, found)
    sound = [(tree, answer) for tree, answer in usable if pc.all(answer.ok).as_py()]
    for tree, found in SparkRoute(oracle.spark).verdicts(lake.rows, sound):
        yield Check("column", tree, found)
    for tree, answer in chance.sample(usable, min(DELETES, len(usable))):
        yield Check("delete", tree, _delete(lake, tree, answer))
    for tree, answer in chance.sample(usable, min(UPDATES, len(usable))):
        yield Check("update", tree, _update(lake, tree, answer))
    yield from merges(oracle, lake, chance)


def _scan(lake: Lake, tree: Tree, answer: Answer) -> Verdict:
    def touch() -> list[str]:
        return keys_of(lake.table.scan(columns=["k"], filter=tree.sql).to_arrow())

    return touched(lake, tree, answer, touch, "scan")


def _delete(lake: Lake, tree: Tree, answer: Answer) -> Verdict:
    def touch() -> list[str]:
        lake.table.delete(where=tree.sql)
        left = set(keys_of(lake.table.scan(columns=["k"]).to_arrow()))
        lake.table.upsert(pa.Table.from_batches([lake.rows]))
        return [key for key in keys_of(lake.rows) if key not in left]

    return touched(lake, tree, answer, touch, "delete")


def _update(lake: Lake, tree: Tree, answer: Answer) -> Verdict:
    def touch() -> list[str]:
        lake.table.update(set={"mark": "mark + 1"}, where=tree.sql)
        return marked(lake)

    return touched(lake, tree, answer, touch, "update")
