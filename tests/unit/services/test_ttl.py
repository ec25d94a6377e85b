"""Partitions with a lifetime: which are expired, and that they vanish in one replacecommit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, TtlOptions, TtlStrategy
from lakebed.errors import InvalidRequest
from lakebed.format.names import HISTORY_DIR
from lakebed.model.instant import Action
from lakebed.services.archival import archive
from lakebed.services.cleaning import clean
from lakebed.services.partition_ages import created
from lakebed.services.ttl import expired_partitions
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.table import Table
from lakebed.testing.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from tests.simulation.write_cases import Row, data, fill, read, table_on
from tests.unit.txn.tables import txn_context_of

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
CREATED = {"hoodie.partition.ttl.strategy.type": "KEEP_BY_CREATION_TIME"}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
YOUNG = [("k1", 9, "p1", 9), ("k3", 9, "p1", 9), ("k5", 9, "p1", 9)]
Vanish = Callable[[Table], object]
WAYS: dict[str, Vanish] = {
    "deleted": lambda table: table.delete_partitions(["p1"], options=QUIET),
    "overwritten": lambda table: table.overwrite(data([("k0", 5, "p0", 5)]), options=QUIET),
}


@pytest.mark.parametrize("kind", ["mor-v2", "cow"])
def test_partitions_that_nobody_wrote_to(kind: str) -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    rows = fill(storage, kind, txn_context_of(storage, clock))
    clock.advance(5 * DAY_MS)
    table = table_on(storage, txn_context_of(storage, clock))
    table.upsert(data([("k1", 9, "p1", 9)]))
    client, now = MetaClient.open(storage), clock.now_ms()
    assert expired_partitions(client, TtlOptions(days=4), now) == ("p=p0",)
    assert expired_partitions(client, TtlOptions(days=6), now) == ()
    assert expired_partitions(client, TtlOptions(days=4, partitions=("p=p1",)), now) == ()
    created = TtlOptions(strategy=TtlStrategy.KEEP_BY_CREATION_TIME, days=4)
    assert expired_partitions(client, created, now) == ("p=p0", "p=p1")
    if kind != "cow":
        clock.advance(3 * DAY_MS)
        table.services.compact()
        client = MetaClient.open(storage)
        assert expired_partitions(client, TtlOptions(days=2), clock.now_ms()) == ("p=p0", "p=p1"), "not news of a row"
    done = table.services.drop_expired_partitions(options={"hoodie.partition.ttl.strategy.days.retain": "4"})
    assert done is not None
    assert read(storage) == {key: row for key, row in (rows | {"k1": ("k1", 9, "p1", 9)}).items() if row[2] == "p1"}
    last = MetaClient.open(storage).completed_writes()[-1]
    assert (last.requested_time, last.action) == (done.instant, Action.REPLACE_COMMIT)
    assert table.services.drop_expired_partitions(days=4) is None


def test_inline_and_what_makes_no_sense() -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    fill(storage, "cow", txn_context_of(storage, clock))
    clock.advance(5 * DAY_MS)
    table = table_on(storage, txn_context_of(storage, clock))
    with pytest.raises(InvalidRequest, match="never expire"):
        table.services.drop_expired_partitions()
    table.upsert(
        data([("k1", 9, "p1", 9)]),
        options={"hoodie.partition.ttl.inline": "true", "hoodie.partition.ttl.strategy.days.retain": "1"},
    )
    assert {row[2] for row in (read(storage) or {}).values()} == {"p1"}


def age_of(storage: Storage, partition: str = "p=p1") -> str:
    return created(MetaClient.open(storage))[partition]


def in_days(clock: ManualClock, days: int, table: Table, rows: list[Row]) -> str:
    clock.advance(days * DAY_MS)
    return table.upsert(data(rows), options=QUIET).instant


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["mor-v2", "cow"])
def test_a_young_partition_is_not_dropped_by_the_age_of_one_that_vanished(kind: str, way: str, archived: bool) -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    fill(storage, kind, txn_context_of(storage, clock))
    table = table_on(storage, txn_context_of(storage, clock))
    clock.advance(10 * DAY_MS)
    WAYS[way](table)
    reborn = in_days(clock, 10, table, YOUNG)
    for _ in range(3):
        in_days(clock, 1, table, [YOUNG[0]])
    if archived:
        clean(MetaClient.open(storage), txn_context_of(storage, clock), CleanOptions(commits=1))
        gone = archive(
            MetaClient.open(storage), txn_context_of(storage, clock), ArchiveOptions(max_commits=2, min_commits=1)
        )
        assert Action.REPLACE_COMMIT in {instant.action for instant in gone}
        assert reborn in {instant.requested_time for instant in gone}
    assert age_of(storage) == reborn, "neither the first life of the partition nor its last write"
    table.services.drop_expired_partitions(5, CREATED)
    left = {key for key, row in (read(storage) or {}).items() if row[2] == "p1"}
    assert left == {"k1", "k3", "k5"}
    clock.advance(3 * DAY_MS)
    assert table.services.drop_expired_partitions(5, CREATED) is not None
    assert "p1" not in {row[2] for row in (read(storage) or {}).values()}


def test_rows_in_the_place_of_all_others_make_a_partition_anew() -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    fill(storage, "cow", txn_context_of(storage, clock))
    table = table_on(storage, txn_context_of(storage, clock))
    old = age_of(storage, "p=p0")
    clock.advance(10 * DAY_MS)
    done = table.overwrite_partitions(data(YOUNG[:1]), options=QUIET)
    assert age_of(storage) == done.instant
    table.services.cluster(QUIET)
    in_days(clock, 1, table, YOUNG)
    assert age_of(storage) == done.instant, "a clustering makes nothing anew"
    assert age_of(storage, "p=p0") == old


def test_a_partition_whose_first_write_was_undone() -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    fill(storage, "cow", txn_context_of(storage, clock))
    table = table_on(storage, txn_context_of(storage, clock))
    undone = table.upsert(data([("n", 1, "p9", 1)]), options=QUIET)
    table.services.rollback(undone.instant)
    again = in_days(clock, 10, table, [("n", 2, "p9", 2)])
    in_days(clock, 1, table, [("n", 3, "p9", 3)])
    assert age_of(storage, "p=p9") == again
    table.services.drop_expired_partitions(5, CREATED)
    assert (read(storage) or {})["n"] == ("n", 3, "p9", 3)


def test_where_no_report_tells_a_partition_is_as_young_as_its_files() -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    fill(storage, "cow", txn_context_of(storage, clock))
    table = table_on(storage, txn_context_of(storage, clock))
    old = age_of(storage, "p=p0")
    clock.advance(10 * DAY_MS)
    table.delete_partitions(["p1"], options=QUIET)
    in_days(clock, 10, table, YOUNG)
    last = [in_days(clock, 1, table, YOUNG) for _ in range(3)][-1]
    clean(MetaClient.open(storage), txn_context_of(storage, clock), CleanOptions(commits=1))
    archive(MetaClient.open(storage), txn_context_of(storage, clock), ArchiveOptions(max_commits=2, min_commits=1))
    for info in list(storage.list(HISTORY_DIR)):
        storage.delete([info.path])
    assert age_of(storage) == last
    assert age_of(storage, "p=p0") >= old
