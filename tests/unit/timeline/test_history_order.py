"""Archived actions newest first: by begin and by completion, where files overlap, and without opening all of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lakebed.model.instant import Action, Instant
from lakebed.storage.local import LocalStorage
from lakebed.timeline.history import History
from tests.unit.timeline.test_history import t, write_history

COMMITS = (Action.COMMIT,)
Rows = list[tuple[str, str, str]]


def history_of(root: Path, *files: Rows) -> History:
    named = {f"{rows[0][0]}_{rows[-1][0]}_{level}.parquet": rows for level, rows in enumerate(files)}
    write_history(root, named)
    return History.load(LocalStorage(root))


def begins(found: list[Instant]) -> list[str]:
    return [instant.requested_time for instant in found]


def test_newest_first_is_newest_first_where_files_overlap(tmp_path: Path) -> None:
    """The file with the greatest begin is not the one with all of the greatest."""
    wide: Rows = [(t(1), t(2), "clean"), (t(9), t(10), "clean")]
    inner: Rows = [(t(4), t(5), "clean"), (t(8), t(9), "clean")]
    history = history_of(tmp_path, wide, inner)
    assert begins(list(history.newest_first((Action.CLEAN,)))) == [t(9), t(8), t(4), t(1)]
    assert begins(list(history.newest_first((Action.CLEAN,), low=t(4)))) == [t(9), t(8), t(4)]


def test_the_newest_by_completion_may_have_begun_first(tmp_path: Path) -> None:
    slow: Rows = [(t(1), t(90), "commit"), (t(2), t(3), "commit")]
    quick: Rows = [(t(5), t(6), "commit"), (t(7), t(8), "clean"), (t(9), t(10), "commit")]
    history = history_of(tmp_path, slow, quick)
    assert begins(list(history.newest_completed_first(COMMITS))) == [t(1), t(9), t(5), t(2)]
    assert begins(list(history.newest_completed_first(COMMITS, t(89)))) == [t(9), t(5), t(2)]
    assert begins(list(history.newest_completed_first(COMMITS, t(5)))) == [t(2)]


@pytest.mark.parametrize("seed", range(20))
def test_any_overlap_any_order_each_action_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    times = sorted(chance.sample(range(1000), 40))
    rows: Rows = [
        (
            t(requested_time),
            t(requested_time + chance.randint(1, 300)),
            chance.choice(["commit", "clean", "deltacommit"]),
        )
        for requested_time in times
    ]
    files = [sorted(chance.sample(rows, chance.randint(1, 20))) for _ in range(chance.randint(1, 6))]
    history = history_of(tmp_path, *files)
    there = {row for file in files for row in file if row[2] == "commit"}
    assert begins(list(history.newest_first(COMMITS))) == sorted((row[0] for row in there), reverse=True)
    by_completion = [row[0] for row in sorted(there, key=lambda row: (row[1], row[0]), reverse=True)]
    assert begins(list(history.newest_completed_first(COMMITS))) == by_completion
    first = history.first_completed(COMMITS)
    assert (first.completion_time if first else None) == min((row[1] for row in there), default=None)
    later = [row[1] for row in there if row[1] > t(500)]
    behind = history.first_completed(COMMITS, t(500))
    assert (behind.completion_time if behind else None) == min(later, default=None)


def test_only_files_that_can_hold_the_newest_are_read(tmp_path: Path) -> None:
    seconds = [1000 * i for i in range(1, 10)]
    files: list[Rows] = [[(t(s), t(s + 1), "commit"), (t(s + 5), t(s + 6), "commit")] for s in seconds]
    history = history_of(tmp_path, *files)
    assert next(history.newest_first(COMMITS)).requested_time == t(9005)
    assert len(history._reader._times) == 1
    assert next(history.newest_completed_first(COMMITS)).requested_time == t(9005)
    assert len(history._reader._times) == 1
    assert next(history.newest_completed_first(COMMITS, t(3001))).requested_time == t(3000)
    assert len(history._reader._times) == 2
    assert list(history.newest_first(COMMITS, low=t(9006))) == []
    history = History.load(history.storage)
    first = history.first_completed(COMMITS)
    assert first is not None and first.requested_time == t(1000)
    assert {path for path, _ in history._reader._times} == {history.files[0].path}


def test_an_empty_history() -> None:
    history = History(LocalStorage("/"), (), None)
    assert list(history.newest_first(COMMITS)) == []
    assert list(history.newest_completed_first(COMMITS)) == []
    assert history.first_completed(COMMITS) is None


def test_begins_of_14_digits_may_lie_behind_their_completions(tmp_path: Path) -> None:
    history = history_of(tmp_path, [("20260101000000", "20260101000000500", "commit")])
    assert history.completed_within(None, "20260101000000500").num_rows == 1
    assert len(list(history.newest_completed_first(COMMITS, "20260101000000500"))) == 1
    assert list(history.newest_completed_first(COMMITS, "20260101000000499")) == []
    assert history.first_completed(COMMITS) is not None
