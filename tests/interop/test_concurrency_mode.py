"""The concurrency mode that lakebed keeps in a table: real Hudi goes by it, without being told, and leaves it there."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.format.names import HUDI_LOCK_FILE
from lakebed.model.instant import Action
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.mode import txn_context_for
from lakebed.txn.options import LOCK_PROVIDER, MODE
from lakebed.txn.transaction import Transaction

from .client import HudiPeer, PeerError
from .hudi_writer import BUCKETS, HIVE, NO_CLEANING, NO_METADATA, upsert_options
from .plain_rows import COLUMNS, KEYED, SCHEMA, in_order, numbered, rows

pytestmark = pytest.mark.interop

OPTIMISTIC, NON_BLOCKING = "OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL"
HUDI = upsert_options("t", "mor", **BUCKETS, **HIVE, **NO_CLEANING, **NO_METADATA)
IMPATIENT = {
    "hoodie.write.lock.num_retries": "1",
    "hoodie.write.lock.client.num_retries": "1",
    "hoodie.write.lock.wait_time_ms": "500",
    "hoodie.write.lock.wait_time_ms_between_retry": "100",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
}


def made(path: Path, mode: str) -> lakebed.Table:
    """A table whose mode came with a write."""
    table = lakebed.create(path, SCHEMA, **KEYED, table_type="mor", index="bucket", num_buckets=2)
    table.upsert(rows(*numbered(range(6), 1, int)), options={MODE: mode})
    return table


def client(path: Path) -> MetaClient:
    return MetaClient.open(LocalStorage(path))


def by_both(hudi: HudiPeer, table: lakebed.Table, path: Path) -> list[str]:
    found = table.refresh().scan(columns=COLUMNS).to_arrow().to_pylist()
    ours = in_order([[row[name] for name in COLUMNS] for row in found])
    assert in_order(hudi.read(path, columns=COLUMNS)["rows"]) == ours
    return ours


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
def test_hudi_goes_on_with_the_table_s_mode(hudi: HudiPeer, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "t"
    table = made(path, mode)
    hudi.write(path, rows(*numbered(range(3), 2, lambda n: n + 100)), HUDI)
    hudi.write(path, rows(*numbered(range(3, 5), 3, lambda n: n + 200)), HUDI | {MODE: mode.lower()})
    assert len(by_both(hudi, table, path)) == 6
    properties = table.config.properties
    assert (properties[MODE], properties[LOCK_PROVIDER].rpartition(".")[2]) == (mode, "FileSystemBasedLockProvider")
    with pytest.raises(PeerError, match="Config conflict"):
        hudi.write(path, rows(*numbered(range(3), 4, int)), HUDI | {MODE: "SINGLE_WRITER"})
    table.upsert(rows(*numbered(range(2), 5, lambda n: n + 300)))
    table.services.compact()
    hudi.write(path, rows(*numbered(range(5, 8), 6, int)), HUDI)
    assert len(by_both(hudi, table, path)) == 8
    table.services.set_concurrency("single_writer")
    hudi.write(path, rows(*numbered(range(8, 9), 7, int)), HUDI)
    assert MODE not in table.refresh().config.properties
    assert len(by_both(hudi, table, path)) == 9


def test_hudi_undoes_no_running_write(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path, OPTIMISTIC)
    running = Transaction.begin(client(path), Action.DELTA_COMMIT, txn_context_for(client(path), {}))
    hudi.write(path, rows(*numbered(range(3), 2, lambda n: n + 100)), HUDI)
    assert client(path).timeline.pending.instants == (running.instant,)
    running.abort()
    assert len(by_both(hudi, table, path)) == 6


def test_hudi_and_lakebed_wait_for_each_other(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path, OPTIMISTIC)
    before = by_both(hudi, table, path)
    with txn_context_for(client(path), {}).lock.hold(), pytest.raises(PeerError, match="Unable to acquire the lock"):
        hudi.write(path, rows(*numbered(range(3), 2, lambda n: n + 100)), HUDI | IMPATIENT)
    assert by_both(hudi, table, path) == before
    (path / HUDI_LOCK_FILE).write_text("{}")
    with pytest.raises(lakebed.errors.ConflictError, match="Apache Hudi"):
        table.upsert(rows(*numbered(range(3), 2, int)), options={"hoodie.write.lock.wait_time_ms": "200"})
    (path / HUDI_LOCK_FILE).unlink()
    hudi.write(path, rows(*numbered(range(3), 3, lambda n: n + 100)), HUDI | IMPATIENT)
    table.upsert(rows(*numbered(range(6, 7), 4, int)))
    assert len(by_both(hudi, table, path)) == 7
