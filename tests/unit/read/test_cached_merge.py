"""Reading again: the same rows in the same order as by merging, and keys compared once more only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.read import cached_merge, merge_vector_cache
from lakebed.read.merge_vector_cache import MERGE_VECTORS, FileVector, MergeVectorCache, SliceVectors
from tests.golden.rows import rows_of

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("part", pa.string()), ("v", pa.float64())])
KINDS: dict[str, dict[str, Any]] = {
    "native logs": {"log_format": "v2"},
    "v1 logs": {"log_format": "v1"},
    "default layout": {"log_format": "v1", "layout": "default"},
    "commit time": {"ordering": None},
}


def rows(numbers: range, ts: int) -> pa.Table:
    made = [{"id": f"k{n:04d}", "ts": ts, "part": f"p{n % 3}", "v": n / 4 + ts} for n in numbers]
    return pa.Table.from_pylist(made, schema=SCHEMA)


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Table:
    MERGE_VECTORS.clear()
    settings = {"record_key": "id", "partition_by": "part", "ordering": "ts", "num_buckets": 2, **KINDS[request.param]}
    made = lakebed.create(tmp_path / "t", SCHEMA, **settings)
    made.bulk_insert(rows(range(300), 1))
    made.upsert(rows(range(50, 120), 5))
    made.upsert(rows(range(90, 320), 3))
    made.delete(keys=["k0007", "k0100"])
    return made


def both(scan: lakebed.Scan) -> list[list[Any]]:
    """By merging, which a limit asks for, and read again by what was kept."""
    names = scan.schema.names
    merged = scan.limit(1 << 40).to_arrow()
    for _ in range(3):
        again = scan.to_arrow()
        assert rows_of(again, names) == rows_of(merged, names)
        assert again.combine_chunks() == merged.combine_chunks(), "in the same order every time"
    assert scan.count() == merged.num_rows
    return rows_of(merged, names)


def test_the_same_rows_as_by_merging(table: lakebed.Table) -> None:
    assert len(both(table.scan())) == 318
    assert len(both(table.scan(columns=["v"]))) == 318
    assert 0 < len(both(table.scan(filter="v > 50 and part = 'p1'"))) < 106
    assert len(both(table.scan(filter="id >= 'k0010' and id < 'k0020'"))) == 10
    instants = table.inspect.timeline().column("completion").to_pylist()
    assert both(table.scan(as_of=sorted(instants)[0])) != both(table.scan())
    late = table.incremental(sorted(instants)[1])
    assert rows_of(late.to_arrow(), SCHEMA.names) == rows_of(late.limit(1 << 40).to_arrow(), SCHEMA.names)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs were merged for vectors, time after time."""
    found: list[int] = []
    for name in ("merge_vectors", "merge_order"):
        merge = getattr(merge_vector_cache, name)

        def counted(runs: Any, *args: Any, merge: Any = merge, **kwargs: Any) -> Any:
            found.append(len(runs))
            return merge(runs, *args, **kwargs)

        monkeypatch.setattr(merge_vector_cache, name, counted)
    return found


def test_keys_are_compared_once(table: lakebed.Table, tmp_path: Path, made: list[int]) -> None:
    first = table.scan().to_arrow()
    assert not made, "whoever reads once pays for nothing else"
    assert rows_of(table.scan().to_arrow(), SCHEMA.names) == rows_of(first, SCHEMA.names)
    assert len(made) == (6 if table.config.is_lsm_tree else 0), "the default layout merges"
    assert table.scan().count() == first.num_rows
    slices = len(made)
    assert slices == 6
    assert table.scan(columns=["id"]).to_arrow().num_rows == first.num_rows
    assert lakebed.open(tmp_path / "t").scan(filter="v > 3").count() > 0
    assert len(made) == slices, "files never change, so neither does what is dead in them"
    table.upsert(rows(range(3), 9))
    assert table.scan().count() == first.num_rows
    assert slices < len(made) <= 2 * slices


def test_rules_that_combine_rows_are_merged(tmp_path: Path) -> None:
    partial = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    made = lakebed.create(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", num_buckets=1, properties=partial)
    made.bulk_insert(rows(range(4), 1))
    made.upsert(rows(range(2), 2).set_column(3, "v", pa.nulls(2, pa.float64())))
    plan = made.scan().plan()
    assert cached_merge.cached_vectors(plan.reader, plan.splits[0], at_once=True) is None
    assert sorted(made.scan().to_arrow().column("v").to_pylist()) == [1.0, 1.25, 1.5, 1.75]


# ---------------------------------------------------------------- within a budget
def key(name: str) -> Any:
    return ("file:///t", ((name, 1),), "", "", frozenset[str](), "runs")


def sized(nbytes: int) -> SliceVectors:
    words = np.zeros(nbytes // 8, np.uint64)
    found = SliceVectors((FileVector("f", 0, 0, words),))
    assert found.nbytes == nbytes
    return found


def test_vectors_that_nobody_uses_make_room() -> None:
    kept = MergeVectorCache(budget=3000)
    for name in "ab":
        kept.put(key(name), sized(800), kept.note_request(key(name)))
    assert [key(name) in kept for name in "abc"] == [True, True, False]
    assert not kept.note_request(key("c")), "nobody asked for them before"
    kept.put(key("c"), sized(800), 0)
    assert key("c") not in kept, "who asks for the first time pushes nobody out"
    kept.get(key("b"))
    kept.put(key("c"), sized(800), kept.note_request(key("c")))
    assert [key(name) in kept for name in "abc"] == [False, True, True], "unused since somebody asked for the others"
    kept.clear()
    assert not any(key(name) in kept for name in "abc")


def test_vectors_above_the_budget_push_nothing_out() -> None:
    kept = MergeVectorCache(budget=3000)
    kept.put(key("small"), sized(800), 0)
    for _ in range(3):
        since = kept.note_request(key("large"))
        assert not kept.has_room(4000, since)
        kept.put(key("large"), sized(4000), since)
        assert [key(name) in kept for name in ("small", "large")] == [True, False]
    assert not kept.has_room(800, 0, keep=1000), "what a scan may keep counts those that are there"
    assert not kept.has_room(1200, kept.note_request(key("large")), keep=1600)
    assert kept.has_room(1000, kept.note_request(key("large")), keep=1600), "nobody used the small ones since"


class Looked(dict[Any, Any]):
    """Counts the entries that somebody looks at."""

    entries = 0

    def values(self) -> Any:
        for entry in super().values():
            self.entries += 1
            yield entry


@pytest.mark.parametrize("budget", [1 << 30, 30_000])
def test_whether_there_is_room_is_told_without_a_look_at_every_entry(budget: int) -> None:
    looked = Looked()
    kept = MergeVectorCache(budget=budget, _kept=looked)
    for number in range(200):
        kept.put(key(str(number)), sized(400), kept.note_request(key(str(number))))
    assert len(looked) > 20
    assert looked.entries < 3 * 200


def test_scans_over_more_slices_than_there_is_room_for_keep_some(
    table: lakebed.Table, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        rows = table.scan().to_arrow()
        table.scan().count()
    assert len(made) == 6
    entry = max(one.cost for one in MERGE_VECTORS._kept.values())
    MERGE_VECTORS.clear()
    monkeypatch.setattr(MERGE_VECTORS, "budget", 3 * entry)
    made.clear()
    for _ in range(5):
        assert table.scan().to_arrow().num_rows == rows.num_rows
        assert table.scan().count() == rows.num_rows
    assert 2 <= len(MERGE_VECTORS._kept) <= 4
    assert len(made) <= 8, "those that are not kept are not made again and again"
    assert MERGE_VECTORS._held == sum(one.cost for one in MERGE_VECTORS._kept.values()) <= MERGE_VECTORS.budget


def test_vectors_too_large_for_the_memory_are_not_made(table: lakebed.Table, made: list[int]) -> None:
    merged = table.scan().to_arrow()
    for _ in range(3):
        small = table.scan(memory="4KB")
        assert rows_of(small.to_arrow(), SCHEMA.names) == rows_of(merged, SCHEMA.names)
        assert small.count() == merged.num_rows
    assert not made
    assert not MERGE_VECTORS._kept


def test_what_vectors_take_is_known_beforehand(table: lakebed.Table) -> None:
    plan = table.scan().plan()
    for split in plan.splits:
        for ordered in (False, True):
            vectors = merge_vector_cache.plan_vectors(plan.reader, split, ordered=ordered)
            if vectors is None:
                assert ordered
                assert not table.config.is_lsm_tree
                continue
            size = vectors.most_bytes
            found = vectors.vectors(plan.reader)
            rows = sum(vector.rows for _, vector in found.logs)
            assert found.nbytes <= size <= found.nbytes + 2 * rows + 4096
