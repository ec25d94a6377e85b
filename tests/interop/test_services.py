"""Upkeep by lakebed, judged by real Hudi: it must read the same rows afterwards, and be able to go on writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from tests.conftest import expected

from .client import HudiPeer, PeerError
from .hudi_writer import BUCKETS, COMPACTION, HIVE, INDEX_OPTIONS, NO_CLEANING, NO_METADATA, WRITE, upsert_options
from .plain_rows import (
    KEYED,
    SCHEMA,
    assert_both_read,
    assert_hudi_reads,
    by_lakebed,
    in_order,
    numbered,
    replaced,
    rows,
    sound,
)

pytestmark = pytest.mark.interop


def test_a_downgraded_table_is_a_table_of_hudi(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakebed.create(path, SCHEMA, **{**KEYED, "log_format": "v2"}, num_buckets=2)
    table.bulk_insert(rows(*numbered(range(30), 1, int)))
    table.upsert(rows(*numbered(range(10), 2, lambda i: 100 + i), ["new", 1, "p2", 7]))
    table.delete(keys=[{"id": "k20", "p": "p0"}])
    table.upsert(rows(["k01", 0, "p1", -1]))
    wanted = by_lakebed(table)
    assert len(wanted) == 30
    with pytest.raises(PeerError):
        hudi.read(path)  # version 10 is beyond it
    table.services.downgrade(to=9)
    assert sound(table)
    assert_both_read(hudi, path, table, wanted)
    columns = ["id", "_hoodie_commit_time", "_hoodie_partition_path"]
    assert_hudi_reads(hudi, path, by_lakebed(table, columns), columns=columns)

    given = upsert_options("t", "mor", **BUCKETS, **HIVE, **NO_METADATA, **NO_CLEANING, **COMPACTION)
    newer = ["k02", 9, "p0", 999], ["k99", 1, "p1", 99]
    hudi.write(path, rows(*newer), given)
    now = replaced(wanted, *newer)
    assert_both_read(hudi, path, table, now)
    table.upsert(rows(["k03", 9, "p1", 333]))
    assert_hudi_reads(hudi, path, replaced(now, ["k03", 9, "p1", 333]))


@pytest.mark.parametrize("name", ["cow_simple_v9", "mor_bucket_v9", "mdt_all_v9"])
def test_a_table_without_its_metadata_table(hudi: HudiPeer, golden_copy: Callable[[str], Path], name: str) -> None:
    """Dropped, then written to by lakebed: Hudi reads right with and without asking for a metadata table."""
    path = golden_copy(name)
    snapshot = expected(name)["snapshot"]
    columns = [column for column in snapshot["columns"] if not column.startswith("_hoodie")]
    places = [snapshot["columns"].index(column) for column in columns]
    known = [[row[i] for i in places] for row in snapshot["rows"]]
    table = lakebed.open(path)
    given = dict(INDEX_OPTIONS["simple"])
    if "bucket" in name:
        given = {**BUCKETS, "hoodie.bucket.index.num.buckets": "3"}
    with pytest.raises(lakebed.InvalidRequest, match="drop_metadata"):
        table.upsert(table.scan(columns=columns, limit=1).to_arrow(), options=given)

    old = dict(zip(columns, known[0], strict=True))
    [place] = table.config.partition_fields
    changed = {**old, "id": "brand-new"}
    one = table.scan(columns=columns, filter=f"id = '{old['id']}'").to_arrow().slice(0, 1)
    index = one.schema.get_field_index("id")
    one = one.set_column(index, one.schema.field(index), pa.array(["brand-new"]))
    table.upsert(one, options=given, drop_metadata=True)
    assert sound(table)
    assert not (path / ".hoodie" / "metadata").exists()
    wanted = [*known, [changed[column] for column in columns]]
    for enabled in ("true", "false"):
        found = hudi.read(path, {"hoodie.metadata.enable": enabled}, columns=columns)
        assert in_order(found["rows"]) == in_order(wanted), enabled

    hive = {f"{WRITE}hive_style_partitioning": str(table.config.hive_style).lower()}
    more = {**given, **hive, **NO_CLEANING, f"{WRITE}partitionpath.field": place}
    hudi.write(path, one, upsert_options(name, table.config.table_type, **more))
    found = hudi.read(path, {"hoodie.metadata.enable": "true"}, columns=columns)
    assert in_order(found["rows"]) == in_order(wanted), "with the metadata table that Hudi has built anew"
    table.refresh()
    assert table.config.metadata_partitions
    assert sound(table)
