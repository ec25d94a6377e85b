"""Partitions with a lifetime: which are expired, and that they vanish in one replacecommit."""

from __future__ import annotations

import pytest

from lakebed.config.upkeep_options import TtlOptions, TtlStrategy
from lakebed.errors import InvalidRequest
from lakebed.model.instant import Action
from lakebed.services.ttl import expired_partitions
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from tests.simulation.write_cases import data, fill, read, table_on
from tests.unit.txn.tables import control_of

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000


@pytest.mark.parametrize("kind", ["mor-v2", "cow"])
def test_partitions_that_nobody_wrote_to(kind: str) -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    rows = fill(storage, kind, control_of(storage, clock))
    clock.advance(5 * DAY_MS)
    table = table_on(storage, control_of(storage, clock))
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
    fill(storage, "cow", control_of(storage, clock))
    clock.advance(5 * DAY_MS)
    table = table_on(storage, control_of(storage, clock))
    with pytest.raises(InvalidRequest, match="for ever"):
        table.services.drop_expired_partitions()
    table.upsert(
        data([("k1", 9, "p1", 9)]),
        options={"hoodie.partition.ttl.inline": "true", "hoodie.partition.ttl.strategy.days.retain": "1"},
    )
    assert {row[2] for row in (read(storage) or {}).values()} == {"p1"}
