"""Logs that lakebed merged in odd orders and whose originals it cleaned away: real Hudi reads the same and goes on.

Plans are left lying, dropped and run late. On versions 8 and 9 a merged log reaches up to the newest delta; on version
10 it need not, and Hudi sees what a downgrade makes of that.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.model.actions import CleanMetadata, CompactionPlan
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient

from .client import HudiPeer
from .hudi_writer import NO_CLEANING, NO_METADATA, WRITE
from .plain_rows import (
    KEYED,
    SCHEMA,
    assert_both_read,
    assert_hudi_reads,
    by_lakebed,
    in_order,
    no_damage,
    numbered,
    replaced,
    rows,
)

pytestmark = pytest.mark.interop

RUN = {**NO_METADATA, f"{WRITE}recordkey.field": "id"}
SCAN_V2 = {"hoodie.optimized.log.blocks.scan.enable": "true", "hoodie.log.record.reader.use.scanV2": "true"}
NO_UPKEEP = {**NO_CLEANING, "hoodie.archive.automatic": "false"}
ONE = {"hoodie.clean.commits.retained": "1"}
FEW = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", **ONE}


def small(size: int) -> dict[str, str]:
    """Options under which two logs up to a size are worth merging."""
    return {"hoodie.log.compaction.blocks.threshold": "2", "lakebed.log.compaction.small.size": str(size)}


def client(path: Path) -> MetaClient:
    return MetaClient.open(LocalStorage(path))


def logs(path: Path) -> list[int]:
    """The sizes of the logs in one partition's only bucket."""
    return [info.size for info in LocalStorage(path).list("p=p0") if ".log." in info.name]


def put(table: lakebed.Table, known: list[list[Any]], *newer: list[Any]) -> list[list[Any]]:
    table.upsert(rows(*newer), options=NO_UPKEEP)
    return replaced(known, *newer)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("ordering", ["ts", None])
def test_hudi_reads_merged_logs_whose_originals_are_gone(
    hudi: HudiPeer, tmp_path: Path, ordering: str | None, version: int
) -> None:
    path = tmp_path / "t"
    table = lakebed.create(path, SCHEMA, **{**KEYED, "num_buckets": 1, "ordering": ordering})
    if version == 8:
        table.services.downgrade(8)
    table.bulk_insert(rows(*numbered(range(30), 5, int)), options=NO_UPKEEP)
    wanted = numbered(range(30), 5, int)

    def same(what: str) -> None:
        assert_both_read(hudi, path, table, wanted, what)
        assert_hudi_reads(hudi, path, wanted, what, SCAN_V2)

    wide = numbered(range(4000), 6, lambda i: 7919 * i, key="w{:04d}")
    wanted = put(table, wanted, *wide)
    wanted = put(table, wanted, *numbered(range(10), 7, lambda i: 100 + i))
    wanted = put(table, wanted, *numbered(range(5), 8, lambda i: 200 + i))
    newest = table.services.plan_compaction("log", options=small(max(logs(path)) // 2))
    assert {len(one.logs) for one in newest.decisions} == {2}
    table.services.rollback(newest.instants[0])
    newest = table.services.plan_compaction("log", options=small(max(logs(path)) // 2))
    wanted = put(table, wanted, *numbered(range(3), 9, lambda i: 300 + i))
    table.services.run(newest)
    same("the newest stretch merged, a write came between plan and run")
    again = table.services.compact("log", options=small(1 << 30))
    assert len(again) == 1, "all of it, the merged log and the large one below it included"
    wanted = put(table, wanted, *numbered(range(2, 6), 10, lambda i: 400 + i))
    wanted = put(table, wanted, *numbered(range(4, 8), 11, lambda i: 500 + i))
    before = len(logs(path))
    clean = table.services.plan_clean(ONE)
    assert clean is not None
    same("a clean planned")
    [compaction] = table.services.plan_compaction("full").instants
    table.services.run(clean)
    assert len(logs(path)) == 4 < before, "two deltas, one merged log, and the log at whose place that stands"
    same("cleaned")
    wanted = put(table, wanted, *numbered(range(6, 9), 12, lambda i: 600 + i))
    table.services.archive(FEW)
    same("archived as far as the plan allows")
    plan = client(path).plan(compaction)
    assert isinstance(plan, CompactionPlan)
    assert {len(operation.log_files) for operation in plan.operations} == {4}
    hudi.call("run_compaction", path, RUN, op="run")
    assert not table.services.pending_compactions()
    same("Hudi ran a plan that leaves to the clean what it takes")
    wanted = put(table, wanted, *numbered(range(2), 13, lambda i: 700 + i))
    assert table.services.clean(ONE)
    assert table.services.archive(FEW)
    same("cleaned with their slice and archived")
    assert no_damage(table)


def test_hudi_knows_a_clean_that_left_files(hudi: HudiPeer, tmp_path: Path) -> None:
    """A plan of Hudi's names logs that a clean was to take: they stay, the report says so, and Hudi runs its plan."""
    path = tmp_path / "t"
    table = lakebed.create(path, SCHEMA, **{**KEYED, "num_buckets": 1})
    table.bulk_insert(rows(*numbered(range(30), 5, int)), options=NO_UPKEEP)
    wanted = numbered(range(30), 5, int)
    for step in range(3):
        wanted = put(table, wanted, *numbered(range(step, 10), 6 + step, lambda i: 100 + i))
    assert table.services.compact("log", options=small(1 << 30))
    wanted = put(table, wanted, *numbered(range(5), 20, lambda i: 200 + i))
    wanted = put(table, wanted, *numbered(range(5), 21, lambda i: 300 + i))
    clean = table.services.plan_clean(ONE)
    assert clean is not None
    hudi.call("run_compaction", path, {**RUN, "hoodie.compact.inline.max.delta.commits": "1"}, op="schedule")
    [done] = table.services.run(clean)
    body = client(path).body(done)
    assert isinstance(body, CleanMetadata)
    left = [name for found in body.partitions.values() for name in found.failed]
    assert len(left) == 4, "two of each partition's three covered logs"
    assert body.total_files_deleted == 0
    hudi.sql(f"CREATE TABLE left_files USING hudi LOCATION '{path}'")
    shown = hudi.sql("CALL show_cleans(table => 'left_files')")
    assert [row[shown["columns"].index("total_files_deleted")] for row in shown["rows"]] == [0]
    assert_both_read(hudi, path, table, wanted, "left")
    hudi.call("run_compaction", path, RUN, op="run")
    assert_both_read(hudi, path, table, wanted, "compacted")
    assert table.services.clean(ONE)
    assert_both_read(hudi, path, table, wanted, "cleaned with their slice")
    assert no_damage(table)


@pytest.mark.parametrize("ordering", ["ts", None])
def test_hudi_reads_version_ten_after_odd_orders(hudi: HudiPeer, tmp_path: Path, ordering: str | None) -> None:
    """The newer stretch merged first, the older one second, all covered logs cleaned: then down to version 9."""
    path, chance = tmp_path / "t", random.Random(3)
    table = lakebed.create(path, SCHEMA, **{**KEYED, "num_buckets": 1, "ordering": ordering, "log_format": "v2"})
    wanted = put(table, [], *numbered(range(0, 200, 2), 1, int))
    counts = ((200, 0, 2), (200, 0, 3), (180, 0, 4), (360, 180, 5))
    for high, low, ts in counts:
        wanted = put(table, wanted, *numbered(range(low, high, 2), ts, lambda _: chance.randrange(1 << 60)))
    sizes = logs(path)
    for size in (max(sizes[-2:]), max(sizes)):
        planned = table.services.plan_compaction("log", options=small(size))
        assert [len(one.logs) for one in planned.decisions] == [2]
        table.services.run(planned)
    wanted = put(table, wanted, ["z0", 1, "p0", 1])
    wanted = put(table, wanted, ["z0", 2, "p0", 2])
    table.services.clean(ONE)
    assert len(logs(path)) == 4
    assert in_order(by_lakebed(table.refresh())) == in_order(wanted)
    table.services.downgrade(9)
    assert_both_read(hudi, path, table, wanted)
    assert no_damage(table)
