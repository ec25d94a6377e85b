"""Rows in parts whose keys fit: nothing is lost, a key is in one part, order is kept, and disk is given back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakebed.write.rows.group_buffers import GroupBuffers
from lakebed.write.rows.key_parts import key_parts

SPOOL = -1
ROWS = 30_000


@dataclass(frozen=True)
class Rows:
    """A share for so many rows."""

    most: int

    def passes(self, rows: int, nbytes: int) -> int:
        return -(-rows // self.most)


def batches(rows: int, keys: int) -> list[pa.RecordBatch]:
    """Rows with a key, their number, and something wide that no part should hold."""
    numbers = np.arange(rows)
    made = pa.record_batch(
        {
            "key": pa.array([f"k{n % keys}" for n in numbers]),
            "n": pa.array(numbers),
            "wide": pa.array(["x" * 50] * rows),
        }
    )
    return [made.slice(start, 1_000) for start in range(0, rows, 1_000)]


def filled(buffers: GroupBuffers, rows: int = ROWS, keys: int = ROWS // 3) -> None:
    for batch in batches(rows, keys):
        buffers.put(SPOOL, batch)


@pytest.mark.parametrize("memory", [1 << 16, 1 << 30])
@pytest.mark.parametrize("most", [700, 5_000, ROWS - 1])
def test_a_key_is_in_one_part_with_all_its_rows_in_order(
    memory: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: dict[str, list[int]] = {}
    parts = 0
    with GroupBuffers(memory) as buffers:
        filled(buffers)
        (spool,) = buffers.take([SPOOL])
        for part, table in key_parts(buffers, spool, "key", ["key", "n"], Rows(most)):
            parts += 1
            assert table.column_names == ["key", "n"]
            assert table.num_rows == part.rows <= most
            whole = pa.Table.from_batches(part.batches(123))
            assert whole.column("n").to_pylist() == table.column("n").to_pylist()
            assert set(whole.column("wide").to_pylist()) == {"x" * 50}
            own: dict[str, list[int]] = {}
            for row in table.to_pylist():
                own.setdefault(row["key"], []).append(row["n"])
            assert not own.keys() & seen.keys()
            seen |= own
        left = list(tmp_path.rglob("*.arrow"))
        assert not left, "what was worked on lies on disk"
    assert parts > ROWS // most
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sorted(n for numbers in seen.values() for n in numbers) == list(range(ROWS))
    assert not list(tmp_path.iterdir())


def test_what_fits_is_not_divided() -> None:
    with GroupBuffers(1 << 30) as buffers:
        filled(buffers)
        (spool,) = buffers.take([SPOOL])
        ((part, table),) = key_parts(buffers, spool, "key", ["key"], Rows(ROWS))
        assert part is spool
        assert table.num_rows == ROWS


def test_rows_of_one_key_are_not_divided_however_many() -> None:
    with GroupBuffers(1 << 16) as buffers:
        filled(buffers, keys=1)
        (spool,) = buffers.take([SPOOL])
        ((part, table),) = key_parts(buffers, spool, "key", ["key"], Rows(10))
        assert (part.rows, table.num_rows) == (ROWS, ROWS)
