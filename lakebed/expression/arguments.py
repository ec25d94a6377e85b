"""Which arguments of the parser's nodes are supported: any other argument is an error, never dropped.

Every class of the parser that the binder handles is declared here or, for functions, in `functions`. An argument is
read, or has one of the values under which the node means what the binder takes it to mean, or is refused when it is
set. One that is in none of the three, because a newer parser brought it, is refused as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.expression.functions import BY_NODE, FUNCTIONS, Function

_EITHER = frozenset({True, False})


@dataclass(frozen=True, slots=True)
class Arguments:
    """What is done with the arguments of a class."""

    reads: frozenset[str]
    fixed: Mapping[str, frozenset[object]] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()

    @property
    def known(self) -> frozenset[str]:
        return self.reads | frozenset(self.fixed) | self.refused

    def unread(self, tree: Any) -> str | None:
        """The first argument of a node that is set and not read."""
        for name, value in tree.args.items():
            if name in self.reads or value is None or value is False or value == []:
                continue
            if name in self.fixed and isinstance(value, bool) and value in self.fixed[name]:
                continue
            return str(name)
        return None


def _of(*reads: str, refused: tuple[str, ...] = (), **fixed: frozenset[object]) -> Arguments:
    return Arguments(frozenset(reads), fixed, frozenset(refused))


def _of_function(function: Function) -> Arguments:
    return Arguments(frozenset(function.reads), function.fixed, frozenset(function.refused))


_BOTH = _of("this", "expression")
_CAST = ("format", "action", "default", "requires_string", "null_on_text_overflow", "probe_date_format")
_NODES: Mapping[str, Arguments] = {
    **dict.fromkeys(("And", "Or", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "NullSafeNEQ"), _BOTH),
    **dict.fromkeys(("Add", "Sub", "Mul", "Mod", "IntDiv", "Dot", "Escape", "Nullif"), _BOTH),
    **dict.fromkeys(("Where", "Paren", "Not", "Boolean", "RawString"), _of("this")),
    "Div": _of("this", "expression", typed=_EITHER, safe=_EITHER),  # the typed tree defines what a division is
    "Null": _of(),
    "Literal": _of("this", "is_string"),
    "HexString": _of("this", refused=("is_integer",)),
    "Identifier": _of("this", quoted=_EITHER, refused=("global", "global_", "temporary")),
    "Column": _of("this", "table", "db", "catalog", refused=("join_mark", "shadow")),
    "Is": _of("this", "expression", "negate"),
    "Between": _of("this", "low", "high", refused=("symmetric",)),
    "In": _of("this", "expressions", refused=("query", "unnest", "field", "is_global")),
    "Like": _of("this", "expression", "negate"),
    "ILike": _of("this", "expression", "negate"),
    "RegexpLike": _of("this", "expression", refused=("flag", "full_match")),
    "DPipe": _of("this", "expression", safe=_EITHER),
    "Trim": _of("this", "expression", "position", refused=("collation",)),
    "If": _of("this", "true", "false"),
    "Case": _of("this", "ifs", "default"),
    "Cast": _of("this", "to", "safe", refused=_CAST),
    "TryCast": _of("this", "to", "safe", refused=_CAST),
    "DataType": _of(
        "this", "expressions", nested=frozenset({False}), refused=("values", "prefix", "kind", "nullable", "collate")
    ),
    "DataTypeParam": _of("this", refused=("expression",)),
    "TsOrDsToDate": _of("this", safe=_EITHER, refused=("format", "default_date")),
    "Anonymous": _of("this", "expressions"),
}
ARGUMENTS: Mapping[str, Arguments] = {
    **_NODES,
    **{node: _of_function(function) for node, function in BY_NODE.items()},
    **{
        name: Arguments(frozenset(FUNCTIONS[f"{name.lower()} with digits"].reads), {}, frozenset(("to",)))
        for name in ("Ceil", "Floor")
    },
}
"""Ceil and Floor take their digits, which makes them another function."""
