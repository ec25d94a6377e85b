"""What Spark says: every expression over the same rows, row by row, in ANSI mode.

Each expression is analysed alone, so that a refusal names its own. Those that bind are evaluated together, each inside
Catalyst's `TryEval` around a struct of its value: a row that fails is a null struct, a row whose value is null is a
struct of null, and neither touches the other rows. The optimizer's rules are off (they fold, reorder and rewrite, and
so hide errors or raise them early), and rows are a local relation, which one interpreted projection on the driver
evaluates without compiling code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame

from tests.expressions.columns import arrow_type, sql_type

_KEPT_RULES = ("ConvertToLocalRelation",)
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.alwaysInlineCommonExpr": "true",  # else BETWEEN moves its operand out of `TryEval`
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.planChangeValidation": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
}


@dataclass(frozen=True)
class Answer:
    """Spark's answer: refused, or a value for each row that did not fail."""

    refused: str | None = None
    type: str = ""
    values: pa.Array | None = None
    ok: pa.BooleanArray | None = None
    """Per row, whether it has a value (null counts)."""

    def row(self, place: int) -> Answer:
        """The answer for one row."""
        assert self.values is not None and self.ok is not None
        return replace(self, values=self.values.slice(place, 1), ok=self.ok.slice(place, 1))


class SparkOracle:
    """A session of its own over a running Spark."""

    def __init__(self, spark: Any) -> None:
        logging.getLogger("SQLQueryContextLogger").disabled = True  # refusals are answers here
        self.spark = spark
        self._spark = spark.newSession()
        for key, value in SETTINGS.items():
            self._spark.conf.set(key, value)
        self._spark.conf.set("spark.sql.optimizer.excludedRules", ",".join(self._rules()))
        jvm = self._spark._jvm
        self._to_seq = jvm.PythonUtils.toSeq
        self._expr = jvm.org.apache.spark.sql.functions.expr
        self._try_eval = jvm.org.apache.spark.sql.catalyst.expressions.TryEval
        self._column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
        self._frame: Any = None

    def _rules(self) -> list[str]:
        names: set[str] = set()
        batches = self._spark._jsparkSession.sessionState().optimizer().defaultBatches().iterator()
        while batches.hasNext():
            rules = batches.next().rules().iterator()
            while rules.hasNext():
                names.add(rules.next().ruleName())
        return sorted(name for name in names if name.rpartition(".")[2] not in _KEPT_RULES)

    def load(self, batch: pa.RecordBatch) -> None:
        """The rows that expressions are evaluated over from now on."""
        columns = ", ".join(f"{field.name} {sql_type(field.type)}" for field in batch.schema)
        self._frame = self._spark.createDataFrame(pa.Table.from_batches([batch]), columns)

    def answers(self, texts: Sequence[str]) -> list[Answer]:
        """An answer per expression."""
        out: list[Answer | None] = [None] * len(texts)
        bound: list[tuple[int, str, Any]] = []
        for place, text in enumerate(texts):
            try:
                named, column = self._bind(text)
            except (PySparkException, Py4JJavaError) as error:
                out[place] = Answer(refused=str(error).strip().partition("\n")[0])
                continue
            try:
                arrow_type(named)
            except (KeyError, ValueError):
                out[place] = Answer(refused=f"a value of type {named} is no column's", type=named)
                continue
            bound.append((place, named, column))
        for place, answer in self._run(bound):
            out[place] = answer
        return [answer if answer is not None else Answer(refused="the oracle failed") for answer in out]

    def _bind(self, text: str) -> tuple[str, Any]:
        column = self._expr(f"named_struct('v', {text}\n)")
        plan = self._frame._jdf.select(self._to_seq([column])).queryExecution().analyzed()
        named = plan.projectList().apply(0)
        value = named.child() if named.nodeName() == "Alias" else named
        value_type = value.dataType().fields()[0].dataType().sql().lower()
        return value_type, self._column(self._try_eval(value))

    def _run(self, bound: list[tuple[int, str, Any]]) -> list[tuple[int, Answer]]:
        if not bound:
            return []
        named = [column.alias(f"c{place}") for place, _, column in bound]
        try:
            frame = DataFrame(self._frame._jdf.select(self._to_seq(named)), self._spark)
            found = pa.Table.from_batches(frame._collect_as_arrow())
        except (PySparkException, Py4JJavaError) as error:
            if len(bound) == 1:
                return [(bound[0][0], Answer(refused=f"the oracle failed: {str(error)[:200]}"))]
            half = len(bound) // 2
            return self._run(bound[:half]) + self._run(bound[half:])
        answers = []
        for (place, value_type, _), column in zip(bound, found.columns, strict=True):
            chunk = pa.concat_arrays(column.chunks)
            answers.append((place, Answer(type=value_type, values=chunk.field(0), ok=pc.is_valid(chunk))))
        return answers
