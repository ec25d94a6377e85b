"""The Avro codec by columns beside fastavro by records: `python -m benchmarks.avro_codec [--rows 100000]`.

Ten columns as a log block of a table has them: text, whole numbers, doubles, a flag, a date, a timestamp, a decimal, a
list of text, and nulls in half of them. Both sides write and read the same bytes, which is checked first; each is
measured by turns with the other, best of five. fastavro has the easier task: its rows are ready Python dictionaries
with dates and times as numbers, and what it reads stays Python objects.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import io
import json
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader, schemaless_writer

from benchmarks.claims import Claims, report
from lakebed.format.avro.by_record import bare_schema
from lakebed.format.avro.columns import CONTENT_VERSION, decode_avro_block
from lakebed.format.avro.writer import encode_frames_of
from lakebed.model.schema import table_avro

ROWS = 100_000
_LENGTH = struct.Struct(">i")


def batch_of(rows: int) -> pa.RecordBatch:
    rng = np.random.default_rng(11)
    numbers = rng.integers(0, 1 << 40, rows)
    gaps = rng.random(rows) < 0.2
    first = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
    cents = [decimal.Decimal(int(n) % 10_000_000).scaleb(-2) for n in numbers]
    return pa.record_batch(
        {
            "_hoodie_record_key": pa.array([f"order-{n:012d}" for n in numbers.tolist()]),
            "_hoodie_partition_path": pa.array([f"day={n % 30:02d}" for n in numbers.tolist()]),
            "id": pa.array(numbers),
            "quantity": pa.array((numbers % 100).astype(np.int32), mask=gaps),
            "price": pa.array(rng.random(rows) * 1000, mask=gaps),
            "paid": pa.array(rng.random(rows) < 0.5),
            "day": pa.array((numbers % 20_000).astype(np.int32), pa.int32()).cast(pa.date32()),
            "at": pa.array([first + datetime.timedelta(seconds=int(n) % 10**6) for n in numbers]).cast(
                pa.timestamp("us", "UTC")
            ),
            "total": pa.array(cents, pa.decimal128(12, 2)),
            "tags": pa.array([[f"t{n % 7}", f"u{n % 11}"] if n % 3 else None for n in numbers.tolist()]),
        }
    )


def plain_rows(table: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows for fastavro, dates and times as numbers."""
    numbers = {"day": pa.int32(), "at": pa.int64()}
    return table.cast(pa.schema([one.with_type(numbers.get(one.name, one.type)) for one in table.schema])).to_pylist()


def by_records(parsed: Any, rows: Sequence[dict[str, Any]]) -> bytes:
    parts = [struct.pack(">ii", CONTENT_VERSION, len(rows))]
    for row in rows:
        out = io.BytesIO()
        schemaless_writer(out, parsed, row)
        record = out.getvalue()
        parts += (_LENGTH.pack(len(record)), record)
    return b"".join(parts)


def records_of(parsed: Any, content: bytes) -> list[Any]:
    stream, found = io.BytesIO(content), []
    _, count = struct.unpack(">ii", stream.read(8))
    for _ in range(count):
        stream.seek(4, io.SEEK_CUR)
        found.append(schemaless_reader(stream, parsed))
    return found


def by_turns(*works: Callable[[], object], repeat: int = 5) -> list[float]:
    """The best CPU seconds of each, all measured in every round."""
    best = [float("inf")] * len(works)
    for _ in range(repeat):
        for number, work in enumerate(works):
            begun = time.process_time()
            work()
            best[number] = min(best[number], time.process_time() - begun)
    return best


def run(rows: int = ROWS) -> Claims:
    batch = batch_of(rows)
    text = json.dumps(table_avro(batch.schema, "orders"))
    parsed = bare_schema(json.loads(text))
    records = plain_rows(batch)
    content = by_records(parsed, records)
    head = struct.pack(">ii", CONTENT_VERSION, rows)
    assert head + bytes(encode_frames_of(batch, text)) == content
    assert plain_rows(decode_avro_block(content, text, "block", 0)) == records_of(parsed, content)
    columns, plain = by_turns(lambda: encode_frames_of(batch, text), lambda: by_records(parsed, records))
    reading, reading_plain = by_turns(
        lambda: decode_avro_block(content, text, "block", 0), lambda: records_of(parsed, content)
    )
    for what, ours, theirs in (("encode", columns, plain), ("decode", reading, reading_plain)):
        print(f"{what}: {rows / ours:,.0f} rows/s by columns, {rows / theirs:,.0f} by fastavro, {theirs / ours:.1f} x")
    return [
        ("Avro block, encode: columns / fastavro", columns / plain, 0.1),
        ("Avro block, decode: columns / fastavro", reading / reading_plain, 0.15),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    sys.exit(report(run(parser.parse_args().rows)))
