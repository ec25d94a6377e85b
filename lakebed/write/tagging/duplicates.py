"""Inserts with a duplicate policy: rows whose key is in the table already are dropped, or the write is refused.

    rows ──► keys of their partition, read once when the first row of it comes ──► rows of new keys

The keys of the partitions of the rows (of all partitions, where the index is global) are held in memory. Only rows that
a reader would see count: a key that was deleted may be inserted again. Repeated keys within the data are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.memory_plan import MemoryPlan
from lakebed.config.read_options import ReadOptions
from lakebed.config.write_options import Duplicates, WriteOptions
from lakebed.errors import InvalidRequest
from lakebed.expression.predicate import Predicate, is_in
from lakebed.merge.arrow_numpy import Bools, bool_array, index_array, numbers
from lakebed.merge.key_index import KeyIndex
from lakebed.model.concat import concat
from lakebed.model.record_key import KeyGenerator
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY
from lakebed.read.plan import Query
from lakebed.read.scan import Scan
from lakebed.runner import Runner
from lakebed.timeline.meta_client import MetaClient
from lakebed.write.operation import Operation

ReadKeys = Callable[[Predicate | None], Iterable[pa.RecordBatch]]
_SHOWN = 3


def duplicate_policy(operation: Operation, options: WriteOptions, generator: KeyGenerator) -> Duplicates:
    """What a write does with keys that are in the table. Generated keys are always new."""
    return Duplicates.NONE if operation is not Operation.INSERT or generator.is_keyless else options.duplicates


def known_keys_of(client: MetaClient, memory: int, runner: Runner, *, is_global: bool) -> KnownKeys:
    """The keys of the table as it is: of a row's partition, or of all of them where the index is global."""
    options = ReadOptions(memory=MemoryPlan(memory).write.scan)

    def read(where: Predicate | None) -> Iterable[pa.RecordBatch]:
        columns = (RECORD_KEY,)
        scan = Scan(client, Query.SNAPSHOT, columns, where, options=options, runner=runner, keyed=True)
        return scan.to_batches()

    return KnownKeys(read, is_global)


@dataclass(slots=True)
class KnownKeys:
    """The keys of a table's rows, by partition; `read` gives batches with the record key."""

    read: ReadKeys
    is_global: bool = False
    _held: dict[str | None, KeyIndex] = field(default_factory=dict)

    def find(self, rows: pa.RecordBatch) -> Bools:
        """Which rows have a key that is in the table."""
        keys = rows.column(RECORD_KEY)
        if self.is_global:
            return self._of(None).find(keys) >= 0
        paths = rows.column(PARTITION_PATH).dictionary_encode()
        partition_of = numbers(paths.indices, np.int32)
        known: Bools = np.zeros(rows.num_rows, np.bool_)
        for number, path in enumerate(paths.dictionary.to_pylist()):
            members = np.flatnonzero(partition_of == number)
            known[members] = self._of(path).find(keys.take(index_array(members))) >= 0
        return known

    def _of(self, path: str | None) -> KeyIndex:
        if path not in self._held:
            where = None if path is None else is_in(pa.field(PARTITION_PATH, pa.string()), [path])
            found = [batch.column(RECORD_KEY) for batch in self.read(where)]
            self._held[path] = KeyIndex(pc.unique(concat(found)) if found else pa.array([], pa.string()))
        return self._held[path]


def new_rows(rows: Iterable[pa.RecordBatch], known: KnownKeys, policy: Duplicates) -> Iterator[pa.RecordBatch]:
    """The rows whose keys are new; with the policy `fail` there must be no others."""
    for batch in rows:
        found = known.find(batch)
        if not found.any():
            yield batch
            continue
        if policy is Duplicates.FAIL:
            keys = pc.unique(batch.column(RECORD_KEY).filter(bool_array(found)))
            raise InvalidRequest(
                f"{len(keys)} keys to insert are in the table already: "
                + ", ".join(map(repr, keys[:_SHOWN].to_pylist()))
                + (", ..." if len(keys) > _SHOWN else ""),
                hint="Upsert them, or set hoodie.datasource.insert.dup.policy to drop or none.",
            )
        yield batch.filter(bool_array(~found))
