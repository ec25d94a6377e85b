"""Inserts that look for their keys: rows that are there stay as they are, or nothing is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from tests.unit.write.tables import files, make, row, table, values

POLICY = "hoodie.datasource.insert.dup.policy"
DROP = "hoodie.datasource.write.insert.drop.duplicates"
KINDS: list[dict[str, Any]] = [
    {},
    {"index": "simple"},
    {"table_type": "cow", "index": "bloom", "layout": "default"},
    {"log_format": "v1", "layout": "default"},
    {"index": "simple", "properties": {"hoodie.populate.meta.fields": "false"}},
]


def filled(**settings: Any) -> lakebed.Table:
    t = make(**settings)
    t.upsert(table(row("a", v=1), row("b", v=1), row("gone", v=1), row("c", p="b", v=1)))
    t.upsert(table(row("b", 2, v=2)))
    t.delete(where="id = 'gone'")
    return t


MORE = table(row("a", 9, v=9), row("b", 9, v=9), row("gone", 9, v=9), row("c", 9, v=9), row("new", 9, v=9))


@pytest.mark.parametrize("settings", KINDS)
@pytest.mark.parametrize("options", [{POLICY: "drop"}, {POLICY: "DROP"}, {DROP: "true"}])
def test_known_keys_are_left_out(settings: dict[str, Any], options: dict[str, str]) -> None:
    t = filled(**settings)
    result = t.insert(MORE, options=options)
    assert values(t, "id", "p", "v") == [
        ("a", "a", 1),
        ("b", "a", 2),
        ("c", "a", 9),
        ("c", "b", 1),
        ("gone", "a", 9),
        ("new", "a", 9),
    ]
    assert result.inserted + result.updated == 3


@pytest.mark.parametrize("settings", KINDS)
def test_known_keys_stop_the_write(settings: dict[str, Any]) -> None:
    t = filled(**settings)
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match=r"2 keys .* already: 'a', 'b'\."):
        t.insert(MORE, options={POLICY: "fail"})
    assert files(t) == before
    t.insert(table(row("gone", 9, v=9), row("new", 9)), options={POLICY: "fail"})
    assert len(values(t)) == 5


def test_three_keys_are_named() -> None:
    t = make()
    t.insert(table(*(row(f"k{n}") for n in range(5))))
    with pytest.raises(lakebed.InvalidRequest, match=r"5 keys .*: '\w+', '\w+', '\w+', \.\.\."):
        t.insert(table(*(row(f"k{n}") for n in range(5))), options={POLICY: "fail"})


def test_a_global_index_knows_keys_of_other_partitions() -> None:
    t = filled(index="global_simple")
    t.insert(MORE, options={POLICY: "drop"})
    assert [item for item in values(t, "id", "p") if item[0] == "c"] == [("c", "b")]


def test_other_operations_and_policies_do_not_look() -> None:
    t = filled()
    t.insert(table(row("a", 9, v=9)), options={POLICY: "none", DROP: "false"})
    t.upsert(table(row("b", 9, v=9)), options={POLICY: "fail"})
    assert values(t, "id", "v")[:2] == [("a", 9), ("b", 9)]
    for options in ({POLICY: "some"}, {POLICY: "fail", DROP: "true"}):
        with pytest.raises(lakebed.InvalidRequest, match=r"dup\.policy=|contradicts"):
            t.insert(MORE, options=options)


def test_tables_without_rows_or_without_keys() -> None:
    empty = make(properties={POLICY: "drop"})
    empty.insert(MORE)
    assert len(values(empty)) == 5
    keyless = make(record_key=None, ordering=None, index="simple")
    keyless.insert(MORE, options={POLICY: "fail"})
    keyless.insert(MORE, options={POLICY: "drop"})
    assert len(values(keyless)) == 10


def test_rows_that_came_meanwhile_are_noticed() -> None:
    t = make(index="simple")
    other = lakebed.open(t.url)
    t.insert(table(row("a")))

    def batches() -> Any:
        yield table(row("x")).to_batches()[0]
        other.insert(table(row("x", 5)))

    with pytest.raises(lakebed.ConflictError):
        t.insert(pa.RecordBatchReader.from_batches(MORE.schema, batches()), options={POLICY: "drop"})
    assert [item for item in values(t.refresh(), "id", "ts") if item[0] == "x"] == [("x", 5)]
