"""Table services without a peer: what compaction costs over copying the same files, and one merge beside the other.

    python -m benchmarks.services [--rows N] [--repeat N] [--folder DIR]

The table is that of the write path: 2M orders, 4 buckets in each of 2 partitions, zstd, 5 upserts of 10 %. The floor of
a full compaction is a tuned Parquet copy in the same threads: every log decoded and dropped, every row that the
compaction writes read from Parquet and written again with the settings that lakebed's files have, then synced. Every
run starts from the same files, by hard links.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import lakebed
from benchmarks.claims import Claims, report
from benchmarks.measure import measure
from benchmarks.orders import ROWS, SCHEMA, UPSERTS, base, upsert

MEMORY = 1 << 30
SHAPE: dict[str, Any] = {
    "record_key": "id",
    "partition_by": "region",
    "ordering": "ts",
    "index": "bucket",
    "num_buckets": 4,
}
EASY = {"hoodie.log.compaction.blocks.threshold": "2", "lakebed.log.compaction.small.size": "1GB"}
"""Every log counts as small, so that a log compaction takes all of them."""


def build(root: Path, rows: int, **reader_context: Any) -> Path:
    """The table before its first compaction."""
    table = lakebed.create(root, SCHEMA, **{**SHAPE, **reader_context})
    table.bulk_insert(base(rows))
    for number in range(1, UPSERTS + 1):
        table.upsert(upsert(rows, number))
    return root


def linked(root: str, number: int) -> Path:
    """The same table once more, at no cost: data files are never changed."""
    copy = Path(f"{root}-{number}")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy, copy_function=os.link)
    return copy


@dataclass(frozen=True)
class Best:
    """The best CPU and wall seconds of several runs, and what the last one returned."""

    cpu: float
    wall: float
    result: Any


def _repeated(root: str, repeat: int, work: Callable[[Path], Any]) -> Best:
    cpu = wall = float("inf")
    result: Any = None
    for number in range(repeat):
        copy = linked(root, number)
        started, busy = time.perf_counter(), time.process_time()
        result = work(copy)
        wall, cpu = min(wall, time.perf_counter() - started), min(cpu, time.process_time() - busy)
        shutil.rmtree(copy)
    return Best(cpu, wall, result)


# ---------------------------------------------------------------------- lakebed
def compacted(root: str, strategy: str, repeat: int) -> Best:
    """A compaction by lakebed in threads; the bytes that it wrote."""

    def work(copy: Path) -> int:
        before = data_files(copy)
        done = lakebed.open(copy).services.compact(strategy, options=EASY, memory=MEMORY)
        assert len(done) == 1, done
        return sum(path.stat().st_size for path in data_files(copy) - before)

    return _repeated(root, repeat, work)


def data_files(root: Path) -> set[Path]:
    """Base files and logs, not what lies below .hoodie."""
    files = (path for path in root.rglob("*") if path.is_file() and ".hoodie" not in path.relative_to(root).parts)
    return {path for path in files if ".parquet" in path.name or ".log." in path.name}


def bytes_of(root: Path) -> int:
    """The bytes of all data files."""
    return sum(path.stat().st_size for path in data_files(root))


# ---------------------------------------------------------------------- the floor
def copied(root: str, repeat: int) -> Best:
    """The Parquet copy: logs decoded, the rows of the compacted base files read and written; the bytes written."""
    compact = linked(root, 1_000)
    before = data_files(compact)
    lakebed.open(compact).services.compact("full", memory=MEMORY)
    made = sorted(data_files(compact) - before)

    def work(copy: Path) -> int:
        logs = {path for path in data_files(copy) if ".log." in path.name}
        with ThreadPoolExecutor(2) as pool:
            tasks = [(file, [log for log in logs if _group(log) == _group(file)], copy / file.name) for file in made]
            return sum(pool.map(_copy, *zip(*tasks, strict=True)))

    found = _repeated(root, repeat, work)
    shutil.rmtree(compact)
    return found


def _group(path: Path) -> tuple[str, str]:
    return path.parent.name, path.name.lstrip(".").partition("_")[0]


def _copy(file: Path, logs: list[Path], target: Path) -> int:
    for log in logs:
        with pq.ParquetFile(log, pre_buffer=False, read_dictionary=dictionary_columns(log)) as source:
            for _ in source.iter_batches(65_536, use_threads=False):
                pass
    names = dictionary_columns(file)
    with (
        pq.ParquetFile(file, pre_buffer=False, read_dictionary=names) as source,
        pq.ParquetWriter(
            target,
            source.schema_arrow,
            compression="zstd",
            use_dictionary=names,
            column_encoding=dict.fromkeys(_delta_columns(file), "DELTA_BINARY_PACKED") or None,
            write_statistics=[
                n for n in source.schema_arrow.names if n not in {"_hoodie_commit_seqno", "_hoodie_file_name"}
            ],
            store_schema=False,
            write_page_index=True,
            write_page_checksum=True,
        ) as sink,
    ):
        for number in range(source.num_row_groups):
            sink.write_table(source.read_row_group(number, use_threads=False))
    with target.open("rb+") as written:
        os.fsync(written.fileno())
    return target.stat().st_size


def dictionary_columns(file: Path) -> list[str]:
    """The text columns that a file keeps behind dictionaries."""
    return [c.path_in_schema for c in _chunks(file) if "RLE_DICTIONARY" in c.encodings]


def _delta_columns(file: Path) -> list[str]:
    return [c.path_in_schema for c in _chunks(file) if "DELTA_BINARY_PACKED" in c.encodings]


def _chunks(file: Path) -> list[Any]:
    group = pq.read_metadata(file).row_group(0)
    return [group.column(number) for number in range(group.num_columns)]


# ---------------------------------------------------------------------- the workloads
def against_copy(home: Path, rows: int, repeat: int) -> Claims:
    """A full compaction, and the copy, by turns."""
    root = str(build(home / "orders", rows))
    floors, runs = [], []
    for _ in range(2):
        floors.append(measure(copied, root, repeat, repeat=1, cores=2).result)
        runs.append(measure(compacted, root, "full", repeat, repeat=1, cores=2).result)
    claims: Claims = []
    for name in ("cpu", "wall"):
        ours, floor = (min(getattr(one, name) for one in found) for found in (runs, floors))
        print(f"full compaction: {ours:.2f} s {name}; the copy {floor:.2f} s", flush=True)
        claims.append((f"full compaction: {name} / Parquet copy of the same bytes", ours / floor, 1.5))
    claims.append(("bytes written / bytes that the copy wrote", runs[0].result / floors[0].result, 1.02))
    return claims


def hash_against_sorted(home: Path, rows: int, repeat: int) -> Claims:
    """The sorted merge of the LSM layout and the hash merge of the default one, on the same rows."""
    table = Table(title="seconds: LSM layout, sorted merge / default layout, hash merge", title_justify="left")
    for heading in ("compaction", "sorted CPU", "hash CPU", "sorted wall", "hash wall"):
        table.add_column(heading, justify="right")
    roots = {layout: str(build(home / layout, rows, layout=layout)) for layout in ("lsm_tree", "default")}
    claims: Claims = []
    for strategy in ("full", "log"):
        by_sort, by_hash = (
            measure(compacted, roots[layout], strategy, repeat, repeat=1, cores=2).result
            for layout in ("lsm_tree", "default")
        )
        table.add_row(strategy, *(f"{value:.2f}" for value in (by_sort.cpu, by_hash.cpu, by_sort.wall, by_hash.wall)))
        claims.append((f"{strategy} compaction: sorted merge / hash merge, CPU", by_sort.cpu / by_hash.cpu, 1.0))
    Console().print(table)
    return claims


def run(rows: int = ROWS, repeat: int = 3, *, folder: Path | None = None, only: str = "") -> Claims:
    """(what, measured, target) of every claim; smaller is better."""
    home = Path(tempfile.mkdtemp(prefix="lakebed-services-", dir=folder))
    claims: Claims = []
    try:
        for work in (against_copy, hash_against_sorted):
            if only in work.__name__:
                claims += work(home, rows, repeat)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return claims


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", help="workloads whose names have this in them")
    given = parser.parse_args(arguments)
    return report(run(given.rows, given.repeat, folder=given.folder, only=given.only))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
