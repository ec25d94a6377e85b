"""Finds partitions and files by listing folders.

A folder is a partition when it holds a metafile (`.hoodie_partition_metadata`, or the same with the base format's
extension), at whatever depth: values with slashes and date paths make folders of uneven depth, one partition even
inside another. `.hoodie` at the top is not listed. Elsewhere a hidden folder may be scratch space of some engine with
a copy of a partition in it, or a partition whose value begins with a dot: the depth in its metafile decides.

One recursive listing per top-level folder finds both partitions and files; on object stores that is the cheapest way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from lakebed.errors import CorruptTable
from lakebed.format.names import HOODIE_DIR, PARTITION_METAFILE, is_partition_metafile
from lakebed.format.table_files import PartitionMetafile, parse_partition_metafile, partition_metafile_from
from lakebed.paths import folder_of
from lakebed.runner import LocalRunner, Runner
from lakebed.storage.storage import FileInfo, Storage


@dataclass(slots=True)
class StorageLister:
    """The listing of a table's folders, made once: a lister does not see later changes."""

    storage: Storage
    runner: Runner = field(default_factory=LocalRunner)
    _by_partition: dict[str, list[FileInfo]] | None = None

    names_are_committed: ClassVar[bool] = False

    def partitions(self) -> Sequence[str]:
        return list(self._listed())

    def files(self, partition_path: str) -> Sequence[FileInfo]:
        """The files of a partition; before the table has been listed, only this partition is."""
        if self._by_partition is None:
            return list(self.storage.list(partition_path))
        return self._by_partition.get(partition_path, [])

    def _listed(self) -> dict[str, list[FileInfo]]:
        if self._by_partition is None:
            self._by_partition = self._list_all()
        return self._by_partition

    def _list_all(self) -> dict[str, list[FileInfo]]:
        folders = [folder for folder in self.storage.list_folders("") if folder != HOODIE_DIR]
        by_folder: dict[str, list[FileInfo]] = {"": list(self.storage.list(""))}
        for files in self.runner.map(self._below, folders, label="list"):
            for info in files:
                by_folder.setdefault(folder_of(info.path), []).append(info)
        return {folder: files for folder, files in sorted(by_folder.items()) if self._is_partition(folder, files)}

    def _below(self, folder: str) -> list[FileInfo]:
        return list(self.storage.list(folder, recursive=True))

    def _is_partition(self, folder: str, files: Sequence[FileInfo]) -> bool:
        metafile = next((info for info in files if is_partition_metafile(info.name)), None)
        if metafile is None:
            return False
        return not is_hidden(folder) or is_marked(self.storage, folder, metafile)


def is_hidden(folder: str) -> bool:
    """Whether a folder, or one above it, begins with a dot."""
    return any(segment.startswith(".") for segment in folder.split("/"))


def is_marked(storage: Storage, folder: str, metafile: FileInfo) -> bool:
    """Whether the metafile of a folder was written for it: in a copy elsewhere the depth does not match."""
    try:
        return read_metafile(storage, metafile).depth == (len(folder.split("/")) if folder else 0)
    except CorruptTable:
        return False


def read_metafile(storage: Storage, info: FileInfo) -> PartitionMetafile:
    """A partition's metafile in any of its forms."""
    if info.name == PARTITION_METAFILE:
        return parse_partition_metafile(storage.read(info.path), info.path)
    try:
        with storage.open_input(info.path, info.size) as source:
            if info.name.endswith(".orc"):
                pairs: Iterable[tuple[bytes, bytes]] = (orc.ORCFile(source).metadata or {}).items()
            else:
                pairs = (pq.ParquetFile(source).metadata.metadata or {}).items()
            properties = {_text(key): _text(value) for key, value in pairs}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptTable(f"the partition metafile cannot be read: {error}", file=info.path) from error
    return partition_metafile_from(properties, info.path)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
