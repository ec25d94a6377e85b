"""Conditions of merges: over both sides of a match, and over the columns that rows are matched by."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tests.expressions.compare import REFUSED, Verdict, reason
from tests.expressions.engine import FAILED
from tests.expressions.grammar import condition
from tests.expressions.lake import KEY, Lake, keys_of
from tests.expressions.spark_oracle import Answer, SparkOracle
from tests.expressions.touched import Check, marked, touched
from tests.expressions.tree import Tree

MERGES = 3
_SOURCE_ROWS = 48
_BY_KEY, _BY_PARTITION = "t.k = s.k", "t.k = s.k AND t.p = s.p"


def merges(oracle: SparkOracle, lake: Lake, chance: random.Random) -> Iterator[Check]:
    """Clauses with conditions over both sides; Spark has the sides as two structs of one row."""
    target, source = _sides(lake, chance)
    pairs = {"t": pa.StructArray.from_arrays(target.columns, fields=list(target.schema))}
    pairs["s"] = pa.StructArray.from_arrays(source.columns, fields=list(source.schema))
    oracle.load(pa.RecordBatch.from_pydict(pairs))
    leaves = [leaf for leaf in lake.leaves if leaf != KEY]
    sided = tuple(replace(leaf, name=f"{side}.{leaf.name}") for leaf in leaves for side in ("t", "s"))
    trees = [condition(chance, sided, lake.samples) for _ in range(MERGES)]
    matched = replace(lake, rows=target)
    for tree, answer in zip(trees, oracle.answers([tree.sql for tree in trees]), strict=True):
        if answer.refused is None and pc.all(answer.ok).as_py():
            yield Check("merge", tree, _merge(lake, matched, source, tree, answer))
    if lake.partition is not None:
        yield _moved(lake, source)
        yield _matched_by_partition(lake, source, oracle.answers(["t.p = s.p"])[0])


def _sides(lake: Lake, chance: random.Random) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Rows of the table, and others with their keys."""
    chosen = sorted(chance.sample(range(lake.rows.num_rows), _SOURCE_ROWS))
    target = lake.rows.take(pa.array(chosen))
    other = lake.rows.take(pa.array([chance.randrange(lake.rows.num_rows) for _ in chosen]))
    return target, other.set_column(other.schema.get_field_index("k"), "k", target.column("k"))


def _merge(lake: Lake, matched: Lake, source: pa.RecordBatch, tree: Tree, answer: Answer) -> Verdict:
    def touch() -> list[str]:
        merge = lake.table.merge(pa.Table.from_batches([source]), on=_BY_KEY)
        merge.when_matched_update(set={"mark": "t.mark + 1"}, condition=tree.sql).execute()
        return marked(lake)

    found = touched(matched, tree, answer, touch, "merge")
    return Verdict(REFUSED, found.detail) if found.name == "merge fails" else found


def _moved(lake: Lake, source: pa.RecordBatch) -> Check:
    """Matched rows take the partition values of the source: every key stays, once."""
    tree = Tree("bool", "t.k = s.k, when_matched_update_all")
    try:
        lake.table.merge(pa.Table.from_batches([source]), on=_BY_KEY).when_matched_update_all().execute()
        found = keys_of(lake.table.scan(columns=["k"]).to_arrow())
        lake.table.merge(pa.Table.from_batches([lake.rows]), on=_BY_KEY).when_matched_update_all().execute()
    except FAILED as error:
        return Check("merge", tree, Verdict(REFUSED, reason(error)))
    except Exception as error:
        return Check("merge", tree, Verdict("merge crash", f"{lake}: {type(error).__name__}: {str(error)[:160]}"))
    return Check("merge", tree, _same_keys(lake, found, keys_of(lake.rows)))


def _matched_by_partition(lake: Lake, source: pa.RecordBatch, equal: Answer) -> Check:
    """Source rows are inserted unless key and partition value are equal; those that are null both are left out."""
    tree = Tree("bool", "t.k = s.k AND t.p = s.p, when_not_matched_insert_all")
    assert equal.values is not None
    target = lake.rows.filter(pc.is_in(lake.rows.column("k"), value_set=source.column("k")))
    both_null = pc.and_(pc.is_null(target.column("p")), pc.is_null(source.column("p")))
    rows = source.filter(pc.invert(both_null))
    matched = equal.values.fill_null(False).filter(pc.invert(both_null))
    try:
        merge = lake.table.merge(pa.Table.from_batches([rows]), on=_BY_PARTITION)
        merge.when_matched_update(set={"mark": "t.mark + 1"}).when_not_matched_insert_all().execute()
        found = keys_of(lake.table.scan(columns=["k"]).to_arrow())
    except FAILED as error:
        return Check("merge", tree, Verdict(REFUSED, reason(error)))
    except Exception as error:
        return Check("merge", tree, Verdict("merge crash", f"{lake}: {type(error).__name__}: {str(error)[:160]}"))
    return Check("merge", tree, _same_keys(lake, found, sorted(keys_of(lake.rows) + keys_of(rows, pc.invert(matched)))))


def _same_keys(lake: Lake, found: list[str], expected: list[str]) -> Verdict:
    if found == expected:
        return Verdict("agrees")
    often = [key for key in dict.fromkeys(found) if found.count(key) > expected.count(key)]
    return Verdict("merge keys", f"{lake}: {len(found)} rows and not {len(expected)}, too often {often[:3]}")
