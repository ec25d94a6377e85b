"""Log writers of both formats: what goes in comes back in merge order, headers are right, files roll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.config.write_options import FileOptions, LogBlockFormat, LogNaming
from lakebed.datafile.log_file import has_parquet_content, open_log_file, parquet_source, read_block
from lakebed.datafile.log_scan import scan_slice
from lakebed.datafile.log_writer import LogSpec, LogWriter
from lakebed.datafile.log_writer_v1 import InlineLogWriter, block_frame
from lakebed.datafile.log_writer_v2 import NativeLogWriter, ParquetContainer, write_command_log
from lakebed.datafile.parquet_writer import RowEncoder
from lakebed.datafile.writers import FileSchema, WriteTarget, WrittenFile
from lakebed.errors import InvalidRequest, StorageUnavailable
from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.v1 import encode_block
from lakebed.model.files import FileGroupId
from lakebed.model.schema import avro_to_arrow
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.faults import FaultPlan, FaultyStorage

BEGIN, BASE = "20260101000000000", "20250101000000000"
TARGET = WriteTarget(FileGroupId("eu", "f-0"), BEGIN, "1-2-3")
SCHEMA = FileSchema.of_table(
    pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.list_(pa.string())), ("d", pa.decimal128(8, 3))]), "t"
)
ORDERING = (SCHEMA.arrow.field("ts"),)
SPEC = LogSpec(SCHEMA, ORDERING)
INPUT = pa.schema(
    [field for field in SCHEMA.arrow if field.name not in ("_hoodie_file_name", "_hoodie_partition_path")]
)
V1 = FileOptions(log_row_group_rows=100)
AVRO = replace(V1, log_block_format=LogBlockFormat.AVRO)
INLINE = replace(V1, log_naming=LogNaming.INLINE)

Open = Callable[..., LogWriter]
FORMATS = [
    pytest.param(InlineLogWriter, V1, id="v1-parquet"),
    pytest.param(InlineLogWriter, AVRO, id="v1-avro"),
    pytest.param(NativeLogWriter, V1, id="v2"),
    pytest.param(NativeLogWriter, INLINE, id="v2-inline"),
]


def rows(keys: Sequence[str]) -> pa.RecordBatch:
    made = [
        {
            "_hoodie_commit_time": BEGIN,
            "_hoodie_commit_seqno": f"{BEGIN}_0_{key}",
            "_hoodie_record_key": key,
            "id": key,
            "ts": number,
            "v": [key, None] if number % 2 else None,
        }
        for number, key in enumerate(keys)
    ]
    return pa.RecordBatch.from_pylist(made, schema=INPUT)


def deletes(keys: Sequence[str], values: Sequence[int | None]) -> pa.RecordBatch:
    return pa.record_batch({"_hoodie_record_key": list(keys), "ts": pa.array(values, pa.int64())})


def keys_to(count: int, word: str = "key") -> list[str]:
    return [f"{word}-{number:06d}" for number in range(count)]


def blocks_in_order(
    storage: Storage, files: Sequence[WrittenFile], ordering: Sequence[pa.Field] = ORDERING
) -> list[Any]:
    """(block, rows) of everything that counts, as a merge would see it."""
    scan = scan_slice([open_log_file(storage, file.stat.path or "") for file in files], lambda _: True)
    return [(run.block, pa.Table.from_batches(read_block(storage, run.block, ordering=ordering))) for run in scan.runs]


@pytest.mark.parametrize(("opened", "options"), FORMATS)
def test_rows_and_deletes_come_back(opened: Open, options: FileOptions) -> None:
    storage = MemoryStorage()
    with opened(storage, TARGET, SPEC, options) as writer:
        writer.write_rows(rows(keys_to(150)), inserts=20)
        writer.write_deletes(deletes(["x", "y"], [7, None]))
        files = writer.close()
    (data, table), *parts = blocks_in_order(storage, files)
    tombs, gone = parts[0][0], pa.concat_tables([part for _, part in parts])
    assert (data.kind.is_data, tombs.kind) == (True, BlockKind.DELETE)
    assert data.requested_time == tombs.requested_time == BEGIN
    assert avro_to_arrow(data.schema_json) == SCHEMA.arrow
    assert table.column("_hoodie_file_name").unique().to_pylist() == ["f-0"]
    assert table.column("_hoodie_partition_path").unique().to_pylist() == ["eu"]
    assert table.select(INPUT.names).to_pylist() == rows(keys_to(150)).to_pylist()
    assert gone.to_pylist() == [{"_hoodie_record_key": "x", "ts": 7}, {"_hoodie_record_key": "y", "ts": None}]
    if has_parquet_content(data):
        with parquet_source(storage, data) as source:
            assert source.is_sorted
            assert [group.rows for group in source.row_groups] == [100, 50]
    totals = [sum(getattr(file.stat, name) for file in files) for name in ("num_writes", "num_inserts", "num_updates")]
    assert totals == [150, 20, 130]
    assert sum(file.stat.num_deletes for file in files) == 2
    for file in files:
        info = storage.stat(file.stat.path or "")
        assert info is not None
        assert file.stat.file_size == info.size
        assert file.stat.log_files == ((file.stat.path or "").rpartition("/")[2],)
        assert (file.stat.base_file, file.stat.log_offset, file.stat.prev_commit) == ("", 0, BEGIN)


@pytest.mark.parametrize(("opened", "options"), FORMATS)
def test_earlier_deletes_stand_before_the_rows(opened: Open, options: FileOptions) -> None:
    storage = MemoryStorage()
    with opened(storage, TARGET, replace(SPEC, has_earlier_deletes=True), options) as writer:
        writer.write_deletes(deletes(["a"], [1]))
        writer.write_earlier_deletes(deletes(["key-000001"], [None]))
        writer.write_rows(rows(keys_to(3)))
        files = writer.close()
    kinds = [
        (block.kind.is_data, table.column("_hoodie_record_key")[0].as_py())
        for block, table in blocks_in_order(storage, files)
    ]
    assert kinds == [(False, "key-000001"), (True, "key-000000"), (False, "a")]
    with opened(storage, TARGET, SPEC, options) as writer, pytest.raises(InvalidRequest, match="earlier deletes"):
        writer.write_earlier_deletes(deletes(["a"], [1]))


def test_names() -> None:
    def paths(opened: Open, options: FileOptions, version: int) -> list[str | None]:
        with opened(MemoryStorage(), TARGET, SPEC, options, version=version) as writer:
            writer.write_rows(rows(["a"]))
            writer.write_deletes(deletes(["b"], [1]))
            return [file.stat.path for file in writer.close()]

    assert paths(InlineLogWriter, V1, 1) == [f"eu/.f-0_{BEGIN}.log.1_1-2-3"]
    assert paths(NativeLogWriter, V1, 1) == [
        f"eu/f-0_1-2-3_{BEGIN}_1.log.parquet",
        f"eu/f-0_1-2-3_{BEGIN}_1.deletes.parquet",
    ]
    assert paths(NativeLogWriter, INLINE, 4) == [f"eu/.f-0_{BEGIN}.log.4_1-2-3", f"eu/.f-0_{BEGIN}.log.5_1-2-3"]


@pytest.mark.parametrize(("opened", "options"), FORMATS)
def test_headers(opened: Open, options: FileOptions) -> None:
    storage = MemoryStorage()
    spec = replace(SPEC, is_partial=True, compacted_times=("1", "2"), positions_base=BASE)
    with opened(storage, TARGET, spec, options) as writer:
        writer.write_rows(rows(["a", "b"]), positions=np.array([3, 5], np.uint64))
        writer.write_rows(rows(["c"]), positions=np.array([9], np.uint64))
        writer.write_deletes(deletes(["d"], [1]), positions=np.array([4], np.uint64))
        writer.write_deletes(deletes(["e"], [1]))
        files = writer.close()
    (data, _), (tombs, _) = blocks_in_order(storage, files)
    assert data.is_partial
    assert not tombs.is_partial
    assert data.compacted_times == tombs.compacted_times == ("1", "2")
    positions = data.positions(BASE, 3)
    assert positions is not None
    assert positions.tolist() == [3, 5, 9]
    assert Header.RECORD_POSITIONS not in tombs.header, "a row without a position takes them from its whole block"
    assert tombs.positions_base_time is None


def test_version_1_parts_deletes_with_and_without_ordering_value() -> None:
    storage = MemoryStorage()
    with InlineLogWriter(storage, TARGET, replace(SPEC, positions_base=BASE), V1) as writer:
        writer.write_deletes(deletes(["a", "b", "c"], [None, 2, None]), positions=np.array([1, 4, 8], np.uint64))
        first, second = blocks_in_order(storage, writer.close())
    assert (first[1].to_pydict(), second[1].to_pydict()) == (
        {"_hoodie_record_key": ["b"], "ts": [2]},
        {"_hoodie_record_key": ["a", "c"], "ts": [None, None]},
    )
    assert [block.positions(BASE, table.num_rows).tolist() for block, table in (first, second)] == [[4], [1, 8]]


def test_version_1_keeps_positions_only_in_ascending_order() -> None:
    for opened, kept in ((InlineLogWriter, False), (NativeLogWriter, True)):
        storage = MemoryStorage()
        with opened(storage, TARGET, replace(SPEC, positions_base=BASE), V1) as writer:
            writer.write_rows(rows(["a", "b"]), positions=np.array([5, 3], np.uint64))
            ((block, _),) = blocks_in_order(storage, writer.close())
        assert (Header.RECORD_POSITIONS in block.header) is kept


def test_delete_files_of_both_schemas() -> None:
    for options, names in (
        (V1, ["_hoodie_record_key", "ts"]),
        (INLINE, ["record_key", "partition_path", "ordering_val"]),
    ):
        storage = MemoryStorage()
        with NativeLogWriter(storage, TARGET, SPEC, options) as writer:
            writer.write_deletes(deletes(["a"], [1]))
            (file,) = writer.close()
        (block,) = open_log_file(storage, file.stat.path or "").blocks
        with parquet_source(storage, block) as source:
            assert source.schema.names == names
            assert next(source.batches()).to_pylist()[0].get("partition_path", "eu") == "eu"
        assert avro_to_arrow(block.schema_json or "").names == names
        assert (file.stat.num_deletes, file.stat.num_writes, file.min_key) == (1, 0, "a")


def test_several_ordering_fields_and_none() -> None:
    two = (pa.field("ts", pa.int64()), pa.field("seq", pa.int32()))
    for options in (V1, INLINE):
        for ordering in (two, ()):
            for opened in (InlineLogWriter, NativeLogWriter):
                storage = MemoryStorage()
                with opened(storage, TARGET, LogSpec(SCHEMA, ordering), options) as writer:
                    writer.write_deletes(deletes(["a"], [1]))
                    ((_, table),) = blocks_in_order(storage, writer.close(), ordering)
                assert table.column_names == ["_hoodie_record_key", *(field.name for field in ordering)]


def test_version_1_begins_blocks_and_files_by_size() -> None:
    storage = MemoryStorage()
    options = replace(V1, log_block_max_size=2_000, log_max_size=9_000)
    with InlineLogWriter(storage, TARGET, SPEC, options) as writer:
        for at in range(0, 1000, 100):
            writer.write_rows(rows(keys_to(1000)[at : at + 100]), inserts=1)
        writer.write_deletes(deletes(["z"], [1]))
        files = writer.close()
    assert len(files) > 1
    assert [file.stat.log_version for file in files] == list(range(1, len(files) + 1))
    parts = blocks_in_order(storage, files)
    assert len(parts) > len(files)
    data = [table for block, table in parts if block.kind.is_data]
    assert [key for table in data for key in table.column("id").to_pylist()] == keys_to(1000)
    assert sum(file.stat.num_inserts for file in files) == 10
    assert parts[-1][0].kind is BlockKind.DELETE


def test_native_logs_begin_a_file_by_size() -> None:
    storage = MemoryStorage()
    with NativeLogWriter(storage, TARGET, SPEC, replace(V1, max_file_size=2_000)) as writer:
        for at in range(0, 1000, 100):
            writer.write_rows(rows(keys_to(1000)[at : at + 100]))
            writer.write_deletes(deletes(keys_to(1000, "gone")[at : at + 100], range(100)))
        files = writer.close()
    data = [file for file in files if file.stat.num_writes]
    assert len(data) > 2
    assert [file.stat.log_version for file in data] == list(range(1, len(data) + 1))
    assert sum(file.rows for file in files) == 2000
    assert len({file.stat.path for file in files}) == len(files)


@pytest.mark.parametrize(("opened", "options"), FORMATS)
def test_disorder_is_refused_and_leaves_nothing(opened: Open, options: FileOptions) -> None:
    storage = MemoryStorage()
    with opened(storage, TARGET, SPEC, options) as writer:
        writer.write_rows(rows(["b"]))
        with pytest.raises(InvalidRequest, match="'a' comes after 'b'"):
            writer.write_rows(rows(["a"]))
        with pytest.raises(InvalidRequest, match="2 positions"):
            writer.write_rows(rows(["c"]), positions=np.array([1, 2], np.uint64))
        with pytest.raises(InvalidRequest, match="twice"):
            writer.write_deletes(deletes(["d", "d"], [1, 1]))
    assert list(storage.list("", recursive=True)) == []


@pytest.mark.parametrize(("opened", "options"), FORMATS)
def test_unsorted_rows_without_a_mark(opened: Open, options: FileOptions) -> None:
    storage = MemoryStorage()
    with opened(storage, TARGET, replace(SPEC, is_sorted=False), options) as writer:
        writer.write_rows(rows(["b", "a"]))
        files = writer.close()
    ((block, table),) = blocks_in_order(storage, files)
    assert table.column("id").to_pylist() == ["b", "a"]
    assert (files[0].min_key, files[0].max_key) == ("a", "b")
    if has_parquet_content(block):
        with parquet_source(storage, block) as source:
            assert not source.is_sorted


@pytest.mark.parametrize(("opened", "options"), FORMATS)
def test_nothing_written_is_no_file(opened: Open, options: FileOptions) -> None:
    storage = MemoryStorage()
    with opened(storage, TARGET, SPEC, options) as writer:
        writer.write_rows(rows([]))
        assert writer.close() == []
    assert list(storage.list("", recursive=True)) == []


@pytest.mark.parametrize(("opened", "options"), FORMATS)
def test_a_failing_store_is_reported(opened: Open, options: FileOptions) -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, FaultPlan(fail=frozenset({1})))
    with pytest.raises(StorageUnavailable), opened(storage, TARGET, SPEC, options) as writer:
        writer.write_rows(rows(keys_to(10)))
        writer.close()
    assert list(inner.list("", recursive=True)) == []


@pytest.mark.parametrize("options", [V1, INLINE])
def test_a_command_log_has_no_rows(options: FileOptions) -> None:
    storage = MemoryStorage()
    written = write_command_log(storage, TARGET, BASE, options)
    (block,) = open_log_file(storage, written.stat.path or "").blocks
    assert block.is_rollback
    assert (block.requested_time, block.target_instant_time) == (BEGIN, BASE)
    with parquet_source(storage, block) as source:
        assert (source.num_rows, source.row_groups) == (0, ())


@pytest.mark.parametrize("size", [0, 1, 70_000])
def test_a_frame_around_a_content_is_the_block(size: int) -> None:
    header = {Header.INSTANT_TIME: BEGIN, Header.SCHEMA: "ü" * 40}
    content = bytes(size)
    head, tail = block_frame(BlockKind.PARQUET_DATA, header, size)
    assert head + content + tail == encode_block(BlockKind.PARQUET_DATA, header, content)


def test_a_log_can_lie_in_another_container() -> None:
    class Renamed(ParquetContainer):
        extension = "lance"

        def encoder(self, *args: Any, **kwargs: Any) -> RowEncoder:
            return super().encoder(*args, **kwargs)

    storage = MemoryStorage()
    with NativeLogWriter(storage, TARGET, SPEC, V1, container=Renamed()) as writer:
        writer.write_rows(rows(["a"]))
        (file,) = writer.close()
    assert file.stat.path == f"eu/f-0_1-2-3_{BEGIN}_1.log.lance"


def test_rows_need_their_key_in_the_schema() -> None:
    bare = FileSchema.from_avro('{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}')
    with pytest.raises(InvalidRequest, match="_hoodie_record_key"):
        NativeLogWriter(MemoryStorage(), TARGET, LogSpec(bare))
