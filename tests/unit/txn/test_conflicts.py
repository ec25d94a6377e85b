from __future__ import annotations

from itertools import product

import pytest

from lakebed.errors import ConflictError, CorruptTable, InvalidRequest
from lakebed.model.actions import CommitMetadata
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.timeline import Timeline
from lakebed.txn.conflicts import (
    Touched,
    completion_time_moves_forward,
    conflicts,
    every_file_exists,
    files_are_of,
    no_file_group_written_twice,
)
from tests.unit.txn.tables import GROUPS, base_name, log_name, metadata_of, stat_of

BEGIN = "20260101000000000"
G = frozenset({FileGroupId("p0", "g-0")})
NONE: frozenset[FileGroupId] = frozenset()
APPENDED = Touched("1", G, NONE)
REWROTE = Touched("2", NONE, G)
COMPACTED = Touched("3", NONE, G, compacted=True)


def test_the_table_of_who_gives_way() -> None:
    verdicts = {
        (ours.requested_time, theirs.requested_time): conflicts(ours, [theirs]) is not None
        for ours, theirs in product((APPENDED, REWROTE, COMPACTED), repeat=2)
    }
    assert {pair for pair, conflict in verdicts.items() if not conflict} == {("1", "3"), ("3", "1")}
    assert conflicts(APPENDED, [APPENDED], non_blocking=True) is None
    assert conflicts(APPENDED, [REWROTE], non_blocking=True) is not None
    elsewhere = Touched("9", frozenset({FileGroupId("p1", "g-0")}), NONE)
    assert conflicts(APPENDED, [elsewhere, elsewhere]) is None, "one file id in two partitions is two groups"
    problem = conflicts(APPENDED, [elsewhere, REWROTE])
    assert problem is not None
    assert "p0/g-0" in str(problem)


def test_what_a_commit_touched() -> None:
    stats = {
        "p0": (stat_of("p0", "a-0", log_name(BEGIN, "a-0")), stat_of("p0", "b-0", base_name(BEGIN, "b-0"))),
    }
    touched = Touched.by(BEGIN, CommitMetadata("UPSERT", stats, replaced_file_ids={"p1": ("c-0",)}))
    assert touched.appended == {FileGroupId("p0", "a-0")}
    assert touched.rewritten == {FileGroupId("p0", "b-0"), FileGroupId("p1", "c-0")}


def test_completion_time_moves_forward() -> None:
    timeline = Timeline.of([Instant(BEGIN, Action.COMMIT, State.COMPLETED, "20260101000000500")])
    completion_time_moves_forward(timeline, "20260101000000400", "20260101000000501")
    for late in ("20260101000000500", "20260101000000450"):
        with pytest.raises(ConflictError):
            completion_time_moves_forward(timeline, "20260101000000400", late)
    with pytest.raises(ConflictError):
        completion_time_moves_forward(timeline, "20260101000000600", "20260101000000600")


def test_every_file_exists_whole() -> None:
    storage = MemoryStorage()
    name = base_name(BEGIN, GROUPS[0])
    commit = metadata_of({"p0": (GROUPS[0], name)})
    with pytest.raises(ConflictError, match="gone"):
        every_file_exists(storage, commit)
    storage.put(f"p0/{name}", b"rows")
    every_file_exists(storage, commit)
    storage.put(f"p0/{name}", b"row")
    with pytest.raises(CorruptTable, match="3 bytes where 4"):
        every_file_exists(storage, commit)


def test_no_file_group_is_written_twice() -> None:
    def commit(*names: str) -> CommitMetadata:
        return CommitMetadata("UPSERT", {"p0": tuple(stat_of("p0", "a-0", name) for name in names)})

    rolled_over = log_name(BEGIN, "a-0").replace(".log.1_", ".log.2_")
    no_file_group_written_twice(commit(log_name(BEGIN, "a-0"), rolled_over))
    for names in (
        (log_name(BEGIN, "a-0"), log_name(BEGIN, "a-0", "0-0-1")),
        (base_name(BEGIN, "a-0"), base_name(BEGIN, "a-0")),
        (base_name(BEGIN, "a-0"), log_name(BEGIN, "a-0", "0-0-1")),
    ):
        with pytest.raises(InvalidRequest):
            no_file_group_written_twice(commit(*names))


def test_files_belong_to_the_commit_that_names_them() -> None:
    files_are_of(BEGIN, metadata_of({"p0": ("a-0", base_name(BEGIN, "a-0"))}))
    for name in (base_name("20260101000000001", "a-0"), "part-0.parquet"):
        with pytest.raises(InvalidRequest, match="does not belong"):
            files_are_of(BEGIN, metadata_of({"p0": ("a-0", name)}))
