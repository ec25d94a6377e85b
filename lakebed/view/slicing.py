"""Cuts a file group into file slices: a pure function of files and completion times.

    base b1      base b2 (compaction)
    ├─────────────┼──────────────────>  time
      log log       log               a log goes to the last slice whose key is at most the log's *completion*

A base file opens a slice keyed by its requested time, and so does a planned compaction, though it has no base file yet.
A log that completed before every key, or in a group without any, opens a slice of logs alone, keyed by its own
requested time. Where old 14-digit keys meet 17-digit completions the requested time is compared instead. Within a slice
logs are ordered by requested time.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lakebed.format.names import parse_base_file, parse_log_file
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogKind
from lakebed.storage.storage import FileInfo
from lakebed.timeline.clock import comparable


@dataclass(slots=True)
class GroupFiles:
    """The files of one group, unordered."""

    id: FileGroupId
    bases: list[BaseFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.bases and not self.logs

    def files(self) -> list[BaseFile | LogFile]:
        return [*self.bases, *self.logs]

    def requested_times(self) -> set[str]:
        return {file.requested_time for file in self.files()}

    def where(self, keep: Callable[[BaseFile | LogFile], bool]) -> GroupFiles:
        return GroupFiles(self.id, [f for f in self.bases if keep(f)], [f for f in self.logs if keep(f)])


def group_files(partition_path: str, files: Iterable[FileInfo]) -> dict[str, GroupFiles]:
    """The data files of a partition by file id; names that are not Hudi's are ignored."""
    groups: dict[str, GroupFiles] = {}
    for info in files:
        name = info.name
        log = parse_log_file(name)
        base = parse_base_file(name) if log is None else None
        parsed = log or base
        if parsed is None:
            continue
        group = groups.get(parsed.file_id)
        if group is None:
            group = groups[parsed.file_id] = GroupFiles(FileGroupId(partition_path, parsed.file_id))
        if log is not None:
            group.logs.append(
                LogFile(
                    info.path,
                    info.size,
                    group.id,
                    log.requested_time,
                    log.version,
                    log.write_token,
                    log.kind,
                    log.native,
                )
            )
        elif base is not None:
            group.bases.append(BaseFile(info.path, info.size, group.id, base.requested_time, base.write_token))
    return groups


def cut_slices(
    group: GroupFiles, completion_time: Callable[[str], str | None], opened: Sequence[str] = ()
) -> tuple[FileSlice, ...]:
    """All slices of a group, oldest first. `opened` are the requested times of pending compactions."""
    bases: dict[str, BaseFile] = {}
    for base in sorted(group.bases, key=_attempt):
        bases[base.requested_time] = base
    keys = sorted({*bases, *opened}, key=comparable)
    logs: dict[str, list[LogFile]] = {}
    for log in sorted(group.logs, key=lambda log: log.order):
        key = _slice_key(log.requested_time, keys, completion_time)
        if key is None:
            key = log.requested_time
            insort(keys, key, key=comparable)
        logs.setdefault(key, []).append(log)
    return tuple(FileSlice(group.id, key, bases.get(key), tuple(logs.get(key, ()))) for key in keys)


def latest_slice(group: GroupFiles, completion_time: Callable[[str], str | None]) -> FileSlice | None:
    """What a snapshot reads: the newest base file and every log after it, except change logs.

    Pending compactions are left out on purpose: a reader merges their slice with the one before it, which is the
    slice that this returns without them.
    """
    merged = GroupFiles(group.id, group.bases, [log for log in group.logs if log.kind is not LogKind.CDC])
    slices = cut_slices(merged, completion_time)
    return slices[-1] if slices else None


def newest_base(group: GroupFiles) -> BaseFile | None:
    """The base file that a read-optimized query reads."""
    return max(group.bases, key=lambda base: (comparable(base.requested_time), _attempt(base)), default=None)


def _slice_key(requested_time: str, keys: Sequence[str], completion_time: Callable[[str], str | None]) -> str | None:
    if keys and comparable(keys[-1]) <= comparable(requested_time):
        return keys[-1]  # its completion is later than its requested time, so there is nothing to look up
    done = (completion_time(requested_time) or requested_time) if keys else requested_time
    for key in reversed(keys):
        when = done if len(done) == len(key) else requested_time
        if comparable(key) <= comparable(when):
            return key
    return None


def _attempt(base: BaseFile) -> tuple[tuple[int, ...], str]:
    """Of two attempts at one base file, when no report names one, the later one is used."""
    return (tuple(int(part) for part in base.write_token.split("-")), base.path)
