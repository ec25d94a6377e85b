"""Footers of Parquet files: the same facts as Arrow's own reading, bounds by type, and bytes that are wrong."""

from __future__ import annotations

import datetime as dt
import io
import math
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, LakebedError, UnsupportedFormat
from lakebed.format.parquet import thrift_compact
from lakebed.format.parquet.footer import ColumnChunk, Footer, Statistics, footer_size, parse_footer
from lakebed.format.parquet.schema import Kind, Leaf, Logical, Physical
from lakebed.format.parquet.statistics import bounds, byte_bounds, null_count
from lakebed.format.parquet.thrift_compact import STRUCT, CompactReader
from tests.conftest import GOLDEN_NAMES

Golden = Callable[[str], Path]
EPOCH = dt.datetime.fromisoformat("1970-01-01")


def footer_of(data: bytes) -> Footer:
    size = footer_size(data[-8:], len(data), "f.parquet")
    return parse_footer(data[-8 - size : -8], "f.parquet", len(data) - 8 - size)


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def many_types(rows: int = 30) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "text": [f"k{i:03}" for i in numbers],
            "i8": pa.array(numbers, pa.int8()),
            "u32": pa.array([2**32 - 1 - i for i in numbers], pa.uint32()),
            "i32": pa.array([-i for i in numbers], pa.int32()),
            "i64": [i * 2**40 for i in numbers],
            "f": pa.array([i / 2 for i in numbers], pa.float32()),
            "d": [i * 1.5 if i % 7 else None for i in numbers],
            "b": [i % 2 == 0 for i in numbers],
            "small": pa.array([Decimal(-i) / 4 for i in numbers], pa.decimal128(7, 2)),
            "dec": pa.array([Decimal(i) / 4 for i in numbers], pa.decimal128(20, 2)),
            "day": [dt.date(1969, 12, 20) + dt.timedelta(i) for i in numbers],
            "ts": pa.array([i - 7 for i in numbers], pa.timestamp("us", "UTC")),
            "local": pa.array([i - 7 for i in numbers], pa.timestamp("ms")),
            "clock": [dt.time(1, 2, i) for i in numbers],
            "bin": [b"\xff" * (i % 5) for i in numbers],
            "fixed": pa.array([b"abc" + bytes([i]) for i in numbers], pa.binary(4)),
            "st": [{"a": i, "b": str(i), "c": {"d": i}} if i % 3 else None for i in numbers],
            "ls": [[i] * (i % 3) for i in numbers],
            "mp": pa.array([[("a", i)] for i in numbers], pa.map_(pa.string(), pa.int64())),
            "none": pa.nulls(rows, pa.int64()),
        },
        metadata={"lakebed.sorted": "utf8", "x": "y" * 200},
    )


VARIANTS: list[dict[str, Any]] = [
    {"row_group_size": 10, "sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(4, descending=True)]},
    {"row_group_size": 8, "use_dictionary": False, "compression": "zstd", "store_decimal_as_integer": True},
    {"version": "1.0", "compression": "gzip", "use_deprecated_int96_timestamps": True},
    {
        "data_page_version": "2.0",
        "write_page_index": True,
        "store_schema": False,
        "write_statistics": ["text", "d", "dec", "bin"],
    },
]


def assert_as_arrow(data: bytes) -> int:
    """Compares everything with Arrow's reading; gives the number of bounds that were compared."""
    arrow = pq.ParquetFile(pa.BufferReader(data)).metadata
    ours = footer_of(data)
    assert dict(ours.key_values) == (arrow.metadata or {})
    assert (ours.num_rows, ours.created_by) == (arrow.num_rows, arrow.created_by)
    assert [leaf.name for leaf in ours.leaves] == [arrow.schema.column(i).path for i in range(arrow.num_columns)]
    assert [leaf.repeated for leaf in ours.leaves] == [
        arrow.schema.column(i).max_repetition_level > 0 for i in range(arrow.num_columns)
    ]
    assert len(ours.row_groups) == arrow.num_row_groups
    compared = 0
    for number, group in enumerate(ours.row_groups):
        theirs = arrow.row_group(number)
        assert (group.num_rows, group.total_byte_size) == (theirs.num_rows, theirs.total_byte_size)
        assert [(one.leaf, one.descending, one.nulls_first) for one in group.sorting_columns] == [
            (one.column_index, one.descending, one.nulls_first) for one in theirs.sorting_columns
        ]
        chunks = list(ours.columns(number))
        assert len(chunks) == theirs.num_columns
        for i, chunk in enumerate(chunks):
            compared += assert_chunk_as_arrow(chunk, theirs.column(i))
    return compared


def assert_chunk_as_arrow(ours: ColumnChunk, arrow: Any) -> int:
    assert (ours.leaf.name, ours.leaf.physical.name) == (arrow.path_in_schema, arrow.physical_type)
    assert ours.num_values == arrow.num_values
    assert (ours.uncompressed_size, ours.compressed_size) == (
        arrow.total_uncompressed_size,
        arrow.total_compressed_size,
    )
    assert ours.data_page_offset == arrow.data_page_offset
    assert ours.dictionary_page_offset == (arrow.dictionary_page_offset if arrow.has_dictionary_page else None)
    statistics = arrow.statistics
    if statistics is None:
        assert bounds(ours, "f") == (None, None)
        return 0
    assert null_count(ours) == (statistics.null_count if statistics.has_null_count else None)
    low, high = bounds(ours, "f")
    if not statistics.has_min_max or ours.leaf.physical is Physical.INT96:
        assert (low, high) == (None, None)
        return 0
    if any(isinstance(end, float) and math.isnan(end) for end in (statistics.min, statistics.max)):
        assert low is high is None
        return 0
    if low is None:  # bounds that Arrow shows and we do not: only those of unusual kinds
        assert ours.leaf.logical.kind is Kind.OTHER
        return 0
    assert (low, high) == (statistics.min, statistics.max)
    return 1


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_footers_read_as_arrow_reads_them(golden: Golden, name: str) -> None:
    files = [path for path in golden(name).rglob("*.parquet") if path.stat().st_size > 12]
    compared = sum(assert_as_arrow(path.read_bytes()) for path in files)
    assert compared > 0 or not files


@pytest.mark.parametrize("options", VARIANTS)
def test_other_footers_read_as_arrow_reads_them(options: dict[str, Any]) -> None:
    assert assert_as_arrow(written(many_types(), **options)) > 3
    assert_as_arrow(written(many_types().slice(0, 0), **options))


def chunk_of(column: pa.Array, **options: Any) -> ColumnChunk:
    return footer_of(written(pa.table({"c": column}), **options)).column(0, 0)


def bounds_of(column: pa.Array, **options: Any) -> tuple[Any, Any]:
    return bounds(chunk_of(column, **options), "f")


def test_bounds_are_values_of_the_column() -> None:
    assert bounds_of(pa.array([b"\x7f", b"\x80"])) == (b"\x7f", b"\x80")
    assert bounds_of(pa.array(["\uffff", "\U00010000"])) == ("\uffff", "\U00010000")
    assert bounds_of(pa.array([True, False])) == (False, True)
    assert bounds_of(pa.array([Decimal("-1.25"), Decimal("3.50")], pa.decimal128(38, 10))) == (
        Decimal("-1.25"),
        Decimal("3.5"),
    )
    aware = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    assert bounds_of(pa.array([aware])) == (aware, aware)
    assert bounds_of(pa.array([2**64 - 1, 1], pa.uint64())) == (1, 2**64 - 1)
    assert bounds_of(pa.nulls(3, pa.int32())) == (None, None)


def test_nanoseconds_are_rounded_outwards() -> None:
    low, high = bounds_of(pa.array([-1, 1], pa.timestamp("ns")))
    assert (low, high) == (EPOCH - dt.timedelta(microseconds=1), EPOCH + dt.timedelta(microseconds=1))


def test_times_that_python_cannot_hold_are_unknown() -> None:
    assert bounds_of(pa.array([0, 2**62], pa.timestamp("us"))) == (EPOCH, None)
    assert bounds_of(pa.array([-(2**31), 0], pa.date32())) == (None, dt.date(1970, 1, 1))


PLAIN = Logical(Kind.PLAIN)


def leaf(physical: Physical, logical: Logical = PLAIN, *, by_type: bool = True, width: int = 0) -> Leaf:
    return Leaf(0, ("c",), (b"c",), physical, width, logical, False, by_type)


def stated(of: Leaf, *pair: bytes | None, old: bool = False, nulls: int | None = None) -> ColumnChunk:
    low, high = pair
    noted = Statistics(old_min=low, old_max=high) if old else Statistics(low, high, null_count=nulls)
    return ColumnChunk(of, 10, 100, 100, 4, None, noted, 77)


def float_bounds(low: float, high: float) -> tuple[Any, Any]:
    return bounds(stated(leaf(Physical.DOUBLE), struct.pack("<d", low), struct.pack("<d", high)), "f")


def test_nan_is_no_bound_and_zero_is_both_zeros() -> None:
    assert float_bounds(math.nan, 1.0) == float_bounds(1.0, math.nan) == (None, None)
    low, high = float_bounds(0.0, -0.0)
    assert (math.copysign(1, low), math.copysign(1, high)) == (-1.0, 1.0)
    assert float_bounds(-math.inf, math.inf) == (-math.inf, math.inf)


def test_old_statistics_count_for_signed_whole_numbers_only() -> None:
    one, two = (1).to_bytes(8, "little"), (2).to_bytes(8, "little")
    assert bounds(stated(leaf(Physical.INT64, by_type=False), one, two, old=True), "f") == (1, 2)
    unsigned = Logical(Kind.INTEGER, signed=False)
    assert bounds(stated(leaf(Physical.INT64, unsigned, by_type=False), one, two, old=True), "f") == (None, None)
    text = leaf(Physical.BYTE_ARRAY, Logical(Kind.TEXT))
    assert bounds(stated(text, b"a", b"b", old=True), "f") == (None, None)
    assert byte_bounds(stated(text, b"a", b"b", old=True)) == (b"a", b"b")


def test_new_statistics_count_only_where_the_footer_vouches_for_their_order() -> None:
    text = Logical(Kind.TEXT)
    assert bounds(stated(leaf(Physical.BYTE_ARRAY, text), b"a", b"b"), "f") == ("a", "b")
    assert bounds(stated(leaf(Physical.BYTE_ARRAY, text, by_type=False), b"a", b"b"), "f") == (None, None)


def test_doubtful_statistics_say_nothing() -> None:
    text = leaf(Physical.BYTE_ARRAY, Logical(Kind.TEXT))
    assert bounds(stated(text, b"a\xc3", b"b"), "f") == (None, "b")
    assert bounds(stated(text, b"b", b"a"), "f") == (None, None)
    assert bounds(stated(text, b"b", None), "f") == ("b", None)
    assert null_count(stated(text, b"a", b"b", nulls=11)) is None
    assert null_count(stated(text, b"a", b"b", nulls=-1)) is None


@pytest.mark.parametrize(
    "of",
    [
        leaf(Physical.INT32),
        leaf(Physical.INT64),
        leaf(Physical.DOUBLE),
        leaf(Physical.BOOLEAN),
        leaf(Physical.FIXED_LEN_BYTE_ARRAY, Logical(Kind.DECIMAL, scale=2), width=5),
        leaf(Physical.BYTE_ARRAY, Logical(Kind.DECIMAL, scale=1000)),
    ],
)
def test_statistics_of_the_wrong_width_are_corruption(of: Leaf) -> None:
    with pytest.raises(CorruptTable, match="not values of its type") as caught:
        bounds(stated(of, b"abc", b"abc"), "f")
    assert (caught.value.file, caught.value.offset) == ("f", 77)


# --- bytes that are wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trailer", "size", "error"),
    [
        (b"", 3, CorruptTable),
        (b"\x01\0\0\0PAR2", 100, CorruptTable),
        (b"\x01\0\0\0PARE", 100, UnsupportedFormat),
        (b"\0\0\0\0PAR1", 100, CorruptTable),
        (b"\x59\0\0\0PAR1", 100, CorruptTable),
        (b"\xff\xff\xff\xffPAR1", 100, CorruptTable),
    ],
)
def test_trailers_that_cannot_be(trailer: bytes, size: int, error: type[LakebedError]) -> None:
    with pytest.raises(error):
        footer_size(trailer, size, "f")


def test_every_truncation_is_corruption_with_an_offset() -> None:
    data = written(many_types(), row_group_size=10)
    size = footer_size(data[-8:], len(data), "f")
    footer = data[-8 - size : -8]
    for length in range(0, size, 29):
        with pytest.raises(CorruptTable) as caught:
            parse_footer(footer[:length], "f", 1000)
        assert caught.value.offset is not None
        assert 1000 <= caught.value.offset <= 1000 + length


def nested_structs(depth: int) -> bytes:
    return b"\x1c" * depth + b"\0" * depth


@pytest.mark.parametrize(
    "value",
    [
        nested_structs(50_000),
        b"\x19" + b"\x19" * 50_000,
        b"\x18\xff\xff\xff\xff\x0f",
        b"\x19\xf5\xff\xff\xff\xff\x0f",
        b"\x1b\xff\xff\xff\xff\x0f\x55",
        b"\x16" + b"\x80" * 20 + b"\0",
        b"\x1e\0",
        b"",
    ],
)
def test_a_hostile_value_is_refused_at_once(value: bytes) -> None:
    requested_time = time.process_time()
    for read in (
        lambda reader: reader.skip(STRUCT),
        lambda reader: reader.skip_structs(1, many=True),
        lambda reader: reader.struct({}),
    ):
        with pytest.raises(CorruptTable):
            read(CompactReader(value, "f"))
    with pytest.raises(CorruptTable):
        parse_footer(value, "f", 0)
    assert time.process_time() - requested_time < 1


@given(st.binary(max_size=60))
@example(b"\x15\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00\x00")
@example(b"\x1c\x19\x2c\x15\x02\x00\x25\x04\x00\x00\x00")
def test_both_ways_of_stepping_over_a_struct_agree(value: bytes) -> None:
    ends = []
    for many in (False, True):
        reader = CompactReader(value, "f")
        try:
            reader.skip_structs(1, many=many)
            ends.append(reader.at)
        except CorruptTable:
            ends.append(-1)
    assert ends[0] == ends[1]


def test_the_pattern_covers_real_column_chunks(golden: Golden) -> None:
    """Else the faster way would not be taken, and nothing would tell."""
    (path, *_) = golden("cow_hive_v9").rglob("*_*.parquet")
    for data in (path.read_bytes(), written(many_types(), **VARIANTS[0])):
        footer = footer_of(data)
        at = footer.row_groups[0].columns_at
        match = thrift_compact._plain_struct().match
        for _ in footer.leaves:
            found = match(footer.data, at)
            assert found is not None
            at = found.end()


def test_large_footers_take_the_fast_way_and_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(many_types(), row_group_size=5)
    monkeypatch.setattr("lakebed.format.parquet.footer.LARGE", 1)
    assert footer_of(data).is_large
    assert assert_as_arrow(data) > 50


def test_a_large_footer_opens_without_decoding_its_column_chunks() -> None:
    rows = 600
    table = pa.table({f"c{i}": range(rows) for i in range(20)})
    footer = footer_of(written(table, row_group_size=1))
    requested_time = time.process_time()
    parse_footer(footer.data, "f", footer.start)
    opened = time.process_time() - requested_time
    requested_time = time.process_time()
    for group in range(rows):
        list(footer.columns(group))
    assert opened < (time.process_time() - requested_time) / 2


FUZZ = """
import random, sys
import pyarrow as pa
from lakebed.datafile.parquet_source import ParquetSource
from lakebed.errors import LakebedError
from lakebed.model.key_range import KeyRange
from lakebed.expression.predicate import parse_predicate

data = open(sys.argv[1], "rb").read()
start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
refused = 0
for seed in range(int(sys.argv[2])):
    chance = random.Random(seed)
    raw = bytearray(data)
    if chance.random() < 0.1:
        at = chance.randrange(start, len(raw) - 8)
        gone = chance.randrange(1, 40)
        del raw[at : min(at + gone, len(raw) - 8)]
        raw[-8:-4] = (len(raw) - 8 - start).to_bytes(4, "little")
    for _ in range(chance.randrange(1, 4)):
        raw[chance.randrange(start, len(raw))] ^= 1 << chance.randrange(8)
    try:
        with ParquetSource(pa.BufferReader(bytes(raw)), "f", key_column=sys.argv[3]) as file:
            file.footer, file.is_sorted, file.key_range, file.row_groups, file.row_bytes()
            for column in file.schema:
                try:
                    predicate = parse_predicate(f"`{column.name}` > '1'", file.schema)
                except LakebedError:
                    continue
                file.matching_row_groups(predicate)
            list(file.batches([sys.argv[3]], key_range=KeyRange("k1", "k2")))
    except LakebedError:
        refused += 1
print(refused)
"""


def test_damaged_footers_never_end_the_process(tmp_path: Path) -> None:
    """In a process of its own: what this is about would otherwise end the test run instead of failing it."""
    path = tmp_path / "f.parquet"
    path.write_bytes(written(many_types(), **VARIANTS[0]))
    run = [sys.executable, "-c", FUZZ, str(path), "250", "text"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
    assert done.returncode == 0, done.stderr[-500:]
    assert int(done.stdout) > 60


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_a_damaged_footer_is_refused_or_read(seed: int) -> None:
    chance = random.Random(seed)
    footer = footer_of(written(many_types(6), row_group_size=3))
    raw = bytearray(footer.data)
    for _ in range(chance.randrange(1, 5)):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    try:
        read = parse_footer(bytes(raw), "f", footer.start)
        for group in range(len(read.row_groups)):
            for chunk in read.columns(group):
                bounds(chunk, "f")
    except LakebedError:
        pass
