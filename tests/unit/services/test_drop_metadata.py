"""A table with a metadata table is written to only when the metadata table may go; then it goes whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRequest
from lakebed.services.drop_metadata import DROPPING, remove_metadata
from lakebed.storage.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.timeline.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from tests.simulation.write_cases import serious
from tests.unit.txn.tables import clone, control_of, paths

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
        remove_metadata(MetaClient.open(storage), control_of(storage, ManualClock()))

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
        later = control_of(storage, ManualClock(ManualClock().ms + 400_000))
        table = Table(MetaClient.open(storage), control=later)
        begun = not table.config.metadata_partitions
        table.upsert(new_row(table), options={"hoodie.index.type": "SIMPLE"}, drop_metadata=not begun)
        assert not [path for path in paths(storage) if path.startswith(".hoodie/metadata/")], (
            "finished by the next write"
        )
        assert DROPPING not in MetaClient.open(storage).config.properties
