"""The rows of the write-path workload: 2M orders of 10 columns, UUID-like keys, 2 partitions, then upserts of 10 %."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS, UPSERTS, SHARE = 2_000_000, 5, 0.1
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("customer", pa.string()),
        ("product", pa.string()),
        ("qty", pa.int64()),
        ("price", pa.float64()),
        ("status", pa.string()),
        ("note", pa.string()),
        ("paid", pa.bool_()),
    ]
)


def keys_of(numbers: np.ndarray) -> pa.Array:
    """Texts that look like UUIDs: spread over the whole range, the same for the same number."""
    spread = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.uint64)
    tail = (spread ^ np.uint64(0x5DEECE66D)) * np.uint64(0xBF58476D1CE4E5B9)
    raw = np.stack([spread, tail], axis=1).astype(">u8").tobytes().hex()
    texts = (raw[at : at + 32] for at in range(0, len(raw), 32))
    return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts], pa.string())


def orders(numbers: np.ndarray, version: int) -> pa.Table:
    """Rows for some order numbers at one version."""
    rng = np.random.default_rng(version * 7919 + len(numbers))
    count = len(numbers)
    words = pa.array([f"product-{number:03d}" for number in range(500)])
    states = pa.array(["new", "packed", "sent", "paid", "void"])
    regions = pa.array(["eu", "us"])
    return pa.table(
        [
            keys_of(numbers),
            regions.take(pa.array(numbers % 2)),
            pa.array(np.full(count, version, np.int64)),
            pc.binary_join_element_wise("customer", pa.array(rng.integers(0, 100_000, count)).cast(pa.string()), "-"),
            words.take(pa.array(rng.integers(0, 500, count))),
            pa.array(rng.integers(1, 100, count)),
            pa.array(np.round(rng.random(count) * 1000, 2)),
            states.take(pa.array(rng.integers(0, 5, count))),
            pc.binary_join_element_wise("note", pa.array(rng.integers(0, 1 << 30, count)).cast(pa.string()), " "),
            pa.array(rng.random(count) < 0.5),
        ],
        schema=SCHEMA,
    )


def base(rows: int = ROWS) -> pa.Table:
    """The rows that a table is filled with."""
    return orders(np.arange(rows), 0)


def upsert(rows: int, number: int) -> pa.Table:
    """The rows of one upsert: 9 parts updates, 1 part new keys."""
    rng = np.random.default_rng(number)
    count = int(rows * SHARE)
    old = rng.choice(rows, count * 9 // 10, replace=False)
    new = rows + np.arange(count // 10) + number * count
    return orders(np.concatenate([old, new]), number)
