"""The typed expression tree behind filters, conditions and assignments, as plain values.

`binder` makes it from SQL text, with every conversion written out as a `Cast` and every constant already in the type in
which it is used. `evaluate` runs it, `sql_text` prints it, `skipping` derives from it what can be left unread, and
Spark's columns are made from it; none of them converts anything on its own. Nothing here knows about any of them, so
that a tree can be pickled to a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

BOOLEAN = pa.bool_()


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field inside a struct column, in the type in which it is stored."""

    path: tuple[str, ...]
    type: pa.DataType

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is SQL's null."""

    value: Any
    type: pa.DataType


class _Condition:
    """A node that is true, false or null."""

    __slots__ = ()

    @property
    def type(self) -> pa.DataType:
        return BOOLEAN


@dataclass(frozen=True, slots=True)
class Compare(_Condition):
    """`op` is one of = != < <= > >= and <=> (equal, nulls included); both sides have one type."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class And(_Condition):
    """Every argument is true; rows for which an earlier one is false do not reach the later ones."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or(_Condition):
    """Some argument is true; rows for which an earlier one is true do not reach the later ones."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not(_Condition):
    """The argument is false."""

    arg: Node


@dataclass(frozen=True, slots=True)
class IsNull(_Condition):
    """The argument is null."""

    arg: Node


@dataclass(frozen=True, slots=True)
class In(_Condition):
    """The argument equals one of the constants, which have its type."""

    arg: Node
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like(_Condition):
    """`pattern` in SQL's form with backslash as escape; a regular expression of Java's when `regex`."""

    arg: Node
    pattern: str
    regex: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`op` is one of + - * / % div. Both sides have one type, except that decimals keep their own digits."""

    op: str
    left: Node
    right: Node
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else the default; all values have one type."""

    branches: tuple[tuple[Node, Node], ...]
    default: Node
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `functions.FUNCTIONS`."""

    name: str
    args: tuple[Node, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Cast:
    """The argument in another type; what does not fit is an error, or null when `lenient` (TRY_CAST)."""

    arg: Node
    type: pa.DataType
    lenient: bool = False


Node: TypeAlias = Field | Literal | Compare | And | Or | Not | IsNull | In | Like | Arithmetic | Case | Call | Cast


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case And(args) | Or(args) | Call(_, args):
            return args
        case Case(branches, default):
            return (*[part for branch in branches for part in branch], default)
        case Not(arg) | IsNull(arg) | Like(arg) | Cast(arg):
            return (arg,)
        case In(arg, values):
            return (arg, *values)
    return ()


def fields(node: Node) -> Iterator[Field]:
    """Every column mentioned."""
    if isinstance(node, Field):
        yield node
    for child in children(node):
        yield from fields(child)
