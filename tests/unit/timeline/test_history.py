from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable, LakebedError
from lakebed.model.actions import CleanMetadata, CleanPlan, CommitMetadata, CompactionPlan
from lakebed.model.instant import Action, Instant, State
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.history import History
from lakebed.timeline.timeline import Timeline

FOLDER = ".hoodie/timeline/history"
MAINT = "mor_maint_v9"


@pytest.fixture(scope="module")
def maint(golden: Callable[[str], Path]) -> History:
    return History.load(LocalStorage(golden(MAINT)))


def write_history(root: Path, files: dict[str, list[tuple[str, str, str]]], manifest: list[str] | None = None) -> None:
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        begins, ends, actions = zip(*rows, strict=True)
        columns = {
            "instantTime": begins,
            "completionTime": ends,
            "action": actions,
            "metadata": pa.nulls(len(rows), pa.binary()),
            "plan": pa.nulls(len(rows), pa.binary()),
            "version": [1] * len(rows),
        }
        pq.write_table(pa.table(columns), folder / name)
    listed = [{"fileName": n, "fileLen": (folder / n).stat().st_size} for n in (manifest or files)]
    (folder / "manifest_1").write_text(json.dumps({"files": listed}))
    (folder / "_version_").write_text("1")


def t(n: int) -> str:
    return f"{20260101000000000 + n}"


def test_golden_history_is_read_from_listed_files_only(maint: History) -> None:
    assert maint.version == 9
    assert [file.path.rpartition("/")[2] for file in maint.files] == [
        "20261115102815294_20261115102823072_1.parquet",
        "20261115102824454_20261115102832243_1.parquet",
        "20261115102833315_20261115102835670_0.parquet",
    ]
    table = maint.table()
    assert table.num_rows == 17
    assert table["requested_time"].to_pylist() == sorted(set(table["requested_time"].to_pylist()))
    actions = table["action"].to_pylist()
    assert {a: actions.count(a) for a in set(actions)} == {"deltacommit": 11, "commit": 3, "clean": 3}


def test_golden_instants_and_bodies(maint: History) -> None:
    (first,) = maint.find("20261115102815294")
    assert first == Instant("20261115102815294", Action.DELTA_COMMIT, State.COMPLETED, "20261115102816707")
    assert maint.find("20261115102815295") == ()
    body = maint.body(first)
    assert isinstance(body, CommitMetadata) and body.operation == "UPSERT" and body.schema_json
    assert maint.plan(first) is None

    (compaction,) = maint.find("20261115102819277")
    plan, report = maint.plan(compaction), maint.body(compaction)
    assert isinstance(plan, CompactionPlan) and plan.operations[0].file_id == "c4850824-b8a9-41ac-813d-cae050044f22-0"
    assert isinstance(report, CommitMetadata) and report.compacted

    (clean,) = maint.find("20261115102822450")
    assert isinstance(maint.body(clean), CleanMetadata) and isinstance(maint.plan(clean), CleanPlan)
    assert len(list(maint.decoded((Action.CLEAN,)))) == 3


def test_ranges_of_begin_skip_files_by_name(golden: Callable[[str], Path]) -> None:
    history = History.load(LocalStorage(golden(MAINT)))
    assert history.table("20261115102833000").num_rows == 3
    assert [path for path, _ in history._reader._times] == [f"{FOLDER}/20261115102833315_20261115102835670_0.parquet"]
    assert history.table("20261115102820297", "20261115102824454")["requested_time"].to_pylist() == [
        "20261115102820297",
        "20261115102822450",
        "20261115102823072",
        "20261115102824454",
    ]


def test_ranges_of_completion_find_what_began_long_before(tmp_path: Path) -> None:
    files = {
        f"{t(1)}_{t(2)}_0.parquet": [(t(1), t(90), "commit"), (t(2), t(3), "commit")],
        f"{t(4)}_{t(5)}_0.parquet": [(t(4), t(6), "commit"), (t(5), t(7), "clean")],
    }
    write_history(tmp_path, files)
    found = History.load(LocalStorage(tmp_path)).completed_within(t(6), t(90))
    assert found["requested_time"].to_pylist() == [t(1), t(5)]


def test_golden_completion_range(maint: History) -> None:
    found = maint.completed_within("20261115102816707", "20261115102819161")
    assert found["requested_time"].to_pylist() == ["20261115102816853", "20261115102818315"]


def test_overlapping_levels_count_once(tmp_path: Path) -> None:
    rows = [(t(i), t(i + 1), "commit") for i in range(4)]
    write_history(tmp_path, {f"{t(0)}_{t(3)}_1.parquet": rows, f"{t(2)}_{t(3)}_0.parquet": rows[2:]})
    history = History.load(LocalStorage(tmp_path))
    assert history.table()["requested_time"].to_pylist() == [t(0), t(1), t(2), t(3)]
    assert len(history.timeline()) == 4 and len(history.find(t(3))) == 1


def test_a_timeline_is_the_same_with_and_without_begins_that_repeat(tmp_path: Path, maint: History) -> None:
    assert maint.timeline() == Timeline.of(maint.timeline())
    rows = [(t(1), t(2), "commit"), (t(1), t(3), "savepoint"), (t(4), t(5), "commit"), (t(4), t(6), "compaction")]
    write_history(tmp_path, {f"{t(1)}_{t(4)}_0.parquet": rows})
    found = History.load(LocalStorage(tmp_path)).timeline()
    assert [(i.requested_time, str(i.action), i.completion_time) for i in found] == [
        (requested_time, word, done) for requested_time, done, word in rows[:3]
    ]


@pytest.mark.parametrize("version", [None, "", "eleven"])
def test_without_a_usable_version_the_greatest_manifest_counts(
    golden_copy: Callable[[str], Path], version: str | None
) -> None:
    root = golden_copy(MAINT)
    (root / FOLDER / "manifest_99.tmp").write_text("{")
    if version is None:
        (root / FOLDER / "_version_").unlink()
    else:
        (root / FOLDER / "_version_").write_text(version)
    assert History.load(LocalStorage(root)).version == 9


def test_an_older_version_is_read_when_named(golden_copy: Callable[[str], Path]) -> None:
    root = golden_copy(MAINT)
    (root / FOLDER / "_version_").write_text("8")
    history = History.load(LocalStorage(root))
    assert history.version == 8
    assert history.table().num_rows == 14


def test_no_history(tmp_path: Path) -> None:
    history = History.load(LocalStorage(tmp_path))
    assert history.is_empty and history.table().num_rows == 0 and history.find(t(1)) == ()
    assert not history.timeline().instants and list(history.bodies()) == []


def test_a_listed_file_that_is_missing_is_named(golden_copy: Callable[[str], Path]) -> None:
    root = golden_copy(MAINT)
    (root / FOLDER / "20261115102824454_20261115102832243_1.parquet").unlink()
    with pytest.raises(CorruptTable, match="20261115102824454_20261115102832243_1") as caught:
        History.load(LocalStorage(root)).table()
    assert caught.value.file == f"{FOLDER}/20261115102824454_20261115102832243_1.parquet"


def test_a_file_of_another_length_is_named(golden_copy: Callable[[str], Path]) -> None:
    root = golden_copy(MAINT)
    with (root / FOLDER / "20261115102833315_20261115102835670_0.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(CorruptTable, match="4002 bytes where manifest_9 says 4001"):
        History.load(LocalStorage(root)).table()


def test_a_manifest_cannot_point_outside(golden_copy: Callable[[str], Path]) -> None:
    root = golden_copy(MAINT)
    files = [{"fileName": "../../../../x_y_0.parquet", "fileLen": 1}]
    (root / FOLDER / "manifest_9").write_text(json.dumps({"files": files}))
    with pytest.raises(CorruptTable):
        History.load(LocalStorage(root))


@pytest.mark.parametrize(
    "rows",
    [
        [(None, t(1), "commit")],
        [(t(1), t(2), None)],
        [("yesterday", t(2), "commit")],
        [(t(1), "soon", "commit")],
    ],
)
def test_rows_that_cannot_be(tmp_path: Path, rows: list[tuple[str, str, str]]) -> None:
    write_history(tmp_path, {f"{t(1)}_{t(1)}_0.parquet": rows})
    with pytest.raises(CorruptTable, match="history file holds"):
        History.load(LocalStorage(tmp_path)).table()


def test_an_action_word_of_the_future_is_left_out(tmp_path: Path) -> None:
    rows = [(t(1), t(2), "commit"), (t(3), t(4), "dance")]
    write_history(tmp_path, {f"{t(1)}_{t(3)}_0.parquet": rows})
    assert len(History.load(LocalStorage(tmp_path)).timeline()) == 1


def test_thousands_of_actions_load_fast(tmp_path: Path) -> None:
    rows = [(t(i * 3), t(i * 3 + 2), "commit" if i % 3 else "clean") for i in range(20_000)]
    write_history(tmp_path, {f"{t(0)}_{t(60_000)}_1.parquet": rows})
    start = time.perf_counter()
    history = History.load(LocalStorage(tmp_path))
    assert history.table().num_rows == 20_000
    assert history.find(t(3 * 7_777))[0].completion_time == t(3 * 7_777 + 2)
    assert time.perf_counter() - start < 2


def test_pickles(maint: History) -> None:
    assert pickle.loads(pickle.dumps(maint)).table() == maint.table()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_give_an_error_or_the_same_answer(golden: Callable[[str], Path], data: st.DataObject) -> None:
    """A flipped byte or a cut never gives another kind of exception."""
    root = golden(MAINT)
    names = ["_version_", "manifest_9", "20261115102833315_20261115102835670_0.parquet"]
    storage = MemoryStorage()
    for path in sorted((root / FOLDER).iterdir()):
        storage.put(f"{FOLDER}/{path.name}", path.read_bytes())
    victim = f"{FOLDER}/{data.draw(st.sampled_from(names))}"
    content = bytearray(storage.read(victim))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
    else:
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    storage.put(victim, bytes(content))
    try:
        history = History.load(storage)
        history.table()
        list(history.decoded((Action.DELTA_COMMIT, Action.CLEAN)))
    except LakebedError:
        pass
