"""Buffered rows in parts whose keys fit into memory: all rows of a key are in one part, in their order.

    a buffer ──► its keys fit             the buffer as it is
             ──► they do not              further buffers by a hash of the key, each checked again

So work that needs all rows of a key together can be done part by part: finding the file group of each key, or finding
keys that are in two file groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakebed.merge.arrow_numpy import Ints, index_array
from lakebed.merge.key_index import hash_keys
from lakebed.write.rows.group_buffers import GroupBuffer, GroupBuffers

_SEEDS = (0xD6E8_FEB8_6659_FD93, 0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB)
"""One per level of splitting; key look-ups use other seeds, so that their hashes are evenly spread within a part."""
_ROWS = 1 << 16


class KeyShare(Protocol):
    """A share of the memory for keys."""

    def passes(self, rows: int, nbytes: int) -> int:
        """Into how many parts `rows` rows of `nbytes` bytes must be split to fit the share."""
        ...


def key_parts(
    buffers: GroupBuffers, buffer: GroupBuffer, key: str, names: Sequence[str], share: KeyShare, level: int = 0
) -> Iterator[tuple[GroupBuffer, pa.Table]]:
    """The rows of a buffer that was taken, in parts, each with the columns `names` of its rows in memory.

    A part is discarded when the next one is requested. The rows of a single key may be more than fit: they are not
    split any further.
    """
    held: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in buffer.batches(_ROWS):
        chosen = _copied(batch.select(names))
        rows += batch.num_rows
        nbytes += chosen.nbytes
        if level < len(_SEEDS) and share.passes(rows, nbytes) > 1:
            parts = share.passes(buffer.rows, nbytes * buffer.rows // rows)
            held.clear()
            for part in _divided(buffers, buffer, key, min(buffers.fan_out, parts * 5 // 4 + 1), _SEEDS[level]):
                yield from key_parts(buffers, part, key, names, share, level + 1)
            return
        held.append(chosen)
    yield buffer, pa.Table.from_batches(held, pa.schema([buffer.schema.field(name) for name in names]))
    buffers.give_up(buffer)


def _divided(buffers: GroupBuffers, buffer: GroupBuffer, key: str, parts: int, seed: int) -> Iterator[GroupBuffer]:
    first = buffers.free_numbers(parts)
    for batch in buffer.batches(_ROWS):
        buffers.add_numbered(batch, first + _part_of(batch.column(key), parts, seed))
    buffers.give_up(buffer)
    for number in range(first, first + parts):
        yield from buffers.take([number])


def _part_of(keys: pa.Array, parts: int, seed: int) -> Ints:
    """The part of every key, by the upper half of its hash."""
    upper = hash_keys(keys, seed) >> np.uint64(32)
    return (upper % np.uint64(parts)).astype(np.int64)


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of the columns: slices would keep the other columns that were read with them in memory."""
    return batch.take(index_array(np.arange(batch.num_rows, dtype=np.int64)))
