"""Buckets under consistent hashing that one splits and merges, and the other goes on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.format.names import HASHING_META_DIR

from .client import HudiPeer
from .hudi_writer import BUCKETS, HIVE, NO_CLEANING, NO_METADATA, WRITE, upsert_options
from .plain_rows import KEYED, SCHEMA, assert_both_read, no_damage, numbered, rows, sound

pytestmark = pytest.mark.interop

_CLUSTERING = "org.apache.hudi.client.clustering"
ENGINE = {**BUCKETS, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
RESIZING = {
    **ENGINE,
    **NO_METADATA,
    **NO_CLEANING,
    f"{WRITE}recordkey.field": "id",
    "hoodie.bucket.index.min.num.buckets": "1",
    "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.clustering.plan.strategy.class": f"{_CLUSTERING}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
    "hoodie.clustering.execution.strategy.class": (
        f"{_CLUSTERING}.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    ),
    "hoodie.clustering.updates.strategy": f"{_CLUSTERING}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy",
}
SPLIT = {
    "hoodie.parquet.max.file.size": "1000",
    "hoodie.bucket.index.split.threshold": "1.0",
    "hoodie.bucket.index.merge.threshold": "0.0001",
    "hoodie.bucket.index.max.num.buckets": "8",
}
MERGE = {"hoodie.bucket.index.min.num.buckets": "1"}
INLINE = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}


class Both:
    """A table, the rows it must hold, and both programs that look at them."""

    def __init__(self, hudi: HudiPeer, path: Path, **more: str) -> None:
        self.hudi, self.path = hudi, path
        self.options = upsert_options(path.name, "mor", **RESIZING, **more)
        self.model: dict[str, list[Any]] = {}

    @property
    def table(self) -> lakebed.Table:
        return lakebed.open(self.path, options=ENGINE)

    def put(self, by: str, *given: list[Any], **more: str) -> None:
        if by == "hudi":
            mode = "append" if self.path.exists() else "overwrite"
            self.hudi.write(self.path, rows(*given), {**self.options, **more}, mode=mode)
        else:
            self.table.upsert(rows(*given))
        self.model |= {one[0]: one for one in given}
        self.check(by)

    def check(self, what: str, buckets: int | None = None) -> None:
        assert_both_read(self.hudi, self.path, self.table, list(self.model.values()), what)
        assert no_damage(self.table), what
        if buckets is not None:
            assert [len(ring["nodes"]) for ring in self.rings()] == [buckets, buckets], what

    def rings(self) -> list[dict[str, Any]]:
        """The newest ring of each partition."""
        folders = sorted((self.path / HASHING_META_DIR).iterdir())
        return [json.loads(max(folder.glob("*.hashing_meta")).read_text()) for folder in folders]


def some(step: int, *numbers: int) -> list[list[Any]]:
    return numbered(numbers, step, lambda i: 1000 * step + i, "k{:03d}")


@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_hudi_goes_on_with_buckets_that_lakebed_resized(hudi: HudiPeer, tmp_path: Path, layout: str) -> None:
    both = Both(hudi, tmp_path / "t", **HIVE)
    lakebed.create(both.path, SCHEMA, **KEYED, layout=layout, index="consistent_bucket", num_buckets=2)
    both.put("lakebed", *some(1, *range(100)))
    both.put("lakebed", *some(2, *range(0, 100, 9)))
    assert both.table.services.cluster(SPLIT)
    assert sound(both.table)
    both.check("split by lakebed", 4)
    both.put("hudi", *some(3, 1, 50, 51, 200))
    both.put("lakebed", *some(4, 1, 52, 53, 201))
    assert both.table.services.cluster(MERGE)
    both.check("merged by lakebed", 1)
    both.put("hudi", *some(5, 1, 60, 61, 202))
    both.put("hudi", *some(6, 1, 2), **SPLIT, **INLINE)
    both.check("split by Hudi", 2)
    both.put("lakebed", *some(7, 1, 70, 71, 203))
    [planned] = both.table.services.plan_clustering(MERGE).instants
    hudi.call("run_clustering", both.path, RESIZING, op="execute")
    assert not both.table.services.pending_clusterings()
    assert {ring["instant"] for ring in both.rings()} == {planned.requested_time}
    both.check("merged by Hudi, as lakebed planned", 1)
    both.table.services.plan_clustering(SPLIT)
    hudi.call("run_clustering", both.path, RESIZING, op="execute")
    both.check("split by Hudi, as lakebed planned", 2)
    both.put("lakebed", *some(8, *range(0, 100, 3)))
    both.put("hudi", *some(9, *range(0, 100, 4)))


@pytest.mark.parametrize("version", ["8", "9"])
def test_lakebed_goes_on_with_buckets_that_hudi_resized(hudi: HudiPeer, tmp_path: Path, version: str) -> None:
    both = Both(hudi, tmp_path / "t", **{"hoodie.write.table.version": version})
    both.put("hudi", *some(1, *range(100)))
    both.put("hudi", *some(2, *range(0, 100, 7)), **SPLIT, **INLINE)
    both.check("split by Hudi", 4)
    both.put("lakebed", *some(3, 1, 50, 51, 200))
    both.put("hudi", *some(4, 1, 52, 53, 201), **INLINE)
    both.check("merged by Hudi", 1)
    both.put("lakebed", *some(5, *range(0, 100, 3)))
    assert both.table.services.cluster(SPLIT)
    both.check("split by lakebed", 2)
    assert lakebed.open(both.path).config.version == int(version)
    both.put("hudi", *some(6, *range(0, 100, 4)))


@pytest.mark.parametrize("written", [False, True], ids=["alone", "with-writes-meanwhile"])
def test_lakebed_runs_a_resize_that_hudi_planned(hudi: HudiPeer, tmp_path: Path, written: bool) -> None:
    """Hudi writes into old and new buckets while a resize is pending, in logs named after the resize."""
    both = Both(hudi, tmp_path / "t")
    both.put("hudi", *some(1, *range(100)))
    hudi.call("run_clustering", both.path, {**RESIZING, **SPLIT}, op="schedule")
    [planned] = both.table.services.pending_clusterings()
    if written:
        both.put("hudi", *some(2, 1, 2, 3, 200))
        both.put("hudi", *some(3, 2, 3, 4, 201))
    with pytest.raises(lakebed.ConflictError, match=planned.requested_time):
        both.put("lakebed", *some(4, 1))
    both.table.services.run(planned)
    both.check("split by lakebed", 4)
    logs = list(both.path.rglob(f".*_{planned.requested_time}.log.*"))
    assert bool([log for log in logs if log.suffix != ".crc"]) is written
    both.put("hudi", *some(5, *range(0, 100, 3)))
    both.put("lakebed", *some(6, *range(0, 100, 4)))
    both.table.services.compact()
    both.check("compacted")


def test_hudi_runs_its_resize_with_writes_meanwhile_and_lakebed_reads_them(hudi: HudiPeer, tmp_path: Path) -> None:
    both = Both(hudi, tmp_path / "t")
    both.put("hudi", *some(1, *range(100)))
    hudi.call("run_clustering", both.path, {**RESIZING, **SPLIT}, op="schedule")
    both.put("hudi", *some(2, 1, 2, 3, 200))
    hudi.call("run_clustering", both.path, {**RESIZING, **SPLIT}, op="execute")
    both.check("split by Hudi", 4)
    both.put("lakebed", *some(3, *range(0, 100, 4)))
