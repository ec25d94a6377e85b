"""Services in odd orders, and beside writers: what one left must not be lost by the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.model.instant import Action
from lakebed.services import ttl, upgrade
from lakebed.services.watch import Watcher
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.clock import ManualClock
from lakebed.timeline.clock import instant_time_before
from lakebed.timeline.meta_client import MetaClient
from tests.simulation.write_cases import data, fill, read, table_on
from tests.unit.txn.tables import txn_context_of

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
BY_VERSIONS = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}
START_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def rows(ts: int, *ids: str, p: str = "x") -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "p": p, "ts": ts} for key in ids], schema=SCHEMA)


def made(path: Path, **more: Any) -> lakebed.Table:
    settings: dict[str, Any] = {"record_key": "id", "partition_by": "p", "ordering": "ts", "num_buckets": 1, **more}
    table = lakebed.create(path, SCHEMA, **settings)
    table.upsert(rows(1, "a", "b"), options=QUIET)
    table.upsert(rows(2, "a", "c"), options=QUIET)
    return table


def found(table: lakebed.Table) -> dict[str, int]:
    return {row["id"]: row["ts"] for row in table.refresh().scan().to_arrow().to_pylist()}


ALL = {"a": 2, "b": 1, "c": 2}


# ---------------------------------------------------------------------- rollback of what the table cannot do without
def test_a_compaction_whose_logs_were_cleaned_stays(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    [done] = table.services.compact()
    table.services.clean(BY_VERSIONS)
    with pytest.raises(InvalidRequest, match="no longer there"):
        table.services.rollback(done)
    assert found(table) == ALL
    table.upsert(rows(3, "a"), options=QUIET)
    table.services.clean({"hoodie.clean.commits.retained": "1"})
    table.services.rollback(table.refresh()._client.completed_writes()[-1])
    with pytest.raises(InvalidRequest, match="no longer there"):
        table.services.rollback(done)
    assert found(table) == ALL


def test_the_compaction_of_a_downgrade_stays(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.services.downgrade(9)
    newest = table.refresh()._client.completed_writes()[-1]
    with pytest.raises(InvalidRequest, match="no longer there"):
        table.services.rollback(newest)
    assert found(table) == ALL


def test_partitions_that_were_cleaned_away_do_not_come_back(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(1, "z", p="y"), options=QUIET)
    done = table.delete_partitions(["x"])
    table.services.clean(BY_VERSIONS)
    with pytest.raises(InvalidRequest, match="no longer there"):
        table.services.rollback(done.instant)
    assert found(table) == {"z": 1}


def test_a_restored_clustering_whose_groups_were_cleaned_stays(tmp_path: Path) -> None:
    table = made(tmp_path / "t", index="simple", num_buckets=None, properties={"hoodie.parquet.small.file.limit": "0"})
    [first] = table.services.cluster()
    saved = table.services.savepoint()
    table.upsert(rows(3, "d"), options=QUIET)
    table.services.cluster()
    table.services.clean({"hoodie.clean.commits.retained": "1"})
    table.services.restore(saved)
    table.services.delete_savepoint(saved)
    before = found(table)
    with pytest.raises(InvalidRequest, match="no longer there"):
        table.services.rollback(first)
    assert found(table) == before == ALL


# ---------------------------------------------------------------------- writers come between
def test_a_downgrade_leaves_logs_that_came_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t", properties={"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
    run = upgrade.run_compaction

    def and_a_write(*args: Any, **kwargs: Any) -> Any:
        done = run(*args, **kwargs)
        lakebed.open(tmp_path / "t").upsert(rows(5, "z"), options=QUIET)
        return done

    monkeypatch.setattr(upgrade, "run_compaction", and_a_write)
    with pytest.raises(ConflictError, match="added a native log"):
        table.services.downgrade(9)
    assert found(table) == ALL | {"z": 5}
    monkeypatch.undo()
    table.services.downgrade(9)
    assert found(table) == ALL | {"z": 5}
    assert int(table.config.version) == 9


def test_services_that_were_held_see_later_writes(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    held = table.services
    table.upsert(rows(9, "new"), options=QUIET)
    saved = held.savepoint("now")
    held.restore(saved)
    assert found(table) == ALL | {"new": 9}
    held.delete_savepoint(saved)


def test_a_partition_that_is_written_to_while_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    fill(storage, "mor-v2", txn_context_of(storage, clock))
    clock.advance(5 * DAY_MS)
    table = table_on(storage, txn_context_of(storage, clock))
    decide = ttl.expired_partitions

    def and_a_write(*args: Any) -> tuple[str, ...]:
        expired = decide(*args)
        monkeypatch.setattr(ttl, "expired_partitions", decide)
        table_on(storage, txn_context_of(storage, clock)).upsert(data([("k1", 9, "p1", 9)]))
        return expired

    monkeypatch.setattr(ttl, "expired_partitions", and_a_write)
    assert table.services.drop_expired_partitions(days=4) is not None
    left = read(storage) or {}
    assert left["k1"] == ("k1", 9, "p1", 9)
    assert {row[2] for row in left.values()} == {"p1"}


def test_a_partition_that_was_born_again() -> None:
    storage, clock = MemoryStorage(), ManualClock(START_MS)
    fill(storage, "mor-v2", txn_context_of(storage, clock))
    created = {"hoodie.partition.ttl.strategy.type": "KEEP_BY_CREATION_TIME"}
    table = table_on(storage, txn_context_of(storage, clock))
    clock.advance(3 * DAY_MS)
    assert table.services.drop_expired_partitions(2, created) is not None
    clock.advance(DAY_MS)
    table.upsert(data([("k1", 9, "p1", 9)]))
    assert table.services.drop_expired_partitions(2, created) is None
    assert read(storage) == {"k1": ("k1", 9, "p1", 9)}
    clock.advance(3 * DAY_MS)
    assert table.services.drop_expired_partitions(2, created) is not None
    assert table.services.drop_expired_partitions(days=1_000_000) is None


def test_a_savepoint_keeps_what_completed_after_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    planned = table.services.plan_compaction()
    table.upsert(rows(3, "d"), options=QUIET)
    saved = table.services.savepoint()
    table.services.run(planned)
    for ts in range(4, 8):
        table.upsert(rows(ts, "d"), options=QUIET)
    table.services.archive({"hoodie.keep.min.commits": "1", "hoodie.keep.max.commits": "2"})
    table.services.restore(saved)
    assert found(table) == ALL | {"d": 3}


# ---------------------------------------------------------------------- what follows a write
@pytest.mark.parametrize(
    "wrong",
    [
        {"hoodie.clean.commits.retained": "zero"},
        {"hoodie.keep.max.commits": "5"},
        {"hoodie.partition.ttl.inline": "yes, please"},
        {"hoodie.clustering.inline": "perhaps"},
        {"hoodie.compact.inline": "perhaps"},
    ],
)
def test_options_of_upkeep_are_read_before_the_write(tmp_path: Path, wrong: dict[str, str]) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(InvalidRequest):
        table.upsert(rows(9, "z"), options=wrong)
    assert found(table) == ALL


def test_more_hours_than_there_ever_were(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    hours = {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": "100000000"}
    table.upsert(rows(9, "z"), options=hours)
    assert found(table) == ALL | {"z": 9}
    assert instant_time_before(START_MS, 10**18) == "0" * 17 < instant_time_before(START_MS, 0)


def test_a_plan_for_another_process_is_left_to_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    both = {
        **QUIET,
        "hoodie.compact.schedule.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
        "hoodie.log.compaction.inline": "true",
    }
    for ts in range(3, 7):
        table.upsert(rows(ts, "a"), options=both)
    timeline = MetaClient.open(table._client.storage).timeline
    assert [i.action for i in timeline.pending] == [Action.COMPACTION]
    assert not timeline.completed.of_actions(Action.COMMIT).instants
    assert found(table) == ALL | {"a": 6}


def test_a_clean_is_planned_here_and_run_there(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.services.compact()
    planned = table.services.plan_clean(BY_VERSIONS)
    assert planned is not None
    [outcome] = Watcher(lakebed.open(tmp_path / "t").services).once()
    assert outcome.completed is not None
    assert outcome.completed.action is Action.CLEAN
    assert table.services.plan_clean(BY_VERSIONS) is None
    assert found(table) == ALL
