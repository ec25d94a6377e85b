"""A clustering keeps within its memory, however much is put in order: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("txt", pa.string())])
BATCH, ROWS, TURNS, WIDTH = 4_000, 16_000, 6, 1_000
SCRIPT = """
import sys
import pyarrow as pa
import lakebed
t = lakebed.open(sys.argv[1])
options = dict(text.split("=") for text in sys.argv[3:])
assert len(t.services.cluster(options, memory=sys.argv[2])) == 1
print(pa.default_memory_pool().max_memory() >> 20)
"""


def batches(turn: int) -> Iterator[pa.RecordBatch]:
    """Rows of a kilobyte in no order, whose keys lie between those of the other turns."""
    text = pa.py_buffer(np.random.default_rng(turn).integers(97, 105, BATCH * WIDTH, dtype=np.uint8))
    ends = pa.py_buffer(np.arange(0, BATCH * WIDTH + 1, WIDTH, dtype=np.int32))
    for start in range(0, ROWS, BATCH):
        numbers = pa.array((np.arange(start, start + BATCH) * 7_919 % ROWS * TURNS + turn).tolist())
        keys = pc.utf8_lpad(numbers.cast(pa.string()), 12, "0")
        yield pa.record_batch([keys, numbers, pa.StringArray.from_buffers(BATCH, ends, text)], schema=SCHEMA)


def rows_of(table: Table) -> pa.Table:
    return table.refresh().scan(columns=["id", "ts"]).to_arrow().sort_by("id")


@pytest.mark.parametrize(("layout", "order"), [("lsm_tree", None), ("default", "hilbert")])
def test_far_more_than_the_memory(layout: str, order: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    apart = {"hoodie.parquet.small.file.limit": "0"}
    table = lakebed.create(folder, SCHEMA, record_key="id", index="simple", layout=layout, properties=apart)
    for turn in range(TURNS):
        table.bulk_insert(pa.RecordBatchReader.from_batches(SCHEMA, batches(turn)), memory="24MB")
    before = rows_of(table)
    options = ["hoodie.clustering.plan.strategy.sort.columns=ts,id", f"hoodie.layout.optimize.strategy={order}"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), "40MB", *(options if order else [])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    held = int(done.stdout)
    assert 4 < held <= 40, f"96 MB were put in order within 40 MB, and {held} MB were held"
    assert rows_of(table) == before
    assert len(table.inspect.file_slices()) == 1
