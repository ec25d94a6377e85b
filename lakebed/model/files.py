"""The files of a table as values: base file, log file, file slice, file group.

    file group  =  all files of one file id in one partition
      slice     =  at most one base file (level 1) and the log files (level 0) that came after it

Paths are relative to the table's base path, with `/`. Nothing here touches storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakebed.model.instant import comparable
from lakebed.paths import file_name


class LogKind(StrEnum):
    """What a log file holds by its *name* (the middle extension of a native log)."""

    LOG = "log"
    DELETES = "deletes"
    CDC = "cdc"


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """A file group's identity: the same file id may occur in two partitions."""

    partition_path: str
    file_id: str

    def __str__(self) -> str:
        return f"{self.partition_path}/{self.file_id}" if self.partition_path else self.file_id


@dataclass(frozen=True, slots=True)
class BaseFile:
    """The one sorted level-1 file of a slice. `instant_time` is the requested time of the action that wrote it."""

    path: str
    size: int
    file_group: FileGroupId
    requested_time: str
    write_token: str

    @property
    def name(self) -> str:
        return file_name(self.path)

    @property
    def extension(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class LogFile:
    """A level-0 file. `native` is the naming (visible, one Parquet file); the content is decided by magic bytes."""

    path: str
    size: int
    file_group: FileGroupId
    requested_time: str
    version: int
    write_token: str
    kind: LogKind
    native: bool

    @property
    def name(self) -> str:
        return file_name(self.path)

    @property
    def order(self) -> tuple[str, int, str, str]:
        """Sort key of the file in its slice: by requested time, version, token and kind (data before its deletes)."""
        return (comparable(self.requested_time), self.version, self.write_token, _KIND_ORDER[self.kind])


_KIND_ORDER = {LogKind.LOG: "0", LogKind.DELETES: "1", LogKind.CDC: "2"}


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file, or none yet, and the logs on top, oldest first."""

    file_group: FileGroupId
    base_instant_time: str
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...] = ()

    @property
    def size(self) -> int:
        return (self.base_file.size if self.base_file else 0) + sum(log.size for log in self.log_files)

    @property
    def files(self) -> tuple[BaseFile | LogFile, ...]:
        """All files, the base file first."""
        return (self.base_file, *self.log_files) if self.base_file is not None else self.log_files

    @property
    def is_empty(self) -> bool:
        return self.base_file is None and not self.log_files


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All slices of one file id, oldest first. `replaced_at` is the completion time of the replacing commit."""

    id: FileGroupId
    slices: tuple[FileSlice, ...]
    replaced_at: str | None = None
