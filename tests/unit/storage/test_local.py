"""The local file system: what survives a kill, what is refused, and processes against each other."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import CorruptTable, StorageUnavailable
from lakebed.storage.local import TEMP_PREFIX, LocalStorage

from .conftest import exit_code, in_child

STEPS = ["open", "write", "fsync", "rename", "link", "unlink", "mkdir", "close"]


def die_at(step: int, watched: list[str] = STEPS) -> None:
    """In a child: kill the process for real just before its `step`-th file system call."""
    left = [step]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in watched:
        setattr(os, name, wrap(getattr(os, name)))


def every_kill(run: Callable[[], object], check: Callable[[bool], None]) -> int:
    """Run `run` in children that die one call later each time; the number of calls it takes to get through."""
    for step in range(1, 200):

        def child(step: int = step) -> int:
            die_at(step)
            run()
            return 0

        code = exit_code(in_child(child))
        assert code in {0, -signal.SIGKILL}
        check(code == 0)
        if code == 0:
            return step - 1
    raise AssertionError("never got through")


OLD, NEW = b"old" * 1000, b"newer" * 50_000


def output(storage: LocalStorage) -> None:
    with storage.open_output(".hoodie/f") as sink:
        sink.write(NEW[:100])
        sink.write(NEW[100:])


@pytest.mark.parametrize(
    "write",
    [
        lambda storage: storage.put(".hoodie/f", NEW),
        lambda storage: storage.compare_and_swap(".hoodie/f", NEW, storage.read_versioned(".hoodie/f")[1]),
        output,
    ],
    ids=["put", "compare_and_swap", "open_output"],
)
def test_a_killed_replace_leaves_old_or_new(local: LocalStorage, write: Callable[[LocalStorage], object]) -> None:
    seen = set()

    def check(finished: bool) -> None:
        data = local.read(".hoodie/f")
        assert data in {OLD, NEW}
        assert data == NEW or not finished
        seen.add(data)
        local.put(".hoodie/f", OLD)

    local.put(".hoodie/f", OLD)
    assert every_kill(lambda: write(local), check) >= 6
    assert seen == {OLD, NEW}
    leftovers = [info.name for info in local.list(".hoodie/.temp")]
    assert any(name.startswith(TEMP_PREFIX) for name in leftovers)
    assert [info.name for info in local.list(".hoodie")] == ["f", "hoodie.properties"]


def test_a_killed_create_leaves_nothing_or_all(local: LocalStorage) -> None:
    seen = set()

    def check(finished: bool) -> None:
        data = local.read("p/f") if local.stat("p/f") else None
        assert data in {None, NEW}
        assert data == NEW or not finished
        seen.add(data)
        if data is not None:
            assert local.put_if_absent("p/f", b"other") is False
        local.delete(["p/f"])

    assert every_kill(lambda: local.put_if_absent("p/f", NEW), check) >= 6
    assert seen == {None, NEW}


def test_a_killed_holder_lets_go_of_the_lock(local: LocalStorage) -> None:
    local.put("f", OLD)
    version = local.read_versioned("f")[1]

    def die_inside() -> int:
        die_at(1, ["rename"])
        local.compare_and_swap("f", NEW, version)
        return 0

    assert exit_code(in_child(die_inside)) == -signal.SIGKILL
    assert local.compare_and_swap("f", NEW, version) is True


def test_one_winner_among_processes(local: LocalStorage) -> None:
    rounds = 25

    def writer(number: int) -> int:
        won = 0
        for turn in range(rounds):
            won += local.put_if_absent(f".hoodie/timeline/{turn}", str(number).encode())
        return won

    pids = [in_child(lambda number=number: writer(number)) for number in range(4)]  # type: ignore[misc]
    won = [exit_code(pid) for pid in pids]
    assert sum(won) == rounds
    contents = [local.read(f".hoodie/timeline/{turn}") for turn in range(rounds)]
    assert [contents.count(str(number).encode()) for number in range(4)] == won


def test_a_counter_of_processes_loses_nothing(local: LocalStorage) -> None:
    local.put("counter", b"0")

    def count() -> int:
        done = 0
        while done < 25:
            data, version = local.read_versioned("counter")
            done += local.compare_and_swap("counter", str(int(data) + 1).encode(), version)
        return 0

    pids = [in_child(count) for _ in range(4)]
    assert [exit_code(pid) for pid in pids] == [0, 0, 0, 0]
    assert local.read("counter") == b"100"


def test_swap_is_not_fooled_by_equal_size_and_time(local: LocalStorage) -> None:
    local.put("f", b"one")
    version = local.read_versioned("f")[1]
    before = (local.base / "f").stat()
    (local.base / "f").write_bytes(b"two")
    os.utime(local.base / "f", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert local.compare_and_swap("f", b"three", version) is False


def test_a_tidied_lock_file_is_not_waited_for(local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes the lock file while we wait for it: the lock we get then guards nothing, so we take another."""
    local.put("f", b"one")
    version = local.read_versioned("f")[1]
    real, taken = fcntl.flock, []

    def flock(fd: int, how: int) -> None:
        real(fd, how)
        taken.append(os.fstat(fd).st_ino)
        if len(taken) == 1:
            (local.base / ".hoodie/.temp/lakebed.lock").unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    assert local.compare_and_swap("f", b"two", version) is True
    assert len(taken) == 2
    assert taken[-1] == (local.base / ".hoodie/.temp/lakebed.lock").stat().st_ino


def test_links_are_not_followed(local: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (local.base / "folder").symlink_to(outside)
    (local.base / "real").mkdir()
    (local.base / "real/file").symlink_to(outside / "secret")
    for path in ["folder/secret", "real/file"]:
        for call in (
            lambda path=path: local.read(path),
            lambda path=path: local.read_versioned(path),
            lambda path=path: local.read_ranges(path, [(0, 1)]),
            lambda path=path: local.stat(path),
            lambda path=path: local.open_input(path),
            lambda path=path: local.put(path, b"x"),
            lambda path=path: list(local.list(path.rpartition("/")[0])),
            lambda path=path: list(local.list(recursive=True)),
        ):
            with pytest.raises(CorruptTable, match="symbolic link"):
                call()  # type: ignore[no-untyped-call]
    for call in (
        lambda: local.put_if_absent("folder/new", b"x"),
        lambda: local.open_output("folder/new").close(),
        lambda: local.delete(["folder/secret"]),
        lambda: local.within("folder"),
    ):
        with pytest.raises(CorruptTable, match="symbolic link"):
            call()
    assert [file.name for file in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_the_base_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    LocalStorage(tmp_path / "alias").put("a/b", b"1")
    assert LocalStorage(tmp_path / "real").read("a/b") == b"1"


def test_a_pipe_does_not_hang_the_reader(local: LocalStorage) -> None:
    os.mkfifo(local.base / "pipe")
    for call in (local.read, local.open_input):
        with pytest.raises(CorruptTable, match="regular file"):
            call("pipe")


def test_a_stale_hadoop_checksum_goes_with_the_bytes_it_described(golden_copy: Callable[[str], Path]) -> None:
    table = golden_copy(_first_golden())
    storage = LocalStorage(table)
    side = ".hoodie/.hoodie.properties.crc"
    (table / side).write_bytes(b"crc\0stale")
    data, version = storage.read_versioned(".hoodie/hoodie.properties")
    assert storage.compare_and_swap(".hoodie/hoodie.properties", data + b"a=1\n", version)
    assert storage.stat(side) is None
    for write in (
        lambda: storage.put("x", b"1"),
        lambda: storage.delete(["x"]),
        lambda: storage.put_if_absent("x", b"2"),
        lambda: storage.open_output("x").close(),
    ):
        (table / ".x.crc").write_bytes(b"crc\0stale")
        write()
        assert storage.stat(".x.crc") is None


def _first_golden() -> str:
    fixtures = Path(__file__).parents[2] / "golden" / "fixtures"
    return sorted(path.stem for path in fixtures.glob("*.zip"))[0]


def test_writing_a_data_file_makes_no_table(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "t")
    assert list(storage.list(recursive=True)) == []
    assert not (tmp_path / "t").exists()
    storage.put("a/b", b"1")
    assert not (tmp_path / "t/.hoodie").exists()
    storage.put(".hoodie/hoodie.properties", b"")
    assert (tmp_path / "t/.hoodie/.temp").is_dir()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_failing_disk_is_unavailable_and_leaves_nothing(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    local.put("f", OLD)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageUnavailable, match=os.strerror(code)) as caught:
            local.put("f", NEW)
        assert caught.value.file == "f"
        if call != "write":
            with pytest.raises(StorageUnavailable), local.open_output("f") as sink:
                sink.write(NEW)
    assert local.read("f") == OLD
    assert [info.name for info in local.list(".hoodie/.temp")] == []


def test_a_file_system_without_links_says_so(local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StorageUnavailable, match="hard links"):
        local.put_if_absent("f", b"1")
    assert local.stat("f") is None


def test_writing_where_a_file_is_in_the_way(local: LocalStorage) -> None:
    local.put("a", b"1")
    with pytest.raises(StorageUnavailable):
        local.put("a/b", b"2")
    (local.base / "d").mkdir()
    with pytest.raises(StorageUnavailable):
        local.put("d", b"2")
    with pytest.raises(CorruptTable):
        local.read("x" * 300)


def test_a_pickled_storage_finds_its_table_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("t")
    storage.put("a", b"1")
    pickled = pickle.dumps(storage)
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert again == storage
    assert again.read("a") == b"1"
    assert again.url == f"file://{tmp_path}/t"


def test_lists_a_real_table(golden: Callable[[str], Path]) -> None:
    table = golden(_first_golden())
    storage = LocalStorage(table)
    listed = [info.path for info in storage.list(recursive=True)]
    on_disk = [file.relative_to(table).as_posix() for file in table.rglob("*") if file.is_file()]
    assert listed == sorted(on_disk)
    assert ".hoodie/hoodie.properties" in listed
    for info in storage.list(recursive=True):
        assert info.size == len(storage.read(info.path)) == (table / info.path).stat().st_size
