"""Plans know each other: who reserved which file, what planners leave to cleans, what cleans leave to plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.format.names import parse_base_file, parse_log_file
from lakebed.model.actions import CleanMetadata, CompactionPlan
from lakebed.model.files import FileSlice
from lakebed.model.instant import Action, Instant
from lakebed.services.compaction_plan import full_plan
from lakebed.services.reserved import Reserved
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.transaction import schedule
from lakebed.txn.txn_context import TxnContext
from tests.unit.services.compaction_cases import EASY, KEPT, client_of, new, put, slices, sound
from tests.unit.write.tables import held, make, row, table

BOTH = pytest.mark.parametrize("kind", ["v10-by-commit-time", "v9-by-commit-time"])
ONE = {"hoodie.clean.commits.retained": "1"}
GOES = {"v10-by-commit-time": 3, "v9-by-commit-time": 2}
"""How many of three covered logs a clean takes: where Hudi reads, that at whose place the merged log stands is left."""


def merged(kind: str = "v10-by-commit-time", deltas: int = 3, **more: object) -> Table:
    """A base file, deltas that a log compaction covers, and two more."""
    target = new(kind, **{"num_buckets": 1, **more})
    put(target, *(row(f"k{i}", v=0) for i in range(8)))
    for step in range(deltas):
        put(target, row("hot", v=step), row(f"k{step}", v=step))
    assert target.services.compact("log", options=EASY)
    put(target, row("hot", v=10), row("k0", v=10))
    put(target, row("hot", v=11), row("k1", v=11))
    return target


ROWS = {**{f"k{i}": 0 for i in range(8)}, "k0": 10, "k1": 11, "k2": 2, "hot": 11}


def found(target: Table) -> dict[str, int]:
    return {one["id"]: one["v"] for one in held(target.refresh(), "id", "v")}


def planned_clean(target: Table) -> Instant:
    planned = target.services.plan_clean(ONE)
    assert planned is not None
    return planned


def names_to_clean(target: Table) -> set[str]:
    return {name for _, name in Reserved.of(client_of(target)).leaving}


def pending(target: Table) -> list[Action]:
    return [instant.action for instant in client_of(target).timeline.pending]


def plan_of_all(target: Table) -> Instant:
    """A compaction as a program plans it that does not ask what a clean takes: it names every file."""

    def plan(fresh: MetaClient, _: str) -> CompactionPlan:
        whole = full_plan(_without_cleans(fresh), lambda _: True)
        assert whole is not None
        return whole

    client = client_of(target)
    planned = schedule(client, Action.COMPACTION, plan, TxnContext.of(client.storage))
    assert planned is not None
    return planned


def _without_cleans(client: MetaClient) -> MetaClient:
    timeline = client.timeline.where(lambda instant: instant.action is not Action.CLEAN)
    return replace(client, active=replace(client.active, timeline=timeline), _bodies={})


def report(target: Table, clean: Instant) -> CleanMetadata:
    body = client_of(target).body(clean)
    assert isinstance(body, CleanMetadata)
    return body


def covered(target: Table) -> list[str]:
    """Paths of the logs that the log compaction covers."""
    client = client_of(target)
    names = {name for _, plan in client.log_compactions() for one in plan.operations for name in one.log_files}
    return [file.path for file_slice in slices(target) for file in file_slice.files if file.name in names]


# ---------------------------------------------------------------------- a plan after the plan of a clean
@BOTH
def test_blocked_for_ever(kind: str) -> None:
    """A clean is planned, then a compaction, then the clean is run: the compaction can still be."""
    target = merged(kind)
    clean = planned_clean(target)
    planned = target.services.plan_compaction("full")
    assert planned
    [done] = target.services.run(clean)
    assert report(target, done).total_files_deleted == GOES[kind]
    assert found(target) == ROWS
    assert target.services.compact()
    assert pending(target) == []
    assert found(target) == ROWS
    sound(target)


@BOTH
def test_a_compaction_is_planned_without_what_a_clean_takes(kind: str) -> None:
    target = merged(kind)
    clean = planned_clean(target)
    leaving = names_to_clean(target)
    assert len(leaving) == GOES[kind]
    [compaction] = target.services.plan_compaction("full").instants
    plan = client_of(target).plan(compaction)
    assert isinstance(plan, CompactionPlan)
    [operation] = plan.operations
    assert len(operation.log_files) == 6 - GOES[kind]
    assert not leaving.intersection(operation.log_files)
    target.services.run(compaction)  # before the clean: the files are all there
    assert found(target) == ROWS
    target.services.run(clean)
    assert found(target) == ROWS
    sound(target)


def test_a_log_compaction_is_planned_over_logs_that_a_clean_leaves() -> None:
    target = merged()
    clean = planned_clean(target)
    logs = target.services.plan_compaction("log", options=EASY)
    assert [len(one.logs) for one in logs.decisions] == [3]
    target.services.run(clean)
    target.services.run(logs)
    assert found(target) == ROWS
    target.services.compact()
    assert found(target) == ROWS


def test_a_slice_of_which_a_clean_takes_more_waits() -> None:
    """No clean does so; a table that was set back by another program may have one."""
    target = merged()
    client = client_of(target)
    [file_slice] = slices(target)
    live = file_slice.log_files[-1]
    reserved = Reserved({}, {}, {("", live.name): planned_clean(target)})
    kept, why = reserved.plannable(client, file_slice)
    assert kept == file_slice
    assert why is not None and "deletes files of it" in why


def test_a_clustering_is_planned_without_what_a_clean_takes() -> None:
    for clean_first in (True, False):
        target = make(
            partition_by=None, index="simple", num_buckets=None, ordering=None, properties=KEPT, log_format="v2"
        )
        target.upsert(table(*(row(f"k{i}", v=0) for i in range(8))))
        for step in range(3):
            target.upsert(table(row("k0", v=step), row("k1", v=step)))
        assert target.services.compact("log", options=EASY)
        target.upsert(table(row("k1", v=7)))
        target.upsert(table(row("k2", v=8)))
        rows = found(target)
        clean = planned_clean(target)
        assert len(names_to_clean(target)) == 3
        planned = target.services.plan_clustering(
            {"hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true"}
        )
        assert planned
        done = [
            target.services.run(one)[0]
            for one in ((clean, *planned.instants) if clean_first else (*planned.instants, clean))
        ]
        [replaced] = [one for one in done if one.action is Action.REPLACE_COMMIT]
        commit = client_of(target).commit(replaced.requested_time)
        assert commit is not None and commit.replaced_file_ids, "logs that say nothing may come and go"
        assert found(target) == rows
        sound(target)


# ---------------------------------------------------------------------- a clean that is run after a plan
@BOTH
def test_a_clean_leaves_what_a_plan_holds(kind: str) -> None:
    """The plan is of a program that does not look at cleans; what it names stays, and the report says so."""
    target = merged(kind)
    clean = planned_clean(target)
    compaction = plan_of_all(target)
    [done] = target.services.run(clean)
    [partition] = report(target, done).partitions.values()
    assert partition.deleted == partition.patterns == ()
    assert len(partition.failed) == GOES[kind]
    assert found(target) == ROWS
    target.services.run(compaction)
    assert found(target) == ROWS
    assert target.services.clean(ONE), "the next clean takes them with their slice"
    assert found(target) == ROWS
    sound(target)


def test_a_file_is_planned_for_one_clean_only() -> None:
    target = merged()
    planned_clean(target)
    assert target.services.plan_clean(ONE) is None


def test_a_clean_leaves_what_counts_again() -> None:
    """The table was set back between plan and run: the files of the plan are the newest state once more."""
    target = merged()
    target.services.compact()
    compacted = client_of(target).completed_writes()[-1]
    clean = target.services.plan_clean(
        {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}
    )
    assert clean is not None
    client = client_of(target)
    client.storage.delete([client.active.path(compacted)])  # as Hudi unpublishes a commit that it rolls back
    target.services.rollback(compacted.requested_time)
    assert found(target) == ROWS
    [done] = target.services.run(clean)
    [partition] = report(target, done).partitions.values()
    assert len(partition.deleted) == 3, "covered logs still say nothing"
    assert len(partition.failed) == 4
    assert found(target) == ROWS


# ---------------------------------------------------------------------- tables that are stuck already
@BOTH
def test_a_plan_whose_covered_logs_were_cleaned_is_run(kind: str) -> None:
    target = merged(kind)
    planned = plan_of_all(target)
    client_of(target).storage.delete(covered(target))
    assert found(target) == ROWS
    [done] = target.services.compact()
    assert done.requested_time == planned.requested_time
    assert pending(target) == []
    assert found(target) == ROWS


@BOTH
def test_a_plan_whose_logs_were_merged_later_and_cleaned_is_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merged log completed after the plan was made, so it is none of its files; it says what they said."""
    target = new(kind, num_buckets=1)
    put(target, *(row(f"k{i}", v=0) for i in range(8)))
    for step in range(3):
        put(target, row("hot", v=step), row(f"k{step}", v=step))
    [logs] = target.services.plan_compaction("log", options=EASY).instants
    put(target, row("hot", v=10), row("k0", v=10))
    full = plan_of_all(target)
    monkeypatch.setattr("lakebed.services.compaction._overtaken", lambda *_: frozenset())
    target.services.run(logs)
    put(target, row("hot", v=11), row("k1", v=11))
    client_of(target).storage.delete(covered(target))
    assert found(target) == ROWS
    assert target.services.compact("full")[0].requested_time == full.requested_time
    assert pending(target) == []
    assert found(target) == ROWS


def test_a_plan_of_files_that_nobody_needs_is_done_without_them() -> None:
    target = new("v10-by-commit-time", num_buckets=1, partition_by="p")
    for step in range(3):
        put(target, row("a", p="x", v=step), row("b", p="y", v=step))
    planned = plan_of_all(target)
    target.delete_partitions(["p=x"])
    storage = client_of(target).storage
    gone = [info.path for info in storage.list("p=x") if parse_log_file(info.name) or parse_base_file(info.name)]
    assert gone
    storage.delete(gone)
    with pytest.warns(UserWarning, match="leaves out 1 file groups.*no state needs them"):
        [done] = target.services.compact()
    assert done.requested_time == planned.requested_time
    assert pending(target) == []
    assert found(target) == {"b": 2}


def test_a_plan_of_files_that_are_lost_can_be_given_up() -> None:
    target = merged()
    planned = plan_of_all(target)
    [file_slice] = slices(target)
    storage = client_of(target).storage
    lost = storage.read(file_slice.log_files[-1].path)
    storage.delete([file_slice.log_files[-1].path])
    with pytest.raises(CorruptTable, match="rollback"):
        target.services.compact()
    target.services.rollback(planned)
    assert pending(target) == []
    storage.put(file_slice.log_files[-1].path, lost)
    assert target.services.compact()
    assert found(target) == ROWS


# ---------------------------------------------------------------------- plans that are dropped
@BOTH
def test_logs_of_a_log_compaction_that_left_them_out_are_not_covered(kind: str) -> None:
    """A full compaction overtook it and was given up: the logs are all there is of their rows."""
    target = new(kind, num_buckets=1)
    put(target, *(row(f"k{i}", v=0) for i in range(8)))
    for step in range(3):
        put(target, row("hot", v=step), row(f"k{step}", v=step))
    [logs] = target.services.plan_compaction("log", options=EASY).instants
    [full] = target.services.plan_compaction("full").instants
    target.services.run(logs)
    target.services.rollback(full)
    put(target, row("hot", v=10), row("k0", v=10))
    put(target, row("hot", v=11), row("k1", v=11))
    target.services.clean(ONE)
    assert found(target) == ROWS
    sound(target)


# ---------------------------------------------------------------------- savepoints, restores, downgrades
def test_a_savepoint_while_a_clean_is_pending() -> None:
    target = merged()
    clean = planned_clean(target)
    saved = target.services.savepoint()
    put(target, row("hot", v=99))
    target.services.run(clean)
    target.services.restore(saved)
    assert found(target) == ROWS
    sound(target)


def test_a_restore_finishes_the_cleans_that_are_pending() -> None:
    """Run after it, the clean would retain from a write on that is gone: nothing could be saved or read back."""
    target = merged()
    saved = target.services.savepoint()
    for step in range(4):
        put(target, row("hot", v=50 + step))
    target.services.compact()
    put(target, row("hot", v=60))
    planned_clean(target)
    target.services.restore(saved)
    assert pending(target) == []
    target.services.delete_savepoint(saved)
    assert target.services.savepoint().requested_time == saved.requested_time
    put(target, row("hot", v=70))
    assert found(target) == {**ROWS, "hot": 70}


def test_a_downgrade_with_plans_that_are_stuck() -> None:
    target = merged()
    plan_of_all(target)
    client_of(target).storage.delete(covered(target))
    target.services.downgrade(9)
    assert int(target.config.version) == 9
    assert found(target) == ROWS


def test_archiving_stops_before_a_file_that_no_commit_names_and_a_plan_holds() -> None:
    target = merged()
    client = client_of(target)
    [file_slice] = slices(target)
    first = file_slice.log_files[0]
    stray = first.path.replace("_1.log", "_2.log")
    client.storage.put(stray, client.storage.read(first.path))

    def plan(fresh: MetaClient, _: str) -> CompactionPlan:
        whole = full_plan(fresh, lambda _: True)
        assert whole is not None
        [operation] = whole.operations
        return replace(whole, operations=(replace(operation, log_files=(stray.rpartition("/")[2],)),))

    planned = schedule(client, Action.COMPACTION, plan, TxnContext.of(client.storage))
    assert planned is not None
    few = {"hoodie.keep.min.commits": "1", "hoodie.keep.max.commits": "2", "hoodie.clean.commits.retained": "1"}
    gone = target.services.archive(few)
    assert [instant.requested_time for instant in gone] < [first.requested_time]
    assert client.storage.stat(stray) is not None
    target.services.rollback(planned)
    assert target.services.archive(few)
    assert client.storage.stat(stray) is None
    assert found(target) == ROWS


# ---------------------------------------------------------------------- results of results
@BOTH
def test_merged_logs_that_were_merged_again_are_cleaned(kind: str) -> None:
    target = merged(kind)
    assert target.services.compact("log", options=EASY)
    put(target, row("z", v=1))
    put(target, row("z", v=2))
    before = len(slices(target)[0].log_files)
    target.services.clean(ONE)
    [file_slice] = slices(target)
    assert (before, len(file_slice.log_files)) == (9, 6 - GOES[kind]), "one merged log says what six logs said"
    assert found(target) == {**ROWS, "z": 2}
    target.services.archive({"hoodie.keep.min.commits": "1", "hoodie.keep.max.commits": "2", **ONE})
    assert found(target) == {**ROWS, "z": 2}
    sound(target)


def test_the_newest_covered_log_stays_where_hudi_reads() -> None:
    """Hudi takes a merged log in only where it meets a log that it covers, and at the place of that."""
    target = merged("v9-by-commit-time")
    originals = [log.requested_time for log in slices(target)[0].log_files][:3]
    target.services.clean(ONE)
    left = [log.requested_time for log in slices(target)[0].log_files]
    assert left[0] == originals[-1]
    assert len(left) == 4
    assert target.services.compact("log", options=EASY)
    newest = left[-1]
    put(target, row("z", v=1))
    put(target, row("z", v=2))
    target.services.clean(ONE)
    assert slices(target)[0].log_files[0].requested_time == newest, "of the later one alone"
    assert found(target) == {**ROWS, "z": 2}


def test_a_clean_keeps_a_result_that_another_of_hudis_names(golden_copy: Callable[[str], Path]) -> None:
    """Hudi's log compactions name each other: without the first nobody knows at whose place the second stands."""
    target = lakebed.open(golden_copy("mor_logcompact_v8"), drop_metadata=True)
    rows = sorted(map(str, target.scan().to_arrow().to_pylist()))
    results = [instant.requested_time for instant, _ in client_of(target).log_compactions()]
    assert len(results) == 2
    target.services.clean(ONE)
    left = {log.requested_time for file_slice in slices(target) for log in file_slice.log_files}
    assert left.issuperset(results)
    assert sorted(map(str, target.refresh().scan().to_arrow().to_pylist())) == rows


# ---------------------------------------------------------------------- the one function
def test_who_reserves_what() -> None:
    target = merged()
    [file_slice] = slices(target)
    saved = target.services.savepoint()
    clean = target.services.plan_clean(ONE)
    assert clean is None, "the savepoint holds the covered logs"
    [compaction] = target.services.plan_compaction("full").instants
    reserved = Reserved.of(client_of(target))
    every = {("", file.name) for file in file_slice.files}
    assert reserved.saved == dict.fromkeys(every, saved)
    assert reserved.held() == dict.fromkeys(every, compaction)
    assert {plan.kind for plans in reserved.plans.values() for plan in plans} == {"FULL"}
    assert reserved.leaving == {}
    assert isinstance(file_slice, FileSlice)
    with pytest.raises(InvalidRequest):
        target.services.rollback(saved)
