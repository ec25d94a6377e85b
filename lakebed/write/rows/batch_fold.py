"""Several rows of one key in a batch become one version before that is merged with the table.

Within a batch one whole record wins, whatever file it goes to: a log contains only the rows of the batch, and a
rewritten base file must have the same result. Filling columns of one version from another (partial updates) is done
only when versions are merged with the table, and so is a custom merger, unless it declares itself `associative`: that
it may merge new rows before it sees the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.config.merge_settings import MergeMode
from lakebed.merge.record_merger import MergeRule, merger_for
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.merge.spill import Spill, small_batches
from lakebed.write.task.meta_columns import LogRows, log_rows


def batch_rule(rule: MergeRule) -> MergeRule:
    """The merge rule for versions of a key within one batch; with a custom merger the last row wins."""
    if rule.mode is MergeMode.CUSTOM and not getattr(merger_for(rule.merger), "associative", False):
        return replace(rule, mode=MergeMode.COMMIT_TIME, partial_update=None)
    return replace(rule, partial_update=None)


def folded_runs(runs: Sequence[Run], rule: MergeRule, wanted: pa.Schema, spill: Spill, memory: int) -> list[Run]:
    """The runs of a batch as they are merged with the table.

    Unchanged where the table's own rule makes one version of them, else folded on their own first, on disk, into
    deletes that apply before the rows, rows, and deletes.
    """
    own = batch_rule(rule)
    if own == rule:
        return list(runs)
    merged = sorted_merge(runs, own, wanted, memory=memory, keep_deletes=True)
    opened = spill.write(part for batch in merged for part in small_batches(batch))
    oldest = runs[0]

    def part(take: Callable[[LogRows], pa.RecordBatch], age: int, *, is_delete: bool) -> Run:
        def open_part(rows: int) -> Iterator[pa.RecordBatch]:
            return map(take, log_rows(opened(rows), own, wanted.names))

        return replace(oldest, age=oldest.age + age, is_sorted=True, open=open_part, is_delete=is_delete, nbytes=None)

    return [
        part(lambda rows: rows.earlier, 0, is_delete=True),
        part(lambda rows: rows.rows, 1, is_delete=False),
        part(lambda rows: rows.deletes, 2, is_delete=True),
    ]
