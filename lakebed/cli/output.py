"""How commands print their result: a table on the terminal, or JSON with `--json`.

Printed text may come from data: it is never interpreted as markup or as terminal control codes (`harmless`).
"""

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
from rich.text import Text

from lakebed.cli.json_values import json_rows
from lakebed.cli.terminal_text import harmless, harmless_cell, harmless_json

PIPE_WIDTH = 1000
"""Without a terminal no line is wrapped, so that `grep` finds file names in one piece."""
console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
errors = Console(stderr=True, soft_wrap=True)


def plain(value: Any) -> Any:
    """A value that JSON can hold: bytes become base64 text, decimals, NaN and infinities become text."""
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


def say(text: str, style: str = "") -> None:
    """A message on standard output."""
    console.print(Text(harmless(text), style=style), highlight=False)


def complain(text: str, *, title: str = "") -> None:
    """A message on standard error, after a title that stands out."""
    errors.print(Text.assemble((title, "bold red"), harmless(text)), highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False)
    sys.stdout.write(f"{harmless_json(text)}\n")


def print_table(table: pa.Table, *, as_json: bool, title: str | None = None) -> None:
    """An Arrow table as a list of JSON objects or as a drawn table."""
    rows = json_rows(table, exact=False)
    if as_json:
        print_json(rows)
        return
    drawn = _drawn(title)
    for field in table.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        header = Text(harmless_cell(field.name), style="bold")
        drawn.add_column(header, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(cell(row[name]) for name in table.column_names))
    console.print(drawn)


def print_pairs(pairs: Iterable[tuple[str, Any]], *, as_json: bool, title: str | None = None) -> None:
    """Names and values as a JSON object or as two columns."""
    pairs = list(pairs)
    if as_json:
        print_json(dict(pairs))
        return
    drawn = _drawn(title, show_header=False)
    drawn.add_column()
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(Text(harmless_cell(name), style="bold"), cell(value))
    console.print(drawn)


def cell(value: Any) -> Text:
    """A value as one cell; null is a dash in another colour than the text of a dash."""
    if value is None:
        return Text("-", style="dim")
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, default=str)
    return Text(harmless_cell(text))


def _drawn(title: str | None, *, show_header: bool = True) -> RichTable:
    named = None if title is None else Text(harmless_cell(title), style="table.title")
    return RichTable(title=named, title_justify="left", show_header=show_header)


def size_text(size: int) -> str:
    """A byte count for people."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
