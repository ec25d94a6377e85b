"""A compaction keeps within its memory, however large the group: measured in a process of its own."""

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

folder, layout, log_format, strategy, rows = *sys.argv[1:5], int(sys.argv[5])
schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("txt", pa.string())])
made = {"record_key": "id", "ordering": "ts", "num_buckets": 1, "layout": layout, "log_format": log_format}
t = lakebed.create(folder, schema, **made)
batch = 4_096
text = np.random.default_rng(0).integers(97, 105, batch * 1_000, dtype=np.uint8)

def batches(ts, count):
    chance = np.random.default_rng(ts)
    for _ in range(count // batch):
        numbers = pa.array(chance.integers(0, rows, batch)).cast(pa.string())
        ends = np.arange(0, batch * 1_000 + 1, 1_000, dtype=np.int32)
        txt = pa.StringArray.from_buffers(batch, pa.py_buffer(ends), pa.py_buffer(text))
        yield pa.record_batch([pc.utf8_lpad(numbers, 12, "0"), pa.array(np.full(batch, ts)), txt], schema=schema)

for ts in range(1, 6):
    t.upsert(pa.RecordBatchReader.from_batches(schema, batches(ts, rows if ts == 1 else rows // 4)), memory="24MB")
before = t.scan(columns=["ts"]).to_arrow()["ts"].value_counts().to_pylist()
pool = pa.default_memory_pool()
low = pool.max_memory()
easy = {"hoodie.log.compaction.blocks.threshold": "2", "lakebed.log.compaction.small.size": "1GB"}
done = t.services.compact(strategy, options=easy, memory=sys.argv[6])
assert len(done) == 1
print(max(0, pool.max_memory()) >> 20, low >> 20)
after = t.scan(columns=["ts"]).to_arrow()["ts"].value_counts().to_pylist()
assert sorted(map(str, before)) == sorted(map(str, after))
"""


@pytest.mark.parametrize(
    ("layout", "log_format", "strategy"),
    [("lsm_tree", "v2", "full"), ("lsm_tree", "v1", "log"), ("default", "v2", "full")],
)
def test_a_group_far_larger_than_the_memory(layout: str, log_format: str, strategy: str, tmp_path: Path) -> None:
    script = tmp_path / "compact.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "t"), layout, log_format, strategy, "48000", "40MB"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    held, _ = map(int, done.stdout.split())
    assert held <= 40, f"96 MB were merged within 40 MB, and {held} MB were held"
