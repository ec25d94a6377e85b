"""Plans that others made: found on the timeline, run once, whoever is watching."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CorruptTable
from lakebed.format.names import heartbeat_file
from lakebed.model.instant import Action
from lakebed.services import services as services_module
from lakebed.services.watch import Outcome, Watcher
from lakebed.storage.open import open_storage
from lakebed.table import Table
from tests.unit.services.clustering_cases import APART, filled
from tests.unit.services.compaction_cases import EASY, client_of, rows_of, slices, sound
from tests.unit.write.tables import SCHEMA, row, table


def three_plans(path: Path | str | None = None) -> Table:
    """A table with a log compaction, a clustering and a compaction that nobody has run yet."""
    settings: dict[str, Any] = {"record_key": "id", "ordering": "ts", "partition_by": "p", "index": "simple"}
    where = path or f"memory://watch/{uuid.uuid4().hex}"
    target = lakebed.create(where, SCHEMA, **settings, properties=APART)
    for turn in range(2):
        target.bulk_insert(table(*(row(f"k{turn}{i}", 1, "a") for i in range(6))))
    for turn in range(2):
        target.upsert(table(row("w", turn, "c", v=turn)))
    target.upsert(table(row("w", 3, "c", v=3)))
    services = target.services
    log = services.plan_compaction("log", EASY)
    cluster = services.plan_clustering({"hoodie.clustering.plan.strategy.partition.selected": "p=a"})
    full = services.plan_compaction("full")
    found = [planned.instants[0].action for planned in (log, cluster, full) if planned.instants]
    assert found == [Action.LOG_COMPACTION, Action.CLUSTERING, Action.COMPACTION]
    return target


def pending(target: Table) -> tuple[Any, ...]:
    return client_of(target).timeline.pending.instants


def test_one_round_runs_every_plan() -> None:
    target = three_plans()
    before = rows_of(target.scan())
    outcomes = list(Watcher(target.services).once())
    assert [one.completed.action for one in outcomes if one.completed] == [
        Action.DELTA_COMMIT,
        Action.REPLACE_COMMIT,
        Action.COMMIT,
    ]
    assert pending(target) == ()
    assert rows_of(target.refresh().scan()) == before
    assert list(Watcher(target.services).once()) == []
    sound(target)


def test_two_watchers_run_each_plan_once() -> None:
    target = three_plans()
    before = rows_of(target.scan())
    planned = [one.requested_time for one in pending(target)]
    meet = threading.Barrier(2)
    seen: dict[int, list[Outcome]] = {0: [], 1: []}

    def watch(number: int) -> None:
        watcher = Watcher(lakebed.open(target.url).services)
        for _ in range(4):
            meet.wait(60)
            seen[number] += list(watcher.once())

    threads = [threading.Thread(target=watch, args=(number,)) for number in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    done = [one.completed.requested_time for outcomes in seen.values() for one in outcomes if one.completed]
    assert sorted(done) == sorted(planned), "each plan was completed by one watcher"
    assert all(one.busy for outcomes in seen.values() for one in outcomes if one.completed is None)
    assert pending(target) == ()
    assert rows_of(target.refresh().scan()) == before
    actions = [one.action for one in client_of(target).timeline]
    assert Action.ROLLBACK not in actions, "nobody undid what another was running"
    sound(target)


def test_a_plan_that_another_runs_is_left_alone() -> None:
    target = three_plans()
    first, *rest = pending(target)
    storage = open_storage(target.url)
    storage.put(heartbeat_file(first.requested_time), b"")
    outcomes = {one.planned: one for one in Watcher(target.services).once()}
    assert outcomes[first].busy
    assert "being run by another" in str(outcomes[first].error)
    assert all(outcomes[one].completed for one in rest)
    storage.delete([heartbeat_file(first.requested_time)])
    [last] = Watcher(target.services).once()
    assert last.completed is not None


def test_a_plan_that_fails_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    target = filled("v9-cow")
    [planned] = target.services.plan_clustering().instants
    tries = []

    def broken(*_: Any, **__: Any) -> None:
        tries.append(1)
        raise CorruptTable("a page is damaged", file="x")

    monkeypatch.setattr(services_module, "run_clustering", broken)
    watcher = Watcher(target.services)
    counts = []
    for _ in range(12):
        assert all(one.planned == planned and not one.busy for one in watcher.once())
        counts.append(len(tries))
    assert counts == [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3]
    monkeypatch.undo()
    [done] = Watcher(target.services).once()
    assert done.completed is not None


def test_watching_ends_when_it_is_told_to() -> None:
    target = three_plans()
    stop, seen = threading.Event(), []

    def report(outcome: Outcome) -> None:
        seen.append(outcome)
        if len(seen) == 3:
            stop.set()

    Watcher(target.services).watch(0.01, stop, report)
    assert [bool(one.completed) for one in seen] == [True] * 3


def test_from_the_shell_with_two_processes(tmp_path: Path) -> None:
    target = three_plans(tmp_path / "t")
    before = rows_of(target.scan())
    planned = len(pending(target))
    command = [
        sys.executable,
        "-c",
        "from lakebed.cli.main import main; main()",
        "services",
        str(tmp_path / "t"),
        "--once",
    ]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    # a watcher that came too late says "was completed or undone by another writer", which is no completion of its own
    assert sum(len(re.findall(r" completed \d{17}$", text, re.MULTILINE)) for text in outputs) == planned
    assert pending(target) == ()
    assert rows_of(target.refresh().scan()) == before
    assert all(
        not file_slice.log_files for file_slice in slices(target) if file_slice.file_group.partition_path == "p=a"
    )
