"""Tables of many small file groups, with logs where the table has them."""

from __future__ import annotations

from typing import Any

from lakebed.table import Table
from tests.unit.services.compaction_cases import KEPT, MARKED, gone, put
from tests.unit.write.tables import make, row, table

APART = {**KEPT, "hoodie.parquet.small.file.limit": "0"}
"""Every insert makes a file group of its own."""
KINDS: dict[str, dict[str, Any]] = {
    "v10-lsm": {"log_format": "v2"},
    "v9-lsm": {"log_format": "v1"},
    "v10-default": {"log_format": "v2", "layout": "default"},
    "v9-default": {"log_format": "v1", "layout": "default"},
    "v9-cow": {"log_format": "v1", "layout": "default", "table_type": "cow"},
    "v9-cow-lsm": {"log_format": "v1", "table_type": "cow"},
}


def new(kind: str, **more: Any) -> Table:
    return make(**{**KINDS[kind], "index": "simple", "schema": MARKED, "properties": APART, **more})


def filled(kind: str, **more: Any) -> Table:
    """Three inserts into two partitions, with updates, late updates and deletes of both kinds between them."""
    target = new(kind, **more)
    for turn in range(3):
        rows = [
            {**row(f"k{i:03d}", 1, "ab"[i % 2], v=(i * 37) % 101, txt=f"t{i % 7}"), "_hoodie_is_deleted": False}
            for i in range(120)
            if i // 2 % 3 == turn
        ]
        target.bulk_insert(table(*rows, schema=MARKED))
    changed = [row(f"k{i:03d}", 2 - i % 3, "ab"[i % 2], v=1000 + i) for i in range(0, 60, 5)]
    put(target, *changed, {**gone("k008", 3), "p": "a"}, row("new", 1, "a", v=5))
    target.delete(keys=[{"id": "k010", "p": "a"}, {"id": "k011", "p": "b"}])
    put(target, row("k010", 0, "a", v=-10))
    return target
