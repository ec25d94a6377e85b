"""Bytes instead of seconds: what each compaction strategy writes over a stream of upserts, and what sorting saves.

    python -m benchmarks.services_bytes [--rows N] [--upserts N] [--folder DIR]

The stream upserts one percent of a table at a time, nine parts updates, and compacts after every write whatever the
strategy says is due. Every data file that ever was written is counted once, over the bytes that the upserts brought
in: the logs of the same stream without any compaction.

    full        a full compaction after every fifth upsert
    log + full  a log compaction after every fifth upsert, a full one after every twentieth
    hybrid      the hybrid strategy after every upsert, with its defaults

Sorting is shown on events of users, fifteen each, arriving by time: sorted by key, the rows of one user lie together.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import lakebed
from benchmarks.claims import Claims, report
from benchmarks.orders import SCHEMA, base, orders
from benchmarks.services import SHAPE, data_files
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.parquet_writer import ParquetEncoder

STREAM_ROWS, STREAM_UPSERTS = 400_000, 40
PER_USER = 15
EVENTS = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("user", pa.string()),
        ("country", pa.string()),
        ("device", pa.string()),
        ("page", pa.string()),
        ("amount", pa.int64()),
    ]
)
Due = Callable[[int], str | None]
STRATEGIES: dict[str, Due] = {
    "none": lambda number: None,
    "full": lambda number: "full" if number % 5 == 0 else None,
    "log + full": lambda number: "full" if number % 20 == 0 else "log" if number % 5 == 0 else None,
    "hybrid": lambda number: "hybrid",
}


def stream(root: Path, rows: int, upserts: int, due: Due) -> tuple[int, int]:
    """Bytes that writes and compactions wrote after the first filling, and the log files left."""
    table = lakebed.create(root, SCHEMA, **SHAPE)
    table.bulk_insert(base(rows))
    known = {path: path.stat().st_size for path in data_files(root)}
    filled = sum(known.values())
    count = rows // 100
    for number in range(1, upserts + 1):
        rng = np.random.default_rng(number)
        old = rng.choice(rows, count * 9 // 10, replace=False)
        new = rows + number * count + np.arange(count // 10)
        table.upsert(orders(np.concatenate([old, new]), number), options={"hoodie.clean.automatic": "false"})
        strategy = due(number)
        if strategy is not None:
            table.services.compact(strategy)
        known.update((path, path.stat().st_size) for path in data_files(root) - known.keys())
    return sum(known.values()) - filled, len([path for path in data_files(root) if ".log." in path.name])


def amplification(home: Path, rows: int, upserts: int) -> Claims:
    """Bytes written per byte ingested, by strategy."""
    table = Table(title=f"{upserts} upserts of 1 % of {rows:,} rows", title_justify="left")
    for heading in ("strategy", "MB written", "per byte ingested"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    ratios: dict[str, float] = {}
    ingested = 0
    for name, due in STRATEGIES.items():
        written, _ = stream(home / name.replace(" ", ""), rows, upserts, due)
        ingested = ingested or written
        ratios[name] = written / ingested
        table.add_row(name, f"{written / 1e6:.1f}", f"{ratios[name]:.2f}")
    Console().print(table)
    return [
        ("bytes written per byte ingested: log + full / full only", ratios["log + full"] / ratios["full"], 1.0),
        ("bytes written per byte ingested: hybrid / full only", ratios["hybrid"] / ratios["full"], 1.0),
    ]


def events(users: int) -> pa.Table:
    """Fifteen events of every user by time of arrival, which spreads the users over the whole file."""
    rng = np.random.default_rng(7)
    count = users * PER_USER
    who = rng.permutation(np.repeat(np.arange(users), PER_USER))
    rank = np.empty(count, np.int64)
    by_user = who.argsort(kind="stable")
    rank[by_user] = np.tile(np.arange(PER_USER), users)
    mixed = (who.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    names = pa.array([f"user-{number:016x}" for number in mixed.tolist()])
    traits = {name: rng.integers(0, most, users)[who] for name, most in (("country", 60), ("device", 2_000))}
    return pa.table(
        [
            pc.binary_join_element_wise(names, pc.utf8_lpad(pa.array(rank).cast(pa.string()), 2, "0"), "-"),
            pa.array(1_700_000_000_000 + np.arange(count) * 37),
            names,
            pc.binary_join_element_wise("country", pa.array(traits["country"]).cast(pa.string()), "-"),
            pc.binary_join_element_wise("device", pa.array(traits["device"]).cast(pa.string()), "-"),
            pc.binary_join_element_wise("/page", pa.array(rng.integers(0, 5_000, count)).cast(pa.string()), "/"),
            pa.array(rng.integers(0, 10_000, count)),
        ],
        schema=EVENTS,
    )


def sorting(home: Path, rows: int) -> Claims:
    """The rows of every base file twice through the same encoder: by key, as lakebed keeps them, and as they came."""
    root = home / "events"
    lakebed.create(root, EVENTS, record_key="id", ordering="ts", num_buckets=4).bulk_insert(events(rows // PER_USER))
    by_key = as_came = 0
    for file in data_files(root):
        stored = pq.read_table(file)
        by_key += encoded_size(stored)
        as_came += encoded_size(stored.sort_by("ts"))
    print(f"by key {by_key / 1e6:.1f} MB, as they came {as_came / 1e6:.1f} MB: {1 - by_key / as_came:.0%} saved")
    return [("15 rows per user: bytes sorted by key / as they came", by_key / as_came, 0.77)]


def encoded_size(rows: pa.Table) -> int:
    """The bytes of a base file of these rows, in this order."""
    sink = pa.BufferOutputStream()
    options = WriteOptions()
    encoder = ParquetEncoder(
        sink.write,
        rows.schema.remove_metadata(),
        options,
        row_group_rows=options.row_group_rows,
        sorted_by=None,
        label="",
    )
    for batch in rows.replace_schema_metadata(None).combine_chunks().to_batches():
        encoder.write(batch)
    encoder.close({})
    return int(sink.getvalue().size)


def run(rows: int = STREAM_ROWS, upserts: int = STREAM_UPSERTS, *, folder: Path | None = None) -> Claims:
    """(what, measured, target) of every claim; smaller is better."""
    home = Path(tempfile.mkdtemp(prefix="lakebed-services-", dir=folder))
    try:
        return [*amplification(home, rows, upserts), *sorting(home, rows * 3)]
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=STREAM_ROWS)
    parser.add_argument("--upserts", type=int, default=STREAM_UPSERTS)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    return report(run(given.rows, given.upserts, folder=given.folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
