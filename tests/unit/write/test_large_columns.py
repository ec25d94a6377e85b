"""Whole tables with Arrow's limit of 31 bits brought down to some bytes: no operation overflows, no answer changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.index import locations
from lakebed.model import concat
from lakebed.write.merge_into.join import SourceRows
from lakebed.write.rows.prepare import plan_preparation
from lakebed.write.tagging import small_files
from tests.unit.write.tables import SCHEMA, make, row, table, values

MOST = 2000
KINDS: dict[str, dict[str, Any]] = {
    "lsm": {},
    "default layout": {"layout": "default", "log_format": "v1"},
    "copy-on-write": {"table_type": "cow", "index": "simple"},
    "global index": {"index": "global_simple"},
}


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Joins that were refused, by size."""
    join, refused = pa.concat_arrays, []

    def small(parts: Any) -> pa.Array:
        size = sum(part.nbytes for part in parts)
        if concat.wide_type(parts[0].type) != parts[0].type and size > MOST:
            refused.append(size)
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return join(parts)

    monkeypatch.setattr(concat, "concat_arrays", small)
    monkeypatch.setattr(concat, "LARGEST_COLUMN", MOST)
    monkeypatch.setattr(locations, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(small_files, "ROWS_AT_ONCE", 7)
    yield refused


def texts(numbers: range, ts: int, p: str = "a") -> pa.Table:
    return table(*(row(f"k{n:03}", ts, p, n, "x" * (n % 50) + str(ts)) for n in numbers))


@pytest.mark.parametrize("kind", KINDS)
def test_operations_whose_columns_are_too_large_to_be_joined(kind: str, refusals: list[int]) -> None:
    target = make(**KINDS[kind])
    target.bulk_insert(texts(range(150), 1))
    target.upsert(texts(range(100, 200), 3))
    target.upsert(texts(range(120, 140), 2))
    target.delete(keys=["k005"])
    wanted = {f"k{n:03}": (3 if n >= 100 else 1, "x" * (n % 50) + ("3" if n >= 100 else "1")) for n in range(200)}
    del wanted["k005"]
    for _ in range(2):
        assert {key: (ts, txt) for key, ts, txt in values(target, "id", "ts", "txt")} == wanted
        if kind != "copy-on-write":
            target.services.compact()
    source = texts(range(190, 230), 9)
    merging = target.merge(source, on="t.id = s.id AND t.p = s.p")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    wanted |= {f"k{n:03}": (9, "x" * (n % 50) + "9") for n in range(190, 230)}
    assert {key: (ts, txt) for key, ts, txt in values(target, "id", "ts", "txt")} == wanted
    assert refusals, "some join was too large"


def test_rows_of_a_merge_source_come_in_parts(refusals: list[int]) -> None:
    given = texts(range(100), 1)
    wanted = np.array([5, 99, 3, *range(20, 90)], np.int64)
    with SourceRows(given.to_reader(max_chunksize=10), 1 << 20) as source:
        parts = list(source.take(wanted))
    assert len(parts) > 1
    assert np.concatenate([places for places, _ in parts]).tolist() == list(range(len(wanted)))
    assert pa.Table.from_batches([part for _, part in parts]) == given.take(pa.array(wanted)).combine_chunks()
    assert refusals


def test_incoming_dictionaries_are_decoded_in_parts(refusals: list[int]) -> None:
    target = make()
    given = table(*(row(f"k{n}", txt="x" * 300) for n in range(40)))
    index = given.schema.get_field_index("txt")
    coded = given.set_column(index, "txt", given.column(index).dictionary_encode())
    plan = plan_preparation(target.config, SCHEMA, coded.schema)
    batches = list(plan.rows(coded.to_batches(), "001"))
    assert len(batches) > 5
    assert pa.Table.from_batches(batches).column("txt").to_pylist() == ["x" * 300] * 40
    target.upsert(coded)
    assert values(target, "id") == sorted((f"k{n}",) for n in range(40))
