"""Undoing writes of a table from before version 8: their blocks stay, and a command behind them takes them back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakebed
from lakebed.datafile.log_file import open_log_file
from lakebed.datafile.log_scan import LogScan, Why, scan_slice
from lakebed.model.actions import RestoreMetadata, RollbackMetadata
from lakebed.services.restore import rollback
from lakebed.storage.local import LocalStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.log_rollback import take_back_blocks
from lakebed.txn.txn_context import TxnContext
from tests.golden.upgraded import COLUMNS, COMPACTION, WRITES, hudis, ours, shared_logs, unpack_upgraded
from tests.unit.txn.tables import txn_context_of


@pytest.fixture
def upgraded(tmp_path: Path) -> Path:
    """Set back to before the compaction of the upgrade."""
    path = unpack_upgraded(tmp_path)
    services = lakebed.open(path).services
    for requested_time in (WRITES[3], COMPACTION):
        services.rollback(requested_time)
    return path


def at(storage: Storage, seconds: int) -> TxnContext:
    return txn_context_of(storage, ManualClock(1_800_000_000_000 + 1000 * seconds))


def as_hudi_scans(path: Path) -> LogScan:
    """The slice of the first write as a reader of version 9 takes it: every block of a committed name counts."""
    storage = LocalStorage(path)
    logs = [open_log_file(storage, log.relative_to(path).as_posix()) for log in shared_logs(path)]
    return scan_slice(logs, lambda _: True, base_instant_time=WRITES[0])


def test_a_write_is_taken_back_by_a_command(upgraded: Path) -> None:
    assert ours(upgraded) == hudis(upgraded, WRITES[2])
    before = shared_logs(upgraded)
    done = lakebed.open(upgraded).services.rollback(WRITES[2])
    assert done is not None
    assert ours(upgraded) == hudis(upgraded, WRITES[1])
    [command] = set(shared_logs(upgraded)) - set(before)
    scan = as_hudi_scans(upgraded)
    assert [run.requested_time for run in scan.runs] == [WRITES[1]]
    assert [item.block.requested_time for item in scan.dropped if item.why is Why.ROLLED_BACK] == [WRITES[2]]
    body = MetaClient.open(LocalStorage(upgraded)).body(done)
    assert isinstance(body, RollbackMetadata)
    assert body.partitions["p0"].rollback_logs == {str(command): command.stat().st_size}
    assert body.total_files_deleted == 0
    assert lakebed.open(upgraded).check() == []


def test_a_table_goes_on_after_it(upgraded: Path) -> None:
    for requested_time in (WRITES[2], WRITES[1]):
        lakebed.open(upgraded).services.rollback(requested_time)
    assert as_hudi_scans(upgraded).runs == ()
    first = hudis(upgraded, WRITES[0])
    assert ours(upgraded) == first
    table = lakebed.open(upgraded, num_buckets=1)
    table.upsert(table.scan(columns=COLUMNS).to_arrow().slice(0, 1))
    assert ours(upgraded) == first
    table.services.compact()
    assert ours(upgraded) == first


def test_one_of_two_writes_in_a_log(upgraded: Path) -> None:
    first, second = shared_logs(upgraded)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.write_bytes(b"\0" * second.stat().st_size)  # its block is in the first
    table = lakebed.open(upgraded, num_buckets=1)
    table.services.rollback(WRITES[2])
    assert ours(upgraded) == hudis(upgraded, WRITES[1])
    assert [run.requested_time for run in as_hudi_scans(upgraded).runs] == [WRITES[1]]
    table.services.clean({"hoodie.clean.commits.retained": "1"})
    assert shared_logs(upgraded)[-1].name.endswith(".log.3_1-0-1"), "the command is part of the slice"
    table.services.compact()
    assert ours(upgraded) == hudis(upgraded, WRITES[1]), "a compaction heeds the command"
    assert table.check() == []


def test_a_restore_takes_back_blocks(tmp_path: Path) -> None:
    path = unpack_upgraded(tmp_path)
    services = lakebed.open(path).services
    services.savepoint(instant=WRITES[0])
    done = lakebed.open(path).services.restore()
    assert ours(path) == hudis(path, WRITES[0])
    assert as_hudi_scans(path).runs == ()
    body = MetaClient.open(LocalStorage(path)).body(done)
    assert isinstance(body, RestoreMetadata)
    commands = {requested_time: report.partitions for requested_time, (report,) in body.rollbacks.items()}
    assert [
        requested_time for requested_time, done in commands.items() if any(part.rollback_logs for part in done.values())
    ] == [
        WRITES[2],
        WRITES[1],
    ]


def test_a_crash_at_every_step(upgraded: Path) -> None:
    trial = FaultyStorage(LocalStorage(shutil.copytree(upgraded, upgraded.parent / "trial")))
    rollback(MetaClient.open(trial), at(trial, 0), WRITES[2])
    states = [hudis(upgraded, WRITES[2]), hudis(upgraded, WRITES[1])]
    seen = []
    for step in range(1, len(trial.ops) + 1):
        copy = Path(shutil.copytree(upgraded, upgraded.parent / f"copy-{step}"))
        faulty = FaultyStorage(LocalStorage(copy), FaultPlan(crash_after=step))
        with pytest.raises(SimulatedCrash):
            rollback(MetaClient.open(faulty), at(faulty, 0), WRITES[2])
        seen.append(states.index(ours(copy)))
        if not seen[-1]:
            continue
        client = clean_up(MetaClient.open(faulty.inner), at(faulty.inner, 900))  # as the next write does
        assert not client.timeline.pending.instants, step
        assert ours(copy) == states[1], step
        assert [run.requested_time for run in as_hudi_scans(copy).runs] == [WRITES[1]], step
        assert len(shared_logs(copy)) == 3, step
    assert seen == sorted(seen)
    assert set(seen) == {0, 1}


def test_a_name_that_another_took(upgraded: Path) -> None:
    storage = LocalStorage(upgraded)
    paths = [path.relative_to(upgraded).as_posix() for path in shared_logs(upgraded)]
    [command] = take_back_blocks(storage, paths, WRITES[2], "20300101000000000")
    assert take_back_blocks(storage, [*paths, command], WRITES[2], "20300101000000000") == {}
    [behind] = take_back_blocks(storage, paths, WRITES[2], "20300101000000001")  # listed before the first was there
    assert command.endswith(".log.3_1-0-1")
    assert behind.endswith(".log.4_1-0-1")


def test_tables_of_today_are_not_searched(upgraded: Path) -> None:
    properties = upgraded / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("initial.version=6", "initial.version=8"))
    before = shared_logs(upgraded)
    lakebed.open(upgraded).services.rollback(WRITES[2])
    assert shared_logs(upgraded) == before
