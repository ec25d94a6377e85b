"""Log compaction (RFC-48): small logs of a file group become one log, and no answer changes.

    live logs of a slice, in fold order     A  B  L1  C  D  …        (what L1 merged before does not count any more)
    consecutive small ones, none skipped       └──────┘
    merged, tombstones kept                    one log, named after the log compaction, whose header states that it
                                               replaces B, L1's originals and C; it has the place in fold order of C

Tables of the LSM layout merge their runs by the sorted merge, others by the hash merge; either gives rows in key order.
Partial updates are merged with their neighbours of the same columns, and stay partial.

What is not merged: logs newer than the oldest write under way, whose log would otherwise fall into the middle of the
merged ones later; logs that a compaction will take, which are merged by that; logs with an older requested time than
the base file, whose merged log would seem to be in the base file. Readers of versions 8 and 9 that do not look at
COMPACTED_BLOCK_TIMES (older Hudi) read the originals first and the merged log at its own instant: there it is only
right if it reaches up to the newest log. Rows keep their commit time and sequence number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from lakebed.config.memory_plan import MemoryPlan
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.fold_order import covered_by
from lakebed.datafile.log_file import open_log_file
from lakebed.datafile.log_scan import LogRun
from lakebed.datafile.log_writer import LogSpec, LogWriter
from lakebed.datafile.log_writer_v1 import InlineLogWriter
from lakebed.datafile.log_writer_v2 import NativeLogWriter
from lakebed.datafile.writers import FileSchema, WriteTarget
from lakebed.format.names import HEARTBEAT_DIR, MarkerType, is_instant_time
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.reader_context import LSM_TREE
from lakebed.merge.record_merger import MergeRule, why_not_partial
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.model.actions import WriteStat
from lakebed.model.files import FileSlice, LogFile, LogKind
from lakebed.model.instant import Action
from lakebed.model.schema import OPERATION as OPERATION_FIELD
from lakebed.model.schema import without_meta_fields
from lakebed.paths import file_name
from lakebed.services.compaction_strategy import LogState
from lakebed.timeline.clock import comparable
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.task.marking_storage import attempt_token, marking
from lakebed.write.task.meta_columns import log_rows

EXECUTION = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
"""The strategy that Hudi's plans of log compactions name."""
_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


# ---------------------------------------------------------------------- planning
def oldest_pending(client: MetaClient, own: str) -> str | None:
    """The oldest requested time of a write under way, also of one that is claimed and not on the timeline yet."""
    clusterings = {instant.requested_time for instant, _ in client.pending_clusterings()}
    pending = {i.requested_time for i in client.timeline.pending.of_actions(*_WRITES)} - clusterings
    for info in client.storage.list(HEARTBEAT_DIR):
        claimed = is_instant_time(info.name) and info.name != own and not client.timeline.at(info.name)
        if claimed and not client.is_committed(info.name):
            pending.add(info.name)
    return min(pending, key=comparable, default=None)


def live_logs(
    reader: FileGroupReader, file_slice: FileSlice, *, planned: Iterable[str], opened: str | None, pending: str | None
) -> tuple[LogState, ...]:
    """The deltas of a slice that readers merge, oldest first, each with the reason why it must stay, if there is one.

    `planned` are the names of logs that a compaction will take, `opened` is the requested time of the newest compaction
    that is planned, `pending` the oldest requested time of a write under way.
    """
    taken = frozenset(planned)
    base = file_slice.base_file
    floor = max(filter(None, (base.requested_time if base else None, opened)), key=comparable, default=None)
    mixed = _of_several_instants(file_slice, runs := reader.scan(file_slice).runs)
    found: list[LogState] = []
    for instant, blocks in groupby(runs, key=lambda run: run.requested_time):
        mine = tuple(blocks)
        files = tuple(log for log in file_slice.log_files if log.path in {run.block.file for run in mine})
        names = tuple(log.name for log in files)
        newest = mine[0].stands_at
        brings, stays = _brought(reader, mine)
        if mixed.intersection(names):
            stays = "a log file holds blocks of several instants"
        elif taken.intersection(names):
            stays = "a compaction is planned for older ones"
        elif floor is not None and comparable(newest) < comparable(floor):
            stays = "a write began before the base file and completed after it"
        elif pending is not None and comparable(pending) < comparable(newest):
            stays = f"the write {pending} is under way"
        found.append(LogState(instant, sum(log.size for log in files), names, stays, brings))
    return tuple(found)


def _brought(reader: FileGroupReader, runs: Sequence[LogRun]) -> tuple[frozenset[str] | None, str | None]:
    """The columns of a partial update, None for whole rows, and why its logs cannot be folded by themselves."""
    if not any(run.is_partial for run in runs):
        return None, None
    brought = {reader.brought_by(run) if run.is_partial else None for run in runs if not run.is_delete}
    stays = why_not_partial(reader.reader_context.rule, brought, deletes=any(run.is_delete for run in runs))
    return next(iter(brought), None), stays


def _of_several_instants(file_slice: FileSlice, runs: Sequence[LogRun]) -> frozenset[str]:
    instants = {log.path: log.requested_time for log in file_slice.log_files}
    odd = {run.block.file for run in runs if run.block.requested_time != instants[run.block.file]}
    return frozenset(file_name(path) for path in odd)


# ---------------------------------------------------------------------- running
@dataclass(frozen=True, slots=True)
class MergeLogs:
    """Some logs of a slice to one log; picklable."""

    reader: FileGroupReader
    schema: FileSchema
    options: WriteOptions
    requested_time: str
    native: bool
    table_name: str
    populate_meta_fields: bool = True

    def run(self, number: int, file_slice: FileSlice, known: Sequence[LogFile]) -> list[WriteStat]:
        """Merge the logs of `file_slice`; `known` are all logs of the group, which earlier results may name."""
        logs = [log for log in file_slice.log_files if log.kind is not LogKind.CDC]
        alone = FileSlice(file_slice.file_group, file_slice.base_instant_time, None, tuple(logs))
        rule, options = self.reader.reader_context.rule, self.reader.options
        runs = self.reader.runs(alone, self.reader.schema)
        brings = next((run.brings for run in runs if run.is_partial), None)
        wanted = _only(self.reader.schema, brings)
        merge = sorted_merge if self.reader.reader_context.layout == LSM_TREE else hash_merge
        merged = merge(
            runs,
            rule,
            wanted,
            memory=MemoryPlan(options.memory).merge_of(len(runs)).ceiling,
            read_buffer=options.read_buffer,
            keep_deletes=True,
        )
        with self._open(number, file_slice, self._covered(alone, known), brings) as writer:
            for part in log_rows(merged, rule, wanted.names):
                if part.earlier.num_rows:
                    writer.write_earlier_deletes(part.earlier)
                for start in range(0, part.rows.num_rows, self.options.log_row_group_rows):
                    writer.write_rows(
                        part.rows.slice(start, self.options.log_row_group_rows)
                    )  # blocks end between these
                if part.deletes.num_rows:
                    writer.write_deletes(part.deletes)
            stats = [file.stat for file in writer.close()]
        size = sum(log.size for log in logs)
        first = [
            replace(stat, total_log_files_compacted=len(logs), total_log_size_compacted=size) for stat in stats[:1]
        ]
        return [*first, *stats[1:]]

    def _covered(self, file_slice: FileSlice, known: Sequence[LogFile]) -> tuple[str, ...]:
        runs = self.reader.scan(file_slice).runs
        blocks = [run.block for run in runs]
        if any(run.is_compacted for run in runs):
            files = (open_log_file(self.reader.storage, log) for log in known if log.kind is not LogKind.CDC)
            blocks = [block for file in files for block in file.blocks]
        return covered_by(blocks, {run.requested_time for run in runs})

    def _open(
        self, number: int, file_slice: FileSlice, covered: tuple[str, ...], brings: frozenset[str] | None
    ) -> LogWriter:
        reader_context = self.reader.reader_context
        is_partial = brings is not None
        spec = LogSpec(
            self._partial_schema(brings) if brings is not None else self.schema,
            tuple(reader_context.schema.field(name) for name in reader_context.rule.ordering),
            is_partial=is_partial,
            compacted_times=covered,
            has_earlier_deletes=is_partial or keeps_earlier_deletes(reader_context.rule),
            populate_meta_fields=self.populate_meta_fields,
        )
        target = WriteTarget(
            file_slice.file_group, self.requested_time, attempt_token(number), file_slice.base_instant_time
        )
        storage = marking(self.reader.storage, self.requested_time, MarkerType.CREATE)
        make = NativeLogWriter if self.native else InlineLogWriter
        return make(storage, target, spec, self.options)

    def _partial_schema(self, brings: frozenset[str]) -> FileSchema:
        own = without_meta_fields(_only(self.schema.arrow, brings))
        return FileSchema.of_table(
            own, self.table_name, operation=OPERATION_FIELD in brings, version=self.schema.version
        )


def _only(schema: pa.Schema, names: frozenset[str] | None) -> pa.Schema:
    return schema if names is None else pa.schema([item for item in schema if item.name in names])


def keeps_earlier_deletes(rule: MergeRule) -> bool:
    """Whether a delete that a row of the same key follows still matters: not where the last one always wins."""
    return rule.by_event_time or not rule.picks_whole_records
