"""Which location leads to which storage."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakebed.errors import InvalidRequest
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.object_store import ObjectStorage
from lakebed.storage.open import open_storage


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "file://localhost{}", "FILE://{}"])
def test_local_forms(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "a b%20c"
    storage = open_storage(form.format(folder))
    assert isinstance(storage, LocalStorage)
    assert storage.base == folder
    assert open_storage(storage.url) == storage


def test_paths_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage(tmp_path / "t") == open_storage("t") == open_storage("./x/../t")
    assert open_storage("odd:name") == LocalStorage(tmp_path / "odd:name")


def test_memory_forms() -> None:
    storage = open_storage("memory://open-test/a/b")
    assert isinstance(storage, MemoryStorage)
    storage.put("x", b"1")
    assert open_storage("memory://open-test").read("a/b/x") == b"1"
    assert open_storage(storage.url).read("x") == b"1"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket/lake/t%20x", {"region": "eu-west-1"}),
        ("s3a://bucket/lake", {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.path.style.access": "true"}),
        ("s3://bucket", {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "aws_endpoint_url": "http://h:1"}),
        ("s3://bucket/x", {"key": "k", "secret": "s", "token": "t", "allow_http": True, "timeout": "5s"}),
        ("gs://bucket/lake", {"skip_signature": True}),
        ("gcs://bucket/lake", {"skip_signature": True}),
        ("az://container/lake", {"account_name": "a", "token": "t"}),
        ("abfs://container@account.dfs.core.windows.net/lake", {}),
        ("abfss://container@account.dfs.core.windows.net/lake", {}),
    ],
)
def test_object_stores_open_and_pickle(url: str, options: dict[str, object]) -> None:
    storage = open_storage(url, options)
    assert isinstance(storage, ObjectStorage)
    assert storage.url == url
    assert storage.within("a").url == f"{url}/a"
    again = pickle.loads(pickle.dumps(storage.within("a")))
    assert again.url == f"{url}/a"


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("hdfs://host/x", {}, "Known schemes: file, memory, s3"),
        ("ftp://host/x", {}, "Known schemes"),
        ("s3://", {}, "no bucket"),
        ("s3://bucket/x", {"bogus": "1"}, "bogus"),
        ("/some/path", {"region": "x"}, "takes no storage_options"),
        ("memory://x", {"region": "x"}, "takes no storage_options"),
        ("file://host/x", {}, "absolute file URL"),
        ("file:x", {}, "absolute file URL"),
        ("", {}, "empty"),
    ],
)
def test_refused(url: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        open_storage(url, options)
