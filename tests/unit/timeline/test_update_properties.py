"""Rewriting `hoodie.properties`: atomic, against others, over every crash, and never with a stale checksum file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import ConflictError, StorageUnavailable, TableNotFound, UnsupportedFormat
from lakebed.format.names import PROPERTIES_BACKUP_FILE, PROPERTIES_FILE
from lakebed.format.table_files import CHECKSUM_KEY, parse_properties, render_properties
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.table_properties import load_table_config, update_properties
from tests.unit.txn.tables import clone, make_table, new_table

CHANGES = {"my.key": "1", "hoodie.table.metadata.partitions": "files"}
REMOVALS = ("hoodie.table.partition.fields",)


def held(storage: MemoryStorage | LocalStorage) -> dict[str, str]:
    return parse_properties(storage.read(PROPERTIES_FILE), PROPERTIES_FILE)


def test_sets_removes_and_keeps_the_rest() -> None:
    storage = new_table()
    before = held(storage)
    config = update_properties(storage, CHANGES, REMOVALS)
    assert held(storage) == {k: v for k, v in before.items() if k not in REMOVALS} | CHANGES
    assert config.metadata_partitions == ("files",)
    assert load_table_config(storage) == config
    assert storage.stat(PROPERTIES_BACKUP_FILE) is None


def test_the_checksum_follows_the_name() -> None:
    storage = new_table()
    old = held(storage)[CHECKSUM_KEY]
    update_properties(storage, {"hoodie.table.name": "other"})
    assert held(storage)[CHECKSUM_KEY] != old
    assert load_table_config(storage).name == "other"
    properties = held(storage)
    del properties[CHECKSUM_KEY]
    storage.put(PROPERTIES_FILE, render_properties(properties))
    update_properties(storage, {})
    assert CHECKSUM_KEY in held(storage), "a file of an old writer gets one"


def test_nothing_to_change_writes_nothing() -> None:
    storage = new_table()
    update_properties(storage, CHANGES)
    counted = FaultyStorage(storage)
    update_properties(counted, CHANGES, ("no.such.key",))
    assert [op.kind for op in counted.ops] == ["delete"]


def test_a_change_that_makes_no_table_is_refused_before_anything_is_written() -> None:
    storage = new_table()
    before = storage.read(PROPERTIES_FILE)
    with pytest.raises(UnsupportedFormat):
        update_properties(storage, {"hoodie.table.version": "abc"})
    assert storage.read(PROPERTIES_FILE) == before
    assert storage.stat(PROPERTIES_BACKUP_FILE) is None
    with pytest.raises(TableNotFound):
        update_properties(MemoryStorage(), {})


def plans(steps: int) -> list[FaultPlan]:
    every = range(1, steps + 1)
    return [
        *(FaultPlan(crash_before=step) for step in every),
        *(FaultPlan(crash_after=step) for step in every),
        *(FaultPlan(tear=step) for step in every),
        *(FaultPlan(fail=frozenset({step})) for step in every),
        *(FaultPlan(lose_ack=frozenset({step})) for step in every),
    ]


def test_every_crash_leaves_the_old_or_the_new() -> None:
    base = new_table()
    old = load_table_config(base)
    trial = FaultyStorage(clone(base))
    new = update_properties(trial, CHANGES, REMOVALS)
    assert [op.kind for op in trial.ops] == ["put", "compare_and_swap", "delete"]
    seen = set()
    for plan in plans(len(trial.ops)):
        storage = clone(base)
        try:
            update_properties(FaultyStorage(storage, plan), CHANGES, REMOVALS)
        except (SimulatedCrash, StorageUnavailable):
            pass
        else:
            assert load_table_config(storage) == new
        found = load_table_config(storage)
        assert found in (old, new)
        seen.add(found == new)
        update_properties(storage, CHANGES, REMOVALS)
        assert load_table_config(storage) == new
        assert storage.stat(PROPERTIES_BACKUP_FILE) is None
    assert seen == {True, False}


@pytest.mark.parametrize("damage", ["missing", "cut", "no checksum"])
def test_a_rewrite_of_another_program_that_died_is_taken_back(damage: str) -> None:
    storage = new_table()
    old = held(storage)
    storage.put(PROPERTIES_BACKUP_FILE, storage.read(PROPERTIES_FILE))
    if damage == "missing":
        storage.delete([PROPERTIES_FILE])
    elif damage == "cut":
        storage.put(PROPERTIES_FILE, b"hoodie.table.name=t\n")
    else:
        storage.put(PROPERTIES_FILE, render_properties({k: v for k, v in old.items() if k != CHECKSUM_KEY}))
    update_properties(storage, {"my.key": "1"})
    assert held(storage) == old | {"my.key": "1"}
    assert storage.stat(PROPERTIES_BACKUP_FILE) is None


def test_two_changes_at_once_are_both_kept() -> None:
    storage = new_table()

    class Interrupted(FaultyStorage):
        def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
            if not self.ops[1:]:
                update_properties(storage, {"theirs": "1"})
            return super().compare_and_swap(path, data, version)

    update_properties(Interrupted(storage), {"ours": "1"})
    assert {"ours", "theirs"} <= set(held(storage))


def test_gives_up_on_a_file_that_never_rests() -> None:
    storage = new_table()
    number = 0

    class Restless(FaultyStorage):
        def compare_and_swap(self, path: str, data: bytes, version: str) -> bool:
            nonlocal number
            number += 1
            update_properties(storage, {"count": str(number)})
            return super().compare_and_swap(path, data, version)

    with pytest.raises(ConflictError):
        update_properties(Restless(storage), {"ours": "1"})
    assert load_table_config(storage).properties["count"] == str(number)


def test_checksum_files_of_hadoop_go(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    make_table(storage)
    for name in (".hoodie.properties.crc", ".hoodie.properties.backup.crc"):
        (tmp_path / ".hoodie" / name).write_bytes(b"crc\x00stale")
    update_properties(storage, CHANGES)
    assert list((tmp_path / ".hoodie").glob(".*.crc")) == []
