"""Which blocks count: rollbacks, commits, retries, log compaction in RFC-48's four scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.datafile.log_file import open_log_file
from lakebed.datafile.log_scan import LogScan, ScannedLog, Why, completed_by, scan_slice
from lakebed.errors import CorruptTable, UnsupportedFormat
from lakebed.format.log.block import BlockKind, Header, LogBlock
from lakebed.format.names import parse_log_file
from lakebed.model.files import FileGroupId, LogFile, LogKind
from lakebed.storage.local import LocalStorage


def always(_: str) -> bool:
    return True


def data(instant: str, name: str = "", **header: str) -> LogBlock:
    return _block(BlockKind.AVRO_DATA, instant, name, **header)


def delete(instant: str, name: str = "", **header: str) -> LogBlock:
    return _block(BlockKind.DELETE, instant, name, **header)


def rollback(instant: str, target: str) -> LogBlock:
    return _block(BlockKind.COMMAND, instant, "", TARGET_INSTANT_TIME=target, COMMAND_BLOCK_TYPE="0")


def compacted(instant: str, *times: str, name: str = "") -> LogBlock:
    return data(instant, name, COMPACTED_BLOCK_TIMES=",".join(times))


def corrupt() -> LogBlock:
    return LogBlock(BlockKind.CORRUPT, 1, MappingProxyType({}), "corrupt", 4, 4, 9)


def _block(kind: BlockKind, instant: str, name: str, **header: str) -> LogBlock:
    entries = {Header.INSTANT_TIME: instant} | {Header[key]: value for key, value in header.items()}
    return LogBlock(kind, 1, MappingProxyType(entries), name or instant, 0, 0, 1)


def file(instant: str, *blocks: LogBlock, version: int = 1, kind: LogKind = LogKind.LOG) -> ScannedLog:
    log = LogFile(f"p/{instant}.{version}", 1, FileGroupId("p", "f"), instant, version, "0-0-0", kind, False)
    return ScannedLog(log, blocks)


def names(scan: LogScan) -> list[str]:
    assert [run.rank for run in scan.runs] == list(range(len(scan.runs)))
    return [run.block.file for run in scan.runs]


def of(*blocks: LogBlock, committed: Callable[[str], bool] = always, base: str | None = None) -> LogScan:
    return scan_slice([file("0", *blocks)], committed, base_instant_time=base)


def why(scan: LogScan) -> dict[str, Why]:
    return {item.block.file: item.why for item in scan.dropped}


def test_blocks_come_oldest_first_with_deletes_after_their_data() -> None:
    files = [
        file("3", data("3")),
        file("1", delete("1", "1 deletes"), kind=LogKind.DELETES),
        file("1", data("1")),
        file("2", data("2 v2"), version=2),
        file("2", data("2 v1"), version=1),
    ]
    scan = scan_slice(files, always)
    assert names(scan) == ["1", "1 deletes", "2 v1", "2 v2", "3"]
    assert [run.is_delete for run in scan.runs] == [False, True, False, False, False]


def test_change_data_and_corrupt_stretches_take_no_part() -> None:
    scan = scan_slice([file("1", data("1"), corrupt(), _block(BlockKind.CDC_DATA, "1", "cdc"))], always)
    assert names(scan) == ["1"]
    assert why(scan) == {"corrupt": Why.CORRUPT, "cdc": Why.CHANGE_DATA}
    assert [block.offset for block in scan.corrupt] == [4]
    with pytest.raises(CorruptTable) as caught:
        scan.require_intact()
    assert (caught.value.file, caught.value.offset) == ("corrupt", 4)


def test_damage_in_files_of_unfinished_writes_is_no_concern() -> None:
    scan = scan_slice([file("1", data("1")), file("2", corrupt())], completed_by({"1": "5"}))
    assert names(scan.require_intact()) == ["1"]


def test_uncommitted_and_later_commits_are_left_out() -> None:
    completion = {"1": "10", "2": "30", "3": "20"}
    blocks = (data("1"), data("2"), data("3"), data("4"))
    assert names(of(*blocks, committed=completed_by(completion))) == ["1", "2", "3"]
    assert names(of(*blocks, committed=completed_by(completion, "20"))) == ["1", "3"]
    assert names(of(*blocks, committed=completed_by(completion, "05"))) == []


def test_a_rollback_drops_earlier_blocks_of_its_target_only() -> None:
    scan = of(data("1"), delete("1", "1 deletes"), data("2"), rollback("3", "1"), data("1", "1 again"), data("4"))
    assert names(scan) == ["2", "1 again", "4"]
    assert why(scan)["1"] is Why.ROLLED_BACK


def test_a_rollback_reaches_other_files_of_the_slice() -> None:
    scan = scan_slice([file("1", data("1"), data("2")), file("3", data("3"), rollback("4", "1"))], always)
    assert names(scan) == ["2", "3"]


def test_unknown_commands_are_refused() -> None:
    with pytest.raises(UnsupportedFormat):
        of(_block(BlockKind.COMMAND, "1", "", COMMAND_BLOCK_TYPE="7", TARGET_INSTANT_TIME="0"))


# --- log compaction ---------------------------------------------------------------------------------------------------


def test_a_compacted_block_replaces_what_it_covers() -> None:
    scan = of(data("1"), data("2"), delete("2", "2 deletes"), data("3"), compacted("4", "1", "2", "3"))
    assert names(scan) == ["4"]
    assert (scan.runs[0].requested_time, scan.runs[0].stands_at, scan.runs[0].is_compacted) == ("4", "3", True)
    assert set(why(scan).values()) == {Why.COMPACTED}


def test_scenario_1_a_write_that_came_meanwhile_stays_above() -> None:
    assert names(of(data("1"), data("2"), data("3"), compacted("5", "1", "2"))) == ["5", "3"]
    assert names(of(data("1"), data("2"), data("4"), compacted("3", "1", "2"))) == ["3", "4"]


def test_scenario_2_a_rolled_back_or_unfinished_compaction_hides_nothing() -> None:
    blocks = (data("1"), data("2"), compacted("3", "1", "2"))
    assert names(of(*blocks, rollback("4", "3"))) == ["1", "2"]
    assert names(of(*blocks, data("4"), rollback("5", "3"))) == ["1", "2", "4"]
    assert names(of(*blocks, committed=lambda instant: instant != "3")) == ["1", "2"]


def test_scenario_3_a_compaction_in_several_blocks() -> None:
    first = compacted("4", "1", "2", name="4a")
    second = compacted("4", "1", "2", name="4b")
    assert names(of(data("1"), data("2"), data("3"), first, second, delete("4", "4 deletes"))) == [
        "4a",
        "4b",
        "4 deletes",
        "3",
    ]
    unmarked = data("4", "4b")
    assert names(of(data("1"), data("2"), data("3"), first, unmarked)) == ["4a", "4b", "3"]


def test_scenario_4_a_compaction_took_the_covered_blocks_meanwhile() -> None:
    late = compacted("4", "1", "2")
    scan = of(late, data("6"), base="5")
    assert names(scan) == ["6"] and why(scan) == {"4": Why.IN_BASE}
    assert names(of(data("2"), late, data("6"), base="5")) == ["4", "6"]  # 2 completed after the base began
    assert names(of(compacted("8", "6", "7"), data("9"), base="5")) == ["8", "9"]


def test_compactions_of_compactions_stand_at_the_newest_original() -> None:
    blocks = (data("1"), data("2"), data("4"), compacted("3", "1", "2"))
    assert names(of(*blocks)) == ["3", "4"]
    again = compacted("6", "3")
    assert names(of(*blocks, data("5"), again)) == ["6", "4", "5"]
    over = compacted("7", "3", "4")
    scan = of(*blocks, data("5"), over)
    assert names(scan) == ["7", "5"] and scan.runs[0].stands_at == "4"
    assert names(of(*blocks, data("5"), over, committed=lambda instant: instant != "7")) == ["3", "4", "5"]


def test_a_compacted_block_whose_covered_files_are_gone_is_placed_by_time() -> None:
    scan = scan_slice([file("1", data("1")), file("4", data("4")), file("5", compacted("5", "2", "3"))], always)
    assert names(scan) == ["1", "5", "4"]


def test_covering_itself_or_the_future_is_corrupt() -> None:
    for times in (("3",), ("1", "4")):
        with pytest.raises(CorruptTable):
            of(data("1"), compacted("3", *times))


def test_golden_log_compaction(golden: Callable[[str], Path]) -> None:
    table = golden("mor_logcompact_v8")
    storage = LocalStorage(table)
    for partition in ("p0", "p1"):
        logs = [
            open_log_file(storage, f"{partition}/{path.name}")
            for path in sorted((table / partition).iterdir())
            if parse_log_file(path.name)
        ]
        one, two, first, four, five, second = sorted(scanned.log.requested_time for scanned in logs)
        assert [(run.requested_time, run.stands_at) for run in scan_slice(logs, always).runs] == [(second, five)]
        before = scan_slice(logs, lambda instant, second=second: instant < second)
        assert [(run.requested_time, run.stands_at) for run in before.runs] == [
            (first, two),
            (four, four),
            (five, five),
        ]
        early = scan_slice(logs, lambda instant, first=first: instant < first)
        assert [run.requested_time for run in early.runs] == [one, two]


# --- retries ----------------------------------------------------------------------------------------------------------


def test_blocks_of_a_retried_task_count_once() -> None:
    once = (data("1", "a", BLOCK_IDENTIFIER="0,0"), delete("1", "b", BLOCK_IDENTIFIER="0,1"))
    again = (data("1", "c", BLOCK_IDENTIFIER="1,0"), delete("1", "d", BLOCK_IDENTIFIER="1,1"))
    scan = of(*once, *again)
    assert names(scan) == ["a", "b"]
    assert why(scan) == {"c": Why.REPEATED, "d": Why.REPEATED}
    assert names(of(once[0], *again)) == ["c", "d"]  # the first try died half-way
    assert names(of(*once, data("2", "e", BLOCK_IDENTIFIER="1,0"))) == ["a", "b", "e"]
    same = data("1", "x", BLOCK_IDENTIFIER="7"), data("1", "y", BLOCK_IDENTIFIER="7")
    assert names(of(*same, data("1", "z", BLOCK_IDENTIFIER="8"))) == ["x", "z"]
    assert names(of(data("1", "a"), data("1", "b"))) == ["a", "b"]


def test_positions_belong_to_one_base_file() -> None:
    header = {"BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS": "5", "RECORD_POSITIONS": "x"}
    (run,) = of(data("6", **header)).runs
    assert run.has_positions_for("5")
    assert not run.has_positions_for("4") and not run.has_positions_for(None)
    (run,) = of(data("6", IS_PARTIAL="true")).runs
    assert run.is_partial and not run.has_positions_for("5")


# --- in general -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8, unique=True), st.data())
def test_log_compaction_never_changes_the_order_of_what_is_read(instants: list[int], data_: st.DataObject) -> None:
    """Compacting a stretch of writes that are neighbours leaves the sequence of writes as it was."""
    times = sorted(f"{instant:02}" for instant in instants)
    first = data_.draw(st.integers(0, len(times) - 1))
    last = data_.draw(st.integers(first, len(times) - 1))
    files = [file(time, data(time)) for time in times]
    covered = times[first : last + 1]
    later = f"{data_.draw(st.integers(10, 20)):02}"
    newer = data_.draw(st.booleans())
    files.append(file(later, compacted(later, *covered)))
    if newer:
        files.append(file("30", data("30")))
    contents = {later: covered}

    def expand(found: Iterable[str]) -> list[str]:
        return [time for name in found for time in contents.get(name, [name])]

    assert expand(names(scan_slice(files, always))) == times + (["30"] if newer else [])
