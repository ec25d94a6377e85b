"""Real Hudi changes the schema of a table (ALTER TABLE under schema-on-read) between plans and runs of lakebed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.instant import Instant
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient

from .client import HudiPeer
from .hudi_writer import NO_CLEANING, NO_METADATA
from .plain_rows import KEYED, in_order, no_damage, rows

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string()), ("a", pa.string()), ("n", pa.int32())])
ON_READ = {"hoodie.schema.on.read.enable": "true"}
DROPS = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
"""Hudi takes the old name of a column for one that was lost."""
SETTINGS = {**ON_READ, **DROPS, **NO_METADATA, **NO_CLEANING, "hoodie.index.type": "BUCKET"}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
EASY = {"hoodie.log.compaction.blocks.threshold": "2"}
SERVICES: dict[str, Callable[[lakebed.Table], Any]] = {
    "compaction": lambda table: table.services.plan_compaction(),
    "log compaction": lambda table: table.services.plan_compaction(strategy="log", options=EASY),
}


def written(path: Path, blocks: str = "parquet") -> lakebed.Table:
    properties = {**QUIET, "hoodie.logfile.data.block.format": blocks}
    table = lakebed.create(path, SCHEMA, **{**KEYED, "num_buckets": 2, "properties": properties})
    table.bulk_insert(rows(*([f"k{i}", 1, f"p{i % 2}", f"a{i}", i] for i in range(12)), schema=SCHEMA))
    for ts in (2, 3):
        table.upsert(rows(*([f"k{i}", ts, f"p{i % 2}", f"a{i}-{ts}", 10 * i] for i in range(ts, 9)), schema=SCHEMA))
    return table


class Sql:
    """The table as Hudi's statements know it."""

    def __init__(self, hudi: HudiPeer, path: Path, name: str) -> None:
        self.hudi, self.path, self.name = hudi, path, name
        hudi.sql(f"create table {name} using hudi location '{path}'", conf=SETTINGS)

    def alter(self, change: str) -> None:
        self.hudi.sql(f"alter table {self.name} {change}", conf=SETTINGS)

    def read(self, columns: list[str]) -> list[str]:
        found = self.hudi.read(self.path, {**ON_READ, **NO_METADATA}, columns=columns)["rows"]
        return in_order(found)


def ours(table: lakebed.Table, columns: list[str]) -> list[str]:
    found = table.refresh().scan(columns=columns).to_arrow().to_pylist()
    return in_order([[row[name] for name in columns] for row in found])


@pytest.mark.parametrize("blocks", ["parquet", "avro"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_column_is_renamed_between_plan_and_run(hudi: HudiPeer, tmp_path: Path, service: str, blocks: str) -> None:
    path = tmp_path / "t"
    table = written(path, blocks)
    planned = SERVICES[service](table)
    assert planned.instants
    sql = Sql(hudi, path, f"renamed_{service.replace(' ', '_')}_{blocks}")
    before = ours(table, ["id", "ts", "p", "a", "n"])
    sql.alter("rename column a to b")
    sql.alter("alter column n type bigint")
    columns = ["id", "ts", "p", "b", "n"]
    assert ours(table, columns) == before
    table.services.run(planned)
    assert ours(table, columns) == before
    assert sql.read(columns) == before
    table.update(set={"b": "'new'"}, where="id = 'k5'")
    changed = ours(table, columns)
    assert changed != before
    assert sql.read(columns) == changed
    table.services.compact()
    assert ours(table, columns) == changed
    assert sql.read(columns) == changed
    assert no_damage(table)


def test_hudi_finds_the_schemas_when_the_changes_are_archived(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(path)
    sql = Sql(hudi, path, "archived_changes")
    sql.alter("rename column a to b")
    sql.alter("drop column n")
    for turn in range(8):
        table.refresh().update(set={"ts": str(10 + turn)}, where="id = 'k1'")
    table.services.archive(
        {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "1"}
    )
    operations = [table.inspect.body(one.requested_time).operation for one in active_writes(path)]  # type: ignore[union-attr]
    assert "ALTER_SCHEMA" not in operations
    columns = ["id", "ts", "p", "b"]
    known = ours(table, columns)
    assert not any("null" in row for row in known)
    assert sql.read(columns) == known
    sql.alter("add columns (n string)")
    sql.alter("rename column b to c")
    known = ours(table, ["id", "ts", "p", "c", "n"])
    assert sql.read(["id", "ts", "p", "c", "n"]) == known
    assert ours(table, ["id", "c"]) == in_order([json.loads(row)[0:4:3] for row in known])


def active_writes(path: Path) -> tuple[Instant, ...]:
    return MetaClient.open(LocalStorage(path)).completed_writes()
