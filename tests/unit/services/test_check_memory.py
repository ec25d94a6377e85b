"""The check of a table keeps within its memory, and finds the same whatever that is."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.config.memory_plan import CheckMemory
from lakebed.datafile.sorted_check import KEY_MARKS, repeats_in_memory
from lakebed.model.finding import Finding, Severity
from lakebed.services import check_keys, check_rows
from lakebed.services.check_keys import KeysByGroup, Repeated, Sample, count_repeats

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string())])
NO_SMALL_FILES = {"hoodie.parquet.small.file.limit": "0"}
TINY = CheckMemory(64 << 10)


def rows(first: int, last: int) -> pa.Table:
    keys = range(first, last)
    return pa.table({"id": [f"key{n:06d}" for n in keys], "ts": list(keys), "p": [f"p{n % 2}" for n in keys]}, SCHEMA)


@pytest.fixture(params=["lsm_tree", "default"])
def doubled(tmp_path: Path, request: pytest.FixtureRequest) -> lakebed.Table:
    """Three inserts that look nothing up: 1000 keys stand in two file groups of their partition."""
    t = lakebed.create(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="p", index="simple", layout=request.param
    )
    for first, last in ((0, 8_000), (7_500, 15_000), (14_500, 20_000)):
        t.insert(rows(first, last), options=NO_SMALL_FILES)
    return t


def unique(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.invariant == check_rows.UNIQUE]


def test_planted_duplicates_are_found_whatever_the_memory(
    doubled: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    parts: list[int] = []
    real = check_keys.key_parts

    def counted(*given: Any) -> Any:
        for part, table in real(*given):
            parts.append(table.num_rows)
            assert list(tmp_path.glob("lakebed-write-*")), "nothing lies on disk"
            yield part, table

    plenty = doubled.check()
    monkeypatch.setattr(check_keys, "key_parts", counted)
    little = doubled.check(memory="256KB")
    assert len(parts) > 6
    assert max(parts) < 3_000
    assert not list(tmp_path.glob("lakebed-write-*"))
    assert little == plenty
    found = unique(little)
    assert [finding.what.partition(",")[0] for finding in found] == ["500 keys", "500 keys"]
    assert {finding.what.split("'")[1] for finding in found} == {"key007500", "key007501"}
    strict = doubled.config.is_lsm_tree
    assert {finding.severity for finding in found} == {Severity.ERROR if strict else Severity.WARNING}


def test_a_sound_table_is_sound_in_little_memory(tmp_path: Path) -> None:
    for index in ("simple", "bloom", "global_simple", "bucket"):
        t = lakebed.create(
            tmp_path / index,
            SCHEMA,
            record_key="id",
            ordering="ts",
            partition_by="p",
            index=index,
            num_buckets=3 if index == "bucket" else None,
        )
        for first, last in ((0, 8_000), (7_000, 12_000)):
            t.upsert(rows(first, last), options=NO_SMALL_FILES)
        assert t.check(memory="256KB") == t.check() == []


def test_a_file_in_no_order_that_repeats_a_key_against_its_word(tmp_path: Path) -> None:
    t = lakebed.create(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", index="simple", layout="default")
    t.upsert(rows(0, 9_000))
    t.upsert(rows(8_000, 10_000))
    (path,) = (Path(t.url.removeprefix("file://")) / row["base_file"] for row in t.inspect.file_slices().to_pylist())
    content = pq.ParquetFile(path)
    table = content.read()
    metadata = {key: value for key, value in (content.metadata.metadata or {}).items() if key != b"ARROW:schema"}
    doubled = pa.concat_tables([table, table.slice(100, 40)]).slice(40)
    pq.write_table(doubled.replace_schema_metadata(metadata), path)
    plenty, little = t.check(), t.check(memory="256KB")
    assert little == plenty
    assert [one.what for one in little if one.invariant == KEY_MARKS and "repeat" in one.what] == [
        "the footer says that no key comes twice, but 40 rows repeat one"
    ]


# ---------------------------------------------------------------------- the comparison itself
def keys_of(*numbers: int) -> pa.Array:
    return pa.array([f"k{n:05d}" for n in numbers])


@pytest.mark.parametrize("share", [TINY, CheckMemory(1 << 30)])
def test_keys_of_several_groups(share: CheckMemory) -> None:
    with KeysByGroup(share) as keys:
        keys.add(0, keys_of(*range(4_000)))
        keys.add(2, keys_of(*range(9_000, 3_990, -1)))
        keys.add(1, keys_of(*range(3_995, 4_100)))
        keys.add(1, keys_of(7, 7))
        assert keys.repeated() == Repeated(1 + 9 + 100, "k00007", 0, 1)
    with KeysByGroup(share) as keys:
        keys.add(0, keys_of(*range(3_000), *range(3_000)))
        keys.add(1, keys_of(*range(3_000, 6_000)))
        assert keys.repeated() is None, "a key that comes twice in one group is another finding"
    with KeysByGroup(share) as keys:
        keys.add(0, keys_of(*range(3_000)))
        keys.add(1, keys_of(*range(3_000)))
        keys.leave_out(1)
        assert keys.repeated() is None
    with KeysByGroup(share) as keys:
        assert keys.repeated() is None
        keys.add(0, pa.array([None, "a"], pa.string()))
        keys.add(1, pa.array([None, "a"], pa.string()))
        assert keys.repeated() == Repeated(2, "a", 0, 1)


def test_repeats_are_counted_as_they_would_be_in_memory() -> None:
    chance = np.random.default_rng(5)
    batches = [keys_of(*chance.integers(0, 3_000, 700).tolist()) for _ in range(6)]
    assert count_repeats(batches, TINY) == repeats_in_memory(batches) > 0
    assert count_repeats([], TINY) == repeats_in_memory([]) == 0


@pytest.mark.parametrize("total", [0, 5, 19, 20, 21, 1_000])
@pytest.mark.parametrize("size", [1, 3, 64])
def test_a_sample_stands_at_even_distances(total: int, size: int) -> None:
    sample = Sample(10)
    for start in range(0, total, size):
        sample.add(pa.array([f"{n:04d}" for n in range(start, min(total, start + size))]))
    chosen = [int(text) for text in sample.keys().to_pylist()]
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    assert chosen == list(range(0, total, step))
    assert min(total, 10) <= len(chosen) <= 20


SCRIPT = """
import sys
import pyarrow as pa
import lakebed

t = lakebed.open(sys.argv[1])
start = pa.default_memory_pool().max_memory()
found = t.check(memory="8MB")
print(len(found), (pa.default_memory_pool().max_memory() - start) >> 20)
"""


def test_keys_far_larger_than_the_memory(tmp_path: Path) -> None:
    """600,000 keys of 40 bytes and as much again for each while they are compared, in 8 MB."""
    count, folder = 300_000, tmp_path / "t"
    schema = pa.schema([("id", pa.string()), ("v", pa.int8())])
    t = lakebed.create(folder, schema, record_key="id", index="simple", layout="default")
    for first in (0, count):
        ids = [f"{n:040d}" for n in range(first, first + count)]
        t.bulk_insert(pa.table({"id": ids, "v": pa.nulls(count, pa.int8())}), options=NO_SMALL_FILES)
    script = tmp_path / "check.py"
    script.write_text(SCRIPT)
    here = {**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parent.parent)}
    command = [sys.executable, str(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=here)
    assert done.returncode == 0, done.stderr
    found, peak = map(int, done.stdout.split())
    assert found == 0
    assert peak <= 10, f"in 8 MB of memory {peak} MB were held"


def test_no_keys_and_keys_of_any_text_type_are_compared() -> None:
    with KeysByGroup(TINY) as keys:
        keys.add(0, pa.array([], pa.string()))
        assert keys.repeated() is None
    with KeysByGroup(TINY) as keys:
        keys.add(0, pa.array(["a", "b"] * 4_000))
        keys.add(1, pa.array(["b", "c"] * 4_000).dictionary_encode())
        found = keys.repeated()
    assert found is not None and (found.keys, found.key) == (1, "b")
    assert count_repeats([pa.array(["a", None, None])], TINY) == 1
