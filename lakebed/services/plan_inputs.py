"""The files that a plan names, found again when it is run, perhaps long after.

    all there             the slice as it was planned
    logs are gone         the same slice without them, if log compactions replace all of them: the rows of such a log
                          are in the merged one, be that among the plan's own files or made later of nothing else
    anything else         no current state needs the files: the group is left out, and the plan is done without it
                          the current state misses them: `CorruptTable`, as a reader would raise

So no plan waits for ever for a file that a clean deleted, whichever program planned and whichever cleaned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakebed.datafile.log_file import open_log_file
from lakebed.datafile.log_scan import LogScan, scan_slice
from lakebed.errors import CorruptTable
from lakebed.format.names import parse_log_file
from lakebed.model.actions import CompactionOperation
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogKind
from lakebed.paths import file_name
from lakebed.services.compaction_strategy import LOG
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

_GIVE_UP = "Restore the file from a copy of the table, or give the plan up with t.services.rollback(its instant)."


def scan_logs(client: MetaClient, file_slice: FileSlice) -> LogScan:
    """Which log blocks of a slice count, and which instants they replace; from headers alone."""
    files = [open_log_file(client.storage, log) for log in file_slice.log_files if log.kind is not LogKind.CDC]
    base = file_slice.base_file
    return scan_slice(files, client.is_committed, base_instant_time=base.requested_time if base else None)


def silent_logs(client: MetaClient, file_slice: FileSlice) -> frozenset[str]:
    """Names of the logs without a block that counts in the slice: log compactions replace them."""
    counting = {run.block.file for run in scan_logs(client, file_slice).runs}
    return frozenset(
        log.name for log in file_slice.log_files if log.path not in counting and log.kind is not LogKind.CDC
    )


def changes(client: MetaClient, file_slice: FileSlice, names: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Files added to a slice since a plan named these, and those that are gone; without logs that do not count."""
    now, planned = frozenset(file.name for file in file_slice.files), frozenset(names)
    if now == planned:
        return frozenset(), frozenset()
    covered = scan_logs(client, file_slice).covered
    parsed = {name: parse_log_file(name) for name in planned - now}
    gone = frozenset(name for name, log in parsed.items() if log is None or log.requested_time not in covered)
    return now - planned - silent_logs(client, file_slice), gone


@dataclass(slots=True)
class PlanInputs:
    """The files of a table by name, as plans hold only names."""

    client: MetaClient
    view: FileSystemView
    _known: dict[str, Mapping[FileGroupId, Mapping[str, BaseFile | LogFile]]] = field(default_factory=dict)

    def slice_of(self, operation: CompactionOperation) -> FileSlice | None:
        """The slice of an operation; None when its files are gone, and nobody needs them."""
        files = self._of(operation.partition_path).get(operation.file_group, {})
        names = [*((operation.base_file,) if operation.base_file else ()), *operation.log_files]
        missing = [name for name in names if name not in files]
        file_slice = _slice(operation, [files[name] for name in names if name in files])
        if not missing:
            return file_slice
        whole = self._without(file_slice, missing, operation) if file_slice is not None else None
        if whole is None:
            self._refuse_lost(operation.partition_path, missing)
        return whole

    def logs_of(self, operation: CompactionOperation) -> tuple[LogFile, ...]:
        """All logs of the group that are there."""
        files = self._of(operation.partition_path).get(operation.file_group, {})
        return tuple(file for file in files.values() if isinstance(file, LogFile))

    def _without(self, file_slice: FileSlice, missing: list[str], operation: CompactionOperation) -> FileSlice | None:
        """The slice without missing logs, and with merged logs that replace them; None where rows would be missing."""
        logs = [parse_log_file(name) for name in missing]
        gone = {log.requested_time for log in logs if log is not None}
        if None in logs or operation.kind == LOG:
            return None
        known = {log.requested_time for log in map(parse_log_file, operation.log_files) if log is not None}
        known |= scan_logs(self.client, file_slice).covered
        there = {log.name for log in file_slice.log_files}
        others = [log for log in self.logs_of(operation) if log.name not in there and log.kind is not LogKind.CDC]
        merged = self._merged_of(others, known)
        logs_now = (*file_slice.log_files, *(log for log in others if log.requested_time in merged))
        ordered = tuple(sorted(logs_now, key=lambda log: log.order))
        whole = FileSlice(file_slice.file_group, file_slice.base_instant_time, file_slice.base_file, ordered)
        return whole if gone <= scan_logs(self.client, whole).covered else None

    def _merged_of(self, logs: Sequence[LogFile], instants: Collection[str]) -> frozenset[str]:
        """The log compactions among logs that merged nothing but writes of these instants."""
        merged: dict[str, set[str]] = {}
        for log in logs:
            for block in open_log_file(self.client.storage, log).blocks:
                merged.setdefault(log.requested_time, set()).update(block.compacted_times)
        return frozenset(instant for instant, times in merged.items() if times and times.issubset(instants))

    def _refuse_lost(self, partition: str, missing: list[str]) -> None:
        try:
            self.view.slices(partition)
        except CorruptTable as error:
            if file_name(error.file or "") in missing:
                raise CorruptTable(error.what, file=error.file, hint=_GIVE_UP) from error

    def _of(self, partition: str) -> Mapping[FileGroupId, Mapping[str, BaseFile | LogFile]]:
        if partition not in self._known:
            groups: dict[FileGroupId, dict[str, BaseFile | LogFile]] = {}
            for group in self.view.file_groups(partition):
                mine = groups.setdefault(group.id, {})
                mine.update((file.name, file) for file_slice in group.slices for file in file_slice.files)
            self._known[partition] = groups
        return self._known[partition]


def _slice(operation: CompactionOperation, found: list[BaseFile | LogFile]) -> FileSlice | None:
    if not found:
        return None
    bases = [file for file in found if isinstance(file, BaseFile)]
    logs = sorted((file for file in found if isinstance(file, LogFile)), key=lambda log: log.order)
    base = bases[0] if bases else None
    requested_time = operation.base_instant_time or (logs[0].requested_time if logs else found[0].requested_time)
    group = operation.file_group
    return FileSlice(group, requested_time, base, tuple(logs))
