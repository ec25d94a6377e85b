"""Plans a read: query type and time to file slices, with a count of what was pruned and why.

    timeline ──► view (slices at a completion time) ──► pruning (partitions, buckets, time) ──► splits

A plan is a value: it can be explained, counted or executed, and lists what it left out. Its times are resolved before
(`read/time_range`); an incremental query answers with the merged state at the end of its range.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from lakebed.config.read_options import ReadOptions
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Predicate
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import ReaderContext, ReadSplit
from lakebed.metadata.metadata_table import MetadataTable
from lakebed.model.files import FileSlice
from lakebed.read.time_range import TimeRange, require_known
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileLister, FileSystemView, StorageLister
from lakebed.view.pruning import PruneReport, prune_buckets, prune_partitions

FILES_PARTITION = "files"


class Query(StrEnum):
    """The kind of query that a scan runs."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
    INCREMENTAL = "incremental"


def query_named(name: str) -> Query:
    """The query of that name; Hudi's spellings are accepted."""
    try:
        return Query(name.replace("-", "_").lower())
    except (ValueError, AttributeError):
        known = ", ".join(f'"{query}"' for query in (Query.SNAPSHOT, Query.READ_OPTIMIZED))
        raise InvalidRequest(f"there is no query {name!r}", hint=f"Use one of {known}, or t.incremental().") from None


@dataclass(frozen=True, slots=True)
class Plan:
    """Which slices are read and how; what was left out and why."""

    reader: FileGroupReader
    splits: tuple[ReadSplit, ...]
    query: Query
    time: TimeRange
    listing: str
    report: PruneReport
    schema: pa.Schema
    slices_found: int = 0
    notes: tuple[str, ...] = field(default=())
    client: MetaClient | None = field(default=None, repr=False)

    @property
    def schema_is_stable(self) -> bool:
        """Every write in the active timeline had the present schema, and nothing was archived.

        Evaluated only where it saves work: it reads every commit of the active timeline.
        """
        return self.client is not None and self.reader.reader_context.on_read is None and _schema_is_stable(self.client)

    def explain(self) -> str:
        """The plan in words, one fact a line."""
        reader_context = self.reader.reader_context
        when = f"as of completion time {self.time.at}" if self.time.at else "now"
        if self.query is Query.INCREMENTAL:
            when = f"rows committed in ({self.time.start}, {self.time.at or 'now'}]"
        logs = sum(len(split.slice.log_files) for split in self.splits)
        bases = sum(split.slice.base_file is not None for split in self.splits)
        lines = [
            f"{self.query} query, {when}",
            f"listing: {self.listing}",
            *self.report.lines(),
            f"reads {len(self.splits)} of {self.slices_found} slices: {bases} base files, {logs} log files, "
            f"{sum(split.slice.size for split in self.splits)} bytes",
            f"columns: {len(self.schema)} of {len(reader_context.schema)}",
            *self.reader.describe(self.splits),
            *self.notes,
        ]
        return "\n".join(lines)


def plan_read(
    client: MetaClient,
    reader_context: ReaderContext,
    query: Query,
    time: TimeRange,
    columns: Sequence[str] | None,
    predicate: Predicate | None,
    options: ReadOptions,
) -> Plan:
    """The slices that a query must read."""
    schema = output_schema(reader_context.schema, columns)
    lister, listing = choose_lister(client, options)
    view = FileSystemView.of(client, lister)
    report = PruneReport()
    partitions = view.partitions() if time.commits is None or time.commits else ()
    if predicate is not None and options.data_skipping:
        partitions = prune_partitions(partitions, predicate, client.config, reader_context.schema, report)
    slices_at = view.read_optimized_slices if query is Query.READ_OPTIMIZED else view.slices
    found: list[FileSlice] = []
    for partition in partitions:
        found.extend(slices_at(partition, time.at))
    total = len(found)
    if predicate is not None and options.data_skipping:
        found = list(prune_buckets(found, predicate, client.config, report))
    if time.commits is not None:
        found = _touched(client, found, time, report)
    reader = FileGroupReader(
        storage=client.storage,
        reader_context=reader_context,
        options=options,
        schema=schema,
        predicate=predicate,
        commits=time.commits,
        committed=_appended(client, found, time),
    )
    splits = tuple(ReadSplit(file_slice) for file_slice in found)
    return Plan(reader, splits, query, time, listing, report, schema, total, _notes(reader, found), client)


def _appended(client: MetaClient, slices: Sequence[FileSlice], time: TimeRange) -> frozenset[str]:
    """The writes that count in logs of tables from before version 8, to which several were appended."""
    shared = client.config.has_shared_logs and any(map(_bears_its_base, slices))
    return client.writes_within(None, time.at) if shared else frozenset()


def _bears_its_base(file_slice: FileSlice) -> bool:
    """Whether a log has the requested time of the base file: that does not show when it was written."""
    return file_slice.base_file is not None and any(
        log.requested_time == file_slice.base_file.requested_time for log in file_slice.log_files
    )


def _notes(reader: FileGroupReader, slices: Sequence[FileSlice]) -> tuple[str, ...]:
    plain = sum(file_slice.base_file is not None and reader.prunes_row_groups(file_slice) for file_slice in slices)
    return (f"row groups of {plain} base files without logs are ruled out by their statistics",) if plain else ()


def _schema_is_stable(client: MetaClient) -> bool:
    texts = set()
    for instant in client.completed_writes():
        commit = client.commit(instant.requested_time)
        if commit is not None and commit.schema_json:
            texts.add(commit.schema_json)
    return len(texts) == 1 and client.history.is_empty


def output_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The requested columns in the requested order."""
    if columns is None:
        return schema
    fields = []
    for name in columns:
        index = schema.get_field_index(name) if isinstance(name, str) else -1
        if index < 0:
            near = difflib.get_close_matches(str(name), schema.names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"The columns are: {', '.join(schema.names)}."
            raise InvalidRequest(f"the table has no column {name!r}", hint=hint)
        fields.append(schema.field(index))
    repeated = {name for name in columns if list(columns).count(name) > 1}
    if repeated:
        raise InvalidRequest(f"columns requested twice: {', '.join(sorted(repeated))}")
    return pa.schema(fields)


def choose_lister(client: MetaClient, options: ReadOptions) -> tuple[FileLister | None, str]:
    """The metadata table's `files` partition when the table keeps one, else listings of its folders."""
    if options.use_metadata_table and FILES_PARTITION in client.config.metadata_partitions:
        return MetadataTable.open(client), "metadata table (files partition)"
    return StorageLister(client.storage), "storage folders"


def _touched(client: MetaClient, slices: list[FileSlice], time: TimeRange, report: PruneReport) -> list[FileSlice]:
    """Slices with a file of a write in the range: no other can hold a row that was committed in it.

    Old logs may hold later writes than the one they are named by.
    """
    commits, shared = time.commits or frozenset(), client.config.has_shared_logs
    require_known(client, time, {file.requested_time for file_slice in slices for file in file_slice.files})
    kept = []
    for file_slice in slices:
        is_old = _bears_its_base(file_slice) or (shared and file_slice.log_files)
        if is_old or any(file.requested_time in commits for file in file_slice.files):
            kept.append(file_slice)
        else:
            report.slice("unchanged in the range", file_slice)
    return kept
