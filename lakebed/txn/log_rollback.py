"""Rolling back a write whose rows are in logs that it shares with other writes, as before table version 8.

    .<file id>_<base>.log.1_…    blocks of write A             all logs of a slice have the time of its base file
    .<file id>_<base>.log.2_…    blocks of writes B and C      (where files cannot be appended to, one write each)
    .<file id>_<base>.log.3_…    command: drop the earlier blocks of B           <- what is written here

Such a log cannot be deleted with one of its writes, and readers of later versions count every block of a log whose name
is committed. Only tables that were created before version 8 and upgraded have them, in old slices, which become current
again by a restore, or when the compaction of the upgrade is rolled back. The command applies to the blocks before it in
the slice, whatever its log version, so where another writer took a name meanwhile the next one is used; a second run
finds the command and adds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from lakebed.datafile.log_file import open_log_file
from lakebed.datafile.log_scan import ScannedLog
from lakebed.format.log.block import ROLLBACK_COMMAND, BlockKind, Header
from lakebed.format.log.v1 import encode_block
from lakebed.format.names import ROLLBACK_TOKEN, LogFileName, parse_log_file
from lakebed.model.files import LogKind
from lakebed.storage.storage import Storage, joined
from lakebed.timeline.clock import comparable


def take_back_blocks(storage: Storage, paths: Iterable[str], target: str, by: str) -> dict[str, int]:
    """Write a command behind the blocks of `target` in every slice that has some; the new logs with their sizes.

    `paths` are the table's data files, `by` is the requested time of the rollback.
    """
    header = {
        Header.INSTANT_TIME: by,
        Header.TARGET_INSTANT_TIME: target,
        Header.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
    }
    command = encode_block(BlockKind.COMMAND, header, b"")
    written: dict[str, int] = {}
    for slice_paths in _slices(paths, target):
        logs = [open_log_file(storage, path) for path in slice_paths]
        if not _counts(logs, target):
            continue
        last = max(logs, key=lambda scanned: scanned.log.order).log
        group, version = last.file_group, last.version + 1
        while True:
            name = LogFileName(group.file_id, last.requested_time, version, ROLLBACK_TOKEN, LogKind.LOG, native=False)
            path = joined(group.partition_path, name.render())
            if storage.put_if_absent(path, command):
                break
            version += 1
        written[path] = len(command)
    return written


def _slices(paths: Iterable[str], target: str) -> Iterator[list[str]]:
    """The inline logs whose names have an older time than the target's, by slice."""
    named = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        log = parse_log_file(name)
        if log is None or log.native or log.kind is not LogKind.LOG:
            continue
        if comparable(log.requested_time) < comparable(target):
            named.append(((folder, log.file_id, log.requested_time), path))
    for _, found in groupby(sorted(named), key=lambda item: item[0]):
        yield [path for _, path in found]


def _counts(logs: Sequence[ScannedLog], target: str) -> bool:
    """Whether a block of the target comes after the last command against it."""
    counts = False
    for scanned in sorted(logs, key=lambda scanned: scanned.log.order):
        for block in scanned.blocks:
            if block.is_rollback:
                counts = counts and block.target_instant_time != target
            elif block.kind not in (BlockKind.CORRUPT, BlockKind.COMMAND):
                counts = counts or block.requested_time == target
    return counts
