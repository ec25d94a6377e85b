"""The place of runs in fold order: by the instants that they stand for, whatever was cleaned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from lakebed.datafile.log_scan import ScannedLog, scan_slice
from tests.unit.datafile.test_log_scan import always, compacted, data, delete, file, names


def order(*files: ScannedLog, base: str | None = None) -> list[str]:
    return names(scan_slice(files, always, base_instant_time=base))


def result(instant: str, *covered: str) -> ScannedLog:
    return file(instant, compacted(instant, *covered))


def write(instant: str) -> ScannedLog:
    return file(instant, data(instant))


def test_a_clean_does_not_change_the_order_of_log_compactions() -> None:
    """The newer stretch was merged first, the older one second."""
    writes = [write(time) for time in "1234"]
    results = [result("5", "3", "4"), result("6", "1", "2")]
    for left in ([], writes[:1], writes[2:], writes):
        assert order(*left, *results, write("7")) == ["6", "5", "7"]
        assert order(*left, *results, write("7"), base="0") == ["6", "5", "7"]


def test_runs_say_at_which_instant_they_stand() -> None:
    scan = scan_slice([result("5", "3", "4"), result("6", "1", "2"), write("45")], always)
    assert [(run.requested_time, run.stands_at) for run in scan.runs] == [("6", "2"), ("5", "4"), ("45", "45")]
    assert scan.covered == set("1234")


def test_blocks_of_one_compaction_stay_together() -> None:
    first = file("5", compacted("5", "3", "4", name="5a"), compacted("5", "3", "4", name="5b"))
    second = file("6", compacted("6", "1", "2", name="6a"), delete("6", "6b"))
    more = file("5", delete("5", "5c"), version=2)
    assert order(first, more, second) == ["6a", "6b", "5a", "5b", "5c"]


def test_a_result_of_a_result_that_is_gone_stands_where_its_originals_stood() -> None:
    assert order(write("5"), result("6", "1", "2", "3")) == ["6", "5"], "the result 4 of 1 and 2 was cleaned"
    assert order(write("5"), result("4", "1", "2"), result("6", "1", "2", "3")) == ["6", "5"]


def test_shared_logs_keep_the_order_of_their_blocks() -> None:
    """Tables from before version 8: a log bears the instant of its base file, and later writes append to it."""
    shared = file("1", data("2"), data("4"), data("3"), data("5"))
    assert order(shared) == ["2", "4", "3", "5"]
    merged = file("1", compacted("6", "2", "4"), version=2)
    assert order(shared, merged) == ["6", "3", "5"], "4 stood below 3 there"
    assert order(shared, merged, write("8")) == ["6", "3", "5", "8"]


def test_old_instants_of_seconds_stand_at_the_end_of_their_second() -> None:
    second, within, after = "20230101000000", "20230101000000500", "20230101000001000"
    assert order(write(second), write(within), write(after)) == [within, second, after]
    merged = result("20230101000005000", second, within)
    assert order(merged, write(after)) == ["20230101000005000", after]
    assert [run.stands_at for run in scan_slice([merged], always).runs] == [second]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, list[str]]], set[str]]:
    """Writes, log compactions of neighbouring runs in any order, and covered logs that are gone."""
    count = draw(st.integers(2, 9))
    writes = [f"{time:02}" for time in range(count)]
    runs: list[tuple[str, list[str]]] = [(time, [time]) for time in writes]
    made: list[tuple[str, list[str]]] = []
    for number in range(draw(st.integers(1, 4))):
        if len(runs) < 2:
            break
        first = draw(st.integers(0, len(runs) - 2))
        last = draw(st.integers(first + 1, len(runs) - 1))
        originals = [time for _, times in runs[first : last + 1] for time in times]
        name = f"{50 + number:02}"
        made.append((name, originals))
        runs[first : last + 1] = [(name, originals)]
    dead = ({*writes} | {name for name, _ in made}) - {name for name, _ in runs}
    return writes, made, set(draw(st.lists(st.sampled_from(sorted(dead)), unique=True)))


@given(histories(), st.booleans())
def test_no_clean_changes_what_is_read(
    history: tuple[list[str], list[tuple[str, list[str]]], set[str]], newer: bool
) -> None:
    writes, made, gone = history
    files = [write(time) for time in writes if time not in gone]
    files += [result(name, *originals) for name, originals in made if name not in gone]
    files += [write("90")] if newer else []
    contents = dict(made)
    assert _expanded(order(*files), contents) == [*writes, *(["90"] if newer else [])]


def _expanded(found: Iterable[str], contents: dict[str, list[str]]) -> Sequence[str]:
    return [time for name in found for time in contents.get(name, [name])]
