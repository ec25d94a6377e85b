"""What a format of base files is: how its files begin, and how one is opened as a source of batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakebed.config.base_file_formats import BASE_FILE_FORMATS
from lakebed.datafile.parquet_metadata import Footers
from lakebed.datafile.source import BaseFileSource, ReadCounters
from lakebed.model.schema import RECORD_KEY

READ_BUFFER = 128 * 1024


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What the opener of a file knows and wants; a format uses what it can."""

    key_column: str = RECORD_KEY
    read_buffer: int = READ_BUFFER
    counters: ReadCounters | None = None
    encoded: Collection[str] = ()
    """Text columns that may come dictionary-encoded."""
    footers: Footers | None = None
    """Parquet footers that were read before, by path."""


@dataclass(frozen=True, slots=True)
class BaseFileFormat:
    """One format. Files end in `name` in lower case and begin with `magic`; `open` gets the file, its path and how.

    Without a magic only the file extension decides.
    """

    name: str
    magic: bytes = b""
    open: Callable[[pa.NativeFile, str, OpenOptions], BaseFileSource] | None = None
    """None where files are recognised by name and not read as columns."""

    def reads(self, head: bytes, extension: str) -> bool:
        """Whether a file that begins and ends so is one of this format."""
        return head.startswith(self.magic) if self.magic else extension == self.name.lower()


HFILE = BaseFileFormat("HFILE")
LANCE = BaseFileFormat("LANCE")


def register_base_file_format(file_format: BaseFileFormat) -> None:
    """Register a format of base files in this process, under its name."""
    BASE_FILE_FORMATS.register(file_format.name, file_format)


def format_of(extension: str) -> BaseFileFormat | None:
    """The format that the ending of a file names."""
    return BASE_FILE_FORMATS.find(extension, BaseFileFormat)


def formats_for(extension: str) -> Iterator[BaseFileFormat]:
    """The formats that a file may have: the one that its ending names, and after it all others."""
    for name in (extension, *BASE_FILE_FORMATS.names_here):
        found = format_of(name)
        if found is not None:
            yield found
