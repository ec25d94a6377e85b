"""Log files: every log of every golden table opens and decodes; native files; damage."""

from __future__ import annotations

import collections
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.datafile.log_file import has_parquet_content, hfile_reader, open_log_file, parquet_source, read_block
from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.format.avro.by_record import bare_schema
from lakebed.format.avro.container import decode_binary
from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.block_content import cdc_mode
from lakebed.format.log.v2 import footer_entries
from lakebed.format.names import parse_log_file
from lakebed.model.schema import load_avro
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"
TS = pa.field("ts", pa.int64())


def golden_logs() -> Iterator[tuple[MemoryStorage, str]]:
    """Every log file of every golden table, those of the metadata tables as well."""
    for fixture in sorted(FIXTURES.glob("*.zip")):
        with zipfile.ZipFile(fixture) as archive:
            for entry in archive.namelist():
                if parse_log_file(entry.rpartition("/")[2]) and "/.temp/" not in entry:
                    storage = MemoryStorage()
                    path = entry.partition("/")[2]
                    storage.put(path, archive.read(entry))
                    yield storage, path


def test_every_golden_log_opens_and_decodes() -> None:
    kinds: collections.Counter[str] = collections.Counter()
    rows: collections.Counter[str] = collections.Counter()
    for storage, path in golden_logs():
        data = storage.read(path)
        scanned = open_log_file(storage, path)
        end = 0
        for block in scanned.blocks:
            assert block.offset == end, path
            end = block.content_offset + block.content_length + 12
            assert block.requested_time == scanned.log.requested_time
            kinds[block.kind.name] += 1
            content = data[block.content_offset : block.content_offset + block.content_length]
            if block.kind in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
                count = _check_against_fastavro(storage, block, content)
            elif block.kind is BlockKind.DELETE:
                count = _check_deletes(storage, block, content)
            elif block.kind is BlockKind.HFILE_DATA:
                reader = hfile_reader(storage, block)
                count = sum(1 for _ in reader.entries())
                assert count == len(reader) > 0
            else:
                whole = pq.read_table(io.BytesIO(content))
                read = pa.Table.from_batches(read_block(storage, block))
                assert read.equals(whole.replace_schema_metadata(None))
                count = len(read)
            rows[block.kind.name] += count
        assert end == len(data), path
    least = {"HFILE_DATA": 722, "DELETE": 268, "AVRO_DATA": 166, "PARQUET_DATA": 12, "CDC_DATA": 10}
    assert kinds.keys() == least.keys()
    assert all(kinds[kind] >= count for kind, count in least.items())
    assert rows["AVRO_DATA"] + rows["CDC_DATA"] >= 1298


def _check_against_fastavro(storage, block, content: bytes) -> int:  # type: ignore[no-untyped-def]
    stream = io.BytesIO(content)
    version, count = (int.from_bytes(stream.read(4), "big") for _ in range(2))
    assert version == 3
    schema = bare_schema(load_avro(block.schema_json))
    records = []
    for _ in range(count):
        length = int.from_bytes(stream.read(4), "big")
        records.append(fastavro.schemaless_reader(io.BytesIO(stream.read(length)), schema))
    table = pa.Table.from_batches(read_block(storage, block))
    table.validate(full=True)
    assert len(table) == count
    for name in table.column_names:
        if not pa.types.is_nested(table.column(name).type) and not pa.types.is_temporal(table.column(name).type):
            assert table.column(name).to_pylist() == [record[name] for record in records], (block.file, name)
        else:
            assert [value is None for value in table.column(name).to_pylist()] == [r[name] is None for r in records]
    return count


def _check_deletes(storage, block, content: bytes) -> int:  # type: ignore[no-untyped-def]
    raw = decode_binary("HoodieDeleteRecordList", content[8:], block.file)["deleteRecordList"]
    wide = any(item["orderingVal"] and item["orderingVal"][0].endswith("ArrayWrapper") for item in raw)
    ordering = [pa.field("a", pa.string()), pa.field("b", pa.int64())] if wide else [TS]
    batches = list(read_block(storage, block, ordering=ordering))
    keys = [key for batch in batches for key in batch.column(0).to_pylist()]
    assert keys == [item["recordKey"] for item in raw]
    for batch in batches:
        assert batch.schema.names == ["_hoodie_record_key", *(field.name for field in ordering)]
    return len(keys)


def test_partial_and_change_data_blocks(golden: Callable[[str], Path]) -> None:
    partial = [b for s, p in _logs_of(golden("mor_partial_v9")) for b in open_log_file(s, p).blocks if b.is_partial]
    assert len(partial) == 4
    modes = {}
    for name in ("cow_cdc_v9", "cow_cdc_before_v9"):
        for storage, path in _logs_of(golden(name)):
            if path.endswith(".cdc"):
                (block,) = open_log_file(storage, path).blocks
                table = pa.Table.from_batches(read_block(storage, block, columns=["op", "before"]))
                modes[name] = cdc_mode([f["name"] for f in load_avro(block.schema_json or "")["fields"]])
                assert set(table.column("op").to_pylist()) <= {"i", "u", "d"}
    assert modes == {"cow_cdc_v9": "DATA_BEFORE_AFTER", "cow_cdc_before_v9": "DATA_BEFORE"}


def _logs_of(table: Path) -> Iterator[tuple[LocalStorage, str]]:
    storage = LocalStorage(table)
    for path in sorted(table.rglob(".*.log.*")):
        relative = path.relative_to(table).as_posix()
        if parse_log_file(path.name) and not relative.startswith(".hoodie"):
            yield storage, relative


def test_golden_positions_fit_their_blocks(golden: Callable[[str], Path]) -> None:
    seen = 0
    for name in ("mor_deletes_v9", "mor_eventtime_v9"):
        for storage, path in _logs_of(golden(name)):
            for block in open_log_file(storage, path).blocks:
                if block.positions_base_time is None:
                    continue
                rows = sum(batch.num_rows for batch in read_block(storage, block, ordering=[TS]))
                positions = block.positions(block.positions_base_time, rows)
                assert positions is not None and len(positions) == rows
                assert block.positions("20000101000000000", rows) is None
                with pytest.raises(CorruptTable):
                    block.positions(block.positions_base_time, rows + 1)
                seen += 1
    assert seen > 0


# --- native logs ------------------------------------------------------------------------------------------------------

STEM = "00000001-aaaa-0_1-0-7_20250101000000000_1"
HEADER = {Header.INSTANT_TIME: "20250101000000000", Header.SCHEMA: "{}"}


def native(table: pa.Table, kind: BlockKind, header: dict[Header, str] = HEADER) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema) as writer:
        if len(table):
            writer.write_table(table, row_group_size=2)
        writer.add_key_value_metadata(footer_entries(kind, header))
    return sink.getvalue()


def put(name: str, data: bytes) -> tuple[MemoryStorage, str]:
    storage = MemoryStorage()
    storage.put(f"p/{name}", data)
    return storage, f"p/{name}"


ROWS = pa.table({"_hoodie_record_key": ["a", "b", "c"], "ts": pa.array([1, 2, None], pa.int64()), "x": [1.5, 2.5, 3.5]})


def test_native_data_file() -> None:
    storage, path = put(f"{STEM}.log.parquet", native(ROWS, BlockKind.PARQUET_DATA))
    (block,) = open_log_file(storage, path).blocks
    assert (block.kind, block.version, block.requested_time) == (BlockKind.PARQUET_DATA, 2, "20250101000000000")
    table = pa.Table.from_batches(read_block(storage, block, columns=["x", "gone", "_hoodie_record_key"], batch_rows=2))
    assert table.column_names == ["x", "_hoodie_record_key"]
    assert table.column("x").to_pylist() == [1.5, 2.5, 3.5]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"_hoodie_record_key": ["a", "b"], "ts": pa.array([5, None], pa.int64())}),
        pa.table({"_hoodie_record_key": ["a", "b"], "ts": pa.array([5, None], pa.int32())}),
        pa.table({"record_key": ["a", "b"], "partition_path": ["p", "p"], "ordering_val": pa.array([5, None])}),
        pa.table({"record_key": ["a", "b"], "partition_path": ["p", "p"], "ordering_val": pa.array([b"5", None])}),
    ],
)
def test_native_deletes_of_both_schemas(table: pa.Table) -> None:
    storage, path = put(f"{STEM}.deletes.parquet", native(table, BlockKind.DELETE))
    (block,) = open_log_file(storage, path).blocks
    assert block.kind is BlockKind.DELETE
    (batch,) = read_block(storage, block, ordering=[TS])
    assert batch.to_pydict() == {"_hoodie_record_key": ["a", "b"], "ts": [5, None]}


def test_rfc_names_take_their_type_from_the_footer() -> None:
    name = ".00000001-aaaa-0_20250101000000000.log.1_1-0-7"
    deletes = pa.table({"_hoodie_record_key": ["a"], "ts": pa.array([5])})
    storage, path = put(name, native(deletes, BlockKind.DELETE))
    (block,) = open_log_file(storage, path).blocks
    assert block.kind is BlockKind.DELETE
    command = {
        Header.INSTANT_TIME: "20250101000000009",
        Header.COMMAND_BLOCK_TYPE: "0",
        Header.TARGET_INSTANT_TIME: "20250101000000001",
    }
    storage, path = put(name, native(deletes.slice(0, 0), BlockKind.COMMAND, command))
    (block,) = open_log_file(storage, path).blocks
    assert block.is_rollback and block.target_instant_time == "20250101000000001"
    assert list(read_block(storage, block)) == []
    sink = io.BytesIO()
    pq.write_table(deletes, sink)
    storage, path = put(name, sink.getvalue())
    with pytest.raises(CorruptTable):
        open_log_file(storage, path)


def test_files_that_are_no_logs() -> None:
    storage, path = put(f"{STEM}.log.parquet", b"")
    assert open_log_file(storage, path).blocks == ()
    storage, path = put(f"{STEM}.log.parquet", b"rubbish")
    with pytest.raises(CorruptTable):
        open_log_file(storage, path)
    storage, path = put(f"{STEM}.log.lance", b"rubbish")
    with pytest.raises(UnsupportedFormat):
        open_log_file(storage, path)
    storage, path = put(".00000001-aaaa-0_20250101000000000.log.1_1-0-7", b"rubbish")
    (block,) = open_log_file(storage, path).blocks
    assert (block.kind, block.content_length) == (BlockKind.CORRUPT, 7)
    with pytest.raises(InvalidRequest):
        open_log_file(storage, "p/readme.txt")


def test_parquet_block_in_a_version_1_log_is_read_in_place(golden: Callable[[str], Path]) -> None:
    found = 0
    for fixture in sorted(FIXTURES.glob("*parquet*.zip")):
        for storage, path in _logs_of(golden(fixture.stem)):
            for block in open_log_file(storage, path).blocks:
                if block.kind is not BlockKind.PARQUET_DATA:
                    assert has_parquet_content(block) is False
                    continue
                with parquet_source(storage, block) as source:
                    assert "_hoodie_record_key" in source.schema.names
                    (key_only,) = read_block(storage, block, columns=["_hoodie_record_key"])
                    assert key_only.num_rows == source.num_rows
                    found += 1
    assert found > 0


# --- damage -----------------------------------------------------------------------------------------------------------


def _damage_targets() -> list[tuple[str, bytes, int]]:
    """A file per kind of block, and how much of it is damaged: Parquet's inside is `ParquetSource`'s own test."""
    wanted: dict[BlockKind, tuple[str, bytes, int]] = {}
    for storage, path in golden_logs():
        data = storage.read(path)
        for block in open_log_file(storage, path).blocks:
            if block.content_length > 40:
                reach = block.content_offset if has_parquet_content(block) else len(data)
                wanted.setdefault(block.kind, (path, data, reach))
        if len(wanted) == 5:
            break
    return list(wanted.values())


TARGETS = _damage_targets()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_files_end_in_a_known_error_or_an_answer(data: st.DataObject) -> None:
    path, whole, reach = data.draw(st.sampled_from(TARGETS))
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, reach - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    storage = MemoryStorage()
    storage.put(path, bytes(damaged))
    try:
        for block in open_log_file(storage, path).blocks:
            for batch in read_block(storage, block, ordering=[TS]):
                batch.validate(full=True)
            if block.kind is BlockKind.HFILE_DATA:
                list(hfile_reader(storage, block).entries())
    except LakebedError:
        pass


@pytest.mark.parametrize("cut", [1, 4, 11, 100, -1])
def test_a_native_log_cut_short_is_corrupt(cut: int) -> None:
    storage, path = put(f"{STEM}.log.parquet", native(ROWS, BlockKind.PARQUET_DATA)[:cut])
    with pytest.raises(CorruptTable):
        open_log_file(storage, path)
