"""Between versions 8 and 9: what lakebed converts is what real Hudi converts, and Hudi goes on with it.

Tables of lakebed go up and down with logs that are not merged, and Hudi then reads, upserts and compacts them. Tables
of Hudi, one for each payload class that it ships, are converted by both, and their properties compared.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.names import PROPERTIES_FILE
from lakebed.format.table_files import parse_properties
from tests.golden.rows import expected_rows, rows_of

from .client import HudiPeer
from .going_on import complaint_of, filled
from .hudi_writer import COMPACTION, NO_METADATA, WRITE, upsert_options
from .kinds import Kind
from .rs_client import HudiRs

pytestmark = pytest.mark.interop
SEED = 2
WAYS = [
    (Kind(version=8, keys="simple", paths="hive", operation="delete_keys"), (9,)),
    (Kind(version=9, keys="simple", index="simple", layout="default", operation="update"), (8,)),
    (Kind(version=9, keys="flat", ordering="none", blocks="parquet", operation="upsert"), (8, 9)),
    (Kind(version=8, table_type="cow", index="bloom", keys="complex", operation="overwrite"), (10, 8, 9)),
    (Kind(version=10, keys="timestamp", operation="upsert"), (8,)),
]


def go(table: lakebed.Table, to: int) -> None:
    services = table.services
    (services.upgrade if table.config.version < to else services.downgrade)(to)


@pytest.mark.parametrize(("kind", "stops"), WAYS, ids=lambda given: str(given).replace(" ", ""))
def test_a_converted_table_goes_on_with_hudi(
    hudi: HudiPeer, rs: HudiRs, tmp_path: Path, kind: Kind, stops: tuple[int, ...]
) -> None:
    path = tmp_path / "t"
    work = filled(path, kind, SEED)
    for stop in stops:
        go(work.table, stop)
    if 10 in (kind.version, *stops):
        work.model.settle(work.model.rows)
    now = replace(kind, version=stops[-1])
    assert complaint_of(hudi, rs, path, work, now, services=("compact",)) == ""


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
    options = upsert_options("t", "mor", **NO_METADATA) | {
        f"{WRITE}partitionpath.field": "",
        f"{WRITE}precombine.field": ordering,
        f"{WRITE}payload.class": payload,
        "hoodie.compaction.payload.class": payload,
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
    now = {**options, **COMPACTION, "hoodie.write.table.version": str(other)}
    hudi.write(ours, rows(("a", 9, 7, None, "U"), ("d", 9, 8, "d", "I")), now)
    after = hudi_rows(hudi, ours)
    assert len({row[0] for row in after}) == len(after)
    assert ["d", 9, 8, "d", "I"] in after
    if name != "not shipped":
        assert rows_of(table.refresh().scan(columns=COLUMNS).to_arrow(), COLUMNS) == after
