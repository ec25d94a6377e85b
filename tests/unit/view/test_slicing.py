"""Slicing and visibility as pure functions: made-up files, made-up timelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.files import BaseFile, FileGroupId, LogFile, LogKind
from lakebed.storage.storage import FileInfo
from lakebed.timeline.meta_client import Replacement
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.slicing import GroupFiles, cut_slices, group_files, latest_slice, newest_base

GROUP = FileGroupId("p", "f-0")


def t(n: int) -> str:
    return f"{20260101000000000 + n}"


def base(requested_time: str, token: str = "0-0-0", extension: str = "parquet") -> str:
    return f"f-0_{token}_{requested_time}.{extension}"


def log(requested_time: str, version: int = 1, suffix: str = "") -> str:
    return f".f-0_{requested_time}.log.{version}_0-0-0{suffix}"


def group_of(*names: str) -> GroupFiles:
    return group_files("p", [FileInfo(f"p/{name}", 1, 0) for name in names])["f-0"]


def reader_context_of(
    group: GroupFiles, done: dict[str, str], opened: tuple[str, ...] = ()
) -> list[tuple[str, bool, list[str]]]:
    slices = cut_slices(group, done.get, opened)
    return [(s.base_instant_time, s.base_file is not None, [f.requested_time for f in s.log_files]) for s in slices]


def test_logs_go_by_completion_and_stand_by_begin() -> None:
    group = group_of(base(t(1)), base(t(5)), log(t(4)), log(t(3)), log(t(2)), log(t(6)))
    done = {t(1): t(1), t(2): t(9), t(3): t(4), t(4): t(6), t(5): t(7), t(6): t(8)}
    assert reader_context_of(group, done) == [(t(1), True, [t(3)]), (t(5), True, [t(2), t(4), t(6)])]


def test_a_log_that_completed_at_the_key_belongs_to_it() -> None:
    assert reader_context_of(group_of(base(t(1)), base(t(5)), log(t(2))), {t(2): t(5)})[1] == (t(5), True, [t(2)])
    assert reader_context_of(group_of(base(t(1)), base(t(5)), log(t(2))), {t(2): t(4)})[0] == (t(1), True, [t(2)])


def test_groups_of_logs_alone() -> None:
    assert reader_context_of(group_of(log(t(3)), log(t(1))), {t(1): t(9), t(3): t(4)}) == [(t(1), False, [t(1), t(3)])]
    done = {t(1): t(2), t(3): t(4), t(6): t(7)}
    before = group_of(log(t(1)), log(t(3)), base(t(5)), log(t(6)))
    assert reader_context_of(before, done) == [(t(1), False, [t(1), t(3)]), (t(5), True, [t(6)])]


def test_a_planned_compaction_takes_the_logs_that_complete_after_it() -> None:
    group = group_of(base(t(1)), log(t(2)), log(t(3)), log(t(6)))
    done = {t(2): t(4), t(3): t(7), t(6): t(8)}
    assert reader_context_of(group, done, (t(5),)) == [(t(1), True, [t(2)]), (t(5), False, [t(3), t(6)])]
    latest = latest_slice(group, done.get)
    assert latest is not None and latest.base_instant_time == t(1)
    assert [f.requested_time for f in latest.log_files] == [t(2), t(3), t(6)]


def test_old_keys_of_14_digits_compare_with_begins() -> None:
    old = "20260101000000"
    group = group_of(base(old), log("20260101000000500"), log("20260101000001500"))
    done = {"20260101000000500": "20260101000009000", "20260101000001500": "20260101000009500"}
    assert reader_context_of(group, done) == [
        ("20260101000000500", False, ["20260101000000500"]),
        (old, True, ["20260101000001500"]),
    ]


def test_the_base_format_may_change_within_a_group() -> None:
    group = group_of(base(t(1), extension="parquet"), base(t(2), extension="orc"), log(t(3)))
    latest = latest_slice(group, {t(3): t(4)}.get)
    assert latest is not None and latest.base_file is not None and latest.base_file.extension == "orc"


def test_native_and_inline_logs_with_their_twins() -> None:
    names = [f"f-0_0-0-0_{t(2)}_1.{kind}.parquet" for kind in ("deletes", "cdc", "log")]
    group = group_of(base(t(1)), *names, log(t(3), 2), log(t(3), 10), log(t(3), suffix=".cdc"))
    (file_slice,) = cut_slices(group, {}.get)
    assert [(f.requested_time, f.version, f.kind) for f in file_slice.log_files] == [
        (t(2), 1, LogKind.LOG),
        (t(2), 1, LogKind.DELETES),
        (t(2), 1, LogKind.CDC),
        (t(3), 1, LogKind.CDC),
        (t(3), 2, LogKind.LOG),
        (t(3), 10, LogKind.LOG),
    ]
    latest = latest_slice(group, {}.get)
    assert latest is not None and len(latest.log_files) == 4


def test_of_two_attempts_the_later_is_taken_when_nothing_tells() -> None:
    group = group_of(base(t(1), "0-9-9"), base(t(1), "0-10-3"))
    (file_slice,) = cut_slices(group, {}.get)
    assert file_slice.base_file is not None and file_slice.base_file.write_token == "0-10-3"
    assert newest_base(group) == file_slice.base_file


@dataclass
class Commits:
    """A timeline out of a dictionary: begin -> completion, None while pending."""

    done: dict[str, str | None]
    replaced: dict[FileGroupId, tuple[Replacement, ...]] = field(default_factory=dict)

    def is_committed(self, requested_time: str) -> bool:
        return self.done.get(requested_time) is not None

    def completion_time(self, requested_time: str) -> str | None:
        return self.done.get(requested_time)

    def writer_of(self, file: BaseFile | LogFile) -> str:
        return file.requested_time

    def is_named(self, file: BaseFile | LogFile) -> bool:
        return True

    def replacements(self, group: FileGroupId, oldest_requested_time: str) -> tuple[Replacement, ...]:
        return self.replaced.get(group, ())

    def pending_compactions(self) -> Mapping[FileGroupId, tuple[str, ...]]:
        return {}

    def log_compacted_by(self, file: BaseFile | LogFile) -> str | None:
        return None

    def prefetch(self, requested_times: Iterable[str]) -> None:
        pass

    def written(self) -> Mapping[str, list[FileInfo]]:
        return {}


@dataclass
class Lister:
    names: list[str]

    def partitions(self) -> list[str]:
        return ["p"]

    def files(self, partition_path: str) -> list[FileInfo]:
        return [FileInfo(f"{partition_path}/{name}", 1, 0) for name in self.names]


@given(
    st.lists(
        st.tuples(st.sampled_from("bl"), st.integers(0, 20), st.one_of(st.none(), st.integers(0, 10))),
        max_size=12,
        unique_by=lambda w: w[1],
    ),
    st.one_of(st.none(), st.integers(0, 32)),
    st.randoms(),
)
def test_a_snapshot_holds_what_was_completed_and_nothing_else(
    writes: list[tuple[str, int, int | None]], at: int | None, random: object
) -> None:
    done = {
        t(requested_time): None if lasts is None else t(requested_time + lasts) for _, requested_time, lasts in writes
    }
    names = [base(t(requested_time)) if kind == "b" else log(t(requested_time)) for kind, requested_time, _ in writes]
    random.shuffle(names)  # type: ignore[attr-defined]
    view = FileSystemView(Lister(names), Commits(done))
    limit = None if at is None else t(at)
    visible = {
        requested_time for requested_time, end in done.items() if end is not None and (limit is None or end <= limit)
    }
    bases = sorted(t(b) for kind, b, _ in writes if kind == "b" and t(b) in visible)
    logs = sorted(t(b) for kind, b, _ in writes if kind == "l" and t(b) in visible)
    slices = view.slices("p", limit)
    assert len(slices) == (1 if visible else 0)
    for file_slice in slices:
        newest = bases[-1] if bases else None
        assert (file_slice.base_file.requested_time if file_slice.base_file else None) == newest
        wanted = [b for b in logs if newest is None or (done[b] or "") >= newest]
        assert [f.requested_time for f in file_slice.log_files] == wanted
    optimized = view.read_optimized_slices("p", limit)
    assert [s.base_instant_time for s in optimized] == bases[-1:]
    if limit is None:
        everything = [f for g in view.file_groups("p") for s in g.slices for f in (s.base_file, *s.log_files) if f]
        assert sorted(f.requested_time for f in everything) == sorted(visible)


def test_the_first_log_of_a_group_may_be_uncommitted() -> None:
    view = FileSystemView(Lister([log(t(1)), log(t(2))]), Commits({t(1): None, t(2): t(3)}))
    (file_slice,) = view.slices("p")
    assert [f.requested_time for f in file_slice.log_files] == [t(2)]


def test_late_writes_to_a_replaced_group_stay_hidden_until_its_next_life() -> None:
    done = {t(1): t(2), t(3): t(8), t(9): t(10)}
    commits = Commits(done, {GROUP: (Replacement(t(4), t(6)),)})
    names = [base(t(1)), log(t(3))]
    assert FileSystemView(Lister(names), commits).slices("p") == ()
    assert len(FileSystemView(Lister(names), commits).slices("p", t(5))) == 1
    (again,) = FileSystemView(Lister([*names, log(t(9))]), commits).slices("p")
    assert [f.requested_time for f in again.log_files] == [t(9)] and again.base_file is None
