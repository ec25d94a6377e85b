"""From version 9 to 10 and back: no row changes, nothing is left that a version 9 reader would misread."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import parse_log_file
from lakebed.model.actions import ClusteringPlan, RequestedReplace, SavepointMetadata
from lakebed.model.finding import Severity
from lakebed.model.instant import Action
from lakebed.runner import SerialRunner
from lakebed.services.upgrade import downgrade, native_logs, upgrade
from lakebed.storage.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.options import Concurrency, TxnOptions
from lakebed.txn.transaction import Transaction, schedule
from lakebed.view.file_system_view import FileSystemView
from tests.simulation.write_cases import Rows, check_recovered, data, fill, leftovers, read, serious, table_on
from tests.unit.txn.tables import clone, control_of, metadata_of

START_MS = 1_800_000_000_000


def filled(kind: str = "mor-v2") -> tuple[MemoryStorage, Rows]:
    storage = MemoryStorage()
    rows = fill(storage, kind, control_of(storage, ManualClock(START_MS)))
    table = table_on(storage, control_of(storage, ManualClock(START_MS + 1000)))
    table.delete(keys=[{"id": "k0", "p": "p0"}])
    return storage, {key: row for key, row in rows.items() if key != "k0"}


def down(storage: Storage, clock_ms: int = START_MS + 10_000, options: TxnOptions | None = None) -> None:
    control = control_of(storage, ManualClock(clock_ms), options)
    downgrade(MetaClient.open(storage), control, 9, SerialRunner())


def test_a_table_without_native_logs_comes_out_of_a_downgrade() -> None:
    storage, rows = filled()
    assert native_logs(MetaClient.open(storage))
    down(storage)
    client = MetaClient.open(storage)
    assert int(client.config.version) == 9
    assert client.config.properties["hoodie.table.initial.version"] == "9"
    assert "lakebed.format.draft" not in client.config.properties
    assert client.config.is_lsm_tree, "sortedness is a fact of the files"
    assert not any(log.native for info in storage.list("", recursive=True) if (log := parse_log_file(info.name)))
    assert read(storage) == rows
    assert serious(table_on(storage).check()) == []
    words = [(instant.action, instant.is_completed) for instant in client.timeline.in_completion_order()[-2:]]
    assert words == [(Action.COMMIT, True), (Action.CLEAN, True)]
    commit = client.commit(client.completed_writes()[-1].requested_time)
    assert commit is not None
    assert (commit.operation, commit.compacted) == ("COMPACT", True)


def test_rows_keep_who_wrote_them() -> None:
    storage, _ = filled()
    columns = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno"]

    def stamps() -> list[str]:
        return sorted(map(str, table_on(storage).scan(columns=columns).to_arrow().to_pylist()))

    before = stamps()
    down(storage)
    assert stamps() == before


def test_writing_goes_on_in_the_new_version() -> None:
    storage, rows = filled()
    down(storage)
    later = control_of(storage, ManualClock(START_MS + 20_000))
    check_recovered(storage, set(), rows, later)
    table_on(storage, later).upsert(data([("k1", 8, "p1", 8)]))
    assert not native_logs(MetaClient.open(storage))
    upgrade(MetaClient.open(storage), later, 10)
    table_on(storage, later).upsert(data([("k1", 9, "p1", 1)]))
    client = MetaClient.open(storage)
    assert int(client.config.version) == 10
    assert client.config.properties["lakebed.format.draft"] == "1"
    assert native_logs(client)
    kinds = {log.native for p in ("p=p0", "p=p1") for s in FileSystemView.of(client).slices(p) for log in s.log_files}
    assert kinds == {True, False}, "inline logs of version 9 and native ones side by side"
    found = read(storage)
    assert found is not None
    assert found["k1"] == ("k1", 9, "p1", 1)


def test_time_travel_to_before_the_downgrade_is_refused() -> None:
    storage, _ = filled()
    begin = MetaClient.open(storage).completed_writes()[1].requested_time
    assert table_on(storage).scan(as_of=begin).count()
    down(storage)
    with pytest.raises(InvalidRequest):
        table_on(storage).scan(as_of=begin).count()


def test_a_crash_at_every_step_of_a_downgrade() -> None:
    base, rows = filled()
    trial = FaultyStorage(clone(base))
    down(trial)
    assert len(trial.ops) > 30
    for step in range(1, len(trial.ops) + 1, 3):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            down(FaultyStorage(storage, FaultPlan(crash_after=step)))
        assert read(storage) == rows
        if int(MetaClient.open(storage).config.version) == 9:
            assert not native_logs(MetaClient.open(storage))
        down(storage, START_MS + 500_000)
        assert int(MetaClient.open(storage).config.version) == 9
        assert not native_logs(MetaClient.open(storage))
        assert read(storage) == rows
        assert [item for item in table_on(storage).check() if item.severity is not Severity.INFO] == []
        check_recovered(storage, set(), rows, control_of(storage, ManualClock(START_MS + 600_000)))


def test_a_writer_that_is_at_work_is_not_disturbed() -> None:
    storage, rows = filled()
    several = TxnOptions(concurrency=Concurrency.OPTIMISTIC, lock_wait_ms=1000)
    slow = control_of(storage, ManualClock(START_MS + 5000), several)
    with (
        Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, slow),
        pytest.raises(ConflictError, match="under way"),
    ):
        down(storage, options=several)
    assert int(MetaClient.open(storage).config.version) == 10
    assert read(storage) == rows


def test_a_version_that_changes_under_a_writer() -> None:
    storage, _ = filled("mor-v1")
    slow = control_of(storage, ManualClock(START_MS + 5000))
    with (
        pytest.raises(ConflictError, match="from version 9 to 10"),
        Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, slow) as txn,
    ):
        upgrade(MetaClient.open(storage), control_of(storage, ManualClock(START_MS + 6000)), 10)
        txn.commit(metadata_of({}))
    assert not MetaClient.open(storage).timeline.pending.instants
    assert leftovers(storage) == []


def test_what_is_refused() -> None:
    storage, _ = filled()
    client, control = MetaClient.open(storage), control_of(storage, ManualClock(START_MS + 10_000))
    for to in (8, 6):
        with pytest.raises(InvalidRequest, match="between 9 and 10"):
            downgrade(client, control, to, SerialRunner())
    with pytest.raises(InvalidRequest, match="no table version 11"):
        upgrade(client, control, 11)
    with pytest.raises(InvalidRequest, match="Use downgrade"):
        upgrade(client, control, 9)
    assert upgrade(client, control, 10) is client, "nothing to do"
    held = {partition: tuple(names) for partition, names in native_logs(client).items()}
    with Transaction.begin(
        client, Action.SAVEPOINT, control, begin_time=client.completed_writes()[-1].requested_time
    ) as t:
        t.commit(SavepointMetadata("me", 0, "", held))
    with pytest.raises(InvalidRequest, match="savepoint"):
        down(storage)
    assert int(MetaClient.open(storage).config.version) == 10


def test_plans_of_others_must_be_run_first() -> None:
    storage, _ = filled()
    control = control_of(storage, ManualClock(START_MS + 10_000))
    plan = RequestedReplace("CLUSTER", ClusteringPlan(()))
    assert schedule(MetaClient.open(storage), Action.CLUSTERING, lambda _c, _b: plan, control) is not None
    with pytest.raises(ConflictError, match="clustering"):
        down(storage, START_MS + 20_000)


def test_the_side_door(tmp_path: Path) -> None:
    rows = fill(LocalStorage(tmp_path / "t"), "mor-v2")
    table = lakebed.open(tmp_path / "t")
    table.services.downgrade(to=9)
    assert int(table.config.version) == 9
    table.services.upgrade(to=10)
    assert int(table.config.version) == 10
    assert read(LocalStorage(tmp_path / "t")) == rows
    shutil.rmtree(tmp_path / "t")
