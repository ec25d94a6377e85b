"""Batches that become one row group: text behind dictionaries stays there, and nothing that no row holds is kept."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.config.write_options import WriteOptions
from lakebed.datafile.column_encoding import alike
from lakebed.datafile.parquet_writer import ParquetEncoder

SCHEMA = pa.schema([("t", pa.string())])
TEXTS = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", "dd", ""])), min_size=1, max_size=8)


def coded(numbers: list[int | None], values: list[str]) -> pa.RecordBatch:
    column = pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(values))
    return pa.record_batch([column], names=["t"])


def test_values_that_no_row_has_are_not_written() -> None:
    table = alike([coded([1, None, 1], ["deleted", "kept"]), coded([0], ["other", "gone"])], None)
    assert table["t"].to_pylist() == ["kept", None, "kept", "other"]
    assert table["t"].chunk(0).dictionary.to_pylist() == ["kept", "other"]


def test_a_value_that_stands_twice_in_a_dictionary_is_not_mixed_up() -> None:
    found = written([coded([0, 1, 2, 1], ["x", "x", "y"])], row_group_rows=10)
    assert found == ["x", "x", "y", "x"]


def test_only_nulls() -> None:
    assert written([coded([None, None], ["x"])], row_group_rows=10) == [None, None]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), TEXTS), min_size=1, max_size=8), st.integers(1, 9))
def test_batches_of_both_kinds_come_back_as_they_were(given: list[tuple[bool, list[str | None]]], rows: int) -> None:
    batches = []
    for is_coded, texts in given:
        column = pa.array(texts, pa.string())
        batches.append(pa.record_batch([column.dictionary_encode() if is_coded else column], names=["t"]))
    assert written(batches, row_group_rows=rows) == [text for _, texts in given for text in texts]


def written(batches: list[pa.RecordBatch], row_group_rows: int) -> list[str | None]:
    sink = io.BytesIO()
    encoder = ParquetEncoder(
        sink.write, SCHEMA, WriteOptions(), row_group_rows=row_group_rows, sorted_by=None, label="t.parquet"
    )
    for batch in batches:
        encoder.write(batch)
    encoder.close({})
    found: list[str | None] = pq.read_table(io.BytesIO(sink.getvalue()))["t"].to_pylist()
    return found
