"""All versions in the logs of a file group, in memory and by key, for the hash merge.

    logs ──► rows by (key, age) ──► distinct keys ──► hash table                                (one pass over the logs)
    base file that may repeat keys ──► its keys ──► those that logs contain and that come twice    (keys only, a pass)
                                   ──► the rows of these but the first, below the versions of the logs      (if any)

A key that a log contains is folded from all its base rows upward. The first of them is met while the base file streams;
the others must be known by then, wherever in the file they are. A base file that is marked as having unique keys needs
no such pass. Whether the logs are too large is decided by what was gathered so far, never by an estimate: the caller
then merges by sorting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import KEY_NUMBERS
from lakebed.errors import CorruptTable
from lakebed.merge.arrow_numpy import Bools, Ints, index_array, is_text, truths
from lakebed.merge.key_index import KeyIndex
from lakebed.merge.keys import check_keys
from lakebed.merge.runs import Run
from lakebed.merge.spill import gather_runs, sorted_rows
from lakebed.merge.window import RunFacts

KeyNumbers = npt.NDArray[np.int32]
_NUMBER = np.dtype(np.int32)


class LogVersions:
    """Rows by (key, age), and the distinct keys among them."""

    def __init__(self, batches: list[pa.RecordBatch], facts: RunFacts) -> None:
        if batches:
            self.batch, _ = sorted_rows(batches, facts, encoded=False)
        else:
            self.batch = pa.RecordBatch.from_pylist([], pa.schema([(facts.rule.key, pa.string())]))
        keys = self.batch.column(facts.rule.key)
        first = np.ones(len(keys), np.bool_)
        if len(keys) > 1:
            first[1:] = ~truths(pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)))
        self.starts: Ints = np.flatnonzero(first)
        self.sizes: Ints = np.diff(np.append(self.starts, len(keys)))
        self._keys = keys

    @cached_property
    def index(self) -> KeyIndex:
        """Finds the versions of a base row's key."""
        return KeyIndex(self._keys.take(index_array(self.starts)))

    def rows_of(self, groups: Ints) -> Ints:
        """The rows of some keys, key after key."""
        sizes = self.sizes[groups]
        before = np.cumsum(sizes) - sizes
        return np.repeat(self.starts[groups] - before, sizes) + np.arange(int(sizes.sum()))


class BaseKeys:
    """Looks the keys of a base file up, batch after batch, and remembers which it has met."""

    def __init__(self, index: KeyIndex, base: Run, known: KeyNumbers | None = None) -> None:
        self._index = index
        self._base = base
        self._known = known
        self._at = 0
        self.met: Bools = np.zeros(len(index), np.bool_)

    def look_up(self, column: pa.Array) -> tuple[Ints, Bools]:
        """The number of every key, -1 for those that no log contains; and which rows repeat a number met before."""
        check_keys(column, self._base.name)
        group = self._numbers(column)
        later: Bools = group >= 0
        hits = np.flatnonzero(later)
        distinct, first = np.unique(group[hits], return_index=True)
        later[hits[first[~self.met[distinct]]]] = False
        self.met[distinct] = True
        if not self._base.may_repeat and later.any():
            key = column[int(np.flatnonzero(later)[0])].as_py()
            raise CorruptTable(f"marked as having unique keys, but {key!r} comes twice", file=self._base.name)
        return group, later

    def _numbers(self, column: pa.Array) -> Ints:
        if self._known is None:
            return self._index.find(column if is_text(column.type) else column.cast(pa.string()))
        self._at += len(column)
        return self._known[self._at - len(column) : self._at].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The versions of the logs, and how base rows find theirs."""

    versions: LogVersions
    base: BaseKeys


def load_versions(ordered: list[Run], facts: RunFacts, *, limit: int, rows: int) -> Loaded | None:
    """The versions of all runs but the first, which is the base; None if they take more than `limit` bytes."""
    base, logs = ordered[0], list(enumerate(ordered))[1:]
    held = gather_runs(logs, facts, limit)
    if held is None:
        return None
    versions = LogVersions(held, facts)
    del held
    if not base.may_repeat or not len(versions.starts):
        return Loaded(versions, BaseKeys(versions.index, base))
    keep = base.most_rows is not None and base.most_rows * _NUMBER.itemsize <= limit // KEY_NUMBERS
    repeated, known = _repeated(base, versions.index, facts.rule.key, rows, keep=keep)
    if repeated.any():
        later = replace(base, open=_later_rows(base, BaseKeys(versions.index, base, known), facts.rule.key))
        again = gather_runs([(0, later)], facts, limit - versions.batch.nbytes)
        if again is None:
            return None
        versions = LogVersions([*again, versions.batch], facts)
    return Loaded(versions, BaseKeys(versions.index, base, known))


def _repeated(base: Run, index: KeyIndex, key: str, rows: int, *, keep: bool) -> tuple[Bools, KeyNumbers | None]:
    """Which keys come twice in the base file; and the numbers of all its keys, where there is room to keep them."""
    keys = BaseKeys(index, base)
    repeated: Bools = np.zeros(len(index), np.bool_)
    known: list[KeyNumbers] = []
    for batch in (base.open_keys or base.open)(rows):
        group, later = keys.look_up(batch.column(key))
        repeated[group[later]] = True
        if keep:
            known.append(group.astype(_NUMBER))
    return repeated, np.concatenate(known) if known else None


def _later_rows(base: Run, keys: BaseKeys, key: str) -> Callable[[int], Iterator[pa.RecordBatch]]:
    """The base rows whose key came before, of the keys that logs contain."""

    def opened(rows: int) -> Iterator[pa.RecordBatch]:
        for batch in base.open(rows):
            _, later = keys.look_up(batch.column(key))
            if later.any():
                yield batch.take(index_array(np.flatnonzero(later)))

    return opened
