"""What the change logs of golden tables hold, block by block, against the changes that real Hudi answered with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.datafile.log_file import open_log_file, read_block
from lakebed.format.log.block import BlockKind
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from tests.conftest import GOLDEN_NAMES, expected

TABLES = [name for name in GOLDEN_NAMES if "rows" in expected(name).get("cdc", {})]


def key_of(image: str | None) -> str | None:
    loaded = json.loads(image) if image else None
    return loaded["id"] if loaded else None


@pytest.mark.parametrize("name", TABLES)
def test_change_logs_hold_the_changes_of_their_commits(name: str, golden: Callable[[str], Path]) -> None:
    storage = LocalStorage(golden(name))
    view = FileSystemView.of(MetaClient.open(storage))
    ours = set()
    instants = set()
    for partition in view.partitions():
        for log in view.change_logs(partition):
            for block in open_log_file(storage, log).blocks:
                assert block.kind is BlockKind.CDC_DATA
                instants.add(block.requested_time)
                for batch in read_block(storage, block):
                    for row in batch.to_pylist():
                        images = [row.get("after"), row.get("before")]
                        key = row.get("record_key") or next(image["id"] for image in images if image)
                        ours.add((row["op"], block.requested_time, key))
    rows = expected(name)["cdc"]["rows"]
    theirs = {(row[0], row[1], key_of(row[3]) or key_of(row[2])) for row in rows}
    assert instants or name.startswith("mor"), "copy-on-write tables log their changes"
    if instants & {row[1] for row in rows}:
        assert ours == {change for change in theirs if change[1] in instants}
    else:  # written by a compaction: the changes of the deltas that it took in
        assert {(op, key) for op, _, key in ours} <= {(op, key) for op, _, key in theirs}


@pytest.mark.parametrize("name", ["cow_cdc_v9"])
def test_before_and_after_images(name: str, golden: Callable[[str], Path]) -> None:
    storage = LocalStorage(golden(name))
    view = FileSystemView.of(MetaClient.open(storage))
    ours = set()
    for partition in view.partitions():
        for log in view.change_logs(partition):
            for block in open_log_file(storage, log).blocks:
                for batch in read_block(storage, block):
                    for row in batch.to_pylist():
                        ours.add((row["op"], json.dumps(row["before"]), json.dumps(row["after"])))
    theirs = set()
    for op, _, before, after in expected(name)["cdc"]["rows"]:
        images = [json.loads(text) if text else None for text in (before, after)]
        if not any(image and "_hoodie_commit_time" in image for image in images):
            theirs.add((op, json.dumps(images[0]), json.dumps(images[1])))
    assert ours == theirs
    assert len(ours) > 10
