"""Files against timeline: what commits name is there as it was written, nothing else is, and partitions are marked.

A missing file is an error if the current state needs it, and a warning if an older state does that no clean has given
up. A file that no commit names does not affect readers that ask the timeline, but it takes space, and a later archiving
may make it count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from lakebed.config.read_options import ReadOptions
from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.names import (
    HOODIE_DIR,
    METADATA_DIR,
    PARTITION_METAFILE,
    is_partition_metafile,
    parse_base_file,
    parse_log_file,
)
from lakebed.model.actions import CleanMetadata, CleanPlan
from lakebed.model.files import LogFile
from lakebed.model.finding import Finding, Severity
from lakebed.model.instant import Action
from lakebed.paths import file_name, folder_of
from lakebed.read.plan import choose_lister
from lakebed.storage.storage import FileInfo, joined
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.committed import TimelineCommits
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.partitions import is_hidden, is_marked, read_metafile
from lakebed.view.slicing import group_files

NAMED_FILES = "committed files are there"
ORPHANS = "every data file belongs to a commit"
PARTITIONS = "partitions are marked"
METADATA = "metadata table agrees with the folders"

_RESTORE = "Bring the file back from a copy, or roll the table back to a savepoint."
_DELETE = "Delete the file: no reader counts it."


@dataclass(frozen=True, slots=True)
class Listing:
    """All files outside `.hoodie`, by folder, and the commits of the timeline."""

    client: MetaClient
    commits: TimelineCommits
    folders: dict[str, list[FileInfo]]

    @classmethod
    def of(cls, client: MetaClient) -> Listing:
        storage = client.storage
        folders: dict[str, list[FileInfo]] = {"": list(storage.list(""))}
        for top in storage.list_folders(""):
            if top != HOODIE_DIR:
                for info in storage.list(top, recursive=True):
                    folders.setdefault(folder_of(info.path), []).append(info)
        commits = TimelineCommits(client)
        return cls(client, commits, {name: files for name, files in folders.items() if _counts(client, name, files)})


def _counts(client: MetaClient, folder: str, files: list[FileInfo]) -> bool:
    """Whether a folder is the table's: a hidden one that is no partition is scratch space of some engine."""
    if not is_hidden(folder):
        return True
    metafile = next((info for info in files if is_partition_metafile(info.name)), None)
    return metafile is not None and is_marked(client.storage, folder, metafile)


def check_files(client: MetaClient, options: ReadOptions) -> Iterator[Finding]:
    """Everything that can be checked by the names, sizes and folders of files."""
    listing = Listing.of(client)
    try:
        listing.commits.written()
    except CorruptTable as error:
        yield Finding(NAMED_FILES, Severity.ERROR, error.file or client.url, error.what, error.hint or _RESTORE)
        return
    yield from check_named_files(listing)
    yield from check_orphans(listing)
    yield from check_partitions(listing)
    yield from check_metadata(client, options)


def check_named_files(listing: Listing) -> Iterator[Finding]:
    """Files that commits of the active timeline report, against the folders."""
    needed = _needed(listing)
    excused = _cleaned(listing.client)
    for partition, files in listing.commits.written().items():
        there = {info.path: info.size for info in listing.folders.get(partition, ())}
        for info in files:
            size = there.get(info.path)
            if size is None:
                if info.path in needed:
                    yield Finding(NAMED_FILES, Severity.ERROR, info.path, "the file is not there", _RESTORE)
                elif info.path not in excused:
                    what = "an older version of the file group is gone, and no clean took it"
                    yield Finding(NAMED_FILES, Severity.WARNING, info.path, what, "Times that need it cannot be read.")
            elif info.size and size < info.size:
                what = f"the file has {size} bytes, its commit wrote {info.size}"
                severity = Severity.ERROR if info.path in needed else Severity.WARNING
                yield Finding(NAMED_FILES, severity, info.path, what, _RESTORE)


def _needed(listing: Listing) -> set[str]:
    """Files of the newest slice of every current file group, also missing ones; not logs that were log-compacted."""
    client = listing.client
    reported = {info.path: info for files in listing.commits.written().values() for info in files}
    view = FileSystemView(_Reported(listing, reported), TimelineCommits(client))
    needed: set[str] = set()
    for file_slice in (file_slice for partition in view.partitions() for file_slice in view.slices(partition)):
        times = {log.requested_time for log in file_slice.log_files}
        needed.update(file.path for file in file_slice.files if view.commits.log_compacted_by(file) not in times)
    return needed


@dataclass(frozen=True, slots=True)
class _Reported:
    """A lister of the table as if no file were missing: what is in the folders, and what commits report as written."""

    listing: Listing
    reported: dict[str, FileInfo]

    names_are_committed: ClassVar[bool] = False

    def partitions(self) -> list[str]:
        return sorted({*self.listing.folders, *(folder_of(path) for path in self.reported)})

    def files(self, partition_path: str) -> list[FileInfo]:
        there = {info.path: info for info in self.listing.folders.get(partition_path, ())}
        here = {path: info for path, info in self.reported.items() if folder_of(path) == partition_path}
        return list({**there, **here}.values())


def _cleaned(client: MetaClient) -> set[str]:
    """Files that cleans of the active timeline have deleted, or are about to."""
    found: set[str] = set()
    for instant in client.timeline.of_actions(Action.CLEAN):
        plan = client.plan(instant)
        body = client.body(instant) if instant.is_completed else None
        if isinstance(plan, CleanPlan) and not isinstance(body, CleanMetadata):
            found.update(
                joined(partition, file_name(path)) for partition, paths in plan.files.items() for path in paths
            )
        if isinstance(body, CleanMetadata):
            for partition, done in body.partitions.items():
                found.update(joined(partition, file_name(path)) for path in done.deleted)
    return found


def check_orphans(listing: Listing) -> Iterator[Finding]:
    """Data files that no commit names and no pending action is about to."""
    client = listing.client
    for folder, files in sorted(listing.folders.items()):
        for file in (file for group in group_files(folder, files).values() for file in group.files()):
            known = client.timeline.at(file.requested_time)
            if any(not instant.is_completed for instant in known):
                continue
            if not client.is_committed(file.requested_time):
                what = f"no commit {file.requested_time} is known"
                yield Finding(ORPHANS, Severity.WARNING, file.path, what, _DELETE)
            elif client.config.has_shared_logs and isinstance(file, LogFile):
                continue  # has the time of its base file: a later write, or a command, that may be undone
            elif not listing.commits.is_named(file):
                what = f"the commit {file.requested_time} does not name the file"
                yield Finding(ORPHANS, Severity.WARNING, file.path, what, _DELETE)


def check_partitions(listing: Listing) -> Iterator[Finding]:
    """Every folder with committed files has a metafile, whose depth is right: other programs look for those."""
    for folder, files in sorted(listing.folders.items()):
        metafile = next((info for info in files if is_partition_metafile(info.name)), None)
        times = {requested_time for info in files if (requested_time := _requested_time(info.name)) is not None}
        counts = any(listing.client.is_committed(requested_time) for requested_time in times)
        if metafile is None:
            if counts:
                path, what = joined(folder, PARTITION_METAFILE), "the folder has data files, but is no partition"
                yield Finding(PARTITIONS, Severity.ERROR, path, what, "Copy the metafile of another partition here.")
            continue
        depth = len(folder.split("/")) if folder else 0
        try:
            found = read_metafile(listing.client.storage, metafile)
        except CorruptTable as error:
            yield Finding(PARTITIONS, Severity.ERROR, metafile.path, error.what, error.hint or _RESTORE)
            continue
        if found.depth != depth:
            what = f"the metafile says depth {found.depth}, the folder has {depth}"
            yield Finding(PARTITIONS, Severity.ERROR, metafile.path, what, "Correct partitionDepth in the metafile.")


def check_metadata(client: MetaClient, options: ReadOptions) -> Iterator[Finding]:
    """The slices by the metadata table and by the folders must be the same."""
    rebuild = "Open the table with drop_metadata=True and write, or have Apache Hudi rebuild the metadata table."
    try:
        lister, _ = choose_lister(client, options)
        if lister is None or not lister.names_are_committed:
            return
        listed, seen = (_visible(FileSystemView.of(client, source)) for source in (lister, None))
    except (CorruptTable, UnsupportedFormat) as error:
        path = error.file or METADATA_DIR
        if METADATA_DIR in path:
            yield Finding(METADATA, Severity.ERROR, path, error.what, rebuild)
        return  # otherwise a file is missing, and that is another finding
    for path in sorted(listed ^ seen):
        what = "the metadata table misses the file" if path in seen else "the metadata table lists a file too many"
        yield Finding(METADATA, Severity.ERROR, path, what, rebuild)


def _visible(view: FileSystemView) -> set[str]:
    return {file.path for p in view.partitions() for file_slice in view.slices(p) for file in file_slice.files}


def _requested_time(name: str) -> str | None:
    parsed = parse_base_file(name) or parse_log_file(name)
    return parsed.requested_time if parsed else None
