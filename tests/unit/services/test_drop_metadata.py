"""A table with a metadata table is written to only when the metadata table may go; then it goes whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.main import main
from lakebed.errors import InvalidRequest
from lakebed.services.drop_metadata import DROPPING, PARTITIONS, remove_metadata
from lakebed.services.services import Services
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from tests.simulation.write_cases import serious
from tests.unit.txn.tables import clone, meanwhile, paths, txn_context_of

NAME = "mdt_all_v9"
COLUMNS = ["id", "v"]


def new_row(table: Table) -> pa.Table:
    row = {name: None for name in table.schema.names if not name.startswith("_hoodie")} | {"id": "new", "ts": 9}
    row |= dict.fromkeys(table.config.partition_fields, "p0")
    schema = pa.schema([table.schema.field(name) for name in row])
    return pa.Table.from_pylist([row], schema=schema)


def rows(table: Table) -> set[str]:
    return {str(row) for row in table.scan(columns=["id"]).to_arrow().to_pylist()}


def test_refused_with_both_ways_out(golden_copy: Callable[[str], Path]) -> None:
    path = golden_copy(NAME)
    table = lakebed.open(path)
    with pytest.raises(InvalidRequest) as refused:
        table.upsert(new_row(table))
    assert "drop_metadata=True" in str(refused.value)
    assert "Apache Hudi" in str(refused.value)
    assert (path / ".hoodie/metadata").exists()


@pytest.mark.parametrize("where", ["open", "write"])
def test_dropped_before_the_write(golden_copy: Callable[[str], Path], where: str) -> None:
    path = golden_copy(NAME)
    table = lakebed.open(path, drop_metadata=where == "open")
    before = rows(table)
    options = {"hoodie.index.type": "SIMPLE"}
    if where == "open":
        table.upsert(new_row(table), options=options)
    else:
        table.upsert(new_row(table), options=options, drop_metadata=True)
    assert not (path / ".hoodie/metadata").exists()
    properties = lakebed.open(path).config.properties
    gone = ("hoodie.table.metadata.partitions", "hoodie.table.index.defs", "lakebed.metadata")
    assert not [key for key in properties if key.startswith(gone)]
    assert not (path / ".hoodie/.index_defs/index.json").exists()
    assert rows(lakebed.open(path)) == before | {"{'id': 'new'}"}
    assert serious(table.check()) == []
    table.upsert(new_row(table), options=options)


def test_a_crash_in_the_middle(golden: Callable[[str], Path]) -> None:
    base = MemoryStorage.from_folder(golden(NAME))
    before = rows(Table(MetaClient.open(base)))

    def drop(storage: FaultyStorage) -> None:
        remove_metadata(MetaClient.open(storage), txn_context_of(storage, ManualClock()))

    trial = FaultyStorage(clone(base))
    drop(trial)
    assert not [path for path in paths(trial) if path.startswith(".hoodie/metadata/")]
    assert DROPPING not in MetaClient.open(trial).config.properties
    steps = len(trial.ops)
    for step in sorted({*range(1, steps, 9), *range(1, 8), *range(steps - 6, steps + 1)}):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            drop(FaultyStorage(storage, FaultPlan(crash_after=step)))
        assert rows(Table(MetaClient.open(storage))) == before, step
        later = txn_context_of(storage, ManualClock(ManualClock().ms + 400_000))
        table = Table(MetaClient.open(storage), txn_context=later)
        begun = not table.config.metadata_partitions
        table.upsert(new_row(table), options={"hoodie.index.type": "SIMPLE"}, drop_metadata=not begun)
        assert not [path for path in paths(storage) if path.startswith(".hoodie/metadata/")], (
            "finished by the next write"
        )
        assert DROPPING not in MetaClient.open(storage).config.properties


# ---------------------------------------------------------------------- services
EVERYTHING = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}
SERVICES: dict[str, Callable[[Services, str], Any]] = {
    "compact": lambda services, _: services.compact(),
    "plan_compaction": lambda services, _: services.plan_compaction(),
    "cluster": lambda services, _: services.cluster(),
    "plan_clustering": lambda services, _: services.plan_clustering(),
    "clean": lambda services, _: services.clean(EVERYTHING),
    "ttl": lambda services, _: services.drop_expired_partitions(days=0),
    "restore": lambda services, _: services.restore(),
    "rollback": lambda services, newest: services.rollback(newest),
    "upgrade": lambda services, _: services.upgrade(10),
    "downgrade": lambda services, _: services.downgrade(8),
}
COMMANDS = {
    "compact": ["compact"],
    "plan_compaction": ["compact", "--plan-only"],
    "cluster": ["cluster"],
    "plan_clustering": ["cluster", "--plan-only"],
    "clean": ["clean", *(word for key, value in EVERYTHING.items() for word in ("--set", f"{key}={value}"))],
    "ttl": ["ttl", "--days", "0"],
    "restore": ["restore"],
    "rollback": ["rollback"],
    "upgrade": ["upgrade"],
    "downgrade": ["downgrade", "--to", "8"],
}


def newest_write(path: Path, *, saved: bool) -> str:
    """The newest write; a savepoint on the first where something is to be restored, which no metadata table minds."""
    table = lakebed.open(path)
    times = [row["instant"] for row in table.inspect.timeline().to_pylist() if row["action"] == "deltacommit"]
    if saved:
        table.services.savepoint(instant=min(times))
    return max(times)


@pytest.mark.parametrize("service", SERVICES)
def test_services_refuse_or_drop_as_the_caller_says(service: str, golden_copy: Callable[[str], Path]) -> None:
    path = golden_copy(NAME)
    newest = newest_write(path, saved=service == "restore")
    before = lakebed.open(path).inspect.timeline()
    with pytest.raises(InvalidRequest, match="metadata table") as refused:
        SERVICES[service](lakebed.open(path).services, newest)
    assert "drop_metadata=True to lakebed.open" in str(refused.value.hint)
    assert "--drop-metadata" in str(refused.value.hint)
    assert lakebed.open(path).inspect.timeline() == before
    assert (path / ".hoodie/metadata").exists()
    table = lakebed.open(path, drop_metadata=True)
    SERVICES[service](table.services, newest)
    assert not (path / ".hoodie/metadata").exists()
    assert not table.config.metadata_partitions
    assert serious(lakebed.open(path).check()) == []
    if service not in ("clean", "upgrade", "downgrade", "plan_clustering", "cluster"):
        assert table.inspect.timeline() != before


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_or_drop_as_the_caller_says(
    command: str, golden_copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden_copy(NAME)
    newest = newest_write(path, saved=command == "restore")
    name, *given = COMMANDS[command]
    words = [name, str(path), *([newest] if command == "rollback" else []), *given]

    def exit_code(*more: str) -> int:
        monkeypatch.setattr(sys, "argv", ["lakebed", *words, *more])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0)

    assert exit_code() == 2
    assert lakebed.open(path).config.metadata_partitions
    assert exit_code("--drop-metadata") == 0
    assert not lakebed.open(path).config.metadata_partitions


def test_a_plan_is_run_after_the_metadata_table_went(golden_copy: Callable[[str], Path]) -> None:
    """One object for several services, which goes on with the table as it was when it was asked for."""
    path = golden_copy(NAME)
    table = lakebed.open(path, drop_metadata=True)
    before, services = rows(table), table.services
    assert services.explain_compaction().decisions
    assert table.refresh().config.metadata_partitions, "saying what would be done changes nothing"
    with pytest.raises(InvalidRequest, match="nothing is planned"):
        services.run("20200101000000000")
    assert table.refresh().config.metadata_partitions
    planned = services.plan_compaction()
    assert not table.config.metadata_partitions
    (path / ".hoodie/metadata").mkdir()
    [done] = services.run(planned)
    assert done.is_completed
    assert (path / ".hoodie/metadata").exists(), "dropped once: what another program makes later is not ours"
    assert rows(lakebed.open(path)) == before


def test_a_service_finishes_what_a_crash_left(golden: Callable[[str], Path]) -> None:
    storage = MemoryStorage.from_folder(golden(NAME))
    with pytest.raises(SimulatedCrash):
        faulty = FaultyStorage(storage, FaultPlan(crash_after=12))
        remove_metadata(MetaClient.open(faulty), txn_context_of(faulty, ManualClock()))
    later = txn_context_of(storage, ManualClock(ManualClock().ms + 400_000))
    table = Table(MetaClient.open(storage), txn_context=later)
    assert DROPPING in table.config.properties
    table.services.compact()
    assert DROPPING not in table.config.properties
    assert not [path for path in paths(storage) if path.startswith(".hoodie/metadata/")]


def test_a_metadata_table_that_was_built_meanwhile_is_not_the_one_to_remove(golden: Callable[[str], Path]) -> None:
    """Finishing what another began is no order to remove what Hudi made after that."""
    storage = MemoryStorage.from_folder(golden(NAME))
    partitions = MetaClient.open(storage).config.properties[PARTITIONS]
    update_properties(storage, {DROPPING: "true"}, (PARTITIONS,))

    def other() -> None:
        remove_metadata(MetaClient.open(storage), txn_context_of(storage, ManualClock()))
        update_properties(storage, {PARTITIONS: partitions})

    found = remove_metadata(MetaClient.open(storage), meanwhile(txn_context_of(storage, ManualClock()), other))
    assert found.config.properties[PARTITIONS] == partitions
    assert MetaClient.open(storage).config.properties[PARTITIONS] == partitions
