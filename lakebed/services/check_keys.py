"""Keys in more than one file group, found in bounded memory: spilled with their group and compared part by part.

    keys, slice by slice ──► buffered, on disk past the share ──► parts by a hash of the key ──► grouped, part by part

A key is in one part with all its file groups, so each part by itself shows which keys are in several.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import CheckMemory
from lakebed.merge.arrow_numpy import index_array
from lakebed.write.rows.group_buffers import GroupBuffers
from lakebed.write.rows.key_parts import key_parts

KEY, GROUP = "key", "group"
_ALL = 0


@dataclass(frozen=True, slots=True)
class Repeated:
    """How many keys are in several file groups, the first of them by order, and two of its groups."""

    keys: int
    key: str | None
    group: int
    other: int


class KeysByGroup:
    """The keys of file groups, from several threads; a context manager, since keys may be in a temporary folder."""

    def __init__(self, share: CheckMemory) -> None:
        self._share = share
        self._buffers = GroupBuffers(share.buffers)
        self._lock = threading.Lock()
        self._left_out: set[int] = set()

    def __enter__(self) -> KeysByGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self._buffers.__exit__()

    def add(self, group: int, keys: pa.Array) -> None:
        """Buffer keys of a file group; in one type, since all of them may share a file on disk."""
        keys = keys.cast(pa.string())
        groups = pa.repeat(pa.scalar(group, pa.int32()), len(keys))
        with self._lock:
            self._buffers.put(_ALL, pa.RecordBatch.from_arrays([keys, groups], [KEY, GROUP]))

    def leave_out(self, group: int) -> None:
        """A file group that turned out to be unreadable half way: its keys do not count."""
        with self._lock:
            self._left_out.add(group)

    def repeated(self) -> Repeated | None:
        """The keys that are in several groups; None if there are none. The keys are gone afterwards."""
        count, firsts = 0, []
        for table in self._parts():
            groups = table.group_by(KEY).aggregate([(GROUP, "min"), (GROUP, "max")])
            twice = groups.filter(pc.not_equal(groups.column(f"{GROUP}_min"), groups.column(f"{GROUP}_max")))
            count += twice.num_rows
            if twice.num_rows:
                firsts += twice.sort_by(KEY).slice(0, 1).to_pylist()
        if not firsts:
            return None
        first = min(firsts, key=lambda row: (row[KEY] is None, row[KEY]))
        return Repeated(count, first[KEY], first[f"{GROUP}_min"], first[f"{GROUP}_max"])

    def count_repeats(self) -> int:
        """How many rows have a key that another row has, too, the first of each key left out."""
        return sum(table.num_rows - pc.count_distinct(table.column(KEY), mode="all").as_py() for table in self._parts())

    def _parts(self) -> Iterator[pa.Table]:
        for buffer in self._buffers.take([_ALL]):
            for _, table in key_parts(self._buffers, buffer, KEY, (KEY, GROUP), self._share):
                if self._left_out:
                    known = pa.array(sorted(self._left_out), pa.int32())
                    table = table.filter(pc.invert(pc.is_in(table.column(GROUP), value_set=known)))
                yield table


def count_repeats(batches: Iterable[pa.Array], share: CheckMemory) -> int:
    """How many keys of a file repeat one that came before."""
    with KeysByGroup(share) as held:
        for keys in batches:
            held.add(0, keys)
        return held.count_repeats()


class Sample:
    """Keys at even distances in a stream of unknown length: at least `least` of them, if there are as many."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._step = 1
        self._seen = 0
        self._held: list[pa.Array] = []

    def add(self, keys: pa.Array) -> None:
        """The next keys of the stream."""
        start = -self._seen % self._step
        self._held.append(keys.take(index_array(np.arange(start, len(keys), self._step))))
        self._seen += len(keys)
        while self._seen // self._step >= 2 * self._least:
            self._step *= 2
            joined = self.keys()
            self._held = [joined.take(index_array(np.arange(0, len(joined), 2)))]

    def keys(self) -> pa.Array:
        """What was sampled, in its order."""
        return pa.concat_arrays(self._held) if self._held else pa.array([], pa.string())
