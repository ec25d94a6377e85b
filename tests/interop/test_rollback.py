"""Failed writes across the two programs: real Hudi undoes what lakebed left, and lakebed what real Hudi left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.names import BaseFileName, LogFileName, parse_base_file, parse_log_file
from lakebed.model.actions import ActionBody
from lakebed.model.instant import Action, Instant
from lakebed.storage.local import LocalStorage
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.failed_writes import clean_up
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext
from lakebed.view.file_system_view import FileSystemView
from tests.conftest import expected
from tests.golden import upgraded

from .client import HudiPeer
from .hudi_writer import BUCKETS, NO_CLEANING, NO_METADATA, upsert_options
from .plain_rows import SCHEMA, in_order
from .plain_rows import rows as plain_rows

pytestmark = pytest.mark.interop

WIDER = SCHEMA.append(pa.field("txt", pa.string())).append(pa.field("d", pa.float64()))
COLUMNS = WIDER.names
FAILED = {
    "cow_failed_pending_v9": {},
    "mor_failed_pending_v9": BUCKETS,
    "cow_failed_tlmarkers_v9": {},
}
NEW = ["new", 9, "p0", 1, "new", 1.0]


def options(name: str, table_type: str, **more: str) -> dict[str, str]:
    return upsert_options(name, table_type, **NO_CLEANING, **more)


def rows(*given: list[Any]) -> pa.Table:
    return plain_rows(*given, schema=WIDER)


def files_of(table: Path, requested_time: str) -> set[str]:
    found = (path.relative_to(table).as_posix() for path in table.rglob("*") if path.is_file())
    inside = {path for path in found if requested_time in path and not path.endswith(".crc")}
    return {path for path in inside if not path.startswith(".hoodie/metadata/")}


class NeverCalled:
    """Stands in for a metadata writer where the write dies before it would be needed."""

    def __call__(self, client: MetaClient, instant: Instant, body: ActionBody) -> str | None:
        raise AssertionError("the commit was not to be reached")


def die_writing(table: Path, action: Action) -> str:
    """A lakebed write that announced itself, marked and wrote files of existing groups, and then was gone."""
    storage = LocalStorage(table)
    txn_context = TxnContext.of(storage, before_publish=NeverCalled())
    txn = Transaction.begin(MetaClient.open(storage), action, txn_context, operation="UPSERT")
    view = FileSystemView.of(txn.snapshot)
    for partition in view.partitions():
        for file_slice in view.slices(partition):
            source = file_slice.log_files[-1] if file_slice.log_files else file_slice.base_file
            assert source is not None
            base, log = parse_base_file(source.name), parse_log_file(source.name)
            name: BaseFileName | LogFileName | None = base or log
            assert name is not None
            if base is not None:
                name = BaseFileName(base.file_id, "7-7-7", txn.requested_time, base.extension)
            elif log is not None:
                name = LogFileName(log.file_id, txn.requested_time, 1, "7-7-7", log.kind, log.native, log.extension)
            txn.mark(partition, name.render())
            storage.put(f"{partition}/{name.render()}", storage.read(source.path))
    txn._stop()
    return txn.requested_time


@pytest.mark.parametrize(
    ("kind", "action", "more"),
    [
        ("cow", Action.COMMIT, NO_METADATA),
        ("cow", Action.COMMIT, {}),
        ("mor", Action.DELTA_COMMIT, BUCKETS),
    ],
    ids=["cow", "cow-mdt", "mor-mdt"],
)
def test_hudi_rolls_back_a_failed_lakebed_write(
    hudi: HudiPeer, tmp_path: Path, kind: str, action: Action, more: dict[str, str]
) -> None:
    table = tmp_path / "t"
    first = [[f"k{i}", 1, f"p{i % 2}", i, "a", 0.5] for i in range(10)]
    second = [[f"k{i}", 2, f"p{i % 2}", i, "b", 0.5] for i in range(4)]
    hudi.write(table, rows(*first), options("t", kind, **more), mode="overwrite")
    hudi.write(table, rows(*second), options("t", kind, **more))
    requested_time = die_writing(table, action)
    assert len(files_of(table, requested_time)) > 4
    before = in_order(hudi.read(table, columns=COLUMNS)["rows"])
    assert before == in_order(second + first[4:])
    hudi.write(table, rows(NEW), options("t", kind, **more))
    assert files_of(table, requested_time) == {f".hoodie/.heartbeat/{requested_time}"}, (
        "an eager Hudi keeps no heartbeats and removes none"
    )
    assert in_order(hudi.read(table, columns=COLUMNS)["rows"]) == in_order([*second, *first[4:], NEW])
    clean_up(MetaClient.open(LocalStorage(table)), TxnContext.of(LocalStorage(table)))
    assert files_of(table, requested_time) == set()


@pytest.mark.parametrize("name", FAILED)
def test_lakebed_rolls_back_a_failed_hudi_write(hudi: HudiPeer, golden_copy: Callable[[str], Path], name: str) -> None:
    table = golden_copy(name)
    storage = LocalStorage(table)
    client = MetaClient.open(storage)
    [failed] = client.timeline.pending.instants
    assert files_of(table, failed.requested_time)
    after = clean_up(client, TxnContext.of(storage))
    assert not after.timeline.pending.instants
    assert files_of(table, failed.requested_time) == set()

    snapshot = expected(name)["snapshot"]
    places = [snapshot["columns"].index(column) for column in COLUMNS]
    known = [[row[i] for i in places] for row in snapshot["rows"]]
    for listing in ("true", "false"):
        found = hudi.read(table, {"hoodie.metadata.enable": listing}, columns=COLUMNS)
        assert in_order(found["rows"]) == in_order(known)
    hudi.write(table, rows(NEW), options(name, client.config.table_type, **FAILED[name]))
    assert in_order(hudi.read(table, columns=COLUMNS)["rows"]) == in_order([*known, NEW])


def test_hudi_finishes_a_rollback_that_lakebed_began(hudi: HudiPeer, golden_copy: Callable[[str], Path]) -> None:
    """Killed after the announcement, before anything is deleted: the plan must make sense to the other program."""
    name = "cow_failed_pending_v9"
    table = golden_copy(name)
    storage = LocalStorage(table)
    [failed] = MetaClient.open(storage).timeline.pending.instants
    trial = FaultyStorage(LocalStorage(shutil.copytree(table, table.with_name("trial"))))
    clean_up(MetaClient.open(trial), TxnContext.of(trial))
    announced = next(op.number for op in trial.ops if op.path.endswith(".rollback.requested"))
    dying = FaultyStorage(storage, FaultPlan(crash_after=announced))
    with pytest.raises(SimulatedCrash):
        clean_up(MetaClient.open(dying), TxnContext.of(dying))
    assert files_of(table, failed.requested_time)
    known = in_order(hudi.read(table, columns=COLUMNS)["rows"])

    lock = table / ".hoodie" / ".locks" / "table_lock.json"
    lock.unlink()  # Hudi runs without the lock here; a lock of the dead would not concern it
    hudi.write(table, rows(NEW), options(name, "cow"))
    assert files_of(table, failed.requested_time) <= {f".hoodie/.heartbeat/{failed.requested_time}"}
    done = [i for i in MetaClient.open(storage).timeline if i.action is Action.ROLLBACK]
    assert len(done) == 1
    assert done[0].is_completed
    assert in_order(hudi.read(table, columns=COLUMNS)["rows"]) == in_order([*map(json.loads, known), NEW])
    shutil.rmtree(table.with_name("trial"))


def test_hudi_heeds_a_command_of_lakebed(hudi: HudiPeer, tmp_path: Path) -> None:
    """A table from before version 8: the log of the write that is undone stays, and only the command says so."""
    path = upgraded.unpack_upgraded(tmp_path)
    for requested_time in (upgraded.WRITES[3], upgraded.COMPACTION, upgraded.WRITES[2]):
        lakebed.open(path).services.rollback(requested_time)
    wanted = upgraded.hudis(path, upgraded.WRITES[1])
    assert upgraded.ours(path) == wanted

    def theirs() -> list[Any]:
        found: list[Any] = hudi.read(path, {"hoodie.metadata.enable": "false"}, columns=upgraded.COLUMNS)["rows"]
        return sorted(found)

    assert theirs() == wanted
    table = lakebed.open(path, num_buckets=1)
    more = pa.table([["new"], [9], ["p0"], [1]], names=upgraded.COLUMNS)
    table.upsert(more.cast(table.scan(columns=upgraded.COLUMNS).to_arrow().schema))
    assert theirs() == sorted([*wanted, ["new", 9, "p0", 1]])

    for file in (path / ".hoodie" / "timeline").iterdir():  # what is older than the timeline counts as committed
        if file.name[:17] in upgraded.WRITES:
            file.unlink()
    assert theirs() == sorted([*wanted, ["new", 9, "p0", 1]])
    *_, command = upgraded.shared_logs(path)
    command.unlink()
    assert theirs() == sorted([*upgraded.hudis(path, upgraded.WRITES[2]), ["new", 9, "p0", 1]]), "undone no more"
