"""Rewriting the rows of several slices into new files: the work of one group of a clustering plan.

    LSM layout      slices, each merged ──► k-way merge by key, nothing folded ──► sorted files, each with its key range
    default layout  slices, each merged ──► sort by keys made of the columns, on disk past the memory ──► files

Rows keep the commit time and sequence number of the write that brought them, and their key. A key that two file groups
hold (inserts look nothing up) stays there twice: its second row goes to another file, for in a sorted file keys ascend.
When buckets are resized every row goes to the file of its bucket instead, in the same order.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.memory_plan import ClusteringMemory, MemoryPlan
from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import WriteOptions
from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.writers import BaseFileWriter, FileSchema, RollingBaseWriter, WriteTarget, without_place
from lakebed.format.names import MarkerType
from lakebed.index.consistent_ring import Buckets
from lakebed.index.kinds import wants_bloom_filters
from lakebed.merge.arrow_numpy import Ints, bool_array, truths
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.reader_context import LSM_TREE, ReaderContext, ReadSplit
from lakebed.merge.record_merger import MergeRule
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import open_sources, work_share
from lakebed.merge.spill import Spill, mixed_batches
from lakebed.merge.window import RunFacts
from lakebed.merge.window_merge import order_of
from lakebed.merge.windows import windows
from lakebed.model.actions import WriteStat
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.schema import OPERATION as OPERATION_FIELD
from lakebed.model.schema import RECORD_KEY, without_meta_fields
from lakebed.services.clustering_order import RowOrdering, with_keys
from lakebed.services.resize import BucketOutputs
from lakebed.txn.transaction import Transaction
from lakebed.write.task.marking_storage import attempt_token, marking
from lakebed.write.task.parallelism import Parallelism

SORT_KEY = "_lakebed_sort_key"


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Slices that are rewritten together."""

    number: int
    partition_path: str
    slices: tuple[FileSlice, ...]
    buckets: Buckets | None = None
    """Where rows go when buckets are resized."""


def rewriting_of(
    txn: Transaction,
    reader_context: ReaderContext,
    options: ClusteringOptions,
    properties: Mapping[str, str],
    memory: int,
    parallelism: Parallelism,
) -> Rewriting:
    """What all tasks of a run share."""
    config = txn.snapshot.config
    share = MemoryPlan(memory).clustering(parallelism.count)
    chosen = WriteOptions.from_properties(properties)
    wanted = without_place(reader_context.schema)
    ordered = bool(options.sort_columns) and reader_context.layout != LSM_TREE
    return Rewriting(
        FileGroupReader(txn.snapshot.storage, reader_context, ReadOptions(memory=share.reading), wanted),
        FileSchema.of_table(
            without_meta_fields(reader_context.schema),
            config.name,
            operation=OPERATION_FIELD in reader_context.schema.names,
            version=reader_context.schema_id,
        ),
        replace(
            chosen,
            max_file_size=options.target_file_size,
            write_buffer=parallelism.write_buffer(chosen, share.write_buffer, txn.snapshot.storage),
            row_group_size=min(chosen.row_group_size, share.row_group),
        ),
        txn.requested_time,
        RowOrdering(options.sort_columns, options.curve) if ordered else None,
        bloom_filter=wants_bloom_filters(config.index_type),
        populate_meta_fields=config.populate_meta_fields,
        memory=share,
    )


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How the tasks of one run read and write; picklable."""

    reader: FileGroupReader
    schema: FileSchema
    options: WriteOptions
    requested_time: str
    ordering: RowOrdering | None
    bloom_filter: bool
    populate_meta_fields: bool
    memory: ClusteringMemory

    def run(self, task: RewriteTask) -> list[WriteStat]:
        """Rewrite one group; what was written."""
        is_lsm = self.reader.reader_context.layout == LSM_TREE
        if task.buckets is None:
            outputs: _Outputs | BucketOutputs = _Outputs(self, task, is_sorted=is_lsm)
        else:
            is_sorted = is_lsm and not self._repeats_keys(task)
            fewer = self._shared_by(len(task.buckets.own))
            outputs = BucketOutputs(partial(fewer.open_output, task, 0, is_sorted), task.buckets)
        try:
            if is_lsm and isinstance(outputs, _Outputs):
                outputs.write_ascending(self._by_key(task))
            elif is_lsm:
                outputs.write(self._by_key(task))
            else:
                outputs.write(self._by_columns(task) if self.ordering is not None else self._as_they_are(task))
            return outputs.close()
        except BaseException:
            outputs.abort()
            raise

    def _shared_by(self, writers: int) -> Rewriting:
        """The same with several files written at once, in the memory of one."""
        options = self.options
        return replace(
            self,
            options=replace(
                options,
                write_buffer=options.write_buffer // writers,
                row_group_size=max(1, options.row_group_size // writers),
            ),
        )

    def _repeats_keys(self, task: RewriteTask) -> bool:
        """Whether a key is twice in the old buckets: only base files without the sorted mark can repeat one."""
        for file_slice in task.slices:
            if file_slice.base_file is None:
                continue
            with open_base_file(self.reader.storage, file_slice.base_file) as source:
                if source.is_sorted:
                    continue
            keys = replace(self, reader=replace(self.reader, schema=pa.schema([self.reader.schema.field(RECORD_KEY)])))
            last = None
            for batch in keys._by_key(replace(task, slices=(file_slice,))):
                column = batch.column(RECORD_KEY)
                if not batch.num_rows:
                    continue
                if (
                    column[0].as_py() == last
                    or pc.any(pc.equal(column.slice(1), column.slice(0, len(column) - 1))).as_py()
                ):
                    return True
                last = column[-1].as_py()
        return False

    def _as_they_are(self, task: RewriteTask) -> Iterator[pa.RecordBatch]:
        for file_slice in task.slices:
            yield from self.reader.read(ReadSplit(file_slice))

    def _by_columns(self, task: RewriteTask) -> Iterator[pa.RecordBatch]:
        """All rows by their sort keys; slices are read one after the other."""
        assert self.ordering is not None
        sorted_by = pa.schema([self.reader.reader_context.schema.field(name) for name in self.ordering.columns])
        narrow = replace(self.reader, schema=sorted_by)
        ordering = self.ordering.learned(
            batch for file_slice in task.slices for batch in narrow.read(ReadSplit(file_slice))
        )

        def opened(file_slice: FileSlice, rows: int) -> Iterator[pa.RecordBatch]:
            return with_keys(_rows(self.reader, file_slice, rows), ordering, SORT_KEY)

        runs = [
            Run(age, is_sorted=False, open=partial(opened, file_slice), label=str(file_slice.file_group))
            for age, file_slice in enumerate(task.slices, 1)
        ]
        schema = self.reader.schema.append(pa.field(SORT_KEY, pa.binary()))
        for batch in _merged(runs, MergeRule(key=SORT_KEY), schema, self.memory.sorting.ceiling):
            yield batch.select(self.reader.schema.names)

    def _by_key(self, task: RewriteTask) -> Iterator[pa.RecordBatch]:
        """All rows by record key, from all slices at once."""
        reader = self.reader.with_share(len(task.slices))
        runs = [self._run(reader, age, file_slice) for age, file_slice in enumerate(task.slices, 1)]
        return _merged(runs, MergeRule(key=RECORD_KEY), self.reader.schema, self.memory.by_key(len(runs)).ceiling)

    def _run(self, reader: FileGroupReader, age: int, file_slice: FileSlice) -> Run:
        """A slice as one run of a merge by key. A base file without the sorted mark may repeat keys, with logs, too."""
        opened, base = partial(_rows, reader, file_slice), file_slice.base_file
        if base is None:
            return Run(age, is_sorted=True, open=opened, label=str(file_slice.file_group))
        with open_base_file(reader.storage, base) as source:
            is_sorted, row_bytes = source.is_sorted, source.row_bytes(reader.schema.names)
        return Run(age, is_sorted, opened, row_bytes=row_bytes, label=base.path)

    def open_output(self, task: RewriteTask, layer: int, is_sorted: bool, file_id: str) -> BaseFileWriter:
        group = FileGroupId(task.partition_path, file_id)
        return BaseFileWriter(
            marking(self.reader.storage, self.requested_time, MarkerType.CREATE),
            WriteTarget(group, self.requested_time, attempt_token(task.number, layer)),
            self.schema,
            self.options,
            is_sorted=is_sorted,
            bloom_filter=self.bloom_filter,
            populate_meta_fields=self.populate_meta_fields,
        )


def _rows(reader: FileGroupReader, file_slice: FileSlice, rows: int) -> Iterator[pa.RecordBatch]:
    fitted = replace(reader, options=replace(reader.options, batch_rows=min(rows, reader.options.batch_rows)))
    return fitted.read(ReadSplit(file_slice))


def _merged(runs: list[Run], rule: MergeRule, schema: pa.Schema, memory: int) -> Iterator[pa.RecordBatch]:
    """All rows of all runs by key, nothing folded."""
    facts = RunFacts(runs, rule, schema)
    with Spill() as spill:
        sources = open_sources(runs, facts, spill, memory=memory, read_buffer=memory)
        for source in sources:
            source.fill()
        for window in windows(sources, facts, most_bytes=work_share(memory)):
            yield from mixed_batches(window, order_of(window).order, schema)


class _Outputs:
    """The files of one task: one after the other, and beside them those for rows whose key is there already."""

    def __init__(self, rewriting: Rewriting, task: RewriteTask, *, is_sorted: bool) -> None:
        self._rewriting = rewriting
        self._task = task
        self._is_sorted = is_sorted
        self._layers: list[RollingBaseWriter] = []
        self._last: str | None = None
        self._repeats = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            self._layer(0).write(batch, inserts=batch.num_rows)

    def write_ascending(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Rows by key; the n-th row of a key goes to the n-th layer."""
        for batch in batches:
            if not batch.num_rows:
                continue
            counts = self._counts(batch.column(RECORD_KEY))
            for layer in range(int(counts.max()) + 1):
                part = batch if not counts.any() else batch.filter(bool_array(counts == layer))
                if part.num_rows:
                    self._layer(layer).write(part, inserts=part.num_rows)

    def _counts(self, keys: pa.Array) -> Ints:
        """By row, how many rows of the same key came before."""
        same = np.zeros(len(keys), np.bool_)
        same[1:] = truths(pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)))
        positions = np.arange(len(keys))
        starts = np.maximum.accumulate(np.where(same, 0, positions))
        counts: Ints = positions - starts
        if keys[0].as_py() == self._last:
            counts[starts == 0] += self._repeats + 1
        self._last, self._repeats = keys[-1].as_py(), int(counts[-1])
        return counts

    def _layer(self, number: int) -> RollingBaseWriter:
        while len(self._layers) <= number:
            opened = partial(self._open, f"{uuid.uuid4()}", len(self._layers))
            self._layers.append(RollingBaseWriter(opened, self._rewriting.options))
        return self._layers[number]

    def _open(self, stem: str, layer: int, number: int) -> BaseFileWriter:
        return self._rewriting.open_output(self._task, layer, self._is_sorted, f"{stem}-{number}")

    def close(self) -> list[WriteStat]:
        return [file.stat for layer in self._layers for file in layer.close()]

    def abort(self) -> None:
        for layer in self._layers:
            layer.abort()
