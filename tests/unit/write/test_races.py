"""Rows made from an older state of the table: what another write did in between must not be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.table import Table
from lakebed.write.operation import Operation
from lakebed.write.table_writer import TableWriter
from tests.unit.write.tables import make, row, table, values


def stale(t: Table, between: Callable[[Table], Any]) -> TableWriter:
    """A writer that has seen the table before another write completed."""
    writer = t._writer(None, None)
    between(lakebed.open(t.url))
    return writer


def filled(index: str) -> Table:
    t = make(index=index, partition_by=None)
    t.upsert(table(*(row(f"k{n}", v=n) for n in range(8))))
    return t


def upsert_all(t: Table) -> None:
    t.upsert(table(*(row(f"k{n}", 2, v=100 + n) for n in range(8))))


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_an_update_gives_way_to_what_came_before_it_began(index: str) -> None:
    t = filled(index)
    with pytest.raises(lakebed.ConflictError):
        stale(t, upsert_all).update({"v": "v + 1"}, None)
    with pytest.raises(lakebed.ConflictError):
        stale(t, upsert_all).delete_where("v >= 100")
    assert values(t.refresh(), "v") == [(100 + n,) for n in range(8)]


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_an_upsert_depends_on_nothing_it_read(index: str) -> None:
    t = filled(index)
    stale(t, upsert_all).write(table(row("k1", 3, v=7)), Operation.UPSERT)
    assert values(t.refresh(), "id", "v")[1] == ("k1", 7)


def test_rows_do_not_go_to_buckets_that_were_replaced() -> None:
    t = filled("bucket")
    with pytest.raises(lakebed.ConflictError, match="replaced"):
        stale(t, lambda other: other.overwrite(table(row("z", v=1)))).write(table(row("k1", 3)), Operation.UPSERT)
    t.refresh().upsert(table(row("k1", 3, v=9)))
    assert values(t, "id", "v") == [("k1", 9), ("z", 1)]


def test_a_ring_counts_as_soon_as_it_is_marked() -> None:
    t = filled("consistent_bucket")
    writer = stale(t, lambda other: other.overwrite(table(row("z", v=1))))
    writer.write(table(row("k1", 3, v=9)), Operation.UPSERT)
    assert values(t.refresh(), "id", "v") == [("k1", 9), ("z", 1)]


def test_looked_up_rows_find_what_is_there_when_the_write_begins() -> None:
    t = filled("simple")
    writer = stale(t, lambda other: other.overwrite(table(row("k1", 9, v=1))))
    writer.write(table(row("k1", 3, v=2), row("k2", 3, v=3)), Operation.UPSERT)
    assert values(t.refresh(), "id", "v") == [("k1", 1), ("k2", 3)]
