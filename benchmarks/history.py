"""The history timeline by size: listing instants, loading everything, and looking into a small range.

    python -m benchmarks.history [ACTIONS...] [--hudi]

The seed of this format reports 32 ms to list and 150 ms to load 10,000 actions, and 162 s to read 10,000,000 (which
take 3 GB on disk here, and are made only when asked for). Histories are made by the archiver's own steps; bodies are
commits of one file each, as large as real ones, since most of a body is its Avro schema. With --hudi real Hudi reads
the folder of 10,000 actions beside it.

Beside listing stands its floor: pyarrow reading the same three columns of the same files and keeping them, with nothing
checked. Every number is the best of several runs (but for loading 10,000,000 with all bodies, which takes long): a
first run also pays for memory that the process never had before, the floor's as much as ours.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.claims import Claims, report
from benchmarks.measure import measure
from lakebed.format.names import HISTORY_DIR, BaseFileName
from lakebed.format.timeline.files import encode_body
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.instant import Action, State
from lakebed.storage.local import LocalStorage
from lakebed.timeline.clock import instant_time_of_ms
from lakebed.timeline.history import History
from lakebed.timeline.history_columns import BODIES_SCHEMA, instants_of
from lakebed.timeline.history_writer import compact, flush, sweep

SIZES = (10_000, 100_000, 1_000_000)
START_MS = 1_700_000_000_000
STEP_MS = 30_000
ROOT = Path(__file__).parents[1]
_BEGIN = "20230101000000000"
_FILE_ID = "11111111-0000-4000-8000-000000000000-0"


def _times(first: int, count: int, after_ms: int) -> pa.Array:
    """Texts of 17 digits, thirty seconds apart."""
    stamps = pa.array(START_MS + after_ms + STEP_MS * np.arange(first, first + count), pa.timestamp("ms"))
    return pc.replace_substring(pc.strftime(stamps, "%Y%m%d%H%M%S"), ".", "")


def _bodies(template: bytes, begins: pa.Array) -> pa.Array:
    """The template for every begin, which stands in it wherever `_BEGIN` does."""
    rows = np.tile(np.frombuffer(template, np.uint8), (len(begins), 1))
    digits = np.frombuffer(begins.buffers()[2], np.uint8, len(begins) * len(_BEGIN)).reshape(-1, len(_BEGIN))
    at = template.find(_BEGIN.encode())
    while at >= 0:
        rows[:, at : at + len(_BEGIN)] = digits
        at = template.find(_BEGIN.encode(), at + 1)
    ends = np.arange(0, rows.size + 1, len(template), dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(begins), [None, pa.py_buffer(ends), pa.py_buffer(rows)])


def build(folder: Path, actions: int) -> None:
    """A history of so many actions, one every thirty seconds.

    Up to a million by the archiver's steps, in 200 rounds that are merged level by level; beyond it files of the size
    that these steps end with are flushed at once.
    """
    name = BaseFileName(_FILE_ID, "0-0-0", _BEGIN, "parquet").render()
    stat = WriteStat(_FILE_ID, f"p0/{name}", "p0", "null", num_writes=1000, num_inserts=1000, file_size=123_456)
    schema = json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": f"c{i}", "type": "long"} for i in range(20)]}
    )
    body = CommitMetadata("UPSERT", {"p0": (stat,)}, {"schema": schema})
    template = encode_body(body, Action.COMMIT, State.COMPLETED)
    history = History(LocalStorage(folder), (), None)
    at_once = actions > 1_000_000
    round_size = 50_000 if at_once else max(11, actions // 200)
    for first in range(0, actions, round_size):
        count = min(round_size, actions - first)
        begins = _times(first, count, 0)
        columns = [begins, _times(first, count, 700), pa.repeat("commit", count), _bodies(template, begins)]
        history = flush(history, pa.table([*columns, pa.nulls(count, pa.binary())], schema=BODIES_SCHEMA))
        if not at_once:
            history = compact(history, 10, 1_048_576_000)
            sweep(history, 3)
    sweep(history, 1)


def list_times(folder: str) -> int:
    """Begin, completion and action of everything, as Arrow columns."""
    return int(History.load(LocalStorage(folder)).table().num_rows)


def list_instants(folder: str) -> int:
    """The same as a Python object each."""
    return len(instants_of(History.load(LocalStorage(folder)).table()))


def read_columns(folder: str) -> int:
    """The floor of listing: the columns alone, as pyarrow reads them."""
    files = [f"{folder}/{file.path}" for file in History.load(LocalStorage(folder)).files]
    parts = []
    for file in files:
        with pq.ParquetFile(file) as parquet:
            parts.append(parquet.read(["instantTime", "completionTime", "action"]))
    return sum(part.num_rows for part in parts)


def load_everything(folder: str) -> int:
    """All columns, with every body, row group by row group."""
    return sum(int(part.num_rows) for part in History.load(LocalStorage(folder)).parts())


def small_range(folder: str, actions: int) -> int:
    """A hundred actions out of the middle, with their bodies."""
    low, high = (instant_time_of_ms(START_MS + STEP_MS * (actions // 2 + more)) for more in (0, 99))
    return int(History.load(LocalStorage(folder)).loaded(low, high).num_rows)


RANGE, WHOLE, COLUMNS, FLOOR = "a range of 100", "load everything", "list, as columns", "floor of it"
WORK: dict[str, Callable[..., int]] = {
    FLOOR: read_columns,
    COLUMNS: list_times,
    "list, as instants": list_instants,
    WHOLE: load_everything,
}


def measured(folder: Path, actions: int) -> dict[str, float]:
    """CPU milliseconds of each kind of reading on one core, best of several in a process of its own."""
    found = {
        name: measure(work, str(folder), repeat=1 if work is load_everything and actions > 1_000_000 else 5)
        for name, work in WORK.items()
        if work is not list_instants or actions <= 1_000_000
    }
    expected = {**dict.fromkeys(found, actions), RANGE: min(100, actions)}
    found[RANGE] = measure(small_range, str(folder), actions, repeat=20)
    for name, one in found.items():
        if one.result != expected[name]:
            raise AssertionError(f"{name}: {one.result} rows instead of {expected[name]}")
    return {name: one.cpu * 1000 for name, one in found.items()}


_PEER = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from hudi_peer import HUDI_BUNDLE, start_session
session = start_session(Path({folder!r}), HUDI_BUNDLE, "4g")
jvm = session._jvm
conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(session._jsc.hadoopConfiguration())
out = dict()
for path in {paths!r}:
    best = [1e9, 1e9]
    for _ in range(4):
        builder = jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        client = builder.setConf(conf).setBasePath(path).build()
        started = time.perf_counter()
        timeline = client.getArchivedTimeline()
        count = timeline.countInstants()
        listed = time.perf_counter()
        timeline.loadCompletedInstantDetailsInMemory()
        best = [min(best[0], listed - started), min(best[1], time.perf_counter() - listed)]
    out[path] = [count, best[0] * 1000, best[1] * 1000]
print("ANSWER " + json.dumps(out))
session.stop()
"""


def by_hudi(folders: dict[int, Path], scratch: Path) -> dict[int, tuple[float, float]]:
    """Milliseconds in which real Hudi lists and loads the same histories; the first of four runs warms the JVM."""
    paths = [str(folder) for folder in folders.values()]
    code = _PEER.format(tests=str(ROOT / "tests" / "interop"), folder=str(scratch), paths=paths)
    python = ROOT / ".venv-hudi" / "bin" / "python"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False, timeout=1200)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    if not lines:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, list[float]] = json.loads(lines[0].removeprefix("ANSWER "))
    for actions, folder in folders.items():
        if found[str(folder)][0] != actions:
            raise AssertionError(f"Hudi counts {found[str(folder)][0]} of {actions} actions")
    return {actions: (found[str(folder)][1], found[str(folder)][2]) for actions, folder in folders.items()}


def make_table(folder: Path) -> None:
    """Enough of a table around a history for Hudi to open it."""
    import lakebed

    lakebed.create(folder, pa.schema([("id", pa.string())]), record_key="id", log_format="v1", table_type="cow")
    (folder / HISTORY_DIR).mkdir(parents=True, exist_ok=True)


def run(sizes: tuple[int, ...] = SIZES, *, hudi: bool = False) -> Claims:
    """Print the table of times; the claims that `make bench` checks."""
    scratch = Path(tempfile.mkdtemp(prefix="lakebed-history-"))
    try:
        times: dict[int, dict[str, float]] = {}
        folders: dict[int, Path] = {}
        for actions in sizes:
            folders[actions] = scratch / str(actions)
            make_table(folders[actions])
            started = time.perf_counter()
            build(folders[actions], actions)
            built = time.perf_counter() - started
            times[actions] = measured(folders[actions], actions)
            times[actions]["written in s"] = built
            if actions > 100_000:
                shutil.rmtree(folders.pop(actions))
        peers = {10_000: folders[10_000]} if hudi else {}
        theirs = by_hudi(peers, scratch / "spark") if peers else {}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _print(times, theirs)
    return _claims(times)


def _print(times: dict[int, dict[str, float]], theirs: dict[int, tuple[float, float]]) -> None:
    table = Table(title="history, CPU milliseconds", title_justify="left")
    names = list(next(iter(times.values())))
    for heading in ("actions", *names, *(("Hudi lists", "Hudi loads") if theirs else ())):
        table.add_column(heading, justify="right")
    for actions, found in times.items():
        extra = [f"{value:.0f}" for value in theirs.get(actions, ())]
        table.add_row(f"{actions:,}", *(f"{found[name]:.1f}" if name in found else "" for name in names), *extra)
    Console().print(table)


def _claims(times: dict[int, dict[str, float]]) -> Claims:
    claims: Claims = []
    if 10_000 in times:
        claims.append(("list 10,000 actions, of the seed's 32 ms", times[10_000][COLUMNS] / 32, 1.0))
        claims.append(("load 10,000 actions, of the seed's 150 ms", times[10_000][WHOLE] / 150, 1.0))
    if 10_000_000 in times:
        claims.append(("load 10,000,000 actions, of the seed's 162 s", times[10_000_000][WHOLE] / 162_000, 1.0))
    first = min(times)
    for last in (actions for actions in times if actions >= 10 * first):
        claims.append((f"{COLUMNS}, of {last:,}: CPU / its floor", times[last][COLUMNS] / times[last][FLOOR], 1.5))
        for name in (name for name in WORK if name in times[last] and name != FLOOR):
            grown = times[last][name] / times[first][name] / (last / first)
            claims.append((f"{name}: time per action, {last:,} against {first:,}", grown, 1.2))
        flat = times[last][RANGE] / times[first][RANGE]
        claims.append((f"{RANGE} out of {last:,} against {first:,}", flat, 1.5))
    return claims


def main(arguments: list[str]) -> int:
    sizes: Any = tuple(int(text.replace("_", "")) for text in arguments if not text.startswith("--"))
    return report(run(sizes or SIZES, hudi="--hudi" in arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
