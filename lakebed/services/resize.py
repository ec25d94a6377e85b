"""Running a resize of buckets: every row goes to the file of its bucket on the new ring.

    rows of the old buckets, merged, in order ──► hash of the key ──► one writer per child ──► one file group per child
    new ring       saved just before the replacecommit, valid with it; its .commit mark follows

A reader never looks at rings, and a writer only at those whose instant is completed, so before and after the commit
buckets and files fit each other. A partition whose ring is no longer the one that was planned for is left alone.

While a resize is pending lakebed writes nothing into its buckets. Hudi may write there, into the old bucket and, in
logs named after the resize, into the new one: such a plan is run from the files that it names, for whatever came later
is in the new buckets already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakebed.datafile.writers import BaseFileWriter
from lakebed.errors import ConflictError, CorruptTable, InvalidRequest, StorageUnavailable
from lakebed.format.hashing_meta import HashingMetadata, HashingNode, NodeTag, parse_child_nodes
from lakebed.index.consistent import load_hashing, mark_committed, save_hashing
from lakebed.index.consistent_ring import Buckets, with_children
from lakebed.index.options import IndexOptions
from lakebed.merge.arrow_numpy import bool_array
from lakebed.model.actions import ClusteringGroup, WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.schema import RECORD_KEY
from lakebed.paths import file_name
from lakebed.services.clustering_plan import CHILDREN_KEY, PARTITION_KEY, SEQUENCE_KEY
from lakebed.services.plan_inputs import changes
from lakebed.timeline.meta_client import MetaClient


@dataclass(slots=True)
class Resizing:
    """The resizes of one plan, as far as they can be carried out, and the rings that they make."""

    snapshot: MetaClient
    requested_time: str
    file: str
    properties: Mapping[str, str]
    _rings: dict[str, HashingMetadata | None] = field(default_factory=dict)
    _taken: dict[str, tuple[HashingNode, ...]] = field(default_factory=dict)
    _reports: dict[tuple[str, str], set[str]] | None = None

    def take(self, group: ClusteringGroup, now: list[FileSlice | None]) -> tuple[tuple[FileSlice, ...], Buckets] | None:
        """What of a group's slices, as they are `now`, is read, and the buckets of the rows; None to leave it out."""
        partition, children = group.extra.get(PARTITION_KEY, ""), self._children(group)
        slices = tuple(self._as_planned(group, number, file_slice, children) for number, file_slice in enumerate(now))
        whole = tuple(file_slice for file_slice in slices if file_slice is not None)
        ring = self._ring(partition)
        on_ring = {node.file_id: node.value for node in ring.ring} if ring is not None else {}
        parents = {on_ring.get(file_slice.file_id) for file_slice in group.slices}
        fits = ring is not None and group.extra.get(SEQUENCE_KEY) == str(ring.seq_no) and None not in parents
        if not fits or len(whole) < len(slices) or any(p.partition_path != partition for p in group.slices):
            if any(self._writers(partition, child) for child in children):
                raise ConflictError(
                    f"updates were written into buckets that the resize {self.requested_time} cannot make any more",
                    hint="Roll it back, then plan another.",
                )
            return None
        assert ring is not None
        if not parents <= {child.value for child in children}:
            raise CorruptTable("a resize does not state what replaces its buckets", file=self.file)
        self._taken[partition] = (*self._taken.get(partition, ()), *children)
        after = with_children(ring, children, self.requested_time, self.file)
        own = frozenset(child.file_id for child in children if child.tag is NodeTag.REPLACE)
        hash_fields = IndexOptions.from_properties(self.properties).hash_fields
        return whole, Buckets(after.nodes, own, hash_fields, self.snapshot.config.key_fields)

    def save(self) -> list[HashingMetadata]:
        """Save the rings of all that was taken, to be valid with the commit."""
        made = []
        for partition, children in self._taken.items():
            ring = self._ring(partition)
            assert ring is not None
            made.append(with_children(ring, children, self.requested_time, self.file))
            save_hashing(self.snapshot, made[-1])
        return made

    def mark(self) -> None:
        """Mark the rings as committed; the commit is done."""
        for partition in self._taken:
            with suppress(StorageUnavailable):  # the ring counts by its instant, as long as the timeline knows that
                mark_committed(self.snapshot, partition, self.requested_time)

    def _children(self, group: ClusteringGroup) -> tuple[HashingNode, ...]:
        children = parse_child_nodes(group.extra.get(CHILDREN_KEY, ""), self.file)
        if any(child.tag is NodeTag.NORMAL for child in children):
            raise CorruptTable("a resize does not state what replaces a node", file=self.file)
        return children

    def _ring(self, partition: str) -> HashingMetadata | None:
        if partition not in self._rings:
            self._rings[partition] = load_hashing(self.snapshot, partition)
        return self._rings[partition]

    def _as_planned(
        self, group: ClusteringGroup, number: int, file_slice: FileSlice | None, children: tuple[HashingNode, ...]
    ) -> FileSlice | None:
        """The slice with the files of the plan; None when it got others that the new buckets do not hold as well."""
        wanted = group.slices[number]
        names = {file_name(path) for path in (wanted.base_file, *wanted.log_files) if path}
        if file_slice is None:
            return None
        came, gone = changes(self.snapshot, file_slice, names)
        if gone:
            return None
        later = {log.requested_time for log in file_slice.log_files if log.name in came}
        twice = {requested_time for child in children for requested_time in self._writers(wanted.partition_path, child)}
        if not later <= twice or (file_slice.base_file is not None and file_slice.base_file.name not in names):
            return None
        return replace(file_slice, log_files=tuple(log for log in file_slice.log_files if log.name in names))

    def _writers(self, partition: str, child: HashingNode) -> set[str]:
        """The requested times of completed writes into a new bucket."""
        if self._reports is None:
            self._reports = {}
            for instant in self.snapshot.completed_writes():
                commit = self.snapshot.commit(instant.requested_time)
                for stats in commit.stats.values() if commit is not None else ():
                    for stat in stats:
                        self._reports.setdefault((stat.partition_path, stat.file_id), set()).add(instant.requested_time)
        return self._reports.get((partition, child.file_id), set())


class BucketOutputs:
    """The files of one task: one per bucket that gets rows."""

    def __init__(self, opened: Callable[[str], BaseFileWriter], buckets: Buckets) -> None:
        self._opened = opened
        self._buckets = buckets
        self._writers: dict[str, BaseFileWriter] = {}

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Rows to their buckets, in the order they come."""
        for batch in batches:
            numbers = self._buckets.of(batch.column(RECORD_KEY)) if batch.num_rows else np.zeros(0, np.int64)
            for number in np.unique(numbers).tolist():
                file_id = self._buckets.nodes[number].file_id
                here = numbers == number
                if file_id not in self._buckets.own:
                    key = batch.column(RECORD_KEY)[int(here.argmax())].as_py()
                    raise InvalidRequest(
                        f"the key {key!r} is not in the bucket of its hash",
                        hint="hoodie.bucket.index.hash.field must be what the table was written with.",
                    )
                part = batch if here.all() else batch.filter(bool_array(here))
                if file_id not in self._writers:
                    self._writers[file_id] = self._opened(file_id)
                self._writers[file_id].write(part)
                self._writers[file_id].counts.inserts += part.num_rows

    def close(self) -> list[WriteStat]:
        return [self._writers[file_id].close().stat for file_id in sorted(self._writers)]

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()
