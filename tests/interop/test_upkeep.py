"""Cleaning, archiving, savepoints, restore and partition lifetimes by lakebed, judged by real Hudi and hudi-rs.

After each service Hudi must read the same rows as before, see what lakebed did in its own procedures, go on writing,
and go on with its own cleaner and archiver where lakebed's left off.
"""

from __future__ import annotations

import json
import subprocess
from functools import partial
from operator import add
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.actions import CleanMetadata
from lakebed.model.finding import Finding, Severity
from lakebed.model.instant import Action
from lakebed.timeline.meta_client import MetaClient

from .client import HudiPeer, peer_python
from .hudi_writer import BUCKETS, COMPACTION, HIVE, NO_CLEANING, NO_METADATA, upsert_options
from .plain_rows import COLUMNS, KEYED, SCHEMA, in_order, numbered, rows

pytestmark = pytest.mark.interop

NO_UPKEEP = {**NO_CLEANING, "hoodie.archive.automatic": "false"}
KINDS = {
    "cow": {"table_type": "cow", "index": "simple"},
    "mor": {"table_type": "mor", "index": "bucket", "num_buckets": 2},
}


def by_lakebed(path: Path, as_of: str | None = None) -> list[str]:
    found = lakebed.open(path).scan(columns=COLUMNS, as_of=as_of).to_arrow().to_pylist()
    return in_order([[row[name] for name in COLUMNS] for row in found])


def by_hudi(hudi: HudiPeer, path: Path, **options: str) -> list[str]:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return in_order(hudi.read(path, given, columns=COLUMNS)["rows"])


def by_hudi_rs(path: Path, out: Path) -> list[str]:
    script = Path(__file__).with_name("hudi_rs.py")
    line = json.dumps({"path": str(path), "out": str(out)}) + "\n"
    done = subprocess.run(
        [str(peer_python()), str(script)], input=line, capture_output=True, text=True, timeout=120, check=False
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["error"] is None, answer["error"]
    with pa.ipc.open_file(str(out)) as reader:
        found = reader.read_all().select(COLUMNS).to_pylist()
    return in_order([[row[name] for name in COLUMNS] for row in found])


def findings(path: Path) -> list[Finding]:
    return [finding for finding in lakebed.open(path).check() if finding.severity is Severity.ERROR]


def begins(path: Path) -> list[str]:
    return [i.requested_time for i in MetaClient.open(lakebed.storage.local.LocalStorage(path)).completed_writes()]


def client(path: Path) -> MetaClient:
    return MetaClient.open(lakebed.storage.local.LocalStorage(path))


def make(path: Path, kind: str, writes: int) -> lakebed.Table:
    """A table that lakebed wrote, small in rows and long in commits."""
    table = lakebed.create(path, SCHEMA, **KEYED, **KINDS[kind])
    table.bulk_insert(rows(*numbered(range(20), 1, int)), options=NO_UPKEEP)
    for number in range(1, writes):
        changed = numbered(range(number % 3, 20, 4), 1 + number, partial(add, 100 * number))
        table.upsert(rows(*changed, [f"n{number}", 1, "p0", number]), options=NO_UPKEEP)
        if kind == "mor" and number % 4 == 0:
            table.services.compact()
    return table


def write_options(kind: str) -> dict[str, str]:
    """Hudi cleans and archives by itself here."""
    return upsert_options("t", kind, **HIVE, **NO_METADATA, **(BUCKETS if kind == "mor" else {}))


@pytest.mark.parametrize("kind", KINDS)
def test_hudi_goes_on_where_a_clean_and_an_archive_round_left_off(hudi: HudiPeer, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = make(path, kind, 14)
    wanted = by_lakebed(path)
    states = {requested_time: by_lakebed(path, requested_time) for requested_time in begins(path)}
    assert by_hudi(hudi, path) == wanted
    (cleaned,) = table.services.clean({"hoodie.clean.commits.retained": "4"})
    gone = table.services.archive({"hoodie.keep.max.commits": "8", "hoodie.keep.min.commits": "6"})
    assert len(begins(path)) == 6
    assert len(gone) > 5
    assert findings(path) == []
    assert by_lakebed(path) == wanted
    assert by_hudi(hudi, path) == wanted
    assert by_hudi_rs(path, tmp_path / "rows.arrow") == wanted

    clean = client(path).body(cleaned)
    assert isinstance(clean, CleanMetadata)
    retained = clean.earliest_to_retain
    assert retained == begins(path)[-4]
    for requested_time in begins(path)[-4:]:
        assert by_lakebed(path, requested_time) == states[requested_time]
        assert by_hudi(hudi, path, as__of__instant=requested_time) == states[requested_time]
    hudi.sql(f"CREATE TABLE upkeep_{kind} USING hudi LOCATION '{path}'")
    always = "start_ts => '20000101000000000', end_ts => '29991231000000000'"
    archived = hudi.sql(f"CALL show_archived_commits(table => 'upkeep_{kind}', limit => 100, {always})")
    time = archived["columns"].index("commit_time")
    assert {row[time] for row in archived["rows"]} == {i.requested_time for i in gone if i.action.adds_files}
    shown = hudi.sql(f"CALL show_cleans(table => 'upkeep_{kind}')")
    assert [row[shown["columns"].index("total_files_deleted")] for row in shown["rows"]] == [clean.total_files_deleted]
    assert [row[shown["columns"].index("earliest_commit_to_retain")] for row in shown["rows"]] == [retained]

    keep = {"hoodie.clean.commits.retained": "2", "hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4"}
    compaction = {**COMPACTION, "hoodie.compact.inline.max.delta.commits": "2"} if kind == "mor" else {}
    options = {**write_options(kind), **keep, **compaction, "hoodie.clean.automatic": "true"}
    for number in range(3):
        hudi.write(path, rows(["k01", 90 + number, "p1", 9000 + number], [f"h{number}", 1, "p0", 1]), options)
    now = client(path)
    cleans = now.full_timeline.completed.of_actions(Action.CLEAN).instants
    assert len(cleans) > 1, "Hudi's cleaner went on"
    assert len(begins(path)) <= 5, "and its archiver"
    assert findings(path) == []
    assert by_hudi(hudi, path) == by_lakebed(path)
    assert len(by_lakebed(path)) == len(wanted) + 3
    table.refresh()
    table.upsert(rows(["k02", 99, "p0", 1], ["x", 1, "p1", 1]), options=NO_UPKEEP)
    table.services.clean({"hoodie.clean.commits.retained": "1"})
    table.services.archive({"hoodie.keep.max.commits": "2", "hoodie.keep.min.commits": "1"})
    assert by_hudi(hudi, path) == by_lakebed(path)
    assert findings(path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_hudi_reads_and_writes_a_restored_table(hudi: HudiPeer, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = make(path, kind, 4)
    wanted = by_lakebed(path)
    saved = table.services.savepoint("a good state")
    shown = hudi.sql(f"CALL show_savepoints(path => '{path}')")
    assert [row[0] for row in shown["rows"]] == [saved.requested_time]
    hudi.write(path, rows(["k01", 90, "p1", 9000], ["h", 1, "p0", 1]), write_options(kind))
    table.refresh()
    table.overwrite(rows(["only", 1, "p0", 1]), options=NO_UPKEEP)
    table.upsert(rows(["more", 1, "p1", 1]), options=NO_UPKEEP)
    assert by_hudi(hudi, path) == by_lakebed(path)
    table.services.rollback(begins(path)[-1])
    assert by_hudi(hudi, path) == by_lakebed(path) == in_order([["only", 1, "p0", 1]])
    table.services.restore(saved)
    assert by_lakebed(path) == wanted
    assert by_hudi(hudi, path) == wanted
    assert by_hudi_rs(path, tmp_path / "rows.arrow") == wanted
    assert findings(path) == []
    hudi.write(path, rows(["k01", 91, "p1", 9001], ["h", 1, "p0", 1]), write_options(kind))
    assert by_hudi(hudi, path) == by_lakebed(path)
    assert len(by_lakebed(path)) == len(wanted) + 1
    table.refresh()
    table.services.restore(saved.requested_time)
    assert by_hudi(hudi, path) == by_lakebed(path) == wanted


def test_lakebed_restores_to_a_savepoint_of_hudi(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, "cow", 3)
    wanted = by_lakebed(path)
    hudi.sql(f"CALL create_savepoint(path => '{path}', commit_time => '{begins(path)[-1]}')")
    hudi.write(path, rows(["k01", 90, "p1", 9000], ["h", 1, "p0", 1]), write_options("cow"))
    table.refresh()
    table.services.restore()
    assert by_hudi(hudi, path) == by_lakebed(path) == wanted
    assert findings(path) == []


def test_expired_partitions_vanish_for_hudi_too(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, "cow", 2)
    assert table.services.drop_expired_partitions(days=1) is None
    assert table.services.drop_expired_partitions(days=0) is not None
    assert by_hudi(hudi, path) == by_lakebed(path) == []
    table.upsert(rows(["k01", 1, "p1", 1]), options=NO_UPKEEP)
    assert by_hudi(hudi, path) == by_lakebed(path) == in_order([["k01", 1, "p1", 1]])
