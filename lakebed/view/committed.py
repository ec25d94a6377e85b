"""Which listed files are committed, by the timeline and the commit reports.

A file belongs to the write whose requested time is in its name. It counts when that write is committed and, whenever
the write's report is available, when the report names the file: a task that was tried twice may leave a second file
behind, even after the commit, and only the report says which attempt succeeded. Archived reports are not fetched for
this; archiving removes unnamed files first. Some logs have the requested time of another write in their name, and the
report of the write that made them names them: those of tables before version 8, which have that of their base file, and
those of future buckets, which Hudi writes beside the old ones while a resize is pending.

The reports also show which files are lost: a file that a slice needs and that is missing in its folder, or shorter than
it was written. A result without it would be silently wrong, so that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakebed.errors import CorruptTable
from lakebed.format.names import ROLLBACK_TOKEN, parse_log_file
from lakebed.model.actions import CommitMetadata
from lakebed.model.files import BaseFile, FileGroupId, LogFile
from lakebed.paths import file_name
from lakebed.runner import LocalRunner
from lakebed.storage.storage import FileInfo, checked_file, checked_path, joined
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient, Replacement


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files that one commit reports, as (partition path, file name)."""

    names: frozenset[tuple[str, str]]
    unnamed: frozenset[tuple[str, str]] = frozenset()
    """Partition and file id of stats without any file name: of these groups every file of the commit counts."""
    written: Mapping[str, tuple[FileInfo, ...]] = field(default_factory=dict)
    """By partition, the files that the commit wrote; the size is 0 where the report has none."""

    @classmethod
    def of(cls, commit: CommitMetadata, file: str) -> NamedFiles:
        """The files of a report that was read from `file`; a path outside its partition or the table is rejected."""
        names: set[tuple[str, str]] = set()
        unnamed: set[tuple[str, str]] = set()
        written: dict[str, tuple[FileInfo, ...]] = {}
        for partition, stats in commit.stats.items():
            made: dict[str, int] = {}
            for stat in stats:
                paths = [path for path in (stat.path, stat.base_file, *stat.log_files, *stat.cdc_files) if path]
                names.update((partition, _name_within(partition, path, file)) for path in paths)
                if not stat.path and not stat.log_files:
                    unnamed.add((partition, stat.file_id))
                made.update((_name_within(partition, path, file), 0) for path in stat.log_files)
                if stat.path:
                    made[_name_within(partition, stat.path, file)] = stat.file_size
            written[partition] = tuple(FileInfo(joined(partition, name), size, 0) for name, size in made.items())
        return cls(frozenset(names), frozenset(unnamed), written)

    def has(self, partition_path: str, file_id: str, name: str) -> bool:
        return (partition_path, name) in self.names or (partition_path, file_id) in self.unnamed


def _name_within(partition: str, path: str, file: str) -> str:
    """The name of a reported file, whose path is the name alone or has the partition that it is reported in."""
    folder, _, name = path.rpartition("/")
    try:
        checked_path(path)
        checked_file(joined(partition, name))
    except CorruptTable as error:
        raise CorruptTable(error.what, file=file, hint=error.hint) from None
    if folder not in ("", partition):
        raise CorruptTable(f"the commit reports {path!r} as a file of the partition {partition!r}", file=file)
    return name


class CommitLookup(Protocol):
    """What the view needs of a timeline. For the metadata table it also depends on the timeline of its data table."""

    def is_committed(self, requested_time: str) -> bool: ...

    def completion_time(self, requested_time: str) -> str | None: ...

    def is_named(self, file: BaseFile | LogFile) -> bool:
        """False only for a file whose commit has an available report that does not name it."""
        ...

    def writer_of(self, file: BaseFile | LogFile) -> str:
        """The requested time of the write that made the file, which may differ from that in its name."""
        ...

    def replacements(self, group: FileGroupId, oldest_requested_time: str) -> tuple[Replacement, ...]:
        """The replacecommits that retired the group, whose oldest known file has that requested time."""
        ...

    def pending_compactions(self) -> Mapping[FileGroupId, tuple[str, ...]]:
        """Requested times of the compactions that are planned for a group and not finished."""
        ...

    def log_compacted_by(self, file: BaseFile | LogFile) -> str | None:
        """Requested time of the completed log compaction of a log; such a log may be cleaned before its slice."""
        ...

    def prefetch(self, requested_times: Iterable[str]) -> None:
        """A hint that the reports of these commits will be needed."""
        ...

    def written(self) -> Mapping[str, Sequence[FileInfo]]:
        """By partition, the files that available reports list as written; empty for listings made from commits."""
        ...


@dataclass(slots=True)
class TimelineCommits:
    """`CommitLookup` over a client. `check_names` is off for listings that come out of commits, not out of folders."""

    client: MetaClient
    check_names: bool = True
    _named: dict[str, NamedFiles | None] = field(default_factory=dict)
    _pending: dict[FileGroupId, tuple[str, ...]] | None = None
    _log_compacted: dict[tuple[str, str], str] | None = None
    _written: dict[str, list[FileInfo]] | None = None
    _other_writes: dict[str, str] | None = None

    def is_committed(self, requested_time: str) -> bool:
        return self.client.is_committed(requested_time)

    def completion_time(self, requested_time: str) -> str | None:
        return self.client.completion_time(requested_time)

    def is_named(self, file: BaseFile | LogFile) -> bool:
        if not self.check_names or (self._is_metadata_table and _starts_a_group(file)):
            return True
        named, group = self._report(file.requested_time), file.file_group
        if named is None or named.has(group.partition_path, group.file_id, file.name):
            return True
        return isinstance(file, LogFile) and (file.path in self._logs_of_other_writes() or self._is_command(file))

    def _is_command(self, file: LogFile) -> bool:
        """Whether a log rolls back blocks of other logs in its slice; its time is that of the slice's base file."""
        return self.client.config.has_shared_logs and not file.native and file.write_token == ROLLBACK_TOKEN

    def writer_of(self, file: BaseFile | LogFile) -> str:
        found = self._logs_of_other_writes().get(file.path) if isinstance(file, LogFile) else None
        return found or file.requested_time

    def _logs_of_other_writes(self) -> Mapping[str, str]:
        """Logs with a requested time other than that of the first write that reports them, by path, with the latter."""
        if self._other_writes is None:
            requested_times = [i.requested_time for i in self.client.completed_writes()] if self.check_names else []
            self._other_writes = {
                info.path: requested_time
                for requested_time in reversed(requested_times)
                if (report := self._report(requested_time))
                for infos in report.written.values()
                for info in infos
                if requested_time not in info.name and parse_log_file(info.name) is not None
            }
        return self._other_writes

    def _report(self, requested_time: str) -> NamedFiles | None:
        if requested_time not in self._named:
            instant = self.client.timeline.completed_write(requested_time)
            commit = self.client.commit(requested_time) if instant is not None else None
            file = self.client.active.path(instant) if instant is not None else ""
            self._named[requested_time] = NamedFiles.of(commit, file) if commit is not None else None
        return self._named[requested_time]

    def written(self) -> Mapping[str, Sequence[FileInfo]]:
        if self._written is None:
            found: dict[str, list[FileInfo]] = {}
            requested_times = [i.requested_time for i in self.client.completed_writes()] if self.check_names else []
            self.prefetch(requested_times)
            for report in filter(None, map(self._report, requested_times)):
                for partition, files in report.written.items():
                    found.setdefault(partition, []).extend(files)
            self._written = found
        return self._written

    @property
    def _is_metadata_table(self) -> bool:
        return self.client.config.keygen_type == "HOODIE_TABLE_METADATA"

    def replacements(self, group: FileGroupId, oldest_requested_time: str) -> tuple[Replacement, ...]:
        found = self.client.replaced.get(group, ())
        if self.client.is_before_timeline(oldest_requested_time):
            found = (*self.client.replaced_in_history.get(group, ()), *found)
        return found

    def pending_compactions(self) -> Mapping[FileGroupId, tuple[str, ...]]:
        if self._pending is None:
            found: dict[FileGroupId, tuple[str, ...]] = {}
            for instant, plan in self.client.pending_compactions():
                for operation in plan.operations:
                    if operation.kind == "FULL":
                        group = operation.file_group
                        found[group] = (*found.get(group, ()), instant.requested_time)
            self._pending = found
        return self._pending

    def log_compacted_by(self, file: BaseFile | LogFile) -> str | None:
        if self._log_compacted is None:
            self._log_compacted = {
                (operation.partition_path, file_name(path)): instant.requested_time
                for instant, plan in self.client.log_compactions()
                for operation in plan.operations
                for path in operation.log_files
            }
        return self._log_compacted.get((file.file_group.partition_path, file.name))

    def prefetch(self, requested_times: Iterable[str]) -> None:
        if not self.check_names:
            return
        wanted = [
            requested_time
            for requested_time in requested_times
            if requested_time not in self._named and self.client.timeline.completed_write(requested_time)
        ]
        if len(wanted) > 1:
            for _ in LocalRunner().map(self.client.commit, wanted, label="commits"):
                pass


def _starts_a_group(file: BaseFile | LogFile) -> bool:
    """Whether it is the empty log by which the metadata table creates a file group, which no commit names."""
    return isinstance(file, LogFile) and file.write_token == "0-0-0" and file.version == 1


def visible_by(commits: CommitLookup, at: str | None) -> Callable[[str], bool]:
    """Whether files with a requested time are visible at time `at` (None = now); each time is looked up once."""
    limit = comparable(at) if at is not None else None
    known: dict[str, bool] = {}

    def is_visible(requested_time: str) -> bool:
        if requested_time not in known:
            known[requested_time] = _is_visible(commits, requested_time, limit)
        return known[requested_time]

    return is_visible


def _is_visible(commits: CommitLookup, requested_time: str, limit: str | None) -> bool:
    if limit is not None and comparable(requested_time) > limit:
        return False
    if not commits.is_committed(requested_time):
        return False
    return limit is None or comparable(commits.completion_time(requested_time) or requested_time) <= limit
