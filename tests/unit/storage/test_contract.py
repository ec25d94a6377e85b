"""What every storage promises, asked of each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable
from lakebed.storage.storage import FileInfo, Storage

ODD_NAMES = [
    "dt=2024-01-01/00000000-0_0-1-2_20240101000000000.parquet",
    "city=s%C3%A3o%20paulo/a%3Ab.parquet",
    "space d/name with spaces.txt",
    "ünïcode/漢字-😀.log",
    ".hidden/.name.log.1_0-1-2",
    "q=[x]*/#?&.bin",
]


def paths(storage: Storage, prefix: str = "", *, recursive: bool = True) -> list[str]:
    found = [info.path for info in storage.list(prefix, recursive=recursive)]
    return sorted(path for path in found if ".temp/" not in path)


def test_is_a_storage(storage: Storage) -> None:
    assert isinstance(storage, Storage)
    assert "://" in storage.url


@pytest.mark.parametrize("path", ODD_NAMES)
def test_names_come_back_as_they_went_in(storage: Storage, path: str) -> None:
    storage.put(path, b"1")
    assert paths(storage) == [path]
    assert storage.read(path) == b"1"
    folder, _, name = path.rpartition("/")
    assert [info.name for info in storage.list(folder)] == [name]
    assert folder in list(storage.list_folders())
    storage.delete([path])
    assert paths(storage) == []


def test_put_replaces(storage: Storage) -> None:
    storage.put("a/b", b"one")
    storage.put("a/b", b"second")
    assert storage.read("a/b") == b"second"
    info = storage.stat("a/b")
    assert isinstance(info, FileInfo)
    assert (info.path, info.name, info.size) == ("a/b", "b", 6)
    assert info.modified_ms > 1_600_000_000_000


def test_missing_files(storage: Storage) -> None:
    storage.put("a/b", b"x")
    for missing in ["nope", "a", "a/b/c", "a/nope"]:
        assert storage.stat(missing) is None
        for read in (storage.read, storage.read_versioned, storage.open_input):
            with pytest.raises(FileNotFoundError):
                read(missing)
        with pytest.raises(FileNotFoundError):
            storage.read_ranges(missing, [(0, 1)])
    assert list(storage.list("nope")) == []
    assert list(storage.list("a/b")) == []
    assert list(storage.list_folders("nope")) == []
    assert storage.compare_and_swap("nope", b"x", storage.read_versioned("a/b")[1]) is False
    storage.delete(["nope", "a/nope", "a/b/c"])
    assert storage.read("a/b") == b"x"


def test_listings(storage: Storage) -> None:
    for path in ["top", "a/1", "a/2", "a/b/3", "a/b/c/4", "ab/5", "z/6"]:
        storage.put(path, path.encode())
    assert paths(storage, "a") == ["a/1", "a/2", "a/b/3", "a/b/c/4"]
    assert paths(storage, "a/") == paths(storage, "a")
    assert paths(storage, "a", recursive=False) == ["a/1", "a/2"]
    assert paths(storage, recursive=False) == ["top"]
    assert [name for name in storage.list_folders() if name != ".temp"] == ["a", "ab", "z"]
    assert list(storage.list_folders("a")) == ["a/b"]
    assert {info.path: info.size for info in storage.list("a/b", recursive=True)} == {"a/b/3": 5, "a/b/c/4": 7}
    storage.delete(["a/1", "top", "missing"])
    assert paths(storage) == ["a/2", "a/b/3", "a/b/c/4", "ab/5", "z/6"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a\\b", "a\0b"])
def test_no_path_leaves_the_table(storage: Storage, path: str) -> None:
    for call in (
        lambda: storage.read(path),
        lambda: storage.stat(path),
        lambda: storage.put(path, b""),
        lambda: storage.put_if_absent(path, b""),
        lambda: storage.delete([path]),
        lambda: storage.open_input(path),
        lambda: storage.open_output(path),
        lambda: list(storage.list(path)),
        lambda: storage.within(path),
    ):
        with pytest.raises(CorruptTable):
            call()


@pytest.mark.parametrize("path", ["", "a//b", "./a", "a/"])
def test_paths_that_name_no_file(storage: Storage, path: str) -> None:
    with pytest.raises(CorruptTable, match="names no file"):
        storage.put(path, b"")


def test_ranges(storage: Storage) -> None:
    data = bytes(range(200))
    storage.put("f", data)
    wanted = [(0, 10), (190, 10), (5, 0), (200, 0), (3, 4), (0, 200)]
    assert storage.read_ranges("f", wanted) == [data[offset : offset + length] for offset, length in wanted]
    assert storage.read_ranges("f", []) == []


@pytest.mark.parametrize("bad", [(190, 11), (200, 1), (5000, 10), (-1, 4), (3, -2), (0, 1 << 60)])
def test_a_range_past_the_end_says_where(storage: Storage, bad: tuple[int, int]) -> None:
    storage.put("f", bytes(200))
    with pytest.raises(CorruptTable) as caught:
        storage.read_ranges("f", [(0, 10), bad])
    assert (caught.value.file, caught.value.offset) == ("f", bad[0])


def test_create_once(storage: Storage) -> None:
    assert storage.put_if_absent("x/1", b"first") is True
    assert storage.put_if_absent("x/1", b"other") is False
    assert storage.put_if_absent("x/1", b"first") is False
    assert storage.read("x/1") == b"first"
    storage.delete(["x/1"])
    assert storage.put_if_absent("x/1", b"") is True
    assert storage.put_if_absent("x/1", b"") is False


def test_compare_and_swap(storage: Storage) -> None:
    storage.put("lock", b"one")
    data, version = storage.read_versioned("lock")
    assert data == b"one"
    assert storage.compare_and_swap("lock", b"two", version) is True
    assert storage.compare_and_swap("lock", b"bad", version) is False
    data, version = storage.read_versioned("lock")
    assert data == b"two"
    storage.put("lock", b"2.0")
    assert storage.compare_and_swap("lock", b"bad", version) is False
    assert storage.read("lock") == b"2.0"


def test_output_appears_at_close(storage: Storage) -> None:
    sink = storage.open_output("p=1/f")
    assert sink.write(b"abc") == 3
    sink.write(memoryview(b"defg"))
    assert sink.tell() == 7
    assert storage.stat("p=1/f") is None
    assert paths(storage) == []
    sink.close()
    sink.close()
    sink.abort()
    assert sink.closed
    assert storage.read("p=1/f") == b"abcdefg"
    with pytest.raises(ValueError, match="closed"):
        sink.write(b"x")


def test_output_that_is_given_up_leaves_nothing(storage: Storage) -> None:
    sink = storage.open_output("p=1/f")
    sink.write(b"abc")
    sink.abort()
    sink.close()
    with pytest.raises(KeyError), storage.open_output("p=1/g") as sink:
        sink.write(b"abc")
        raise KeyError("writer failed")
    forgotten = storage.open_output("p=1/h")
    forgotten.write(b"abc")
    del forgotten
    assert paths(storage) == []
    assert [info.name for info in storage.list(recursive=True)] == []


def test_a_large_output(storage: Storage) -> None:
    block = bytes(range(256)) * 4096
    with storage.open_output("big") as sink:
        for _ in range(23):
            sink.write(block)
    info = storage.stat("big")
    assert info is not None
    assert info.size == 23 << 20
    assert storage.read_ranges("big", [((22 << 20) - 3, 6)]) == [b"\xfd\xfe\xff\x00\x01\x02"]


def test_parquet_through_output_and_input(storage: Storage) -> None:
    table = pa.table({"a": range(1000), "b": [f"v{i}" for i in range(1000)]})
    with storage.open_output("t.parquet") as sink:
        pq.write_table(table, sink, row_group_size=100)
    info = storage.stat("t.parquet")
    assert info is not None
    for size in (None, info.size):
        with storage.open_input("t.parquet", size) as source:
            assert pq.read_table(source).equals(table)
    with storage.open_input("t.parquet") as source:
        assert source.size() == info.size
        source.seek(info.size - 4)
        assert source.read() == b"PAR1"
        assert source.read_at(4, 0) == b"PAR1"
        assert source.read_at(10, info.size) == b""


def test_within(storage: Storage) -> None:
    inner = storage.within(".hoodie/metadata")
    inner.put("files/x", b"1")
    assert storage.read(".hoodie/metadata/files/x") == b"1"
    assert paths(inner) == ["files/x"]
    assert list(inner.list_folders()) == ["files"] or ".temp" in list(inner.list_folders())
    assert inner.url == f"{storage.url}/.hoodie/metadata".replace(":///", "://" if "memory:" in storage.url else ":///")
    assert inner.within("files").read("x") == b"1"


def test_one_winner_among_threads(storage: Storage) -> None:
    with ThreadPoolExecutor(16) as pool:
        for round_number in range(5):
            start = Barrier(16)

            def attempt(number: int, name: str = f"x/{round_number}", start: Barrier = start) -> bool:
                start.wait()
                return storage.put_if_absent(name, f"writer {number}".encode())

            won = list(pool.map(attempt, range(16)))
            assert won.count(True) == 1
            assert storage.read(f"x/{round_number}") == f"writer {won.index(True)}".encode()


def test_a_counter_of_threads_loses_nothing(storage: Storage) -> None:
    storage.put("counter", b"0")

    def increment(_: int) -> None:
        while True:
            data, version = storage.read_versioned("counter")
            if storage.compare_and_swap("counter", str(int(data) + 1).encode(), version):
                return

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(increment, range(48)))
    assert storage.read("counter") == b"48"


_steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "create", "swap", "stale_swap", "delete", "output", "abort"]),
        st.sampled_from(["a", "d/b", "d/c", "d/e/f"]),
        st.binary(max_size=20),
    ),
    max_size=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
def test_behaves_like_a_dictionary(storage: Storage, steps: list[tuple[str, str, bytes]]) -> None:
    storage.delete(paths(storage))
    model: dict[str, bytes] = {}
    for kind, path, data in steps:
        if kind == "put":
            storage.put(path, data)
            model[path] = data
        elif kind == "create":
            assert storage.put_if_absent(path, data) is (path not in model)
            model.setdefault(path, data)
        elif kind in {"swap", "stale_swap"} and path in model:
            _, version = storage.read_versioned(path)
            if kind == "stale_swap":
                model[path] += b"!"
                storage.put(path, model[path])
            assert storage.compare_and_swap(path, data, version) is (kind == "swap")
            model[path] = data if kind == "swap" else model[path]
        elif kind == "delete":
            storage.delete([path])
            model.pop(path, None)
        elif kind in {"output", "abort"}:
            sink = storage.open_output(path)
            sink.write(data)
            if kind == "output":
                sink.close()
                model[path] = data
            else:
                sink.abort()
        assert {path: storage.read(path) for path in paths(storage)} == model
