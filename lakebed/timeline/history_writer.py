"""Writes the history: flush, compaction of levels and sweep, each an atomic change of the current version.

    flush     <min>_<max>_0.parquet  ->  manifest_<N+1>  ->  _version_ = N+1        the moment that counts
    compact   10 files of a level    ->  <min>_<max>_<level+1>.parquet  ->  manifest, _version_; level by level
              files of level 9, the last that fits into a name, merge into one of level 9 again
    sweep     manifests of older versions, and files that no manifest which is kept lists

The caller holds the table lock. A file is complete before a manifest lists it, and a manifest before `_version_` names
it; leftovers of a writer that died, which neither lists, are overwritten or removed. Readers read `_version_` once and
then use files of that version, which are kept for some more versions and rounds of archiving.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import CorruptTable
from lakebed.format.avro.container import SCHEMAS
from lakebed.format.names import (
    VERSION_FILE,
    history_file_name,
    manifest_file_name,
    parse_history_file,
    parse_manifest_file,
)
from lakebed.format.timeline.files import ManifestEntry, parse_manifest, render_manifest, render_version
from lakebed.timeline.history import History
from lakebed.timeline.history_columns import REQUESTED, STORED, ascends
from lakebed.timeline.history_files import HistoryFile, files_of
from lakebed.timeline.history_reader import SORTED_KEY

STORED_SCHEMA = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_FOOTER = {
    "writer.model.name": "avro",
    "parquet.avro.schema": json.dumps(SCHEMAS["HoodieLSMTimelineInstant"], separators=(",", ":")),
}
ROW_GROUP_ROWS = 512
"""A body is looked up by reading its row group, so these are small."""
CODEC = "snappy"
LAST_LEVEL = 9
"""Hudi reads one digit in the name of a history file, and refuses a history that has a file with two."""


def flush(history: History, rows: pa.Table) -> History:
    """Add actions, in the columns of `History.loaded` and by requested time; the new version."""
    times = rows[REQUESTED]
    name = history_file_name(times[0].as_py(), times[-1].as_py(), 0)
    entry = _write(history, name, iter([_stored(rows)]))
    return _publish(history, [*_entries(history.files), entry])


def compact(history: History, batch: int, target_size: int) -> History:
    """Merge the files of every level that has enough of them, lower levels first; the newest version."""
    for level in range(LAST_LEVEL + 1):
        files = _not_full([f for f in history.files if f.name.level == level], target_size)
        if len(files) < batch:
            continue
        chosen = _first_files(files, batch, target_size)
        names = [file.name for file in chosen]
        first, last = min(name.min_time for name in names), max(name.max_time for name in names)
        name = history_file_name(first, last, min(level + 1, LAST_LEVEL))
        if any(file.file_name == name for file in history.files):
            continue  # its range holds those of the others, and it cannot be written while it is read
        entry = _write(history, name, _merged(history, chosen))
        history = _publish(history, [*_entries(f for f in history.files if f not in chosen), entry])
    return history


def sweep(history: History, rounds: int) -> None:
    """Delete what neither the current version nor one that a reader may still use lists."""
    listed = [info.name for info in history.storage.list(history.folder)]
    kept = _kept_manifests(history, listed, rounds)
    named = {entry.file_name for entries in kept.values() for entry in entries}
    manifests = [(name, number) for name in listed if (number := parse_manifest_file(name)) is not None]
    old = [name for name, number in manifests if number not in kept]
    old += [name for name in listed if parse_history_file(name) is not None and name not in named]
    history.storage.delete([f"{history.folder}/{name}" for name in old])


def _not_full(files: Sequence[HistoryFile], target_size: int) -> list[HistoryFile]:
    """The files after the newest full one, oldest first: a merge of files on both sides of it would overlap it.

    A file is full above half of the target size: two of those would make a file above the target size.
    """
    ordered = sorted(files, key=lambda file: file.path)
    full = [number for number, file in enumerate(ordered) if 2 * file.size > target_size]
    return ordered[full[-1] + 1 :] if full else ordered


def _first_files(files: Sequence[HistoryFile], batch: int, target_size: int) -> list[HistoryFile]:
    """The oldest files of a level: as many as one merge takes, fewer when together they would be too large."""
    sizes = accumulate(file.size for file in files[:batch])
    return [file for file, size in zip(files, sizes, strict=False) if size <= target_size]


def _merged(history: History, files: Sequence[HistoryFile]) -> Iterator[pa.Table]:
    """The stored rows of files by requested time, row group by row group where the ranges of the files are disjoint."""
    ordered = sorted(files, key=lambda file: file.path)
    names = [file.name for file in ordered]
    parts = (_cast(part) for part in History(history.storage, ordered, None, history.folder).parts())
    if all(before.max_time < after.min_time for before, after in pairwise(names)):
        return parts
    return iter([pa.concat_tables(parts).sort_by([("instantTime", "ascending"), ("action", "ascending")])])


def _cast(part: pa.Table) -> pa.Table:
    try:
        return part.select(STORED_SCHEMA.names).cast(STORED_SCHEMA)
    except (KeyError, pa.ArrowException) as error:
        raise CorruptTable(f"a history file has other columns than it should: {error}") from error


def _stored(rows: pa.Table) -> pa.Table:
    columns = [rows[STORED[name]] for name in STORED_SCHEMA.names[:-1]]
    return pa.Table.from_arrays([*columns, pa.repeat(pa.scalar(1, pa.int32()), rows.num_rows)], schema=STORED_SCHEMA)


def _write(history: History, name: str, parts: Iterator[pa.Table]) -> ManifestEntry:
    path = f"{history.folder}/{name}"
    history.storage.delete([path])  # a leftover: no manifest lists it
    with history.storage.open_output(path) as out:
        with pq.ParquetWriter(
            out,
            STORED_SCHEMA,
            compression=CODEC,
            use_dictionary=["action"],
            write_statistics=["instantTime", "completionTime"],
            store_schema=False,
        ) as writer:
            before = pa.chunked_array([], pa.string())
            is_sorted = True
            for table in _row_groups(parts):
                times = table["instantTime"]
                is_sorted = is_sorted and ascends(pa.chunked_array([*before.chunks, *times.chunks]))
                before = times.slice(len(times) - 1)
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            writer.add_key_value_metadata({**_FOOTER, **({SORTED_KEY: "true"} if is_sorted else {})})
        size = out.tell()
    return ManifestEntry(name, size)


def _row_groups(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of a row group and more."""
    gathered: list[pa.Table] = []
    for part in parts:
        gathered.append(part)
        if sum(item.num_rows for item in gathered) >= ROW_GROUP_ROWS:
            yield pa.concat_tables(gathered)
            gathered = []
    if gathered:
        yield pa.concat_tables(gathered)


def _publish(history: History, entries: Sequence[ManifestEntry]) -> History:
    number = (history.version or 0) + 1
    ordered = sorted(entries, key=lambda entry: entry.file_name)
    history.storage.put(f"{history.folder}/{manifest_file_name(number)}", render_manifest(ordered))
    history.storage.put(f"{history.folder}/{VERSION_FILE}", render_version(number))
    return History(history.storage, files_of(ordered, history.folder), number, history.folder)


def _entries(files: Sequence[HistoryFile] | Iterator[HistoryFile]) -> list[ManifestEntry]:
    return [ManifestEntry(file.file_name, file.size) for file in files]


def _kept_manifests(history: History, listed: Sequence[str], rounds: int) -> dict[int, tuple[ManifestEntry, ...]]:
    """Versions to keep: at least `rounds`, and all of the last `rounds` rounds. A flush adds a file of level 0."""
    kept: dict[int, tuple[ManifestEntry, ...]] = {}
    flushes = 0
    number = history.version or 0
    while number > 0 and manifest_file_name(number) in listed and (len(kept) < rounds or flushes < rounds):
        path = f"{history.folder}/{manifest_file_name(number)}"
        try:
            kept[number] = parse_manifest(history.storage.read(path), path)
        except (CorruptTable, FileNotFoundError):
            break
        newer = kept.get(number + 1)
        if newer is not None:
            flushes += bool(_fresh(newer) - _fresh(kept[number]))
        number -= 1
    return kept


def _fresh(entries: Sequence[ManifestEntry]) -> set[str]:
    return {e.file_name for e in entries if (name := parse_history_file(e.file_name)) is not None and name.level == 0}
