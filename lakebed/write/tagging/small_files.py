"""File groups for new keys of indexes without a hash: small files first, then new file groups.

Pure functions. A group is chosen by the key's hash among slots allocated in proportion to the free space of each file,
so that two rows of a new key in one batch go to the same task, whatever tasks they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.write_options import WriteOptions
from lakebed.index.bucket import grouped
from lakebed.index.locations import FILE_ID, ROWS_AT_ONCE, distinct
from lakebed.merge.arrow_numpy import Ints, index_array, index_array_with_nulls, truths
from lakebed.model.bucket_hash import string_hashes
from lakebed.model.concat import concat_chunks
from lakebed.model.files import FileSlice
from lakebed.model.schema import PARTITION_PATH, RECORD_KEY

SLOTS = 1 << 12
"""Shares are allocated in this many slots; finer than any sensible number of files per partition and write."""


@dataclass(frozen=True, slots=True)
class InsertBucket:
    """A group for new keys of one partition: an existing small slice, or a new group."""

    file_id: str
    slots: int
    slice: FileSlice | None = None


def small_slices(slices: Sequence[FileSlice], options: WriteOptions, *, is_mor: bool) -> list[FileSlice]:
    """Slices that still have room, smallest first. On merge-on-read only slices without logs take new keys."""
    return sorted(
        (
            file_slice
            for file_slice in slices
            if file_slice.base_file is not None
            and file_slice.base_file.extension == "parquet"
            and file_slice.size < options.small_file_limit
            and not (is_mor and file_slice.log_files)
        ),
        key=lambda file_slice: file_slice.size,
    )


def insert_buckets(
    slices: Sequence[FileSlice],
    new_bytes: int,
    options: WriteOptions,
    new_id: Callable[[], str],
    *,
    is_mor: bool,
    taken: Mapping[str, int] | None = None,
) -> list[InsertBucket]:
    """The groups for `new_bytes` bytes of new rows, with their shares of `SLOTS`.

    `taken` has the bytes that earlier parts of the same write add to each file, small or new, by file id.
    """
    used = taken or {}
    target = max(1, options.max_file_size)
    left = max(1, new_bytes)
    shares: list[tuple[str, int, FileSlice | None]] = []
    for file_slice in small_slices(slices, options, is_mor=is_mor):
        if left <= 0:
            break
        room = min(left, target - file_slice.size - used.get(file_slice.file_group.file_id, 0))
        if room > 0:
            shares.append((file_slice.file_group.file_id, room, file_slice))
            left -= room
    known = {file_slice.file_group.file_id for file_slice in slices}
    for file_id, size in used.items():
        room = min(left, target - size)
        if file_id not in known and room > 0:
            shares.append((file_id, room, None))
            left -= room
    while left > 0:
        shares.append((new_id(), min(left, target), None))
        left -= target
    total = sum(share for _, share, _ in shares)
    ends = np.cumsum([share for _, share, _ in shares]) * SLOTS // total
    ends[-1] = SLOTS
    starts = [0, *ends[:-1].tolist()]
    found = [
        InsertBucket(file_id, int(end - start), file_slice)
        for (file_id, _, file_slice), start, end in zip(shares, starts, ends.tolist(), strict=True)
    ]
    return [bucket for bucket in found if bucket.slots]


def insert_bucket_of_keys(keys: pa.Array, buckets: Sequence[InsertBucket]) -> Ints:
    """The number of the bucket of every key."""
    slot = (np.asarray(string_hashes(keys)).astype(np.int64) & 0x7FFFFFFF) % SLOTS
    ends = np.cumsum([bucket.slots for bucket in buckets])
    return np.searchsorted(ends, slot, side="right").astype(np.int64)


def assign_inserts(located: pa.Table, insert_buckets_in: Callable[[str, int], list[InsertBucket]]) -> pa.Table:
    """Located rows with a file group for every key; `insert_buckets_in` gives those for a path and a count of keys."""
    column = located.column(FILE_ID)
    if not column.null_count:
        return located
    new = truths(concat_chunks(pc.is_null(column)))
    paths, path_of = distinct(located, PARTITION_PATH)
    keys = concat_chunks(located.column(RECORD_KEY))
    ids: list[str] = []
    bucket_of = np.full(located.num_rows, -1, np.int64)
    for path, rows in zip(paths.to_pylist(), grouped(path_of, len(paths)), strict=True):
        members = rows[new[rows]]
        if len(members):
            buckets = insert_buckets_in(path, len(members))
            bucket_of[members] = len(ids) + insert_bucket_of_keys(keys.take(index_array(members)), buckets)
            ids += [bucket.file_id for bucket in buckets]
    position = located.schema.get_field_index(FILE_ID)
    return located.set_column(position, located.schema.field(position), _filled(column, ids, bucket_of))


def _filled(column: pa.ChunkedArray, ids: list[str], number: Ints) -> pa.ChunkedArray:
    """A column of file ids, its gaps filled by number; in chunks, as repeated ids may be too large for one array."""
    texts, chunks = pa.array(ids, pa.string()), []
    for start in range(0, len(column), ROWS_AT_ONCE):
        known = concat_chunks(column.slice(start, ROWS_AT_ONCE))
        chunks.append(pc.coalesce(known, texts.take(index_array_with_nulls(number[start : start + ROWS_AT_ONCE]))))
    return pa.chunked_array(chunks, pa.string())
