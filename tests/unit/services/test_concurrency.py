"""A service undoes no living writer, whichever door it comes through: who else may write is what the table says."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import main
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import heartbeat_file
from lakebed.model.instant import Action
from lakebed.services.after_write import after_write
from lakebed.services.watch import Watcher
from lakebed.spark.source_options import Settings
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.txn.mode import table_mode, txn_context_for
from lakebed.txn.options import LOCK_PROVIDER, MODE, Concurrency
from lakebed.txn.transaction import Transaction
from lakebed.write.operation import Operation
from tests.unit.services.compaction_cases import EASY, client_of
from tests.unit.write.tables import SCHEMA, row, table

OPTIMISTIC = {MODE: "optimistic_concurrency_control"}
SINGLE = {MODE: "single_writer"}
NON_BLOCKING = {MODE: "NON_BLOCKING_CONCURRENCY_CONTROL"}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false", "hoodie.compact.inline": "false"}
FEW = {"hoodie.keep.max.commits": "3", "hoodie.keep.min.commits": "2"}
SETTINGS: dict[str, Any] = {"record_key": "id", "ordering": "ts", "partition_by": "p", "index": "simple"}


def filled(where: Path | str | None = None, **more: Any) -> Table:
    target = lakebed.create(where or f"memory://modes/{uuid.uuid4().hex}", SCHEMA, **{**SETTINGS, **more})
    for turn in range(3):
        target.upsert(table(row("a", turn, "x", v=turn), row("b", turn, "y", v=turn)), options=QUIET)
    return target


def running(target: Table) -> Transaction:
    """A write of another process that knows that it is not alone."""
    client = client_of(target)
    return Transaction.begin(client, Action.DELTA_COMMIT, txn_context_for(client, OPTIMISTIC))


def lives(target: Table, txn: Transaction) -> bool:
    client = client_of(target)
    beats = client.storage.stat(heartbeat_file(txn.requested_time)) is not None
    return beats and txn.instant in client.timeline.pending.instants


SERVICES: dict[str, Callable[[Table, dict[str, str] | None], object]] = {
    "compact": lambda t, o: t.services.compact(options=o),
    "hybrid": lambda t, o: t.services.compact("hybrid", o),
    "log": lambda t, o: t.services.compact("log", {**EASY, **(o or {})}),
    "plan_compaction": lambda t, o: t.services.plan_compaction(options=o),
    "cluster": lambda t, o: t.services.cluster(o),
    "plan_clustering": lambda t, o: t.services.plan_clustering(o),
    "clean": lambda t, o: t.services.clean({**(o or {}), "hoodie.clean.commits.retained": "1"}),
    "plan_clean": lambda t, o: t.services.plan_clean({**(o or {}), "hoodie.clean.commits.retained": "1"}),
    "archive": lambda t, o: t.services.archive({**(o or {}), **FEW}),
    "ttl": lambda t, o: t.services.drop_expired_partitions(9, o),
    "upsert": lambda t, o: t.upsert(table(row("c", 1, "z", v=1)), options=o),
    "inline": lambda t, o: after_write(t._services(o or {})),
}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_undoes_no_living_writer(name: str) -> None:
    """The option of the call counts, as the one of `open` does."""
    target = filled()
    client = client_of(target)
    theirs = Transaction.begin(client, Action.DELTA_COMMIT, txn_context_for(client, {}))
    SERVICES[name](lakebed.open(target.url), OPTIMISTIC)
    assert lives(target, theirs)
    theirs.abort()


@pytest.mark.parametrize("name", SERVICES)
def test_a_process_that_says_nothing_undoes_no_living_writer(name: str) -> None:
    target = filled()
    forgetful = lakebed.open(target.url)
    assert forgetful.config.properties.get(MODE) is None
    theirs = running(target)
    SERVICES[name](forgetful, None)
    assert lives(target, theirs)
    theirs.abort()


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("asked", [SINGLE, NON_BLOCKING], ids=["looser", "another kind"])
def test_no_door_loosens_the_mode(name: str, asked: dict[str, str]) -> None:
    target = filled()
    target.services.set_concurrency("optimistic_concurrency_control")
    before = client_of(target).timeline.instants
    if name == "inline":
        with pytest.warns(UserWarning, match="concurrency mode is"):
            SERVICES[name](target, {**asked, "hoodie.compact.inline": "true"})
    else:
        with pytest.raises(InvalidRequest, match="concurrency mode is"):
            SERVICES[name](target, asked)
        with pytest.raises(InvalidRequest, match="concurrency mode is"):
            SERVICES[name](lakebed.open(target.url, options=asked), None)
    assert client_of(target).timeline.instants == before
    assert table_mode(target.refresh().config) is Concurrency.OPTIMISTIC


GOING_BACK: dict[str, Callable[[Table], object]] = {
    "savepoint": lambda t: t.services.savepoint(),
    "restore": lambda t: t.services.restore(),
    "rollback": lambda t: t.services.rollback(client_of(t).completed_writes()[-1].requested_time),
    "upgrade": lambda t: t.services.upgrade(10),
    "downgrade": lambda t: t.services.downgrade(9),
}


@pytest.mark.parametrize("name", GOING_BACK)
def test_services_without_options_have_those_of_open(name: str) -> None:
    target = filled(log_format="v1" if name == "upgrade" else "v2")
    if name == "restore":
        target.services.savepoint()
    GOING_BACK[name](lakebed.open(target.url, options=OPTIMISTIC))
    assert table_mode(target.refresh().config) is Concurrency.OPTIMISTIC
    with pytest.raises(InvalidRequest, match="concurrency mode is"):
        GOING_BACK[name](lakebed.open(target.url, options=SINGLE))


# ------------------------------------------------------------------ the shell and Spark's source
def shell(*arguments: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lakebed", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("command", ["compact", "cluster", "clean", "archive"])
def test_the_shell(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    target = filled(path)
    client = client_of(target)
    theirs = Transaction.begin(client, Action.DELTA_COMMIT, txn_context_for(client, {}))
    assert shell(command, path, "--set", f"{MODE}=optimistic_concurrency_control") == 0
    assert shell(command, path) == 0, "the table knows it now"
    assert lives(target, theirs)
    assert shell(command, path, "--set", f"{MODE}=single_writer") == 2
    assert "lakebed concurrency PATH single_writer" in " ".join(capsys.readouterr().err.split())
    assert shell("concurrency", path, "single_writer") == 1, "somebody is writing"
    theirs.abort()
    assert shell("concurrency", path, "single_writer", "--json") == 0
    assert '"single_writer"' in capsys.readouterr().out
    assert shell(command, path, "--set", f"{MODE}=single_writer") == 0
    assert shell("concurrency", path) == 0
    assert "is single_writer" in capsys.readouterr().out
    assert shell("concurrency", path, "free_for_all") == 2


def test_the_source_of_spark() -> None:
    target = filled()
    client = client_of(target)
    theirs = Transaction.begin(client, Action.DELTA_COMMIT, txn_context_for(client, {}))
    Settings({"path": target.url, **OPTIMISTIC}).writer(client_of(target)).write(
        table(row("c", 1, "x", v=1)), Operation.UPSERT
    )
    forgetful = Settings({"path": target.url})
    writer = forgetful.writer(client_of(target))
    writer.write(table(row("d", 1, "x", v=1)), Operation.UPSERT)
    after_write(forgetful.services(writer.context), writer.context)
    assert lives(target, theirs)
    with pytest.raises(InvalidRequest, match="concurrency mode is"):
        Settings({"path": target.url, **SINGLE}).writer(client_of(target))
    theirs.abort()


def test_a_first_write_of_spark_s_source_makes_the_table_with_its_mode() -> None:
    lock = {LOCK_PROVIDER: "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
    keys = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.precombine.field": "ts"}
    chosen = Settings({"path": f"memory://modes/{uuid.uuid4().hex}", **keys, **NON_BLOCKING, **lock})
    client = chosen.table(SCHEMA, Operation.UPSERT)
    assert client.config.properties[MODE] == "NON_BLOCKING_CONCURRENCY_CONTROL"
    assert client.config.properties[LOCK_PROVIDER] == lock[LOCK_PROVIDER]
    chosen.writer(client).write(table(row("c", 1, "x", v=1)), Operation.UPSERT)


# ------------------------------------------------------------------ making tables
def test_a_table_is_made_with_a_mode() -> None:
    target = filled(properties=OPTIMISTIC)
    assert target.config.properties[MODE] == "OPTIMISTIC_CONCURRENCY_CONTROL"
    assert target.config.properties[LOCK_PROVIDER].endswith(".StorageBasedLockProvider")
    plain = filled(properties=SINGLE)
    assert not {MODE, LOCK_PROVIDER} & plain.config.properties.keys(), "Hudi would refuse to be told another mode"
    with pytest.raises(InvalidRequest, match="ordering field"):
        filled(properties=NON_BLOCKING, ordering=None)
    with pytest.raises(InvalidRequest, match="running writes of others"):
        filled(properties={**OPTIMISTIC, "hoodie.clean.failed.writes.policy": "EAGER"})


def test_a_table_that_is_there_and_a_mode_that_is_asked_for() -> None:
    target = filled()
    there = lakebed.create(target.url, SCHEMA, **SETTINGS, properties=OPTIMISTIC, if_exists="open")
    there.upsert(table(row("c", 1, "x", v=1)))
    assert table_mode(target.refresh().config) is Concurrency.OPTIMISTIC
    with pytest.raises(InvalidRequest, match="concurrency mode is"):
        lakebed.create(target.url, SCHEMA, **SETTINGS, properties=SINGLE, if_exists="open")


# ------------------------------------------------------------------ watchers, and changes on purpose
def test_a_watcher_makes_itself_known_before_it_runs_a_plan() -> None:
    target = filled()
    assert target.services.plan_compaction().instants
    watcher = Watcher(lakebed.open(target.url).services)
    assert table_mode(target.refresh().config) is Concurrency.SINGLE_WRITER
    assert [one.error for one in watcher.once()] == [None]
    assert table_mode(target.refresh().config) is Concurrency.OPTIMISTIC
    with pytest.raises(InvalidRequest, match="not the only writer"):
        Watcher(lakebed.open(target.url, options=SINGLE).services)


def test_a_watcher_goes_along_with_writers_that_do_not_wait() -> None:
    target = filled()
    watcher = Watcher(lakebed.open(target.url).services)
    target.services.set_concurrency("non_blocking_concurrency_control")
    assert target.services.plan_compaction().instants
    assert [one.error for one in watcher.once()] == [None]
    assert table_mode(target.refresh().config) is Concurrency.NON_BLOCKING


def test_a_plan_that_a_watcher_runs_is_not_taken_over_by_a_process_that_says_nothing() -> None:
    target = filled()
    (planned,) = target.services.plan_compaction().instants
    forgetful = lakebed.open(target.url)
    client = client_of(target)
    theirs = Transaction.resume(client, planned, txn_context_for(client, OPTIMISTIC))
    with pytest.raises(ConflictError, match="being run by another"):
        forgetful.services.compact()
    theirs.abort()


def test_the_mode_is_set_for_all_on_purpose() -> None:
    target = filled()
    theirs = running(target)
    with pytest.raises(ConflictError, match="under way"):
        target.services.set_concurrency("single_writer")
    theirs.abort()
    target.services.set_concurrency("SINGLE_WRITER")
    assert not {MODE, LOCK_PROVIDER} & target.config.properties.keys()
    with pytest.raises(InvalidRequest, match="free_for_all"):
        target.services.set_concurrency("free_for_all")
    assert table_mode(MetaClient.open(client_of(target).storage).config) is Concurrency.SINGLE_WRITER
