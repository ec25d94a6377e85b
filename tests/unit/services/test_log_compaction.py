"""Log compaction: the four scenarios of RFC-48, what it must not skip, and what must survive it."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.datafile.log_file import has_parquet_content, open_log_file, parquet_source
from lakebed.errors import InvalidRequest
from lakebed.format.log.block import LogBlock
from lakebed.format.names import heartbeat_file
from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.model.files import LogFile
from lakebed.model.instant import Action, Instant
from lakebed.runner import SerialRunner
from lakebed.services import log_compaction
from lakebed.services.compaction import run_compaction
from lakebed.services.log_compaction import oldest_pending
from lakebed.table import Table
from lakebed.txn.options import Concurrency, TxnOptions
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from tests.unit.services.compaction_cases import (
    EASY,
    answers,
    client_of,
    filled,
    gone,
    instants_of,
    new,
    put,
    rows_of,
    slices,
    sound,
)
from tests.unit.txn.tables import meanwhile
from tests.unit.write.tables import Row, files, held, make, row, table

BOTH = pytest.mark.parametrize("kind", ["v10-lsm", "v9-lsm"])


def one_group(kind: str, deltas: int = 3, **more: Any) -> Table:
    """A table of one file group: a base file, then small deltas."""
    target = new(kind, num_buckets=1, **more)
    target.bulk_insert(table(*(row(f"k{i}", 1, v=i) for i in range(8)), schema=target_schema(target)))
    for step in range(deltas):
        put(target, row(f"k{step}", 2, v=10 + step), row("hot", step + 2, v=step), gone(f"k{step + 4}", 2))
    return target


def target_schema(target: Table) -> pa.Schema:
    return pa.schema([item for item in target.schema if not item.name.startswith("_hoodie_") or "deleted" in item.name])


def blocks(target: Table, instant: str) -> list[LogBlock]:
    [file_slice] = slices(target)
    storage = client_of(target).storage
    return [
        b for log in file_slice.log_files if log.requested_time == instant for b in open_log_file(storage, log).blocks
    ]


def compacted(target: Table, **more: str) -> str:
    [done] = target.services.compact("log", options={**EASY, **more})
    assert done.action is Action.DELTA_COMMIT
    return done.requested_time


def live(target: Table) -> list[str]:
    """The instants whose blocks a reader merges, oldest first."""
    [file_slice] = slices(target)
    plan = target.refresh().scan().plan()
    return list(dict.fromkeys(run.requested_time for run in plan.reader.scan(file_slice).runs))


# ---------------------------------------------------------------------- the scenarios
@BOTH
def test_the_base_case(kind: str) -> None:
    target = one_group(kind)
    originals = instants_of(target)[1:]
    wanted = answers(target, instants_of(target))
    before = instants_of(target)
    done = compacted(target)
    assert {block.compacted_times for block in blocks(target, done)} == {tuple(originals)}
    assert live(target) == [done]
    assert answers(target, before) == wanted
    commit = client_of(target).commit(done)
    assert commit is not None
    assert (commit.operation, commit.compacted) == ("LOG_COMPACT", True)
    assert sum(stat.num_deletes for stats in commit.stats.values() for stat in stats) == 3
    assert target.services.compact("log", options=EASY) == ()
    sound(target)


@BOTH
def test_scenario_1_a_write_comes_between_plan_and_run(kind: str) -> None:
    target = one_group(kind)
    [planned] = target.services.plan_compaction("log", options=EASY).instants
    put(target, row("k0", 3, v=99), row("hot", 99, v=99))
    before = instants_of(target)
    wanted = answers(target, before)
    between = before[-1]
    target.services.run(planned)
    assert answers(target, before) == wanted
    assert live(target) == [planned.requested_time, between], "it stands at the place of what it covers"
    assert {one["id"]: one["v"] for one in held(target, "id", "v")}["k0"] == 99
    target.services.compact()
    assert rows_of(target.scan()) == wanted["now"]


@BOTH
def test_scenario_1_by_commit_time(kind: str) -> None:
    """Here the merged log would win by its own instant, whatever the rows say."""
    target = one_group(kind.replace("lsm", "by-commit-time"))
    [planned] = target.services.plan_compaction("log", options=EASY).instants
    put(target, row("k0", 0, v=99))
    target.services.run(planned)
    assert {one["id"]: one["v"] for one in held(target, "id", "v")}["k0"] == 99


@BOTH
def test_scenario_2_a_run_that_failed_is_undone_and_run_again(kind: str) -> None:
    target = one_group(kind)
    before = instants_of(target)
    wanted = answers(target, before)
    [planned] = target.services.plan_compaction("log", options=EASY).instants
    client = client_of(target)
    with Transaction.resume(client, planned, TxnContext.of(client.storage)) as txn:
        assert txn.requested_time == planned.requested_time
    timeline = client_of(target).timeline
    assert timeline.find(planned.requested_time, Action.LOG_COMPACTION) == planned
    assert timeline.of_actions(Action.ROLLBACK).instants
    put(target, row("k7", 9, v=77))
    [done] = target.services.run(target.services.pending_compactions())
    assert done.requested_time == planned.requested_time
    assert answers(target, before)["at " + before[-1]] == wanted["at " + before[-1]]
    sound(target)


@BOTH
def test_scenario_3_a_result_larger_than_a_block(kind: str) -> None:
    target = new(kind, num_buckets=1)
    for step in range(3):
        put(target, *(row(f"k{i:05d}", step, v=i, txt=f"{i * 7919 % 100003}") for i in range(step, 60_000, 3)))
    wanted = rows_of(target.scan())
    options = {"hoodie.logfile.data.block.max.size": "30kB", "hoodie.parquet.max.file.size": "30kB"}
    small_groups = {"lakebed.log.row.group.rows": "4096", "lakebed.memory": "64MB"}
    done = compacted(target, **options, **small_groups)
    found = blocks(target, done)
    assert len(found) > 2
    assert len({block.compacted_times for block in found}) == 1
    assert rows_of(target.scan()) == wanted
    assert live(target) == [done]
    sound(target)


@BOTH
@pytest.mark.parametrize("full_first", [True, False])
def test_scenario_4_a_full_compaction_overtakes(kind: str, full_first: bool) -> None:
    target = one_group(kind)
    before = instants_of(target)
    wanted = answers(target, before)
    [logs] = target.services.plan_compaction("log", options=EASY).instants
    put(target, row("k0", 9, v=900), gone("k1", 9))
    [full] = target.services.plan_compaction("full").instants
    put(target, row("k2", 9, v=902))
    now = rows_of(target.scan())
    order = (full, logs) if full_first else (logs, full)
    for instant in order:
        [done] = target.services.run(instant)
        assert done.is_completed
        assert rows_of(target.refresh().scan()) == now
    for instant in before:
        assert rows_of(target.scan(as_of=instant)) == wanted[f"at {instant}"]
    assert blocks(target, logs.requested_time) == [], "it is in the base file, so it was left out"
    sound(target)


@BOTH
def test_a_full_compaction_that_is_planned_just_before_the_commit(kind: str) -> None:
    """What is left out is decided under the lock, where plans are made as well."""
    target = one_group(kind)
    [logs] = target.services.plan_compaction("log", options=EASY).instants
    put(target, row("k0", 9, v=900))
    now, other = rows_of(target.scan()), lakebed.open(target.url)
    client, full = client_of(target), list[Instant]()
    overtaken = meanwhile(
        TxnContext.of(client.storage), lambda: full.extend(other.services.plan_compaction("full").instants)
    )
    run_compaction(client, logs, overtaken, SerialRunner())
    assert full
    assert blocks(target, logs.requested_time) == []
    begins = {log.requested_time for log in slices(target)[0].log_files}
    assert logs.requested_time not in begins
    assert not [p for p in files(target) if logs.requested_time in p and not p.startswith(".hoodie/")], (
        "its log is gone"
    )
    target.services.run(full)
    assert rows_of(target.refresh().scan()) == now
    sound(target)


@BOTH
def test_scenario_4_published_all_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log compaction by a writer that does not look: it lies in the new slice and says nothing there."""
    target = one_group(kind.replace("lsm", "by-commit-time"))
    [logs] = target.services.plan_compaction("log", options=EASY).instants
    put(target, row("k0", 0, v=900))
    [full] = target.services.plan_compaction("full").instants
    now = rows_of(target.scan())
    monkeypatch.setattr("lakebed.services.compaction._overtaken", lambda *_: frozenset())
    for instant in (full, logs):
        target.services.run(instant)
        assert rows_of(target.refresh().scan()) == now
    assert blocks(target, logs.requested_time)
    assert live(target) == []
    target.services.compact("full")
    assert rows_of(target.refresh().scan()) == now
    sound(target)


# ---------------------------------------------------------------------- by which merge
@pytest.mark.parametrize("memory", [256 << 20, 1 << 20])
@pytest.mark.parametrize(
    ("kind", "merge"),
    [("v10-lsm", "sorted"), ("v9-lsm", "sorted"), ("v10-default", "hash"), ("v9-default", "hash")],
)
def test_the_layout_chooses_the_merge(kind: str, merge: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either gives rows in key order, so that logs of both layouts are sorted and marked."""
    used: list[str] = []

    def noted(name: str, chosen: Any) -> Any:
        def run(*args: Any, **more: Any) -> Any:
            used.append(name)
            return chosen(*args, **{**more, "memory": memory})

        return run

    monkeypatch.setattr(log_compaction, "sorted_merge", noted("sorted", sorted_merge))
    monkeypatch.setattr(log_compaction, "hash_merge", noted("hash", hash_merge))
    target = one_group(kind)
    put(target, *(row(f"k{i:04}", 3, v=i, txt=str(i) * 40) for i in range(0, 9000, 3)))
    put(target, *(row(f"k{i:04}", 4, v=i, txt=str(i) * 40) for i in range(0, 9000, 2)))
    before = instants_of(target)
    wanted = answers(target, before)
    done = compacted(target)
    assert used == [merge]
    assert answers(target, before) == wanted
    rows = [block for block in blocks(target, done) if has_parquet_content(block)]
    storage = client_of(target).storage
    for block in rows:
        with parquet_source(storage, block) as source:
            assert source.is_sorted
    assert rows
    sound(target)


# ---------------------------------------------------------------------- what is taken and what stays
def test_large_logs_are_left_alone() -> None:
    target = one_group("v10-lsm")
    put(target, *(row(f"x{i}", 1, txt=str(i) * 50) for i in range(2000)))
    [file_slice] = slices(target)
    sizes: dict[str, int] = {}
    for log in file_slice.log_files:
        sizes[log.requested_time] = sizes.get(log.requested_time, 0) + log.size
    *small, large = sizes
    assert sizes[large] > 2 * max(sizes[one] for one in small)
    put(target, row("k0", 9, v=1))
    options = {**EASY, "lakebed.log.compaction.small.size": str(sizes[large] - 1)}
    [planned] = target.services.plan_compaction("log", options=options).instants
    wanted = rows_of(target.scan())
    target.services.run(planned)
    assert rows_of(target.scan()) == wanted
    assert live(target)[:2] == [planned.requested_time, large]


def test_versions_8_and_9_merge_up_to_the_newest() -> None:
    """Hudi's default reader ranks a merged log by its own instant."""
    target = one_group("v9-lsm")
    size = max(log.size for log in slices(target)[0].log_files)
    put(target, *(row(f"x{i}", 1, txt=str(i) * 50) for i in range(2000)))
    options = {**EASY, "lakebed.log.compaction.small.size": str(2 * size)}
    assert not target.services.plan_compaction("log", options=options)
    put(target, row("k0", 9, v=1))
    put(target, row("k0", 10, v=2))
    planned = target.services.plan_compaction("log", options=options)
    assert [len(one.logs) for one in planned.decisions] == [2]


@BOTH
def test_logs_of_logs_name_the_originals(kind: str) -> None:
    target = one_group(kind)
    originals = instants_of(target)[1:]
    first = compacted(target)
    for step in range(2):
        put(target, row(f"k{step}", 20 + step, v=step))
    before = instants_of(target)
    later = [one for one in before if one > first]
    wanted = answers(target, before)
    second = compacted(target)
    assert {block.compacted_times for block in blocks(target, second)} == {(*originals, *later)}
    assert live(target) == [second], "the first one is superseded although it is not named"
    assert answers(target, before) == wanted
    covered = [log for log in slices(target)[0].log_files if log.requested_time != second]
    alone = storage_without(target, {log.path for log in covered})
    assert alone == wanted["now"], "and the second says it all"


def storage_without(target: Table, paths: set[str]) -> list[str]:
    """The rows that the slice gives without some files."""
    plan = target.refresh().scan().plan()
    [split] = plan.splits
    logs = tuple(log for log in split.slice.log_files if log.path not in paths)
    file_slice = type(split.slice)(split.slice.file_group, split.slice.base_instant_time, split.slice.base_file, logs)
    batches = list(plan.reader.read(type(split)(file_slice)))
    found = pa.Table.from_batches(batches).drop_columns(["_hoodie_file_name"])
    return sorted(map(str, found.to_pylist()))


def test_a_newer_slice_may_be_merged_while_a_compaction_is_planned() -> None:
    target = one_group("v10-lsm")
    [full] = target.services.plan_compaction("full").instants
    assert not target.services.plan_compaction("log", options=EASY), "all logs go into the base file"
    for step in range(3):
        put(target, row(f"k{step}", 20 + step, v=step))
    before = instants_of(target)
    wanted = answers(target, before)
    planned = target.services.plan_compaction("log", options=EASY)
    assert [len(one.logs) for one in planned.decisions] == [3]
    assert not target.services.plan_compaction("log", options=EASY), "one log compaction at a time"
    for instant in (*planned.instants, full):
        target.services.run(instant)
        assert answers(target, before) == wanted
    assert live(target) == [planned.instants[0].requested_time]
    sound(target)


def test_nothing_is_merged_over_a_write_under_way() -> None:
    target = one_group("v10-lsm", properties={"hoodie.clean.automatic": "false"})
    client = client_of(target)
    several = TxnContext.of(client.storage, TxnOptions(concurrency=Concurrency.NON_BLOCKING))
    writer = Transaction.begin(client, Action.DELTA_COMMIT, several)
    shared = lakebed.open(target.url, options={"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"})
    for step in range(3):
        put(shared, row(f"k{step}", 20 + step, v=step))
    planned = shared.services.plan_compaction("log", options=EASY)
    [decision] = planned.decisions
    assert [log.requested_time for log in decision.logs] == instants_of(target)[1:4], "only what began before it"
    writer.abort()
    shared.services.run(planned)
    sound(target)


def test_a_claimed_begin_counts_as_a_write_under_way() -> None:
    target = one_group("v10-lsm")
    client = client_of(target)
    first = client.completed_writes()[0].requested_time
    assert oldest_pending(client, "99999999999999999") is None
    claimed = str(int(client.completed_writes()[-1].requested_time) + 1)
    client.storage.put(heartbeat_file(claimed), b"")
    client.storage.put(heartbeat_file(first), b"")
    assert oldest_pending(client, "99999999999999999") == claimed
    assert oldest_pending(client, claimed) is None


# ---------------------------------------------------------------------- what survives
@BOTH
def test_a_delete_for_good_that_an_insert_follows(kind: str) -> None:
    """Ordering value 1 below 5 in the base file: without the delete in between the old row would come back."""
    target = new(kind, num_buckets=1)
    target.bulk_insert(table(row("a", 5, v=5), row("b", 5, v=5), schema=target_schema(target)))
    target.delete(keys=["a", "b"])
    put(target, row("a", 1, v=1))
    put(target, row("c", 1, v=1))
    wanted = [("a", 1), ("c", 1)]
    for strategy in ("log", "full"):
        assert [(one["id"], one["v"]) for one in held(target, "id", "v")] == wanted
        target.services.compact(strategy, options=EASY)
    assert [(one["id"], one["v"]) for one in held(target, "id", "v")] == wanted


ORDERINGS: dict[str, tuple[pa.DataType, Any, Any, Any]] = {
    "int": (pa.int32(), 1, 2, 3),
    "long": (pa.int64(), 1, 2, 3),
    "double": (pa.float64(), 0.5, 1.5, 2.5),
    "float": (pa.float32(), 0.5, 1.5, 2.5),
    "string": (pa.string(), "a", "b", "c"),
    "decimal": (pa.decimal128(10, 2), Decimal("1.00"), Decimal("2.50"), Decimal("30.00")),
    "date": (pa.date32(), dt.date(2026, 1, 1), dt.date(2026, 2, 1), dt.date(2026, 3, 1)),
    "timestamp": (pa.timestamp("us", "UTC"), *(dt.datetime(2026, m, 1, tzinfo=dt.UTC) for m in (1, 2, 3))),
}


@BOTH
@pytest.mark.parametrize("name", ORDERINGS)
def test_tombstones_keep_ordering_values_of_every_type(kind: str, name: str) -> None:
    dtype, low, middle, high = ORDERINGS[name]
    schema = pa.schema([("id", pa.string()), ("ts", dtype), ("v", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
    version = {"v10-lsm": "v2", "v9-lsm": "v1"}[kind]
    target = make(schema=schema, partition_by=None, num_buckets=1, log_format=version)

    def write(*rows: Row) -> None:
        target.upsert(pa.Table.from_pylist(list(rows), schema))

    def one(ident: str, ts: Any, v: int, deleted: bool = False) -> Row:
        return {"id": ident, "ts": ts, "v": v, "_hoodie_is_deleted": deleted}

    target.bulk_insert(pa.Table.from_pylist([one("old", low, 1), one("new", high, 1)], schema))
    write(one("old", middle, 0, True), one("new", middle, 0, True))
    write(one("x", low, 1))
    expected = [("new", 1), ("x", 1)]
    assert [(got["id"], got["v"]) for got in held(target, "id", "v")] == expected
    compacted(target)
    assert [(got["id"], got["v"]) for got in held(target, "id", "v")] == expected
    write(one("old", low, 5))
    assert [(got["id"], got["v"]) for got in held(target, "id", "v")] == expected, "the tombstone still weighs"


def test_partial_updates_are_not_merged_with_whole_rows() -> None:
    target = one_group("v10-lsm")
    source = pa.table({"id": ["k0", "k1"], "v": pa.array([7, 8], pa.int64()), "ts": pa.array([50, 50], pa.int64())})
    for _ in range(2):
        target.merge(source, on="t.id = s.id").when_matched_update(set={"v": "s.v"}).execute()
    assert [block.is_partial for instant in instants_of(target)[-2:] for block in blocks(target, instant)] == [True] * 2
    before = instants_of(target)
    wanted = answers(target, before)
    found = target.services.explain_compaction("log", options=EASY)
    assert [len(one.logs) for one in found.decisions] == [3], "only the whole rows before them"
    target.services.compact("hybrid", options={**EASY, "lakebed.compaction.hybrid.log.ratio": "1000"})
    assert answers(target, before) == wanted


def test_mergers_that_need_the_base_are_left_to_full_compaction() -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    filling = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    target = make(schema=schema, partition_by=None, num_buckets=1, properties=filling)
    for step in range(4):
        rows = [{"id": "a", "ts": 4 - step, "v": step if step % 2 else None}]
        target.upsert(pa.Table.from_pylist(rows, schema))
    wanted = rows_of(target.scan())
    found = target.services.explain_compaction("log", options=EASY)
    assert [(one.kind, "by event time" in one.reason) for one in found.decisions] == [(None, True)]
    assert target.services.compact("log", options=EASY) == ()
    target.services.compact("full")
    assert rows_of(target.scan()) == wanted


def test_off_unless_asked_for() -> None:
    target = filled("v10-lsm", deltas=7)
    assert target.services.pending_compactions() == ()
    put(target, row("a", 1), options={"hoodie.log.compaction.enable": "true"})
    [planned] = target.services.pending_compactions()
    assert planned.action is Action.LOG_COMPACTION
    put(target, row("b", 1), options={"hoodie.log.compaction.inline": "true"})
    assert target.services.pending_compactions() == ()
    with pytest.raises(InvalidRequest, match="two of them"):
        target.services.compact("log", options={"hoodie.log.compaction.blocks.threshold": "1"})


# ---------------------------------------------------------------------- after the covered logs are gone
def texts(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=200))


@pytest.mark.parametrize("dropped_plan", [False, True])
@pytest.mark.parametrize("kind", ["v10-by-commit-time", "v10-lsm"])
def test_a_clean_changes_the_answer(kind: str, dropped_plan: bool) -> None:
    """The newer stretch of logs is merged first, the older one second; then what they cover is cleaned away."""
    chance = random.Random(7)
    target = new(kind, num_buckets=1)
    put(target, *(row(f"k{i:02}", 1, v=0) for i in range(50)))
    for step, keys in enumerate([range(50), range(50), range(45), range(45, 90)], start=1):
        put(target, *(row(f"k{i:02}", 1 + step, v=step, txt=texts(chance)) for i in keys))
    older, newer = (max(log.size for log in logs) for logs in _halves(slices(target)[0].log_files))
    assert older > newer
    options = {**EASY, "lakebed.log.compaction.small.size": str(older)}
    if dropped_plan:
        [planned] = target.services.plan_compaction("log", options=options).instants
        target.services.rollback(planned)
    first = compacted(target, **{"lakebed.log.compaction.small.size": str(newer)})
    second = compacted(target, **{"lakebed.log.compaction.small.size": str(older)})
    put(target, row("z", 1, v=1))
    put(target, row("z", 2, v=2))
    newest = instants_of(target)[-2:]
    assert live(target) == [second, first, *newest]
    wanted = rows_of(target.scan())
    target.services.clean({"hoodie.clean.commits.retained": "1"})
    assert [log.requested_time for log in slices(target)[0].log_files] == [first, second, *newest]
    assert live(target) == [second, first, *newest], "each stands where the newest log stood that it covers"
    assert rows_of(target.refresh().scan()) == wanted
    target.services.compact()
    assert rows_of(target.scan()) == wanted
    sound(target)


def _halves(logs: Sequence[LogFile]) -> tuple[Sequence[LogFile], Sequence[LogFile]]:
    return logs[: len(logs) // 2], logs[len(logs) // 2 :]
