"""Tables with logs, and every answer they give: services must change none of them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from lakebed.model.files import FileSlice
from lakebed.model.finding import Severity
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from tests.unit.write.tables import SCHEMA, Row, make, row, table

STAMPS = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")
EASY = {"hoodie.log.compaction.blocks.threshold": "2"}
"""Options under which two small logs are worth merging."""
KINDS: dict[str, dict[str, Any]] = {
    "v10-lsm": {"log_format": "v2"},
    "v10-default": {"log_format": "v2", "layout": "default"},
    "v9-lsm": {"log_format": "v1"},
    "v9-default": {"log_format": "v1", "layout": "default"},
    "v10-by-commit-time": {"log_format": "v2", "ordering": None},
    "v9-by-commit-time": {"log_format": "v1", "ordering": None},
}
KEPT = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
"""Every time can be travelled to."""
MARKED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))


def new(kind: str, **more: Any) -> Table:
    return make(**{**KINDS[kind], "partition_by": None, "schema": MARKED, "properties": KEPT, **more})


def put(target: Table, *rows: Row, **options: Any) -> None:
    marked = [{"_hoodie_is_deleted": False, **one} for one in rows]
    target.upsert(table(*marked, schema=MARKED), **options)


def gone(ident: str, ts: int) -> Row:
    """A row that deletes its key, if nothing newer is there."""
    return row(ident, ts, _hoodie_is_deleted=True)


def filled(kind: str, deltas: int = 3, **more: Any) -> Table:
    """A base file and deltas with updates, late updates, deletes of both kinds, and keys that come back."""
    target = new(kind, **more)
    marked = [{**row(f"k{i:02d}", 1, v=i), "_hoodie_is_deleted": False} for i in range(20)]
    target.bulk_insert(table(*marked, schema=MARKED))
    for delta in range(deltas):
        changed = [row(f"k{i:02d}", 2 + delta - (i % 3), v=100 * delta + i) for i in range(delta, delta + 6)]
        put(target, *changed, gone(f"k{delta + 8:02d}", delta + 1), row(f"n{delta}", 1, v=delta))
    if deltas:
        target.delete(keys=["k02", "k03"])
        put(target, row("k03", 0, v=-3))
    return target


def rows_of(scan: Any) -> list[str]:
    """Rows with who wrote them and when; where they lie now does not count."""
    found = scan.to_arrow().to_pylist()
    return sorted(str({name: value for name, value in one.items() if name != "_hoodie_file_name"}) for one in found)


def instants_of(target: Table) -> list[str]:
    timeline = target.refresh().inspect.timeline().to_pylist()
    words = ("commit", "deltacommit", "replacecommit")
    return [one["instant"] for one in timeline if one["state"] == "completed" and one["action"] in words]


def answers(target: Table, instants: list[str]) -> dict[str, list[str]]:
    """The rows now, at every instant, and changed since every instant."""
    target.refresh()
    client = MetaClient.open(open_storage(target.url))
    found = {"now": rows_of(target.scan())}
    for instant in instants:
        found[f"at {instant}"] = rows_of(target.scan(as_of=instant))
        found[f"since {instant}"] = rows_of(target.incremental(client.completion_time(instant) or instant))
    return found


def sound(target: Table) -> None:
    assert [one for one in target.check() if one.severity is not Severity.INFO] == []


def slices(target: Table) -> list[FileSlice]:
    view = FileSystemView.of(client_of(target))
    return [file_slice for partition in view.partitions() for file_slice in view.slices(partition)]


def client_of(target: Table) -> MetaClient:
    return MetaClient.open(open_storage(target.url))


def random_rows(chance: random.Random, step: int, tombstones: dict[str, int]) -> list[Row]:
    """A few rows: updates early and late, ties, deletes by mark.

    `tombstones` are the ordering values of the deletes by mark so far: these last until a compaction, so rows that come
    back stay above them.
    """
    found = []
    for number in chance.sample(range(14), chance.randint(1, 5)):
        key = f"k{number}"
        ts = max(chance.randint(0, 6), tombstones.get(key, 0))
        if chance.random() < 0.2:
            tombstones[key] = ts
            found.append(gone(key, ts))
        else:
            found.append(row(key, ts, v=step, txt=f"{step}-{key}"))
    return found
