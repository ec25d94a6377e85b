"""The current files of the history: `_version_`, manifests, and the files that they list.

    history/_version_                                        text: the number of the current manifest
    history/manifest_<N>                                     JSON: which files count, and how long each is
    history/<minRequested>_<maxRequested>_<level>.parquet    their content: `history_reader`

Only files that the manifest lists are read; others are leftovers of older versions. `_version_` and the manifest are
enough to find them, so the folder itself is not listed while both can be read: to read a small range of a long history,
every other file costs one line of the manifest, and nothing else. The reader that opens a file checks that it exists
and is as long as the manifest says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from lakebed.errors import CorruptTable
from lakebed.format.names import (
    VERSION_FILE,
    HistoryFileName,
    manifest_file_name,
    parse_history_file,
    parse_manifest_file,
)
from lakebed.format.timeline.files import ManifestEntry, parse_manifest, parse_version
from lakebed.paths import file_name
from lakebed.storage.storage import Storage
from lakebed.timeline.clock import INSTANT_LENGTH, comparable

_AFTER_ALL = "9" * INSTANT_LENGTH


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file that the manifest lists. Its name is parsed on first use: there may be very many files."""

    path: str
    size: int

    @property
    def file_name(self) -> str:
        return file_name(self.path)

    @property
    def name(self) -> HistoryFileName:
        found = parse_history_file(self.file_name)
        if found is None:
            raise CorruptTable("this is no name of a history file", file=self.path)
        return found

    def missing(self) -> CorruptTable:
        hint = "Restore the file from a backup; without it old completion times and archived commits are unknown."
        return CorruptTable("a history file that the manifest lists is missing", file=self.path, hint=hint)


def current_files(storage: Storage, folder: str) -> tuple[int | None, list[HistoryFile]]:
    """The version that `_version_` names, or the greatest if that is unreadable, and its files by first time.

    Other writers may have removed a manifest between the two reads: then `_version_` names another one now. If
    `_version_` still names a missing manifest, it is lost; using an older one would hide what was archived since.
    """
    lost: int | None = None
    while (number := _current_version(storage, folder)) is not None:
        path = f"{folder}/{manifest_file_name(number)}"
        try:
            entries = parse_manifest(storage.read(path), path)
        except FileNotFoundError:
            if number == lost:
                hint = f"Restore it from a copy of the table; {folder}/{VERSION_FILE} names it."
                raise CorruptTable("the history's manifest is missing", file=path, hint=hint) from None
            lost = number
        else:
            return number, files_of(entries, folder)
    return None, []


def files_of(entries: Iterable[ManifestEntry], folder: str) -> list[HistoryFile]:
    """Listed files by first requested time: their names begin with it."""
    ordered = sorted(entries, key=attrgetter("file_name"))
    return [HistoryFile(f"{folder}/{entry.file_name}", entry.file_len) for entry in ordered]


def files_within(files: Sequence[HistoryFile], low: str | None, high: str | None) -> list[HistoryFile]:
    """The files that can hold requested times within [low, high], by their names."""
    if low is None and high is None:
        return list(files)
    least, most = comparable(low or ""), comparable(high or _AFTER_ALL)
    found = []
    for file in files:
        first, last, _ = file_name(file.path).split("_")
        if comparable(first) <= most and comparable(last) >= least:
            found.append(file)
    return found


def _current_version(storage: Storage, folder: str) -> int | None:
    path = f"{folder}/{VERSION_FILE}"
    try:
        return parse_version(storage.read(path), path)
    except (CorruptTable, FileNotFoundError):
        manifests = (parse_manifest_file(info.name) for info in storage.list(folder))
        return max((number for number in manifests if number is not None), default=None)
