"""Homes for new keys, where no hash says where a key belongs: small files first, then new file groups.

Pure functions. A home is chosen by the key's hash among slots handed out in proportion to the room each file has, so
that two copies of a new key in one batch meet in one task, whatever task they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.config.write_options import WriteOptions
from lakebed.merge.vectors import Ints
from lakebed.model.bucket_hash import string_hashes
from lakebed.model.files import FileSlice

SLOTS = 1 << 12
"""Shares are handed out in this many slots; finer than any sensible number of files per partition and write."""


@dataclass(frozen=True, slots=True)
class Home:
    """A place for new keys of one partition: an existing small slice, or a new group."""

    file_id: str
    slots: int
    slice: FileSlice | None = None


def small_slices(slices: Sequence[FileSlice], options: WriteOptions, *, is_mor: bool) -> list[FileSlice]:
    """Slices that still have room, smallest first. On merge-on-read only those without logs are rewritten for it."""
    return sorted(
        (
            piece
            for piece in slices
            if piece.base_file is not None
            and piece.base_file.extension == "parquet"
            and piece.size < options.small_file_limit
            and not (is_mor and piece.log_files)
        ),
        key=lambda piece: piece.size,
    )


def homes(
    slices: Sequence[FileSlice], new_bytes: int, options: WriteOptions, new_id: Callable[[], str], *, is_mor: bool
) -> list[Home]:
    """Where so many bytes of new rows go, as shares of `SLOTS`."""
    target = max(1, options.max_file_size)
    left = max(1, new_bytes)
    shares: list[tuple[str, int, FileSlice | None]] = []
    for piece in small_slices(slices, options, is_mor=is_mor):
        if left <= 0:
            break
        room = min(left, target - piece.size)
        if room > 0:
            shares.append((piece.file_group.file_id, room, piece))
            left -= room
    while left > 0:
        shares.append((new_id(), min(left, target), None))
        left -= target
    total = sum(share for _, share, _ in shares)
    ends = np.cumsum([share for _, share, _ in shares]) * SLOTS // total
    ends[-1] = SLOTS
    starts = [0, *ends[:-1].tolist()]
    found = [
        Home(file_id, int(end - start), piece)
        for (file_id, _, piece), start, end in zip(shares, starts, ends.tolist(), strict=True)
    ]
    return [home for home in found if home.slots]


def home_of_keys(keys: pa.Array, places: Sequence[Home]) -> Ints:
    """The number of the home of every key."""
    slot = (np.asarray(string_hashes(keys)).astype(np.int64) & 0x7FFFFFFF) % SLOTS
    ends = np.cumsum([home.slots for home in places])
    return np.searchsorted(ends, slot, side="right").astype(np.int64)
