"""Clustering across the two: plans of one run by the other, and files ordered by lakebed read by real Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.model.instant import Action
from tests.interop.client import HudiPeer
from tests.interop.test_compaction import HIVE, NO_METADATA, actions, no_damage
from tests.interop.test_services import COLUMNS, SCHEMA, by_lakebed, in_order, rows, sound, write_options

pytestmark = pytest.mark.interop

SORT = "hoodie.clustering.plan.strategy.sort.columns"
CURVE = "hoodie.layout.optimize.strategy"
APART = {"hoodie.parquet.small.file.limit": "0"}
SIMPLE = {"hoodie.index.type": "SIMPLE"}
STAMPS = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path"]


def written(path: Path, **more: Any) -> lakebed.Table:
    """A version 9 table of six small file groups, with logs where it has them."""
    settings = {"record_key": "id", "partition_by": "p", "ordering": "ts", "index": "simple", "log_format": "v1"} | more
    table = lakebed.create(path, SCHEMA, **settings, properties=APART)
    for turn in range(3):
        table.bulk_insert(rows(*([f"k{i:02d}", 5, f"p{i % 2}", i * 7 % 31] for i in range(30) if i // 2 % 3 == turn)))
    table.upsert(rows(*([f"k{i:02d}", 6, f"p{i % 2}", 100 + i] for i in range(10)), ["new", 1, "p0", 7]))
    table.delete(keys=[{"id": "k20", "p": "p0"}])
    return table


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({}, {}),
        ({"layout": "default"}, {SORT: "v", CURVE: "linear"}),
        ({"layout": "default", "table_type": "cow"}, {SORT: "v,ts", CURVE: "hilbert"}),
    ],
    ids=["mor-lsm", "mor-linear", "cow-hilbert"],
)
def test_hudi_reads_what_lakebed_clustered(
    hudi: HudiPeer, tmp_path: Path, more: dict[str, Any], options: dict[str, str]
) -> None:
    path = tmp_path / "t"
    table = written(path, **more)
    wanted, stamps = by_lakebed(table, COLUMNS), by_lakebed(table, STAMPS)
    [planned] = table.services.plan_clustering(options).instants
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted), "planned"
    table.services.run(planned)
    assert sound(table)
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted)
    assert in_order(hudi.read(path, columns=STAMPS)["rows"]) == in_order(stamps)
    kind = "COPY_ON_WRITE" if more.get("table_type") == "cow" else "MERGE_ON_READ"
    given = write_options("t", kind, **NO_METADATA, **HIVE, **SIMPLE)
    hudi.write(path, rows(["k03", 9, "p1", 333], ["late", 1, "p0", 1]), given)
    now = [row for row in wanted if row[0] != "k03"] + [["k03", 9, "p1", 333], ["late", 1, "p0", 1]]
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(now)
    assert in_order(by_lakebed(table.refresh(), COLUMNS)) == in_order(now)
    table.services.cluster(options)
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(now)


def test_hudi_runs_a_clustering_that_lakebed_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(path, layout="default")
    wanted = by_lakebed(table, COLUMNS)
    [planned] = table.services.plan_clustering({SORT: "v"}).instants
    hudi.call("run_clustering", path, {**NO_METADATA, **SIMPLE}, op="execute")
    assert (Action.REPLACE_COMMIT, True) in actions(path)
    assert not table.services.pending_clusterings()
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted)
    assert in_order(by_lakebed(table.refresh(), COLUMNS)) == in_order(wanted)
    begins = {row["base_instant"] for row in table.inspect.file_slices().to_pylist()}
    assert begins == {planned.requested_time}
    assert no_damage(table)


def test_lakebed_runs_a_clustering_that_hudi_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = write_options("t", "MERGE_ON_READ", **NO_METADATA, **SIMPLE, **APART)
    for step in range(3):
        more = options | {"hoodie.datasource.write.operation": "insert"}
        mode = "append" if step else "overwrite"
        hudi.write(path, rows(*([f"k{step}{i}", 1, f"p{i % 2}", i * 7 % 11] for i in range(10))), more, mode=mode)
    hudi.call("run_clustering", path, NO_METADATA, op="schedule", order="v")
    wanted = hudi.read(path, columns=COLUMNS)["rows"]
    table = lakebed.open(path)
    [planned] = table.services.pending_clusterings()
    [done] = table.services.run(planned)
    assert done.requested_time == planned.requested_time
    assert in_order(by_lakebed(table, COLUMNS)) == in_order(wanted)
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == in_order(wanted)
    assert len(table.inspect.file_slices().to_pylist()) == 2
    assert sound(table)
    hudi.write(path, rows(["k00", 9, "p0", 999]), options)
    now = [row for row in wanted if row[0] != "k00"] + [["k00", 9, "p0", 999]]
    assert in_order(by_lakebed(table.refresh(), COLUMNS)) == in_order(now)
