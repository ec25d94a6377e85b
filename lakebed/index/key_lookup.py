"""Finding keys by reading the keys of files: what the simple and the bloom index, global or not, have in common.

    distinct incoming keys (of a partition, or all) ──► hash table ──► keys of every slice streamed past it, in parallel

A key found in one slice belongs to it. Of a key found in several slices at most one has a live row, the others have a
delete: a merged read of just those slices decides. A global index also checks whether a key that it found in another
partition still has a live row there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.index.bucket import grouped
from lakebed.index.key_scan import KeyReader, SliceLookup
from lakebed.index.locations import Index, IndexContext, Ints, KeyLocation, Places, distinct, distinct_keys
from lakebed.merge.arrow_numpy import index_array
from lakebed.merge.key_index import KeyIndex
from lakebed.model.files import FileSlice
from lakebed.model.record_key import KeyGenerator, key_generator_of
from lakebed.model.schema import PARTITION_PATH


@dataclass(slots=True)
class KeyLookupIndex(Index):
    """An index that reads keys. `by_ranges` and `by_bloom`: skip base files by their footers."""

    context: IndexContext
    is_global: bool = False
    moves: bool = True
    by_ranges: bool = False
    by_bloom: bool = False
    generator: KeyGenerator | None = None

    def places(self, rows: pa.Table) -> Places:
        """The file groups where the keys of the rows were found."""
        keys, key_of = distinct_keys(rows)
        partitions, partition_of = distinct(rows, PARTITION_PATH)
        paths = partitions.to_pylist()
        of_row = np.full(rows.num_rows, -1, np.int64)
        locations: list[KeyLocation] = []
        if self.is_global:
            slices = [
                file_slice for path in self.context.view.partitions() for file_slice in self.context.view.slices(path)
            ]
            owners = self._owners(keys, slices)
            row_partition = np.full(len(keys), -1, np.int64)
            row_partition[key_of] = partition_of
            self._drop_deleted_moves(keys, slices, owners, row_partition, {path: at for at, path in enumerate(paths)})
            of_row, locations = owners[key_of], [_location(file_slice) for file_slice in slices]
        else:
            for path, members in zip(paths, grouped(partition_of, len(paths)), strict=True):
                slices = list(self.context.view.slices(path))
                if slices and len(members):
                    used, number_of = np.unique(key_of[members], return_inverse=True)
                    owners = self._owners(keys.take(index_array(used)), slices)[number_of]
                    of_row[members] = np.where(owners >= 0, owners + len(locations), -1)
                    locations += [_location(file_slice) for file_slice in slices]
        return Places(tuple(locations), of_row)

    def _owners(self, keys: pa.Array, slices: list[FileSlice]) -> Ints:
        """For every key the number of the slice that holds it, or -1."""
        owners = np.full(len(keys), -1, np.int64)
        again: dict[int, set[int]] = defaultdict(set)
        for number, found in enumerate(self._run(keys, slices, live=False)):
            taken = owners[found] >= 0
            for key in found[taken].tolist():
                again[key] |= {int(owners[key]), number}
            owners[found] = number
        if again:
            self._settle(keys, slices, owners, again)
        return owners

    def _settle(self, keys: pa.Array, slices: list[FileSlice], owners: Ints, again: dict[int, set[int]]) -> None:
        """Of the slices with a key, the one with its live row; the newest slice where the key is deleted in all."""
        for key, candidates in again.items():
            owners[key] = max(candidates, key=lambda number: slices[number].base_instant_time)
        for key, number in self._live(keys, slices, again):
            owners[key] = number

    def _drop_deleted_moves(
        self, keys: pa.Array, slices: list[FileSlice], owners: Ints, row_partition: Ints, codes: dict[str, int]
    ) -> None:
        """A key that would move must have a live row where it was found, else it is a new key."""
        if not slices:
            return
        partition_of = np.array(
            [codes.get(file_slice.file_group.partition_path, -2) for file_slice in slices], np.int64
        )
        logged = np.array([bool(file_slice.log_files) for file_slice in slices], np.bool_)
        suspects = np.flatnonzero((owners >= 0) & logged[owners] & (partition_of[owners] != row_partition))
        if len(suspects):
            wanted = {key: {int(owners[key])} for key in suspects.tolist()}
            kept = [key for key, _ in self._live(keys, slices, wanted)]
            owners[np.setdiff1d(suspects, np.array(kept, np.int64))] = -1

    def _live(self, keys: pa.Array, slices: list[FileSlice], wanted: dict[int, set[int]]) -> Iterator[tuple[int, int]]:
        """Those pairs of key and slice in `wanted` where the merged slice has the key."""
        numbers = sorted({number for candidates in wanted.values() for number in candidates})
        chosen = np.array(sorted(wanted), np.int64)
        few = [slices[number] for number in numbers]
        for number, found in zip(numbers, self._run(keys.take(index_array(chosen)), few, live=True), strict=True):
            yield from ((int(key), number) for key in chosen[found] if number in wanted[int(key)])

    def _run(self, keys: pa.Array, slices: Iterable[FileSlice], *, live: bool) -> Iterator[Ints]:
        if not len(keys):
            return iter(())
        index = KeyIndex(keys)
        reader = KeyReader(self.context.reader, self.generator)
        tasks = [
            SliceLookup(reader, file_slice, keys, index, self.by_ranges, self.by_bloom, live=live)
            for file_slice in slices
        ]
        return self.context.runner.map(SliceLookup.run, tasks, label="index look-up")


def _location(file_slice: FileSlice) -> KeyLocation:
    group = file_slice.file_group
    return KeyLocation(group.partition_path, group.file_id, file_slice.base_instant_time)


def made_keys(context: IndexContext, properties: Mapping[str, str]) -> KeyGenerator | None:
    """The key generator of a table that does not store its keys, else None."""
    config = context.client.config
    return None if config.populate_meta_fields else key_generator_of(config, properties)
