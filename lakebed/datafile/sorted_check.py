"""Verifies that a file's rows ascend by key, hold no key twice, and that its footer marks are true.

A merge trusts these marks; a wrong one loses rows silently. The check reads the key column of a base file, a
native log, or the Parquet blocks of a version 1 log, batch by batch, and reports instead of raising.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.datafile.base_file import open_base_file
from lakebed.datafile.key_bounds import KeyBounds
from lakebed.datafile.log_file import has_parquet_content, open_log_file, parquet_source
from lakebed.datafile.parquet_source import SORTED_KEY, ParquetSource, RowGroup
from lakebed.errors import CorruptTable, InvalidRequest, UnsupportedFormat
from lakebed.format.bloom_filter import FOOTER_KEY, MAX_KEY, MIN_KEY, TYPE_CODE_KEY, BloomFilter, load_bloom_filter
from lakebed.format.log.block import BlockKind
from lakebed.format.names import parse_log_file
from lakebed.model.concat import concat
from lakebed.model.finding import Finding, Severity
from lakebed.model.record_key import KeyGenerator, record_key_array
from lakebed.model.schema import RECORD_KEY
from lakebed.paths import file_name
from lakebed.storage.storage import Storage

SORTED = "file is sorted"
MARKED = "file is marked as sorted"
KEY_MARKS = "footer knows the keys"
READABLE = "file is readable"

_REWRITE = "Compact or cluster the file group, which writes its rows anew."
_RESTORE = "Bring the file back from a copy, or roll the table back to a savepoint."


CountRepeats = Callable[[Iterable[pa.Array]], int]


def repeats_in_memory(batches: Iterable[pa.Array]) -> int:
    """How many keys repeat one that came before, with all of them in memory."""
    keys = list(batches)
    return sum(map(len, keys)) - (pc.count_distinct(concat(keys)).as_py() if keys else 0)


def check_sorted_file(
    storage: Storage,
    path: str,
    *,
    require_mark: bool = True,
    generator: KeyGenerator | None = None,
    count_repeats: CountRepeats = repeats_in_memory,
) -> list[Finding]:
    """What is wrong with the order of a data file; without `require_mark` a file without marks is fine.

    `generator` makes the keys of rows in tables that do not store them. `count_repeats` is called for unsorted
    files that are marked as having no key twice: only there all keys must be compared with each other.
    """
    found: list[Finding] = []
    try:
        for source in _sources(storage, path):
            with source:
                found += _check_source(source, path, require_mark, generator, count_repeats)
    except FileNotFoundError:
        found.append(Finding(READABLE, Severity.ERROR, path, "the file is not there", _RESTORE))
    except (CorruptTable, UnsupportedFormat) as error:
        found.append(Finding(READABLE, Severity.ERROR, path, str(error), _RESTORE))
    return found


def _sources(storage: Storage, path: str) -> Iterator[ParquetSource]:
    """The Parquet parts of a file whose rows have record keys; blocks of other kinds are never sorted."""
    if parse_log_file(file_name(path)) is None:
        source = open_base_file(storage, path)
        if isinstance(source, ParquetSource):
            yield source
        return
    for block in open_log_file(storage, path).blocks:
        if block.kind in (BlockKind.PARQUET_DATA, BlockKind.DELETE) and has_parquet_content(block):
            yield parquet_source(storage, block)


def _check_source(
    source: ParquetSource,
    path: str,
    require_mark: bool,
    generator: KeyGenerator | None,
    count_repeats: CountRepeats,
) -> Iterator[Finding]:
    if RECORD_KEY not in source.schema.names:
        return  # deletes under RFC-103's names
    if not source.is_sorted:
        if SORTED_KEY in source.footer:
            what = f"the footer says {SORTED_KEY}={source.footer[SORTED_KEY]}, Parquet's sorting columns do not"
            yield Finding(MARKED, Severity.ERROR, path, what, _REWRITE)
        elif require_mark:
            yield Finding(MARKED, Severity.WARNING, path, "readers must sort the file's rows each time", _REWRITE)
        if source.has_unique_keys:
            yield from _check_unique(source, path, generator, count_repeats)
        return
    if source.is_sorted_by_made_key and generator is None:
        what = "the footer says that rows ascend by keys which are not stored, but the table stores them"
        yield Finding(MARKED, Severity.ERROR, path, what, _REWRITE)
        return
    made = generator if source.is_sorted_by_made_key else None
    columns = [RECORD_KEY] if made is None else list(made.columns)
    bounds = KeyBounds(source.label, is_sorted=True)
    bloom = _bloom(source)
    denied = 0
    try:
        for group in source.row_groups:
            held = KeyBounds(source.label, is_sorted=True, trusted=True)
            for batch in source.batches(columns, row_groups=[group.index]):
                keys = batch.column(0) if made is None else record_key_array(made, batch)
                bounds.add(keys)
                held.add(keys)
                if bloom is not None:
                    denied += int((~bloom.might_contain_many(keys)).sum())
            yield from _check_statistics(group, held, path) if made is None else ()
    except InvalidRequest as error:
        yield Finding(SORTED, Severity.ERROR, path, error.what, _REWRITE)
        return
    if denied:
        yield Finding(KEY_MARKS, Severity.ERROR, path, f"the bloom filter denies {denied} keys", _REWRITE)
    for name, true in ((MIN_KEY, bounds.java_min), (MAX_KEY, bounds.java_max)):
        recorded = source.footer.get(name)
        if recorded is not None and recorded != true:
            what = f"the footer says {name}={recorded!r}, the rows have {true!r}"
            yield Finding(KEY_MARKS, Severity.ERROR, path, what, _REWRITE)


def _check_unique(
    source: ParquetSource, path: str, generator: KeyGenerator | None, count_repeats: CountRepeats
) -> Iterator[Finding]:
    columns = [RECORD_KEY] if generator is None else list(generator.columns)
    repeated = count_repeats(
        batch.column(0) if generator is None else record_key_array(generator, batch)
        for batch in source.batches(columns)
    )
    if repeated:
        what = f"the footer says that no key comes twice, but {repeated} rows repeat one"
        yield Finding(KEY_MARKS, Severity.ERROR, path, what, _REWRITE)


def _check_statistics(group: RowGroup, held: KeyBounds, path: str) -> Iterator[Finding]:
    """Key bounds of row groups decide what a look-up reads."""
    low, high = group.min_key, group.max_key
    if held.min is None or held.max is None or low is None or high is None:
        return
    if held.min < low or held.max > high:
        what = f"row group {group.index} holds keys {held.min!r} to {held.max!r} and records {low!r} to {high!r}"
        yield Finding(KEY_MARKS, Severity.ERROR, path, what, _REWRITE)


def _bloom(source: ParquetSource) -> BloomFilter | None:
    text = source.footer.get(FOOTER_KEY)
    return None if text is None else load_bloom_filter(text, source.footer.get(TYPE_CODE_KEY), source.label)
