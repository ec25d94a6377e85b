"""Between versions 8 and 9: what lakebed converts is what real Hudi converts, and Hudi goes on with it.

Tables of lakebed go up and down with logs that are not merged, and Hudi then reads, upserts and compacts them. Tables
of Hudi, one for each payload class that it ships, are converted by both, and their properties compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.names import PROPERTIES_FILE
from lakebed.format.table_files import parse_properties
from tests.golden.rows import expected_rows, rows_of

from .checks import first
from .client import HudiPeer
from .hudi_turn import run_turn
from .kinds import Kind, create_arguments
from .lakebed_workload import LakebedWorkload
from .rs_client import HudiRs
from .write_checks import WriteJudge
from .written_model import WrittenModel

pytestmark = pytest.mark.interop
SEED = 2
WAYS = [
    (Kind(version=8, keys="simple", paths="hive", operation="delete_keys"), (9,)),
    (Kind(version=9, keys="simple", index="simple", layout="default", operation="update"), (8,)),
    (Kind(version=9, keys="flat", ordering="none", blocks="parquet", operation="upsert"), (8, 9)),
    (Kind(version=8, table_type="cow", index="bloom", keys="complex", operation="overwrite"), (10, 8, 9)),
    (Kind(version=10, keys="timestamp", operation="upsert"), (8,)),
]


@pytest.fixture
def rs(tmp_path: Path) -> Iterator[HudiRs]:
    with HudiRs(tmp_path) as reader:
        yield reader


def go(table: lakebed.Table, to: int) -> None:
    services = table.services
    (services.upgrade if table.config.version < to else services.downgrade)(to)


@pytest.mark.parametrize(("kind", "stops"), WAYS, ids=lambda given: str(given).replace(" ", ""))
def test_a_converted_table_goes_on_with_hudi(
    hudi: HudiPeer, rs: HudiRs, tmp_path: Path, kind: Kind, stops: tuple[int, ...]
) -> None:
    path = tmp_path / "t"
    table = lakebed.create(path, kind.schema(), **create_arguments(kind))
    work = LakebedWorkload(kind, SEED, table, WrittenModel(kind))
    work.load()
    for name in (kind.operation, "delete_keys", "upsert"):
        work.step(name)
    for stop in stops:
        go(work.table, stop)
    now = replace(kind, version=stops[-1])
    model = work.model
    if 10 in (kind.version, *stops):
        model.settle(model.rows)
    model.kind = work.kind = now
    judge = WriteJudge(hudi, rs, path, now, model, work.instants)

    def complaints() -> Iterator[str]:
        yield from judge.everybody()
        work.now += 10
        rows = list({now.record_key(row): row for row in work.mixed(late=False, marks=False)}.values())
        turn = run_turn(hudi, path, now, work.table_of(rows), "upsert", services=("compact",))
        work.instants.append(turn.write)
        model.upsert(rows)
        if turn.compacted:
            model.settle(model.rows)
        yield from judge.everybody()
        work.step("upsert")
        yield from judge.everybody()

    assert first(complaints()) == ""


MODEL = "org.apache.hudi.common.model."
PAYLOADS = {
    "default": (MODEL + "DefaultHoodieRecordPayload", "ts"),
    "latest": (MODEL + "OverwriteWithLatestAvroPayload", "ts"),
    "event time": (MODEL + "EventTimeAvroPayload", "ts"),
    "non defaults": (MODEL + "OverwriteNonDefaultsWithLatestAvroPayload", "ts"),
    "partial": (MODEL + "PartialUpdateAvroPayload", "ts"),
    "dms": (MODEL + "AWSDmsAvroPayload", "ts"),
    "not shipped": (MODEL + "HoodieAvroPayload", "ts"),
}
COLUMNS = ["id", "ts", "a", "b", "Op"]


def rows(*given: tuple[str, int, int | None, str | None, str]) -> pa.Table:
    types = [pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string()]
    return pa.table({name: pa.array(column, kind) for name, column, kind in zip(COLUMNS, zip(*given), types)})  # noqa: B905


def properties(path: Path) -> dict[str, str]:
    found = parse_properties((path / PROPERTIES_FILE).read_bytes(), PROPERTIES_FILE)
    return {key: value for key, value in found.items() if key != "hoodie.table.checksum"}


def hudi_rows(hudi: HudiPeer, path: Path) -> list[list[object]]:
    return expected_rows(hudi.read(path, columns=COLUMNS))


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("name", PAYLOADS)
def test_both_convert_alike(hudi: HudiPeer, tmp_path: Path, name: str, version: int) -> None:
    payload, ordering = PAYLOADS[name]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.precombine.field": ordering,
        "hoodie.datasource.write.payload.class": payload,
        "hoodie.compaction.payload.class": payload,
        "hoodie.metadata.enable": "false",
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
    }
    hudi.write(theirs, rows(("a", 5, 1, "x", "I"), ("b", 5, 2, "y", "I"), ("c", 5, 3, "z", "I")), options)
    hudi.write(theirs, rows(("a", 6, None, "n", "U"), ("b", 4, 20, None, "U"), ("c", 7, 3, "z", "D")), options)
    shutil.copytree(theirs, ours)
    before = hudi_rows(hudi, ours)
    other = 17 - version
    call, word = ("upgrade_table", "NINE") if other == 9 else ("downgrade_table", "EIGHT")
    sql = f"t_{name.replace(' ', '_')}_{version}"
    hudi.sql(f"create table {sql} using hudi location '{theirs}'")
    hudi.sql(f"call {call}(table => '{sql}', to_version => '{word}')")
    table = lakebed.open(ours)
    go(table, other)
    assert properties(ours) == properties(theirs)
    assert properties(ours)["hoodie.table.version"] == str(other)
    assert hudi_rows(hudi, ours) == before, "with logs that are not merged"
    now = {**options, "hoodie.write.table.version": str(other), "hoodie.compact.inline": "true"}
    hudi.write(
        ours,
        rows(("a", 9, 7, None, "U"), ("d", 9, 8, "d", "I")),
        {**now, "hoodie.compact.inline.max.delta.commits": "1"},
    )
    after = hudi_rows(hudi, ours)
    assert len({row[0] for row in after}) == len(after)
    assert ["d", 9, 8, "d", "I"] in after
    if name != "not shipped":
        assert rows_of(table.refresh().scan(columns=COLUMNS).to_arrow(), COLUMNS) == after
