"""The record keys of a file slice: those of its base file, of its logs, and of the deletes in them.

A key that was deleted still belongs to the group that stores the delete: a late row must be merged with it there. So
keys are found without merging, by reading the key column alone. Whether a key has a live row is checked only where the
key is found in several slices, or would move to another partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.datafile.base_file import open_base_file
from lakebed.format.bloom_filter import FOOTER_KEY, TYPE_CODE_KEY, load_bloom_filter
from lakebed.index.locations import Bools, Ints
from lakebed.merge.arrow_numpy import bool_array
from lakebed.merge.file_group_reader import FileGroupReader
from lakebed.merge.key_index import KeyIndex
from lakebed.merge.reader_context import ReadSplit
from lakebed.merge.record_merger import MergeRule
from lakebed.model.files import FileSlice
from lakebed.model.record_key import KeyGenerator, record_key_array
from lakebed.model.schema import RECORD_KEY

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads keys of slices of one table; `generator` is set for tables that do not store them."""

    reader: FileGroupReader
    generator: KeyGenerator | None = None

    def keys(self, file_slice: FileSlice) -> Iterator[pa.Array]:
        """All keys of the slice, with repetitions."""
        narrow = self._narrowed()
        for run in narrow.runs(file_slice, narrow.schema):
            for batch in run.open(_BATCH_ROWS):
                yield batch.column(0) if run.is_delete else self._made(batch)

    def live_keys(self, file_slice: FileSlice) -> Iterator[pa.Array]:
        """The keys of the rows that the slice has when merged."""
        columns = self._columns()
        for batch in replace(self.reader, schema=columns, predicate=None, commits=None).read(ReadSplit(file_slice)):
            yield self._made(batch)

    def _made(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(0) if self.generator is None else record_key_array(self.generator, batch)

    def _columns(self) -> pa.Schema:
        names = (RECORD_KEY,) if self.generator is None else self._key_columns(self.generator)
        return pa.schema([self.reader.reader_context.schema.field(name) for name in names])

    @staticmethod
    def _key_columns(generator: KeyGenerator) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.partition(".")[0] for name in generator.key_fields))

    def _narrowed(self) -> FileGroupReader:
        columns = self._columns()
        reader_context = replace(
            self.reader.reader_context, schema=columns, rule=MergeRule(key=columns.names[0]), virtual_key=None
        )
        return replace(self.reader, reader_context=reader_context, schema=columns, predicate=None, commits=None)


@dataclass(frozen=True, slots=True)
class SliceLookup:
    """A task: which of the wanted keys a slice has."""

    keys: KeyReader
    file_slice: FileSlice
    wanted: pa.Array
    index: KeyIndex
    by_ranges: bool = False
    by_bloom: bool = False
    live: bool = False

    def run(self) -> Ints:
        """Numbers of the wanted keys that the slice has, ascending."""
        file_slice = self.file_slice
        if (self.by_bloom or self.by_ranges) and file_slice.base_file is not None and not self.candidates().any():
            file_slice = replace(file_slice, base_file=None)
        found = np.zeros(len(self.wanted), np.bool_)
        stream = self.keys.live_keys(file_slice) if self.live else self.keys.keys(file_slice)
        for batch in stream:
            numbers = self.index.find(batch.cast(self.wanted.type))
            found[numbers[numbers >= 0]] = True
        return np.flatnonzero(found).astype(np.int64)

    def candidates(self) -> Bools:
        """Which keys the base file may have, by its footer."""
        base = self.file_slice.base_file
        assert base is not None
        with open_base_file(self.keys.reader.storage, base) as source:
            maybe: Bools = np.ones(len(self.wanted), np.bool_)
            if source.num_rows == 0:
                return ~maybe
            bounds = source.key_range if self.by_ranges else None
            if bounds is not None:
                maybe = np.asarray(bounds.mask(self.wanted).to_numpy(zero_copy_only=False), np.bool_)
            text = source.footer.get(FOOTER_KEY) if self.by_bloom else None
            if text and maybe.any():
                bloom = load_bloom_filter(text, source.footer.get(TYPE_CODE_KEY), base.path)
                maybe[maybe] = bloom.might_contain_many(self.wanted.filter(bool_array(maybe)))
        return maybe
