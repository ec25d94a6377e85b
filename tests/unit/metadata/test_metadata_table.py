"""The metadata table against real tables: its listing is the folders' listing, its records are those Hudi reads."""

from __future__ import annotations

import base64
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.expression.predicate import ColumnStats
from lakebed.format.bloom_filter import load_bloom_filter
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.v1 import encode_block
from lakebed.format.metadata.keys import bloom_filter_key, column_stats_prefix, secondary_index_prefix
from lakebed.format.metadata.payload import RECORD_SCHEMA_JSON, encode_record
from lakebed.format.metadata.records import (
    BloomFilterRecord,
    ColumnStatsRecord,
    FileEntry,
    FilesRecord,
    MetadataRecord,
    RecordIndexRecord,
    RecordType,
    SecondaryIndexRecord,
)
from lakebed.format.names import parse_base_file, parse_log_file
from lakebed.metadata.metadata_table import MetadataTable
from lakebed.model.files import FileSlice
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.partitions import StorageLister
from tests.conftest import GOLDEN_NAMES, expected

Golden = Callable[[str], Path]
FIRST, SECOND, THIRD = "20261115103037978", "20261115103041151", "20261115103042735"


def open_metadata(root: Path) -> MetadataTable:
    table = MetadataTable.open(MetaClient.open(LocalStorage(str(root))))
    assert table is not None
    return table


def listing(table: MetadataTable) -> dict[str, dict[str, int]]:
    return {p: {info.name: info.size for info in table.files(p)} for p in table.partitions()}


def begin_of(name: str) -> str:
    parsed = parse_base_file(name) or parse_log_file(name)
    assert parsed is not None
    return parsed.requested_time


def file_names(file_slice: FileSlice) -> list[str | None]:
    return [file_slice.base_file.name if file_slice.base_file else None, *(log.name for log in file_slice.log_files)]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_the_listing_is_that_of_the_folders(golden: Golden, name: str) -> None:
    """Except for the files of failed writes, which lie in the folders and were never recorded."""
    client = MetaClient.open(LocalStorage(str(golden(name))))
    table = MetadataTable.open(client)
    if table is None:
        assert not (golden(name) / ".hoodie/metadata").exists()
        return
    folders = StorageLister(client.storage)
    data_files = {
        p: {f.name: f.size for f in folders.files(p) if parse_base_file(f.name) or parse_log_file(f.name)}
        for p in folders.partitions()
    }
    committed = {
        p: {n: s for n, s in files.items() if client.is_committed(begin_of(n))} for p, files in data_files.items()
    }
    assert listing(table) == committed
    left_over = {begin_of(n) for p, files in data_files.items() for n in files if n not in committed[p]}
    assert all(
        not instant.is_completed for requested_time in left_over for instant in client.timeline.at(requested_time)
    )
    assert bool(left_over) == ("_failed_" in name)
    views = FileSystemView.of(client, table), FileSystemView.of(client)
    for partition in table.partitions():
        by_name = [list(map(file_names, view.slices(partition))) for view in views]
        assert by_name[0] == by_name[1]


def unwrapped(value: Any) -> Any:
    """A bound as Spark shows the union of wrappers."""
    members = [m["value"] for m in (value or {}).values() if m is not None]
    if not members:
        return None
    return base64.b64decode(members[0]["b64"]) if isinstance(members[0], dict) else members[0]


def as_rows(record: MetadataRecord) -> tuple[Any, ...]:
    match record:
        case FilesRecord():
            return (record.key, int(record.type), tuple(sorted(record.live.items())))
        case BloomFilterRecord():
            return (record.key, 4, record.type_code, record.timestamp, record.bloom_filter)
        case ColumnStatsRecord():
            counts = (record.value_count, record.null_count, record.total_size, record.total_uncompressed_size)
            bounds = (record.min_value, record.max_value, record.is_tight_bound, record.type_ordinal)
            return (record.key, int(record.type), record.file_name, record.column_name, *bounds, *counts)
        case RecordIndexRecord():
            return (record.key, 5, record.partition, record.instant_ms)
        case SecondaryIndexRecord():
            return (record.key, 7)


def expected_row(row: list[Any]) -> tuple[Any, ...]:
    key, kind, files, bloom, stats, location, _ = row
    if files is not None:
        return (key, kind, tuple(sorted((n, f["size"]) for n, f in files.items() if not f["isDeleted"])))
    if bloom is not None:
        return (key, kind, bloom["type"], bloom["timestamp"], base64.b64decode(bloom["bloomFilter"]["b64"]))
    if stats is not None:
        counts = tuple(stats[c] for c in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize"))
        ordinal = (stats["valueType"] or {}).get("typeOrdinal")
        bounds = (unwrapped(stats["minValue"]), unwrapped(stats["maxValue"]), stats["isTightBound"], ordinal)
        return (key, kind, stats["fileName"], stats["columnName"], *bounds, *counts)
    if location is not None:
        return (key, kind, location["partitionName"], location["instantTime"])
    return (key, kind)


@pytest.mark.parametrize("name", ["mdt_all_v9", "mdt_expr_v9"])
def test_every_record_is_the_one_that_hudi_reads(golden: Golden, name: str) -> None:
    table = open_metadata(golden(name))
    found = Counter(as_rows(record) for p in table.data.config.metadata_partitions for record in table.records(p))
    assert found == Counter(map(expected_row, expected(name)["metadata_table_rows"]["rows"]))


@pytest.mark.parametrize("name", ["mdt_all_v9", "cow_oddkeys_rli_v9"])
def test_the_record_index_knows_every_row_and_no_other(golden: Golden, name: str) -> None:
    table = open_metadata(golden(name))
    snapshot = expected(name)["snapshot"]
    at = [snapshot["columns"].index(f"_hoodie_{c}") for c in ("record_key", "partition_path")]
    rows = {row[at[0]]: row[at[1]] for row in snapshot["rows"]}
    found = table.lookup("record_index", [*rows, "no such key"])
    assert {key: r.partition for key, r in found.items() if isinstance(r, RecordIndexRecord)} == rows
    assert {record.key for record in table.records("record_index")} == set(rows)


def test_a_deleted_row_is_out_of_the_indexes(golden: Golden) -> None:
    """Deletes are blocks of keys here, and an update of an indexed column removes the old pair."""
    table = open_metadata(golden("mdt_all_v9"))
    pairs = [r for r in table.records("secondary_index_idx_txt") if isinstance(r, SecondaryIndexRecord)]
    assert {pair.record_key for pair in pairs} == {r.key for r in table.records("record_index")}
    assert len(pairs) == 75
    for pair in pairs[:20]:
        assert set(table.prefix("secondary_index_idx_txt", secondary_index_prefix(pair.value))) == {
            other.key for other in pairs if other.value == pair.value
        }
        assert table.lookup("secondary_index_idx_txt", [pair.key]) == {pair.key: pair}


def test_bloom_filters_and_statistics_by_key(golden: Golden) -> None:
    table = open_metadata(golden("mdt_all_v9"))
    name = next(info.name for info in table.files("p0") if FIRST in info.name)
    key = bloom_filter_key("p0", name)
    record = table.lookup("bloom_filters", [key])[key]
    assert isinstance(record, BloomFilterRecord)
    bloom = load_bloom_filter(record.bloom_filter, record.type_code)
    assert bloom.might_contain("k0006")
    stats = table.column_stats("p0", [name, "missing.parquet"], ["d", "_hoodie_record_key", "no column"])
    assert set(stats) == {name}
    assert stats[name]["d"] == ColumnStats(1.5, 15.5, 5, 30)
    assert (stats[name]["_hoodie_record_key"].min, stats[name]["_hoodie_record_key"].rows) == ("k0000", 30)
    by_prefix = table.prefix("column_stats", column_stats_prefix("d", "p0"))
    assert {r.file_name for r in by_prefix.values() if isinstance(r, ColumnStatsRecord)} == {
        info.name for info in table.files("p0")
    }


def test_statistics_over_no_values_say_nothing(golden: Golden) -> None:
    table = open_metadata(golden("mdt_all_v9"))
    [log] = [info.name for info in table.files("p0") if info.name.startswith(".")]
    assert table.column_stats("p0", [log], ["d"]) == {log: {"d": ColumnStats()}}


def test_a_write_that_is_pending_on_the_data_table_does_not_count(golden_copy: Golden) -> None:
    """A writer that died after it committed here and before it committed there."""
    root = golden_copy("mdt_all_v9")
    before = listing(open_metadata(root))
    [completed] = (root / ".hoodie/timeline").glob(f"{THIRD}_*.deltacommit")
    completed.unlink()
    after = listing(open_metadata(root))
    assert after == {p: {n: s for n, s in files.items() if THIRD not in n} for p, files in before.items()}
    assert after != before


def test_a_write_that_is_gone_from_the_data_table_counts(golden_copy: Golden) -> None:
    """After a rollback the begin is no longer known there; what undoes it is a record of the rollback's own."""
    root = golden_copy("mdt_all_v9")
    before = listing(open_metadata(root))
    for path in (root / ".hoodie/timeline").glob(f"{THIRD}*"):
        path.unlink()
    assert listing(open_metadata(root)) == before


def test_a_write_that_did_not_complete_here_does_not_count(golden_copy: Golden) -> None:
    root = golden_copy("mdt_all_v9")
    [completed] = (root / ".hoodie/metadata/.hoodie/timeline").glob(f"{THIRD}_*.deltacommit")
    completed.unlink()
    with pytest.raises(CorruptTable, match=rf"lacks the completed write {THIRD}.*hoodie.metadata.enable"):
        open_metadata(root)
    [completed] = (root / ".hoodie/timeline").glob(f"{THIRD}_*.deltacommit")
    completed.unlink()
    assert not any(THIRD in name for files in listing(open_metadata(root)).values() for name in files)


def test_a_log_compaction_stands_for_the_blocks_it_covers(golden_copy: Golden) -> None:
    root = golden_copy("mdt_all_v9") / ".hoodie/metadata"
    requested_time, completion = "20261115103100000", "20261115103100500"
    record = FilesRecord("p0", RecordType.FILES, {"compacted.parquet": FileEntry(5)})
    content = write_hfile([(b"p0", encode_record(record))], schema_json=RECORD_SCHEMA_JSON)
    header = {
        Header.INSTANT_TIME: requested_time,
        Header.SCHEMA: RECORD_SCHEMA_JSON,
        Header.COMPACTED_BLOCK_TIMES: f"{FIRST},{SECOND}",
    }
    block = encode_block(BlockKind.HFILE_DATA, header, content)
    (root / f"files/.files-0000-0_{requested_time}.log.1_0-0-0").write_bytes(block)
    (root / f".hoodie/timeline/{requested_time}_{completion}.deltacommit").write_bytes(b"")
    files = {info.name for info in open_metadata(root.parent.parent).files("p0")}
    assert "compacted.parquet" in files
    assert not any(FIRST in name or SECOND in name for name in files)
    assert any(THIRD in name for name in files)


def test_tables_without_partitions_are_their_root(golden: Golden) -> None:
    table = open_metadata(golden("mor_maint_v9"))
    assert table.partitions() == [""]
    assert table.files("")
    assert all("/" not in info.path for info in table.files(""))


def test_what_is_not_there(golden: Golden, golden_copy: Golden) -> None:
    table = open_metadata(golden("mor_maint_v9"))
    assert table.files("no such partition") == []
    assert table.column_stats("p0", ["a"], ["b"]) == {}
    assert table.lookup("files", []) == {}
    with pytest.raises(InvalidRequest, match="record_index"):
        table.lookup("record_index", ["k"])
    root = golden_copy("mor_maint_v9")
    shutil.rmtree(root / ".hoodie/metadata")
    with pytest.raises(CorruptTable, match="no metadata table"):
        open_metadata(root)


def test_a_missing_file_group_is_noticed(golden_copy: Golden) -> None:
    root = golden_copy("mdt_all_v9")
    for path in (root / ".hoodie/metadata/record_index").glob("*record-index-0000-0_*"):
        path.unlink()
    with pytest.raises(CorruptTable, match="missing"):
        open_metadata(root).lookup("record_index", ["k0001"])


def test_file_groups_per_data_partition_are_refused(golden_copy: Golden) -> None:
    root = golden_copy("mdt_all_v9")
    for path in (root / ".hoodie/metadata/record_index").glob("*record-index-*"):
        path.rename(path.with_name(path.name.replace("record-index-", "record-index-p0-")))
    for path in (root / ".hoodie/metadata/.hoodie/timeline").glob("*.deltacommit"):
        path.write_bytes(b"")
    with pytest.raises(UnsupportedFormat, match="scheme"):
        open_metadata(root).lookup("record_index", ["k0001"])


def test_damaged_files_give_an_error_or_the_same_listing(golden_copy: Golden) -> None:
    root = golden_copy("mdt_all_v9")
    whole = listing(open_metadata(root))
    rng = random.Random(3)
    errors = 0
    for path in sorted((root / ".hoodie/metadata/files").glob("*files-0000-0_*")):
        data = path.read_bytes()
        for _ in range(12):
            damaged = bytearray(data)
            damaged[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            cut = data[: rng.randrange(len(data))]
            for content in (bytes(damaged), cut):
                path.write_bytes(content)
                try:
                    assert listing(open_metadata(root)) == whole
                except LakebedError:
                    errors += 1
        path.write_bytes(data)
    assert errors > 30
