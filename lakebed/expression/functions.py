"""The functions of the expression language, each declared once: names, arguments, types, kernel.

The binder reads from here which of the parser's arguments a function takes and into which types they are converted, the
evaluator what to run, and docs/expressions.md its text. A parser that has no class for a function passes it by
name, and older ones differ from newer ones in that, so every function is known by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expression import text
from lakebed.expression.arithmetic import absolute, negative
from lakebed.expression.comparison import extreme
from lakebed.expression.rounding import rounded, rounded_type, to_digits, to_whole, whole_type
from lakebed.expression.tree import Literal, Node
from lakebed.expression.types import BOOLEAN, INT, TEXT


class Kind(Enum):
    """What an argument must be; the value is its text in the documentation."""

    TEXT = "text"
    TEXT_OR_BINARY = "text or binary"
    NUMBER = "number"
    FLOATING = "float or double"
    DECIMAL = "number, as decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    ALIKE = "values of a common type"
    ALIKE_STRICT = "values of a common type, text only with text"
    CONSTANT_TEXT = "constant text"
    CONSTANT_WHOLE = "constant whole number"

    @property
    def is_constant(self) -> bool:
        return self in (Kind.CONSTANT_TEXT, Kind.CONSTANT_WHOLE)


Kernel: TypeAlias = Callable[[Sequence[Any], pa.DataType], Any]
ResultType: TypeAlias = Callable[[Sequence[Node]], pa.DataType]


@dataclass(frozen=True, slots=True)
class Function:
    """`reads` names the parser's arguments in the order of `kinds`; one in the plural holds any number of values."""

    name: str
    kinds: tuple[Kind, ...]
    result: ResultType
    kernel: Kernel
    about: str
    node: str | None = None
    reads: tuple[str, ...] = ("this",)
    required: int = 1
    also: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Arguments of the parser that are an error when set."""
    fixed: Mapping[str, frozenset[object]] = field(default_factory=dict)
    """Arguments that the parser sets by itself, and the values under which the function means what is declared here."""

    @property
    def variadic(self) -> bool:
        return self.reads[-1] == "expressions"

    def kind(self, position: int) -> Kind:
        """What the argument at a position must be."""
        return self.kinds[min(position, len(self.kinds) - 1)]


def _always(data_type: pa.DataType) -> ResultType:
    return lambda _: data_type


def _first(args: Sequence[Node]) -> pa.DataType:
    return args[0].type


def _plain(function: Callable[..., Any]) -> Kernel:
    return lambda values, _: function(*values)


def _digits(args: Sequence[Node]) -> int:
    last = args[1] if len(args) > 1 else None
    return int(last.value) if isinstance(last, Literal) else 0


def _round(values: Sequence[Any], target: pa.DataType) -> Any:
    return rounded(values[0], values[1] if len(values) > 1 else 0, target)


def _part(name: str, kind: Kind, function: Callable[[Any], Any]) -> Function:
    about = f"the {name} of a {kind.value}" + (", in UTC" if kind is Kind.TIMESTAMP else "")
    return Function(name, (kind,), _always(INT), _plain(text.part_of(function)), about, name.capitalize())


def _text_test(
    name: str, node: str, function: Callable[..., Any], about: str, refused: tuple[str, ...] = ()
) -> Function:
    kinds = (Kind.TEXT, Kind.CONSTANT_TEXT)
    reads = ("this", "expression")
    return Function(name, kinds, _always(BOOLEAN), _plain(function), about, node, reads, 2, refused=refused)


def _trimmed(name: str, function: Callable[..., Any], where: str) -> Function:
    def kernel(values: Sequence[Any], _: pa.DataType) -> Any:
        return function(values[0], values[1] if len(values) > 1 else " ")

    about = f"without spaces {where}, or without the characters in `trim(BOTH 'xy' FROM text)`"
    return Function(name, (Kind.TEXT, Kind.CONSTANT_TEXT), _always(TEXT), kernel, about)


def _ceiling(name: str, up: bool, also: tuple[str, ...] = ()) -> tuple[Function, Function]:
    """One digit argument changes the type in which the function works, so that there are two."""
    way = "up" if up else "down"
    whole = Function(
        name,
        (Kind.NUMBER,),
        lambda args: whole_type(args[0].type),
        lambda values, target: to_whole(values[0], up, target),
        f"the next whole number {way}: bigint, of decimals a decimal; NaN gives 0",
        name.capitalize(),
        also=also,
        refused=("decimals", "to"),
    )
    digits = Function(
        f"{name} with digits",
        (Kind.DECIMAL, Kind.CONSTANT_WHOLE),
        lambda args: rounded_type(args[0].type, _digits(args)),
        lambda values, target: to_digits(values[0], up, values[1], target),
        f"the next number {way} with so many digits behind the point: a decimal",
        None,
        ("this", "decimals"),
        2,
        refused=("to",),
    )
    return whole, digits


_ALL = (
    Function("abs", (Kind.NUMBER,), _first, _plain(absolute), "the value without its sign", "Abs"),
    *_ceiling("ceil", True, ("ceiling",)),
    *_ceiling("floor", False),
    Function(
        "coalesce",
        (Kind.ALIKE,),
        _first,
        lambda values, _: pc.coalesce(*values),
        "the first value that is not null; later ones are evaluated only for rows that need them",
        "Coalesce",
        ("this", "expressions"),
        also=("nvl", "ifnull"),
        refused=("is_null",),
        fixed={"is_nvl": frozenset({True, False})},
    ),
    Function(
        "concat",
        (Kind.TEXT_OR_BINARY,),
        _first,
        lambda values, _: text.concat(values),
        "one after the other, also written ||; null when one is null",
        "Concat",
        ("expressions",),
        fixed={"safe": frozenset({True, False}), "coalesce": frozenset({False})},
    ),
    _text_test("contains", "Contains", pc.match_substring, "whether it occurs in the text", ("json_scope",)),
    _part("day", Kind.DATE, pc.day),
    Function("dayofmonth", (Kind.DATE,), _always(INT), _plain(text.part_of(pc.day)), "the same as day", "DayOfMonth"),
    _text_test("endswith", "EndsWith", pc.ends_with, "whether the text ends so"),
    Function(
        "greatest",
        (Kind.ALIKE_STRICT,),
        _first,
        lambda values, _: extreme(">", values),
        "the greatest value that is not null; NaN is above all numbers",
        "Greatest",
        ("this", "expressions"),
        2,
        fixed={"ignore_nulls": frozenset({True})},
    ),
    _part("hour", Kind.TIMESTAMP, pc.hour),
    Function(
        "isnan",
        (Kind.FLOATING,),
        _always(BOOLEAN),
        lambda v, _: pc.fill_null(pc.is_nan(v[0]), False),
        "whether it is NaN; false for null",
        "IsNan",
    ),
    Function(
        "least",
        (Kind.ALIKE_STRICT,),
        _first,
        lambda values, _: extreme("<", values),
        "the least value that is not null",
        "Least",
        ("this", "expressions"),
        2,
        fixed={"ignore_nulls": frozenset({True})},
    ),
    Function(
        "length",
        (Kind.TEXT_OR_BINARY,),
        _always(INT),
        _plain(text.length),
        "characters of a text, bytes of a binary value",
        "Length",
        also=("char_length", "character_length", "len"),
        refused=("binary", "encoding"),
    ),
    Function("lower", (Kind.TEXT,), _always(TEXT), _plain(text.lower), "in small letters", "Lower", also=("lcase",)),
    _trimmed("ltrim", pc.utf8_ltrim, "in front"),
    _part("minute", Kind.TIMESTAMP, pc.minute),
    _part("month", Kind.DATE, pc.month),
    Function("negative", (Kind.NUMBER,), _first, _plain(negative), "written -x", "Neg"),
    Function(
        "round",
        (Kind.NUMBER, Kind.CONSTANT_WHOLE),
        lambda args: rounded_type(args[0].type, _digits(args)),
        _round,
        "to so many digits behind the point (none; before it when negative), halves away from zero",
        "Round",
        ("this", "decimals"),
        refused=("truncate", "casts_non_integer_decimals"),
    ),
    _trimmed("rtrim", pc.utf8_rtrim, "behind"),
    _part("second", Kind.TIMESTAMP, pc.second),
    _text_test("startswith", "StartsWith", pc.starts_with, "whether the text begins so"),
    Function(
        "substring",
        (Kind.TEXT, Kind.CONSTANT_WHOLE, Kind.CONSTANT_WHOLE),
        _always(TEXT),
        _plain(text.substring),
        "from a position (1 is the first, negative ones count from the end), so many characters or all",
        "Substring",
        ("this", "start", "length"),
        2,
        also=("substr",),
        refused=("zero_start",),
    ),
    _trimmed("trim", pc.utf8_trim, "on both sides"),
    Function("upper", (Kind.TEXT,), _always(TEXT), _plain(text.upper), "in capitals", "Upper", also=("ucase",)),
    _part("year", Kind.DATE, text.year_of),
)
FUNCTIONS: Mapping[str, Function] = {function.name: function for function in _ALL}
BY_NODE: Mapping[str, Function] = {
    **{function.node: function for function in _ALL if function.node is not None},
    "Negative": FUNCTIONS["negative"],
}
BY_NAME: Mapping[str, Function] = {
    name: function for function in _ALL for name in (function.name, *function.also) if "trim" not in name
}
"""trim takes its characters before the text, which the parser turns round; by name it would not."""
