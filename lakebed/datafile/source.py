"""The interface of every columnar file to a reader: base files, native logs, Parquet blocks.

A source streams: memory is bounded by the batch size, never by the file. Missing columns are simply absent from the
batches, `model.schema_evolution` puts them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lakebed.errors import CorruptTable, StorageUnavailable, UnsupportedFormat
from lakebed.expression.predicate import Predicate
from lakebed.model.key_range import KeyRange
from lakebed.model.schema_evolution import Renames

DEFAULT_BATCH_ROWS = 32_768
MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"


@dataclass(slots=True)
class ReadCounters:
    """Counters of a read, for `explain()` and for tests of pruning. One per task, not shared."""

    files: int = 0
    row_groups: int = 0
    row_groups_pruned: int = 0
    rows_decoded: int = 0
    rows: int = 0

    def add(self, other: ReadCounters) -> None:
        self.files += other.files
        self.row_groups += other.row_groups
        self.row_groups_pruned += other.row_groups_pruned
        self.rows_decoded += other.rows_decoded
        self.rows += other.rows


class FileSource(Protocol):
    """A file of rows as Arrow batches."""

    @property
    def label(self) -> str: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def footer(self) -> Mapping[str, str]: ...
    @property
    def is_sorted(self) -> bool: ...
    @property
    def has_unique_keys(self) -> bool: ...
    @property
    def key_range(self) -> KeyRange | None: ...
    @property
    def counters(self) -> ReadCounters: ...

    def row_bytes(self, columns: Sequence[str] | None = None) -> int:
        """About how many bytes of Arrow memory a row takes."""
        ...

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        row_groups: Sequence[int] | None = None,
        key_range: KeyRange | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The wanted columns that the file has, in the wanted order; with `key_range` only rows whose key is in it."""
        ...


class BaseFileSource(FileSource, Protocol):
    """A base file that is open: what a base file format makes of a file. Leaving the `with` block closes the file."""

    def matching_row_groups(self, predicate: Predicate, *, renames: Renames | None = None) -> list[int] | None:
        """The row groups that may hold a row for which the condition is true; None where nothing is known of them."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> BaseFileSource: ...

    def __exit__(self, *_: object) -> None: ...


@contextmanager
def arrow_errors(label: str) -> Iterator[None]:
    """Turns what Arrow's readers raise on bad bytes into `CorruptTable`; failures of the store stay what they are."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFormat(_one_line(error), file=label) from error
    except (pa.ArrowException, MemoryError, OverflowError, UnicodeDecodeError, RuntimeError) as error:
        raise CorruptTable(_one_line(error), file=label) from error
    except OSError as error:
        if error.errno is not None:
            raise StorageUnavailable(_one_line(error), file=label) from error
        raise CorruptTable(_one_line(error), file=label) from error


def checked_schema(schema: pa.Schema, label: str) -> pa.Schema:
    """A file's schema without metadata; names must be text (Arrow decodes them late) and, on top, differ."""
    with arrow_errors(label):
        str(schema)
        names = schema.names
    if len(set(names)) < len(names):
        raise CorruptTable("two columns have one name", file=label)
    return schema.remove_metadata()


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
