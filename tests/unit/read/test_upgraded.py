"""A table that real Hudi made as version 6 and upgraded to 9: logs of its past bear the begin of their base file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import lakebed
from lakebed.format.log.block import BlockKind, Header
from lakebed.format.log.v1 import encode_block
from tests.golden.upgraded import COMPLETED, WRITES, hudis, ours, shared_logs, unpack_upgraded


@pytest.fixture
def upgraded(tmp_path: Path) -> Path:
    return unpack_upgraded(tmp_path)


def test_every_time_reads_as_with_hudi(upgraded: Path) -> None:
    for instant in json.loads((upgraded.parent / "as_of.json").read_text()):
        assert ours(upgraded, as_of=instant) == hudis(upgraded, instant), instant
    assert ours(upgraded) == hudis(upgraded, WRITES[-1])
    assert lakebed.open(upgraded).check() == []


def test_changes_of_its_past(upgraded: Path) -> None:
    table = lakebed.open(upgraded)
    for number in (1, 2):
        rows = table.incremental(COMPLETED[number - 1], COMPLETED[number]).to_arrow().to_pylist()
        assert {row["_hoodie_commit_time"] for row in rows} == {WRITES[number]}
        assert len(rows) == 4


def test_writes_that_were_appended_to_one_log(upgraded: Path) -> None:
    """As where files can be appended to: two writes in one log, then a third that failed, and its rollback."""
    first, second = shared_logs(upgraded)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    failed = second.read_bytes().replace(WRITES[2].encode(), b"20261116035746000")
    rollback = {
        Header.INSTANT_TIME: "20261116035746500",
        Header.TARGET_INSTANT_TIME: "20261116035746000",
        Header.COMMAND_BLOCK_TYPE: "0",
    }
    for more in (b"", failed, failed + encode_block(BlockKind.COMMAND, rollback, b"")):
        copy = Path(shutil.copytree(upgraded, upgraded.parent / f"with-{len(more)}"))
        log = copy / "p0" / first.name
        log.write_bytes(log.read_bytes() + more)
        reported = copy / "p0" / second.name
        reported.write_bytes(b"")  # its block is in the first
        with pytest.raises(lakebed.LakebedError):
            ours(copy, as_of=WRITES[2])  # a file that was reported is shorter than that
        reported.write_bytes(b"\0" * second.stat().st_size)
        for instant in WRITES[:3]:
            assert ours(copy, as_of=instant) == hudis(upgraded, instant), (instant, len(more))
