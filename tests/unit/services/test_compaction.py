"""Full and hybrid compaction: answers stay, plans are what Hudi would plan, triggers and refusals."""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.datafile import parquet_source
from lakebed.datafile.parquet_metadata import ParquetMetadata, read_metadata
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.model.actions import ClusteringGroup, ClusteringPlan, ClusteringSlice, RequestedReplace
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Action
from lakebed.runner import LocalRunner
from lakebed.services import compaction
from lakebed.services.compaction_plan import PlannedCompaction, since_last
from lakebed.services.drop_metadata import remove_metadata
from lakebed.timeline.clock import SystemClock
from lakebed.txn.conflicts import Touched, conflicts
from lakebed.txn.transaction import schedule
from lakebed.txn.txn_context import TxnContext
from tests.conftest import expected
from tests.unit.services.compaction_cases import (
    EASY,
    KINDS,
    answers,
    client_of,
    filled,
    instants_of,
    new,
    put,
    random_rows,
    rows_of,
    slices,
    sound,
)
from tests.unit.write.tables import held, make, row, table


@pytest.mark.parametrize("strategy", ["full", "log", "hybrid"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_changes(kind: str, strategy: str) -> None:
    target = filled(kind)
    before = instants_of(target)
    wanted = answers(target, before)
    done = target.services.compact(strategy, options=EASY)
    assert done
    assert answers(target, before) == wanted
    for instant in done:
        assert rows_of(target.scan(as_of=instant.requested_time)) == wanted["now"]
        assert rows_of(target.incremental(instant.completion_time or "")) == []
    sound(target)
    put(target, row("k05", 99, v=5), row("new", 1, v=6))
    later = {one["id"]: one["v"] for one in held(target, "id", "v")}
    assert (later["k05"], later["new"]) == (5, 6)


def test_a_full_compaction_leaves_base_files_alone() -> None:
    target = filled("v10-lsm")
    [done] = target.services.compact()
    assert done.action is Action.COMMIT
    assert all(file_slice.base_file and not file_slice.log_files for file_slice in slices(target))
    assert all(file_slice.base_instant_time == done.requested_time for file_slice in slices(target))
    commit = client_of(target).commit(done.requested_time)
    assert commit is not None
    assert (commit.operation, commit.compacted) == ("COMPACT", True)
    assert target.services.compact() == ()


def test_plan_and_run_apart() -> None:
    target = filled("v9-lsm")
    wanted = rows_of(target.scan())
    planned = target.services.plan_compaction()
    assert planned
    [instant] = planned.instants
    assert (instant.action, instant.is_completed) == (Action.COMPACTION, False)
    assert rows_of(target.scan()) == wanted
    assert not target.services.plan_compaction(), "every group is planned for"
    elsewhere = lakebed.open(target.url)
    put(elsewhere, row("between", 1, v=1))
    [done] = elsewhere.services.run(instant.requested_time)
    assert done.requested_time == instant.requested_time
    assert len(rows_of(target.refresh().scan())) == len(wanted) + 1
    [left] = {len(file_slice.log_files) for file_slice in slices(target) if file_slice.log_files}
    assert left == 1, "what came between plan and run is in the new slice"
    with pytest.raises(ConflictError):
        target.services.run(instant)
    with pytest.raises(InvalidRequest, match="nothing is planned"):
        target.services.run("20200101000000000")


def test_what_was_planned_before_is_run_first() -> None:
    target = filled("v10-lsm")
    [planned] = target.services.plan_compaction().instants
    put(target, row("late", 1, v=1))
    first, second = target.services.compact()
    assert first.requested_time == planned.requested_time
    assert second.requested_time > planned.requested_time
    assert not any(file_slice.log_files for file_slice in slices(target))


# ---------------------------------------------------------------------- when
def test_by_hand_is_by_force_unless_told_otherwise() -> None:
    target = filled("v10-lsm", deltas=1)
    assert not target.services.plan_compaction(force=False)
    assert target.services.compact(force=False) == ()
    few = {"hoodie.compact.inline.max.delta.commits": "2"}
    assert target.services.compact(options=few, force=False)
    assert target.services.compact(options=few, force=False) == ()
    assert since_last(client_of(target), SystemClock()).deltas == 0
    put(target, row("a", 1))
    assert since_last(client_of(target), SystemClock()).deltas == 1


def test_time_triggers() -> None:
    target = filled("v10-lsm", deltas=1)
    options = {
        "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
        "hoodie.compact.inline.max.delta.seconds": "3600",
    }
    assert target.services.compact(options=options, force=False) == ()
    options["hoodie.compact.inline.max.delta.seconds"] = "0"
    assert target.services.compact(options=options, force=False)


def test_inline_after_a_write() -> None:
    target = new("v10-lsm")
    inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(7):
            put(target, row("k", step, v=step), options=inline)
    actions = [one["action"] for one in target.inspect.timeline().to_pylist()]
    assert actions.count("commit") == 2
    assert held(target, "v") == [{"v": 6}]
    with pytest.raises(InvalidRequest, match=r"max\.delta\.commits"):
        put(target, row("k", 9, v=9), options={"hoodie.compact.inline.max.delta.commits": "many"})
    assert held(target, "v") == [{"v": 6}], "refused before anything was written"


def test_planned_after_a_write_for_others_to_run() -> None:
    target = filled("v10-lsm")
    put(target, row("x", 1), options={"hoodie.compact.schedule.inline": "true"})
    [pending] = target.services.pending_compactions()
    assert pending.action is Action.COMPACTION
    put(target, row("y", 1), options={"hoodie.compact.inline": "true"})
    assert target.services.pending_compactions() == (), "whoever compacts runs what was planned before"
    assert rows_of(target.scan(as_of=pending.requested_time))


def test_a_service_that_fails_after_a_write_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_given: object, **_named: object) -> None:
        raise ConflictError("somebody else was faster")

    target = filled("v10-lsm", deltas=1)
    options = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "reader_context_of_plan", fails)
        with pytest.warns(UserWarning, match="the write is done"):
            put(target, row("z", 1), options=options)
    assert row("z", 1)["id"] in {one["id"] for one in held(target, "id")}
    [pending] = target.services.pending_compactions()
    assert target.services.compact()[0].requested_time == pending.requested_time


# ---------------------------------------------------------------------- which groups
def test_groups_under_clustering_are_left_alone() -> None:
    target = filled("v10-lsm")
    file_slice = slices(target)[0]
    group = file_slice.file_group
    clustered = ClusteringSlice(group.partition_path, group.file_id, None)
    plan = RequestedReplace("CLUSTER", ClusteringPlan((ClusteringGroup((clustered,)),)))
    client = client_of(target)
    assert schedule(client, Action.CLUSTERING, lambda _c, _b: plan, TxnContext.of(client.storage)) is not None
    for strategy in ("full", "log", "hybrid"):
        found = target.services.explain_compaction(strategy, options=EASY)
        by_group = {one.group: one for one in found.decisions}
        assert (by_group[group].kind, by_group[group].reason) == (None, "it is being clustered")
        assert len(by_group) == 2
        assert sum(one.kind is not None for one in found.decisions) == 1


def test_a_plan_ends_where_the_options_say() -> None:
    target = filled("v10-lsm")
    assert len(slices(target)) == 2
    [first] = target.services.compact(options={"hoodie.compaction.target.io": "1"})
    assert first is not None
    small = {"hoodie.compaction.logfile.size.threshold": "100MB"}
    target = filled("v10-lsm")
    planned = target.services.explain_compaction(options=small)
    assert {one.kind for one in planned.decisions} == {None}
    assert "this plan is full" in planned.explain()


def test_explaining_saves_nothing() -> None:
    target = filled("v10-lsm")
    found = target.services.explain_compaction("hybrid")
    assert isinstance(found, PlannedCompaction)
    assert not found
    assert "FULL" in found.explain()
    assert target.services.pending_compactions() == ()


def test_refused() -> None:
    cow = make(table_type="cow", log_format="v1", index="simple", num_buckets=None)
    cow.insert(table(row("a")))
    for call in (cow.services.compact, cow.services.plan_compaction, cow.services.explain_compaction):
        with pytest.raises(InvalidRequest, match="copy-on-write"):
            call()
    target = filled("v10-lsm", deltas=1)
    with pytest.raises(InvalidRequest, match="no compaction strategy"):
        target.services.compact("sideways")
    with pytest.warns(UserWarning, match="did you mean"):
        target.services.compact(options={"hoodie.compaction.target.ios": "1"})


# ---------------------------------------------------------------------- hybrid
def test_one_plan_with_both_kinds_in_version_10() -> None:
    target = mixed("v10-lsm")
    before = instants_of(target)
    wanted = answers(target, before)
    planned = target.services.plan_compaction("hybrid", options=EASY)
    [instant] = planned.instants
    assert instant.action is Action.COMPACTION
    assert sorted(one.kind for one in planned.decisions if one.kind) == ["FULL", "LOG"]
    assert answers(target, before) == wanted, "planned"
    [done] = target.services.run(planned)
    assert done.action is Action.COMMIT
    assert answers(target, before) == wanted, "done"
    sound(target)
    by_kind = {bool(file_slice.log_files): file_slice for file_slice in slices(target)}
    assert by_kind[False].base_instant_time == done.requested_time
    assert by_kind[True].log_files[-1].requested_time == done.requested_time


def test_two_instants_in_version_9() -> None:
    target = mixed("v9-lsm")
    before = instants_of(target)
    wanted = answers(target, before)
    planned = target.services.plan_compaction("hybrid", options=EASY)
    assert [one.action for one in planned.instants] == [Action.COMPACTION, Action.LOG_COMPACTION]
    done = target.services.run(planned)
    assert [one.action for one in done] == [Action.COMMIT, Action.DELTA_COMMIT]
    assert answers(target, before) == wanted
    sound(target)


def mixed(kind: str) -> lakebed.Table:
    """One group with much in its base file, one with little, both with small logs."""
    target = new(kind)
    options = {"hoodie.parquet.compression.codec": "uncompressed"}
    texts = random.Random(7)
    keys = {0: [], 1: []}  # type: dict[int, list[str]]
    probe = new(kind)
    put(probe, *(row(f"k{i:03d}", 1) for i in range(200)))
    for number, file_slice in enumerate(sorted(slices(probe), key=lambda one: one.file_group)):
        found = probe.scan(columns=["id", "_hoodie_file_name"]).to_arrow().to_pylist()
        keys[number] = [one["id"] for one in found if file_slice.file_group.file_id in one["_hoodie_file_name"]]
    assert len(keys[0]) > 50 < len(keys[1])
    large = [row(key, 1, txt=texts.randbytes(2000).hex()) for key in keys[0]]
    put(target, *large, *(row(key, 1) for key in keys[1][:5]), options=options)
    for step in range(3):
        put(target, row(keys[0][step], 2 + step, v=step), row(keys[1][step], 2 + step, v=step), options=options)
    return target


# ---------------------------------------------------------------------- conflicts
def test_who_must_give_way() -> None:
    group = frozenset({FileGroupId("p", "f")})
    none: frozenset[FileGroupId] = frozenset()
    writer, rewriter = Touched("1", group, none), Touched("2", none, group)
    full, log = Touched("3", none, group, compacted=True), Touched("4", group, none, compacted=True)
    table_of = {
        (full, log): False,
        (log, full): False,
        (log, log): True,
        (full, full): True,
        (log, writer): False,
        (writer, log): False,
        (log, rewriter): True,
        (rewriter, log): True,
        (full, writer): False,
        (writer, full): False,
    }
    for (ours, theirs), wanted in table_of.items():
        assert (conflicts(ours, [theirs]) is not None) is wanted, (ours, theirs)


# ---------------------------------------------------------------------- tables of real Hudi
@pytest.mark.parametrize("strategy", ["full", "log"])
@pytest.mark.parametrize(
    "name", ["mor_bucket_v9", "mor_eventtime_v9", "mor_logcompact_v8", "mor_pending_compaction_v8", "mor_partial_v9"]
)
def test_tables_of_real_hudi(golden_copy: Callable[[str], Path], name: str, strategy: str) -> None:
    target = lakebed.open(golden_copy(name))
    before = instants_of(target)
    wanted = answers(target, before)
    snapshot = expected(name)["snapshot"]
    assert len(wanted["now"]) == snapshot["count"]
    if target.config.metadata_partitions:
        with pytest.raises(InvalidRequest, match="metadata table"):
            target.services.compact(strategy, options=EASY)
        client = client_of(target)
        remove_metadata(client, TxnContext.of(client.storage))
    target.services.compact(strategy, options=EASY)
    assert answers(target, before) == wanted
    sound(target)


# ---------------------------------------------------------------------- any order of things
@pytest.mark.parametrize("seed", range(int(os.environ.get("LAKEBED_SEEDS", "1"))))
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_with_services_answers_like_one_without(kind: str, seed: int) -> None:
    """The same writes on two tables; on one of them everything is planned, left pending, and run, in any order."""
    chance = random.Random(f"{kind} {seed}")
    kept, plain = new(kind), new(kind)
    kept._runner = plain._runner = LocalRunner(threads=1)
    times: list[tuple[str, str]] = []
    tombstones: dict[str, int] = {}
    for step in range(18):
        what = chance.choice(["put", "put", "put", "delete", "plan", "plan", "run", "compact"])
        strategy = chance.choice(["full", "log", "log", "hybrid"])
        options = {**EASY, "lakebed.compaction.hybrid.log.ratio": chance.choice(["0.1", "100"])}
        if what == "put":
            rows = random_rows(chance, step, tombstones)
            for target in (kept, plain):
                put(target, *rows)
        elif what == "delete":
            keys = [f"k{key}" for key in chance.sample(range(14), 2)]
            for target in (kept, plain):
                target.delete(keys=keys)
            for key in keys:
                tombstones.pop(key, None)
        elif what == "plan":
            kept.services.plan_compaction(strategy, options=options)
        elif what == "run" and (pending := kept.services.pending_compactions()):
            kept.services.run(chance.choice(pending))
        elif what == "compact":
            kept.services.compact(strategy, options=options)
        if what in ("put", "delete"):
            times.append((instants_of(kept)[-1], instants_of(plain)[-1]))
        else:
            assert held(kept) == held(plain), (step, what, strategy)
    for ours, theirs in times:
        found = kept.scan(columns=["id", "ts", "v", "txt"], as_of=ours).to_arrow().to_pylist()
        wanted = plain.scan(columns=["id", "ts", "v", "txt"], as_of=theirs).to_arrow().to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, wanted))
    sound(kept)


@pytest.mark.parametrize("kind", ["v10-lsm", "v10-default"])
def test_a_compaction_reads_every_footer_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = filled(kind)
    seen = Counter[str]()

    def counted(file: pa.NativeFile, label: str) -> ParquetMetadata:
        seen[label] += 1
        return read_metadata(file, label)

    monkeypatch.setattr(parquet_source, "read_metadata", counted)
    assert target.services.compact()
    assert seen
    assert set(seen.values()) == {1}, seen
