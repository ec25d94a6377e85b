from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.errors import ConflictError, InvalidRequest
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.local import LocalStorage
from lakebed.timeline.active import complete, create_requested, load_active, to_inflight
from tests.conftest import GOLDEN_NAMES, expected


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_timelines(golden: Callable[[str], Path], name: str) -> None:
    active = load_active(LocalStorage(golden(name)))
    rows = expected(name)["timeline"]
    assert active.files == {row["file"]: row["size"] for row in rows}

    completed = {(r["instant"], r["action"], r["completion"]) for r in rows if r["state"] == "completed"}
    found = {(i.requested_time, str(i.action), i.completion_time) for i in active.timeline.completed}
    assert found == completed

    words = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
    finished = {(requested_time, action) for requested_time, action, _ in completed}
    open_rows = {(r["instant"], r["action"]) for r in rows if r["state"] != "completed"}
    still = {(b, a) for b, a in open_rows if (b, words.get(a, a)) not in finished}
    assert {(i.requested_time, str(i.action)) for i in active.timeline.pending} == still
    for instant in active.timeline.pending:
        reached = {r["state"] for r in rows if r["instant"] == instant.requested_time}
        assert instant.state == ("inflight" if "inflight" in reached else "requested")


def test_pending_actions_of_golden_tables(golden: Callable[[str], Path]) -> None:
    kinds = {
        "mor_pending_compaction_v9": [Action.COMPACTION],
        "mor_pending_clustering_v9": [Action.CLUSTERING, Action.DELTA_COMMIT],
        "mor_failed_pending_v9": [Action.DELTA_COMMIT],
        "cow_failed_pending_v9": [Action.COMMIT],
    }
    for name, actions in kinds.items():
        pending = load_active(LocalStorage(golden(name))).timeline.pending
        assert [instant.action for instant in pending] == actions, name


def test_states_are_created_once_each(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    requested_time, done = "20260101000000000", "20260101000000005"
    requested = create_requested(storage, requested_time, Action.COMPACTION, b"plan")
    assert load_active(storage).timeline.instants == (requested,)
    inflight = to_inflight(storage, requested)
    assert load_active(storage).timeline.instants == (inflight,)
    finished = complete(storage, inflight, done, b"report")
    assert finished == Instant(requested_time, Action.COMMIT, State.COMPLETED, done)
    active = load_active(storage)
    assert active.timeline.instants == (finished,)
    assert sorted(active.files) == [
        f"{requested_time}.compaction.inflight",
        f"{requested_time}.compaction.requested",
        f"{requested_time}_{done}.commit",
    ]
    assert storage.read(active.path(finished)) == b"report"
    assert active.requested(finished) == requested
    assert active.size(inflight) == 0

    with pytest.raises(ConflictError, match=r"compaction\.requested"):
        create_requested(storage, requested_time, Action.COMPACTION)
    with pytest.raises(ConflictError):
        to_inflight(storage, requested)
    with pytest.raises(ConflictError):
        complete(storage, inflight, done, b"other")
    assert storage.read(active.path(finished)) == b"report"


def test_states_are_taken_in_order(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    requested = create_requested(storage, "20260101000000000", Action.COMMIT)
    with pytest.raises(InvalidRequest, match="inflight"):
        complete(storage, requested, "20260101000000001", b"")
    with pytest.raises(InvalidRequest, match="requested"):
        to_inflight(storage, to_inflight(storage, requested))
    assert (tmp_path / ".hoodie/timeline/20260101000000000.inflight").exists()


def test_a_savepoint_begins_inflight(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    requested_time = "20260101000000000"
    inflight = to_inflight(storage, Instant(requested_time, Action.SAVEPOINT, State.REQUESTED))
    complete(storage, inflight, "20260101000000001", b"x")
    assert sorted(load_active(storage).files) == [
        f"{requested_time}.savepoint.inflight",
        f"{requested_time}_20260101000000001.savepoint",
    ]


def test_foreign_files_in_the_timeline_folder_do_not_count(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for name in ("README", "2026.commit", "20260101000000000.commit", "20260101000000000.dance.requested", ".x.crc"):
        storage.put(f".hoodie/timeline/{name}", b"")
    active = load_active(storage)
    assert not active.files and not active.timeline.instants
