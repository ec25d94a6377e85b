"""Metadata-table records: keys recomputed, values decoded and rebuilt, all against real tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, LakebedError
from lakebed.format.avro.container import load_schema
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.log.block import BlockKind
from lakebed.format.log.v1 import scan_blocks
from lakebed.format.metadata.keys import (
    bloom_filter_key,
    column_stats_key,
    column_stats_prefix,
    expression_partition_key,
    file_group_index,
    file_group_indexes,
    partition_id,
    partition_path,
    partition_stats_key,
    secondary_hash_part,
    secondary_index_key,
    secondary_index_prefix,
    split_secondary_key,
)
from lakebed.format.metadata.payload import RECORD_SCHEMA_JSON, decode_record, encode_record
from lakebed.format.metadata.records import (
    BloomFilterRecord,
    ColumnStatsRecord,
    FileEntry,
    FilesRecord,
    MetadataRecord,
    RecordIndexRecord,
    RecordType,
    SecondaryIndexRecord,
    merge_records,
)
from lakebed.format.names import parse_base_file, parse_log_file, parse_metadata_file_id

Golden = Callable[[str], Path]
TABLES = ["mdt_all_v9", "mdt_expr_v9", "mor_maint_v9", "cow_hive_v9", "mor_committime_v8", "cow_oddkeys_rli_v9"]
Entry = tuple[Path, bytes, bytes, Any]


def entries(table: Path) -> Iterator[Entry]:
    """Every entry of every HFile and HFile log block of a table's metadata table."""
    root = table / ".hoodie" / "metadata"
    for path in sorted(root.glob("[!.]*/*")):
        data = path.read_bytes()
        spans: list[tuple[int, int, str | None]] = []
        if path.suffix == ".hfile":
            spans = [(0, len(data), None)]
        elif ".log." in path.name:
            blocks = scan_blocks(lambda at, n, d=data: d[at : at + n], len(data), path.name)
            spans = [
                (b.content_offset, b.content_length, b.schema_json) for b in blocks if b.kind is BlockKind.HFILE_DATA
            ]
        for offset, length, schema_json in spans:
            part = data[offset : offset + length]
            reader = HFileReader(lambda at, n, d=part: d[at : at + n], length, path.name)
            schema = load_schema(schema_json or reader.file_info[b"schema"], path.name)
            for key, value in reader.entries():
                yield path, key, value, schema


def file_id_of(path: Path) -> str:
    name = parse_base_file(path.name) or parse_log_file(path.name)
    assert name is not None
    return name.file_id


@pytest.mark.parametrize("table", TABLES)
def test_real_values_are_rebuilt_to_the_byte(golden: Golden, table: str) -> None:
    count = 0
    for path, key, value, schema in entries(golden(table)):
        record = decode_record(key, value, schema, path.name)
        is_compacted = value[:5] != bytes(5)
        assert encode_record(record, path.name if is_compacted else None) == value
        assert decode_record(key, value, load_schema(RECORD_SCHEMA_JSON, ""), path.name) == record
        count += 1
    assert count > 5


@pytest.mark.parametrize("table", TABLES)
def test_keys_lie_in_the_file_group_of_their_hash(golden: Golden, table: str) -> None:
    for folder in sorted((golden(table) / ".hoodie/metadata").glob("[!.]*")):
        groups = {file_id_of(p) for p in folder.iterdir() if p.suffix == ".hfile" or ".log." in p.name}
        for path, key, _, _ in entries(golden(table)):
            if path.parent != folder:
                continue
            text = key.decode()
            hashed = secondary_hash_part(text) if folder.name.startswith("secondary") else text
            number = parse_metadata_file_id(file_id_of(path))
            assert number is not None
            assert file_group_index(hashed, len(groups)) == number.number


@pytest.mark.parametrize("table", TABLES)
def test_keys_are_recomputed_from_what_they_stand_for(golden: Golden, table: str) -> None:
    root = golden(table)
    partitions = ["", *(str(p.parent.relative_to(root)) for p in root.rglob(".hoodie_partition_metadata"))]
    stats = 0
    for path, key, value, schema in entries(root):
        record = decode_record(key, value, schema, path.name)
        if isinstance(record, ColumnStatsRecord):
            column, name = record.column_name, record.file_name
            assert column is not None and name is not None
            stats += 1
            if record.type is RecordType.COLUMN_STATS:
                assert record.key in {column_stats_key(column, p, name) for p in partitions}
                assert record.key.startswith(column_stats_prefix(column))
            elif path.parent.name.startswith("expr_index"):
                assert record.key == expression_partition_key(column, name)
            else:
                assert record.key == partition_stats_key(column, partition_path(name))
        elif isinstance(record, BloomFilterRecord):
            names = [(p, f.name) for p in partitions if p for f in (root / p).glob("*.parquet")]
            assert record.key in {bloom_filter_key(p, name) for p, name in names}
        elif isinstance(record, SecondaryIndexRecord):
            assert record.key == secondary_index_key(record.value, record.record_key)
    assert stats or table in ("mor_maint_v9", "cow_oddkeys_rli_v9")


def test_record_index_points_to_real_files(golden: Golden) -> None:
    root = golden("mdt_all_v9")
    found = 0
    for path, key, value, schema in entries(root):
        record = decode_record(key, value, schema, path.name)
        if isinstance(record, RecordIndexRecord):
            assert list((root / record.partition).glob(f"{record.file_id}_*.parquet"))
            requested_time = dt.datetime.fromtimestamp(record.instant_ms / 1000, dt.UTC).strftime("%Y%m%d%H")
            assert requested_time == "2026111510"
            found += 1
    assert found >= 75


def test_a_column_stats_record_in_full(golden: Golden) -> None:
    records = [
        decode_record(key, value, schema, path.name)
        for path, key, value, schema in entries(golden("mdt_all_v9"))
        if path.parent.name == "column_stats"
    ]
    by_column = {
        (r.column_name, r.file_name): r
        for r in records
        if isinstance(r, ColumnStatsRecord) and (r.file_name or "").endswith("20261115103037978.parquet")
    }
    [day] = [r for (column, name), r in by_column.items() if column == "d" and (name or "").startswith("c17acb0b")]
    assert (day.type_ordinal, day.wrapper, day.min_value) == (6, "DoubleWrapper", 1.5)
    assert day.bounds[0] == pa.scalar(1.5)
    assert (day.value_count, day.null_count, day.is_deleted) == (30, 5, False)


@pytest.mark.parametrize(
    ("ordinal", "info", "wrapper", "raw", "scalar"),
    [
        (2, None, "BooleanWrapper", True, pa.scalar(True)),
        (3, None, "IntWrapper", 7, pa.scalar(7, pa.int32())),
        (10, "10,2", "BytesWrapper", b"\xff\x85", pa.scalar(Decimal("-1.23"), pa.decimal128(10, 2))),
        (10, "50,1", "BytesWrapper", b"\x0c", pa.scalar(Decimal("1.2"), pa.decimal256(50, 1))),
        (10, "none", "BytesWrapper", b"\x0c", None),
        (12, None, "IntWrapper", 19723, pa.scalar(dt.date(2024, 1, 1))),
        (14, None, "LongWrapper", 1_000_000, pa.scalar(dt.time(0, 0, 1), pa.time64("us"))),
        (16, None, "LongWrapper", 1, pa.scalar(1, pa.int64()).cast(pa.timestamp("us", "UTC"))),
        (19, None, "LongWrapper", 1, pa.scalar(1, pa.int64()).cast(pa.timestamp("us"))),
        (3, None, "StringWrapper", "no number", None),
        (99, None, "IntWrapper", 1, None),
        (1, None, None, None, None),
        (None, None, "DateWrapper", 1, pa.scalar(dt.date(1970, 1, 2))),
        (None, None, "DecimalWrapper", Decimal("1.5"), pa.scalar(Decimal("1.5"), pa.decimal128(30, 15))),
        (None, None, "TimestampMicrosWrapper", 1, pa.scalar(1, pa.int64()).cast(pa.timestamp("us", "UTC"))),
    ],
)
def test_bounds(ordinal: int | None, info: str | None, wrapper: str | None, raw: Any, scalar: pa.Scalar | None) -> None:
    record = ColumnStatsRecord(
        "k", RecordType.COLUMN_STATS, "f", "c", raw, raw, wrapper, type_ordinal=ordinal, type_info=info
    )
    assert record.bounds == (scalar, scalar)
    if wrapper and not (wrapper == "StringWrapper" and ordinal == 3):
        again = decode_record(b"k", encode_record(record), load_schema(RECORD_SCHEMA_JSON, ""), "f")
        assert again == record


def stats(low: Any, high: Any, **more: Any) -> ColumnStatsRecord:
    values: dict[str, Any] = {"value_count": 2, "null_count": 1, "total_size": 3, "total_uncompressed_size": 4}
    return ColumnStatsRecord("k", RecordType.PARTITION_STATS, "p", "c", low, high, "IntWrapper", **(values | more))


def test_bounds_that_are_not_exact_widen() -> None:
    merged = merge_records(stats(3, 5), stats(4, 9))
    assert isinstance(merged, ColumnStatsRecord)
    assert (merged.min_value, merged.max_value, merged.value_count, merged.null_count) == (3, 9, 4, 2)
    assert merge_records(stats(3, 5), stats(4, 9, is_tight_bound=True)) == stats(4, 9, is_tight_bound=True)
    assert merge_records(stats(3, 5), stats(None, None, is_deleted=True)) == stats(None, None, is_deleted=True)
    assert merge_records(stats(3, 5, is_deleted=True), stats(4, 9)) == stats(4, 9)
    decimals = merge_records(
        stats(b"\xff", b"\x01", type_ordinal=10, type_info="4,1"), stats(b"\x00\x02", b"\x00\x80", type_ordinal=10)
    )
    assert isinstance(decimals, ColumnStatsRecord)
    assert (decimals.min_value, decimals.max_value) == (b"\xff", b"\x00\x80")


def files(**sizes: int) -> FilesRecord:
    """Negative sizes are tombstones."""
    return FilesRecord("p", RecordType.FILES, {n: FileEntry(max(0, s), s < 0) for n, s in sizes.items()})


def test_files_merge_entry_by_entry() -> None:
    merged = merge_records(files(a=10, b=20, gone=5, dead=-1), files(a=7, b=30, gone=-1, new=1, dead=-1, lost=-1))
    assert isinstance(merged, FilesRecord)
    assert dict(merged.entries) == {
        "a": FileEntry(10),
        "b": FileEntry(30),
        "new": FileEntry(1),
        "dead": FileEntry(0, True),
        "lost": FileEntry(0, True),
    }
    assert merged.live == {"a": 10, "b": 30, "new": 1}
    assert merge_records(files(back=-1), files(back=4)) == files(back=4)


def test_other_records_are_replaced() -> None:
    one = RecordIndexRecord("k", "p", "f-0", 1)
    other = RecordIndexRecord("k", "q", "g-0", 2)
    assert merge_records(one, other) is other
    assert merge_records(None, one) is one
    gone = SecondaryIndexRecord("v$k", "v", "k", is_deleted=True)
    assert merge_records(SecondaryIndexRecord("v$k", "v", "k"), gone) is None


@pytest.mark.parametrize(
    "file_id",
    [
        "c17acb0b-241b-44bd-ab42-e60672697b0e-0",
        "00000003-0000-0000-0000-000000000000-12",
        "c17acb0b-241b-44bd-ab42-e60672697b0e",
        "C17ACB0B-241b-44bd-ab42-e60672697b0e-0",
        "c17acb0b-241b-44bd-ab42-e60672697b0e-007",
        "some-file",
    ],
)
def test_file_ids_survive(file_id: str) -> None:
    record = RecordIndexRecord("k", "p", file_id, 1794738637978)
    assert decode_record(b"k", encode_record(record), load_schema(RECORD_SCHEMA_JSON, ""), "f") == record


@given(st.none() | st.text(alphabet="ab$\\\0é", max_size=8), st.text(alphabet="ab$\\\0é", max_size=8))
def test_secondary_keys_split_again(value: str | None, record_key: str) -> None:
    key = secondary_index_key(value, record_key)
    assert key.startswith(secondary_index_prefix(value))
    assert split_secondary_key(key) == (value, record_key)
    assert secondary_hash_part(key) + "$" == secondary_index_prefix(value)


def test_secondary_key_text() -> None:
    assert secondary_index_key("a$b", "c\\d") == "a\\$b$c\\\\d"
    assert secondary_index_key(None, "k") == "\0$k"
    assert secondary_index_key("\0", "k") == "\\\0$k"
    assert split_secondary_key("no separator") is None


def java_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


@given(st.lists(st.text(max_size=20), max_size=20), st.integers(1, 1000))
def test_file_groups_of_many_keys(keys: list[str], groups: int) -> None:
    assert file_group_indexes(keys, groups).tolist() == [abs(java_hash(key)) % groups for key in keys]


def test_the_smallest_int_has_no_absolute_value() -> None:
    """In Java abs(-2^31) stays negative, so the remainder is taken of a negative number and made positive after."""
    key = "polygenelubricants"
    assert java_hash(key) == -(2**31)
    assert file_group_index(key, 10) == 8
    assert file_group_index(key, 1) == 0


def test_partition_ids() -> None:
    assert (partition_id(""), partition_id("a/b")) == (".", "a/b")
    assert (partition_path("."), partition_path("a/b")) == ("", "a/b")


@pytest.fixture(scope="module")
def samples(golden: Golden) -> list[tuple[bytes, bytes, Any, MetadataRecord]]:
    kinds: dict[object, tuple[bytes, bytes, Any, MetadataRecord]] = {}
    for path, key, value, schema in entries(golden("mdt_all_v9")):
        record = decode_record(key, value, schema, path.name)
        kinds[type(record), getattr(record, "type", None)] = (key, value, schema, record)
    assert len(kinds) == 7
    return list(kinds.values())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(
    samples: list[tuple[bytes, bytes, Any, MetadataRecord]], data: st.DataObject
) -> None:
    key, value, schema, _ = data.draw(st.sampled_from(samples))
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, min(len(value) - 1, 80)))] = data.draw(st.integers(0, 255))
    try:
        record = decode_record(key, bytes(damaged[: data.draw(st.integers(0, len(value)))]), schema, "f")
        merge_records(record, record)
    except LakebedError:
        pass


def test_foreign_schemas_are_refused() -> None:
    schema = load_schema('{"type":"record","name":"r","fields":[{"name":"type","type":"int"}]}', "f")
    with pytest.raises(CorruptTable, match="malformed"):
        decode_record(b"k", b"\x04", schema, "f")
    with pytest.raises(CorruptTable, match="malformed"):
        decode_record(b"k", b"\x20", schema, "f")
