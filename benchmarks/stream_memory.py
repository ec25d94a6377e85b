"""A stream that is larger than the memory it may take: an upsert of 10 GB from Arrow batches within 1 GB.

    python -m benchmarks.stream_memory [GB] [MEMORY_MB]

Batches are made while they are asked for and never held; what is counted is the peak above the imports, of everything
that lakebed does with them: piling up by file group, sorting with spill, merging, encoding. The table starts with a
tenth of the rows, so that groups get logs, and its rows are counted afterwards.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.claims import Claims, report
from benchmarks.measure import measure

ROWS = 10_000
WIDTH = 1_000
"""Bytes of text in a row, which does not compress to nothing."""
BUCKETS = 32
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("amount", pa.int64()), ("text", pa.string())])


def batches(count: int, every: int = 1) -> Iterator[pa.RecordBatch]:
    """So many batches of distinct keys in no order; with `every`, only each such batch."""
    letters = np.random.default_rng(0).integers(97, 123, ROWS * WIDTH + 4096, dtype=np.uint8)
    offsets = pa.py_buffer(np.arange(ROWS + 1, dtype=np.int32) * WIDTH)
    for number in range(0, count, every):
        serial = (np.arange(ROWS, dtype=np.uint64) + np.uint64(number * ROWS)) * np.uint64(0x9E3779B97F4A7C15)
        keys = pa.array([f"{value:016x}" for value in serial.tolist()])
        start = number * 37 % 4096
        text = pa.Array.from_buffers(pa.string(), ROWS, [None, offsets, pa.py_buffer(letters[start:])])
        amounts = pa.array((serial >> np.uint64(40)).astype(np.int64))
        yield pa.RecordBatch.from_arrays(
            [keys, pa.repeat(pa.scalar(number + every), ROWS), amounts, text], schema=SCHEMA
        )


def upsert(folder: str, count: int, memory: int) -> int:
    """The whole work: rows that the table has afterwards."""
    table = lakebed.create(folder, SCHEMA, record_key="id", ordering="ts", index="bucket", num_buckets=BUCKETS)
    for every in (10, 1):
        reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(count, every))
        table.upsert(reader, memory=memory)
    return table.scan(memory=memory).count()


def run(gigabytes: float = 10.0, memory: int = 1 << 30) -> Claims:
    """The peak, and that no row is missing."""
    count = max(10, round(gigabytes * 1e9 / (ROWS * (WIDTH + 40))))
    with tempfile.TemporaryDirectory(prefix="lakebed-stream-") as home:
        found = measure(upsert, str(Path(home) / "table"), count, memory, repeat=1, cores=2)
    if found.result != count * ROWS:
        raise RuntimeError(f"the table has {found.result} rows, and should have {count * ROWS}")
    print(f"{count * ROWS:,} rows, {gigabytes:g} GB: {found.wall:.0f} s, {found.cpu:.0f} CPU s")
    return [(f"upsert of a {gigabytes:g} GB stream: peak MB above the imports", found.peak / 1e6, memory / 1e6)]


if __name__ == "__main__":
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    sys.exit(report(run(gigabytes, int(sys.argv[2]) << 20 if len(sys.argv) > 2 else 1 << 30)))
