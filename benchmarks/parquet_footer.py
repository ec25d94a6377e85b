"""Our parser of Parquet footers beside Arrow's, on the footers of small logs: `python -m benchmarks.parquet_footer`.

Two upserts into 100 partitions leave 200 files of ten rows and 14 columns, as a stream of small commits does. Footers
are in memory; the two parsers take turns, best of five. `open` is what finding the block header takes: parse, and the
key-value entries. `statistics` is that and the bounds of every column, which pruning reads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from benchmarks.avro_codec import by_turns
from benchmarks.claims import Claims, report
from lakebed.format.parquet.footer import MAGIC, TRAILER, parse_footer
from lakebed.format.parquet.statistics import bounds

FILES = 200


def footers_of(files: int) -> list[bytes]:
    """The footers of so many small files of a table, as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = list(range(files // 2 * 10))
        columns = {f"c{n}": [float(n + m) for m in numbers] for n in range(7)}
        rows = pa.table({"id": [f"k{n}" for n in numbers], "p": [n % (files // 2) for n in numbers], **columns})
        table = lakebed.create(f"{folder}/t", rows, record_key="id", partition_by="p", ordering="c0", num_buckets=1)
        table.upsert(rows)
        table.upsert(rows)
        found = []
        for path in sorted(Path(folder, "t").rglob("*.parquet")):
            data = path.read_bytes()
            length = int.from_bytes(data[-TRAILER : -len(MAGIC)], "little")
            found.append(data[-TRAILER - length : -TRAILER])
    return found


def run(files: int = FILES) -> Claims:
    footers = footers_of(files)
    whole = [b"".join((MAGIC, data, len(data).to_bytes(4, "little"), MAGIC)) for data in footers]

    def arrow_open() -> None:
        for data in whole:
            _ = pq.read_metadata(pa.BufferReader(data)).metadata

    def own_open() -> None:
        for data in footers:
            _ = parse_footer(data, "f", 1 << 30).key_values

    def arrow_statistics() -> None:
        for data in whole:
            found = pq.read_metadata(pa.BufferReader(data))
            for group in range(found.num_row_groups):
                one = found.row_group(group)
                for column in range(found.num_columns):
                    stats = one.column(column).statistics
                    if stats is not None and stats.has_min_max:
                        _ = (stats.min, stats.max)

    def own_statistics() -> None:
        for data in footers:
            footer = parse_footer(data, "f", 1 << 30)
            for group in range(len(footer.row_groups)):
                for chunk in footer.columns(group):
                    _ = bounds(chunk, "f")

    arrow, own, arrow_all, own_all = by_turns(arrow_open, own_open, arrow_statistics, own_statistics)
    count, size = len(footers), sum(map(len, footers)) / len(footers)
    print(f"{count} footers of {size:,.0f} bytes; microseconds each, Arrow and ours:")
    for what, theirs, ours in (("open", arrow, own), ("statistics", arrow_all, own_all)):
        print(f"  {what:12} {theirs / count * 1e6:8.0f} {ours / count * 1e6:8.0f}")
    return [
        ("footer, open: ours / Arrow", own / arrow, 8),
        ("footer, statistics: ours / Arrow", own_all / arrow_all, 8),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=FILES)
    sys.exit(report(run(parser.parse_args().files)))
