"""The file system view: file groups and file slices at any time, from a listing and the timeline.

The view is computed from a listing and the commits alone. It answers for one moment of the timeline, that of its
`CommitLookup`, and for any earlier time `at` by counting only what had *completed* by then: base files, logs and
replacements alike. The listing comes from a `FileLister`: folders (`StorageLister`) or the metadata table.

Slices are cut over what is listed *and* what commits report to have written. Reported files that a clean removed are in
older slices, or in retired groups, and are never read; one that a slice to be read needs was lost, and is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.expression.predicate import ColumnStats
from lakebed.model.files import BaseFile, FileGroup, FileSlice, LogFile
from lakebed.storage.storage import FileInfo
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient, Replacement
from lakebed.view.committed import CommitLookup, TimelineCommits, visible_by
from lakebed.view.partitions import StorageLister
from lakebed.view.slicing import GroupFiles, cut_slices, group_files, latest_slice, newest_base

__all__ = ["FileLister", "FileSystemView", "StatsSource", "StorageLister"]


class FileLister(Protocol):
    """The source of partitions and their files."""

    @property
    def names_are_committed(self) -> bool:
        """Whether only files that commits named are listed, so that names need not be checked again."""
        ...

    def partitions(self) -> Sequence[str]:
        """Partition paths relative to the table; `[""]` for a table without partitions."""
        ...

    def files(self, partition_path: str) -> Sequence[FileInfo]:
        """The files of one partition, data files or not."""
        ...


class StatsSource(Protocol):
    """The source of column statistics. A file without statistics is left out of the result and never pruned."""

    def column_stats(
        self, partition_path: str, file_names: Sequence[str], columns: Sequence[str]
    ) -> Mapping[str, Mapping[str, ColumnStats]]:
        """By file name and column; bounds may be loose but must hold."""
        ...


@dataclass(slots=True)
class FileSystemView:
    """File groups and slices of one table at one moment of its timeline."""

    lister: FileLister
    commits: CommitLookup
    _groups: dict[str, dict[str, GroupFiles]] = field(default_factory=dict)
    _lost: dict[str, dict[str, FileInfo]] = field(default_factory=dict)

    @classmethod
    def of(cls, client: MetaClient, lister: FileLister | None = None) -> FileSystemView:
        """The view of a table by listing its folders, or by a lister whose names come out of commits already."""
        if lister is None:
            return cls(StorageLister(client.storage), TimelineCommits(client))
        return cls(lister, TimelineCommits(client, check_names=not lister.names_are_committed))

    def partitions(self) -> Sequence[str]:
        """Paths of the partitions, including those that only commits report: their files are lost or retired."""
        return sorted({*self.lister.partitions(), *self.commits.written()})

    def slices(self, partition_path: str, at: str | None = None) -> tuple[FileSlice, ...]:
        """The slice of every group that a snapshot at time `at` (None = now) merges, by file id."""
        return tuple(self._whole(file_slice, at) for file_slice in self._latest(partition_path, at))

    def _latest(self, partition_path: str, at: str | None) -> list[FileSlice]:
        found = (latest_slice(group, self.commits.completion_time) for group in self._visible(partition_path, at))
        return [file_slice for file_slice in found if file_slice is not None]

    def read_optimized_slices(self, partition_path: str, at: str | None = None) -> tuple[FileSlice, ...]:
        """The newest base file of every group that has one, without logs."""
        found = ((group.id, newest_base(group)) for group in self._visible(partition_path, at))
        slices = (FileSlice(group, base.requested_time, base) for group, base in found if base is not None)
        return tuple(self._whole(file_slice, at) for file_slice in slices)

    def file_groups(self, partition_path: str) -> tuple[FileGroup, ...]:
        """Every group with all its committed files, retired ones and change logs too, and planned compactions' slices.

        A file id that was retired and written again later gives two groups, the retired one first.
        """
        is_visible = visible_by(self.commits, None)
        pending = self.commits.pending_compactions()
        found: list[FileGroup] = []
        for group in self._committed_groups(partition_path):
            committed = group.where(lambda file: is_visible(file.requested_time) and not self._is_lost(file))
            if committed.is_empty:
                continue
            replacements = self._replacements(committed)
            for replaced_at, part in _by_retirement(committed, replacements).items():
                opened = pending.get(group.id, ()) if replaced_at is None else ()
                slices = cut_slices(part, self.commits.completion_time, opened)
                found.append(FileGroup(group.id, slices, replaced_at))
        return tuple(found)

    def change_logs(self, partition_path: str) -> tuple[LogFile, ...]:
        """The committed CDC files of a partition, in order of requested time."""
        logs = (
            log
            for group in self.file_groups(partition_path)
            for file_slice in group.slices
            for log in file_slice.log_files
        )
        return tuple(sorted((log for log in logs if log.kind == "cdc"), key=lambda log: log.order))

    def _visible(self, partition_path: str, at: str | None) -> list[GroupFiles]:
        """The groups of a partition with only the files that are visible at `at`."""
        is_visible = visible_by(self.commits, at)
        limit = comparable(at) if at is not None else None
        found: list[GroupFiles] = []
        for group in self._committed_groups(partition_path):
            files = group.where(
                lambda file: is_visible(file.requested_time) and is_visible(self.commits.writer_of(file))
            )
            if files.is_empty:
                continue
            replacements = [
                r for r in self._replacements(files) if limit is None or comparable(r.completion_time) <= limit
            ]
            if replacements:
                files = files.where(lambda file, by=replacements: _retired_at(file, by) is None)  # type: ignore[misc]
            if not files.is_empty:
                found.append(files)
        return found

    def _committed_groups(self, partition_path: str) -> list[GroupFiles]:
        """The groups of a partition by file id: without files that no commit names, but with lost files."""
        if partition_path not in self._groups:
            listed = {info.path: info for info in self.lister.files(partition_path)}
            written = self.commits.written().get(partition_path, ())
            lost = {info.path: info for info in written if _is_lost(info, listed.get(info.path))}
            self._lost[partition_path] = lost
            groups = group_files(partition_path, {**listed, **lost}.values())
            self.commits.prefetch({time for group in groups.values() for time in group.requested_times()})
            named = ((file_id, group.where(self.commits.is_named)) for file_id, group in sorted(groups.items()))
            self._groups[partition_path] = {file_id: group for file_id, group in named if not group.is_empty}
        return list(self._groups[partition_path].values())

    def _is_lost(self, file: BaseFile | LogFile) -> bool:
        return file.path in self._lost[file.file_group.partition_path]

    def _whole(self, file_slice: FileSlice, at: str | None) -> FileSlice:
        """The slice, if all its files exist with their full length."""
        partition = file_slice.file_group.partition_path
        file_slice = self._without_cleaned_logs(file_slice)
        lost = next(filter(self._is_lost, file_slice.files), None)
        if lost is None:
            return file_slice
        latest = (self._without_cleaned_logs(now) for now in self._latest(partition, None))
        if at is not None and not any(lost in now.files for now in latest):
            raise InvalidRequest(
                f"the table as of {at} is no longer there: file versions that were old by now are gone",
                file=lost.path,
                hint="A clean removed them; read a later time.",
            )
        there = next((info.size for info in self.lister.files(partition) if info.path == lost.path), None)
        what = "is missing" if there is None else f"has {there} bytes instead of {lost.size}"
        raise CorruptTable(
            f"a file that the commit {lost.requested_time} wrote {what}",
            file=lost.path,
            hint="Restore it from a copy; if the table was cleaned meanwhile, open it again.",
        )

    def _without_cleaned_logs(self, file_slice: FileSlice) -> FileSlice:
        """The slice without missing logs that log compactions replaced, if the log of the last one exists.

        A log compaction's own log may be gone as well, once a later log compaction merged it.
        """
        lost = [log for log in file_slice.log_files if self._is_lost(log)]
        if not lost:
            return file_slice
        there = {log.requested_time for log in file_slice.log_files if log not in lost}
        replaced: list[LogFile] = []
        while more := [log for log in lost if log not in replaced and self.commits.log_compacted_by(log) in there]:
            replaced += more
            there.update(log.requested_time for log in more)
        return replace(file_slice, log_files=tuple(log for log in file_slice.log_files if log not in replaced))

    def _replacements(self, group: GroupFiles) -> tuple[Replacement, ...]:
        return self.commits.replacements(group.id, min(group.requested_times(), key=comparable))


def _is_lost(reported: FileInfo, listed: FileInfo | None) -> bool:
    """Missing, or shorter than it was written; a log of an old table may have grown since."""
    return listed is None or listed.size < reported.size


def _retired_at(file: BaseFile | LogFile, replacements: Sequence[Replacement]) -> str | None:
    """When the file was replaced, None when it was not.

    Writers with fixed file ids reuse a retired id, so a file whose requested time is after the completion of the
    replacement, or which the replacing write itself made, belongs to a later file group with the same id.
    """
    times = [
        r.completion_time
        for r in replacements
        if file.requested_time != r.requested_time and comparable(file.requested_time) <= comparable(r.completion_time)
    ]
    return min(times, key=comparable, default=None)


def _by_retirement(group: GroupFiles, replacements: Sequence[Replacement]) -> dict[str | None, GroupFiles]:
    """The group's files by the time at which they were replaced, oldest first and the current ones last."""
    times = {_retired_at(file, replacements) for file in group.files()}
    ordered = sorted((time for time in times if time is not None), key=comparable)
    keys: list[str | None] = [*ordered, *([None] if None in times else [])]
    return {key: group.where(lambda file, t=key: _retired_at(file, replacements) == t) for key in keys}  # type: ignore[misc]
