"""Tables with native logs (version 10), made by hand from the format: both namings, mixed slices, deletes, commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from benchmarks.handmade import HandmadeTable
from lakebed.format.log.block import Header
from lakebed.model.instant import Action

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])


def rows(ids: range | list[str], ts: int | list[int], v: int) -> pa.Table:
    keys = [item if isinstance(item, str) else f"k{item:03d}" for item in ids]
    times = ts if isinstance(ts, list) else [ts] * len(keys)
    return pa.table({"id": keys, "ts": times, "v": [v] * len(keys)}, schema=SCHEMA)


def answer(path: Path, **scan: Any) -> dict[str, tuple[int, int]]:
    asked = lakebed.open(path).scan(columns=["id", "ts", "v"], **scan)
    table = asked.to_arrow()
    for _ in range(2):
        assert asked.to_arrow().equals(table), "read again, by what was kept"
    keys = table.column("id").to_pylist()
    assert keys == sorted(keys, key=str.encode), "the LSM layout gives rows in key order"
    assert len(set(keys)) == len(keys)
    return {row["id"]: (row["ts"], row["v"]) for row in table.to_pylist()}


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    made = HandmadeTable(tmp_path / "orders", SCHEMA)
    made.base(rows(range(10), 10, 0))
    return made


def test_native_data_and_deletes_of_one_flush(table: HandmadeTable) -> None:
    table.log(rows(range(5, 12), 11, 1), pa.table({"id": ["k000", "k001"]}))
    got = answer(table.root)
    assert set(got) == {f"k{i:03d}" for i in range(2, 12)}
    assert got["k004"] == (10, 0)
    assert got["k005"] == (11, 1)


def test_a_delete_with_an_ordering_value_is_compared(table: HandmadeTable) -> None:
    table.log(deletes=pa.table({"id": ["k001", "k002"], "ts": [9, 10]}))
    got = answer(table.root)
    assert "k001" in got, "an older delete loses"
    assert "k002" not in got, "an equal one wins, as the later of two"


def test_a_row_after_an_unconditional_delete_comes_back_whatever_its_ordering_value(table: HandmadeTable) -> None:
    table.log(deletes=pa.table({"id": ["k003"]}))
    table.log(rows(["k003"], 1, 7))
    assert answer(table.root)["k003"] == (1, 7)


def test_inline_names_with_native_content(table: HandmadeTable) -> None:
    table.log(rows(range(3), 20, 1), pa.table({"id": ["k009"]}), inline_name=True)
    got = answer(table.root)
    assert got["k000"] == (20, 1)
    assert "k009" not in got


def test_both_log_formats_in_one_slice(table: HandmadeTable) -> None:
    table.log(rows(range(3), 20, 1), native=False)
    table.log(rows(range(1, 4), 21, 2))
    table.log(rows(range(2, 5), 22, 3), native=False, is_sorted=False)
    got = answer(table.root)
    assert [got[f"k{i:03d}"][1] for i in range(6)] == [1, 2, 3, 3, 3, 0]


def test_an_unmarked_file_is_not_trusted_to_be_sorted(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", SCHEMA)
    made.base(rows(["c", "a", "b"], 1, 0), is_sorted=False)
    made.log(rows(["b", "a"], 2, 1), is_sorted=False)
    assert answer(made.root) == {"a": (2, 1), "b": (2, 1), "c": (1, 0)}


def test_a_file_that_lies_about_its_order_is_corrupt(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", SCHEMA)
    made.base(rows(range(5), 1, 0))
    wrong = rows(["k004", "k001"], 2, 1)
    requested_time = made._begin()
    name = f"00000000-0000-4000-8000-000000000000-0_0-0-0_{requested_time}_1.log.parquet"
    stored = made._stored(wrong, requested_time, "x", is_sorted=False)
    made._parquet(made.root / name, stored, {}, is_sorted=True, row_group=100)
    made._commit(requested_time, Action.DELTA_COMMIT, [name])
    with pytest.raises(lakebed.CorruptTable, match=r"log\.parquet"):
        lakebed.open(made.root).scan().to_arrow()


def test_emoji_and_replacement_character_meet_in_byte_order(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", SCHEMA)
    made.base(rows(["\ufffd", "\U0001f600", "a"], 1, 0))
    made.log(rows(["\U0001f600", "\uffff"], 2, 1))
    got = answer(made.root)
    assert list(got) == ["a", "\ufffd", "\uffff", "\U0001f600"]
    assert got["\U0001f600"] == (2, 1)


def test_a_log_compaction_stands_at_the_place_of_the_newest_run_it_covers(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", SCHEMA, ordering=())
    made.base(rows(range(3), 1, 0))
    first = made.log(rows(["k000"], 1, 1))
    second = made.log(rows(["k000", "k001"], 1, 2))
    made.log(rows(["k001"], 1, 3))
    covered = {Header.COMPACTED_BLOCK_TIMES: f"{first},{second}"}
    made.log(rows(["k000", "k001"], 1, 2), header=covered)
    got = answer(made.root)
    assert got["k000"] == (1, 2)
    assert got["k001"] == (1, 3), "the write between the covered runs and the compaction stays on top"


def test_64_logs(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", SCHEMA)
    made.base(rows(range(100), 0, 0))
    for number in range(1, 65):
        made.log(rows(range(number, number + 3), number, number))
    got = answer(made.root, memory="4MB")
    assert got["k064"] == (64, 64)
    assert got["k001"] == (1, 1)
    assert got["k099"] == (0, 0)
    assert len(got) == 100


def test_key_range_prunes_row_groups_and_says_so(tmp_path: Path) -> None:
    made = HandmadeTable(tmp_path / "t", SCHEMA, base_row_group=100, log_row_group=20)
    made.base(rows(range(1000), 0, 0))
    made.log(rows(range(0, 1000, 3), 1, 1))
    scan = lakebed.open(made.root).scan(filter="id >= 'k500' and id < 'k510'")
    assert scan.count() == 10
    assert "key range pushed into every file: [k500, k510)" in scan.explain()


def test_versions_are_refused_with_a_way_out(tmp_path: Path) -> None:
    for version in ("6", "11"):
        made = HandmadeTable(tmp_path / version, SCHEMA, version=10)
        properties = made.root / ".hoodie" / "hoodie.properties"
        properties.write_text(properties.read_text().replace("table.version=10", f"table.version={version}", 1))
        with pytest.raises(lakebed.UnsupportedFormat, match=version):
            lakebed.open(made.root)
