"""How often an action reads the table: once to plan, once under each lock; and which folders a write lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakebed.format.names import HOODIE_DIR, TIMELINE_DIR
from lakebed.model.instant import Action
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import FileInfo
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.transaction import Transaction
from tests.unit.services.compaction_cases import EASY, client_of
from tests.unit.write.tables import make, row, table, values

PARTITIONS = ("a", "b", "c", "d", "e")
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
ONE_VERSION = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}
SHORT = {"hoodie.keep.max.commits": "3", "hoodie.keep.min.commits": "2", "hoodie.clean.commits.retained": "1"}


@dataclass
class Listings:
    """What was listed: how often the timeline, and which folders of data."""

    reloads: int = 0
    folders: set[str] = field(default_factory=set)

    def of(self, act: Callable[[], Any]) -> Listings:
        self.reloads, self.folders = 0, set()
        act()
        return Listings(self.reloads, self.folders)


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> Listings:
    found, listed = Listings(), MemoryStorage.list

    def counting(self: MemoryStorage, folder: str = "", *, recursive: bool = False) -> Iterator[FileInfo]:
        if folder == TIMELINE_DIR:
            found.reloads += 1
        elif folder.partition("/")[0] != HOODIE_DIR:
            found.folders.add(folder)
        return listed(self, folder, recursive=recursive)

    monkeypatch.setattr(MemoryStorage, "list", counting)
    return found


def filled(index: str = "bucket", deltas: int = 3, **more: Any) -> Table:
    """A table of several partitions, with logs."""
    target = make(index=index, properties=QUIET, **more)
    target.insert(table(*(row(f"{p}{n}", 1, p, n) for p in PARTITIONS for n in range(4))))
    for step in range(deltas):
        target.upsert(table(*(row(f"{p}{n}", 2 + step, p, n) for p in PARTITIONS for n in range(2))))
    return target


def sees_itself(target: Table) -> None:
    """The table object knows what a listing would tell it."""
    seen = target._client
    assert seen.active == client_of(target).active


# ---------------------------------------------------------------------- how often the table is read
ACTIONS: dict[str, tuple[int, Callable[[Table], Any]]] = {
    "upsert": (3, lambda t: t.upsert(table(row("a0", 9, "a", 9)))),
    "delete": (3, lambda t: t.delete(keys=[{"id": "a0", "p": "a"}])),
    "compact": (3, lambda t: t.services.compact()),
    "log compaction": (3, lambda t: t.services.compact("log", options=EASY)),
    "hybrid compaction": (3, lambda t: t.services.compact("hybrid", options=EASY)),
    "plan a compaction": (2, lambda t: t.services.plan_compaction()),
    "cluster": (3, lambda t: t.services.cluster()),
    "plan a clustering": (2, lambda t: t.services.plan_clustering()),
    "savepoint": (4, lambda t: t.services.savepoint()),
    "archive": (2, lambda t: t.services.archive(SHORT)),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_reads_the_table_once_to_plan_and_once_under_each_lock(action: str, listings: Listings) -> None:
    target = filled("simple" if "cluster" in action else "bucket")
    most, act = ACTIONS[action]
    before = client_of(target).timeline
    assert listings.of(lambda: act(target)).reloads == most
    assert client_of(target).timeline != before, "something was done"
    sees_itself(target)


def test_a_clean_looks_once_more_under_a_lock_what_is_reserved(listings: Listings) -> None:
    target = filled()
    target.services.compact()
    assert listings.of(lambda: target.services.clean(ONE_VERSION)).reloads == 4
    sees_itself(target)


def test_a_plan_that_is_run_later(listings: Listings) -> None:
    target = filled()
    planned = target.services.plan_compaction()
    assert listings.of(lambda: target.services.run(planned)).reloads == 3
    sees_itself(target)


def test_a_plan_of_before_is_run_before_the_next_is_made(listings: Listings) -> None:
    target = filled()
    target.services.plan_compaction()
    target.upsert(table(row("a0", 9, "a", 9)))
    assert listings.of(target.services.compact).reloads == 3 + 3, "each reads once, and under two locks"
    assert len([i for i in client_of(target).timeline if i.action is Action.COMMIT]) == 2
    sees_itself(target)


def test_a_savepoint_is_given_up(listings: Listings) -> None:
    target = filled()
    saved = target.services.savepoint()
    assert listings.of(lambda: target.services.delete_savepoint(saved)).reloads == 2
    sees_itself(target)


@pytest.mark.parametrize("service", ["compact", "cluster", "clean", "archive"])
def test_a_service_with_nothing_to_do(service: str, listings: Listings) -> None:
    target = filled("simple" if service == "cluster" else "bucket", deltas=0)
    if service == "cluster":
        target.services.cluster()
    assert listings.of(getattr(target.services, service)).reloads <= 2
    sees_itself(target)


def test_a_compaction_that_is_not_due_after_a_write_costs_one_look(listings: Listings) -> None:
    target = filled()
    options = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "50"}
    assert listings.of(lambda: target.upsert(table(row("a0", 9, "a", 9)), options=options)).reloads == 4


def test_services_see_what_others_did_before_them() -> None:
    target = filled(deltas=1)
    other = make_other(target)
    other.upsert(table(row("a0", 9, "a", 9)))
    planned = target.services.plan_compaction()
    assert planned
    other.services.compact()
    assert target.services.compact() == ()
    assert values(target, "v") == values(other, "v")
    sees_itself(target)


def make_other(target: Table) -> Table:
    return Table(MetaClient.open(client_of(target).storage))


# ---------------------------------------------------------------------- which folders a write lists
@pytest.mark.parametrize("index", ["bucket", "simple", "bloom", "consistent_bucket"])
def test_a_write_lists_only_the_partitions_that_it_touches(index: str, listings: Listings) -> None:
    target = filled(index)
    writes: dict[str, Callable[[], Any]] = {
        "b": lambda: target.upsert(table(row("b1", 9, "b", 90))),
        "c": lambda: target.delete(keys=[{"id": "c1", "p": "c"}]),
        "d": lambda: target.overwrite_partitions(table(row("d9", 9, "d", 99))),
        "z": lambda: target.insert(table(row("z1", 9, "z", 1))),
    }
    for partition, act in writes.items():
        assert listings.of(act).folders == {f"p={partition}"}, partition
    ids = {ident for (ident,) in values(target, "id")}
    assert {"z1", "d9", "b1"} <= ids
    assert not {"c1", "d0", "d1"} & ids


def test_a_table_that_does_not_name_its_index_is_not_swept_for_it(listings: Listings) -> None:
    target = filled("simple")
    update_properties(client_of(target).storage, {}, ("hoodie.index.type",))
    found = listings.of(lambda: target.upsert(table(row("e1", 9, "e", 90)), options={}))
    assert found.folders == {"p=a", "p=e"}, "one that commits tell of says what file groups are"
    assert ("e1", 90) in values(target, "id", "v")


def test_a_transaction_has_one_view_of_its_snapshot(listings: Listings) -> None:
    target, seen = filled(), list[Transaction]()
    init = Transaction.__init__

    def noted(self: Transaction, *given: Any) -> None:
        init(self, *given)
        seen.append(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Transaction, "__init__", noted)
        target.upsert(table(row("b1", 9, "b", 90)))
    [txn] = seen
    assert txn.view is txn.view
    assert listings.of(lambda: txn.view.slices("p=b")).folders == set(), "it was listed for the write"
