"""A write keeps within its memory, however much comes in: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import lakebed

folder, table_type, index, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("txt", pa.string())])
t = lakebed.create(folder, schema, record_key="id", ordering="ts", table_type=table_type, index=index)
pool, batch = pa.default_memory_pool(), 4_096

text = np.random.default_rng(0).integers(97, 105, batch * 1_000, dtype=np.uint8)

def batches(ts, count):
    chance = np.random.default_rng(ts)
    for _ in range(count // batch):
        numbers = pa.array(chance.integers(0, rows, batch)).cast(pa.string())
        ends = np.arange(0, batch * 1_000 + 1, 1_000, dtype=np.int32)
        txt = pa.StringArray.from_buffers(batch, pa.py_buffer(ends), pa.py_buffer(text))
        ids = pc.utf8_lpad(numbers, 12, "0")
        yield pa.record_batch([ids, pa.array(np.full(batch, ts)), txt], schema=schema)

for ts, count in ((1, rows), (2, rows // 4)):
    t.upsert(pa.RecordBatchReader.from_batches(schema, batches(ts, count)), memory="32MB")
print(pool.max_memory() >> 20)
"""


@pytest.mark.parametrize(("table_type", "index"), [("mor", "bucket"), ("cow", "bucket"), ("mor", "simple")])
def test_a_stream_far_larger_than_the_memory(table_type: str, index: str, tmp_path: Path) -> None:
    size = 200 if (table_type, index) == ("mor", "bucket") else 60
    script = tmp_path / "write.py"
    script.write_text(SCRIPT)
    rows = str(size * 1_000)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "t"), table_type, index, rows],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 40, f"{size} MB went through 32 MB of memory and {done.stdout} MB were held"
