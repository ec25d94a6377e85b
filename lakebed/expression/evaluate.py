"""Evaluates a typed tree over a batch.

Every node is first computed for all rows at once. If a row has no answer (a division by zero, a text that is no
number), the batch is computed again by rows taken: the later arguments of AND, OR and coalesce, the branches of CASE
and the second operand beside a null see only the rows that reach them in Spark, and only what fails there is an error.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRequest
from lakebed.expression import text
from lakebed.expression.arithmetic import calculate
from lakebed.expression.casts import cast
from lakebed.expression.comparison import compare, is_one_of
from lakebed.expression.failures import Bools, RowFailure
from lakebed.expression.functions import FUNCTIONS
from lakebed.expression.sql_text import to_sql
from lakebed.expression.tree import (
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Compare,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    fields,
)

_FALSE, _TRUE = pa.scalar(False), pa.scalar(True)
_NOTHING = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["nothing"])


def evaluate(root: Node, batch: pa.RecordBatch) -> pa.Array:
    """The value of the tree for each row."""
    try:
        try:
            return _Rows(batch, lazy=False).array(root)
        except (RowFailure, pa.ArrowInvalid):
            return _Rows(batch, lazy=True).array(root)
    except (RowFailure, pa.ArrowInvalid) as error:
        hint = error.hint if isinstance(error, RowFailure) else None
        raise InvalidRequest(f"{to_sql(root)!r} failed on a row: {error}", hint=hint) from error
    except KeyError as error:
        raise InvalidRequest(f"{to_sql(root)!r} needs a column that is not there: {error}") from error


def constant_value(root: Node) -> Any:
    """The Python value of a tree without columns; `RowFailure` when it has none."""
    return _Rows(_NOTHING, lazy=False).array(root)[0].as_py()


class _Rows:
    """Some rows, and the values of nodes for them: arrays, or scalars where all rows have one value."""

    def __init__(self, batch: pa.RecordBatch, lazy: bool) -> None:
        self._batch = batch
        self._lazy = lazy

    def array(self, node: Node) -> pa.Array:
        """The value as an array."""
        value = self.value(node)
        return pa.repeat(value, self._batch.num_rows) if isinstance(value, pa.Scalar) else value

    def value(self, node: Node) -> Any:
        match node:
            case Field(path):
                column = self._batch.column(path[0])
                return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))
            case Literal(value, data_type):
                return pa.scalar(value, data_type)
            case Compare(op, left, right):
                one, other = self._pair(left, right) if op != "<=>" else (self.value(left), self.value(right))
                return compare(op, one, other)
            case And(args):
                return self._lazily(args, _FALSE) if self._lazy else reduce(pc.and_kleene, map(self.value, args))
            case Or(args):
                return self._lazily(args, _TRUE) if self._lazy else reduce(pc.or_kleene, map(self.value, args))
            case Not(arg):
                return pc.invert(self.value(arg))
            case IsNull(arg):
                return pc.is_null(self.value(arg))
            case In(arg, values):
                return is_one_of(self.value(arg), [item.value for item in values])
            case Like(arg, pattern, regex):
                return text.like(self.value(arg), pattern, regex)
            case Arithmetic(op, left, right, target):
                return self._arithmetic(op, left, right, target)
            case Cast(arg, target, lenient):
                return cast(self.array(arg), target, lenient)
            case Case():
                return self._case_by_rows(node) if self._lazy else self._case(node)
            case Call("coalesce", args) if self._lazy:
                return self._coalesce(args, node.type)
            case Call(name, args, target):
                function = FUNCTIONS[name]
                inputs = [
                    arg.value if function.kind(at).is_constant and isinstance(arg, Literal) else self.array(arg)
                    for at, arg in enumerate(args)
                ]
                return function.kernel(inputs, target)

    def _arithmetic(self, op: str, left: Node, right: Node, target: pa.DataType) -> Any:
        if op in ("/", "%", "div"):  # the divisor first, as in Spark: beside a null there the rest is not computed
            divisor, dividend = self._pair(right, left)
            return calculate(op, dividend, divisor, target, self._batch.num_rows)
        return calculate(op, *self._pair(left, right), target, self._batch.num_rows)

    def _filled(self, value: Any) -> Any:
        return pa.repeat(value, self._batch.num_rows) if isinstance(value, pa.Scalar) else value

    def _pair(self, first: Node, second: Node) -> tuple[Any, Any]:
        """Two operands, of which the second does not matter where the first is null."""
        value = self.value(first)
        if not self._lazy or isinstance(second, Field | Literal):
            return value, self.value(second)
        return value, self._where(_truth(self._filled(pc.is_valid(value))), second)

    def _where(self, taken: Bools, node: Node) -> Any:
        """The value for the rows that are taken, null for the others."""
        if taken.all():
            return self.value(node)
        names = list(dict.fromkeys(field.path[0] for field in fields(node)))
        batch = self._batch.select(names) if names else pa.RecordBatch.from_arrays([pa.nulls(len(taken))], names=["-"])
        found = _Rows(batch.filter(pa.array(taken)), self._lazy).array(node)
        positions = np.cumsum(taken) - 1
        return found.take(pa.array(np.where(taken, positions, 0), mask=~taken))

    def _lazily(self, args: tuple[Node, ...], decides: pa.Scalar) -> Any:
        """AND (false decides) or OR (true does), argument by argument."""
        combine = pc.and_kleene if decides is _FALSE else pc.or_kleene
        found = self._filled(self.value(args[0]))
        for arg in args[1:]:
            decided = _truth(pc.equal(found, decides))
            found = combine(found, self._filled(self._where(~decided, arg)))
        return found

    def _case(self, node: Case) -> Any:
        found = self.value(node.default)
        for condition, value in reversed(node.branches):
            found = pc.if_else(pc.fill_null(self.value(condition), False), self.value(value), found)
        return found

    def _case_by_rows(self, node: Case) -> Any:
        left = np.ones(self._batch.num_rows, np.bool_)
        found = pa.nulls(len(left), node.type)
        for condition, value in node.branches:
            taken = left & _truth(self._filled(self._where(left, condition)))
            found = pc.if_else(pa.array(taken), self._filled(self._where(taken, value)), found)
            left &= ~taken
        return pc.if_else(pa.array(left), self._filled(self._where(left, node.default)), found)

    def _coalesce(self, args: tuple[Node, ...], data_type: pa.DataType) -> Any:
        found = pa.nulls(self._batch.num_rows, data_type)
        for arg in args:
            found = pc.coalesce(found, self._filled(self._where(~_truth(pc.is_valid(found)), arg)))
        return found


def _truth(values: Any) -> Bools:
    """True where the condition is."""
    found: Bools = np.asarray(pc.fill_null(values, False))
    return found
