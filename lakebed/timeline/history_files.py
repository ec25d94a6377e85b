"""The current files of the history: `_version_`, manifests, and the files that they list.

    history/_version_                                text: the number of the current manifest
    history/manifest_<N>                             JSON: which files count, and how long each is
    history/<minBegin>_<maxBegin>_<level>.parquet    what they hold: `history_reader`

Only files that the manifest lists are read; others are left-overs of older versions. Two small files say all of that,
so the folder itself is not listed while they are in order: a look into a small range of a long history then costs a
line of the manifest for every other file, and nothing else. Whether a file is there and as long as the manifest says is
found out by whoever opens it.
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

_BEHIND_ALL = "9" * INSTANT_LENGTH


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file that the manifest lists. Its name is taken apart when it is asked for: there may be very many files."""

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
    """The version that `_version_` names, without a readable one the greatest there is, and its files by first time.

    Writers that went on may have swept a manifest up between our two looks: then `_version_` names another one by now.
    A manifest that is named still and not there is lost, and an older one would hide what was archived since.
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
    """The files that can hold begins within [low, high], by their names."""
    if low is None and high is None:
        return list(files)
    least, most = comparable(low or ""), comparable(high or _BEHIND_ALL)
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
