"""Indexes that look keys up do so in passes that fit the memory, and nothing about the table is different for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.index.key_lookup import KeyLookupIndex

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("txt", pa.string())])
KINDS = ["simple", "bloom", "global_simple", "global_bloom"]
KEYS = 14_000


def rows(keys: range, ts: int, *, shift: int = 0) -> pa.Table:
    """Rows by key in no order, some keys twice; `shift` moves them to other partitions."""
    chosen = np.random.default_rng(ts).permutation(np.array([*keys, *keys[: len(keys) // 10]]))
    return pa.table(
        {
            "id": [f"key{n:06d}" for n in chosen],
            "p": [f"p{(n + shift) % 3}" for n in chosen],
            "ts": [ts * 100 + at % 7 for at in range(len(chosen))],
            "txt": [f"{ts}-{n}" for n in chosen],
        },
        schema=SCHEMA,
    )


def written(folder: Path, kind: str, table_type: str, memory: str | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table after inserts, updates, moves and deletes; how often keys were looked up by write, and files."""
    looked = []
    real = KeyLookupIndex.locate
    monkeypatch.setattr(KeyLookupIndex, "locate", lambda own, table: looked.append(table.num_rows) or real(own, table))
    t = lakebed.create(
        folder, SCHEMA, record_key="id", ordering="ts", partition_by="p", table_type=table_type, index=kind
    )
    counts = []
    t.insert(rows(range(2_000), 1), memory=memory)
    for data in (rows(range(1_000, KEYS), 2), rows(range(KEYS - 9_000, KEYS + 3_000), 3, shift=int("global" in kind))):
        before = len(looked)
        done = t.upsert(data, memory=memory)
        counts.append((len(looked) - before, done.inserted + done.updated))
    t.delete(keys=[f"key{n:06d}" for n in range(0, KEYS, 2)], memory=memory)
    monkeypatch.undo()
    return t, counts, max(looked)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_table_whatever_the_memory(
    kind: str, table_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plenty, once, _ = written(tmp_path / "plenty", kind, table_type, None, monkeypatch)
    little, passes, most = written(tmp_path / "little", kind, table_type, "256KB", monkeypatch)
    assert [count for count, _ in once] == [1, 1]
    assert all(count > 2 for count, _ in passes)
    assert most < 6_000
    assert [written for _, written in once] == [written for _, written in passes]

    def content(t: lakebed.Table) -> list[Any]:
        return sorted(map(tuple, (row.values() for row in t.scan(SCHEMA.names).to_arrow().to_pylist())))

    assert content(little) == content(plenty)
    assert little.check(memory="256KB") == plenty.check() == []
    files = [Counter(t.inspect.file_slices().column("partition").to_pylist()) for t in (little, plenty)]
    assert files[0] == files[1], "new keys of later passes go where those of earlier ones went"


SCRIPT = """
import sys, threading
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import lakebed
from lakebed.write.tagging.tagging import Tagging

folder, index, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
t = lakebed.create(folder, schema, record_key="id", ordering="ts", table_type="cow", index=index)
batch, peaks = 8_192, []

def batches(ts, count):
    for start in range(0, count, batch):
        ids = pc.utf8_lpad(pa.array((np.arange(start, start + batch) * 7919) % count).cast(pa.string()), 12, "0")
        yield pa.record_batch([ids, pa.array(np.full(batch, ts))], schema=schema)

def watched(self, *rest):
    over = threading.Event()
    peaks.append(0)

    def watch():
        while not over.wait(0.001):
            peaks[-1] = max(peaks[-1], pa.total_allocated_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        return real(self, *rest)
    finally:
        over.set()
        thread.join()

real, Tagging.finish = Tagging.finish, watched
t.bulk_insert(pa.RecordBatchReader.from_batches(schema, batches(1, rows)), memory="16MB")
t.upsert(pa.RecordBatchReader.from_batches(schema, batches(2, rows)), memory="16MB")
print(*(peak >> 20 for peak in peaks))
"""


@pytest.mark.parametrize("index", ["simple", "global_bloom"])
def test_placing_rows_keeps_within_the_memory_however_many_keys_come(index: str, tmp_path: Path) -> None:
    """All keys of the write with their places would take 30 MB and more."""
    script = tmp_path / "write.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "t"), index, str(24 * 8_192)]
    here = {**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=here)
    assert done.returncode == 0, done.stderr
    assert all(int(peak) <= 12 for peak in done.stdout.split()), f"of 16 MB of memory, MB were held: {done.stdout}"
