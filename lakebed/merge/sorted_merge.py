"""The streaming k-way merge: sorted runs in, one sorted stream of merged batches out, in bounded memory.

    runs, oldest first -> sources (a window buffered in front of each) -> windows cut at the watermark
                       -> row order -> fold of repeated keys -> batches

Runs that are not sorted are sorted first, neighbours together. Half of the memory is shared among the buffers of the k
sources, the rest is for the window being merged and its output. When that leaves too little for each, neighbouring logs
are merged into one in a pass of their own; nothing is folded there, so the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.config.memory_plan import READ_BUFFER, RUN_OVERHEAD, SMALLEST_WINDOW, MergeMemory
from lakebed.errors import CorruptTable, InvalidRequest
from lakebed.merge.materialise import output_schema, slice_out
from lakebed.merge.record_merger import MergeRule, require_among_logs
from lakebed.merge.runs import RUN_COLUMN, Run, in_fold_order
from lakebed.merge.spill import Spill, mixed_batches, small_batches, sort_runs
from lakebed.merge.window import RunFacts
from lakebed.merge.window_merge import WindowMerge, order_of
from lakebed.merge.windows import Source, guess_row_bytes, windows
from lakebed.model.concat import LARGEST_COLUMN, is_wider, narrowed


def sorted_merge(
    runs: Sequence[Run],
    rule: MergeRule,
    schema: pa.Schema,
    *,
    memory: int,
    read_buffer: int = READ_BUFFER,
    keep_deletes: bool = False,
    encoded: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Merge the runs of a file group by key.

    The output has the columns of `schema`, sorted by key. With `keep_deletes` (log compaction) tombstones are kept,
    marked in `_lakebed_op`, with their ordering columns; a key then comes twice only as an unconditional delete and the
    row or tombstone that followed it. A base file alone passes through as it is. With `encoded`, text that was read
    dictionary-encoded is output so, in some batches and not in others: for writers, which need not hash it again.
    """
    ordered = in_fold_order(runs)
    if keep_deletes and not any(run.is_base for run in ordered):
        require_among_logs(ordered, rule)
    facts = RunFacts(ordered, rule, schema)
    with Spill() as spill:
        if len(ordered) == 1 and ordered[0].is_base and not keep_deletes:
            yield from _untouched(ordered[0], facts, min(read_buffer, MergeMemory(memory).untouched))
            return
        sources = open_sources(ordered, facts, spill, memory=memory, read_buffer=read_buffer, encoded=encoded)
        for source in sources:
            source.fill()
        wanted = _output_schema(facts, sources, keep_deletes)
        merge = WindowMerge(facts, wanted, keep_deletes=keep_deletes, encoded=encoded)
        for window in windows(sources, facts, most_bytes=work_share(memory)):
            yield from merge.merge(window)


def _untouched(run: Run, facts: RunFacts, window_bytes: int) -> Iterator[pa.RecordBatch]:
    """A base file without logs: whatever order and duplicates it has."""
    rows = max(1, window_bytes // (run.row_bytes or guess_row_bytes(facts.schema)))
    for batch in run.open(rows):
        batch = facts.conform(batch, 0)
        yield from narrowed(slice_out(batch, facts.schema), facts.schema)


def _output_schema(facts: RunFacts, sources: Sequence[Source], keep_deletes: bool) -> pa.Schema:
    def find(name: str) -> pa.Field:
        for source in sources:
            if source.schema is not None and source.schema.get_field_index(name) >= 0:
                return pa.field(name, source.schema.field(name).type)
        return pa.field(name, pa.string() if name == facts.rule.key else pa.null())

    rule = facts.rule
    return output_schema(facts.schema, find(rule.key), [find(name) for name in rule.ordering], keep_deletes)


def open_sources(
    ordered: Sequence[Run], facts: RunFacts, spill: Spill, *, memory: int, read_buffer: int, encoded: bool = False
) -> list[Source]:
    """A source per sorted run or sorted piece, oldest first, few enough for the memory limit.

    With `encoded`, text that repeats is dictionary-encoded where rows are sorted anyway.
    """
    if memory <= 0 or read_buffer <= 0:
        raise InvalidRequest("memory and read_buffer must be positive numbers of bytes")
    shares = MergeMemory(memory)
    numbered = list(enumerate(ordered))
    plans: list[_Plan] = []
    sorted_bytes = 0
    at = 0
    while at < len(numbered):
        number, run = numbered[at]
        if run.is_sorted:
            plans.append(
                _Plan(
                    number,
                    run.open,
                    run.row_bytes,
                    trusted=True,
                    unique=True,
                    name=run.name,
                    group_rows=run.group_rows,
                )
            )
            at += 1
            continue
        end = at  # neighbouring unsorted runs are sorted together, the base on its own: its rows are many
        while end < len(numbered) and not numbered[end][1].is_sorted and (end == at or not run.is_base):
            end += 1
        names = ", ".join(run.name for _, run in numbered[at:end][:3])
        buffer, keep = shares.sort_buffer, shares.sorted_kept(sorted_bytes)
        size = sum(run.nbytes if run.nbytes is not None else memory for _, run in numbered[at:end])
        if shares.sorts_at_once(size, sorted_bytes):
            buffer = keep = memory
        for row_range in sort_runs(
            numbered[at:end], facts, spill, buffer_bytes=buffer, keep_bytes=keep, encoded=encoded
        ):
            sorted_bytes += row_range.nbytes
            plans.append(
                _Plan(None, row_range.open, row_range.row_bytes, trusted=False, unique=row_range.unique, name=names)
            )
        at = end
    while len(plans) > shares.fan_in:
        plans = _one_level(plans, facts, spill, shares.fan_in, memory)
    return _open(plans, facts, memory, read_buffer, encoded=True)


def work_share(memory: int) -> int:
    """Bytes for the window being merged; its columns are joined, and must not outgrow Arrow's 32-bit offsets."""
    return min(MergeMemory(memory).window, LARGEST_COLUMN)


def _open(
    plans: Sequence[_Plan], facts: RunFacts, memory: int, read_buffer: int, *, encoded: bool = False
) -> list[Source]:
    """Open sources; the base gets its full read buffer first, for its rows are the most."""
    with_base = plans[0].is_base(facts) if plans else False
    shares = MergeMemory(memory)
    base = min(read_buffer, shares.base_source) if with_base else 0
    log = min(read_buffer, shares.log_source(len(plans) - with_base, base))
    return [plan.open_source(facts, max(1, base if plan.is_base(facts) else log), encoded) for plan in plans]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A source not opened yet."""

    number: int | None
    open_rows: Callable[[int], Iterator[pa.RecordBatch]]
    row_bytes: int | None
    trusted: bool
    unique: bool
    name: str
    group_rows: int | None = None

    def is_base(self, facts: RunFacts) -> bool:
        return self.number is not None and bool(facts.is_base[self.number])

    def open_source(self, facts: RunFacts, window_bytes: int, encoded: bool) -> Source:
        row_bytes = self.row_bytes or guess_row_bytes(facts.schema)
        together = (self.group_rows or 0) * row_bytes
        if SMALLEST_WINDOW <= together <= RUN_OVERHEAD:
            window_bytes = together  # a row group in pieces keeps its decoders, which take as much as its rows
        return Source(
            self.open_rows,
            facts,
            self.number,
            name=self.name,
            trusted=self.trusted,
            unique=self.unique,
            window_bytes=window_bytes,
            row_bytes=row_bytes,
            encoded=encoded,
        )


def _one_level(plans: list[_Plan], facts: RunFacts, spill: Spill, fan_in: int, memory: int) -> list[_Plan]:
    """Merge neighbouring logs, oldest first, until few enough are left or each went through one merge."""
    first = int(plans[0].is_base(facts))
    done, waiting = plans[:first], plans[first:]
    while waiting and len(done) + len(waiting) > fan_in:
        count = min(fan_in, max(2, len(done) + len(waiting) - fan_in + 1))
        group, waiting = waiting[:count], waiting[count:]
        done.append(_merged(group, facts, spill, memory) if len(group) > 1 else group[0])
    return done + waiting


def _merged(chosen: list[_Plan], facts: RunFacts, spill: Spill, memory: int) -> _Plan:
    """Neighbouring sources as one, on disk: all rows by (key, age), each with its run's number, nothing folded."""
    sources = _open(chosen, facts, memory, READ_BUFFER)
    for source in sources:
        source.fill()
    fields: dict[str, pa.Field] = {}
    for source in sources:
        for field in source.schema or ():
            known = fields.setdefault(field.name, pa.field(field.name, field.type))
            if pa.types.is_null(known.type) or is_wider(known.type, field.type):
                fields[field.name] = pa.field(field.name, field.type)
            elif known.type != field.type and not (pa.types.is_null(field.type) or is_wider(field.type, known.type)):
                raise CorruptTable(f"column {field.name} is {known.type} and {field.type}", file=chosen[0].name)
    fields[RUN_COLUMN] = pa.field(RUN_COLUMN, pa.int32())
    schema = pa.schema(list(fields.values()))
    row_bytes = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal row_bytes
        for window in windows(sources, facts, most_bytes=work_share(memory)):
            for batch in mixed_batches(window, order_of(window).order, schema):
                row_bytes = max(row_bytes, batch.nbytes // max(batch.num_rows, 1))
                yield from small_batches(batch)

    reopened = spill.write(batches())
    return _Plan(None, reopened, row_bytes or None, trusted=False, unique=False, name=chosen[0].name)
