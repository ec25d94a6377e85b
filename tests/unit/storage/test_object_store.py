"""Object stores: answers that get lost, and how few requests a Parquet file costs."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.exceptions import GenericError, PermissionDeniedError

from lakebed.errors import CorruptTable, InvalidRequest, StorageUnavailable
from lakebed.storage.open import open_storage
from lakebed.storage.range_file import LARGEST_WINDOW, TAIL, RangeFile, cut_ranges, merged_ranges

from .conftest import object_storage


class Puts:
    """Stands in for `obstore.put` and answers from a script: ok, lost (landed, no answer), fail, then ok for ever."""

    def __init__(self, *script: str, between: Callable[[], None] = lambda: None, marks: bool = True) -> None:
        self.script = list(script)
        self.calls = 0
        self.between = between
        self.marks = marks
        self.real = obstore.put

    def __call__(self, store: Any, path: str, data: bytes, **options: Any) -> Any:
        self.calls += 1
        step = self.script.pop(0) if self.script else "ok"
        if not self.marks:
            options.pop("attributes", None)
        if step == "fail":
            self.between()
            raise GenericError("timed out")
        if step == "denied":
            raise PermissionDeniedError("no")
        result = self.real(store, path, data, **options)
        if step == "lost":
            self.between()
            raise GenericError("connection reset")
        if step == "retried":  # obstore sent it twice by itself: the second one meets the first
            return self.real(store, path, data, **options)
        return result


def scripted(patch: pytest.MonkeyPatch, *script: str, **options: Any) -> Puts:
    puts = Puts(*script, **options)
    patch.setattr(obstore, "put", puts)
    return puts


@pytest.mark.parametrize("data", [b"", b"commit"])
@pytest.mark.parametrize("script", [["lost"], ["fail"], ["fail", "lost"], ["retried"], ["lost", "fail"]])
def test_a_create_without_answer_is_found_to_be_ours(
    monkeypatch: pytest.MonkeyPatch, script: list[str], data: bytes
) -> None:
    storage = object_storage()
    scripted(monkeypatch, *script)
    assert storage.put_if_absent("x", data) is True
    assert storage.read("x") == data
    assert storage.put_if_absent("x", data) is False


@pytest.mark.parametrize("data", [b"", b"commit"])
@pytest.mark.parametrize("marked", [True, False])
def test_a_create_without_answer_is_found_to_be_theirs(
    monkeypatch: pytest.MonkeyPatch, data: bytes, marked: bool
) -> None:
    storage = object_storage()

    def another_writer() -> None:
        obstore.put(
            storage._store,
            "x",
            b"theirs",
            mode="create",
            **({"attributes": {"lakebed-put": "other"}} if marked else {}),
        )

    puts = scripted(monkeypatch, "fail", between=lambda: None)
    puts.between = another_writer
    assert storage.put_if_absent("x", data) is False
    assert storage.read("x") == b"theirs"


def test_equal_bytes_of_another_writer_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = object_storage()
    storage.put("requested", b"")
    assert storage.put_if_absent("requested", b"") is False
    scripted(monkeypatch, "fail")
    with pytest.raises(StorageUnavailable, match="who wrote them"):
        storage.put_if_absent("requested", b"")


def test_a_store_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = object_storage()
    puts = scripted(monkeypatch, *["fail"] * 50)
    with pytest.raises(StorageUnavailable, match="no answer"):
        storage.put_if_absent("x", b"1")
    assert puts.calls == 3
    puts.script = ["denied"]
    with pytest.raises(StorageUnavailable, match="credentials"):
        storage.put_if_absent("x", b"1")
    assert puts.calls == 4


@pytest.mark.parametrize("script", [["lost"], ["fail"], ["fail", "lost"], ["retried"]])
def test_a_swap_without_answer(monkeypatch: pytest.MonkeyPatch, script: list[str]) -> None:
    storage = object_storage()
    storage.put("x", b"old")
    version = storage.read_versioned("x")[1]
    scripted(monkeypatch, *script)
    assert storage.compare_and_swap("x", b"new", version) is True
    assert storage.read("x") == b"new"
    assert storage.compare_and_swap("x", b"newer", version) is False


def test_a_swap_that_may_have_been_swapped_again_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = object_storage()
    storage.put("x", b"old")
    version = storage.read_versioned("x")[1]
    puts = scripted(monkeypatch, "lost")
    puts.between = lambda: obstore.put(storage._store, "x", b"third")
    with pytest.raises(StorageUnavailable, match="no answer"):
        storage.compare_and_swap("x", b"new", version)
    with pytest.raises(InvalidRequest):
        storage.compare_and_swap("x", b"new", "gibberish")


def wide_table() -> pa.Table:
    rows = 60_000
    return pa.table({f"c{i}": pa.array(range(i, rows + i)) for i in range(20)})


def test_two_columns_of_a_parquet_file_take_few_requests() -> None:
    storage = object_storage()
    with storage.open_output("t.parquet") as sink:
        pq.write_table(wide_table(), sink, row_group_size=30_000, use_dictionary=False, compression="none")
    info = storage.stat("t.parquet")
    assert info is not None
    assert info.size > 9 << 20
    for size in (None, info.size):
        before = storage.requests.total
        with storage.open_input("t.parquet", size) as source:
            file = pq.ParquetFile(source, pre_buffer=True)
            assert storage.requests.total - before == 1, "the footer comes with the tail"
            table = file.read(["c3", "c11"])
        assert table.column("c11").to_pylist()[:3] == [11, 12, 13]
        assert storage.requests.total - before <= 5, "one per column chunk"
    with storage.open_input("t.parquet") as source:
        before = storage.requests.total
        pq.ParquetFile(source, pre_buffer=False, buffer_size=32 << 10).read(["c3"])
        assert storage.requests.total - before <= 8, "small reads in sequence come from a window"


def test_a_file_that_is_shorter_than_was_said() -> None:
    storage = object_storage()
    storage.put("f", bytes(1000))
    source = storage.open_input("f", 2000)
    with pytest.raises(CorruptTable):
        source.read_at(10, 1990)


class Remote:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []

    def fetch(self, start: int, length: int) -> bytes:
        assert start >= 0
        assert start + length <= len(self.data)
        self.requests.append((start, length))
        return self.data[start : start + length]

    def tail(self, length: int) -> tuple[bytes, int]:
        self.requests.append((-length, length))
        return self.data[-length:], len(self.data)


DATA = bytes(i * 31 % 251 for i in range(700_000))
_reads = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(0, len(DATA) + 10)),
        st.tuples(st.just("read"), st.sampled_from([0, 1, 7, 1000, 65_536, 200_000, 10**9])),
        st.tuples(st.just("end"), st.integers(-len(DATA), 0)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(reads=_reads, size=st.sampled_from([0, 1, 100, TAIL, TAIL + 1, len(DATA)]), known=st.booleans())
def test_a_range_file_reads_like_a_file(reads: list[tuple[str, int]], size: int, known: bool) -> None:
    data = DATA[:size]
    remote = Remote(data)
    file = RangeFile("f", remote.fetch, remote.tail, size if known else None)
    model = io.BytesIO(data)
    for kind, number in reads:
        if kind == "seek":
            assert file.seek(number) == model.seek(number)
        elif kind == "end":
            assert file.seek(max(number, -size), io.SEEK_END) == model.seek(max(number, -size), io.SEEK_END)
        else:
            assert file.read(number) == model.read(number)
        assert file.tell() == model.tell()


def test_reading_through_grows_the_window() -> None:
    data = DATA * 40
    remote = Remote(data)
    file = RangeFile("f", remote.fetch, remote.tail)
    file_slices = []
    while file_slice := file.read(10_000):
        file_slices.append(file_slice)
    assert b"".join(file_slices) == data
    assert len(remote.requests) < 16
    assert max(length for _, length in remote.requests) <= LARGEST_WINDOW + 10_000


@given(ranges=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 500)), max_size=12), gap=st.integers(0, 600))
def test_merged_ranges_bring_the_same_bytes(ranges: list[tuple[int, int]], gap: int) -> None:
    data = DATA[:6000]
    requests = merged_ranges(ranges, gap)
    assert all(sum(one) + gap < two[0] for one, two in pairwise(requests))
    fetched = [data[start : start + length] for start, length in requests]
    assert cut_ranges(ranges, requests, fetched) == [data[start : start + length] for start, length in ranges]


class _TinyS3(BaseHTTPRequestHandler):
    """Just enough of S3 to see what goes over the wire: put with If-None-Match, get, and a failure on demand."""

    objects: dict[str, tuple[bytes, dict[str, str]]]
    fail_after_landing: list[int]
    seen: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def _reply(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.seen.append(f"PUT {self.path}")
        if self.headers["If-None-Match"] == "*" and self.path in self.objects:
            self._reply(412)
            return
        marks = {name.lower(): value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}
        self.objects[self.path] = data, marks
        if self.fail_after_landing:
            self._reply(self.fail_after_landing.pop())
        else:
            self._reply(200, ETag='"1"')

    def do_GET(self) -> None:
        self.seen.append(f"GET {self.path}")
        if self.path not in self.objects:
            self._reply(404)
            return
        data, marks = self.objects[self.path]
        moment = "Mon, 01 Jan 2024 00:00:00 GMT"
        self._reply(200, data, ETag='"1"', Last_Modified=moment, **{k.replace("-", "_"): v for k, v in marks.items()})


@pytest.mark.parametrize("fault", [[], [500], [503, 500]])
def test_a_server_error_after_landing_is_still_our_win(fault: list[int]) -> None:
    handler = type("Handler", (_TinyS3,), {"objects": {}, "fail_after_landing": list(fault), "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        storage = open_storage(
            "s3://lake/a%3Ab/t",
            {
                "key": "k",
                "secret": "s",
                "region": "us-east-1",
                "endpoint_url": f"http://127.0.0.1:{server.server_port}",
            },
        )
        assert storage.put_if_absent("x", b"1") is True
        assert handler.seen.count("PUT /lake/a%253Ab/t/x") == 1 + bool(fault), "obstore sends it again by itself"
        assert storage.put_if_absent("x", b"1") is False
        assert storage.read("x") == b"1"
        assert pickle.loads(pickle.dumps(storage)).read("x") == b"1"
    finally:
        server.shutdown()
        server.server_close()
    assert list(handler.objects) == ["/lake/a%253Ab/t/x"], "the key keeps its percent sign"


@pytest.mark.parametrize("name", ["a\nb/x", "a\x1b[31mb", "a\x7f/x"])
def test_a_control_character_in_a_path_is_a_named_error(name: str) -> None:
    """obstore itself raises a bare ValueError, or a TypeError."""
    storage = object_storage("deep")
    calls: list[Callable[[], object]] = [
        lambda: storage.put(name, b""),
        lambda: storage.put_if_absent(name, b""),
        lambda: storage.open_output(name),
        lambda: storage.read(name),
        lambda: storage.stat(name),
        lambda: storage.delete([name]),
        lambda: list(storage.list(name)),
        lambda: list(storage.list_folders(name)),
    ]
    for call in calls:
        with pytest.raises(CorruptTable, match=r"has a control character.*object stores") as raised:
            call()
        assert not any(ord(letter) < 0x20 for letter in str(raised.value))
