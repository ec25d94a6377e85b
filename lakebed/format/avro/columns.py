"""Avro data blocks decoded straight into Arrow columns: the loop is over fields, not over records.

    content   int32 version = 3 | int32 count | count × ( int32 length | Avro binary of one record )

A schema is turned once into a tree of readers. Each reader takes a cursor per record (`avro/cursor`), moves all of
them over its field and returns one Arrow array, of exactly the type `model.schema.avro_to_arrow` gives. A union with
null reads the records that have a value apart and spreads them out again; arrays and maps go round by round, one item
of every record that still has one. Columns that were not requested are skipped without being built.

Arrays so uneven that a round would serve a handful of records are left to the plain decoder of `avro/by_record`, whose
answer is the same.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.avro.by_record import decode_plain
from lakebed.format.avro.compile import compile_record
from lakebed.format.avro.cursor import Chunk, Ints, Records, Rows
from lakebed.format.avro.readers import RecordReader, UnevenItemsError

CONTENT_VERSION = 3
CHUNK_ROWS = 32 * 1024
CHUNK_BYTES = 16 * 1024 * 1024
_FIXED_PART = 8
_LENGTH = struct.Struct(">i")


def decode_avro_block(
    content: bytes, schema_json: str, file: str, offset: int, *, columns: Collection[str] | None = None
) -> pa.Table:
    """All records of an Avro block; `offset` is where the content starts in its file, for messages."""
    read = functools.partial(_slice, content)
    batches = avro_batches(read, len(content), schema_json, file, offset, columns=columns)
    return pa.Table.from_batches(batches, arrow_schema(schema_json, columns, file))


def avro_batches(
    read: Callable[[int, int], bytes],
    length: int,
    schema_json: str,
    file: str,
    offset: int,
    *,
    columns: Collection[str] | None = None,
    batch_rows: int = CHUNK_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The records of an Avro block of `length` bytes, batch by batch; `read(at, count)` reads inside the content.

    No more than a chunk of bytes and the longest record are in memory at once.
    """
    if length < _FIXED_PART:
        raise CorruptTable("an Avro block is too short for its own header", file=file, offset=offset)
    version, count = struct.unpack(">ii", read(0, _FIXED_PART))
    if version != CONTENT_VERSION:
        raise UnsupportedFormat(f"content version {version} of an Avro block is not readable", file=file, offset=offset)
    if not 0 <= count <= (length - _FIXED_PART) // _LENGTH.size:
        raise CorruptTable(f"an Avro block of {length} bytes claims {count} records", file=file, offset=offset + 4)
    data, start, at = b"", _FIXED_PART, 0  # `data` starts at byte `start` of the content, `at` is inside `data`
    seen = 0
    while seen < count:
        starts, ends = _frames(data, at, min(count - seen, batch_rows), file, offset + start)
        if len(starts):
            used = int(ends[-1])
            records = Records(memoryview(data)[at:used], starts - at, ends - at, file, offset + start + at)
            yield decode_records(records, schema_json, columns=columns)
            at, seen = used, seen + len(starts)
            continue
        rest = length - start - len(data)
        if not rest:
            raise CorruptTable(f"a block ends after {seen} of {count} records", file=file, offset=offset + start + at)
        left = data[at:]
        more = read(start + len(data), min(max(CHUNK_BYTES, len(left)), rest))
        data, start, at = left + more, start + at, 0
    if start + at != length:
        raise CorruptTable(f"bytes are left over after {count} records", file=file, offset=offset + start + at)


def decode_records(records: Records, schema_json: str, *, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """Some records of one schema as a batch of the wanted columns."""
    reader = _compiled_for(schema_json, records.file)
    schema = arrow_schema(schema_json, columns, records.file)
    wanted = None if columns is None else frozenset(columns)
    rows = Rows(Chunk(records.data, records.file, records.offset), records.starts.copy(), records.ends)
    try:
        arrays = reader.read_fields(rows, wanted)
    except UnevenItemsError:
        arrays = decode_plain(records, schema_json, schema)
    else:
        bad = rows.pos != rows.end
        if bad.any():
            rows.corrupt("a record is longer than its fields", bad)
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records.starts), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decode_values(
    values: Sequence[bytes], schema_json: str, file: str, offset: int, *, columns: Collection[str] | None = None
) -> pa.RecordBatch:
    """Records that come one by one, such as the values of an HFile."""
    ends = np.cumsum(np.fromiter(map(len, values), dtype=np.int64, count=len(values)), dtype=np.int64)
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1])) if len(values) else ends
    return decode_records(Records(b"".join(values), starts, ends, file, offset), schema_json, columns=columns)


def _frames(data: bytes, at: int, limit: int, file: str, offset: int) -> tuple[Ints, Ints]:
    """Where the records that are wholly in `data` start and end. The chain of lengths is the one loop over records."""
    starts: list[int] = []
    unpack, size = _LENGTH.unpack_from, len(data)
    append = starts.append
    for _ in range(limit):
        if at + 4 > size:
            break
        (length,) = unpack(data, at)
        if length < 0:
            raise CorruptTable(f"a record claims {length} bytes", file=file, offset=offset + at)
        start = at + 4
        if start + length > size:
            break
        append(start)
        at = start + length
    first_bytes = np.array(starts, dtype=np.int64)
    end = np.empty(len(starts), dtype=np.int64)
    if starts:
        end[:-1] = first_bytes[1:] - 4
        end[-1] = at
    return first_bytes, end


def arrow_schema(schema_json: str, columns: Collection[str] | None, file: str) -> pa.Schema:
    """The schema of what the decoders return: the wanted columns, in the order of the records."""
    schema = _compiled_for(schema_json, file).schema
    return schema if columns is None else pa.schema([field for field in schema if field.name in columns])


def _compiled_for(schema_json: str, file: str) -> RecordReader:
    try:
        return _compiled(schema_json)
    except (CorruptTable, UnsupportedFormat) as error:
        raise type(error)(error.what, file=file, hint=error.hint) from error


@functools.lru_cache(maxsize=64)
def _compiled(schema_json: str) -> RecordReader:
    """Every block of a table carries the whole schema; reading it once is enough."""
    return compile_record(schema_json)


def _slice(content: bytes, at: int, count: int) -> bytes:
    return content[at : at + count]
