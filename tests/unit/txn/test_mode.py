"""The concurrency mode belongs to the table: calls tighten it and never loosen it, and everybody finds it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import heartbeat_file
from lakebed.model.actions import CompactionPlan
from lakebed.model.instant import Action
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.lock_providers import HudiFileLock
from lakebed.txn.mode import change_mode, policy, record_mode, require_mode, table_mode, txn_context_for
from lakebed.txn.options import LOCK_PROVIDER, MODE, Concurrency, FailedWrites, LockKind, TxnOptions
from lakebed.txn.transaction import Transaction, schedule
from lakebed.txn.txn_context import TxnContext
from tests.unit.txn.tables import make_table, meanwhile, new_table, txn_context_of, write

SINGLE, OPTIMISTIC, NON_BLOCKING = Concurrency.SINGLE_WRITER, Concurrency.OPTIMISTIC, Concurrency.NON_BLOCKING
ORDERED = {"hoodie__table__ordering__fields": "ts"}
POLICY = "hoodie.clean.failed.writes.policy"


def table_of(mode: Concurrency = SINGLE) -> MemoryStorage:
    storage = new_table(**ORDERED)
    if mode.has_others:
        update_properties(storage, {MODE: mode.upper()})
    return storage


def mode_of(storage: MemoryStorage) -> Concurrency:
    return table_mode(MetaClient.open(storage).config)


def asking(storage: MemoryStorage, mode: Concurrency | None, **more: object) -> TxnContext:
    return txn_context_of(storage, options=TxnOptions(concurrency=mode, lock_wait_ms=1000, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "asked", "wanted"),
    [
        (SINGLE, None, SINGLE),
        (SINGLE, SINGLE, SINGLE),
        (SINGLE, OPTIMISTIC, OPTIMISTIC),
        (SINGLE, NON_BLOCKING, NON_BLOCKING),
        (OPTIMISTIC, None, OPTIMISTIC),
        (OPTIMISTIC, OPTIMISTIC, OPTIMISTIC),
        (OPTIMISTIC, SINGLE, None),
        (OPTIMISTIC, NON_BLOCKING, None),
        (NON_BLOCKING, None, NON_BLOCKING),
        (NON_BLOCKING, OPTIMISTIC, None),
        (NON_BLOCKING, SINGLE, None),
    ],
)
def test_a_call_may_tighten_and_not_loosen(
    table: Concurrency, asked: Concurrency | None, wanted: Concurrency | None
) -> None:
    storage = table_of(table)
    if wanted is None:
        with pytest.raises(InvalidRequest, match="concurrency mode is") as refused:
            write(storage, asking(storage, asked))
        assert "set_concurrency" in str(refused.value), "the way out is told"
        assert mode_of(storage) is table
        assert not MetaClient.open(storage).timeline.instants
    else:
        write(storage, asking(storage, asked))
        assert mode_of(storage) is wanted
    stated = MetaClient.open(storage).config.properties.get(MODE)
    assert stated == (None if mode_of(storage) is SINGLE else mode_of(storage).upper()), "in Hudi's own words"


def test_the_mode_is_kept_before_the_write_begins() -> None:
    storage = table_of()
    with Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, asking(storage, OPTIMISTIC)):
        assert mode_of(storage) is OPTIMISTIC
        properties = MetaClient.open(storage).config.properties
        assert properties[LOCK_PROVIDER] == "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"


@pytest.mark.parametrize("asked", [None, SINGLE])
def test_a_process_that_opened_the_table_earlier_notices(asked: Concurrency | None) -> None:
    storage = table_of()
    early, txn_context = MetaClient.open(storage), asking(storage, asked)
    running = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, asking(storage, OPTIMISTIC))
    if asked is SINGLE:
        with pytest.raises(InvalidRequest, match="concurrency mode is"):
            Transaction.begin(early, Action.DELTA_COMMIT, txn_context)
    else:
        Transaction.begin(early, Action.DELTA_COMMIT, txn_context).abort()
    assert MetaClient.open(storage).timeline.find(running.requested_time) is not None
    assert storage.stat(heartbeat_file(running.requested_time)) is not None
    running.abort()


def begun_by_another(storage: MemoryStorage, found: list[Transaction]) -> Callable[[], object]:
    def begin() -> None:
        found.append(Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, asking(storage, OPTIMISTIC)))

    return begin


def test_a_mode_that_is_tightened_just_before_a_single_writer_undoes_a_write() -> None:
    """The mode was read, then the timeline: a writer that had the mode kept in between is in that timeline."""
    storage, others = table_of(), list[Transaction]()
    begun_by_another(storage, others)()
    stale = table_of()
    txn_context = asking(storage, None)
    client = MetaClient.open(storage)
    as_read = replace(client, config=MetaClient.open(stale).config)
    assert policy(as_read.config, txn_context) is FailedWrites.EAGER
    clean_up(as_read, txn_context)
    assert MetaClient.open(storage).timeline.pending.instants == (others[0].instant,)
    assert storage.stat(heartbeat_file(others[0].requested_time)) is not None
    others[0].abort()


def test_a_claim_of_a_writer_that_tightened_the_mode_is_not_swept_up() -> None:
    storage = table_of()
    requested_time = "20260101000000000"

    def claim() -> None:
        record_mode(storage, asking(storage, OPTIMISTIC))

    assert storage.put_if_absent(heartbeat_file(requested_time), b"")
    clean_up(MetaClient.open(storage), meanwhile(asking(storage, None), claim))
    assert storage.stat(heartbeat_file(requested_time)) is not None


def test_a_plan_that_another_runs_since_the_mode_was_tightened_is_not_taken_over() -> None:
    storage = table_of()
    early = MetaClient.open(storage)
    txn_context = asking(storage, None)
    planned = schedule(early, Action.COMPACTION, lambda _c, _b: CompactionPlan(()), txn_context)
    assert planned is not None
    early = early.reload()
    theirs = Transaction.resume(MetaClient.open(storage), planned, asking(storage, OPTIMISTIC))
    with pytest.raises(ConflictError, match="being run by another"):
        Transaction.resume(early, planned, txn_context)
    theirs.abort()


def test_a_tightening_that_comes_too_late_is_refused_under_the_lock() -> None:
    storage = table_of()

    def other() -> None:
        record_mode(storage, asking(storage, NON_BLOCKING))

    with pytest.raises(InvalidRequest, match="two kinds of writers"):
        record_mode(storage, meanwhile(asking(storage, OPTIMISTIC), other))
    assert mode_of(storage) is NON_BLOCKING


def test_writers_that_do_not_wait_need_an_ordering_field() -> None:
    storage = new_table()
    with pytest.raises(InvalidRequest, match="ordering field"):
        record_mode(storage, asking(storage, NON_BLOCKING))
    assert mode_of(storage) is SINGLE


# ------------------------------------------------------------------ what follows from the mode
@pytest.mark.parametrize("asked", [None, *FailedWrites])
def test_when_failed_writes_are_undone(asked: FailedWrites | None) -> None:
    alone, several = table_of(), table_of(OPTIMISTIC)
    config = MetaClient.open(alone).config
    assert policy(config, asking(alone, None, failed_writes=asked)) is (asked or FailedWrites.EAGER)
    config, txn_context = MetaClient.open(several).config, asking(several, None, failed_writes=asked)
    if asked is FailedWrites.EAGER:
        with pytest.raises(InvalidRequest, match="running writes of others"):
            require_mode(config, txn_context)
        with pytest.raises(InvalidRequest, match="running writes of others"):
            write(several, txn_context)
    else:
        require_mode(config, txn_context)
    assert policy(config, txn_context) is (FailedWrites.NEVER if asked is FailedWrites.NEVER else FailedWrites.LAZY)


def test_a_policy_that_the_table_kept_from_its_days_with_one_writer() -> None:
    storage = table_of()
    update_properties(storage, {POLICY: "EAGER"})
    assert policy(MetaClient.open(storage).config, txn_context_for(MetaClient.open(storage), {})) is FailedWrites.EAGER
    given = {MODE: "optimistic_concurrency_control"}
    txn_context = txn_context_for(MetaClient.open(storage), given)
    assert txn_context.options.failed_writes is None
    with pytest.raises(InvalidRequest, match="running writes of others"):
        txn_context_for(MetaClient.open(storage), {**given, POLICY: "EAGER"})


def test_the_lock_of_several_writers_is_the_table_s(tmp_path: object) -> None:
    storage = table_of()
    record_mode(storage, asking(storage, OPTIMISTIC))
    client = MetaClient.open(storage)
    assert txn_context_for(client, {LOCK_PROVIDER: "storage"}).options.lock_provider == LockKind.STORAGE
    with pytest.raises(InvalidRequest, match="kept apart by"):
        txn_context_for(client, {LOCK_PROVIDER: "in_process"})
    alone = MetaClient.open(table_of())
    assert txn_context_for(alone, {LOCK_PROVIDER: "in_process"}).options.lock_provider == LockKind.IN_PROCESS


def test_a_local_table_that_hudi_writes_gets_a_lock_that_hudi_takes(tmp_path: object) -> None:
    storage = LocalStorage(str(tmp_path))
    make_table(storage)
    txn_context = txn_context_for(MetaClient.open(storage), {MODE: "Optimistic_Concurrency_Control"})
    assert isinstance(txn_context.lock, HudiFileLock)
    record_mode(storage, txn_context)
    client = MetaClient.open(storage)
    assert client.config.properties[LOCK_PROVIDER].endswith(".FileSystemBasedLockProvider")
    assert isinstance(txn_context_for(client, {}).lock, HudiFileLock), "whoever comes later takes it as well"


def test_options_of_a_call_come_on_top_of_what_a_door_put_in() -> None:
    storage = table_of()
    base = txn_context_of(storage, ManualClock(5))
    client = MetaClient.open(storage)
    assert txn_context_for(client, {}, base) == base
    changed = txn_context_for(
        client, {"hoodie.write.lock.wait_time_ms": "7", "hoodie.parquet.max.file.size": "1"}, base
    )
    assert changed.options.lock_wait_ms == 7
    assert changed.clock is base.clock
    assert changed.lock != base.lock
    waiting = txn_context_for(client, {"hoodie.client.heartbeat.interval_in_ms": "9"}, base)
    assert (waiting.options.heartbeat_interval_ms, waiting.lock) == (9, base.lock)


# ------------------------------------------------------------------ on purpose
def test_the_mode_is_changed_on_purpose_when_nobody_writes() -> None:
    storage = table_of()
    txn_context = asking(storage, None)
    running = Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, asking(storage, OPTIMISTIC))
    for mode in (SINGLE, NON_BLOCKING):
        with pytest.raises(ConflictError, match=f"{running.requested_time} is under way"):
            change_mode(MetaClient.open(storage), txn_context, mode)
    assert mode_of(storage) is OPTIMISTIC
    running.abort()
    assert table_mode(change_mode(MetaClient.open(storage), txn_context, NON_BLOCKING).config) is NON_BLOCKING
    found = change_mode(MetaClient.open(storage), txn_context, SINGLE)
    assert not {MODE, LOCK_PROVIDER} & found.config.properties.keys()
    write(storage, asking(storage, SINGLE))


def test_a_mode_that_nobody_knows() -> None:
    storage = table_of()
    update_properties(storage, {MODE: "ANARCHY"})
    with pytest.raises(InvalidRequest, match="ANARCHY"):
        write(storage, asking(storage, None))
