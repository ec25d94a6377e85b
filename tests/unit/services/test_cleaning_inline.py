"""A table keeps itself tidy: writes clean and archive when something is due, and only then."""

from __future__ import annotations

import pytest

from lakebed.errors import StorageUnavailable
from lakebed.model.instant import Action
from lakebed.services import after_write
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from tests.simulation.write_cases import Rows, by_key, data, fill, read, table_on
from tests.unit.txn.tables import txn_context_of

START_MS = 1_800_000_000_000
SMALL = {
    "hoodie.clean.commits.retained": "3",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
}


def write(storage: MemoryStorage, number: int, options: dict[str, str]) -> Rows:
    rows = [("k1", 10 + number, "p1", number), (f"n{number}", 1, "p0", number)]
    txn_context = txn_context_of(storage, ManualClock(START_MS + 1000 * (number + 1)))
    table_on(storage, txn_context).upsert(data(rows), options=options)  # type: ignore[arg-type]
    return by_key(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["mor-v2", "cow"])
def test_after_each_write(kind: str) -> None:
    storage = MemoryStorage()
    rows = dict(fill(storage, kind, txn_context_of(storage, ManualClock(START_MS))))
    for number in range(12):
        rows |= write(storage, number, SMALL)
        client = MetaClient.open(storage)
        assert len(client.completed_writes()) <= 5
        assert read(storage) == rows
    cleans = client.full_timeline.completed.of_actions(Action.CLEAN)
    assert bool(len(cleans)) is (kind == "cow"), "logs alone supersede nothing, so there is nothing to clean"
    assert len(client.full_timeline.writes) == 14
    assert not client.timeline.pending.instants


def test_off_and_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    fill(storage, "cow", txn_context_of(storage, ManualClock(START_MS)))
    off = {**SMALL, "hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    for number in range(6):
        write(storage, number, off)
    assert len(MetaClient.open(storage).timeline) == 8

    def fail(*_: object, **__: object) -> None:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(after_write, "clean", fail)
    with pytest.warns(UserWarning, match="the write is done"):
        write(storage, 9, SMALL)
    found = read(storage)
    assert found is not None
    assert found["k1"][3] == 9


def test_upkeep_that_is_not_due_asks_the_store_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write pays for what is done after it: the table was read already, and its names say that nothing is due."""
    storage = MemoryStorage()
    txn_context = txn_context_of(storage, ManualClock(START_MS))
    fill(storage, "mor-v2", txn_context)
    services = table_on(storage, txn_context).services
    for name in ("read", "list", "list_folders", "read_versioned", "put_if_absent", "compare_and_swap"):
        monkeypatch.setattr(MemoryStorage, name, lambda *_, name=name: pytest.fail(f"a {name} too many"))
    after_write.after_write(services)
