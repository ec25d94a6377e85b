"""Compaction across the two: plans of one run by the other, and logs merged by lakebed read by real Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.datafile.log_file import open_log_file
from lakebed.model.files import LogFile
from lakebed.model.instant import Action
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

from .client import HudiPeer
from .hudi_writer import BUCKETS, HIVE, NO_CLEANING, NO_METADATA, WRITE, upsert_options
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
    sound,
)

pytestmark = pytest.mark.interop

RUN = {**NO_METADATA, f"{WRITE}recordkey.field": "id"}
"""Hudi takes the bucket index from the table's properties, and then misses the record key, which it does not take."""
EASY = {"hoodie.log.compaction.blocks.threshold": "2"}
SCAN_V2 = {"hoodie.optimized.log.blocks.scan.enable": "true", "hoodie.log.record.reader.use.scanV2": "true"}


def written(path: Path, **more: Any) -> lakebed.Table:
    """A version 9 table with a base file and three deltas per group: updates, a late one, deletes."""
    table = lakebed.create(path, SCHEMA, **{**KEYED, "num_buckets": 2, **more})
    table.bulk_insert(rows(*numbered(range(30), 5, int)))
    table.upsert(rows(*numbered(range(10), 6, lambda i: 100 + i)))
    table.upsert(rows(["k01", 7, "p1", 1001], ["k02", 7, "p0", 1002], ["new", 1, "p0", 7]))
    table.delete(keys=[{"id": "k20", "p": "p0"}, {"id": "k21", "p": "p1"}])
    return table


def actions(path: Path) -> list[tuple[Action, bool]]:
    return [(one.action, one.is_completed) for one in MetaClient.open(LocalStorage(path)).timeline]


def test_hudi_runs_a_compaction_that_lakebed_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(path)
    wanted = by_lakebed(table)
    [planned] = table.services.plan_compaction().instants
    table.upsert(rows(["k03", 9, "p1", 333]))
    wanted = replaced(wanted, ["k03", 9, "p1", 333])
    assert_hudi_reads(hudi, path, wanted, "planned")
    hudi.call("run_compaction", path, RUN, op="run")
    assert (Action.COMMIT, True) in actions(path)
    assert not table.services.pending_compactions()
    assert_both_read(hudi, path, table, wanted)
    assert planned.requested_time in {row["base_instant"] for row in table.inspect.file_slices().to_pylist()}
    assert no_damage(table)


def test_lakebed_runs_a_compaction_that_hudi_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = upsert_options("t", "mor", **NO_METADATA, **NO_CLEANING, **BUCKETS)
    hudi.write(path, rows(*numbered(range(20), 1, int)), options, mode="overwrite")
    for step in range(2):
        hudi.write(path, rows(*numbered(range(step, 6), 2 + step, lambda i: 100 + i)), options)
    hudi.call("run_compaction", path, {**NO_METADATA, "hoodie.compact.inline.max.delta.commits": "1"}, op="schedule")
    table = lakebed.open(path, num_buckets=2)
    [planned] = table.services.pending_compactions()
    wanted = hudi.read(path, columns=SCHEMA.names)["rows"]
    [done] = table.services.run(planned)
    assert done.requested_time == planned.requested_time
    assert_both_read(hudi, path, table, wanted)
    assert sound(table)
    hudi.write(path, rows(["k00", 9, "p0", 999]), options)
    assert_both_read(hudi, path, table, replaced(wanted, ["k00", 9, "p0", 999]))


@pytest.mark.parametrize("ordering", ["ts", None])
def test_hudi_reads_logs_that_lakebed_merged(hudi: HudiPeer, tmp_path: Path, ordering: str | None) -> None:
    path = tmp_path / "t"
    table = written(path, ordering=ordering)
    wanted = by_lakebed(table)
    stamps = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno"]
    with_meta_columns = by_lakebed(table, stamps)
    [done] = table.services.compact("log", options=EASY)
    assert done.action is Action.DELTA_COMMIT
    table.upsert(rows(["k04", 9, "p0", 444]))
    wanted = replaced(wanted, ["k04", 9, "p0", 444])
    kept = [row for row in with_meta_columns if row[0] != "k04"]
    for settings in ({}, SCAN_V2):
        assert_hudi_reads(hudi, path, wanted, settings, settings)
        found = hudi.read(path, settings, columns=stamps)["rows"]
        assert in_order([row for row in found if row[0] != "k04"]) == in_order(kept), settings
    table.services.compact("log", options=EASY)
    for settings in ({}, SCAN_V2):
        assert_hudi_reads(hudi, path, wanted, settings, settings)
    more = {**BUCKETS, **HIVE, **NO_METADATA, **NO_CLEANING}
    if ordering is None:
        more |= {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
    given = upsert_options("t", "mor", **more)
    if ordering is None:
        del given[f"{WRITE}precombine.field"]
    hudi.write(path, rows(["k05", 9, "p1", 555]), given)
    wanted = replaced(wanted, ["k05", 9, "p1", 555])
    assert in_order(by_lakebed(table.refresh())) == in_order(wanted)
    hudi.call("run_compaction", path, {**RUN, "hoodie.compact.inline.max.delta.commits": "1"}, op="schedule")
    hudi.call("run_compaction", path, RUN, op="run")
    assert_both_read(hudi, path, table, wanted)
    assert no_damage(table)


@pytest.mark.parametrize("ordering", ["ts", None])
def test_hudi_reads_partial_updates_that_lakebed_folded(hudi: HudiPeer, tmp_path: Path, ordering: str | None) -> None:
    """The folded log is partial too: what it does not bring comes from the base file, now and after a compaction."""
    path = tmp_path / "t"
    schema = SCHEMA.append(pa.field("w", pa.string()))
    table = lakebed.create(path, schema, **{**KEYED, "num_buckets": 2, "ordering": ordering})
    table.bulk_insert(rows(*([*row, f"w{row[0]}"] for row in numbered(range(30), 5, int)), schema=schema))
    for step in range(3):
        source = rows(*numbered(range(step, 10), 6 + step, lambda i, step=step: 100 * step + i))
        merge = table.merge(source, on="t.id = s.id and t.p = s.p")
        merge.when_matched_update(set={"ts": "s.ts", "v": "s.v"}).execute()
    wanted = by_lakebed(table, schema.names)
    [done] = table.services.compact("log", options=EASY)
    client = MetaClient.open(LocalStorage(path))
    merged = [log for log in logs_of(client) if log.requested_time == done.requested_time]
    assert {block.is_partial for log in merged for block in open_log_file(client.storage, log).blocks} == {True}
    for settings in ({}, SCAN_V2):
        assert_hudi_reads(hudi, path, wanted, settings, settings, schema.names)
    hudi.call("run_compaction", path, {**RUN, "hoodie.compact.inline.max.delta.commits": "1"}, op="schedule")
    hudi.call("run_compaction", path, RUN, op="run")
    assert in_order(by_lakebed(table.refresh(), schema.names)) == in_order(wanted)
    assert_hudi_reads(hudi, path, wanted, "compacted", columns=schema.names)
    assert no_damage(table)


def logs_of(client: MetaClient) -> list[LogFile]:
    view = FileSystemView.of(client)
    return [log for part in view.partitions() for one in view.slices(part) for log in one.log_files]


def test_hudi_reads_what_two_instants_of_one_hybrid_plan_left(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(path)
    table.upsert(rows(*([f"z{i:04d}", 1, "p9", i] for i in range(3000))))
    for step in range(2):
        table.upsert(rows(["z0001", 2 + step, "p9", step]))
    wanted = by_lakebed(table)
    options = {**EASY, "lakebed.compaction.hybrid.log.ratio": "1.5"}
    planned = table.services.plan_compaction("hybrid", options=options)
    assert [one.action for one in planned.instants] == [Action.COMPACTION, Action.LOG_COMPACTION]
    assert_hudi_reads(hudi, path, wanted, "planned")
    table.services.run(planned)
    for settings in ({}, SCAN_V2):
        assert_hudi_reads(hudi, path, wanted, settings, settings)
    assert sound(table)
