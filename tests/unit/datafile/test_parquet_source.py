"""Parquet files as sources: pruning, cutting, bounds of keys, and bytes that are wrong."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.datafile.parquet_source import SORTED_KEY, SORTED_UTF8, ParquetSource
from lakebed.datafile.source import ReadCounters
from lakebed.errors import CorruptTable, LakebedError
from lakebed.model.key_range import KeyRange
from lakebed.model.schema import RECORD_KEY


def parquet(keys: list[Any], *, mark: bool = True, sorting: bool = True, group: int = 4, **options: Any) -> bytes:
    table = pa.table({RECORD_KEY: pa.array(keys, pa.string()), "n": range(len(keys)), "t": ["x" * 10] * len(keys)})
    if mark:
        table = table.replace_schema_metadata({SORTED_KEY: SORTED_UTF8})
    sink = io.BytesIO()
    columns = [pq.SortingColumn(0)] if sorting else None
    pq.write_table(table, sink, row_group_size=group, sorting_columns=columns, write_page_checksum=True, **options)
    return sink.getvalue()


def source(data: bytes, counters: ReadCounters | None = None) -> ParquetSource:
    return ParquetSource(pa.BufferReader(data), "f.parquet", counters=counters)


def keys_of(file: ParquetSource, key_range: KeyRange | None = None, **options: Any) -> list[str]:
    return [
        key
        for batch in file.batches([RECORD_KEY], key_range=key_range, **options)
        for key in batch.column(0).to_pylist()
    ]


KEYS = [f"k{number:03}" for number in range(20)]


def test_sorted_needs_the_mark_and_the_sorting_columns() -> None:
    assert source(parquet(KEYS)).is_sorted
    assert not source(parquet(KEYS, mark=False)).is_sorted
    assert not source(parquet(KEYS, sorting=False)).is_sorted
    assert source(parquet([])).is_sorted


def test_a_mark_that_its_statistics_contradict_is_corruption() -> None:
    with pytest.raises(CorruptTable, match="overlap"):
        _ = source(parquet(KEYS[::-1])).is_sorted


def test_row_groups_are_pruned_and_rows_cut() -> None:
    counters = ReadCounters()
    file = source(parquet(KEYS), counters)
    assert keys_of(file, KeyRange("k005", "k009", high_inclusive=False)) == KEYS[5:9]
    assert (counters.row_groups, counters.row_groups_pruned) == (2, 3)
    assert (counters.rows_decoded, counters.rows) == (8, 4)


def test_points_skip_row_groups_without_a_hit() -> None:
    counters = ReadCounters()
    file = source(parquet(KEYS), counters)
    wanted = KeyRange.of_points(["k001", "k0055", "k013"])
    batches = list(file.batches(["n", RECORD_KEY], key_range=wanted))
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"n": 1, RECORD_KEY: "k001"},
        {"n": 13, RECORD_KEY: "k013"},
    ]
    assert (counters.row_groups, counters.row_groups_pruned) == (2, 3)


def test_the_key_column_is_read_but_not_returned_when_it_is_not_wanted() -> None:
    batch = next(source(parquet(KEYS)).batches(["t", "n", "no such column"], key_range=KeyRange("k019")))
    assert batch.schema.names == ["t", "n"]
    assert batch.to_pylist() == [{"t": "x" * 10, "n": 19}]


def test_chosen_row_groups_and_small_batches() -> None:
    file = source(parquet(KEYS))
    assert keys_of(file, row_groups=[1, 3]) == KEYS[4:8] + KEYS[12:16]
    assert [batch.num_rows for batch in file.batches(batch_rows=3, row_groups=[0])] == [3, 1]
    assert [group.first_row for group in file.row_groups] == [0, 4, 8, 12, 16]


def test_no_columns_still_count_rows() -> None:
    assert sum(batch.num_rows for batch in source(parquet(KEYS)).batches([])) == 20


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab\ufffd\U0001f600"), max_size=3) | st.none(), max_size=20),
    st.tuples(st.text("ab\ufffd\U0001f600", max_size=2) | st.none(), st.text("ab\U0001f600", max_size=2) | st.none()),
    st.booleans(),
    st.booleans(),
)
def test_a_range_gives_exactly_the_rows_in_it(
    keys: list[str | None], ends: tuple[str | None, str | None], ordered: bool, points: bool
) -> None:
    if ordered:
        keys = sorted(key for key in keys if key is not None)
    wanted = KeyRange(*ends) if not points else KeyRange.of_points(end for end in ends if end is not None)
    file = source(parquet(keys, mark=ordered, sorting=ordered, group=3))
    inside = keys if wanted.is_all else [key for key in keys if key is not None and wanted.contains(key)]
    assert keys_of(file, wanted, batch_rows=2) == inside
    assert file.is_sorted == ordered


def test_bounds_come_from_statistics_or_from_a_safe_footer() -> None:
    assert source(parquet(KEYS)).key_range == KeyRange("k000", "k019")
    assert source(parquet([])).key_range is None
    assert source(parquet(["", ""])).key_range is None

    def footer_only(low: str, high: str) -> KeyRange | None:
        table = pa.table({RECORD_KEY: ["x"]})
        sink = io.BytesIO()
        footer = {"hoodie_min_record_key": low, "hoodie_max_record_key": high}
        pq.write_table(table.replace_schema_metadata(footer), sink, write_statistics=False)
        return source(sink.getvalue()).key_range

    assert footer_only("a", "z") == KeyRange("a", "z")
    assert footer_only("a", "\ufffd") == KeyRange("a", None)
    assert footer_only("\U0001f600", "\ufffd") is None


def test_real_footers_are_in_java_order_and_statistics_are_not(golden: Callable[[str], Path]) -> None:
    """The reason why the footer's keys are not simply believed."""
    differing = 0
    for path in golden("cow_oddkeys_rli_v9").glob("p*/*.parquet"):
        file = ParquetSource(pa.OSFile(str(path)), path.name)
        keys = keys_of(file)
        if not keys:
            continue
        assert file.key_range == KeyRange(min(keys), max(keys))
        differing += file.footer["hoodie_max_record_key"] != max(keys)
    assert differing > 0


def test_row_bytes_count_dictionaries_as_decoded() -> None:
    file = source(parquet(KEYS * 50, mark=False, sorting=False, group=1000))
    table = pa.Table.from_batches(list(file.batches()))
    assert 0.8 < file.row_bytes() / (table.nbytes / table.num_rows) < 1.6
    assert file.row_bytes(["n"]) < file.row_bytes()


class CountingFile(io.BytesIO):
    bytes_read = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def wide(rows: int) -> bytes:
    columns = {f"c{i}": range(i, rows + i) for i in range(12)}
    sink = io.BytesIO()
    table = pa.table({RECORD_KEY: pa.array(range(rows)).cast(pa.string()), **columns})
    pq.write_table(table, sink, use_dictionary=False, compression="none", data_page_size=64 * 1024)
    return sink.getvalue()


def test_few_columns_read_few_bytes() -> None:
    data = wide(50_000)
    counted = CountingFile(data)
    file = ParquetSource(pa.PythonFile(counted, mode="r"), "f.parquet", read_buffer=16 * 1024)
    assert sum(batch.num_rows for batch in file.batches(["c3"])) == 50_000
    assert counted.bytes_read < len(data) / 8


def test_memory_is_bounded_by_the_batch_not_by_the_row_group() -> None:
    data = wide(200_000)
    file = ParquetSource(pa.BufferReader(data), "f.parquet", read_buffer=16 * 1024)
    assert len(file.row_groups) == 1
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    most = 0
    for batch in file.batches(batch_rows=1000):
        most = max(most, pool.bytes_allocated() - before)
        assert batch.num_rows == 1000
    assert most < len(data) / 4


def test_footer_text_is_there_without_arrows_own_key() -> None:
    assert dict(source(parquet(KEYS)).footer) == {SORTED_KEY: SORTED_UTF8}


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1PAR1", b"x" * 100, b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_what_is_no_parquet_file(data: bytes) -> None:
    with pytest.raises(CorruptTable, match=r"^f\.parquet: "):
        source(data)


def test_every_truncation_is_noticed() -> None:
    data = parquet(KEYS)
    for length in range(0, len(data), 7):
        with pytest.raises(CorruptTable):
            list(source(data[:length]).batches())


def test_a_flipped_byte_in_a_page_is_noticed() -> None:
    data = bytearray(parquet(KEYS, group=20, compression="none"))
    at = data.index(b"k007")
    data[at] ^= 1
    with pytest.raises(CorruptTable, match="CRC"):
        list(source(bytes(data)).batches())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_gives_an_error_or_the_same_shape(golden: Callable[[str], Path], data: st.DataObject) -> None:
    path = min(golden("cow_hive_v9").rglob("*_*.parquet"), key=lambda found: (".hoodie" in found.parts, found.name))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        file = ParquetSource(pa.BufferReader(bytes(raw)), path.name)
        _ = (file.footer, file.is_sorted, file.key_range, file.row_bytes())
        rows = sum(batch.num_rows for batch in file.batches(key_range=KeyRange("a")))
    except LakebedError:
        return
    assert 0 <= rows <= file.num_rows
