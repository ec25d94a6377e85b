"""Clustering across the two: plans of one run by the other, and files ordered by lakebed read by real Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.model.instant import Action

from .client import HudiPeer
from .hudi_writer import HIVE, INDEX_OPTIONS, NO_CLEANING, NO_METADATA, WRITE, upsert_options
from .plain_rows import (
    KEYED,
    SCHEMA,
    assert_both_read,
    assert_hudi_reads,
    by_lakebed,
    no_damage,
    numbered,
    replaced,
    rows,
    sound,
)
from .test_compaction import actions

pytestmark = pytest.mark.interop

SORT = "hoodie.clustering.plan.strategy.sort.columns"
CURVE = "hoodie.layout.optimize.strategy"
SIMPLE = INDEX_OPTIONS["simple"]
APART = {"hoodie.parquet.small.file.limit": "0"}
STAMPS = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path"]


def written(path: Path, **more: Any) -> lakebed.Table:
    """A version 9 table of six small file groups, with logs where it has them."""
    table = lakebed.create(path, SCHEMA, **{**KEYED, "index": "simple", **more}, properties=APART)
    for turn in range(3):
        table.bulk_insert(rows(*numbered((i for i in range(30) if i // 2 % 3 == turn), 5, lambda i: i * 7 % 31)))
    table.upsert(rows(*numbered(range(10), 6, lambda i: 100 + i), ["new", 1, "p0", 7]))
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
    wanted, stamps = by_lakebed(table), by_lakebed(table, STAMPS)
    [planned] = table.services.plan_clustering(options).instants
    assert_hudi_reads(hudi, path, wanted, "planned")
    table.services.run(planned)
    assert sound(table)
    assert_hudi_reads(hudi, path, wanted)
    assert_hudi_reads(hudi, path, stamps, columns=STAMPS)
    given = upsert_options("t", table.config.table_type, **NO_METADATA, **NO_CLEANING, **HIVE, **SIMPLE)
    newer = ["k03", 9, "p1", 333], ["late", 1, "p0", 1]
    hudi.write(path, rows(*newer), given)
    now = replaced(wanted, *newer)
    assert_both_read(hudi, path, table, now)
    table.services.cluster(options)
    assert_hudi_reads(hudi, path, now)


def test_hudi_runs_a_clustering_that_lakebed_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(path, layout="default")
    wanted = by_lakebed(table)
    [planned] = table.services.plan_clustering({SORT: "v"}).instants
    hudi.call("run_clustering", path, {**NO_METADATA, **SIMPLE}, op="execute")
    assert (Action.REPLACE_COMMIT, True) in actions(path)
    assert not table.services.pending_clusterings()
    assert_both_read(hudi, path, table, wanted)
    begins = {row["base_instant"] for row in table.inspect.file_slices().to_pylist()}
    assert begins == {planned.requested_time}
    assert no_damage(table)


def test_lakebed_runs_a_clustering_that_hudi_planned(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = upsert_options("t", "mor", **NO_METADATA, **NO_CLEANING, **SIMPLE, **APART)
    for step in range(3):
        more = options | {f"{WRITE}operation": "insert"}
        mode = "append" if step else "overwrite"
        hudi.write(path, rows(*numbered(range(10), 1, lambda i: i * 7 % 11, f"k{step}{{}}")), more, mode=mode)
    hudi.call("run_clustering", path, NO_METADATA, op="schedule", order="v")
    wanted = hudi.read(path, columns=SCHEMA.names)["rows"]
    table = lakebed.open(path)
    [planned] = table.services.pending_clusterings()
    [done] = table.services.run(planned)
    assert done.requested_time == planned.requested_time
    assert_both_read(hudi, path, table, wanted)
    assert len(table.inspect.file_slices().to_pylist()) == 2
    assert sound(table)
    hudi.write(path, rows(["k00", 9, "p0", 999]), options)
    assert_both_read(hudi, path, table, replaced(wanted, ["k00", 9, "p0", 999]))
