"""Holding lakebed's answer beside Spark's, and what comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.expressions.columns import arrow_type, show, shown
from tests.expressions.engine import FAILED, bind
from tests.expressions.spark_oracle import Answer
from tests.expressions.tree import Tree

AGREED = frozenset({"agrees", "fails alike", "refused by both"})
REFUSED, DECLARED = "refused", "differs as declared"
_FAILING_ROWS_TRIED = 4


@dataclass(frozen=True)
class Verdict:
    """What a comparison came to.

    `agrees`, `fails alike` (every row fails in Spark, and lakebed refuses or fails), `refused by both`; `refused`: by
    lakebed alone; all else is a disagreement: `value`, `type`, `fails alone` (lakebed fails on a row that has a value),
    `fails not` (lakebed has a value where Spark fails), `laxer` (lakebed takes what Spark refuses), `crash`.
    """

    name: str
    detail: str = ""

    @property
    def disagrees(self) -> bool:
        return self.name not in AGREED and self.name not in (REFUSED, DECLARED)


def verdict(text: str, batch: pa.RecordBatch, answer: Answer) -> Verdict:
    """Lakebed's value for each row beside Spark's."""
    try:
        bound = bind(text, batch.schema)
    except FAILED as error:
        if answer.refused is not None:
            return Verdict("refused by both")
        return Verdict("fails alike") if pc.sum(answer.ok).as_py() in (0, None) else Verdict(REFUSED, reason(error))
    except Exception as error:
        return Verdict("crash", f"bind: {type(error).__name__}: {str(error)[:160]}")
    if answer.refused is not None:
        return Verdict("laxer", f"Spark: {answer.refused[:120]}")
    kept = batch.filter(answer.ok)
    expected = answer.values.filter(answer.ok)
    try:
        found = _array(bound.evaluate(kept))
    except FAILED as error:
        return _failing_row(bound, text, batch, answer, error)
    except Exception as error:
        return Verdict("crash", f"evaluate: {type(error).__name__}: {str(error)[:160]}")
    return _differing_row(found, expected, kept, answer.type, text) or _silent_row(bound, batch, answer, text)


def _array(value: Any) -> pa.Array:
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def _failing_row(bound: Any, text: str, batch: pa.RecordBatch, answer: Answer, error: Exception) -> Verdict:
    for row in pc.indices_nonzero(answer.ok).to_pylist():
        try:
            bound.evaluate(batch.slice(row, 1))
        except FAILED as failed:
            value = show(answer.values[row])
            return Verdict("fails alone", f"{_columns(text, batch, row)}: Spark {value}, lakebed {reason(failed)}")
        except Exception as failed:
            return Verdict("crash", f"{_columns(text, batch, row)}: {type(failed).__name__}: {str(failed)[:160]}")
    return Verdict("fails alone", f"together, but on no row alone: {reason(error)}")


def _columns(text: str, batch: pa.RecordBatch, row: int) -> dict[str, str]:
    """The row's values of the columns that the text mentions."""
    return dict(shown(batch, row, mentioned(text, batch.schema)))


def mentioned(text: str, schema: pa.Schema) -> list[str]:
    """Columns that the text speaks about."""
    return [name for name in schema.names if re.search(rf"(?<![\w.']){name}(?![\w'])", text)]


def _differing_row(
    found: pa.Array, expected: pa.Array, rows: pa.RecordBatch, value_type: str, text: str
) -> Verdict | None:
    wanted = arrow_type(value_type)
    same_type = _plain_type(found.type) == wanted
    if len(found) != len(expected):
        return Verdict("value", f"{len(found)} values for {len(expected)} rows")
    try:
        comparable = found if same_type else found.cast(wanted)
    except pa.ArrowException:
        return Verdict("type", f"Spark {value_type}, lakebed {found.type}")
    differs = _different(comparable, expected)
    if differs:
        row = min(differs)
        detail = f"{_columns(text, rows, row)}: Spark {show(expected[row])}, lakebed {show(found[row])}"
        return Verdict("value", detail if same_type else f"{detail} (Spark {value_type}, lakebed {found.type})")
    return None if same_type else Verdict("type", f"Spark {value_type}, lakebed {found.type}")


def _different(values: pa.Array, others: pa.Array) -> list[int]:
    """The rows where values of one type are not the same."""
    rows: list[int] = pc.indices_nonzero(pc.xor(values.is_valid(), others.is_valid())).to_pylist()
    if not pa.types.is_null(values.type):
        rows += pc.indices_nonzero(pc.not_equal(_bits(values), _bits(others)).fill_null(False)).to_pylist()
    return rows


def same_values(values: pa.Array, others: pa.Array) -> bool:
    """Whether every value is the same; nulls are."""
    return len(values) == len(others) and not _different(values, others)


def _silent_row(bound: Any, batch: pa.RecordBatch, answer: Answer, text: str) -> Verdict:
    failing = pc.indices_nonzero(pc.invert(answer.ok)).to_pylist()
    for row in failing[:: max(1, len(failing) // _FAILING_ROWS_TRIED)]:
        try:
            found = _array(bound.evaluate(batch.slice(row, 1)))
        except FAILED:
            continue
        except Exception as error:
            return Verdict("crash", f"{_columns(text, batch, row)}: {type(error).__name__}: {str(error)[:160]}")
        return Verdict("fails not", f"{_columns(text, batch, row)}: Spark fails, lakebed {show(found[0])}")
    return Verdict("agrees" if len(failing) < batch.num_rows else "fails alike")


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(data_type) else data_type


def _bits(values: pa.Array) -> pa.Array:
    """Values that are equal only when they are the same: -0.0 is not 0.0, and every NaN is one."""
    if not pa.types.is_floating(values.type):
        return values
    integer = pa.int32() if values.type.bit_width == 32 else pa.int64()
    one_nan = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
    return one_nan.view(integer)


def reason(error: BaseException) -> str:
    """Why lakebed refuses, without what belongs to the one expression."""
    text = str(error).partition("\n")[0]
    text = re.sub(r"^in .*? at character \d+: |^in '.*?': |^in \".*?\": ", "", text)
    text = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "…", text)
    return re.sub(r"-?\d[\d.:eE+-]*", "#", text)[:110]


def smallest(tree: Tree, verdicts: dict[str, Verdict]) -> tuple[Tree, Verdict]:
    """The deepest part that disagrees by itself; the whole when only the whole does."""
    for part in tree.walk():
        found = verdicts.get(part.sql)
        if found is not None and found.disagrees:
            return part, found
    return tree, verdicts[tree.sql]
