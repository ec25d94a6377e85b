"""An ORC base file as a stream of Arrow batches, one stripe in memory at a time.

ORC files carry Hudi's footer keys but no statistics that Arrow shows, so nothing is pruned inside a file; a key range
still cuts rows. Nothing marks an ORC file as sorted. Neither does the format have checksums: damage inside a stripe is
noticed only where decoding fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from pyarrow import orc

from lakebed.datafile.base_file_formats import BaseFileFormat, OpenOptions
from lakebed.datafile.source import DEFAULT_BATCH_ROWS, MAX_KEY, MIN_KEY, ReadCounters, arrow_errors, checked_schema
from lakebed.errors import CorruptTable
from lakebed.expression.predicate import Predicate
from lakebed.model.key_range import KeyRange, java_bound
from lakebed.model.schema import RECORD_KEY
from lakebed.model.schema_evolution import Renames

_MAGIC = b"ORC"


class OrcSource:
    """The same interface as `ParquetSource`; its row groups are stripes."""

    is_sorted = False
    has_unique_keys = False

    def __init__(
        self,
        file: pa.NativeFile,
        label: str,
        *,
        key_column: str = RECORD_KEY,
        counters: ReadCounters | None = None,
    ) -> None:
        self.label = label
        self.key_column = key_column
        self.counters = counters if counters is not None else ReadCounters()
        self._file = file
        with arrow_errors(label):
            if file.size() < 16:
                raise CorruptTable(f"{file.size()} bytes are too few for an ORC file", file=label)
            file.seek(0)
            if file.read(3) != _MAGIC:
                raise CorruptTable("the file does not begin as an ORC file", file=label, offset=0)
            self._orc = orc.ORCFile(file)
            described: pa.Schema = self._orc.schema
            self.schema: pa.Schema = checked_schema(described, label)
            self.num_rows: int = self._orc.nrows
            self._stripes: int = self._orc.nstripes
            raw: Mapping[bytes, bytes] = described.metadata or {}
        self.footer: Mapping[str, str] = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in raw.items()
        }
        self.counters.files += 1

    def __enter__(self) -> OrcSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @cached_property
    def key_range(self) -> KeyRange | None:
        """Bounds from Hudi's footer keys, where Java's order of them is the UTF-8 order as well."""
        low, high = java_bound(self.footer.get(MIN_KEY)), java_bound(self.footer.get(MAX_KEY))
        return None if low is None and high is None else KeyRange(low, high)

    def matching_row_groups(self, predicate: Predicate, *, renames: Renames | None = None) -> None:
        """None: Arrow shows no statistics of stripes."""

    def row_bytes(self, columns: Sequence[str] | None = None) -> int:
        """An estimate by type; ORC reports no sizes."""
        wanted = self.schema if columns is None else [field for field in self.schema if field.name in set(columns)]
        return max(1, sum(_type_bytes(field.type) for field in wanted))

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        row_groups: Sequence[int] | None = None,
        key_range: KeyRange | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As `ParquetSource.batches`."""
        names = self.schema.names
        wanted = names if columns is None else [name for name in columns if name in set(names)]
        stripes = range(self._stripes) if row_groups is None else row_groups
        cut = key_range is not None and not key_range.is_all and self._has_keys
        read = [*wanted, self.key_column] if cut and self.key_column not in wanted else wanted
        total = 0
        for index in stripes:
            stripe = self._stripe(index, read or names[:1])
            total += stripe.num_rows
            self.counters.row_groups += 1
            self.counters.rows_decoded += stripe.num_rows
            for start in range(0, stripe.num_rows, batch_rows):
                batch = stripe.slice(start, batch_rows)
                if cut and key_range is not None:
                    batch = batch.filter(key_range.mask(batch.column(self.key_column)))
                if batch.num_rows:
                    self.counters.rows += batch.num_rows
                    yield batch if batch.schema.names == wanted else batch.select(wanted)
        if row_groups is None and total != self.num_rows:
            raise CorruptTable(f"{total} rows where the footer promises {self.num_rows}", file=self.label)

    def _stripe(self, index: int, columns: list[str]) -> pa.RecordBatch:
        with arrow_errors(self.label):
            batch = self._orc.read_stripe(index, columns=columns)
            batch.validate(full=True)
        return batch.replace_schema_metadata(None)

    @property
    def _has_keys(self) -> bool:
        position = self.schema.get_field_index(self.key_column)
        return position >= 0 and bool(pa.types.is_string(self.schema.field(position).type))


def _type_bytes(data_type: pa.DataType) -> int:
    if pa.types.is_nested(data_type):
        return 16 + sum(_type_bytes(data_type.field(i).type) for i in range(data_type.num_fields))
    try:
        return max(1, int(data_type.bit_width) // 8)
    except ValueError:  # a type without a fixed width
        return 24


def open_orc(file: pa.NativeFile, label: str, options: OpenOptions) -> OrcSource:
    """An ORC base file."""
    return OrcSource(file, label, key_column=options.key_column, counters=options.counters)


ORC_FORMAT = BaseFileFormat("ORC", _MAGIC, open_orc)
