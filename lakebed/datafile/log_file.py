"""One log file: its blocks, and a block's rows as Arrow batches. Magic bytes decide the format, the name does not.

    "#HUDI#"   version 1: a sequence of blocks (`format.log_v1`)
    "PAR1"     version 2: the file is one block, its header in the footer (`format.log_v2`), under either naming
    *.hfile    version 2 of the metadata table: the header in the HFile's file info
    nothing    an empty file has no blocks

Parquet content streams in place, inside a version 1 block as well: the reader sees a window of the file. Avro content
streams in chunks. Deletes come in one piece, HFile blocks too.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa

from lakebed.datafile.log_scan import ScannedLog
from lakebed.datafile.parquet_metadata import Footers
from lakebed.datafile.parquet_source import ParquetSource
from lakebed.datafile.source import DEFAULT_BATCH_ROWS, ReadCounters
from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.avro.columns import CHUNK_ROWS, avro_batches
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.log.block import FORMAT_V1, BlockKind, LogBlock
from lakebed.format.log.block_content import decode_delete_block, decode_hfile_block, normalize_deletes
from lakebed.format.log.v1 import MAGIC, scan_blocks
from lakebed.format.log.v2 import PARQUET_MAGIC, block_from_footer
from lakebed.format.names import parse_log_file
from lakebed.model.files import FileGroupId, LogFile
from lakebed.model.key_range import KeyRange
from lakebed.storage.storage import Storage

_HEAD = 32 * 1024
_HFILE = "hfile"


def open_log_file(storage: Storage, log: LogFile | str, footers: Footers | None = None) -> ScannedLog:
    """The file's blocks, from its headers alone; a path is taken apart by the grammar of names."""
    if isinstance(log, str):
        log = _log_file(storage, log)
    return ScannedLog(log, tuple(_blocks(storage, log, footers)))


def _log_file(storage: Storage, path: str) -> LogFile:
    folder, _, name = path.rpartition("/")
    parsed = parse_log_file(name)
    info = storage.stat(path)
    if parsed is None:
        raise InvalidRequest(f"{name!r} is not the name of a log file")
    if info is None:
        raise FileNotFoundError(path)
    return LogFile(
        path=path,
        size=info.size,
        file_group=FileGroupId(folder, parsed.file_id),
        requested_time=parsed.requested_time,
        version=parsed.version,
        write_token=parsed.write_token or "",
        kind=parsed.kind,
        native=parsed.native,
    )


def _blocks(storage: Storage, log: LogFile, footers: Footers | None) -> Iterator[LogBlock]:
    if not log.size:
        return
    head = storage.read_ranges(log.path, [(0, min(log.size, _HEAD))])[0]
    if head.startswith(PARQUET_MAGIC):
        with _whole_parquet(storage, log.path, log.size, footers=footers) as source:
            yield block_from_footer(source.footer, log)
    elif head.startswith(MAGIC) or not log.native:
        yield from scan_blocks(_reader(storage, log.path, 0, head), log.size, log.path)
    elif log.name.endswith(f".{_HFILE}"):
        hfile = HFileReader(_reader(storage, log.path, 0, head), log.size, log.path)
        info = {_text(key): _text(value) for key, value in hfile.file_info.items()}
        yield block_from_footer(info, log)
    else:
        extension = log.name.rpartition(".")[2]
        if extension == "parquet":
            raise CorruptTable("the file does not begin as a Parquet file", file=log.path, offset=0)
        raise UnsupportedFormat(f"native logs of the format {extension!r} are not readable", file=log.path)


def read_block(
    storage: Storage,
    block: LogBlock,
    *,
    columns: Sequence[str] | None = None,
    ordering: Sequence[pa.Field] = (),
    batch_rows: int = DEFAULT_BATCH_ROWS,
    key_range: KeyRange | None = None,
    counters: ReadCounters | None = None,
    encoded: Collection[str] = (),
    footers: Footers | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a block.

    Data and change rows come with the wanted columns that the block has, in the wanted order; `key_range` may leave out
    rows of Parquet content, the rest comes whole. Deletes come as the key and the `ordering` columns. Commands and
    corrupt byte ranges have no rows.
    """
    if block.kind in (BlockKind.COMMAND, BlockKind.CORRUPT):
        return
    if has_parquet_content(block):
        with parquet_source(storage, block, counters=counters, encoded=encoded, footers=footers) as source:
            if block.kind is BlockKind.DELETE:
                for batch in source.batches(batch_rows=batch_rows):
                    yield normalize_deletes(batch, ordering, block.file)
            else:
                yield from source.batches(columns, batch_rows=batch_rows, key_range=key_range)
    elif block.kind is BlockKind.DELETE:
        content = _content(storage, block)(0, block.content_length)
        deletes = decode_delete_block(content, ordering, block.file, block.content_offset)
        yield from deletes.to_batches(max_chunksize=batch_rows)
    else:
        for batch in _record_batches(storage, block, columns, batch_rows):
            if counters is not None:
                counters.rows_decoded += batch.num_rows
                counters.rows += batch.num_rows
            yield batch if columns is None else batch.select([name for name in columns if name in batch.schema.names])


def _record_batches(
    storage: Storage, block: LogBlock, columns: Sequence[str] | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Rows stored as Avro, in frames or in an HFile."""
    schema = block.schema_json
    if schema is None:
        raise CorruptTable(f"a {block.kind.name} block has no schema", file=block.file, offset=block.offset)
    read, where = _content(storage, block), (block.file, block.content_offset)
    if block.kind is BlockKind.HFILE_DATA:
        records = decode_hfile_block(hfile_reader(storage, block), schema, *where, columns=columns)
        for start in range(0, records.num_rows, batch_rows):
            yield records.slice(start, batch_rows)
    else:
        rows = min(batch_rows, CHUNK_ROWS)
        yield from avro_batches(read, block.content_length, schema, *where, columns=columns, batch_rows=rows)


def has_parquet_content(block: LogBlock) -> bool:
    """Whether `parquet_source` opens the block: Parquet data in version 1, everything but HFiles in version 2."""
    if block.version == FORMAT_V1:
        return block.kind is BlockKind.PARQUET_DATA
    return block.kind is not BlockKind.HFILE_DATA


def parquet_source(
    storage: Storage,
    block: LogBlock,
    *,
    counters: ReadCounters | None = None,
    encoded: Collection[str] = (),
    footers: Footers | None = None,
) -> ParquetSource:
    """A block's Parquet content as a source of its own, with sorted mark, key range and pruning."""
    if block.version != FORMAT_V1:
        return _whole_parquet(storage, block.file, block.content_length, counters, encoded, footers)
    label = f"{block.file}[{block.content_offset}:+{block.content_length}]"
    part = FilePart(storage.open_input(block.file), block.content_offset, block.content_length)
    return ParquetSource(pa.PythonFile(part, mode="r"), label, counters=counters, encoded=encoded, footers=footers)


def hfile_reader(storage: Storage, block: LogBlock) -> HFileReader:
    """An HFile block for look-ups by key; the metadata table decodes the values itself."""
    return HFileReader(_content(storage, block), block.content_length, block.file)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _whole_parquet(
    storage: Storage,
    path: str,
    size: int,
    counters: ReadCounters | None = None,
    encoded: Collection[str] = (),
    footers: Footers | None = None,
) -> ParquetSource:
    file = storage.open_input(path, size)
    return ParquetSource(file, path, counters=counters, encoded=encoded, footers=footers)


def _content(storage: Storage, block: LogBlock) -> Callable[[int, int], bytes]:
    return _reader(storage, block.file, block.content_offset)


def _reader(storage: Storage, path: str, start: int, head: bytes = b"") -> Callable[[int, int], bytes]:
    """Ranged reads relative to `start`; what `head` holds already is not fetched again."""

    def read(offset: int, length: int) -> bytes:
        if offset + length <= len(head):
            return head[offset : offset + length]
        return storage.read_ranges(path, [(start + offset, length)])[0]

    return read


class FilePart(io.RawIOBase):
    """A byte range of an open file as a file, so that Parquet inside a log block is read without copying it out."""

    def __init__(self, file: pa.NativeFile, start: int, length: int) -> None:
        self._file = file
        self._start = start
        self._length = length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._length - self._at)
        size = left if size < 0 else min(size, left)
        self._file.seek(self._start + self._at)
        data: bytes = self._file.read(size)
        self._at += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
