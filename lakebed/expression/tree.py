"""The tree behind filters, conditions and assignments: a few plain values.

`binder` makes it from text, `arrow` runs it, `sql_text` prints it, `skipping` asks it what can be left
unread. Nothing here knows about any of them, so that a tree can be pickled to a worker or turned into Spark columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field inside a struct column."""

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


@dataclass(frozen=True, slots=True)
class Compare:
    """`op` is one of = != < <= > >= and <=> (equal, nulls included)."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class And:
    """Every argument is true."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some argument is true."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The argument is false."""

    arg: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    """The argument is null."""

    arg: Node


@dataclass(frozen=True, slots=True)
class In:
    """The argument equals one of the constants, which share a type."""

    arg: Node
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`pattern` in SQL's form with backslash as escape; a regular expression when `regex`."""

    arg: Node
    pattern: str
    ignore_case: bool = False
    regex: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`op` is one of + - * / % div."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `FUNCTIONS`."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """The argument in another type; digits that do not fit are cut."""

    arg: Node
    type: pa.DataType


Node: TypeAlias = Field | Literal | Compare | And | Or | Not | IsNull | In | Like | Arithmetic | Call | Cast


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case And(args) | Or(args) | Call(_, args):
            return args
        case Not(arg) | IsNull(arg) | In(arg) | Like(arg) | Cast(arg):
            return (arg,)
    return ()


def fields(node: Node) -> Iterator[Field]:
    """Every column mentioned."""
    if isinstance(node, Field):
        yield node
    for child in children(node):
        yield from fields(child)


def is_floating(node: Node) -> bool:
    """Whether a node's value may be NaN."""
    match node:
        case Field(_, data_type) | Literal(_, data_type) | Cast(_, data_type):
            return bool(pa.types.is_floating(data_type))
        case Arithmetic(op, left, right):
            return op == "/" or is_floating(left) or is_floating(right)
        case Call(name, args):
            return name in ("abs", "round", "coalesce", "if", "greatest", "least") and any(map(is_floating, args))
    return False
