"""A run: one ordered source of rows of a file group, as the merge sees it.

A base file, a native log, a block of a v1 log and an incoming batch of a write all look the same here: something that
can be opened, that is older or younger than its siblings, and that may or may not be sorted. Sortedness is a fact of
the file (recorded in its footer), never of the table, and a run that claims it is checked while it streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

RUN_COLUMN = "_lakebed_run"  # in rows of several runs sorted together: the number of the run each row came from
ROW_COLUMN = "_lakebed_row"  # for merge vectors: the row's position in its file
OP_COLUMN = "_lakebed_op"  # in merges that keep tombstones: see Op in record_merger

COMMIT_TIME = "_hoodie_commit_time"
IS_DELETED = "_hoodie_is_deleted"
OPERATION = "_hoodie_operation"


@dataclass(frozen=True, slots=True)
class Run:
    """One source of rows; `open(rows)` starts it from the beginning and requests batches of about that many rows."""

    age: int
    is_sorted: bool
    open: Callable[[int], Iterator[pa.RecordBatch]]
    is_delete: bool = False
    is_partial: bool = False
    requested_time: str = ""
    row_bytes: int | None = None
    group_rows: int | None = None
    """Rows that the file keeps together: decoding them at once costs no more memory than decoding some of them."""
    label: str | None = None
    nbytes: int | None = None
    """What all rows take in memory, where that is known: an unsorted run that fits is sorted in one piece."""
    open_keys: Callable[[int], Iterator[pa.RecordBatch]] | None = None
    """The same rows with nothing but their key, where that is cheaper to read."""
    is_unique: bool = False
    """Whether no key comes twice, though rows are not sorted; sorted runs never repeat a key."""
    most_rows: int | None = None
    """An upper bound of the number of rows, where that is known before they are read."""
    brings: frozenset[str] | None = None
    """Of a partial run, the table's columns that its rows bring; None where rows are whole."""

    @property
    def is_base(self) -> bool:
        """Age 0 is the base file: its rows are never tombstones, and one that others wrote may repeat a key."""
        return self.age == 0

    @property
    def may_repeat(self) -> bool:
        """Whether a key may come twice."""
        return not (self.is_sorted or self.is_unique)

    @property
    def name(self) -> str:
        return self.label or f"run {self.age}"


def in_fold_order(runs: Sequence[Run]) -> list[Run]:
    """Oldest first; runs of one age keep the order in which they were passed."""
    return sorted(runs, key=lambda run: run.age)
