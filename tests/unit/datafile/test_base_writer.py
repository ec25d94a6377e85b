"""Base file writers: the footer real Hudi would have written, marks that are true, all or nothing."""

from __future__ import annotations

import base64
import itertools
import struct
import threading
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.config.write_options import Codec, FileOptions
from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.column_encoding import choose_encodings, leaf_paths
from lakebed.datafile.key_bounds import KeyBounds
from lakebed.datafile.write_queue import WriteQueue
from lakebed.datafile.writers import BaseFileWriter, FileSchema, RollingBaseWriter, WriteTarget, WrittenFile
from lakebed.errors import InvalidRequest, StorageUnavailable
from lakebed.format.bloom_filter import FOOTER_KEY, MAX_KEY, MIN_KEY, TYPE_CODE_KEY
from lakebed.format.names import parse_base_file
from lakebed.model.files import FileGroupId
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.storage import Storage
from lakebed.testing.faults import FaultPlan, FaultyStorage

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"
BEGIN = "20260101000000000"
TARGET = WriteTarget(FileGroupId("eu", "f-0"), BEGIN, "1-2-3", prev_commit="20250101000000000")
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("city", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("more", pa.struct([("a", pa.int32()), ("b", pa.map_(pa.string(), pa.int64()))])),
        ("raw", pa.binary()),
    ]
)
SCHEMA = FileSchema.of_table(COLUMNS, "orders")
INPUT = pa.schema(
    [field for field in SCHEMA.arrow if field.name not in ("_hoodie_file_name", "_hoodie_partition_path")]
)


def rows(keys: Sequence[str], start: int = 0) -> pa.RecordBatch:
    made = [
        {
            "_hoodie_commit_time": BEGIN,
            "_hoodie_commit_seqno": f"{BEGIN}_0_{number}",
            "_hoodie_record_key": key,
            "id": key,
            "n": number,
            "city": f"city {number % 7}",
            "price": Decimal(number - 50) / 100 if number % 5 else None,
            "at": datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=number),
            "day": date(2020, 1, 1) + timedelta(days=number),
            "tags": ["x", None] if number % 2 else None,
            "more": {"a": number, "b": [("k", number)]},
            "raw": bytes([number % 256]),
        }
        for number, key in enumerate(keys, start)
    ]
    return pa.RecordBatch.from_pylist(made, schema=INPUT)


def keys_to(count: int) -> list[str]:
    return [f"key-{number:06d}" for number in range(count)]


def write(
    storage: Storage, batches: Sequence[pa.RecordBatch], options: FileOptions | None = None, **how: Any
) -> WrittenFile:
    with BaseFileWriter(storage, TARGET, SCHEMA, options, **how) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def parquet(storage: MemoryStorage, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(storage.read(path)), page_checksum_verification=True)


# --- what is in the file ----------------------------------------------------------------------------------------------


def test_rows_come_back_with_their_place_set() -> None:
    storage = MemoryStorage()
    made = [rows(keys_to(700)), rows([f"z{number}" for number in range(9)], 700)]
    written = write(storage, made, FileOptions(row_group_rows=256), bloom_filter=True)
    name = f"f-0_1-2-3_{BEGIN}.parquet"
    assert written.stat.path == f"eu/{name}"
    with open_base_file(storage, written.stat.path) as source:
        assert source.is_sorted
        assert [group.rows for group in source.row_groups] == [256, 256, 197]
        back = pa.Table.from_batches(source.batches())
    assert back.column_names == SCHEMA.arrow.names
    assert back.column("_hoodie_file_name").unique().to_pylist() == [name]
    assert back.column("_hoodie_partition_path").unique().to_pylist() == ["eu"]
    assert back.select(INPUT.names).to_pylist() == pa.Table.from_batches(made).to_pylist()


def test_the_stat_says_what_a_commit_needs() -> None:
    storage = MemoryStorage()
    with BaseFileWriter(storage, TARGET, SCHEMA) as writer:
        writer.write(rows(keys_to(10)))
        writer.counts.inserts, writer.counts.updates, writer.counts.deletes = 7, 2, 1
        stat = writer.close().stat
    info = storage.stat(f"eu/f-0_1-2-3_{BEGIN}.parquet")
    assert info is not None
    assert (stat.file_id, stat.partition_path, stat.prev_commit) == ("f-0", "eu", "20250101000000000")
    assert (stat.num_writes, stat.num_inserts, stat.num_updates, stat.num_deletes) == (10, 7, 2, 1)
    assert stat.file_size == stat.total_write_bytes == info.size


def test_types_are_those_of_hudi() -> None:
    storage = MemoryStorage()
    schema = str(parquet(storage, write(storage, [rows(keys_to(3))]).stat.path or "").schema)
    assert "fixed_len_byte_array(5) field_id=-1 price (Decimal(precision=10, scale=2))" in schema
    assert "int64 field_id=-1 at (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds" in schema
    assert "int32 field_id=-1 day (Date)" in schema
    assert "ARROW:schema" not in schema


def golden_base_files() -> Iterator[tuple[str, bytes]]:
    """Parquet base files that Hudi's Avro writer made (row writers leave the Avro schema out)."""
    for fixture in sorted(FIXTURES.glob("*.zip")):
        with zipfile.ZipFile(fixture) as archive:
            for entry in archive.namelist():
                if parse_base_file(entry.rpartition("/")[2]) and entry.endswith(".parquet") and ".hoodie/" not in entry:
                    yield entry, archive.read(entry)


def test_rewriting_base_files_of_real_hudi_gives_their_footer() -> None:
    """Bloom filter, key bounds, Avro schema and the types of plain columns, out of the rows alone."""
    seen = 0
    for entry, data in golden_base_files():
        theirs = pq.ParquetFile(pa.BufferReader(data))
        footer = {key.decode(): value.decode() for key, value in theirs.metadata.metadata.items()}
        if "parquet.avro.schema" not in footer or FOOTER_KEY not in footer or not theirs.metadata.num_rows:
            continue
        name = parse_base_file(entry.rpartition("/")[2])
        assert name is not None
        storage = MemoryStorage()
        partition = theirs.read(["_hoodie_partition_path"]).column(0)[0].as_py()
        target = WriteTarget(FileGroupId(partition, name.file_id), name.requested_time, name.write_token)
        schema = FileSchema.from_avro(footer["parquet.avro.schema"])
        table = theirs.read()
        with BaseFileWriter(storage, target, schema, _sizing(footer), is_sorted=False, bloom_filter=True) as writer:
            for batch in table.to_batches():
                writer.write(batch)
            written = writer.close()
        ours = parquet(storage, written.stat.path or "")
        mine = {key.decode(): value.decode() for key, value in ours.metadata.metadata.items()}
        for key in (FOOTER_KEY, TYPE_CODE_KEY, MIN_KEY, MAX_KEY, "parquet.avro.schema", "writer.model.name"):
            assert mine.get(key) == footer.get(key), (entry, key)
        assert repr(ours.read().to_pylist()) == repr(table.to_pylist()), entry  # texts, for NaN equals nothing
        for place, field in enumerate(theirs.schema_arrow):
            if not pa.types.is_nested(field.type):
                assert ours.schema_arrow.field(place) == field, entry
        seen += 1
    assert seen > 60


def _sizing(footer: dict[str, str]) -> FileOptions:
    """The sizes the golden tables were written with, out of the filter itself: some asked for a small one."""
    raw = base64.b64decode(footer[FOOTER_KEY])
    hashes, entries = struct.unpack_from(">i", raw, 4)[0], struct.unpack_from(">i", raw, 13)[0]
    return FileOptions(bloom_entries=entries, bloom_error_rate={20: 1e-6, 30: 1e-9}[hashes])


def test_without_meta_fields_the_columns_are_empty_and_the_footer_silent() -> None:
    storage = MemoryStorage()
    written = write(storage, [rows(keys_to(5)).select(COLUMNS.names)], is_sorted=False, populate_meta_fields=False)
    file = parquet(storage, written.stat.path or "")
    assert file.read(["_hoodie_record_key"]).column(0).null_count == 5
    assert not {FOOTER_KEY.encode(), MIN_KEY.encode()} & set(file.metadata.metadata)
    assert (written.min_key, written.max_key) == (None, None)


def test_without_meta_fields_the_order_of_rows_is_checked_and_marked_all_the_same() -> None:
    storage = MemoryStorage()
    written = write(storage, [rows(keys_to(5))], populate_meta_fields=False)
    with open_base_file(storage, written.stat.path or "") as source:
        assert source.is_sorted
        assert source.is_sorted_by_made_key
        assert source.key_range is None
    with pytest.raises(InvalidRequest, match="ascend"):
        write(storage, [rows(keys_to(5)), rows(keys_to(5))], populate_meta_fields=False)
    with pytest.raises(InvalidRequest, match="_hoodie_record_key"):
        write(storage, [rows(keys_to(5)).select(COLUMNS.names)], populate_meta_fields=False)


def test_a_file_without_rows_is_legal() -> None:
    storage = MemoryStorage()
    written = write(storage, [], bloom_filter=True)
    assert (written.rows, written.min_key) == (0, None)
    with open_base_file(storage, written.stat.path or "") as source:
        assert source.num_rows == 0
        assert MIN_KEY not in source.footer
        assert list(source.batches()) == []


# --- order and keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        (["b", "a"], [], "'a' comes after 'b'"),
        (["a", "a"], [], "'a' is there twice"),
        (["a", "c"], ["b"], "'b' comes after 'c'"),
        (["a", "c"], ["c"], "'c' is there twice"),
        (["\ufffd", "\U0001f600"], ["a"], "'a' comes after"),
    ],
)
def test_rows_out_of_order_are_refused_and_leave_nothing(first: list[str], second: list[str], complaint: str) -> None:
    storage = MemoryStorage()
    with pytest.raises(InvalidRequest, match=complaint):
        write(storage, [rows(first), rows(second)])
    assert list(storage.list("", recursive=True)) == []


def test_a_row_without_key_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no record key"):
        write(MemoryStorage(), [rows(["a"]).set_column(2, "_hoodie_record_key", pa.nulls(1, pa.string()))])


def test_footer_bounds_are_in_java_order_and_the_result_in_utf8_order() -> None:
    """U+FFFD is below an emoji in UTF-8 and above it in UTF-16."""
    storage = MemoryStorage()
    written = write(storage, [rows(["a", "\ufffd", "\U0001f600"])])
    with open_base_file(storage, written.stat.path or "") as source:
        assert (source.footer[MIN_KEY], source.footer[MAX_KEY]) == ("a", "\ufffd")
    assert written.max_key == "\U0001f600"


@given(st.lists(st.lists(st.text("a\u07ff\ud7ff\ue000\uee00\ufffd\U00010000\U0010ffff", max_size=3), max_size=4)))
@settings(deadline=None)
def test_java_bounds_are_those_of_utf16(batches: list[list[str]]) -> None:
    bounds = KeyBounds("f", is_sorted=False)
    for keys in batches:
        bounds.add(pa.array(keys, pa.string()))
    everything = [key for keys in batches for key in keys]
    assert bounds.java_min == min(everything, key=lambda key: key.encode("utf-16-be"), default=None)
    assert bounds.java_max == max(everything, key=lambda key: key.encode("utf-16-be"), default=None)
    assert (bounds.min, bounds.max) == (min(everything, default=None), max(everything, default=None))


def test_unsorted_files_carry_no_mark() -> None:
    storage = MemoryStorage()
    written = write(storage, [rows(["b", "a"])], is_sorted=False)
    with open_base_file(storage, written.stat.path or "") as source:
        assert not source.is_sorted
        assert "lakebed.sorted" not in source.footer
    assert (written.min_key, written.max_key) == ("a", "b")


# --- shape of input ---------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_and_cast() -> None:
    storage = MemoryStorage()
    batch = rows(["a"])
    loose = pa.record_batch(
        [pa.array([7], pa.int8()), pa.array(["a"], pa.large_string()), *batch.columns[:3], *batch.columns[5:]],
        names=["n", "id", *batch.schema.names[:3], *batch.schema.names[5:]],
    )
    written = write(storage, [loose])
    with open_base_file(storage, written.stat.path or "") as source:
        assert next(source.batches(["n", "id"])).to_pylist() == [{"n": 7, "id": "a"}]


def test_what_does_not_fit_is_refused() -> None:
    batch = rows(["a"])
    with pytest.raises(InvalidRequest, match="no column 'city'"):
        write(MemoryStorage(), [batch.drop_columns(["city"])])
    with pytest.raises(InvalidRequest, match="'n' of type string"):
        write(MemoryStorage(), [batch.set_column(4, "n", pa.array(["seven"]))])
    required = FileSchema.of_table(pa.schema([pa.field("id", pa.string(), False)]), "t")
    with (
        pytest.raises(InvalidRequest, match="'id' must not be null"),
        BaseFileWriter(MemoryStorage(), TARGET, required) as w,
    ):
        w.write(batch.set_column(3, "id", pa.nulls(1, pa.string())))


# --- encodings --------------------------------------------------------------------------------------------------------


def test_encodings_follow_a_sample() -> None:
    table = pa.table(
        {
            "k": keys_to(5000),
            "n": range(5000),
            "c": ["x", "y"] * 2500,
            "r": [n * n * 7919**4 % 10**18 for n in range(5000)],
        }
    )
    chosen = choose_encodings(table)
    assert chosen.dictionary == ("c",)
    assert chosen.delta == ("n",)
    assert choose_encodings(table, dictionary=False).dictionary == ()


def test_paths_of_leaves_are_parquets_own() -> None:
    storage = MemoryStorage()
    schema = parquet(storage, write(storage, [rows(keys_to(300))]).stat.path or "").metadata.schema
    assert leaf_paths(SCHEMA.arrow) == [schema.column(place).path for place in range(len(schema))]


def test_dictionaries_are_used_where_values_repeat() -> None:
    storage = MemoryStorage()
    group = parquet(storage, write(storage, [rows(keys_to(3000))]).stat.path or "").metadata.row_group(0)
    encodings = {
        group.column(place).path_in_schema: group.column(place).encodings for place in range(group.num_columns)
    }
    with_dictionary = {path for path, used in encodings.items() if "RLE_DICTIONARY" in used}
    assert {
        "_hoodie_commit_time",
        "_hoodie_partition_path",
        "_hoodie_file_name",
        "city",
        "tags.list.element",
    } <= with_dictionary
    assert not {"_hoodie_record_key", "_hoodie_commit_seqno", "id", "price", "day"} & with_dictionary
    assert "DELTA_BINARY_PACKED" in encodings["n"]


@pytest.mark.parametrize("codec", list(Codec))
def test_codecs(codec: Codec) -> None:
    storage = MemoryStorage()
    file = parquet(storage, write(storage, [rows(keys_to(50))], FileOptions(codec=codec)).stat.path or "")
    told = file.metadata.row_group(0).column(0).compression
    assert told == ("UNCOMPRESSED" if codec is Codec.NONE else codec.upper())


def test_commit_times_of_several_runs_share_a_dictionary() -> None:
    """What compaction writes: batches with one time, batches with many."""
    storage = MemoryStorage()
    parts = []
    for at, times in ((0, ["1"]), (100, ["2"]), (200, ["1", "3", "2"]), (300, ["4"])):
        part = rows(keys_to(400)[at : at + 100])
        parts.append(
            part.set_column(0, "_hoodie_commit_time", pa.array([times[n % len(times)] * 17 for n in range(100)]))
        )
    written = write(storage, parts)
    file = parquet(storage, written.stat.path or "")
    expected = [key for part in parts for key in part.column(0).to_pylist()]
    assert file.read(["_hoodie_commit_time"]).column(0).to_pylist() == expected
    assert file.metadata.row_group(0).column(0).total_uncompressed_size < 400 * 17


def test_row_groups_end_by_bytes_too() -> None:
    storage = MemoryStorage()
    wide = rows(keys_to(1000)).set_column(11, "raw", pa.array([bytes(1000)] * 1000))
    file = parquet(storage, write(storage, [wide], FileOptions(row_group_size=300_000)).stat.path or "")
    assert file.num_row_groups >= 4
    assert sum(file.metadata.row_group(place).num_rows for place in range(file.num_row_groups)) == 1000


# --- statistics -------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(-(2**60), 2**60) | st.none(), st.decimals(-999, 999, places=2) | st.none()), max_size=30
    )
)
@settings(max_examples=40, deadline=None)
def test_summaries_are_the_bounds_of_the_columns(values: list[tuple[int | None, Decimal | None]]) -> None:
    storage = MemoryStorage()
    batch = rows(keys_to(len(values)))
    batch = batch.set_column(4, "n", pa.array([n for n, _ in values], pa.int64()))
    batch = batch.set_column(6, "price", pa.array([d for _, d in values], pa.decimal128(10, 2)))
    summaries = {one.name: one for one in write(storage, [batch], FileOptions(row_group_rows=7)).columns}
    assert "tags" not in summaries
    for name in ("n", "price", "day", "at", "_hoodie_record_key"):
        column, summary = batch.column(name), summaries[name]
        bounds = pc.min_max(column)
        assert (summary.min and summary.min.as_py()) == bounds["min"].as_py()
        assert (summary.max and summary.max.as_py()) == bounds["max"].as_py()
        assert summary.min is None or summary.min.type == column.type
        assert (summary.null_count, summary.value_count) == (column.null_count, len(column))


# --- all or nothing ---------------------------------------------------------------------------------------------------


def test_leaving_without_close_leaves_nothing() -> None:
    storage = MemoryStorage()
    with BaseFileWriter(storage, TARGET, SCHEMA, FileOptions(row_group_rows=10)) as writer:
        writer.write(rows(keys_to(100)))
    assert list(storage.list("", recursive=True)) == []
    with pytest.raises(RuntimeError, match="mine"), BaseFileWriter(storage, TARGET, SCHEMA) as writer:
        writer.write(rows(keys_to(100)))
        raise RuntimeError("mine")
    assert list(storage.list("", recursive=True)) == []


def test_a_failing_store_shows_at_close_and_leaves_nothing() -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, FaultPlan(fail=frozenset({1})))
    with pytest.raises(StorageUnavailable):
        write(storage, [rows(keys_to(100))])
    assert list(inner.list("", recursive=True)) == []


def test_rolling_writer_begins_a_file_when_one_is_full() -> None:
    storage = MemoryStorage()
    options = FileOptions(row_group_rows=100, max_file_size=2_000, write_buffer=1)  # one batch waits at a time

    def open_next(number: int) -> BaseFileWriter:
        target = WriteTarget(FileGroupId("eu", f"f-{number}"), BEGIN)
        return BaseFileWriter(storage, target, SCHEMA, options)

    writer = RollingBaseWriter(open_next, options)
    for at in range(0, 1000, 100):
        writer.write(rows(keys_to(1000)[at : at + 100]), inserts=100)
    files = writer.close()
    assert len(files) > 2
    assert [file.stat.file_id for file in files] == [f"f-{number}" for number in range(len(files))]
    assert sum(file.stat.num_inserts for file in files) == sum(file.rows for file in files) == 1000
    assert all(a.max_key < b.min_key for a, b in itertools.pairwise(files) if a.max_key and b.min_key)


# --- the queue --------------------------------------------------------------------------------------------------------


def test_the_queue_holds_back_a_fast_producer() -> None:
    queue = WriteQueue(10, "t")
    gate, third_in = threading.Event(), threading.Event()
    done: list[int] = []

    def task(number: int) -> None:
        gate.wait(5)
        done.append(number)

    def produce() -> None:
        for number in range(3):
            queue.put(lambda number=number: task(number), 5)
        third_in.set()

    producer = threading.Thread(target=produce)
    producer.start()
    assert not third_in.wait(0.1)
    gate.set()
    producer.join(5)
    queue.finish()
    assert done == [0, 1, 2]


def test_the_queue_reports_the_first_failure_and_drops_the_rest() -> None:
    queue = WriteQueue(100, "t")
    done: list[int] = []

    def fail() -> None:
        raise StorageUnavailable("no answer")

    queue.put(fail, 1)
    with pytest.raises(StorageUnavailable):
        for _ in range(1000):
            queue.put(lambda: done.append(1), 1)
        queue.finish()
    with pytest.raises(StorageUnavailable):
        queue.finish()
    assert done == []
