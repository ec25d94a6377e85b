"""Parquet files as sources: pruning, cutting, bounds of keys, and bytes that are wrong."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from decimal import Decimal
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
from lakebed.expression.predicate import Predicate, parse_predicate
from lakebed.expression.tree import Compare, Field, Literal
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


# --- conditions against statistics ------------------------------------------------------------------------------------


def groups_of(table: pa.Table, rows: int = 10, **options: Any) -> ParquetSource:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows, **options)
    return source(sink.getvalue())


def matching(file: ParquetSource, condition: str, schema: pa.Schema | None = None, **options: Any) -> list[int]:
    return file.matching_row_groups(parse_predicate(condition, schema or file.schema), **options)


DAYS = [dt.date(2024, 1, 1) + dt.timedelta(i) for i in range(40)]
TABLE = pa.table(
    {
        "n": range(40),
        "f": [i / 2 for i in range(40)],
        "text": [f"{i:02}" for i in range(40)],
        "day": DAYS,
        "ts": pa.array([i * 86_400_000_000 for i in range(40)], pa.timestamp("us", "UTC")),
        "dec": pa.array([Decimal(i) / 4 for i in range(40)], pa.decimal128(12, 2)),
        "flag": [i >= 20 for i in range(40)],
        "some": [None if i < 10 or i == 25 else i for i in range(40)],
        "st": [{"a": i, "b": {"c": f"{i:02}"}} for i in range(40)],
        "ls": [[i] for i in range(40)],
    }
)


@pytest.mark.parametrize(
    ("condition", "groups"),
    [
        ("n = 15", [1]),
        ("n < 10 OR n >= 35", [0, 3]),
        ("NOT (n >= 10)", [0]),
        ("n IN (1, 39, 100)", [0, 3]),
        ("n + 1 = 3", [0, 1, 2, 3]),
        ("n = 15 AND text = '35'", []),
        ("f = 7.5", [1]),
        ("f < 5", [0]),
        ("f > 15", [0, 1, 2, 3]),  # NaN is above everything, and statistics leave it out
        ("text >= '2' AND text < '3'", [2]),
        ("text LIKE '1%'", [1]),
        ("day = DATE '2024-01-31'", [3]),
        ("ts >= TIMESTAMP '1970-01-21 00:00:00' AND ts < TIMESTAMP '1970-01-22 00:00:00'", [2]),
        ("dec = 2.75", [1]),
        ("flag = true", [2, 3]),
        ("some IS NULL", [0, 2]),
        ("some IS NOT NULL", [1, 2, 3]),
        ("some <> 3", [1, 2, 3]),
        ("st.a = 15", [1]),
        ("st.b.c = '15'", [1]),
        ("1 = 1", [0, 1, 2, 3]),
    ],
)
def test_conditions_choose_row_groups_by_statistics(condition: str, groups: list[int]) -> None:
    file = groups_of(TABLE)
    assert matching(file, condition) == groups
    assert file.counters.row_groups_pruned == 4 - len(groups)
    full = pa.Table.from_batches(file.batches(), schema=file.schema)
    cut = pa.Table.from_batches(file.batches(row_groups=groups), schema=file.schema)
    predicate = parse_predicate(condition, file.schema)
    kept = [predicate.filter(batch) for table in (full, cut) for batch in table.combine_chunks().to_batches()]
    rows = [batch.to_pylist() for batch in kept]
    assert (rows[1] if len(rows) > 1 else []) == rows[0]


def test_without_statistics_nothing_is_left_out() -> None:
    assert matching(groups_of(TABLE, write_statistics=False), "n = 15") == [0, 1, 2, 3]


def test_a_type_that_was_promoted_since_has_no_say() -> None:
    file = groups_of(TABLE.select(["n", "text"]))
    promoted = pa.schema([("n", pa.string()), ("text", pa.string())])
    assert matching(file, "n = '5'", promoted) == [0, 1, 2, 3]
    assert matching(file, "n = '5' AND text = '05'", promoted) == [0]
    assert matching(file, "n = 5", pa.schema([("n", pa.int32())])) == [0, 1, 2, 3]


def test_renamed_columns_are_found_under_their_old_names() -> None:
    """`n` and `m` have changed places, `gone` was added under a name that some older column had."""
    file = groups_of(pa.table({"n": range(40), "m": range(100, 140), "st": [{"a": i} for i in range(40)]}))
    swapped = {"n": "m", "m": "n", "st": "st", "st.z": "a"}
    schema = pa.schema([("n", pa.int64()), ("m", pa.int64()), ("st", pa.struct([("z", pa.int64())]))])
    assert matching(file, "n = 115", schema, renames=swapped) == [1]
    assert matching(file, "m = 25", schema, renames=swapped) == [2]
    assert matching(file, "st.z = 39", schema, renames=swapped) == [3]
    assert matching(file, "n = 5", schema, renames={"n": None}) == [0, 1, 2, 3]


def test_a_dotted_column_and_a_field_of_that_name_are_not_mixed_up() -> None:
    file = groups_of(pa.table({"a.b": range(40), "a": [{"b": 1000 - i} for i in range(40)]}))
    column, field = (
        Predicate(Compare("=", Field(path, pa.int64()), Literal(value, pa.int64())))
        for path, value in ((("a.b",), 15), (("a", "b"), 975))
    )
    assert file.matching_row_groups(column) == [1]
    assert file.matching_row_groups(field) == [2]
    assert file.matching_row_groups(column & field & column) == [0, 1, 2, 3]


def test_a_plain_scan_reads_no_statistics() -> None:
    file = source(parquet(KEYS))
    assert sum(batch.num_rows for batch in file.batches(["n"])) == 20
    assert not {"_details", "row_groups"} & vars(file).keys()


def test_a_footer_that_arrow_would_die_of_is_an_error() -> None:
    """A column chunk of another type than the schema's: Arrow's view of it ends the process."""
    data = bytearray(parquet(KEYS, group=20, mark=False, sorting=False, compression="none"))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.rindex(b"\x15\x04\x19", start)  # the INT64 that begins the description of the column chunk of `n`
    data[at + 1] = 2
    file = source(bytes(data))
    with pytest.raises(CorruptTable, match="not of the column 'n'"):
        matching(file, "n = 3")
    with pytest.raises(CorruptTable, match="not of the column 'n'"):
        file.row_bytes()


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


def test_text_behind_a_small_dictionary_comes_encoded_when_asked_for() -> None:
    data = parquet(KEYS, use_dictionary=["t"])
    file = ParquetSource(pa.BufferReader(data), "f.parquet", encoded=["t", "n", RECORD_KEY])
    batches = list(file.batches())
    assert file.schema.field("t").type == pa.string(), "the schema speaks of values"
    assert pa.types.is_dictionary(batches[0].schema.field("t").type)
    assert batches[0].schema.field(RECORD_KEY).type == pa.string(), "keys are looked into"
    assert [value for batch in batches for value in batch.column("t").to_pylist()] == ["x" * 10] * len(KEYS)
    assert file.row_bytes(["t"]) == 4 < source(data).row_bytes(["t"])


def test_text_without_a_small_dictionary_comes_as_it_is() -> None:
    for options in ({"use_dictionary": False}, {"use_dictionary": ["t"], "dictionary_pagesize_limit": 1}):
        file = ParquetSource(pa.BufferReader(parquet(KEYS, **options)), "f.parquet", encoded=["t"])
        values = [value for batch in file.batches(["t"]) for value in batch.column("t").to_pylist()]
        assert values == ["x" * 10] * len(KEYS)
    wide = pa.table({RECORD_KEY: KEYS, "t": [f"{number:03}" * 3000 for number in range(len(KEYS))]})
    sink = io.BytesIO()
    pq.write_table(wide, sink, compression="none")
    file = ParquetSource(pa.BufferReader(sink.getvalue()), "f.parquet", encoded=["t"])
    assert next(file.batches(["t"])).schema.field("t").type == pa.string()


def test_a_footer_is_fetched_once_for_several_openings() -> None:
    data = parquet(KEYS)
    footers: dict[str, Any] = {}
    first = ParquetSource(pa.BufferReader(data), "f.parquet", footers=footers)
    again = ParquetSource(pa.BufferReader(data), "f.parquet", footers=footers)
    assert list(footers) == ["f.parquet"]
    assert again.is_sorted and first._metadata is again._metadata
    assert keys_of(again) == KEYS
