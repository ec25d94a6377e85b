"""The reader of Hudi's metadata table: listings, column statistics and indexes by key.

It is in `.hoodie/metadata` and is an ordinary merge-on-read table, so its timeline, file view and log rules are the
ones every table has. Two things differ. Its files are HFiles and are read by key (`group_reader.py`). And each of its
commits is made just before the commit of the data table with the same requested time, so a commit counts here only when
that requested time is not pending there: a writer that died between the two leaves entries that must stay invisible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lakebed.errors import CorruptTable, InvalidRequest, TableNotFound, UnsupportedFormat
from lakebed.expression.predicate import ColumnStats
from lakebed.format.metadata.keys import (
    ALL_PARTITIONS_KEY,
    COLUMN_STATS,
    FILES,
    SECONDARY_INDEX_PREFIX,
    column_stats_key,
    file_group_indexes,
    partition_id,
    partition_path,
    secondary_hash_part,
)
from lakebed.format.metadata.records import ColumnStatsRecord, FilesRecord, MetadataRecord
from lakebed.format.names import METADATA_DIR, metadata_file_prefix, parse_metadata_file_id
from lakebed.metadata.group_reader import GroupReader
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.runner import LocalRunner, Runner
from lakebed.storage.storage import FileInfo, checked_path, joined
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient, Replacement
from lakebed.view.committed import TimelineCommits
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.partitions import StorageLister

_FIRST_YEAR = "0001"
WITHOUT_IT = "Read with the option hoodie.metadata.enable=false, which lists folders instead."


@dataclass(slots=True)
class MetadataCommits:
    """Which commits of a metadata table count: its completed ones that are not pending on the data table."""

    own: TimelineCommits
    data: MetaClient

    def is_committed(self, requested_time: str) -> bool:
        on_data = self.data.timeline.at(requested_time)
        is_pending = bool(on_data) and not any(instant.is_completed for instant in on_data)
        return not is_pending and self.own.is_committed(requested_time)

    def completion_time(self, requested_time: str) -> str | None:
        return self.own.completion_time(requested_time)

    def is_named(self, file: BaseFile | LogFile) -> bool:
        return self.own.is_named(file)

    def writer_of(self, file: BaseFile | LogFile) -> str:
        return self.own.writer_of(file)

    def replacements(self, group: FileGroupId, oldest_requested_time: str) -> tuple[Replacement, ...]:
        return self.own.replacements(group, oldest_requested_time)

    def pending_compactions(self) -> Mapping[FileGroupId, tuple[str, ...]]:
        return self.own.pending_compactions()

    def log_compacted_by(self, file: BaseFile | LogFile) -> str | None:
        return self.own.log_compacted_by(file)

    def prefetch(self, requested_times: Iterable[str]) -> None:
        self.own.prefetch(requested_times)

    def written(self) -> Mapping[str, Sequence[FileInfo]]:
        return self.own.written()


@dataclass(slots=True)
class MetadataTable:
    """The metadata table at the moment of the data client. Implements the view's `FileLister` and `StatsSource`."""

    data: MetaClient
    client: MetaClient
    view: FileSystemView
    runner: Runner = field(default_factory=LocalRunner)
    _slices: dict[str, tuple[FileSlice, ...]] = field(default_factory=dict)
    _readers: dict[FileGroupId, GroupReader] = field(default_factory=dict)

    names_are_committed: ClassVar[bool] = True

    @classmethod
    def open(cls, data: MetaClient) -> MetadataTable | None:
        """The metadata table of a table, or None when the table keeps none."""
        if not data.config.metadata_partitions:
            return None
        storage = data.storage.within(METADATA_DIR)
        with _named_from_the_table():
            try:
                client = MetaClient.open(storage)
            except TableNotFound as error:
                what = f"the table lists metadata partitions and has no metadata table ({error})"
                raise CorruptTable(what, file=METADATA_DIR) from error
            _require_current(data, client)
        commits = MetadataCommits(TimelineCommits(client), data)
        return cls(data, client, FileSystemView(StorageLister(storage), commits))

    def has(self, partition: str) -> bool:
        """Whether a partition of the metadata table is there and complete."""
        return partition in self.data.config.metadata_partitions

    # Listings

    def partitions(self) -> list[str]:
        """Paths of the data table's partitions; `[""]` for the root of a table without partitions."""
        return sorted(partition_path(identifier) for identifier in self._file_sizes(ALL_PARTITIONS_KEY))

    def files(self, partition_path: str) -> list[FileInfo]:
        """The data files of a partition. The modification time is not recorded and is 0."""
        folder = f"{partition_path}/" if partition_path else ""
        sizes = self._file_sizes(partition_id(partition_path))
        return [FileInfo(checked_path(folder + name), size, 0) for name, size in sorted(sizes.items())]

    def _file_sizes(self, key: str) -> dict[str, int]:
        record = self.lookup(FILES, [key]).get(key)
        if record is None:
            return {}
        if not isinstance(record, FilesRecord):
            raise CorruptTable(f"{key!r} is no listing in the files partition", file=f"{METADATA_DIR}/{FILES}")
        return record.live

    # Statistics

    def column_stats(
        self, partition_path: str, file_names: Sequence[str], columns: Sequence[str]
    ) -> dict[str, dict[str, ColumnStats]]:
        """By file name and column; files and columns without statistics are left out."""
        if not self.has(COLUMN_STATS):
            return {}
        keys = {column_stats_key(c, partition_path, name): (name, c) for name in file_names for c in columns}
        found: dict[str, dict[str, ColumnStats]] = {}
        for key, record in self.lookup(COLUMN_STATS, list(keys)).items():
            if isinstance(record, ColumnStatsRecord):
                name, column = keys[key]
                found.setdefault(name, {})[column] = _stats(record)
        return found

    # Any partition, by key

    def lookup(self, partition: str, keys: Sequence[str]) -> dict[str, MetadataRecord]:
        """The records of those of the keys that are there, in any partition of the metadata table."""
        with _named_from_the_table():
            return self._lookup(partition, keys)

    def _lookup(self, partition: str, keys: Sequence[str]) -> dict[str, MetadataRecord]:
        slices = self._groups(partition)
        if not slices or not keys:
            return {}
        wanted: dict[int, list[bytes]] = {}
        for number, key in _tagged(partition, keys, len(slices)):
            wanted.setdefault(number, []).append(key.encode())
        found: dict[str, MetadataRecord] = {}
        for records in self.runner.map(
            lambda task: self._reader(task[0]).lookup(task[1]),
            [(slices[number], group) for number, group in sorted(wanted.items())],
            label="look-up",
        ):
            found.update(_live(records))
        return found

    def prefix(self, partition: str, prefix: str) -> dict[str, MetadataRecord]:
        """All records of a partition whose key starts with the prefix."""
        found: dict[str, MetadataRecord] = {}
        encoded = prefix.encode()
        with _named_from_the_table():
            slices = self._groups(partition)
            for records in self.runner.map(
                lambda file_slice: self._reader(file_slice).prefix(encoded), slices, label="look-up"
            ):
                found.update(_live(records))
        return found

    def records(self, partition: str) -> Iterator[MetadataRecord]:
        """Every record of a partition, one file group after the other."""
        with _named_from_the_table():
            for file_slice in self._groups(partition):
                yield from dict(_live(self._reader(file_slice).prefix(b""))).values()

    def _groups(self, partition: str) -> tuple[FileSlice, ...]:
        """The newest slice of every file group, by the number in its file id."""
        if not self.has(partition):
            raise InvalidRequest(
                f"the metadata table has no partition {partition!r}",
                hint=f"It has: {', '.join(self.data.config.metadata_partitions)}.",
            )
        if partition not in self._slices:
            self._slices[partition] = _numbered(partition, self.view.slices(partition))
        return self._slices[partition]

    def _reader(self, file_slice: FileSlice) -> GroupReader:
        reader = self._readers.get(file_slice.file_group)
        if reader is None:
            is_committed = self.view.commits.is_committed
            reader = GroupReader.open(self.client.storage, file_slice, is_committed, self.runner)
            self._readers[file_slice.file_group] = reader
        return reader


@contextmanager
def _named_from_the_table() -> Iterator[None]:
    """Errors name files relative to the data table, with the hint that a reader can do without the metadata table."""
    try:
        yield
    except FileNotFoundError as error:
        file = joined(METADATA_DIR, str(error.filename or error))
        raise CorruptTable("a file of the metadata table is missing", file=file, hint=WITHOUT_IT) from error
    except (CorruptTable, UnsupportedFormat) as error:
        if error.file is not None and not error.file.startswith(METADATA_DIR):
            error.file = joined(METADATA_DIR, error.file)
        error.hint = WITHOUT_IT
        raise


def _require_current(data: MetaClient, client: MetaClient) -> None:
    """Refuses a metadata table that lacks a completed write of its data table: its listings would hide files.

    Earlier writes are part of the listing that the metadata table was initialised with; the instants of that
    initialisation have requested times near zero, and their completion times are when it was made.
    """
    made = [
        i.completion_time for i in client.completed_writes() if i.requested_time < _FIRST_YEAR and i.completion_time
    ]
    since = max(made, key=comparable, default="")
    for instant in data.completed_writes():
        requested_time = instant.requested_time
        if comparable(requested_time) > comparable(since) and not client.is_committed(requested_time):
            raise CorruptTable(f"the metadata table lacks the completed write {requested_time}", file=METADATA_DIR)


def _numbered(partition: str, slices: Sequence[FileSlice]) -> tuple[FileSlice, ...]:
    prefix = metadata_file_prefix(partition)
    ids = [parse_metadata_file_id(file_slice.file_group.file_id) for file_slice in slices]
    if any(known is None or known.prefix != prefix for known in ids):
        raise UnsupportedFormat(f"{partition} has file groups of another scheme", file=f"{METADATA_DIR}/{partition}")
    by_number = {known.number: file_slice for known, file_slice in zip(ids, slices, strict=True) if known is not None}
    if sorted(by_number) != list(range(len(slices))):
        raise CorruptTable(f"a file group of {partition} is missing", file=f"{METADATA_DIR}/{partition}")
    return tuple(by_number[number] for number in range(len(slices)))


def _tagged(partition: str, keys: Sequence[str], groups: int) -> list[tuple[int, str]]:
    """The file group of every key. Older secondary indexes hashed the whole key, so both file groups are read."""
    numbers = file_group_indexes(keys, groups).tolist()
    tagged = list(zip(numbers, keys, strict=True))
    if partition.startswith(SECONDARY_INDEX_PREFIX) and groups > 1:
        by_value = file_group_indexes([secondary_hash_part(key) for key in keys], groups).tolist()
        tagged += [(n, key) for n, other, key in zip(by_value, numbers, keys, strict=True) if n != other]
    return tagged


def _live(records: Mapping[bytes, MetadataRecord]) -> Iterator[tuple[str, MetadataRecord]]:
    """Records under their key as text, without records that only mark a deletion."""
    return ((key.decode(), record) for key, record in records.items() if not getattr(record, "is_deleted", False))


def _stats(record: ColumnStatsRecord) -> ColumnStats:
    """Statistics over no values are those of a log that holds deletes only, and give no bounds of its rows."""
    if not record.value_count:
        return ColumnStats()
    low, high = record.bounds
    return ColumnStats(_python(low), _python(high), record.null_count, record.value_count)


def _python(scalar: Any) -> Any:
    """A bound as a Python value; one that Python cannot represent (a year after 9999) is unknown."""
    if scalar is None:
        return None
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None
