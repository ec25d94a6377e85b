"""Clustering: fewer files, rows in order, and every answer as before."""

from __future__ import annotations

import itertools
import json
import pathlib
import random
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app
from lakebed.config.clustering_options import ClusteringOptions
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.model.actions import CommitMetadata, RequestedReplace
from lakebed.model.files import FileSlice
from lakebed.model.finding import Severity
from lakebed.model.instant import Action
from lakebed.services.clustering_strategy import chosen_partitions, pack
from lakebed.services.drop_metadata import remove_metadata
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.txn.txn_context import TxnContext
from tests.conftest import expected
from tests.unit.services.clustering_cases import APART, KINDS, filled, new
from tests.unit.services.compaction_cases import (
    EASY,
    KEPT,
    MARKED,
    answers,
    client_of,
    instants_of,
    put,
    rows_of,
    slices,
    sound,
)
from tests.unit.write.tables import SCHEMA, make, row, table

SORT = "hoodie.clustering.plan.strategy.sort.columns"
TARGET = "hoodie.clustering.plan.strategy.target.file.max.bytes"
GROUP = "hoodie.clustering.plan.strategy.max.bytes.per.group"
CURVE = "hoodie.layout.optimize.strategy"


def column(target: Table, file_slice: FileSlice, name: str) -> list[Any]:
    assert file_slice.base_file is not None
    file = open_storage(target.url).open_input(file_slice.base_file.path)
    found: list[Any] = pq.ParquetFile(file).read([name]).column(name).to_pylist()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_changes(kind: str) -> None:
    target = filled(kind)
    known = instants_of(target)
    before = answers(target, known)
    assert len(slices(target)) >= 6
    [done] = target.services.cluster()
    assert done.action is Action.REPLACE_COMMIT
    assert answers(target, known) == before
    found = slices(target)
    assert len(found) == 2, "a file group per partition"
    assert not any(file_slice.log_files for file_slice in found)
    sound(target)
    assert target.services.cluster() == (), "nothing is left to do"
    put(target, row("k000", 9, "a", v=77), row("fresh", 9, "b"))
    assert len(target.scan().filter("id in ('k000', 'fresh') and ts = 9").to_arrow()) == 2
    before = rows_of(target.scan())
    assert target.services.cluster()
    assert rows_of(target.scan()) == before


@pytest.mark.parametrize("kind", ["v10-lsm", "v9-cow-lsm"])
def test_files_of_the_lsm_layout_have_key_ranges_of_their_own(kind: str) -> None:
    target = filled(kind)
    before = rows_of(target.scan())
    target.services.cluster({TARGET: "1", "lakebed.batch.rows": "16", "lakebed.parquet.row.group.rows": "16"})
    assert rows_of(target.scan()) == before
    for partition in ("p=a", "p=b"):
        found = [column(target, one, "_hoodie_record_key") for one in slices(target) if partition in str(one)]
        assert all(keys == sorted(set(keys)) for keys in found)
        ranges = sorted((keys[0], keys[-1]) for keys in found)
        assert all(high < low for (_, high), (low, _) in itertools.pairwise(ranges))
    sound(target)


@pytest.mark.parametrize(("kind", "curve"), [("v10-default", "linear"), ("v9-cow", "z-order"), ("v9-cow", "hilbert")])
def test_orders_of_the_default_layout(kind: str, curve: str) -> None:
    target = filled(kind)
    before = rows_of(target.scan())
    target.services.cluster({SORT: "v,txt", CURVE: curve})
    assert rows_of(target.scan()) == before
    sound(target)
    for file_slice in slices(target):
        values = column(target, file_slice, "v")
        assert (values == sorted(values)) == (curve == "linear")
        assert len(values) > 40
    body = client_of(target).body(client_of(target).timeline.completed.of_actions(Action.REPLACE_COMMIT).instants[-1])
    assert isinstance(body, CommitMetadata)
    assert body.operation == "CLUSTER"
    assert target.services.cluster({SORT: "v,txt", CURVE: curve}) == ()
    assert target.services.cluster({SORT: "txt"}) != (), "another order is worth a rewrite"


def test_the_plan_is_what_hudi_saves() -> None:
    target = filled("v9-default")
    planned = target.services.plan_clustering({SORT: "v"})
    [instant] = planned.instants
    client = client_of(target)
    assert f"{instant.requested_time}.clustering.requested" in client.active.files
    body = client.plan(instant)
    assert isinstance(body, RequestedReplace)
    assert body.operation == "CLUSTER"
    plan = body.clustering
    assert plan is not None
    assert plan.preserve_metadata
    assert plan.strategy_params[SORT] == "v"
    assert plan.strategy is not None
    assert plan.strategy.endswith("SparkSortAndSizeExecutionStrategy")
    assert {file_slice.partition_path for group in plan.groups for file_slice in group.slices} == {"p=a", "p=b"}
    assert all(len({file_slice.partition_path for file_slice in group.slices}) == 1 for group in plan.groups)
    path = plan.groups[0].slices[0].base_file
    assert path is not None
    assert path.startswith(target.url)
    before = rows_of(target.scan())
    assert len(target.services.run(instant)) == 1
    assert rows_of(target.refresh().scan()) == before
    with pytest.raises(InvalidRequest, match="nothing is planned"):
        target.services.run(instant.requested_time)


def test_a_plan_of_hudi_is_run(golden_copy: Callable[[str], pathlib.Path]) -> None:
    target = lakebed.open(golden_copy("mor_pending_clustering_v9"))
    remove_metadata(client_of(target), TxnContext.of(open_storage(target.url)))
    target.refresh()
    wanted = rows_of(target.scan())
    assert len(wanted) == expected("mor_pending_clustering_v9")["snapshot"]["count"]
    [done] = target.services.run(target.services.pending_clusterings())
    assert done.action is Action.REPLACE_COMMIT
    assert rows_of(target.refresh().scan()) == wanted
    assert not client_of(target).pending_clusterings()


def test_a_group_that_changed_since_the_plan_is_left_as_it_is() -> None:
    target = filled("v10-default")
    planned = target.services.plan_clustering()
    assert len(planned.groups) == 2
    with pytest.raises(ConflictError, match="clustered"):
        put(target, row("k000", 9, "a", v=77))
    target.services.rollback(planned.instants[0])
    other = lakebed.open(target.url)
    put(other, row("k000", 9, "a", v=77))
    # a write that began before the plan and completes after it does not see the plan
    storage = open_storage(target.url)
    again = other.services.plan_clustering().instants[0]
    path = client_of(other).active.path(again)
    data = storage.read(path)
    storage.delete([path])
    put(other.refresh(), row("k001", 9, "b", v=88))
    storage.put(path, data)
    other.refresh()
    before = rows_of(other.scan())
    [done] = other.services.run(again)
    assert rows_of(other.refresh().scan()) == before
    body = client_of(other).body(done)
    assert isinstance(body, CommitMetadata)
    assert set(body.replaced_file_ids) == {"p=a"}
    sound(other)


def test_new_keys_keep_away_from_what_is_being_clustered() -> None:
    target = make(index="simple", properties=KEPT)
    target.bulk_insert(table(row("a"), row("b")))
    target.bulk_insert(table(row("c"), row("d")), options={"hoodie.parquet.small.file.limit": "0"})
    planned = target.services.plan_clustering()
    assert planned
    target.upsert(table(row("e"), row("f")))
    assert len(slices(target)) == 3
    target.services.run(planned)
    assert sorted(target.scan().to_arrow().column("id").to_pylist()) == list("abcdef")
    assert len(slices(target)) == 2


def test_slices_of_other_plans_stay() -> None:
    target = filled("v10-lsm")
    target.services.plan_compaction()
    found = target.services.explain_clustering()
    taken = {file_slice.file_group for group in found.groups for file_slice in group}
    with_logs = {file_slice.file_group for file_slice in slices(target) if file_slice.log_files}
    assert with_logs
    assert not taken & with_logs
    assert "the compaction" in found.explain()
    before = rows_of(target.scan())
    target.services.cluster()
    target.services.compact()
    assert rows_of(target.scan()) == before
    sound(target)


def test_a_compaction_leaves_what_is_being_clustered() -> None:
    target = filled("v10-lsm")
    planned = target.services.plan_clustering()
    assert planned
    assert not target.services.plan_compaction()
    assert "being clustered" in target.services.explain_compaction().explain()
    assert not target.services.plan_clustering(), "nor does another clustering take it"


def test_a_key_in_two_file_groups_stays_there_twice() -> None:
    target = new("v10-lsm", partition_by=None)
    for turn in range(3):
        rows = [{**row(f"k{i}", turn, v=turn), "_hoodie_is_deleted": False} for i in range(turn, 6)]
        target.bulk_insert(table(*rows, schema=MARKED))
    before = rows_of(target.scan())
    assert len(before) == 6 + 5 + 4
    target.services.cluster()
    assert rows_of(target.scan()) == before
    assert sorted(len(column(target, file_slice, "id")) for file_slice in slices(target)) == [4, 5, 6]
    assert {one.invariant for one in target.check() if one.severity is Severity.ERROR} == {"a key is in one file group"}


def test_memory_is_bounded_by_spilling() -> None:
    target = filled("v10-default")
    before = rows_of(target.scan())
    target.services.cluster({SORT: "txt,v"}, memory="1MB")
    assert rows_of(target.scan()) == before
    for file_slice in slices(target):
        pairs = list(zip(column(target, file_slice, "txt"), column(target, file_slice, "v"), strict=True))
        assert pairs == sorted(pairs, key=lambda pair: (pair[0] is not None, pair[0] or "", pair[1]))


@pytest.mark.parametrize("kind", ["v10-lsm", "v9-default"])
def test_any_mix_of_writes_and_services(kind: str) -> None:
    chance = random.Random(kind)
    target = new(kind, partition_by=None, ordering=None)
    model: dict[str, tuple[Any, ...]] = {}
    known: dict[str, list[str]] = {}
    for step in range(16):
        what = chance.choice(["put", "put", "delete", "cluster", "compact", "log"])
        if what == "put":
            some = [row(f"k{n}", step, v=step) for n in chance.sample(range(20), 6)]
            put(target, *some)
            model |= {one["id"]: (one["id"], step) for one in some}
        elif what == "delete" and model:
            gone = chance.sample(sorted(model), min(3, len(model)))
            target.delete(keys=gone)
            model = {key: one for key, one in model.items() if key not in gone}
        elif what == "cluster":
            target.services.cluster({} if kind == "v10-lsm" else {SORT: chance.choice(["v", "id"])})
        elif what in ("compact", "log"):
            target.services.compact("full" if what == "compact" else "log", EASY)
        assert sorted(zip(*target.scan().select("id", "v").to_arrow().to_pydict().values(), strict=True)) == sorted(
            model.values()
        ), (step, what)
        known |= {instants_of(target)[-1]: rows_of(target.scan())} if instants_of(target) else {}
    for instant, rows in known.items():
        assert rows_of(target.scan(as_of=instant)) == rows, instant
    sound(target)


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        ({"index": "bucket"}, {}, "the bucket of a row follows from its key"),
        ({"index": "simple"}, {SORT: "v"}, "sorted by record key, not by v"),
        ({"index": "simple"}, {SORT: "id,v", CURVE: "hilbert"}, "hilbert of id, v"),
        ({"index": "simple", "layout": "default"}, {SORT: "nope"}, "no column 'nope'"),
        ({"index": "simple", "layout": "default"}, {CURVE: "z-order"}, "needs columns"),
    ],
)
def test_refused_with_the_reason(settings: dict[str, Any], options: dict[str, str], reason: str) -> None:
    target = make(**settings)
    target.bulk_insert(table(row("a"), row("b")))
    for call in (target.services.cluster, target.services.plan_clustering, target.services.explain_clustering):
        with pytest.raises(InvalidRequest, match=reason):
            call(options)
    assert not client_of(target).timeline.pending.instants


def test_key_order_by_name_is_fine_in_the_lsm_layout() -> None:
    target = filled("v10-lsm")
    assert target.services.cluster({SORT: "id"})


# ---------------------------------------------------------------------- what a plan takes
def test_partitions_by_age_and_name() -> None:
    days = [f"2026-11-{day:02d}" for day in range(1, 11)]

    def chosen(**more: Any) -> list[str]:
        return chosen_partitions(days, ClusteringOptions(**more))

    assert chosen() == days
    recent = ClusteringOptions.from_properties(
        {
            "hoodie.clustering.plan.partition.filter.mode": "RECENT_DAYS",
            "hoodie.clustering.plan.strategy.daybased.lookback.partitions": "3",
            "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions": "1",
        }
    )
    assert chosen_partitions(days, recent) == ["2026-11-09", "2026-11-08", "2026-11-07"]
    named = ClusteringOptions.from_properties(
        {
            "hoodie.clustering.plan.partition.filter.mode": "SELECTED_PARTITIONS",
            "hoodie.clustering.plan.strategy.cluster.begin.partition": "2026-11-03",
            "hoodie.clustering.plan.strategy.cluster.end.partition": "2026-11-05",
        }
    )
    assert chosen_partitions(days, named) == days[2:5]
    assert chosen(partition_pattern=".*-1.") == ["2026-11-10"]
    assert chosen(partitions=("2026-11-02",)) == ["2026-11-02"]


def test_sizes_and_numbers_of_groups() -> None:
    target = filled("v9-cow")
    found = slices(target)
    each = max(file_slice.size for file_slice in found)
    assert [len(group) for group in pack(found, 2 * each)] == [2] * (len(found) // 2)
    assert not target.services.explain_clustering({"hoodie.clustering.plan.strategy.small.file.limit": "1"}).groups
    one = target.services.explain_clustering({"hoodie.clustering.plan.strategy.max.num.groups": "1"})
    assert len(one.groups) == 1
    assert "this plan is full" in one.explain()
    pairs = target.services.explain_clustering({GROUP: str(2 * each)})
    assert len(pairs.groups) > 2
    assert "group 0, with" in pairs.explain()


def test_neighbouring_keys_go_together_in_the_lsm_layout() -> None:
    target = make(index="simple", partition_by=None, properties=APART)
    for turn in (3, 0, 2, 1):
        target.bulk_insert(table(*(row(f"k{turn}{i}") for i in range(5))))
    each = max(file_slice.size for file_slice in slices(target))
    target.services.cluster({GROUP: str(2 * each + 10)})
    found = sorted(column(target, file_slice, "id") for file_slice in slices(target))
    assert [(ids[0], ids[-1]) for ids in found] == [("k00", "k14"), ("k20", "k34")]


def test_due_after_so_many_writes() -> None:
    target = filled("v10-lsm")
    assert target.services.cluster(force=False)
    put(target, row("k000", 9, "a"))
    assert target.services.cluster(force=False) == ()
    assert target.services.cluster({"hoodie.clustering.inline.max.commits": "1"}, force=False)


def test_after_a_write_where_the_options_say_so() -> None:
    after = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "3"}
    target = make(index="simple", partition_by=None, properties=APART | after)
    for turn in range(3):
        target.bulk_insert(table(row(f"k{turn}")))
    assert len(slices(target)) == 1
    planning = {"hoodie.clustering.schedule.inline": "true", "hoodie.clustering.inline.max.commits": "2"}
    target = make(index="simple", partition_by=None, properties=APART | planning)
    for turn in range(2):
        target.bulk_insert(table(row(f"k{turn}")))
    assert len(target.services.pending_clusterings()) == 1
    bucket = make(properties=APART | after | {"hoodie.clustering.inline.max.commits": "1"})
    with pytest.warns(UserWarning, match="but not the clustering after it: .*bucket"):
        bucket.upsert(table(row("k")))
    assert len(bucket.scan().to_arrow()) == 1


def test_from_the_shell(tmp_path: pathlib.Path) -> None:
    target = lakebed.create(tmp_path / "t", SCHEMA, record_key="id", index="simple", properties=APART)
    for turn in range(3):
        target.bulk_insert(table(row(f"k{turn}")))
    shell, path = CliRunner(), str(tmp_path / "t")
    told = shell.invoke(app, ["cluster", path, "--dry-run"])
    assert told.exit_code == 0
    assert told.output.count("group 0, with 2 others") == 3
    assert len(slices(target)) == 3
    assert "planned as" in shell.invoke(app, ["cluster", path, "--plan-only"]).output
    done = shell.invoke(app, ["services", path, "--once", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["completed"]
    assert len(slices(target)) == 1
    assert "nothing to cluster" in shell.invoke(app, ["cluster", path]).output
    refused = shell.invoke(app, ["cluster", path, "--sort", "v"])
    assert isinstance(refused.exception, InvalidRequest)
    assert isinstance(shell.invoke(app, ["services", path]).exception, InvalidRequest)
