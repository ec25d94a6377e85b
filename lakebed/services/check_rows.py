"""Rows against names: files are sorted and marked as they state, and a key is in one file group.

    per file    order, uniqueness and footer marks (datafile/sorted_check); log headers agree with the file's name
    per slice   the keys of the merged rows: of the right bucket, of the right partition
    per group   no key in two groups of a partition, which would be two rows for one key

This reads every key of the table once, and the key and partition columns only. Keys wait in bounded memory to be
compared (check_keys).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import CheckMemory, MemoryPlan
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
from lakebed.services.check_keys import KeysByGroup, Sample, count_repeats
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


def check_rows(client: MetaClient, runner: Runner, options: ReadOptions) -> Iterator[Finding]:
    """Everything that needs the content of data files."""
    reader_context = keyed_reader_context(client)
    view = FileSystemView.of(client)
    names = [name for name in (RECORD_KEY, PARTITION_PATH) if name in reader_context.schema.names]
    schema = pa.schema([reader_context.schema.field(name) for name in names])
    plan, at_once = MemoryPlan(options.memory), runner.at_once
    batch_rows = min(options.batch_rows, plan.check.batch_rows(at_once))
    own = replace(options, memory=plan.check.reader(at_once), batch_rows=batch_rows)
    reader = FileGroupReader(client.storage, reader_context, own, schema)
    file_share = MemoryPlan(plan.part(at_once)).check
    for partition in view.partitions():
        slices, whole = _slices(view, partition)
        with KeysByGroup(plan.check) as keys:
            kept = keys if whole and len(slices) > 1 and client.config.key_fields else None
            task = _Task(reader, file_share, kept, _buckets(client), client.config.key_fields)
            for findings in runner.map(task.check, list(enumerate(slices)), label="check"):
                yield from findings
            yield from _check_unique(client, slices, keys)


def _slices(view: FileSystemView, partition: str) -> tuple[Sequence[FileSlice], bool]:
    """The slices that a snapshot reads; where files are lost, what is left of them."""
    try:
        return view.slices(partition), True
    except CorruptTable:
        groups = (group for group in view.file_groups(partition) if group.replaced_at is None)
        return [group.slices[-1] for group in groups], False


@dataclass(frozen=True, slots=True)
class _Task:
    """The check of one slice, batch by batch; `keys` collects its keys for the comparison with other groups."""

    reader: FileGroupReader
    file_share: CheckMemory
    keys: KeysByGroup | None
    buckets: IndexOptions | None
    key_fields: tuple[str, ...] = ()

    def check(self, numbered: tuple[int, FileSlice]) -> list[Finding]:
        number, file_slice = numbered
        findings = [finding for file in file_slice.files for finding in self._check_file(file, file_slice)]
        if any(finding.severity is Severity.ERROR for finding in findings) or not len(self.reader.schema):
            return findings  # what is out of order cannot be merged by order
        rows = misplaced = 0
        sample, has_keys = Sample(SAMPLE), RECORD_KEY in self.reader.schema.names
        try:
            for batch in self.reader.read(ReadSplit(file_slice)):
                rows += batch.num_rows
                misplaced += _misplaced(batch, file_slice.file_group.partition_path)
                if has_keys and self.keys is not None:
                    self.keys.add(number, batch.column(RECORD_KEY))
                if has_keys and self.buckets is not None:
                    sample.add(batch.column(RECORD_KEY))
        except (CorruptTable, UnsupportedFormat, InvalidRequest) as error:
            if self.keys is not None:
                self.keys.leave_out(number)
            return [Finding(READABLE, Severity.ERROR, error.file or file_slice.files[0].path, error.what, _RESTORE)]
        if misplaced:
            what = f"{misplaced} rows have the partition path of another partition"
            findings.append(Finding(PLACES, Severity.ERROR, file_slice.files[0].path, what, _REWRITE))
        return [*findings, *(self._check_buckets(file_slice, sample.keys()) if rows else ())]

    def _check_file(self, file: BaseFile | LogFile, file_slice: FileSlice) -> Iterator[Finding]:
        storage, is_lsm = self.reader.storage, self.reader.reader_context.layout == LSM_TREE
        generator = self.reader.reader_context.virtual_key
        yield from check_sorted_file(
            storage,
            file.path,
            require_mark=is_lsm,
            generator=generator,
            count_repeats=partial(count_repeats, share=self.file_share),
        )
        if isinstance(file, LogFile):
            try:
                blocks = open_log_file(storage, file).blocks
            except (LakebedError, FileNotFoundError):
                return  # reported already
            if file_slice.base_file is not None and file_slice.base_file.requested_time == file.requested_time:
                return  # an update of a bucket during its resize, named after the resize
            for block in blocks:
                if block.requested_time and block.requested_time != file.requested_time:
                    what = f"a block was written by {block.requested_time}, the file name has {file.requested_time}"
                    yield Finding(LOG_NAMES, Severity.ERROR, file.path, what, _RESTORE)

    def _check_buckets(self, file_slice: FileSlice, keys: pa.Array) -> Iterator[Finding]:
        chosen, bucket = self.buckets, bucket_of_file_id(file_slice.file_group.file_id)
        if chosen is None or chosen.num_buckets is None:
            return
        if bucket is None:
            what = "the file group was not written by a bucket index"
            yield Finding(BUCKETS, Severity.ERROR, file_slice.files[0].path, what, _REWRITE)
            return
        fields = self.key_fields
        wanted = np.asarray(bucket_ids(keys, chosen.num_buckets, chosen.hash_fields or fields, fields))
        wrong = np.flatnonzero(wanted != bucket)
        if len(wrong):
            first = int(wrong[0])
            what = f"{keys[first].as_py()!r} and {len(wrong) - 1} more keys of {len(keys)} belong into bucket "
            what += f"{int(wanted[first])} and others, not {bucket}"
            yield Finding(BUCKETS, Severity.ERROR, file_slice.files[0].path, what, _REWRITE)


def _buckets(client: MetaClient) -> IndexOptions | None:
    """The bucket index of a table with a fixed number of buckets; None on a ring, where groups have hash ranges."""
    options = IndexOptions.from_properties(client.config.properties)
    return options if options.is_simple_bucket else None


def _misplaced(batch: pa.RecordBatch, own: str) -> int:
    """How many rows have another partition path than that of their folder."""
    if PARTITION_PATH not in batch.schema.names:
        return 0
    return pc.sum(pc.fill_null(pc.not_equal(batch.column(PARTITION_PATH), own), True)).as_py() or 0


def _check_unique(client: MetaClient, slices: Sequence[FileSlice], keys: KeysByGroup) -> Iterator[Finding]:
    """Keys of a partition that are in two groups: only a warning where plain inserts may have repeated them."""
    twice = keys.repeated()
    if twice is None:
        return
    strict = client.config.is_lsm_tree or _buckets(client) is not None
    severity = Severity.ERROR if strict else Severity.WARNING
    one, other = slices[twice.group], slices[twice.other]
    what = f"{twice.keys} keys, such as {twice.key!r}, are also in the file group {other.file_group.file_id}"
    yield Finding(UNIQUE, severity, one.files[0].path, what, _REWRITE)
