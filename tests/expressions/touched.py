"""The rows that a use of a condition touched, beside those whose condition is true in Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tests.expressions.compare import Verdict, mentioned, reason
from tests.expressions.engine import FAILED
from tests.expressions.lake import Lake, keys_of, show_row
from tests.expressions.spark_oracle import Answer
from tests.expressions.tree import Tree


@dataclass(frozen=True)
class Check:
    """A condition, how it was used and what came of it."""

    use: str
    tree: Tree
    found: Verdict


def touched(lake: Lake, tree: Tree, answer: Answer, touch: Callable[[], list[str]], use: str) -> Verdict:
    """Keys that a use touched beside those whose condition is true."""
    assert answer.values is not None and answer.ok is not None
    mask = pc.and_(answer.values.fill_null(False), answer.ok)
    expected = keys_of(lake.rows, mask)
    try:
        found = touch()
    except FAILED as error:
        if pc.all(answer.ok).as_py():
            return Verdict(f"{use} fails", f"{lake}: {reason(error)}")
        return Verdict("fails alike")
    except Exception as error:
        return Verdict(f"{use} crash", f"{lake}: {type(error).__name__}: {str(error)[:160]}")
    if found == expected:
        return Verdict("agrees")
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    names = mentioned(tree.sql, lake.rows.schema)
    rows = [show_row(lake.rows, key, names) for key in (*missing[:1], *extra[:1])]
    return Verdict(use, f"{lake}: {len(missing)} missing, {len(extra)} too many of {len(expected)}: {', '.join(rows)}")


def marked(lake: Lake) -> list[str]:
    """The keys of rows whose mark was moved; all marks are put back."""
    table = lake.table.scan(columns=["k", "mark"]).to_arrow()
    lake.table.upsert(pa.Table.from_batches([lake.rows]))
    return sorted(table.filter(pc.not_equal(table.column("mark"), 0)).column("k").to_pylist())
