"""Savepoints, restore and rollback by hand: afterwards the table is as it was, also when the process dies half way."""

from __future__ import annotations

import pytest

from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import parse_base_file, parse_log_file
from lakebed.model.actions import RestoreMetadata, RestorePlan, SavepointMetadata
from lakebed.model.instant import Action
from lakebed.runner import SerialRunner
from lakebed.services.archival import archive
from lakebed.services.cleaning import clean, plan_clean
from lakebed.services.compaction import full_plan, run_compaction
from lakebed.services.restore import restore, rollback
from lakebed.services.savepoint import create_savepoint, delete_savepoint
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn import transaction
from lakebed.txn.transaction import Transaction, schedule
from lakebed.txn.txn_context import TxnContext
from tests.simulation.write_cases import (
    KINDS,
    SCHEMA,
    Rows,
    by_key,
    check_recovered,
    data,
    fill,
    leftovers,
    read,
    serious,
    table_on,
)
from tests.unit.services.crash_points import some_steps
from tests.unit.txn.tables import clone, meanwhile, paths, txn_context_of

START_MS = 1_800_000_000_000
NO_UPKEEP = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def at(storage: Storage, seconds: int) -> TxnContext:
    return txn_context_of(storage, ManualClock(START_MS + 1000 * seconds))


def upsert(storage: Storage, number: int, second: int) -> None:
    rows = [("k1", 10 + number, "p1", number), (f"n{number}", 1, "p0", number)]
    table_on(storage, at(storage, second)).upsert(data(rows), options=NO_UPKEEP)  # type: ignore[arg-type]


def compact(storage: Storage, second: int) -> None:
    txn_context = at(storage, second)
    planned = schedule(
        MetaClient.open(storage), Action.COMPACTION, lambda fresh, _: full_plan(fresh, lambda _: True), txn_context
    )
    assert planned is not None
    run_compaction(MetaClient.open(storage), planned, txn_context, SerialRunner())


def saved(kind: str) -> tuple[MemoryStorage, Rows, str]:
    """A table with a savepoint, and writes of all kinds after it."""
    storage = MemoryStorage()
    rows = fill(storage, kind, at(storage, 0))
    point = create_savepoint(MetaClient.open(storage), at(storage, 5), "before the change")
    upsert(storage, 1, 10)
    if kind != "cow":
        compact(storage, 11)
    upsert(storage, 2, 20)
    table_on(storage, at(storage, 30)).overwrite(data([("a", 1, "p0", 1)]), options=NO_UPKEEP)
    upsert(storage, 3, 40)
    return storage, rows, point.requested_time


def as_of(storage: Storage, requested_time: str) -> Rows:
    found = table_on(storage).scan(columns=SCHEMA.names, as_of=requested_time).to_arrow().to_pylist()
    return by_key([tuple(row.values()) for row in found])  # type: ignore[misc]


def data_files(storage: Storage) -> set[str]:
    names = ((info.path, info.name) for info in storage.list("", recursive=True))
    return {path for path, name in names if parse_log_file(name) or parse_base_file(name)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_table_is_as_it_was(kind: str) -> None:
    storage, rows, point = saved(kind)
    client = MetaClient.open(storage)
    ((instant, body),) = client.savepoints()
    assert (instant.requested_time, body.comments) == (point, "before the change")
    assert sum(map(len, body.files.values())) == len(
        data_files(storage) & {f"{partition}/{name}" for partition, names in body.files.items() for name in names}
    )
    undone = [i.requested_time for i in client.completed_writes() if i.requested_time > point]
    clean(client, at(storage, 50), CleanOptions(commits=1))
    done = restore(MetaClient.open(storage), at(storage, 60))
    client = MetaClient.open(storage)
    plan, report = client.plan(done), client.body(done)
    assert isinstance(plan, RestorePlan)
    assert isinstance(report, RestoreMetadata)
    assert (plan.savepoint, [i.time for i in plan.instants]) == (point, undone[::-1])
    assert report.instants == tuple(undone[::-1])
    assert read(storage) == rows
    assert as_of(storage, point) == rows
    assert [i.requested_time for i in client.completed_writes()][-1] == point
    assert not any(requested_time in path for requested_time in undone for path in paths(storage))
    assert serious(table_on(storage).check()) == []
    assert client.savepoints()
    check_recovered(storage, data_files(storage), rows, at(storage, 100))


def test_without_clean_only_files_of_undone_writes_go() -> None:
    storage, rows, point = saved("mor-v2")
    kept = {path for path in data_files(storage) if any(b in path for b in _begins(storage) if b <= point)}
    restore(MetaClient.open(storage), at(storage, 60), point)
    assert data_files(storage) == kept
    assert read(storage) == rows


def _begins(storage: Storage) -> list[str]:
    return [i.requested_time for i in MetaClient.open(storage).completed_writes()]


def test_savepoints_that_cannot_be_made_or_used() -> None:
    storage, _, point = saved("cow")
    client = MetaClient.open(storage)
    with pytest.raises(InvalidRequest, match="already"):
        create_savepoint(client, at(storage, 60), at=point)
    with pytest.raises(InvalidRequest, match="no completed write"):
        create_savepoint(client, at(storage, 60), at="20200101000000000")
    with pytest.raises(InvalidRequest, match="no savepoint"):
        restore(client, at(storage, 60), "20200101000000000")
    create_savepoint(client, at(storage, 61))
    with pytest.raises(InvalidRequest, match="is newer"):
        restore(MetaClient.open(storage), at(storage, 62), point)
    newest = MetaClient.open(storage).savepoints()[-1][0].requested_time
    delete_savepoint(MetaClient.open(storage), at(storage, 63), newest)
    assert [i.requested_time for i, _ in MetaClient.open(storage).savepoints()] == [point]
    delete_savepoint(MetaClient.open(storage), at(storage, 64), point)
    clean(MetaClient.open(storage), at(storage, 65), CleanOptions(commits=1))
    with pytest.raises(InvalidRequest, match="cleaned"):
        create_savepoint(MetaClient.open(storage), at(storage, 66), at=point)
    with pytest.raises(InvalidRequest, match="no savepoint"):
        restore(MetaClient.open(storage), at(storage, 67))


def test_a_clean_that_was_planned_before_the_savepoint() -> None:
    """The clean will take files of the state that was to be saved: then there is no savepoint."""
    storage, _, point = saved("cow")
    delete_savepoint(MetaClient.open(storage), at(storage, 50), point)
    stale = MetaClient.open(storage)
    assert plan_clean(stale, at(storage, 60), CleanOptions(commits=1)) is not None
    with pytest.raises(ConflictError, match="clean"):
        create_savepoint(stale, at(storage, 70), at=point)
    assert MetaClient.open(storage).savepoints() == ()


def test_a_write_that_began_before_a_restore_cannot_commit() -> None:
    storage, rows, _ = saved("mor-v2")
    table = table_on(storage, at(storage, 70))
    txn = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, at(storage, 50), operation="UPSERT")
    restore(MetaClient.open(storage), at(storage, 60))
    from tests.unit.txn.tables import metadata_of

    with pytest.raises(ConflictError), txn:
        txn.commit(metadata_of({}))
    assert read(storage) == rows
    table.upsert(data([("z", 9, "p0", 99)]))
    assert read(storage) == rows | by_key([("z", 9, "p0", 99)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_every_step_of_a_restore(kind: str) -> None:
    base, rows, point = saved(kind)
    begins = [requested_time for requested_time in _begins(base) if requested_time >= point]
    states = [as_of(base, requested_time) for requested_time in begins]
    trial = FaultyStorage(clone(base))
    restore(MetaClient.open(trial), at(trial, 60), point)
    steps = len(trial.ops)
    assert steps > 20
    seen = []
    for step in some_steps(steps, 6):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            restore(
                MetaClient.open(storage := FaultyStorage(storage, FaultPlan(crash_after=step))), at(storage, 60), point
            )
        storage = storage.inner  # type: ignore[assignment]
        found = read(storage)
        assert found in states
        seen.append(states.index(found))
        if any(i.action is Action.RESTORE for i in MetaClient.open(storage).timeline.pending):
            with pytest.raises(ConflictError, match="restore"):
                upsert(storage, 9, 600)
        restore(MetaClient.open(storage), at(storage, 1200), point)
        assert read(storage) == rows
        client = MetaClient.open(storage)
        assert not client.timeline.pending.instants
        assert not any(requested_time in path for requested_time in begins[1:] for path in data_files(storage))
        check_recovered(storage, data_files(storage), rows, at(storage, 2000))
    assert seen == sorted(seen, reverse=True), "one write after the other is taken back"


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_write_is_undone_by_hand(kind: str) -> None:
    storage, _, point = saved(kind)
    begins = _begins(storage)
    states = {requested_time: as_of(storage, requested_time) for requested_time in begins}
    with pytest.raises(InvalidRequest, match="completed after"):
        rollback(MetaClient.open(storage), at(storage, 60), begins[-2])
    with pytest.raises(InvalidRequest, match="no write"):
        rollback(MetaClient.open(storage), at(storage, 60), "20200101000000000")
    for number, requested_time in enumerate(reversed(begins[2:])):
        done = rollback(MetaClient.open(storage), at(storage, 100 + number), requested_time)
        assert done is not None or requested_time not in _begins(storage)
        before = begins[begins.index(requested_time) - 1]
        assert read(storage) == states[before]
        assert not any(requested_time in path for path in data_files(storage))
    with pytest.raises(InvalidRequest, match="savepoint"):
        rollback(MetaClient.open(storage), at(storage, 200), point)
    assert not MetaClient.open(storage).timeline.pending.instants
    assert leftovers(storage) == []
    check_recovered(storage, data_files(storage), states[point], at(storage, 300))


def test_a_rollback_needs_what_was_there_before() -> None:
    storage, _, point = saved("cow")
    delete_savepoint(MetaClient.open(storage), at(storage, 50), point)
    before = as_of(storage, _begins(storage)[-2])
    clean(MetaClient.open(storage), at(storage, 60), CleanOptions(commits=1))
    rollback(MetaClient.open(storage), at(storage, 70), _begins(storage)[-1])
    assert read(storage) == before, "one state more than the retained ones is whole"
    with pytest.raises(InvalidRequest, match="cleaned"):
        rollback(MetaClient.open(storage), at(storage, 80), _begins(storage)[-1])


def test_a_plan_is_taken_off_the_timeline() -> None:
    storage = MemoryStorage()
    rows = fill(storage, "mor-v2", at(storage, 0))
    planned = schedule(
        MetaClient.open(storage), Action.COMPACTION, lambda f, _: full_plan(f, lambda _: True), at(storage, 5)
    )
    assert planned is not None
    assert rollback(MetaClient.open(storage), at(storage, 10), planned.requested_time) is None
    assert not MetaClient.open(storage).timeline.pending.instants
    assert read(storage) == rows
    txn = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, at(storage, 20), operation="UPSERT")
    assert rollback(MetaClient.open(storage), at(storage, 30), txn.requested_time) is not None
    assert not MetaClient.open(storage).timeline.pending.instants


def test_a_crash_at_every_step_of_a_rollback() -> None:
    base, _, _ = saved("mor-v2")
    newest, before = _begins(base)[-1], _begins(base)[-2]
    states = [as_of(base, newest), as_of(base, before)]
    trial = FaultyStorage(clone(base))
    rollback(MetaClient.open(trial), at(trial, 60), newest)
    for step in some_steps(len(trial.ops), 6):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            faulty = FaultyStorage(storage, FaultPlan(crash_after=step))
            rollback(MetaClient.open(faulty), at(faulty, 60), newest)
        found = read(storage)
        assert found in states
        check_recovered(storage, data_files(storage), found, at(storage, 900))


def test_a_crash_at_every_step_of_a_savepoint() -> None:
    base = MemoryStorage()
    rows = fill(base, "cow", at(base, 0))
    trial = FaultyStorage(clone(base))
    create_savepoint(MetaClient.open(trial), at(trial, 60))
    for step in some_steps(len(trial.ops), 6):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            faulty = FaultyStorage(storage, FaultPlan(crash_after=step))
            create_savepoint(MetaClient.open(faulty), at(faulty, 60))
        assert read(storage) == rows
        if not MetaClient.open(storage).savepoints():
            create_savepoint(MetaClient.open(storage), at(storage, 600))
        ((_, body),) = MetaClient.open(storage).savepoints()
        assert isinstance(body, SavepointMetadata)
        check_recovered(storage, data_files(storage), rows, at(storage, 900))


def test_writes_after_a_savepoint_that_were_archived_cannot_be_undone() -> None:
    storage, _, point = saved("cow")
    for number in range(10, 15):
        upsert(storage, number, 50 + number)
    options = ArchiveOptions(max_commits=4, min_commits=3, beyond_savepoint=True)
    clean(MetaClient.open(storage), at(storage, 90), CleanOptions(commits=2))
    assert archive(MetaClient.open(storage), at(storage, 100), options)
    with pytest.raises(InvalidRequest, match="archived"):
        restore(MetaClient.open(storage), at(storage, 110), point)


# ------------------------------------------------------------------ decided on the table as it is under the lock
def test_a_write_that_was_undone_before_it_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A savepoint without its write could not be restored to, and would stop every other."""
    storage, rows, requested_time = saved("mor-v2")

    def overtaken(*given: object) -> None:
        monkeypatch.undo()
        restore(MetaClient.open(storage), at(storage, 800))
        transaction.to_inflight(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(transaction, "to_inflight", overtaken)
    with pytest.raises(ConflictError, match="was undone or archived before it was saved"):
        create_savepoint(MetaClient.open(storage), at(storage, 900))
    assert [one.requested_time for one in MetaClient.open(storage).timeline.of_actions(Action.SAVEPOINT)] == [
        requested_time
    ]
    assert read(storage) == rows
    upsert(storage, 4, 1000)
    create_savepoint(MetaClient.open(storage), at(storage, 1010))


def test_a_savepoint_that_completes_while_it_is_given_up() -> None:
    storage = MemoryStorage()
    fill(storage, "mor-v2", at(storage, 0))
    requested_time = MetaClient.open(storage).completed_writes()[-1].requested_time
    with Transaction.begin(
        MetaClient.open(storage), Action.SAVEPOINT, at(storage, 10), requested_time=requested_time
    ) as txn:
        early = MetaClient.open(storage)
        txn.commit(SavepointMetadata("me", 0, "", {}))
    delete_savepoint(early, at(storage, 20), requested_time)
    assert not MetaClient.open(storage).timeline.of_actions(Action.SAVEPOINT).instants


def test_a_savepoint_that_is_given_up_before_a_restore_has_the_lock() -> None:
    """From then on a clean may take its files."""
    storage, _, requested_time = saved("mor-v2")
    before = read(storage)

    def other() -> None:
        delete_savepoint(MetaClient.open(storage), at(storage, 900), requested_time)

    with pytest.raises(InvalidRequest, match=f"no savepoint '{requested_time}'"):
        restore(MetaClient.open(storage), meanwhile(at(storage, 800), other))
    assert not MetaClient.open(storage).timeline.of_actions(Action.RESTORE).instants
    assert read(storage) == before
