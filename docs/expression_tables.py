"""The tables in docs/expressions.md, from the declarations in `lakebed/expression`.

The page is written by hand but for what stands between `<!-- table: name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from lakebed.expression.casts import can_cast
from lakebed.expression.functions import FUNCTIONS, Function
from lakebed.expression.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    common_type,
    decimal_result,
    sql_name,
)

_DECIMAL, _SHORT_DECIMAL = pa.decimal128(10, 2), pa.decimal128(5, 3)
_ORDERED = (TINYINT, SMALLINT, INT, BIGINT, _DECIMAL, FLOAT, DOUBLE, DATE, TIMESTAMP_NTZ, TIMESTAMP)
_ALL = (BOOLEAN, *_ORDERED[:7], TEXT, BINARY, *_ORDERED[7:])


def filled(page: str) -> str:
    """The page with its tables as the declarations have them now."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{_TABLES[found[2]]()}\n\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _common() -> str:
    rows = [[f"`{sql_name(one)}`", *[_named(common_type([one, other])) for other in _ORDERED]] for one in _ORDERED]
    return _table(["", *[f"`{sql_name(kind)}`" for kind in _ORDERED]], rows)


def _named(kind: pa.DataType | None) -> str:
    return "" if kind is None else sql_name(kind)


def _casts() -> str:
    rows = [[f"`{_general(one)}`", *["yes" if can_cast(one, other) else "" for other in _ALL]] for one in _ALL]
    return _table(["from, to", *[f"`{_general(kind)}`" for kind in _ALL]], rows)


def _general(kind: pa.DataType) -> str:
    return "DECIMAL(p, s)" if kind == _DECIMAL else sql_name(kind)


def _arithmetic() -> str:
    about = {
        "+": "the common type; overflow is an error",
        "-": "the common type; overflow is an error",
        "*": "the common type; overflow is an error",
        "/": "double, of decimals a decimal; zero is an error",
        "%": "the common type, with the sign of the dividend; zero is an error",
    }
    rows = [[f"`{op}`", text, sql_name(decimal_result(op, _DECIMAL, _SHORT_DECIMAL))] for op, text in about.items()]
    rows.append(["`div`", "bigint, cut towards zero; whole numbers and decimals only", sql_name(BIGINT)])
    return _table(["operator", "result", f"`{sql_name(_DECIMAL)}` and `{sql_name(_SHORT_DECIMAL)}`"], rows)


def _functions() -> str:
    return _table(["function", "arguments", "value"], [_function(function) for function in FUNCTIONS.values()])


def _function(function: Function) -> list[str]:
    names = ", ".join(f"`{name}`" for name in (function.name, *function.also))
    kinds = [kind.value if at < function.required else f"[{kind.value}]" for at, kind in enumerate(function.kinds)]
    return [names, f"{', '.join(kinds)}{', ...' if function.variadic else ''}", function.about]


_TABLES: Mapping[str, Callable[[], str]] = {
    "common": _common,
    "casts": _casts,
    "arithmetic": _arithmetic,
    "functions": _functions,
}
