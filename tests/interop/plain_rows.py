"""Rows of four columns, or some more, that both programs write and read: key `id`, order `ts`, partition `p`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.model.finding import Severity

from .client import HudiPeer

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
COLUMNS = SCHEMA.names
KEYED: dict[str, Any] = {"record_key": "id", "partition_by": "p", "ordering": "ts", "log_format": "v1"}
"""What `lakebed.create` is told for a table of such rows that Hudi knows how to write."""


def rows(*given: list[Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = zip(*given, strict=True)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema.names)


def numbered(numbers: Iterable[int], ts: int, value: Callable[[int], int], key: str = "k{:02d}") -> list[list[Any]]:
    """A row for each number, in two partitions."""
    return [[key.format(i), ts, f"p{i % 2}", value(i)] for i in numbers]


def replaced(known: list[list[Any]], *newer: list[Any]) -> list[list[Any]]:
    """The rows after an upsert of newer ones."""
    keys = {row[0] for row in newer}
    return [row for row in known if row[0] not in keys] + list(newer)


def in_order(found: list[list[Any]]) -> list[str]:
    return sorted(map(json.dumps, found))


def by_lakebed(table: lakebed.Table, columns: list[str] = COLUMNS) -> list[list[Any]]:
    return [[row[name] for name in columns] for row in table.scan(columns=columns).to_arrow().to_pylist()]


def assert_hudi_reads(
    hudi: HudiPeer,
    path: Path,
    wanted: list[list[Any]],
    what: object = "",
    settings: dict[str, str] | None = None,
    columns: list[str] = COLUMNS,
) -> None:
    assert in_order(hudi.read(path, settings, columns=columns)["rows"]) == in_order(wanted), what


def assert_both_read(
    hudi: HudiPeer, path: Path, table: lakebed.Table, wanted: list[list[Any]], what: object = ""
) -> None:
    assert in_order(by_lakebed(table.refresh())) == in_order(wanted), what
    assert_hudi_reads(hudi, path, wanted, what)


def sound(table: lakebed.Table) -> bool:
    return not [finding for finding in table.check() if finding.severity is not Severity.INFO]


def no_damage(table: lakebed.Table) -> bool:
    """Base files of Hudi carry no mark that they are sorted, which is a warning in this layout."""
    return not [finding for finding in table.check() if finding.severity is Severity.ERROR]
