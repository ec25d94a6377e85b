"""Markers: the name of every data file, on storage before the file itself is.

    .hoodie/.temp/<requested time>/<partition path>/<data file name>.marker.<CREATE|MERGE>     zero bytes, one per file
    .hoodie/.temp/<requested time>/MARKERS<n>     real Hudi's timeline server keeps many in one text file, a line each

The rollback of a failed write finds its files by the markers, whether or not the tasks that wrote them reported back. A
line that is cut off, as a crash leaves it, names no file yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakebed.errors import CorruptTable
from lakebed.format.names import (
    MarkerName,
    MarkerType,
    marker_dir,
    parse_base_file,
    parse_log_file,
    parse_marker_file,
    parse_server_markers_file,
)
from lakebed.storage.storage import Storage, checked_file, folders_below, joined


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """One announced data file."""

    partition_path: str
    data_file: str
    io_type: MarkerType

    @property
    def path(self) -> str:
        """The data file, relative to the table."""
        return joined(self.partition_path, self.data_file)


def begin_of(data_file: str) -> str | None:
    """The requested time in a data file's name; None for anything that is no data file."""
    name = parse_base_file(data_file) or parse_log_file(data_file)
    return name.requested_time if name else None


def file_id_of(data_file: str) -> str | None:
    """The file group in a data file's name."""
    name = parse_base_file(data_file) or parse_log_file(data_file)
    return name.file_id if name else None


def create_marker(
    storage: Storage, requested_time: str, partition_path: str, data_file: str, io_type: MarkerType = MarkerType.CREATE
) -> str:
    """Announce a data file; to be called before the file is created. Log files are CREATE as well."""
    path = f"{marker_dir(requested_time, partition_path)}/{MarkerName(data_file, io_type).render()}"
    storage.put(path, b"")
    return path


def list_markers(storage: Storage, requested_time: str) -> tuple[Marker, ...]:
    """All announced data files of a requested time, in either form, each once."""
    return tuple(sorted(set(_markers(storage, requested_time))))


def delete_markers(storage: Storage, requested_time: str) -> None:
    """Remove everything below the marker folder of a requested time."""
    storage.delete([info.path for info in storage.list(marker_dir(requested_time), recursive=True)])


def delete_empty_folders(storage: Storage, requested_time: str) -> None:
    """Remove what a crash between a marker and its folder left on a disk; elsewhere folders are only names."""
    storage.delete([f"{folder}/_" for folder in folders_below(storage, marker_dir(requested_time))])


def _markers(storage: Storage, requested_time: str) -> Iterator[Marker]:
    folder = marker_dir(requested_time)
    for info in storage.list(folder, recursive=True):
        relative = info.path.removeprefix(f"{folder}/")
        if parse_server_markers_file(relative) is None:
            yield from _parsed(relative)
            continue
        try:
            text = storage.read(info.path).decode("utf-8", "replace")
        except FileNotFoundError:
            continue
        for line in text.splitlines():
            yield from _parsed(line.strip())


def _parsed(path: str) -> Iterator[Marker]:
    partition_path, _, name = path.rpartition("/")
    marker = parse_marker_file(name)
    if marker is None:
        return
    found = Marker(partition_path, marker.data_file, marker.io_type)
    try:
        checked_file(found.path)
    except CorruptTable:
        return  # a name that leaves the table is nobody's data file
    yield found
