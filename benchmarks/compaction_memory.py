"""What a full compaction of one file group holds in memory, by the size of the group and the number of its logs.

    python -m benchmarks.compaction_memory [GIGABYTES...] [--logs 4,16,64] [--memory 512MB] [--folder DIR]

Three quarters of the bytes are the base file, one quarter the logs, each of which updates keys over the whole range.
Wide rows carry random bytes, so that a file group of 8 GB is made in a minute; narrow ones are ten small columns. The
peak is the kernel's (VmHWM) of a fresh process, above what its imports took, so whatever allocators keep counts too.
The base file of one size is made once and linked into the table of every number of logs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import lakebed
from benchmarks.claims import Claims, report
from benchmarks.handmade import FILE_ID, KEY, TOKEN, HandmadeTable
from benchmarks.measure import Measured, measure
from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.v2 import footer_entries
from lakebed.model.instant import Action

MEMORY = 512 << 20
CHUNK_BYTES = 64 << 20
PAYLOAD = 2_000
WIDE = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("payload", pa.binary())])
NARROW = pa.schema([("id", pa.string()), ("ts", pa.int64()), *((f"n{i}", pa.int64()) for i in range(8))])
ROW_BYTES = {"wide": PAYLOAD + 40, "narrow": 76}
"""Bytes per stored row, about, after compression."""


@dataclass(frozen=True)
class Shape:
    """A file group to compact."""

    gigabytes: float
    logs: int
    rows: str = "wide"
    layout: str = "lsm_tree"

    @property
    def base_rows(self) -> int:
        return int(self.gigabytes * 0.75e9) // ROW_BYTES[self.rows]

    @property
    def log_rows(self) -> int:
        return int(self.gigabytes * 0.25e9) // ROW_BYTES[self.rows] // self.logs

    def __str__(self) -> str:
        return f"{self.gigabytes:g} GB, {self.logs} logs, {self.rows} rows, {self.layout}"


def rows_of(kind: str, numbers: np.ndarray, version: int) -> pa.Table:
    """Rows for some keys, which compress as little as measured data does."""
    count = len(numbers)
    rng = np.random.default_rng(int(numbers[0]) * 31 + version)
    keys = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")
    stamps = pa.array(np.full(count, version, np.int64))
    if kind == "wide":
        payload = pa.py_buffer(rng.bytes(count * PAYLOAD))
        ends = pa.py_buffer(np.arange(0, count * PAYLOAD + 1, PAYLOAD, dtype=np.int32))
        return pa.table([keys, stamps, pa.BinaryArray.from_buffers(pa.binary(), count, [None, ends, payload])], WIDE)
    return pa.table([keys, stamps, *(pa.array(rng.integers(0, 1 << 60, count)) for _ in range(8))], NARROW)


class StreamedTable(HandmadeTable):
    """A handmade table whose files are written a chunk at a time, for none of them need fit into memory."""

    def base_of(self, reader_context: Shape) -> Path:
        """The base file of a shape, keys 0, 2, 4, …"""
        requested_time = self._begin()
        name = f"{FILE_ID}_{TOKEN}_{requested_time}.parquet"
        numbers = np.arange(reader_context.base_rows, dtype=np.int64) * 2
        self._stream(
            self.root / name, self._chunks(reader_context, numbers, 0, requested_time, name), {}, sorted_rows=True
        )
        self._commit(requested_time, Action.COMMIT, [name])
        return self.root / name

    def linked_base(self, made: Path) -> None:
        """The base file of another table of the same shape, under the name it has there."""
        requested_time = self._begin()
        os.link(made, self.root / made.name)
        self._commit(requested_time, Action.COMMIT, [made.name])

    def log_of(self, reader_context: Shape, version: int) -> None:
        """A log of nine parts updates and one part new keys."""
        requested_time = self._begin()
        rng = np.random.default_rng(version)
        numbers = np.sort(rng.choice(reader_context.base_rows, reader_context.log_rows, replace=False)) * 2
        numbers[::10] += 1
        is_sorted = self.layout == "lsm_tree"
        if not is_sorted:
            rng.shuffle(numbers)
        name = f"{FILE_ID}_{TOKEN}_{requested_time}_1.log.parquet"
        entries = footer_entries(BlockKind.PARQUET_DATA, {Header.INSTANT_TIME: requested_time})
        chunks = self._chunks(reader_context, numbers, version, requested_time, FILE_ID)
        self._stream(self.root / name, chunks, entries, sorted_rows=is_sorted)
        self._commit(requested_time, Action.DELTA_COMMIT, [name])

    def _chunks(
        self, reader_context: Shape, numbers: np.ndarray, version: int, requested_time: str, file_name: str
    ) -> Iterator[pa.Table]:
        step = CHUNK_BYTES // ROW_BYTES[reader_context.rows]
        for first in range(0, len(numbers), step):
            rows = rows_of(reader_context.rows, numbers[first : first + step], version)
            yield self._stored(rows, requested_time, file_name, False)

    def _stream(self, path: Path, chunks: Iterator[pa.Table], entries: dict[str, str], *, sorted_rows: bool) -> None:
        schema = self._stored(self.schema.empty_table(), "", "", False).schema
        order = pq.SortingColumn.from_ordering(schema, [(KEY, "ascending")]) if sorted_rows else None
        texts = ["_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name", "ts"]
        with pq.ParquetWriter(
            path, schema, compression="zstd", sorting_columns=order, store_schema=False, use_dictionary=texts
        ) as sink:
            for chunk in chunks:
                sink.write_table(chunk, row_group_size=max(1, (16 << 20) // (chunk.nbytes // chunk.num_rows)))
            sink.add_key_value_metadata({**entries, **({"lakebed.sorted": "utf8"} if sorted_rows else {})})


def build(root: Path, reader_context: Shape, base: Path | None) -> Path:
    """The table of a shape; the path of its base file, which may be another's."""
    table = StreamedTable(root, NARROW if reader_context.rows == "narrow" else WIDE, layout=reader_context.layout)
    if base is None:
        base = table.base_of(reader_context)
    else:
        table.linked_base(base)
    for version in range(1, reader_context.logs + 1):
        table.log_of(reader_context, version)
    return base


def compact(root: str, memory: int) -> int:
    """The compaction; how many bytes the new base file has."""
    before = {path.name for path in Path(root).glob("*.parquet")}
    done = lakebed.open(root).services.compact("full", memory=memory)
    assert len(done) == 1, done
    made = [path for path in Path(root).glob("*.parquet") if path.name not in before]
    return sum(path.stat().st_size for path in made)


def check(root: Path, reader_context: Shape) -> None:
    """Every key once, ascending, and as many of the newest version as the last log has rows."""
    versions = lakebed.open(root).scan(columns=["id", "ts"]).to_arrow()
    assert len(versions["id"].unique()) == versions.num_rows >= reader_context.base_rows
    newest = pc.sum(pc.equal(versions["ts"], reader_context.logs)).as_py()
    assert newest == reader_context.log_rows, (newest, reader_context.log_rows)


def one(folder: Path, reader_context: Shape, base: Path | None, memory: int) -> tuple[Measured, int, Path]:
    """Make, compact, check; what was measured, the bytes before, and a base file to link."""
    root = folder / str(reader_context).replace(", ", "_").replace(" ", "")
    kept = build(root, reader_context, base)
    size = sum(path.stat().st_size for path in root.glob("*.parquet"))
    found = measure(compact, str(root), memory, repeat=1, cores=2)
    check(root, reader_context)
    for path in root.glob("*.parquet"):
        if path != kept:
            path.unlink()
    return found, size, kept


SIZES = (0.5, 2.0, 8.0)
LOGS = (4, 16, 64)


def run(
    sizes: tuple[float, ...] = SIZES, logs: tuple[int, ...] = LOGS, *, memory: int = MEMORY, folder: Path | None = None
) -> Claims:
    """Print the table; the claims: peaks in MB against the memory set."""
    least = min(sizes)
    shapes = [Shape(size, count) for size in sizes for count in logs]
    shapes += [Shape(least, count, rows="narrow") for count in logs] + [Shape(least, max(logs), layout="default")]
    table = Table(title=f"full compaction of one file group, {memory / 1e6:.0f} MB set", title_justify="left")
    for heading in ("group", "GB before", "GB after", "peak MB", "CPU s", "wall s"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    claims: Claims = []
    home = Path(tempfile.mkdtemp(prefix="lakebed-compaction-", dir=folder))
    try:
        base: Path | None = None
        before: Shape | None = None
        for reader_context in shapes:
            same = before is not None and (before.gigabytes, before.rows) == (
                reader_context.gigabytes,
                reader_context.rows,
            )
            if not same and base is not None:
                base.unlink()
            found, size, base = one(home, reader_context, base if same else None, memory)
            before = reader_context
            cells = (size / 1e9, found.result / 1e9, found.peak / 1e6, found.cpu, found.wall)
            table.add_row(str(reader_context), *(f"{value:.1f}" if value >= 10 else f"{value:.2f}" for value in cells))
            claims.append((f"peak MB above the imports: {reader_context}", found.peak / 1e6, memory / 1e6))
            print(f"{reader_context}: {found.peak / 1e6:.0f} MB, {found.wall:.1f} s", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    Console().print(table)
    return claims


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=float, nargs="*", default=SIZES)
    parser.add_argument("--logs", default="4,16,64")
    parser.add_argument("--memory", type=int, default=512, help="MB")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    counts = tuple(int(text) for text in given.logs.split(","))
    return report(run(tuple(given.sizes), counts, memory=given.memory << 20, folder=given.folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
