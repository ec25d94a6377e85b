"""Merged reads of one file group: what the merge costs over reading the same files without one.

A base file of 2M rows and 15 columns with native logs of 100k rows each, all sorted, zstd. The floor is the same files
read unmerged, in the same run. The answer is compared with a plain dictionary first.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakebed
from benchmarks.claims import Claims
from benchmarks.handmade import HandmadeTable
from benchmarks.measure import Measured, measure
from lakebed.read.merge_vector_cache import MERGE_VECTORS

ROWS, LOG_ROWS = 2_000_000, 100_000
MEMORY = 256 << 20
PAYLOAD = ["amount", "city"]


def columns_of(keys: np.ndarray, version: int, seed: int) -> pa.Table:
    """Fifteen columns as an order table has: few texts, many numbers."""
    rng = np.random.default_rng(seed)
    count = len(keys)
    cities = pa.array([f"city-{number}" for number in range(200)])
    key_text = pc.binary_join_element_wise("id", pc.utf8_lpad(pa.array(keys).cast(pa.string()), 10, "0"), "-")
    data: dict[str, pa.Array] = {
        "id": key_text,
        "ts": pa.repeat(pa.scalar(version, pa.int64()), count),
        "amount": pa.array(rng.integers(0, 1_000_000, count)),
        "price": pa.array(rng.random(count)),
        "city": cities.take(pa.array(rng.integers(0, 200, count))),
        "note": pc.binary_join_element_wise("note", pa.array(rng.integers(0, 1 << 40, count)).cast(pa.string()), " "),
        "flag": pa.array(rng.random(count) < 0.5),
    }
    for number in range(8):
        data[f"n{number}"] = pa.array(rng.integers(0, 1 << (4 * number + 4), count))
    return pa.table(data)


def build(root: Path, rows: int, logs: int, log_rows: int) -> Path:
    """A table of one file group; every log updates existing keys spread over the whole range, and inserts a few."""
    first = columns_of(np.arange(rows) * 2, 0, 0)
    table = HandmadeTable(root, first.schema)
    table.base(first)
    del first
    for number in range(1, logs + 1):
        rng = np.random.default_rng(1000 + number)
        updated = rng.choice(rows, log_rows * 9 // 10, replace=False) * 2
        inserted = rng.choice(rows, log_rows // 10, replace=False) * 2 + 1
        table.log(columns_of(np.concatenate([updated, inserted]), number, number))
    return root


def merged(root: Path, columns: list[str] | None, where: str | None) -> int:
    """The merged read, as if it were the first: how many rows came out."""
    MERGE_VECTORS.clear()
    scan = lakebed.open(root).scan(columns=columns, filter=where, memory=MEMORY, options={"lakebed.threads": "1"})
    return sum(batch.num_rows for batch in scan.to_batches())


def unmerged(root: Path) -> int:
    """The floor: every row of every file, decoded and dropped."""
    rows = 0
    for path in sorted(root.glob("*.parquet")):
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            for batch in file.iter_batches(65_536, use_threads=False):
                rows += batch.num_rows
    return rows


def check_answer(root: Path) -> None:
    """The merged answer equals a dictionary filled file by file, oldest first."""
    model: dict[str, tuple[int, int]] = {}
    files = sorted(root.glob("*.parquet"), key=lambda path: path.name.split("_")[2])
    for path in files:
        part = pq.read_table(path, columns=["id", "ts", "amount"])
        columns = (part.column(name).to_pylist() for name in ("id", "ts", "amount"))
        model.update((key, (ts, amount)) for key, ts, amount in zip(*columns, strict=True))
    got = lakebed.open(root).scan(columns=["id", "ts", "amount"]).to_arrow()
    keys = got.column("id").to_pylist()
    assert len(keys) == len(set(keys)) == len(model), "one row per key"
    assert keys == sorted(model), "strictly ascending keys"
    values = zip(got.column("ts").to_pylist(), got.column("amount").to_pylist(), strict=True)
    assert all(model[key] == value for key, value in zip(keys, values, strict=True)), "the newest version of every key"


def _in_turn(root: Path, repeat: int) -> tuple[Measured, Measured]:
    """The floor and the merged read, in turn and twice: what else the machine does then meets both."""
    floors, reads = [], []
    for _ in range(2):
        floors.append(measure(unmerged, root, repeat=repeat))
        reads.append(measure(merged, root, None, None, repeat=repeat))
    worst = max(read.peak for read in reads)
    best = min(reads, key=lambda read: read.cpu)
    return min(floors, key=lambda floor: floor.cpu), replace(best, peak=worst)


def run(rows: int = ROWS, log_rows: int = LOG_ROWS, repeat: int = 5) -> Claims:
    """(what, measured, target) of every claim; smaller is better."""
    claims: Claims = []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        home = Path(folder)
        four, sixteen = build(home / "four", rows, 4, log_rows), build(home / "sixteen", rows, 16, log_rows)
        check_answer(four)
        full: Measured | None = None
        for name, root, target in (("4 logs", four, 1.4), ("16 logs", sixteen, 1.8)):
            floor, read = _in_turn(root, repeat)
            claims.append((f"merged read, {name}: CPU / reading the same files unmerged", read.cpu / floor.cpu, target))
            claims.append((f"merged read, {name}: peak MB above the imports", read.peak / 1e6, MEMORY / 1e6))
            full = full or read
        assert full is not None
        two = measure(merged, four, PAYLOAD, None, repeat=repeat)
        claims.append(("2 payload columns: CPU / all 15", two.cpu / full.cpu, 0.35))
        low, high = f"id-{rows // 2 * 2:010d}", f"id-{rows // 2 * 2 + rows // 50:010d}"
        narrow = measure(merged, four, None, f"id >= '{low}' and id < '{high}'", repeat=repeat)
        claims.append(("1 % key range: CPU / all keys", narrow.cpu / full.cpu, 0.1))
        large = build(home / "large", rows * 4, 4, log_rows * 4)
        grown = measure(merged, large, None, None, repeat=1)
        claims.append(("4 logs, files 4 x larger: peak MB above the imports", grown.peak / 1e6, MEMORY / 1e6))
        claims.append(("peak at 4 x the size / peak at 1 x", grown.peak / full.peak, 1.2))
    return claims
