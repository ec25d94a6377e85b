"""The files of a table as the driver saw them when a write began, for its tasks.

Without it every task would list the whole table and read the reports of all commits. The driver has already checked
every file against its commit, so tasks read no commit reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lakebed.storage.storage import FileInfo
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

MOST_FILES = 20_000
"""Up to this many files are sent to tasks with their code; for larger tables tasks list what they need themselves."""


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
    """The files that exist now; None when they are too many to send to tasks. `CorruptTable` when a file is lost."""
    view = FileSystemView.of(snapshot)
    found: dict[str, tuple[FileInfo, ...]] = {}
    count = 0
    for path in view.partitions():
        view.slices(path)  # raises if a file that a slice needs is gone; without it tasks would not notice
        files = (file for group in view.file_groups(path) for file_slice in group.slices for file in file_slice.files)
        found[path] = tuple(FileInfo(file.path, file.size, 0) for file in files)
        count += len(found[path])
        if count > MOST_FILES:
            return None
    return KnownFiles(found)
