"""Compaction across the two: plans of one run by the other, and logs merged by lakebed read by real Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.model.finding import Severity
from lakebed.model.instant import Action
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient
from tests.interop.client import HudiPeer
from tests.interop.test_services import COLUMNS, SCHEMA, by_lakebed, in_order, rows, sound, write_options

pytestmark = pytest.mark.interop

NO_METADATA = {"hoodie.metadata.enable": "false"}
RUN = {**NO_METADATA, "hoodie.datasource.write.recordkey.field": "id"}
"""Hudi takes the bucket index from the table's properties, and then misses the record key, which it does not take."""
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
EASY = {"hoodie.log.compaction.blocks.threshold": "2"}
SCAN_V2 = {"hoodie.optimized.log.blocks.scan.enable": "true", "hoodie.log.record.reader.use.scanV2": "true"}


def written(path: Path, **more: Any) -> lakebed.Table:
    """A version 9 table with a base file and three deltas per group: updates, a late one, deletes."""
    settings = {"record_key": "id", "partition_by": "p", "ordering": "ts", "num_buckets": 2, "log_format": "v1"} | more
    table = lakebed.create(path, SCHEMA, **settings)
    table.bulk_insert(rows(*([f"k{i:02d}", 5, f"p{i % 2}", i] for i in range(30))))
    table.upsert(rows(*([f"k{i:02d}", 6, f"p{i % 2}", 100 + i] for i in range(10))))
    table.upsert(rows(["k01", 7, "p1", 1001], ["k02", 7, "p0", 1002], ["new", 1, "p0", 7]))
    table.delete(keys=[{"id": "k20", "p": "p0"}, {"id": "k21", "p": "p1"}])
    return table


def no_damage(table: lakebed.Table) -> bool:
    """Base files of Hudi carry no mark that they are sorted, which is a warning in this layout."""
    return not [finding for finding in table.check() if finding.severity is Severity.ERROR]


def actions(path: Path) -> list[tuple[Action, bool]]:
    return [(one.action, one.is_completed) for one in MetaClient.open(LocalStorage(path)).timeline]


def test_hudi_runs_a_compaction_that_lakebed_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(path)
    wanted = by_lakebed(table, COLUMNS)
    [planned] = table.services.plan_compaction().instants
    table.upsert(rows(["k03", 9, "p1", 333]))
    wanted = [row for row in wanted if row[0] != "k03"] + [["k03", 9, "p1", 333]]
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted), "planned"
    hudi.call("run_compaction", path, RUN, op="run")
    assert (Action.COMMIT, True) in actions(path)
    assert not table.services.pending_compactions()
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted)
    assert in_order(by_lakebed(table.refresh(), COLUMNS)) == in_order(wanted)
    assert planned.requested_time in {row["base_instant"] for row in table.inspect.file_slices().to_pylist()}
    assert no_damage(table)


def test_lakebed_runs_a_compaction_that_hudi_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = write_options("t", "MERGE_ON_READ", **NO_METADATA, **BUCKETS)
    hudi.write(path, rows(*([f"k{i:02d}", 1, f"p{i % 2}", i] for i in range(20))), options, mode="overwrite")
    for step in range(2):
        hudi.write(path, rows(*([f"k{i:02d}", 2 + step, f"p{i % 2}", 100 + i] for i in range(step, 6))), options)
    hudi.call("run_compaction", path, {**NO_METADATA, "hoodie.compact.inline.max.delta.commits": "1"}, op="schedule")
    table = lakebed.open(path, num_buckets=2)
    [planned] = table.services.pending_compactions()
    wanted = hudi.read(path, columns=COLUMNS)["rows"]
    [done] = table.services.run(planned)
    assert done.requested_time == planned.requested_time
    assert in_order(by_lakebed(table, COLUMNS)) == in_order(wanted)
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted)
    assert sound(table)
    hudi.write(path, rows(["k00", 9, "p0", 999]), options)
    now = [row for row in wanted if row[0] != "k00"] + [["k00", 9, "p0", 999]]
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(now)
    assert in_order(by_lakebed(table.refresh(), COLUMNS)) == in_order(now)


@pytest.mark.parametrize("ordering", ["ts", None])
def test_hudi_reads_logs_that_lakebed_merged(hudi: HudiPeer, tmp_path: Path, ordering: str | None) -> None:
    path = tmp_path / "t"
    table = written(path, ordering=ordering)
    wanted = by_lakebed(table, COLUMNS)
    stamps = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno"]
    stamped = by_lakebed(table, stamps)
    [done] = table.services.compact("log", options=EASY)
    assert done.action is Action.DELTA_COMMIT
    table.upsert(rows(["k04", 9, "p0", 444]))
    wanted = [row for row in wanted if row[0] != "k04"] + [["k04", 9, "p0", 444]]
    kept = [row for row in stamped if row[0] != "k04"]
    for settings in ({}, SCAN_V2):
        assert in_order(hudi.read(path, settings, columns=COLUMNS)["rows"]) == in_order(wanted), settings
        found = hudi.read(path, settings, columns=stamps)["rows"]
        assert in_order([row for row in found if row[0] != "k04"]) == in_order(kept), settings
    table.services.compact("log", options=EASY)
    for settings in ({}, SCAN_V2):
        assert in_order(hudi.read(path, settings, columns=COLUMNS)["rows"]) == in_order(wanted), settings
    more = {**BUCKETS, **HIVE, **NO_METADATA}
    if ordering is None:
        more |= {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
    given = write_options("t", "MERGE_ON_READ", **more)
    if ordering is None:
        del given["hoodie.datasource.write.precombine.field"]
    hudi.write(path, rows(["k05", 9, "p1", 555]), given)
    wanted = [row for row in wanted if row[0] != "k05"] + [["k05", 9, "p1", 555]]
    assert in_order(by_lakebed(table.refresh(), COLUMNS)) == in_order(wanted)
    hudi.call("run_compaction", path, {**RUN, "hoodie.compact.inline.max.delta.commits": "1"}, op="schedule")
    hudi.call("run_compaction", path, RUN, op="run")
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted)
    assert in_order(by_lakebed(table.refresh(), COLUMNS)) == in_order(wanted)
    assert no_damage(table)


def test_hudi_reads_what_two_instants_of_one_hybrid_plan_left(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(path)
    table.upsert(rows(*([f"z{i:04d}", 1, "p9", i] for i in range(3000))))
    for step in range(2):
        table.upsert(rows(["z0001", 2 + step, "p9", step]))
    wanted = by_lakebed(table, COLUMNS)
    options = {**EASY, "lakebed.compaction.hybrid.log.ratio": "1.5"}
    planned = table.services.plan_compaction("hybrid", options=options)
    assert [one.action for one in planned.instants] == [Action.COMPACTION, Action.LOG_COMPACTION]
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted), "planned"
    table.services.run(planned)
    for settings in ({}, SCAN_V2):
        assert in_order(hudi.read(path, settings, columns=COLUMNS)["rows"]) == in_order(wanted), settings
    assert sound(table)
