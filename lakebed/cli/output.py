"""How the command line prints: a table for people, JSON for programs, never both."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table as RichTable

PIPE_WIDTH = 1000
"""Without a terminal nothing is folded: who greps for a file name must find it in one piece."""
console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
errors = Console(stderr=True, soft_wrap=True)


def plain(value: Any) -> Any:
    """A value that JSON can hold: bytes become base64 text, decimals and what is no number become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def print_table(table: pa.Table, *, as_json: bool, title: str | None = None) -> None:
    """An Arrow table as a list of JSON objects or as a drawn table."""
    if as_json:
        print_json(table.to_pylist())
        return
    drawn = RichTable(title=title, title_justify="left", header_style="bold")
    for field in table.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        drawn.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in table.to_pylist():
        drawn.add_row(*(cell(row[name]) for name in table.column_names))
    console.print(drawn)


def print_pairs(pairs: Iterable[tuple[str, Any]], *, as_json: bool, title: str | None = None) -> None:
    """Names and values as a JSON object or as two columns."""
    pairs = list(pairs)
    if as_json:
        print_json(dict(pairs))
        return
    drawn = RichTable(title=title, title_justify="left", show_header=False)
    drawn.add_column(style="bold")
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(name, cell(value))
    console.print(drawn)


def cell(value: Any) -> str:
    """A value as one cell; markup characters in data are shown, not obeyed."""
    if value is None:
        return "[dim]-[/dim]"
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, default=str)
    return text.replace("[", r"\[")


def size_text(size: int) -> str:
    """A byte count for people."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
