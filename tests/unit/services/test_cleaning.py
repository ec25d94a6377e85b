"""Cleaning: no retained answer changes, what nothing needs is gone, and a clean that died is finished by the next."""

from __future__ import annotations

import pytest

from lakebed.config.upkeep_options import CleanOptions, CleanPolicy
from lakebed.errors import InvalidRequest
from lakebed.format.names import parse_base_file, parse_log_file
from lakebed.model.actions import CleanMetadata, CleanPlan, SavepointMetadata
from lakebed.model.instant import Action, Instant
from lakebed.runner import SerialRunner
from lakebed.services.cleaning import clean, finish_cleans, is_clean_due, plan_clean
from lakebed.services.compaction import full_plan, run_compaction
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.open import open_storage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.clock import SystemClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.retention import whole_since
from lakebed.txn.transaction import Transaction, schedule
from lakebed.view.file_system_view import FileSystemView
from tests.simulation.write_cases import KINDS, SCHEMA, Rows, by_key, data, fill, read, serious, table_on
from tests.unit.services.crash_points import some_steps
from tests.unit.txn.tables import clone, txn_context_of
from tests.unit.write.tables import make, row, table

START_MS = 1_800_000_000_000
THREE = CleanOptions(commits=3)


class Steps:
    """A table that is written to again and again, and what it held after each write."""

    def __init__(self, kind: str) -> None:
        self.storage = MemoryStorage()
        self.clock = ManualClock(START_MS)
        self.rows = fill(self.storage, kind, txn_context_of(self.storage, self.clock))
        self.known: dict[str, Rows] = {}
        self.remember()

    def remember(self) -> None:
        write = MetaClient.open(self.storage).completed_writes()[-1]
        self.known[write.requested_time] = dict(self.rows)

    def upsert(self, number: int) -> None:
        self.clock.advance(1000)
        rows = [("k1", 10 + number, "p1", number), ("k2", 10 + number, "p0", -number), (f"n{number}", 1, "p1", number)]
        self.table().upsert(data(rows))  # type: ignore[arg-type]
        self.rows |= by_key(rows)  # type: ignore[arg-type]
        self.remember()

    def compact(self) -> None:
        self.clock.advance(1000)
        txn_context = txn_context_of(self.storage, self.clock)
        planned = schedule(
            MetaClient.open(self.storage),
            Action.COMPACTION,
            lambda fresh, _: full_plan(fresh, lambda _: True),
            txn_context,
        )
        assert planned is not None
        run_compaction(MetaClient.open(self.storage), planned, txn_context, SerialRunner())
        self.remember()

    def table(self):  # type: ignore[no-untyped-def]
        return table_on(self.storage, txn_context_of(self.storage, self.clock))

    def clean(self, options: CleanOptions = THREE, **more: bool) -> tuple[Instant, ...]:
        self.clock.advance(1000)
        client = MetaClient.open(self.storage)
        return clean(client, txn_context_of(self.storage, self.clock), options, **more)


def as_of(storage: Storage, requested_time: str) -> Rows:
    found = table_on(storage).scan(columns=SCHEMA.names, as_of=requested_time).to_arrow().to_pylist()
    return by_key([tuple(row.values()) for row in found])  # type: ignore[misc]


def data_files(storage: Storage) -> set[str]:
    names = ((info.path, info.name) for info in storage.list("", recursive=True))
    return {path for path, name in names if parse_log_file(name) or parse_base_file(name)}


def written(kind: str, writes: int = 8) -> Steps:
    steps = Steps(kind)
    for number in range(writes):
        steps.upsert(number)
        if kind != "cow" and number % 2:
            steps.compact()
    return steps


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options", [THREE, CleanOptions(CleanPolicy.FILE_VERSIONS, versions=2), CleanOptions(CleanPolicy.HOURS, hours=1)]
)
def test_every_retained_answer_stays(kind: str, options: CleanOptions) -> None:
    steps = written(kind)
    if options.policy is CleanPolicy.HOURS:
        steps.clock.advance(3_600_000)
        steps.upsert(50)
        steps.upsert(51)
    before = data_files(steps.storage)
    (done,) = steps.clean(options)
    gone = before - data_files(steps.storage)
    client = MetaClient.open(steps.storage)
    body = client.body(done)
    assert isinstance(body, CleanMetadata)
    assert gone
    assert {f"{p}/{name}" for p, found in body.partitions.items() for name in found.deleted} == gone
    assert read(steps.storage) == steps.rows
    since = whole_since(client)
    assert since is not None
    times = list(steps.known)
    whole = [requested_time for requested_time in times if (client.completion_time(requested_time) or "") >= since]
    for requested_time in whole:
        assert as_of(steps.storage, requested_time) == steps.known[requested_time]
    gone_before = f"no longer there.*The earliest instant that can be read is {whole[0]}"
    for requested_time in times[: times.index(whole[0])]:
        with pytest.raises(InvalidRequest, match=gone_before):
            as_of(steps.storage, requested_time)
    assert serious(steps.table().check()) == []
    assert steps.clean(options) == (), "nothing is left to take"
    if options.policy is CleanPolicy.COMMITS:
        assert times[-3] in whole
        plan = client.plan(done)
        assert isinstance(plan, CleanPlan)
        assert plan.earliest_to_retain is not None
        assert (plan.earliest_to_retain.time, body.earliest_to_retain) == (times[-3], times[-3])


@pytest.mark.parametrize("kind", ["mor-v2", "cow"])
def test_one_clean_after_another_by_partition(kind: str) -> None:
    """Cleaning the touched partitions each time takes what one clean of everything takes."""
    inline, whole = Steps(kind), Steps(kind)
    for number in range(6):
        for steps in (inline, whole):
            steps.upsert(number)
            if kind != "cow" and number % 2:
                steps.compact()
        if is_clean_due(MetaClient.open(inline.storage), THREE):
            inline.clean(incremental=True)
    whole.clean()
    assert read(inline.storage) == whole.rows
    kept = [len(data_files(steps.storage)) for steps in (inline, whole)]
    assert kept[0] == kept[1]


def test_replaced_groups_go_when_their_commit_leaves_the_range() -> None:
    steps = Steps("mor-v2")
    old = data_files(steps.storage)
    steps.clock.advance(1000)
    steps.table().overwrite(data([("a", 1, "p0", 1)]))
    steps.rows = by_key([("a", 1, "p0", 1)])
    steps.remember()
    for number in range(2):
        steps.upsert(number)
    assert steps.clean() == ()
    assert old <= data_files(steps.storage), "the state before the earliest retained write stays whole"
    steps.upsert(3)
    steps.clean()
    assert not old & data_files(steps.storage)
    assert read(steps.storage) == steps.rows


def test_what_a_savepoint_names_stays() -> None:
    steps = written("cow", 3)
    saved = MetaClient.open(steps.storage).completed_writes()[1]
    view = {path for path in data_files(steps.storage) if saved.requested_time in path}
    assert view
    files: dict[str, tuple[str, ...]] = {}
    for path in sorted(view):
        partition, _, name = path.rpartition("/")
        files[partition] = (*files.get(partition, ()), name)
    txn_context = txn_context_of(steps.storage, steps.clock)
    client = MetaClient.open(steps.storage)
    with Transaction.begin(client, Action.SAVEPOINT, txn_context, requested_time=saved.requested_time) as txn:
        txn.commit(SavepointMetadata("me", 0, "", files))
    for number in range(5):
        steps.upsert(number)
    steps.clean()
    assert view <= data_files(steps.storage)
    body = MetaClient.open(steps.storage).body(MetaClient.open(steps.storage).timeline.of_actions(Action.CLEAN).last)  # type: ignore[arg-type]
    assert isinstance(body, CleanMetadata)
    assert body.extra["savepointed_timestamps"] == saved.requested_time


def test_what_a_pending_compaction_needs_stays() -> None:
    steps = written("mor-v2", 4)
    txn_context = txn_context_of(steps.storage, steps.clock)
    client = MetaClient.open(steps.storage)
    steps.upsert(20)
    planned = schedule(client, Action.COMPACTION, lambda fresh, _: full_plan(fresh, lambda _: True), txn_context)
    assert planned is not None
    for number in range(30, 36):
        steps.upsert(number)
    steps.clean(CleanOptions(CleanPolicy.FILE_VERSIONS, versions=1))
    run_compaction(MetaClient.open(steps.storage), planned, txn_context, SerialRunner())
    assert read(steps.storage) == steps.rows


def test_a_write_under_way_keeps_the_state_it_began_with() -> None:
    steps = written("cow", 2)
    txn_context = txn_context_of(steps.storage, steps.clock)
    txn = Transaction.begin(MetaClient.open(steps.storage), Action.COMMIT, txn_context, operation="UPSERT")
    before = data_files(steps.storage)
    latest = {info for info in before if any(b in info for b in list(steps.known)[-1:])}
    options = CleanOptions(CleanPolicy.FILE_VERSIONS, versions=1)
    client = MetaClient.open(steps.storage)
    assert plan_clean(client, txn_context, CleanOptions(commits=10)) is None
    plan_clean(client, txn_context, options)
    finish_cleans(MetaClient.open(steps.storage), txn_context)
    assert latest <= data_files(steps.storage)
    txn.abort()


def test_files_of_lost_attempts_go() -> None:
    steps = written("cow", 4)
    name = next(path for path in sorted(data_files(steps.storage)) if list(steps.known)[-1] in path)
    folder, _, file = name.rpartition("/")
    parsed = parse_base_file(file)
    assert parsed is not None
    twin = f"{folder}/{file.replace(parsed.write_token, '7-7-7')}"
    steps.storage.put(twin, steps.storage.read(name))
    steps.clean()
    assert twin not in data_files(steps.storage)
    assert read(steps.storage) == steps.rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_every_step(kind: str) -> None:
    base = written(kind, 5)

    def run(storage: Storage, later: int = 5000) -> None:
        clean(MetaClient.open(storage), txn_context_of(storage, ManualClock(base.clock.ms + later)), THREE)

    trial = FaultyStorage(clone(base.storage))
    run(trial)
    wanted = data_files(trial)
    for step in some_steps(len(trial.ops)):
        storage = clone(base.storage)
        with pytest.raises(SimulatedCrash):
            run(FaultyStorage(storage, FaultPlan(crash_after=step)))
        assert read(storage) == base.rows
        requested_time = list(base.known)[-2]
        assert as_of(storage, requested_time) == base.known[requested_time]
        run(storage, 500_000)
        assert data_files(storage) == wanted
        client = MetaClient.open(storage)
        assert not client.timeline.pending.instants
        assert read(storage) == base.rows


def test_logs_that_a_log_compaction_covers_go_before_their_slice() -> None:
    steps = Steps("mor-v2")
    for number in range(4):
        steps.upsert(number)
    covered = {path for path in data_files(steps.storage) if parse_log_file(path.rpartition("/")[2])}
    steps.clock.advance(1000)
    assert steps.table().services.compact("log", options={"hoodie.log.compaction.blocks.threshold": "2"})
    assert MetaClient.open(steps.storage).log_compactions()
    steps.remember()
    for number in range(10, 13):
        steps.upsert(number)
    before = data_files(steps.storage)
    states = {requested_time: as_of(steps.storage, requested_time) for requested_time in list(steps.known)[-3:]}
    steps.clean()
    gone = before - data_files(steps.storage)
    assert gone
    assert gone <= covered
    assert read(steps.storage) == steps.rows
    assert {requested_time: as_of(steps.storage, requested_time) for requested_time in states} == states
    assert serious(steps.table().check()) == []
    steps.clock.advance(1000)
    steps.table().services.compact()
    assert read(steps.storage) == steps.rows


@pytest.mark.parametrize("options", [CleanOptions(commits=1), CleanOptions(policy=CleanPolicy.FILE_VERSIONS)])
def test_a_clean_of_a_lost_attempt_alone_takes_no_state_away(options: CleanOptions) -> None:
    """It took nothing that any state needs, so every state can still be asked for."""
    target = make(num_buckets=1, partition_by=None, properties={"hoodie.clean.automatic": "false"})
    for step in range(4):
        target.upsert(table(row("a", ts=step, v=step)))
    client = MetaClient.open(open_storage(target.url))
    first = next(file for file_slice in FileSystemView.of(client).slices("") for file in file_slice.files)
    lost = first.name.replace(first.write_token, "7-7-7")
    client.storage.put(lost, client.storage.read(first.path))
    begins = [instant.requested_time for instant in client.completed_writes()]
    txn_context = txn_context_of(client.storage, SystemClock())
    assert [file for done in clean(client, txn_context, options) for file in _deleted(client, done)] == [lost]
    assert whole_since(client.reload()) is None
    for step, requested_time in enumerate(begins):
        assert target.refresh().scan(as_of=requested_time).to_arrow()["v"].to_pylist() == [step]


def _deleted(client: MetaClient, done: Instant) -> list[str]:
    body = client.reload().body(done)
    assert isinstance(body, CleanMetadata)
    return [name for partition in body.partitions.values() for name in partition.deleted]
