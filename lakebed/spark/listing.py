"""The files of a table as the driver saw them when a write began, for its tasks.

Without it every task would list the whole table and read the reports of all commits. Commits were asked about every
file already, so tasks ask nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lakebed.storage.storage import FileInfo
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

MOST_FILES = 20_000
"""Tasks get this list with their program; of larger tables they list for themselves what they need."""


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """A `FileLister` over a list: partitions and their committed files, retired file groups included."""

    by_partition: dict[str, tuple[FileInfo, ...]] = field(default_factory=dict)

    names_are_committed: ClassVar[bool] = True

    def partitions(self) -> Sequence[str]:
        return list(self.by_partition)

    def files(self, partition_path: str) -> Sequence[FileInfo]:
        return self.by_partition.get(partition_path, ())


def known_files(snapshot: MetaClient) -> KnownFiles | None:
    """What is there now; None when that is too much to send along. `CorruptTable` when a file is lost."""
    view = FileSystemView.of(snapshot)
    found: dict[str, tuple[FileInfo, ...]] = {}
    count = 0
    for path in view.partitions():
        view.slices(path)  # a file that a slice needs and that is gone must not look as if it had never been
        files = (file for group in view.file_groups(path) for file_slice in group.slices for file in file_slice.files)
        found[path] = tuple(FileInfo(file.path, file.size, 0) for file in files)
        count += len(found[path])
        if count > MOST_FILES:
            return None
    return KnownFiles(found)
