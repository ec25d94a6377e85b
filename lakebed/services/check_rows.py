"""Rows against names: files are sorted and marked as they say, and a key is in one place.

    per file    order, uniqueness and footer marks (datafile/sorted_check); log headers agree with the file's name
    per slice   the keys of the merged rows: of the right bucket, of the right partition
    per group   no key in two groups of a partition, which would be two rows for one key

This reads every key of the table once, and the key and partition columns only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.read_options import ReadOptions
from lakebed.datafile.log_file import open_log_file
from lakebed.datafile.sorted_check import check_sorted_file
from lakebed.errors import CorruptTable, InvalidRequest, LakebedError, UnsupportedFormat
from lakebed.index.bucket import bucket_of_file_id
from lakebed.index.options import IndexOptions
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import LSM_TREE, ReadSplit
from lakebed.model.bucket_hash import bucket_ids
from lakebed.model.files import BaseFile, FileSlice, LogFile
from lakebed.model.finding import Finding, Severity
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.read.reader_context import keyed_reader_context
from lakebed.runner import Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView

READABLE = "file is readable"
LOG_NAMES = "log blocks belong to their file"
BUCKETS = "keys are in their bucket"
PLACES = "rows are in their partition"
UNIQUE = "a key is in one file group"

SAMPLE = 10_000
"""Keys per file group that are hashed to see whether they are in their bucket."""
_REWRITE = "Delete the key and insert the row anew, or rewrite the partition (overwrite_partitions)."
_RESTORE = "Bring the file back from a copy, or roll the table back to a savepoint."


@dataclass(frozen=True, slots=True)
class _Checked:
    """What the look at one slice gave: findings, and its keys for the comparison with other groups."""

    file_slice: FileSlice
    findings: tuple[Finding, ...]
    keys: pa.ChunkedArray | None = None


def check_rows(client: MetaClient, runner: Runner, options: ReadOptions) -> Iterator[Finding]:
    """Everything that takes a look into data files."""
    reader_context = keyed_reader_context(client)
    view = FileSystemView.of(client)
    names = [name for name in (RECORD_KEY, PARTITION_PATH) if name in reader_context.schema.names]
    schema = pa.schema([reader_context.schema.field(name) for name in names])
    reader = FileGroupReader(client.storage, reader_context, options, schema)
    task = _Task(reader, _buckets(client), client.config.key_fields)
    for partition in view.partitions():
        slices, whole = _slices(view, partition)
        checked = list(runner.map(task.check, slices, label="check"))
        for one in checked:
            yield from one.findings
        if whole:
            yield from _check_unique(client, checked)


def _slices(view: FileSystemView, partition: str) -> tuple[Sequence[FileSlice], bool]:
    """The slices that a snapshot reads; where files are lost, what is left of them."""
    try:
        return view.slices(partition), True
    except CorruptTable:
        groups = (group for group in view.file_groups(partition) if group.replaced_at is None)
        return [group.slices[-1] for group in groups], False


@dataclass(frozen=True, slots=True)
class _Task:
    reader: FileGroupReader
    buckets: IndexOptions | None
    key_fields: tuple[str, ...] = ()

    def check(self, file_slice: FileSlice) -> _Checked:
        findings = [finding for file in file_slice.files for finding in self._check_file(file, file_slice)]
        if any(finding.severity is Severity.ERROR for finding in findings) or not len(self.reader.schema):
            return _Checked(file_slice, tuple(findings))  # what is out of order cannot be merged by order
        try:
            batches = list(self.reader.read(ReadSplit(file_slice)))
        except (CorruptTable, UnsupportedFormat, InvalidRequest) as error:
            finding = Finding(READABLE, Severity.ERROR, error.file or file_slice.files[0].path, error.what, _RESTORE)
            return _Checked(file_slice, (finding,))
        table = pa.Table.from_batches(batches, self.reader.schema)
        findings += [*self._check_places(file_slice, table), *self._check_buckets(file_slice, table)]
        keys = table.column(RECORD_KEY) if RECORD_KEY in table.schema.names else None
        return _Checked(file_slice, tuple(findings), keys)

    def _check_file(self, file: BaseFile | LogFile, file_slice: FileSlice) -> Iterator[Finding]:
        storage, is_lsm = self.reader.storage, self.reader.reader_context.layout == LSM_TREE
        generator = self.reader.reader_context.virtual_key
        yield from check_sorted_file(storage, file.path, require_mark=is_lsm, generator=generator)
        if isinstance(file, LogFile):
            try:
                blocks = open_log_file(storage, file).blocks
            except (LakebedError, FileNotFoundError):
                return  # reported already
            if file_slice.base_file is not None and file_slice.base_file.requested_time == file.requested_time:
                return  # an update of a bucket while it was made, named after that
            for block in blocks:
                if block.requested_time and block.requested_time != file.requested_time:
                    what = f"a block says it was written by {block.requested_time}, the name says {file.requested_time}"
                    yield Finding(LOG_NAMES, Severity.ERROR, file.path, what, _RESTORE)

    def _check_places(self, file_slice: FileSlice, table: pa.Table) -> Iterator[Finding]:
        if PARTITION_PATH not in table.schema.names or not table.num_rows:
            return
        own = file_slice.file_group.partition_path
        wrong = pc.sum(pc.fill_null(pc.not_equal(table.column(PARTITION_PATH), own), True)).as_py() or 0
        if wrong:
            what = f"{wrong} rows say that they are in another partition"
            yield Finding(PLACES, Severity.ERROR, file_slice.files[0].path, what, _REWRITE)

    def _check_buckets(self, file_slice: FileSlice, table: pa.Table) -> Iterator[Finding]:
        chosen, bucket = self.buckets, bucket_of_file_id(file_slice.file_group.file_id)
        if chosen is None or chosen.num_buckets is None or not table.num_rows:
            return
        if bucket is None:
            what = "the file group was not written by a bucket index"
            yield Finding(BUCKETS, Severity.ERROR, file_slice.files[0].path, what, _REWRITE)
            return
        step = max(1, table.num_rows // SAMPLE)
        rows = pa.array(np.arange(0, table.num_rows, step))
        keys = table.column(RECORD_KEY).take(rows)
        fields = self.key_fields
        wanted = np.asarray(bucket_ids(keys, chosen.num_buckets, chosen.hash_fields or fields, fields))
        wrong = np.flatnonzero(wanted != bucket)
        if len(wrong):
            first = int(wrong[0])
            what = f"{keys[first].as_py()!r} and {len(wrong) - 1} more keys of {len(keys)} belong into bucket "
            what += f"{int(wanted[first])} and others, not {bucket}"
            yield Finding(BUCKETS, Severity.ERROR, file_slice.files[0].path, what, _REWRITE)


def _buckets(client: MetaClient) -> IndexOptions | None:
    """The bucket index of a table whose buckets are counted; on a ring the groups say themselves what they hold."""
    options = IndexOptions.from_properties(client.config.properties)
    return options if options.is_simple_bucket else None


def _check_unique(client: MetaClient, checked: Sequence[_Checked]) -> Iterator[Finding]:
    """Keys of a partition that two groups hold. Plain inserts may repeat keys, where no order forbids it."""
    held = [one for one in checked if one.keys is not None and len(one.keys)]
    if len(held) < 2 or not client.config.key_fields:
        return
    groups = np.repeat(np.arange(len(held)), [len(one.keys) for one in held if one.keys is not None])
    keys = pa.chunked_array([chunk for one in held if one.keys is not None for chunk in one.keys.chunks])
    pairs = pa.table({"key": keys, "group": groups})
    first = pairs.group_by("key").aggregate([("group", "min"), ("group", "max")])
    twice = first.filter(pc.not_equal(first.column("group_min"), first.column("group_max")))
    if not twice.num_rows:
        return
    strict = client.config.is_lsm_tree or _buckets(client) is not None
    severity = Severity.ERROR if strict else Severity.WARNING
    example: Mapping[str, object] = twice.slice(0, 1).to_pylist()[0]
    one, other = held[int(str(example["group_min"]))].file_slice, held[int(str(example["group_max"]))].file_slice
    what = f"{twice.num_rows} keys, such as {example['key']!r}, are also in the file group {other.file_group.file_id}"
    yield Finding(UNIQUE, severity, one.files[0].path, what, _REWRITE)
