"""One window in, its merged rows out: order the rows, fold the repeated keys, copy what survives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.config.merge_settings import MergeMode
from lakebed.merge.arrow_numpy import Bools, Ints, bool_array
from lakebed.merge.custom_fold import fold_custom
from lakebed.merge.fold import Groups, Verdict, repeated_keys, whole_records, without_ordering
from lakebed.merge.materialise import Chosen, materialise, slice_out
from lakebed.merge.partial_fold import mix_columns
from lakebed.merge.record_merger import Op, RecordMerger, merger_for
from lakebed.merge.row_order import RowOrder, order_rows
from lakebed.merge.window import RunFacts, Window
from lakebed.model.concat import narrowed


class WindowMerge:
    """A merge rule, ready to be applied to window after window."""

    def __init__(self, facts: RunFacts, schema: pa.Schema, *, keep_deletes: bool, encoded: bool = False) -> None:
        self._facts = facts
        self._schema = schema
        self._keep_deletes = keep_deletes
        self._encoded = encoded
        rule = facts.rule
        self._merger: RecordMerger | None = merger_for(rule.merger) if rule.mode is MergeMode.CUSTOM else None
        self._mixes = rule.partial_update is not None or bool(facts.is_partial.any())

    def merge(self, window: Window) -> Iterator[pa.RecordBatch]:
        """The rows that the window's versions come down to, in key order."""
        deleted = window.deleted()
        lone = [number for number, row_ranges in enumerate(window.sources) if row_ranges]
        if len(lone) == 1 and window.unique[lone[0]]:
            yield from self._pass_through(window, deleted)
            return
        yield from self.merge_ordered(window, order_of(window), deleted)

    def merge_ordered(
        self, window: Window, ordered: RowOrder, deleted: Bools | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same where the order of the rows is known already."""
        yield from materialise(window, self.choose(window, ordered, deleted), self._schema, encoded=self._encoded)

    def choose(self, window: Window, ordered: RowOrder, deleted: Bools | None) -> Chosen:
        """Which rows survive, and where their columns come from."""
        groups = repeated_keys(window, ordered, deleted)
        return self._choose(window, ordered, deleted, groups)

    def _pass_through(self, window: Window, deleted: Bools | None) -> Iterator[pa.RecordBatch]:
        """Rows of one run, which nothing else touches: no comparison, no copy."""
        if deleted is not None and self._keep_deletes:
            chosen = Chosen(np.arange(window.num_rows), self._ops(window, np.arange(window.num_rows), deleted))
            yield from materialise(window, chosen, self._schema, encoded=self._encoded)
            return
        for number, row_range in enumerate(window.row_ranges):
            batch = row_range.batch
            if deleted is not None:
                gone = deleted[window.offsets[number] : window.offsets[number + 1]]
                if gone.all():
                    continue
                if gone.any():
                    batch = batch.filter(bool_array(~gone))
            yield from narrowed(slice_out(batch, self._schema, encoded=self._encoded), self._schema)

    def _choose(self, window: Window, ordered: RowOrder, deleted: Bools | None, groups: Groups | None) -> Chosen:
        order = ordered.order
        if groups is None and deleted is None:
            ops = np.zeros(len(order), np.int8) if self._keep_deletes else None
            return Chosen(order, ops)
        keep = np.ones(len(order), np.bool_)
        if deleted is not None and not self._keep_deletes:
            keep = ~deleted[order]
        if groups is None:
            rows = order[np.flatnonzero(keep)]
            return Chosen(rows, self._ops(window, rows, deleted) if self._keep_deletes else None)

        picks: dict[str, Ints] = {}
        extra: pa.RecordBatch | None = None
        if self._merger is not None:
            merged = fold_custom(window, groups, self._facts.schema.names, self._merger)
            verdict, extra = merged.verdict, merged.rows
        elif self._mixes:
            mixed = mix_columns(window, groups, self._facts.schema.names)
            verdict, picks = mixed.verdict, mixed.picks
        else:
            verdict = whole_records(window, groups)

        keep[groups.slots] = False
        winners = verdict.winner if self._keep_deletes else verdict.winner[~verdict.gone]
        keep[groups.slots[winners]] = True
        if self._keep_deletes:
            keep[groups.slots[verdict.barrier[verdict.barrier >= 0]]] = True
        rows = order[np.flatnonzero(keep)]
        ops = (
            self._group_ops(window, order, keep, deleted=deleted, groups=groups, verdict=verdict)
            if self._keep_deletes
            else None
        )
        if not picks and extra is None:
            return Chosen(rows, ops)
        live = np.flatnonzero(~verdict.gone)
        positions = (np.cumsum(keep) - 1)[groups.slots[verdict.winner[live]]]
        if extra is not None:
            rows = rows.copy()
            rows[positions] = window.num_rows + live
        return Chosen(rows, ops, {name: (positions, pick[live]) for name, pick in picks.items()}, extra)

    def _ops(self, window: Window, rows: Ints, deleted: Bools | None) -> npt.NDArray[np.int8]:
        """The kind of every row, from the row itself."""
        if deleted is None:
            return np.zeros(len(rows), np.int8)
        gone = deleted[rows]
        bare = without_ordering(window, rows, gone)
        return np.where(bare, Op.DELETE, np.where(gone, Op.DELETE_WITH_ORDERING, Op.ROW)).astype(np.int8)

    def _group_ops(
        self, window: Window, order: Ints, keep: Bools, *, deleted: Bools | None, groups: Groups, verdict: Verdict
    ) -> npt.NDArray[np.int8]:
        """The same, except that a custom merger may have ended a key, and that a kept barrier is unconditional."""
        kinds = np.zeros(len(order), np.int8)
        kinds[keep] = self._ops(window, order[keep], deleted)
        ended = verdict.gone & ~groups.deleted[verdict.winner]
        kinds[groups.slots[verdict.winner[ended]]] = Op.DELETE
        kinds[groups.slots[verdict.barrier[verdict.barrier >= 0]]] = Op.DELETE
        return kinds[keep]


def order_of(window: Window) -> RowOrder:
    """Rows of a window by (key, age)."""
    return order_rows(window.ranges, window.unique, window.heads(), lambda: window.column(window.facts.rule.key))
