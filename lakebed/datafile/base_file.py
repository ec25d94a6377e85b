"""Opens a base file: its magic bytes choose the reader, its name serves only for error messages.

HFile base files belong to the metadata table and are read by key, not as columns; they are not opened here.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakebed.datafile.base_file_formats import READ_BUFFER, OpenOptions, format_of, formats_for
from lakebed.datafile.parquet_metadata import Footers
from lakebed.datafile.source import BaseFileSource, ReadCounters, arrow_errors
from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.model.files import BaseFile
from lakebed.model.schema import RECORD_KEY
from lakebed.storage.storage import Storage


def open_base_file(
    storage: Storage,
    base_file: BaseFile | str,
    *,
    key_column: str = RECORD_KEY,
    read_buffer: int = READ_BUFFER,
    counters: ReadCounters | None = None,
    encoded: Collection[str] = (),
    footers: Footers | None = None,
) -> BaseFileSource:
    """The base file as a source of batches. `FileNotFoundError` when it is gone, `CorruptTable` when it is damaged."""
    path, size = (base_file, None) if isinstance(base_file, str) else (base_file.path, base_file.size)
    options = OpenOptions(key_column, read_buffer, counters, encoded, footers)
    return open_source(storage.open_input(path, size), path, options)


def open_source(file: pa.NativeFile, label: str, options: OpenOptions | None = None) -> BaseFileSource:
    """An open file as a source; its first bytes decide the format."""
    with arrow_errors(label):
        file.seek(0)
        head = file.read(16)
    extension = label.rpartition(".")[2]
    for one in formats_for(extension):
        if one.open is not None and one.reads(head, extension):
            return one.open(file, label, options or OpenOptions())
    if head.startswith(b"PARE"):
        raise UnsupportedFormat("the Parquet file is encrypted", file=label)
    named = format_of(extension)
    if named is not None and named.open is not None:
        raise CorruptTable(f"the file does not begin as a file of its kind ({extension})", file=label, offset=0)
    raise UnsupportedFormat(f"base files of the format {extension!r} are not read as columns", file=label)
