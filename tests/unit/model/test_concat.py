"""Arrow's limit of 31 bits, brought down to some bytes: joins widen, outputs are cut, and no value changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakebed.model import concat as joined
from lakebed.model.concat import (
    ColumnBytes,
    concat,
    concat_batches,
    concat_chunks,
    concat_mixed,
    decodable,
    is_wider,
    narrowed,
    plain_parts,
    value_chunks,
    values,
    wide_type,
)

MOST = 64
NESTED = pa.struct([("texts", pa.list_(pa.string())), ("pairs", pa.map_(pa.string(), pa.binary()))])
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a" * 30, None, "b" * 20]),
    (pa.binary(), [b"a" * 30, None, b"b" * 20]),
    (pa.list_(pa.string()), [["a" * 20, None], None, ["b" * 20]]),
    (pa.list_(pa.int64()), [[1, 2, 3], None, [4, 5, 6]]),
    (NESTED, [{"texts": ["a" * 9], "pairs": [("k", b"v" * 9)]}, None, {"texts": None, "pairs": None}]),
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    join = pa.concat_arrays

    def refused(parts: Any) -> pa.Array:
        if wide_type(parts[0].type) != parts[0].type and sum(part.nbytes for part in parts) > MOST:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return join(parts)

    monkeypatch.setattr(joined, "concat_arrays", refused)
    monkeypatch.setattr(joined, "LARGEST_COLUMN", MOST)
    yield


@pytest.mark.parametrize(("kind", "rows"), KINDS, ids=lambda value: str(value)[:20])
def test_a_column_that_is_too_large_gets_wide_offsets_and_goes_out_in_pieces(kind: pa.DataType, rows: Any) -> None:
    part = pa.array(rows, kind)
    whole = concat([part, part.slice(1), part])
    assert is_wider(whole.type, kind)
    assert whole.to_pylist() == [*rows, *rows[1:], *rows]
    schema = pa.schema([("c", kind), ("n", pa.int64())])
    batch = pa.RecordBatch.from_arrays([whole, pa.array(range(len(whole)))], names=["c", "n"])
    parts = list(narrowed(batch, schema))
    assert len(parts) > 1
    assert all(
        one.schema.types == schema.types and (one.num_rows == 1 or one.column(0).nbytes <= MOST) for one in parts
    )
    assert pa.Table.from_batches(parts).to_pylist() == batch.to_pylist()


def test_what_fits_is_joined_as_it_is() -> None:
    small = pa.array(["a", None])
    assert concat([small, small]).type == pa.string()
    assert concat([small]) is small
    assert concat_chunks(pa.chunked_array([small, small])).to_pylist() == ["a", None] * 2
    assert concat_chunks(pa.chunked_array([], pa.string())).type == pa.string()
    batch = pa.RecordBatch.from_arrays([small], names=["c"])
    assert next(narrowed(batch, batch.schema)) is batch
    with pytest.raises(pa.ArrowInvalid):
        concat([pa.array([1]), pa.array([1.5])])


def test_narrow_and_wide_parts_meet() -> None:
    parts = [pa.array(["a"]), pa.array(["b"], pa.large_string())]
    assert concat(parts).to_pylist() == concat(parts[::-1])[::-1].to_pylist() == ["a", "b"]


def test_batches_are_gathered_up_to_the_largest_column() -> None:
    gathered = ColumnBytes()
    batch = pa.RecordBatch.from_arrays([pa.array([1] * 4), pa.array(["x" * 5] * 4)], names=["n", "t"])
    assert gathered.has_room(batch, batch.nbytes)
    gathered.add(batch, batch.nbytes)
    assert not gathered.has_room(batch, batch.nbytes), "two of them are 80 bytes of text"
    gathered.clear()
    assert gathered.has_room(batch, batch.nbytes)
    numbers = batch.select(["n"])
    for _ in range(10):
        assert gathered.has_room(numbers, numbers.nbytes), "numbers have no offsets"
        gathered.add(numbers, numbers.nbytes)


def test_columns_of_small_batches_are_not_weighed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[int] = []
    sizes = joined._sizes

    def counted(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
        weighed.append(batch.num_rows)
        return sizes(batch)

    monkeypatch.setattr(joined, "_sizes", counted)
    gathered = ColumnBytes()
    batch = pa.RecordBatch.from_arrays([pa.array(["x"])], names=["t"])
    for _ in range(MOST // batch.nbytes):
        assert gathered.has_room(batch, batch.nbytes)
        gathered.add(batch, batch.nbytes)
    assert not weighed
    assert not gathered.has_room(batch, batch.nbytes)
    assert len(weighed) == MOST // batch.nbytes + 1


def test_few_numbers_may_stand_for_much_text() -> None:
    coded = pa.array(["x" * 30, "y", None] * 3).dictionary_encode()
    assert values(coded).to_pylist() == coded.to_pylist()
    assert is_wider(values(coded).type, pa.string())
    assert all(chunk.type == pa.string() and chunk.nbytes <= MOST + 16 for chunk in value_chunks(coded))
    batch = pa.RecordBatch.from_arrays([coded, pa.array(range(9))], names=["t", "n"])
    for cut in (list(decodable(batch)), list(plain_parts(batch))):
        assert len(cut) > 2
        assert pa.Table.from_batches(cut).to_pylist() == batch.to_pylist()
    assert {part.schema.field("t").type for part in plain_parts(batch)} == {pa.string()}
    plain = batch.select(["n"])
    assert list(plain_parts(plain)) == [plain]


def test_batches_with_and_without_dictionaries_become_one() -> None:
    texts = pa.array(["a", None, "b"])
    batches = [
        pa.RecordBatch.from_arrays([column, texts.dictionary_encode()], names=["mixed", "coded"])
        for column in (texts, texts.dictionary_encode())
    ]
    whole, kinds = concat_mixed(batches)
    assert whole.schema.field("mixed").type == pa.string()
    assert pa.types.is_dictionary(whole.schema.field("coded").type)
    assert kinds.types == [pa.string(), pa.string()]
    assert whole.to_pylist() == [row for batch in batches for row in batch.to_pylist()]
    assert concat_batches(batches[:1]) is batches[0]
