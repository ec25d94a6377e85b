"""Reading again: the same rows in the same order as by merging, and keys compared once more only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.read import kept_vectors, living_rows
from lakebed.read.kept_vectors import KEPT, KeptVectors, SliceVectors
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
    KEPT.clear()
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


def test_keys_are_compared_once(table: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    for name in ("merge_vectors", "merge_order"):
        merge = getattr(kept_vectors, name)

        def counted(runs: Any, *args: Any, merge: Any = merge, **kwargs: Any) -> Any:
            made.append(len(runs))
            return merge(runs, *args, **kwargs)

        monkeypatch.setattr(kept_vectors, name, counted)
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
    assert living_rows.kept_vectors(plan.reader, plan.splits[0], at_once=True) is None
    assert sorted(made.scan().to_arrow().column("v").to_pylist()) == [1.0, 1.25, 1.5, 1.75]


def test_the_oldest_vectors_make_room() -> None:
    kept = KeptVectors(budget=1200)
    keys = [("memory://", ((name, 1),), "", "", frozenset[str](), "runs") for name in "abc"]
    for key in keys:
        kept.put(key, SliceVectors(()), since=1 << 30)
    assert [key in kept for key in keys] == [False, True, True]
    kept.clear()
    assert not any(key in kept for key in keys)
