"""Between versions 8, 9 and 10: no answer changes, nothing is left that a reader of the lower version would misread."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.format.names import INDEX_DEFS_FILE, parse_log_file
from lakebed.model.actions import ClusteringPlan, RequestedReplace, SavepointMetadata
from lakebed.model.finding import Severity
from lakebed.model.instant import Action
from lakebed.runner import SerialRunner
from lakebed.services.upgrade import downgrade, native_logs, upgrade
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.clock import ManualClock
from lakebed.testing.faults import FaultPlan, FaultyStorage, SimulatedCrash
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.options import Concurrency, TxnOptions
from lakebed.txn.transaction import Transaction, schedule
from lakebed.view.file_system_view import FileSystemView
from lakebed.write.create.create_table import NewTable, create_table
from tests.conftest import expected
from tests.golden.rows import rows_of
from tests.simulation.write_cases import SCHEMA, Rows, check_recovered, data, fill, leftovers, read, serious, table_on
from tests.unit.txn.tables import clone, meanwhile, metadata_of, txn_context_of

START_MS = 1_800_000_000_000


def filled(kind: str = "mor-v2") -> tuple[MemoryStorage, Rows]:
    storage = MemoryStorage()
    rows = fill(storage, kind, txn_context_of(storage, ManualClock(START_MS)))
    table = table_on(storage, txn_context_of(storage, ManualClock(START_MS + 1000)))
    table.delete(keys=[{"id": "k0", "p": "p0"}])
    return storage, {key: row for key, row in rows.items() if key != "k0"}


def down(storage: Storage, clock_ms: int = START_MS + 10_000, options: TxnOptions | None = None) -> None:
    txn_context = txn_context_of(storage, ManualClock(clock_ms), options)
    downgrade(MetaClient.open(storage), txn_context, 9, SerialRunner())


def test_a_table_without_native_logs_comes_out_of_a_downgrade() -> None:
    storage, rows = filled()
    assert native_logs(MetaClient.open(storage))
    down(storage)
    client = MetaClient.open(storage)
    assert int(client.config.version) == 9
    assert client.config.properties["hoodie.table.initial.version"] == "9"
    assert "lakebed.format.draft" not in client.config.properties
    assert client.config.is_lsm_tree, "sortedness is a fact of the files"
    assert not any(log.native for info in storage.list("", recursive=True) if (log := parse_log_file(info.name)))
    assert read(storage) == rows
    assert serious(table_on(storage).check()) == []
    words = [(instant.action, instant.is_completed) for instant in client.timeline.in_completion_order()[-2:]]
    assert words == [(Action.COMMIT, True), (Action.CLEAN, True)]
    commit = client.commit(client.completed_writes()[-1].requested_time)
    assert commit is not None
    assert (commit.operation, commit.compacted) == ("COMPACT", True)


def test_rows_keep_who_wrote_them() -> None:
    storage, _ = filled()
    columns = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno"]

    def stamps() -> list[str]:
        return sorted(map(str, table_on(storage).scan(columns=columns).to_arrow().to_pylist()))

    before = stamps()
    down(storage)
    assert stamps() == before


def test_writing_goes_on_in_the_new_version() -> None:
    storage, rows = filled()
    down(storage)
    later = txn_context_of(storage, ManualClock(START_MS + 20_000))
    check_recovered(storage, set(), rows, later)
    table_on(storage, later).upsert(data([("k1", 8, "p1", 8)]))
    assert not native_logs(MetaClient.open(storage))
    upgrade(MetaClient.open(storage), later, 10)
    table_on(storage, later).upsert(data([("k1", 9, "p1", 1)]))
    client = MetaClient.open(storage)
    assert int(client.config.version) == 10
    assert client.config.properties["lakebed.format.draft"] == "1"
    assert native_logs(client)
    kinds = {log.native for p in ("p=p0", "p=p1") for s in FileSystemView.of(client).slices(p) for log in s.log_files}
    assert kinds == {True, False}, "inline logs of version 9 and native ones side by side"
    found = read(storage)
    assert found is not None
    assert found["k1"] == ("k1", 9, "p1", 1)


def test_time_travel_to_before_the_downgrade_is_refused() -> None:
    storage, _ = filled()
    requested_time = MetaClient.open(storage).completed_writes()[1].requested_time
    assert table_on(storage).scan(as_of=requested_time).count()
    down(storage)
    with pytest.raises(InvalidRequest):
        table_on(storage).scan(as_of=requested_time).count()


def test_a_crash_at_every_step_of_a_downgrade() -> None:
    base, rows = filled()
    trial = FaultyStorage(clone(base))
    down(trial)
    assert len(trial.ops) > 30
    for step in range(1, len(trial.ops) + 1, 3):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            down(FaultyStorage(storage, FaultPlan(crash_after=step)))
        assert read(storage) == rows
        if int(MetaClient.open(storage).config.version) == 9:
            assert not native_logs(MetaClient.open(storage))
        down(storage, START_MS + 500_000)
        assert int(MetaClient.open(storage).config.version) == 9
        assert not native_logs(MetaClient.open(storage))
        assert read(storage) == rows
        assert [item for item in table_on(storage).check() if item.severity is not Severity.INFO] == []
        check_recovered(storage, set(), rows, txn_context_of(storage, ManualClock(START_MS + 600_000)))


def test_a_writer_that_is_at_work_is_not_disturbed() -> None:
    storage, rows = filled()
    several = TxnOptions(concurrency=Concurrency.OPTIMISTIC, lock_wait_ms=1000)
    slow = txn_context_of(storage, ManualClock(START_MS + 5000), several)
    with (
        Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, slow),
        pytest.raises(ConflictError, match="under way"),
    ):
        down(storage, options=several)
    assert int(MetaClient.open(storage).config.version) == 10
    assert read(storage) == rows


def test_a_version_that_changes_under_a_writer() -> None:
    storage, _ = filled("mor-v1")
    slow = txn_context_of(storage, ManualClock(START_MS + 5000))
    with (
        pytest.raises(ConflictError, match="from version 9 to 10"),
        Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, slow) as txn,
    ):
        upgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 6000)), 10)
        txn.commit(metadata_of({}))
    assert not MetaClient.open(storage).timeline.pending.instants
    assert leftovers(storage) == []


def test_what_is_refused() -> None:
    storage, _ = filled()
    client, txn_context = MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 10_000))
    with pytest.raises(InvalidRequest, match="no table version 6"):
        downgrade(client, txn_context, 6, SerialRunner())
    with pytest.raises(InvalidRequest, match="no table version 11"):
        upgrade(client, txn_context, 11)
    with pytest.raises(InvalidRequest, match="Use downgrade"):
        upgrade(client, txn_context, 9)
    assert upgrade(client, txn_context, 10) is client, "nothing to do"
    held = {partition: tuple(names) for partition, names in native_logs(client).items()}
    with Transaction.begin(
        client, Action.SAVEPOINT, txn_context, requested_time=client.completed_writes()[-1].requested_time
    ) as t:
        t.commit(SavepointMetadata("me", 0, "", held))
    with pytest.raises(InvalidRequest, match="savepoint"):
        down(storage)
    assert int(MetaClient.open(storage).config.version) == 10


def test_plans_of_others_must_be_run_first() -> None:
    storage, _ = filled()
    txn_context = txn_context_of(storage, ManualClock(START_MS + 10_000))
    plan = RequestedReplace("CLUSTER", ClusteringPlan(()))
    assert schedule(MetaClient.open(storage), Action.CLUSTERING, lambda _c, _b: plan, txn_context) is not None
    with pytest.raises(ConflictError, match="clustering"):
        down(storage, START_MS + 20_000)


def test_the_side_door(tmp_path: Path) -> None:
    rows = fill(LocalStorage(tmp_path / "t"), "mor-v2")
    table = lakebed.open(tmp_path / "t")
    table.services.downgrade(to=9)
    assert int(table.config.version) == 9
    table.services.upgrade(to=10)
    assert int(table.config.version) == 10
    assert read(LocalStorage(tmp_path / "t")) == rows
    shutil.rmtree(tmp_path / "t")


# ------------------------------------------------------------------ another one converts the table at the same time
def versions(storage: Storage) -> tuple[str | None, ...]:
    found = MetaClient.open(storage).config.properties
    return tuple(found.get(key) for key in ("hoodie.table.version", "lakebed.format.draft", "hoodie.record.merge.mode"))


def test_an_upgrade_after_a_downgrade_in_between_leaves_the_table_as_it_is() -> None:
    """Version 10 with the properties of version 8 would be neither."""
    storage, rows = filled("mor-v1")
    txn_context = txn_context_of(storage, ManualClock(START_MS + 10_000))

    def other() -> None:
        downgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 20_000)), 8, SerialRunner())

    with pytest.raises(ConflictError, match="went to version 8 meanwhile"):
        upgrade(MetaClient.open(storage), meanwhile(txn_context, other), 10)
    assert versions(storage)[:2] == ("8", None)
    upgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 30_000)), 10)
    assert versions(storage)[:2] == ("10", "1")
    assert "hoodie.compaction.payload.class" not in MetaClient.open(storage).config.properties
    assert read(storage) == rows


def test_a_downgrade_after_another_went_further_leaves_the_table_as_it_is() -> None:
    """Version 9 with the properties of version 8 would be neither."""
    storage, rows = filled("mor-v1")
    upgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 5000)), 10)

    def other() -> None:
        downgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 20_000)), 8, SerialRunner())

    txn_context = txn_context_of(storage, ManualClock(START_MS + 10_000))
    last = 2  # the lock is taken for the plan of a compaction that finds no native log, and for the step itself
    with pytest.raises(ConflictError, match="went to version 8 meanwhile"):
        downgrade(MetaClient.open(storage), meanwhile(txn_context, other, last), 9, SerialRunner())
    assert versions(storage)[:2] == ("8", None)
    assert read(storage) == rows


def test_two_that_go_the_same_way_meet_there() -> None:
    storage, rows = filled("mor-v1")
    txn_context = txn_context_of(storage, ManualClock(START_MS + 10_000))

    def other() -> None:
        upgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 20_000)), 10)

    assert int(upgrade(MetaClient.open(storage), meanwhile(txn_context, other), 10).config.version) == 10
    assert read(storage) == rows


def test_a_downgrade_to_eight_after_an_upgrade_in_between_is_not_silently_left_out() -> None:
    storage, _ = filled("mor-v1")
    txn_context = txn_context_of(storage, ManualClock(START_MS + 10_000))

    def other() -> None:
        upgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 20_000)), 10)

    with pytest.raises(ConflictError, match="went to version 10 meanwhile"):
        downgrade(MetaClient.open(storage), meanwhile(txn_context, other), 8, SerialRunner())
    assert versions(storage)[:2] == ("10", "1")


def test_rows_that_came_after_keys_were_looked_through() -> None:
    """A version 8 writer may write keys in a form that nobody finds in version 9."""
    storage = MemoryStorage()
    properties = {"hoodie.table.keygenerator.type": "COMPLEX", "hoodie.table.version": "8"}
    create_table(storage, NewTable("t", SCHEMA, ("id",), ("p",), ("ts",), log_format="v1", properties=properties))
    table_on(storage, txn_context_of(storage, ManualClock(START_MS))).upsert(data([("a", 1, "p0", 1)]))
    txn_context = txn_context_of(storage, ManualClock(START_MS + 10_000))

    def other() -> None:
        table_on(storage, txn_context_of(storage, ManualClock(START_MS + 20_000))).upsert(data([("b", 1, "p0", 1)]))

    with pytest.raises(ConflictError, match="while rows were looked through"):
        upgrade(MetaClient.open(storage), meanwhile(txn_context, other), 9)
    assert versions(storage)[0] == "8"
    upgrade(MetaClient.open(storage), txn_context_of(storage, ManualClock(START_MS + 30_000)), 9)
    assert versions(storage)[0] == "9"


def test_a_table_of_several_writers_gets_hudi_s_lock_with_the_version_that_hudi_writes(tmp_path: Path) -> None:
    fill(LocalStorage(tmp_path / "t"), "mor-v2")
    table = lakebed.open(tmp_path / "t")
    table.services.set_concurrency("optimistic_concurrency_control")
    assert table.config.properties["hoodie.write.lock.provider"].endswith(".StorageBasedLockProvider")
    table.services.downgrade(to=9)
    assert table.config.properties["hoodie.write.lock.provider"].endswith(".FileSystemBasedLockProvider")
    assert table.config.properties["hoodie.write.concurrency.mode"] == "OPTIMISTIC_CONCURRENCY_CONTROL"


# ------------------------------------------------------------------ version 8
def go(storage: Storage, to: int, clock_ms: int = START_MS + 10_000) -> None:
    """To a version, wherever the table is."""
    client, txn_context = MetaClient.open(storage), txn_context_of(storage, ManualClock(clock_ms))
    if client.config.version < to:
        upgrade(client, txn_context, to)
    else:
        downgrade(client, txn_context, to, SerialRunner())


def answers(storage: Storage) -> list[Any]:
    """Now, as of every write, and what changed since each."""
    table = table_on(storage)
    found: list[Any] = [rows_of(table.scan().to_arrow(), table.schema.names)]
    for write in table._client.completed_writes():
        assert write.completion_time is not None
        found.append(rows_of(table.scan(as_of=write.requested_time).to_arrow(), table.schema.names))
        found.append(rows_of(table.incremental(write.completion_time).to_arrow(), table.schema.names))
    return found


@pytest.mark.parametrize("kind", ["mor-v1", "cow"])
def test_between_8_and_9_no_file_and_no_answer_changes(kind: str) -> None:
    storage, _ = filled(kind)
    first = MetaClient.open(storage).config.properties
    before = answers(storage)
    files = {info.path for info in storage.list("", recursive=True)}
    for to in (8, 9, 8):
        go(storage, to)
        assert int(MetaClient.open(storage).config.version) == to
        assert answers(storage) == before
        assert {info.path for info in storage.list("", recursive=True)} == files
    down = MetaClient.open(storage).config.properties
    assert down["hoodie.table.precombine.field"] == "ts"
    assert down["hoodie.compaction.payload.class"].endswith(".DefaultHoodieRecordPayload")
    go(storage, 9)
    up = MetaClient.open(storage).config.properties
    assert up["hoodie.table.ordering.fields"] == "ts"
    assert {key for key in first if up.get(key) != first[key]} == set()


def test_the_whole_way_and_writes_at_each_stop() -> None:
    storage, rows = filled("mor-v1")
    late = START_MS + 20_000
    for number, to in enumerate((8, 10, 8, 9, 10, 9, 8)):
        go(storage, to, late := late + 10_000)
        assert int(MetaClient.open(storage).config.version) == to
        assert bool(native_logs(MetaClient.open(storage))) is False
        assert read(storage) == rows
        rows = {**rows, "k1": ("k1", 10 + number, "p1", number)}
        table_on(storage, txn_context_of(storage, ManualClock(late + 5000))).upsert(data([rows["k1"]]))
        assert bool(native_logs(MetaClient.open(storage))) is (to == 10)
        assert read(storage) == rows
    assert serious(table_on(storage).check()) == []


@pytest.mark.parametrize(("start", "end", "every"), [(8, 9, 1), (9, 8, 1), (8, 10, 1), (10, 8, 11)])
def test_a_crash_at_every_step_of_the_way(start: int, end: int, every: int) -> None:
    base, rows = filled("mor-v2" if start == 10 else "mor-v1")
    go(base, start)
    trial = FaultyStorage(clone(base))
    go(trial, end, START_MS + 20_000)
    for step in range(1, len(trial.ops) + 1, every):
        storage = clone(base)
        with pytest.raises(SimulatedCrash):
            go(FaultyStorage(storage, FaultPlan(crash_after=step)), end, START_MS + 20_000)
        assert read(storage) == rows
        go(storage, end, START_MS + 500_000)
        assert int(MetaClient.open(storage).config.version) == end
        assert bool(native_logs(MetaClient.open(storage))) is False
        assert read(storage) == rows
        check_recovered(storage, set(), rows, txn_context_of(storage, ManualClock(START_MS + 600_000)))


GOLDENS = [
    "cow_simple_v8",
    "mor_avro_v8",
    "mor_committime_v8",
    "mor_nondefaults_v8",
    "mor_rolledback_logs_v8",
    "cow_partialpayload_v9",
    "mor_debezium_mysql_v9",
    "mor_debezium_pg_v9",
    "mor_deletes_v9",
    "mor_dms_v9",
    "mor_nomdt_v9",
    "mor_partialpayload_v9",
]


@pytest.mark.parametrize("name", GOLDENS)
def test_tables_of_hudi_up_and_down(name: str, golden_copy: Callable[[str], Path]) -> None:
    path = golden_copy(name)
    storage = LocalStorage(path)
    before = answers(storage)
    assert len(before[0]) == expected(name)["snapshot"]["count"]
    table = lakebed.open(path)
    other = 17 - int(table.config.version)
    if table.config.has_metadata_table:
        with pytest.raises(InvalidRequest, match="metadata table"):
            go(storage, other)
        assert answers(storage) == before
    move = table.services.upgrade if other == 9 else table.services.downgrade
    move(to=other, drop_metadata=True)
    assert int(table.config.version) == other
    assert answers(storage) == before
    go(storage, 17 - other)
    assert answers(storage) == before
    go(storage, 8)
    go(storage, 10)
    assert answers(storage) == before
    assert serious(table.refresh().check()) == []


@pytest.mark.parametrize(
    ("name", "to", "why"),
    [
        ("mor_multi_ordering_v9", 8, "one ordering field"),
        ("cow_hive_v9", 8, "single key"),
        ("mor_multi_ordering_v9", 7, "no table version 7"),
        ("cow_simple_v8", 6, "no table version 6"),
        ("cow_simple_v8", 11, "no table version 11"),
    ],
)
def test_goldens_that_stay_as_they_are(name: str, to: int, why: str, golden_copy: Callable[[str], Path]) -> None:
    path = golden_copy(name)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    services = lakebed.open(path).services
    for drop_metadata in (False, True):
        with pytest.raises(InvalidRequest, match=why):
            (services.downgrade if to < 9 else services.upgrade)(to, drop_metadata)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_from_10_to_8_nothing_is_done_if_8_is_out_of_reach() -> None:
    storage, _ = filled()
    update_properties(storage, {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    before = {info.path: storage.read(info.path) for info in storage.list("", recursive=True)}
    with pytest.raises(InvalidRequest, match="IGNORE_DEFAULTS"):
        go(storage, 8)
    assert {info.path: storage.read(info.path) for info in storage.list("", recursive=True)} == before


def test_single_keys_in_the_plain_form(tmp_path: Path) -> None:
    """Hudi 0.14 to 1.0.2 wrote `7` where version 9 writes `id:7`: after an upgrade such rows would not be found."""
    plain = "hoodie.write.complex.keygen.new.encoding"
    for encoding in ("false", "true"):
        properties = {"hoodie.table.keygenerator.type": "COMPLEX", "hoodie.table.version": "8"}
        table = lakebed.create(
            tmp_path / encoding,
            data([("7", 1, "p0", 1)]).schema,
            record_key="id",
            partition_by="p",
            log_format="v1",
            properties=properties,
        )
        table.upsert(data([("7", 1, "p0", 1)]), options={plain: encoding})
        if encoding == "true":
            with pytest.raises(InvalidRequest, match="'7' would be 'id:7'"):
                table.services.upgrade(9)
            assert int(table.refresh().config.version) == 8
            continue
        table.services.upgrade(9)
        table.upsert(data([("7", 2, "p0", 2)]))
        assert table.scan().count() == 1
        with pytest.raises(InvalidRequest, match="single key"):
            table.services.downgrade(8)


MYSQL = {
    "hoodie.table.legacy.payload.class": "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload",
    "hoodie.record.merge.property.hoodie.payload.delete.field": "_change_operation_type",
    "hoodie.record.merge.property.hoodie.payload.delete.marker": "d",
}
EVENT = {"id": "a", "_change_operation_type": "c", "_event_bin_file": "bin.1", "_event_pos": 7, "_event_seq": "1.7"}


def events(path: Path, log_format: str, *rows: dict[str, Any]) -> lakebed.Table:
    """A table of version 9 or 10 with events of MySQL's; the columns are those of the first."""
    data = pa.Table.from_pylist(list(rows))
    ordering = ["_event_bin_file", "_event_pos"]
    table = lakebed.create(
        path, data.schema, record_key="id", ordering=ordering, log_format=log_format, properties=MYSQL
    )
    table.upsert(data)
    return table


@pytest.mark.parametrize("log_format", ["v1", "v2"])
def test_events_that_version_8_could_not_order(log_format: str, tmp_path: Path) -> None:
    """Hudi's payload class for MySQL takes the order from a column that later versions do without."""
    kept = {name: value for name, value in EVENT.items() if name != "_event_seq"}
    for number, (rows, why) in enumerate(
        [
            ([kept], "no such column"),
            ([EVENT, {**EVENT, "id": "b", "_event_seq": None}], "'_event_seq', which is null in 1 rows"),
        ]
    ):
        table = events(tmp_path / str(number), log_format, *rows)
        path = tmp_path / str(number)
        before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        with pytest.raises(InvalidRequest, match=why) as refused:
            table.services.downgrade(8)
        assert "_event_bin_file, _event_pos" in str(refused.value.hint)
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    table = events(tmp_path / "t", log_format, EVENT, {**EVENT, "id": "b"})
    table.services.downgrade(8)
    assert table.config.properties["hoodie.table.precombine.field"] == "_event_seq"
    table.services.upgrade(9)
    assert table.config.ordering_fields == ("_event_bin_file", "_event_pos")
    assert table.scan().count() == 2


def test_definitions_of_indexes_get_a_version() -> None:
    storage, _ = filled("mor-v1")
    go(storage, 8)
    update_properties(storage, {"hoodie.table.index.defs.path": INDEX_DEFS_FILE})
    entry = {"indexName": "files", "indexType": "files", "indexFunction": "", "sourceFields": [], "indexOptions": {}}
    storage.put(INDEX_DEFS_FILE, json.dumps({"indexDefinitions": {"files": entry}}).encode())
    go(storage, 9)
    written = json.loads(storage.read(INDEX_DEFS_FILE))
    assert written["indexDefinitions"]["files"] == {**entry, "version": "V1"}
    go(storage, 8)
    go(storage, 9)
    storage.put(INDEX_DEFS_FILE, json.dumps({"indexDefinitions": {"s": {**entry, "version": "V2"}}}).encode())
    with pytest.raises(InvalidRequest, match="form that version 8 does not know"):
        go(storage, 8)


def test_a_writer_of_version_8_does_not_commit_into_9() -> None:
    storage, _ = filled("mor-v1")
    go(storage, 8)
    slow = txn_context_of(storage, ManualClock(START_MS + 15_000))
    with (
        pytest.raises(ConflictError, match="from version 8 to 9"),
        Transaction.begin(MetaClient.open(storage), Action.DELTA_COMMIT, slow) as txn,
    ):
        go(storage, 9, START_MS + 16_000)
        txn.commit(metadata_of({}))
    assert leftovers(storage) == []
