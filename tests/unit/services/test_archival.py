"""Archiving: no answer changes, the history holds everything, and a round that died is finished by the next."""

from __future__ import annotations

from functools import cache

import pytest

from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions
from lakebed.errors import InvalidRequest
from lakebed.format.names import HISTORY_DIR
from lakebed.model.actions import CleanMetadata, CommitMetadata
from lakebed.model.instant import Action, Instant
from lakebed.services.archival import archive
from lakebed.services.cleaning import clean
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.transaction import Transaction
from tests.simulation.write_cases import KINDS, SCHEMA, Rows, by_key, data, fill, read, serious, table_on
from tests.unit.services.crash_points import some_steps
from tests.unit.txn.tables import clone, txn_context_of

START_MS = 1_800_000_000_000
SMALL = ArchiveOptions(max_commits=6, min_commits=3, batch=3)
NO_UPKEEP = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def upsert(storage: Storage, number: int) -> None:
    clock = ManualClock(START_MS + 1000 * (number + 1))
    rows = [("k1", 10 + number, "p1", number), (f"n{number}", 1, "p0", number)]
    table_on(storage, txn_context_of(storage, clock)).upsert(data(rows), options=NO_UPKEEP)  # type: ignore[arg-type]


@cache
def written(kind: str, writes: int = 8) -> tuple[MemoryStorage, Rows]:
    storage = MemoryStorage()
    rows = dict(fill(storage, kind, txn_context_of(storage, ManualClock(START_MS))))
    for number in range(writes):
        upsert(storage, number)
        rows |= by_key([("k1", 10 + number, "p1", number), (f"n{number}", 1, "p0", number)])
    return storage, rows


def later(storage: Storage, ms: int = 100_000):  # type: ignore[no-untyped-def]
    return txn_context_of(storage, ManualClock(START_MS + ms))


def run(storage: Storage, options: ArchiveOptions = SMALL, ms: int = 100_000) -> tuple[Instant, ...]:
    return archive(MetaClient.open(storage), later(storage, ms), options)


def everything(storage: Storage) -> list[Instant]:
    return sorted(MetaClient.open(storage).full_timeline.completed, key=str)


def as_of(storage: Storage, requested_time: str) -> Rows:
    found = table_on(storage).scan(columns=SCHEMA.names, as_of=requested_time).to_arrow().to_pylist()
    return by_key([tuple(row.values()) for row in found])  # type: ignore[misc]


def changes(storage: Storage) -> list[str]:
    found = table_on(storage).incremental("0", columns=["id", "v", "_hoodie_commit_time"]).to_arrow()
    return sorted(map(str, found.to_pylist()))


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_changes(kind: str) -> None:
    base, rows = written(kind)
    storage = clone(base)
    before, wanted = everything(storage), changes(storage)
    begins = [i.requested_time for i in MetaClient.open(storage).completed_writes()]
    states = {requested_time: as_of(storage, requested_time) for requested_time in begins}
    bodies = {i: MetaClient.open(storage).body(i) for i in before}
    gone = run(storage)
    assert len(gone) == 7
    client = MetaClient.open(storage)
    assert [i.requested_time for i in client.completed_writes()] == begins[-3:]
    assert len(client.active.files) == 9
    assert everything(storage) == before
    assert read(storage) == rows
    assert changes(storage) == wanted
    assert {requested_time: as_of(storage, requested_time) for requested_time in begins} == states
    assert {i: client.body(i) for i in before} == bodies
    assert serious(table_on(storage).check()) == []
    assert run(storage) == ()
    upsert(storage, 200)
    assert read(storage) == rows | by_key([("k1", 210, "p1", 200), ("n200", 1, "p0", 200)])
    with pytest.raises(InvalidRequest, match="no commit yet"):
        as_of(storage, "20200101000000000")


def test_levels_versions_and_rounds() -> None:
    base, rows = written("mor-v2", 2)
    storage = clone(base)
    options = ArchiveOptions(max_commits=2, min_commits=1, batch=3)
    for number in range(10, 32):
        upsert(storage, number)
        run(storage, options, 100_000 + 1000 * number)
        assert len(MetaClient.open(storage).completed_writes()) <= 2
    names = sorted(info.name for info in storage.list(HISTORY_DIR))
    history = MetaClient.open(storage).history
    assert max(file.name.level for file in history.files if file.name) == 2
    assert len([n for n in names if n.startswith("manifest_")]) <= 8
    assert len([n for n in names if n.endswith(".parquet")]) <= len(history.files) + 12
    assert len(history.timeline()) == len(everything(storage)) - len(MetaClient.open(storage).timeline.completed)
    found = history.loaded()
    assert found["requested_time"].to_pylist() == sorted(found["requested_time"].to_pylist())
    assert len(read(storage) or {}) == len(rows) + 22


def test_readers_of_an_older_version_go_on() -> None:
    """A history that was opened before two more rounds with merges still reads all its files."""
    base, _ = written("mor-v2", 2)
    storage = clone(base)
    options = ArchiveOptions(max_commits=2, min_commits=1, batch=2)
    for number in range(10, 15):
        upsert(storage, number)
        run(storage, options, 100_000 + 1000 * number)
        old = MetaClient.open(storage)
        assert old.history.version
        for more in (1, 2):
            copied = clone(storage)
            stale = MetaClient.open(copied)
            files = stale.history.files
            for again in range(more):
                upsert(copied, 500 + again)
                run(copied, options, 700_000 + 1000 * again)
            assert files == stale.history.files
            assert stale.history.loaded().num_rows == len(stale.history.timeline())


def test_savepoints_pending_and_cleans_hold_it_back() -> None:
    base, _ = written("cow")
    begins = [i.requested_time for i in MetaClient.open(base).completed_writes()]

    storage = clone(base)
    table_on(storage, later(storage)).services  # noqa: B018 (a table with all doors still opens)
    with Transaction.begin(MetaClient.open(storage), Action.SAVEPOINT, later(storage), requested_time=begins[2]) as txn:
        from lakebed.model.actions import SavepointMetadata

        txn.commit(SavepointMetadata("me", 0, "", {}))
    assert [i.requested_time for i in run(storage)] == begins[:2]
    gone = run(storage, ArchiveOptions(max_commits=6, min_commits=3, beyond_savepoint=True))
    assert [i.requested_time for i in gone] == begins[3:7]

    storage = clone(base)
    clean(MetaClient.open(storage), later(storage), CleanOptions(commits=6))
    assert [i.requested_time for i in run(storage, ms=200_000)] == begins[:4]
    client = MetaClient.open(storage)
    assert isinstance(client.body(client.timeline.of_actions(Action.CLEAN).instants[-1]), CleanMetadata)

    storage = clone(base)
    Transaction.begin(MetaClient.open(storage), Action.COMMIT, later(storage), operation="UPSERT")
    pending = MetaClient.open(storage).timeline.pending.instants[0].requested_time
    assert len(run(storage, ms=200_000)) == 7
    assert pending in {i.requested_time for i in MetaClient.open(storage).timeline}


def test_a_replacing_commit_stays_until_what_it_replaced_is_gone() -> None:
    base, _ = written("mor-v2", 2)
    storage = clone(base)
    txn_context = txn_context_of(storage, ManualClock(START_MS + 50_000))
    table_on(storage, txn_context).overwrite(data([("a", 1, "p0", 1)]), options=NO_UPKEEP)
    replaced = MetaClient.open(storage).completed_writes()[-1].requested_time
    for number in range(60, 70):
        upsert(storage, number)
    rows = read(storage)
    assert max(i.requested_time for i in run(storage)) < replaced
    clean(MetaClient.open(storage), later(storage, 200_000), CleanOptions(commits=3))
    assert replaced in {i.requested_time for i in run(storage, ms=300_000)}
    assert read(storage) == rows


def test_files_that_no_commit_names_are_gone_before_their_begin_counts() -> None:
    base, rows = written("cow")
    storage = clone(base)
    client = MetaClient.open(storage)
    second = client.completed_writes()[1].requested_time
    named = next(i.path for i in storage.list("", recursive=True) if f"_{second}.parquet" in i.path)
    twin = named.replace("_0-0-", "_9-9-")
    orphan = named.replace(second, str(int(second) + 1))
    for path in (twin, orphan):
        storage.put(path, storage.read(named))
    assert read(storage) == rows
    run(storage)
    assert storage.stat(twin) is None
    assert storage.stat(orphan) is None
    assert storage.stat(named) is not None
    assert read(storage) == rows


@pytest.mark.parametrize("kind", ["mor-v2", "cow"])
def test_a_crash_at_every_step(kind: str) -> None:
    base, rows = written(kind)
    base = clone(base)
    options = ArchiveOptions(max_commits=5, min_commits=4, batch=2)
    run(base, ArchiveOptions(max_commits=8, min_commits=7, batch=2))
    upsert(base, 300)
    rows = rows | by_key([("k1", 310, "p1", 300), ("n300", 1, "p0", 300)])
    before, wanted = everything(base), changes(base)
    trial = FaultyStorage(clone(base))
    run(trial, options, 400_000)
    assert len(trial.ops) > 20
    for step in some_steps(len(trial.ops)):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            run(FaultyStorage(storage, FaultPlan(crash_after=step)), options, 400_000)
        assert everything(storage) == before, step
        assert read(storage) == rows, step
        assert changes(storage) == wanted, step
        run(storage, options, 900_000)
        client = MetaClient.open(storage)
        assert len(client.completed_writes()) == 4
        assert not client.timeline.pending.instants
        assert everything(storage) == before, step
        assert read(storage) == rows, step
        assert len(client.history.timeline()) == client.history.loaded().num_rows
        assert client.history.loaded().num_rows == len(before) - 4


def test_archived_actions_keep_their_plans() -> None:
    base, _ = written("mor-v2")
    storage = clone(base)
    txn_context = later(storage)
    table_on(storage, txn_context).services.compact()
    compacted = MetaClient.open(storage).timeline.completed.of_actions(Action.COMMIT).instants[-1]
    plan = MetaClient.open(storage).plan(compacted)
    for number in range(200, 210):
        upsert(storage, number)
    assert compacted in run(storage, ms=900_000)
    client = MetaClient.open(storage)
    assert client.plan(compacted) == plan is not None
    assert isinstance(client.body(compacted), CommitMetadata)
