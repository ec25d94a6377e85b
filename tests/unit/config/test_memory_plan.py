"""How a ceiling is divided: the numbers themselves, and what holds for every ceiling."""

from __future__ import annotations

import ast
import inspect
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.config.memory_plan import (
    DEFAULT_MEMORY,
    DEFAULT_WRITE_MEMORY,
    LEAST_SCAN,
    LEAST_TASK,
    SMALLEST_WINDOW,
    BufferMemory,
    MemoryPlan,
    MergeMemory,
)
from lakebed.config.read_options import ReadOptions
from lakebed.write.job import WriteRequest
from lakebed.write.writer_context import writer_context

MB = 1 << 20
CEILINGS = st.integers(16 * MB, 1 << 40)
"""From where on no share is lifted to its least size."""
COUNTS = st.integers(1, 64)


# ---------------------------------------------------------------------- the numbers
def numbers(ceiling: int) -> dict[str, int]:
    plan = MemoryPlan(ceiling)
    write, task, merge = plan.write, plan.write.task(2), plan.merge
    compaction, clustering = plan.compaction(2), plan.clustering(2)
    return {
        "write.buffers": write.buffers,
        "write.part": BufferMemory(write.buffers).part,
        "write.stored_batch": BufferMemory(write.buffers).stored_batch,
        "write.tasks_at_once": write.tasks_at_once,
        "write.scan": write.scan,
        "write.source_rows": write.source_rows,
        "task.share": task.share,
        "task.merge": task.merge.ceiling,
        "task.row_group": task.row_group,
        "task.write_buffer": task.write_buffer,
        "task.buffers": task.buffers,
        "task.incoming_keys": task.merge.incoming_keys,
        "merge.sources": merge.sources,
        "merge.base_source": merge.base_source,
        "merge.log_source": merge.log_source(4, merge.base_source),
        "merge.window": merge.window,
        "merge.untouched": merge.untouched,
        "merge.sort_buffer": merge.sort_buffer,
        "merge.fan_in": merge.fan_in,
        "merge.log_versions": merge.log_versions,
        "merge_of(2)": plan.merge_of(2).ceiling,
        "merge_of(1000)": plan.merge_of(1000).ceiling,
        "part(8)": plan.part(8),
        "vectors.kept": plan.kept_vectors,
        "vectors.new": plan.new_vectors,
        "vectors.rows": plan.ordered_rows,
        "compactions_at_once": plan.compactions_at_once,
        "compaction.reading": compaction.reading,
        "compaction.row_group": compaction.row_group,
        "compaction.log_block": compaction.log_block,
        "compaction.write_buffer": compaction.write_buffer,
        "rewrites_at_once": plan.rewrites_at_once,
        "clustering.reading": clustering.reading,
        "clustering.sorting": clustering.sorting.ceiling,
        "clustering.by_key(2)": clustering.by_key(2).ceiling,
        "clustering.by_key(100)": clustering.by_key(100).ceiling,
        "clustering.row_group": clustering.row_group,
        "clustering.write_buffer": clustering.write_buffer,
    }


KB = 1 << 10
PINNED = {
    "write.buffers": (8 * MB, 32 * MB, 128 * MB),
    "write.part": (1 * MB, 4 * MB, 16 * MB),
    "write.stored_batch": (128 * KB, 512 * KB, 2 * MB),
    "write.tasks_at_once": (1, 4, 16),
    "write.scan": (16 * MB, 64 * MB, 256 * MB),
    "write.source_rows": (16 * MB, 64 * MB, 256 * MB),
    "task.share": (8 * MB, 32 * MB, 128 * MB),
    "task.merge": (4 * MB, 16 * MB, 64 * MB),
    "task.row_group": (2 * MB, 8 * MB, 32 * MB),
    "task.write_buffer": (1 * MB, 4 * MB, 16 * MB),
    "task.buffers": (2 * MB, 8 * MB, 32 * MB),
    "task.incoming_keys": (1 * MB, 4 * MB, 16 * MB),
    "merge.sources": (32 * MB, 128 * MB, 512 * MB),
    "merge.base_source": (6_710_886, 26_843_545, 107_374_182),
    "merge.log_source": (6_710_886, 26_843_545, 107_374_182),
    "merge.window": (11_184_810, 44_739_242, 178_956_970),
    "merge.untouched": (22_369_621, 89_478_485, 357_913_941),
    "merge.sort_buffer": (16 * MB, 64 * MB, 256 * MB),
    "merge.fan_in": (127, 511, 2047),
    "merge.log_versions": (32 * MB, 128 * MB, 512 * MB),
    "merge_of(2)": (24 * MB, 120 * MB, 504 * MB),
    "merge_of(1000)": (8 * MB, 32 * MB, 128 * MB),
    "part(8)": (8 * MB, 32 * MB, 128 * MB),
    "vectors.kept": (32 * MB, 128 * MB, 512 * MB),
    "vectors.new": (16 * MB, 64 * MB, 256 * MB),
    "vectors.rows": (8 * MB, 32 * MB, 128 * MB),
    "compactions_at_once": (1, 1, 4),
    "compaction.reading": (12 * MB, 48 * MB, 192 * MB),
    "compaction.row_group": (4 * MB, 16 * MB, 64 * MB),
    "compaction.log_block": (8 * MB, 32 * MB, 128 * MB),
    "compaction.write_buffer": (2 * MB, 8 * MB, 32 * MB),
    "rewrites_at_once": (2, 8, 32),
    "clustering.reading": (8 * MB, 32 * MB, 128 * MB),
    "clustering.sorting": (8 * MB, 32 * MB, 128 * MB),
    "clustering.by_key(2)": (2 * MB, 24 * MB, 120 * MB),
    "clustering.by_key(100)": (3 * MB // 2, 9 * MB // 2, 33 * MB // 2),
    "clustering.row_group": (4 * MB, 16 * MB, 64 * MB),
    "clustering.write_buffer": (2 * MB, 8 * MB, 32 * MB),
}


@pytest.mark.parametrize(("at", "ceiling"), list(enumerate([64 * MB, 256 * MB, 1024 * MB])))
def test_shares_are_what_they_were_measured_with(at: int, ceiling: int) -> None:
    assert numbers(ceiling) == {name: values[at] for name, values in PINNED.items()}


def test_tiny_ceilings_lift_shares_to_what_work_needs() -> None:
    plan = MemoryPlan(256 * KB)
    assert plan.write.task(4).share == LEAST_TASK
    assert (plan.write.scan, plan.write.lookup.keys, plan.check.reading) == (LEAST_SCAN, LEAST_SCAN, LEAST_SCAN)
    assert (plan.compaction(4).share, plan.clustering(4).share) == (2 * LEAST_TASK, 4 * LEAST_TASK)
    assert (plan.write.tasks_at_once, plan.compactions_at_once, plan.rewrites_at_once) == (1, 1, 1)


def test_one_default_for_each_kind_of_work() -> None:
    assert ReadOptions().memory == MemoryPlan().ceiling == DEFAULT_MEMORY == 512 * MB
    assert WriteRequest.__dataclass_fields__["memory"].default == DEFAULT_WRITE_MEMORY == 1024 * MB
    assert inspect.signature(writer_context).parameters["default_memory"].default == DEFAULT_WRITE_MEMORY


def test_nobody_else_divides_memory() -> None:
    """A name with `memory` in it is not divided or multiplied outside the plan."""
    root = Path(lakebed.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        if path.name == "memory_plan.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mult | ast.Div):
                for side in (node.left, node.right):
                    name = side.attr if isinstance(side, ast.Attribute) else getattr(side, "id", "")
                    if "memory" in name.lower():
                        found.append(f"{path.relative_to(root)}:{node.lineno}")
    assert not found


# ---------------------------------------------------------------------- for every ceiling
@given(CEILINGS, COUNTS)
def test_shares_never_sum_above_the_ceiling(ceiling: int, count: int) -> None:
    plan = MemoryPlan(ceiling)
    write, lookup, check = plan.write, plan.write.lookup, plan.check
    at_once = min(count, write.tasks_at_once)
    task = write.task(at_once)
    assert task.merge.ceiling + task.row_group + 2 * task.write_buffer <= task.share
    assert task.buffers + task.merge.incoming_keys <= task.share
    assert write.buffers + at_once * task.share <= write.working + LEAST_TASK <= ceiling
    assert 2 * write.buffers + lookup.keys + lookup.reading <= ceiling
    assert write.scan + write.source_rows + write.buffers <= ceiling
    assert check.reading + check.buffers <= ceiling
    assert check.buffers + check.compared <= ceiling
    assert plan.kept_vectors + plan.new_vectors + 2 * plan.ordered_rows <= ceiling
    assert plan.part(count) * count <= ceiling
    tasks = min(count, plan.compactions_at_once)
    compaction = plan.compaction(tasks)
    assert tasks * compaction.share <= ceiling
    assert compaction.reading + compaction.write_buffer + 2 * compaction.row_group <= compaction.share
    assert compaction.reading + compaction.write_buffer + compaction.log_block <= compaction.share
    tasks = min(count, plan.rewrites_at_once)
    clustering = plan.clustering(tasks)
    assert tasks * clustering.share <= ceiling
    held = clustering.reading + clustering.write_buffer + 2 * clustering.row_group
    assert held + max(clustering.sorting.ceiling, clustering.by_key(count).ceiling) <= clustering.share


@given(st.integers(1, 1 << 40), COUNTS)
def test_a_merge_never_takes_more_than_its_ceiling(ceiling: int, logs: int) -> None:
    merge = MergeMemory(ceiling)
    base = merge.base_source
    assert base + logs * merge.log_source(logs, base) <= merge.sources
    assert merge.sources + 3 * merge.window <= ceiling + 3
    assert merge.sorted_kept(0) + 2 * merge.sort_buffer <= ceiling + 2
    assert MemoryPlan(ceiling).merge_of(logs).ceiling <= ceiling


@given(st.integers(4 * SMALLEST_WINDOW, 1 << 40))
def test_as_many_sources_as_have_a_smallest_window(ceiling: int) -> None:
    merge = MergeMemory(ceiling)
    if merge.fan_in > 2:
        assert merge.sources // merge.fan_in >= SMALLEST_WINDOW


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 30), COUNTS)
def test_more_memory_is_never_less_for_anybody(ceiling: int, more: int, count: int) -> None:
    small, large = numbers(ceiling), numbers(ceiling + more)
    assert all(large[name] >= value for name, value in small.items())
    for one, other in zip(_others(ceiling, count), _others(ceiling + more, count), strict=True):
        assert one <= other


@given(st.integers(1, 1 << 40), COUNTS)
def test_nothing_that_work_cannot_do_without_is_ever_nothing(ceiling: int, count: int) -> None:
    plan = MemoryPlan(ceiling)
    assert min(_others(ceiling, count)) > 0
    assert plan.write.task(count).merge.ceiling >= 4 * SMALLEST_WINDOW
    assert plan.write.scan >= SMALLEST_WINDOW
    assert plan.compaction(count).reading >= SMALLEST_WINDOW
    assert plan.clustering(count).sorting.ceiling >= SMALLEST_WINDOW
    assert plan.clustering(count).by_key(count).ceiling >= SMALLEST_WINDOW
    assert min(plan.merge_of(count).window, plan.merge.window, plan.merge.sort_buffer) > 0
    assert plan.merge.fan_in >= 2
    assert BufferMemory(plan.write.buffers).stored_batch > 0


def _others(ceiling: int, count: int) -> list[int]:
    plan = MemoryPlan(ceiling)
    return [
        plan.write.lookup.keys,
        plan.write.lookup.reading,
        plan.check.reading,
        plan.check.buffers,
        plan.check.compared,
        plan.merge_of(count).ceiling,
        plan.part(count),
        *astuple(plan.write.task(count)),
        *astuple(plan.compaction(count)),
        *astuple(plan.clustering(count)),
    ]
