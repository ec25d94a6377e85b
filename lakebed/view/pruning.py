"""Pruning: which partitions and file slices a filter rules out, with a count per reason.

Three tests, cheapest first: the values in a partition's path, the bucket of a key, and the column statistics of a
slice's files. Each test keeps a slice when in doubt; the filter itself is applied to the rows in any case.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

import pyarrow as pa

from lakebed.config.read_options import TableConfig
from lakebed.expression.predicate import ColumnStats, Predicate
from lakebed.expression.tree import Compare, Field, In, Literal
from lakebed.model.bucket_hash import EMPTY_TEXT, NULL_TEXT, bucket_id, values_bucket_id
from lakebed.model.files import FileSlice, LogKind
from lakebed.view.file_system_view import StatsSource
from lakebed.view.partition_values import mapped_columns, possible_stats

RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
PARTITION_VALUES = "partition values"
BUCKET_OF_KEY = "bucket of the key"
COLUMN_STATISTICS = "column statistics"
_MOST_KEYS = 1000


@dataclass(slots=True)
class PruneReport:
    """How many partitions and slices were left out, by reason; `explain()` prints it."""

    partitions: Counter[str] = field(default_factory=Counter)
    slices: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    partitions_seen: int = 0

    def partition(self, reason: str) -> None:
        self.partitions[reason] += 1

    def slice(self, reason: str, file_slice: FileSlice) -> None:
        self.slices[reason] += 1
        self.bytes += file_slice.size

    def lines(self) -> list[str]:
        """One sentence per reason."""
        of_all = f" of {self.partitions_seen}" if self.partitions_seen else ""
        found = [f"skipped {count}{of_all} partitions by {why}" for why, count in sorted(self.partitions.items())]
        return found + [f"skipped {count} slices by {why}" for why, count in sorted(self.slices.items())]


def prune_partitions(
    partitions: Sequence[str], predicate: Predicate, config: TableConfig, schema: pa.Schema, report: PruneReport
) -> list[str]:
    """The partitions whose rows can match."""
    report.partitions_seen += len(partitions)
    top_level = {name.partition(".")[0] for name in mapped_columns(config) if name is not None}
    demand = predicate.restricted_to({PARTITION_PATH, *top_level})
    if demand is None:
        return list(partitions)
    kept = []
    for path in partitions:
        own = {PARTITION_PATH: ColumnStats(path, path, 0, 1)}
        if any(demand.may_match(own | stats) for stats in possible_stats(path, config, schema)):
            kept.append(path)
        else:
            report.partition(PARTITION_VALUES)
    return kept


def prune_buckets(
    slices: Sequence[FileSlice], predicate: Predicate, config: TableConfig, report: PruneReport
) -> list[FileSlice]:
    """The slices whose bucket can hold a key that matches the filter."""
    wanted = wanted_buckets(predicate, config)
    if wanted is None:
        return list(slices)
    kept = []
    for file_slice in slices:
        bucket = _bucket_of(file_slice.file_group.file_id)
        if bucket is None or bucket >= (config.num_buckets or 0) or bucket in wanted:
            kept.append(file_slice)
        else:
            report.slice(BUCKET_OF_KEY, file_slice)
    return kept


def prune_by_stats(
    slices: Sequence[FileSlice], predicate: Predicate, source: StatsSource, report: PruneReport
) -> list[FileSlice]:
    """The slices whose files' statistics, taken together, allow a match.

    A merged row may take one column from the base file and another from a log, so bounds are joined over all files
    of the slice before they are tested, and a column without statistics in one file is unknown. The caller skips this
    for tables with custom mergers: those may compute values that no file holds.
    """
    by_partition: dict[str, list[FileSlice]] = {}
    for file_slice in slices:
        by_partition.setdefault(file_slice.file_group.partition_path, []).append(file_slice)
    hopeless: set[int] = set()
    for partition, file_slices in by_partition.items():
        names = [name for file_slice in file_slices for name in _data_files(file_slice)]
        stats = source.column_stats(partition, names, predicate.columns)
        for file_slice in file_slices:
            joined = _joined([stats.get(name, {}) for name in _data_files(file_slice)], predicate.columns)
            if not predicate.may_match(joined):
                hopeless.add(id(file_slice))
                report.slice(COLUMN_STATISTICS, file_slice)
    return [file_slice for file_slice in slices if id(file_slice) not in hopeless]


def wanted_buckets(predicate: Predicate, config: TableConfig) -> frozenset[int] | None:
    """The buckets that can hold a match, None when every bucket can."""
    buckets = config.num_buckets
    if not buckets or not _has_simple_buckets(config):
        return None
    keys = config.key_fields
    hashed = config.bucket_hash_fields or keys
    texts = _texts(predicate, RECORD_KEY)
    if texts is not None:
        return frozenset(bucket_id(text, buckets, hashed, keys) for text in texts)
    if len(keys) == 1:
        texts = _texts(predicate, keys[0])
        if texts is None:
            return None
        both = [form for text in texts for form in _key_forms(text, config)]
        return frozenset(bucket_id(text, buckets, hashed, keys) for text in both)
    return _buckets_of_parts(predicate, [name for name in keys if name in hashed], buckets)


def _buckets_of_parts(predicate: Predicate, names: Sequence[str], buckets: int) -> frozenset[int] | None:
    """The buckets of a key of several columns, when the filter fixes all hashed columns."""
    parts: list[list[str | None]] = []
    for name in names:
        texts = _texts(predicate, name)
        if texts is None or any("," in text or ":" in text for text in texts):
            return None  # such values are split differently depending on their neighbours
        parts.append([None if text == NULL_TEXT else "" if text == EMPTY_TEXT else text for text in texts])
    combinations = list(islice(product(*parts), _MOST_KEYS + 1))
    if not parts or len(combinations) > _MOST_KEYS:
        return None
    return frozenset(values_bucket_id(values, buckets) for values in combinations)


def _key_forms(text: str, config: TableConfig) -> Iterator[str]:
    """The possible record keys of one column's value: COMPLEX writes the name before it, older versions did not."""
    yield text
    if config.keygen_type not in ("SIMPLE", "SIMPLE_AVRO"):
        yield f"{config.key_fields[0]}:{text}"


def _has_simple_buckets(config: TableConfig) -> bool:
    engine = config.properties.get("hoodie.index.bucket.engine", "SIMPLE").upper()
    by_partition = config.properties.get("hoodie.bucket.index.partition.expressions")
    return (config.index_type or "").upper() == "BUCKET" and engine == "SIMPLE" and not by_partition


def _bucket_of(file_id: str) -> int | None:
    digits = file_id[:8]
    return int(digits) if len(digits) == 8 and digits.isascii() and digits.isdigit() else None


def _texts(predicate: Predicate, column: str) -> list[str] | None:
    """The key texts of the values that the filter allows for a column, None when there may be any number."""
    found = predicate.key_range(column)
    if found is not None and found.points is not None:
        return list(found.points) if len(found.points) <= _MOST_KEYS else None
    for conjunct in predicate.conjuncts:
        literals = _equal_to(conjunct, column)
        if literals is not None and len(literals) <= _MOST_KEYS:
            texts = [_key_text(literal.value) for literal in literals if literal.value is not None]
            if None not in texts:
                return [text for text in texts if text is not None]
    return None


def _equal_to(conjunct: Predicate, column: str) -> Sequence[Literal] | None:
    match conjunct.root:
        case Compare("=", Field(path), Literal() as value) if path == (column,):
            return (value,)
        case Compare("=", Literal() as value, Field(path)) if path == (column,):
            return (value,)
        case In(Field(path), values) if path == (column,):
            return values
    return None


def _key_text(value: Any) -> str | None:
    """The text of a value in a record key, for types with only one text form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    return value if isinstance(value, str) else None


def _data_files(file_slice: FileSlice) -> list[str]:
    """The files of a slice that hold rows; tombstones only delete rows."""
    logs = [log.name for log in file_slice.log_files if not (log.native and log.kind is LogKind.DELETES)]
    return [file_slice.base_file.name, *logs] if file_slice.base_file else logs


def _joined(files: Sequence[Mapping[str, ColumnStats]], columns: Sequence[str]) -> dict[str, ColumnStats]:
    """Bounds that hold for all files together, for the columns that every file knows."""
    found: dict[str, ColumnStats] = {}
    for column in columns if files else ():
        known = [stats[column] for stats in files if column in stats]
        if len(known) == len(files):
            joined = _join(known)
            if joined is not None:
                found[column] = joined
    return found


def _join(known: Sequence[ColumnStats]) -> ColumnStats | None:
    valued = [stats for stats in known if not stats.all_null]
    nulls = [stats.null_count for stats in known]
    rows = [stats.rows for stats in known]
    try:
        return ColumnStats(
            min=None if any(s.min is None for s in valued) else min((s.min for s in valued), default=None),
            max=None if any(s.max is None for s in valued) else max((s.max for s in valued), default=None),
            null_count=None if None in nulls else sum(n for n in nulls if n is not None),
            rows=None if None in rows else sum(n for n in rows if n is not None),
        )
    except TypeError:  # bounds of different types, after the column changed its type
        return None
