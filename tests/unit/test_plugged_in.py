"""What can be plugged in is plugged in here, from outside the package, and used by the public API from end to end."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.config.base_file_formats import BASE_FILE_FORMATS
from lakebed.datafile.source import DEFAULT_BATCH_ROWS, ReadCounters
from lakebed.format.names import PARTITION_METAFILE
from lakebed.format.table_files import PartitionMetafile, render_partition_metafile
from lakebed.index.kinds import INDEX_KINDS
from lakebed.index.options import IndexOptions
from lakebed.model.actions import CommitMetadata, WriteStat
from lakebed.model.instant import Action
from lakebed.model.key_range import KeyRange
from lakebed.plugins import (
    BaseFileFormat,
    Index,
    IndexContext,
    IndexKind,
    KeyLocation,
    Lease,
    LockRequest,
    LockType,
    OpenOptions,
    Places,
    StorageScheme,
    register_base_file_format,
    register_index_kind,
    register_lock_provider,
    register_storage,
)
from lakebed.registry import Registry
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.open import STORAGES, open_storage
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.options import LOCK_PROVIDERS
from lakebed.txn.transaction import Transaction
from lakebed.txn.txn_context import TxnContext

REGISTRIES = (BASE_FILE_FORMATS, INDEX_KINDS, LOCK_PROVIDERS, STORAGES)
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it, and nothing that is installed here counts."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_words", dict(registry._words))
        monkeypatch.setattr(registry, "_values", dict(registry._values))
        monkeypatch.setattr(registry, "_installed", {})


def rows(**numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "n": list(numbers.values())}, schema=SCHEMA)


def held(table: lakebed.Table) -> dict[str, int]:
    found = table.scan(columns=["id", "n"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["n"] for row in found}


# ---------------------------------------------------------------------- a storage


class ToyStorage(MemoryStorage):
    """A store in memory with a location of its own."""

    @property
    def url(self) -> str:
        return super().url.replace("memory://", "toy://")


def open_toy(url: str, options: Mapping[str, Any]) -> ToyStorage:
    if options.get("colour") != "red":
        raise lakebed.InvalidRequest("toys are red")
    name, _, folder = url.removeprefix("toy://").partition("/")
    return ToyStorage(f"toy {name}", folder)


def test_a_storage_by_its_scheme() -> None:
    with pytest.raises(lakebed.InvalidRequest, match="no storage for 'toy://box/t'") as refused:
        lakebed.open("toy://box/t")
    assert "file, memory, s3" in str(refused.value.hint)
    assert "toy" not in str(refused.value.hint)
    register_storage(StorageScheme("toy", open_toy))
    with pytest.raises(lakebed.InvalidRequest, match="toys are red"):
        lakebed.open("toy://box/t")
    red = {"colour": "red"}
    table = lakebed.create("toy://box/t", SCHEMA, record_key="id", storage_options=red)
    table.upsert(rows(a=1, b=2))
    lakebed.open("toy://box/t", storage_options=red).upsert(rows(b=3))
    again = lakebed.open("toy://box/t", storage_options=red)
    assert held(again) == {"a": 1, "b": 3}
    again.services.compact()
    assert held(again) == {"a": 1, "b": 3}
    assert again.check() == []
    assert list(ToyStorage("toy box").list("t", recursive=True))
    with pytest.raises(lakebed.InvalidRequest) as refused:
        lakebed.open("other://box/t")
    assert "toy" in str(refused.value.hint)


# ---------------------------------------------------------------------- a lock provider


class _Held:
    def confirm(self) -> None:
        return

    def lapsed(self) -> bool:
        return False


@dataclass
class ToyLock:
    """A lock by name, which tells how often it was held."""

    name: str
    holds: ClassVar[dict[str, int]] = {}
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        with self.mutex:
            self.holds[self.name] = self.holds.get(self.name, 0) + 1
            yield _Held()


def make_toy_lock(request: LockRequest) -> ToyLock:
    return ToyLock(request.properties.get("toy.lock.name", "?"))


def test_a_lock_provider_by_its_name_and_by_its_class_in_java() -> None:
    url = "memory://plugged-in-lock/t"
    wanted = {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": "toy_lock",
        "toy.lock.name": "orders",
    }
    with pytest.raises(lakebed.InvalidRequest, match=r"none of storage, .*file_system") as refused:
        lakebed.create(url, SCHEMA, record_key="id", properties=wanted)
    assert "toy" not in str(refused.value).partition("none of")[2]
    register_lock_provider(LockType("toy_lock", make_toy_lock, "com.example.ToyLockProvider"))
    ToyLock.holds.clear()
    table = lakebed.create(url, SCHEMA, record_key="id", properties=wanted)
    table.upsert(rows(a=1))
    first = ToyLock.holds["orders"]
    assert first > 0
    lakebed.open(url).upsert(rows(a=2))
    assert ToyLock.holds["orders"] > first
    java = {"hoodie.write.lock.provider": "com.example.ToyLockProvider"}
    lakebed.open(url).upsert(rows(b=1), options=java)  # another word for the same lock
    assert held(lakebed.open(url)) == {"a": 2, "b": 1}
    with pytest.raises(lakebed.InvalidRequest, match="kept apart by toy_lock, not by storage"):
        lakebed.open(url).upsert(rows(c=1), options={"hoodie.write.lock.provider": "storage"})


def test_a_table_is_told_the_class_by_which_hudi_knows_its_lock() -> None:
    register_lock_provider(LockType("toy_lock", make_toy_lock, "com.example.ToyLockProvider"))
    table = lakebed.create("memory://plugged-in-lock/mode", SCHEMA, record_key="id")
    mode = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    table.upsert(rows(a=1), options={**mode, "hoodie.write.lock.provider": "toy_lock"})
    properties = MetaClient.open(open_storage("memory://plugged-in-lock/mode")).config.properties
    assert properties["hoodie.write.lock.provider"] == "com.example.ToyLockProvider"


# ---------------------------------------------------------------------- an index kind


@dataclass
class ToyIndex(Index):
    """Keys by the remainder of their checksum: two file groups per partition, named after it."""

    context: IndexContext
    groups: int

    is_hashed = True

    def places(self, rows: pa.Table) -> Places:
        keys, paths = (rows.column(name).to_pylist() for name in ("_hoodie_record_key", "_hoodie_partition_path"))
        wanted = [
            (path, f"toy-{zlib.crc32(key.encode()) % self.groups}") for key, path in zip(keys, paths, strict=True)
        ]
        numbers = {place: number for number, place in enumerate(dict.fromkeys(wanted))}
        known = {
            (path, one.file_group.file_id): one.base_instant_time
            for path in set(paths)
            for one in self.context.view.slices(path)
        }
        locations = tuple(KeyLocation(*place, known.get(place, "")) for place in numbers)
        return Places(locations, np.array([numbers[place] for place in wanted], np.int64))


def open_toy_index(context: IndexContext, options: IndexOptions, properties: Mapping[str, str]) -> ToyIndex:
    return ToyIndex(context, int(properties.get("toy.groups", "2")))


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_an_index_kind_by_its_name(table_type: str) -> None:
    url = f"memory://plugged-in-index/{table_type}"
    with pytest.raises(lakebed.InvalidRequest, match="index='toy' is not known") as refused:
        lakebed.create(url, SCHEMA, record_key="id", index="toy")
    assert "bucket, consistent_bucket, simple" in str(refused.value.hint)
    register_index_kind(IndexKind("TOY", open_toy_index, is_hashed=True, needs_record_key=True))
    with pytest.raises(lakebed.InvalidRequest, match="the index toy needs a record key"):
        lakebed.create(url, SCHEMA, index="toy")
    table = lakebed.create(url, SCHEMA, record_key="id", index="toy", table_type=table_type)
    table.upsert(rows(**{f"k{number}": number for number in range(20)}))
    again = lakebed.open(url)
    again.upsert(rows(k3=33, new=1))
    again.delete("id = 'k4'")
    wanted = {f"k{number}": number for number in range(20)} | {"k3": 33, "new": 1}
    del wanted["k4"]
    assert held(lakebed.open(url)) == wanted
    files = again.inspect.file_slices().column("file_id").to_pylist()
    assert set(files) == {"toy-0", "toy-1"}
    if table_type == "mor":
        again.services.compact()
        assert held(lakebed.open(url)) == wanted
    assert MetaClient.open(open_storage(url)).config.properties["hoodie.index.type"] == "TOY"


def test_a_table_of_an_index_that_nobody_knows_is_read_and_not_written_to() -> None:
    register_index_kind(IndexKind("TOY", open_toy_index, is_hashed=True))
    table = lakebed.create("memory://plugged-in-index/unknown", SCHEMA, record_key="id", index="toy")
    table.upsert(rows(a=1))
    INDEX_KINDS._words.pop("toy")
    assert held(lakebed.open("memory://plugged-in-index/unknown")) == {"a": 1}
    with pytest.raises(lakebed.InvalidRequest, match=r"hoodie.index.type='TOY': none of SIMPLE, GLOBAL_SIMPLE"):
        lakebed.open("memory://plugged-in-index/unknown").upsert(rows(a=2))


# ---------------------------------------------------------------------- a base file format


class ArrowSource:
    """An Arrow IPC file as a base file."""

    is_sorted = False
    has_unique_keys = False
    key_range: KeyRange | None = None

    def __init__(self, file: pa.NativeFile, label: str, options: OpenOptions) -> None:
        self.label = label
        self.counters = options.counters if options.counters is not None else ReadCounters()
        self.counters.files += 1
        self.footer: Mapping[str, str] = {}
        self._file, self._key = file, options.key_column
        file.seek(0)
        self._reader = pa.ipc.open_file(file)
        self.schema: pa.Schema = self._reader.schema
        self.num_rows = sum(self._reader.get_batch(at).num_rows for at in range(self._reader.num_record_batches))

    def __enter__(self) -> ArrowSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def matching_row_groups(self, predicate: object, *, renames: object = None) -> None:
        return None

    def row_bytes(self, columns: Sequence[str] | None = None) -> int:
        return 100

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        row_groups: Sequence[int] | None = None,
        key_range: KeyRange | None = None,
    ) -> Iterator[pa.RecordBatch]:
        wanted = [name for name in columns or self.schema.names if name in self.schema.names]
        for at in range(self._reader.num_record_batches):
            batch = self._reader.get_batch(at)
            if key_range is not None:
                batch = batch.filter(key_range.mask(batch.column(self._key)))
            yield batch.select(wanted)


ARROW = BaseFileFormat("ARROW", b"ARROW1", ArrowSource)


def arrow_table(url: str) -> None:
    """A table of Arrow files, as another program may have written it: lakebed reads and does not write them."""
    lakebed.create(url, SCHEMA, record_key="id", table_type="cow", layout="default", log_format="v1", index="simple")
    storage = open_storage(url)
    update_properties(storage, {"hoodie.table.base.file.format": "ARROW"})
    client = MetaClient.open(storage)
    with Transaction.begin(client, Action.COMMIT, TxnContext.of(storage), operation="INSERT") as txn:
        begin, name = txn.requested_time, f"f0_0-0-0_{txn.requested_time}.arrow"
        meta = [[begin] * 2, ["x_0", "x_1"], ["a", "b"], ["", ""], [name] * 2]
        names = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
        table = pa.table(
            {**{f"_hoodie_{one}": text for one, text in zip(names, meta, strict=True)}, "id": ["a", "b"], "n": [1, 2]}
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        metafile = PartitionMetafile(commit_time=begin, depth=0)
        storage.put(PARTITION_METAFILE, render_partition_metafile(metafile, []))
        with storage.open_output(name) as output:
            output.write(data)
        stat = WriteStat("f0", name, "", num_writes=2, num_inserts=2, file_size=len(data), total_write_bytes=len(data))
        txn.commit(CommitMetadata("INSERT", {"": (stat,)}))


def test_a_base_file_format_by_its_ending_and_its_first_bytes() -> None:
    register_base_file_format(ARROW)
    url = "memory://plugged-in-format/t"
    arrow_table(url)
    table = lakebed.open(url)
    assert held(table) == {"a": 1, "b": 2}
    assert table.scan(filter="id = 'b'").to_arrow().column("n").to_pylist() == [2]
    assert table.scan().count() == 2
    with pytest.raises(lakebed.InvalidRequest, match="its base files are arrow"):
        table.upsert(rows(a=3))


def test_a_base_file_format_that_nobody_knows_is_refused() -> None:
    register_base_file_format(ARROW)
    arrow_table("memory://plugged-in-format/unknown")
    BASE_FILE_FORMATS._words.pop("arrow")
    with pytest.raises(lakebed.LakebedError, match="'ARROW': none of PARQUET, ORC, HFILE, LANCE"):
        lakebed.open("memory://plugged-in-format/unknown")


# ---------------------------------------------------------------------- entry points


INSTALLED = {
    "lakebed.storages": [("toyfs", "lakebed_toys:SCHEME")],
    "lakebed.lock_providers": [("toy_lock", "lakebed_toys:LOCK")],
    "lakebed.indexes": [
        ("TOY", "lakebed_toys:INDEX"),
        ("BROKEN", "lakebed_toys_that_fail:INDEX"),
        ("ODD", "os:getcwd"),
    ],
    "lakebed.base_file_formats": [("ARROW", "lakebed_toys:FORMAT")],
}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A distribution that declares one of each; the list tells which groups were looked at."""
    asked: list[str] = []
    toys = type(sys)("lakebed_toys")
    toys.SCHEME = StorageScheme("toyfs", lambda url, options: MemoryStorage("toyfs", url.removeprefix("toyfs://")))  # type: ignore[attr-defined]
    toys.LOCK = LockType("toy_lock", make_toy_lock)  # type: ignore[attr-defined]
    toys.INDEX = IndexKind("TOY", open_toy_index, is_hashed=True)  # type: ignore[attr-defined]
    toys.FORMAT = ARROW  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lakebed_toys", toys)

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        asked.append(group)
        return [importlib.metadata.EntryPoint(name, value, group) for name, value in INSTALLED[group]]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_installed", None)
    return asked


def test_what_is_installed_counts_once_a_name_is_not_known_here(installed: list[str]) -> None:
    lakebed.create("memory://plugged-in-ep/plain", SCHEMA, record_key="id").upsert(rows(a=1))
    assert "lakebed.storages" not in installed
    assert "lakebed.lock_providers" not in installed
    assert "lakebed.base_file_formats" not in installed
    url = "toyfs://shelf/t"
    wanted = {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": "toy_lock",
        "hoodie.index.type": "toy",
        "toy.lock.name": "installed",
    }
    ToyLock.holds.clear()
    table = lakebed.create(url, SCHEMA, record_key="id", properties=wanted)
    table.upsert(rows(a=1, b=2))
    assert held(lakebed.open(url)) == {"a": 1, "b": 2}
    assert ToyLock.holds["installed"] > 0
    assert set(table.inspect.file_slices().column("file_id").to_pylist()) <= {"toy-0", "toy-1"}
    arrow_table("toyfs://shelf/arrow")
    assert held(lakebed.open("toyfs://shelf/arrow")) == {"a": 1, "b": 2}
    assert installed.count("lakebed.storages") == 1


def test_an_entry_point_of_the_wrong_type_says_so(installed: list[str]) -> None:
    with pytest.raises(TypeError, match=r"'ODD' of lakebed.indexes is a builtin_function_or_method, not a IndexKind"):
        INDEX_KINDS.find("odd", IndexKind)
    with pytest.raises(ModuleNotFoundError, match="lakebed_toys_that_fail"):
        INDEX_KINDS.find("broken", IndexKind)


@pytest.mark.parametrize("name", ["os:system", "lakebed.index.simple:SIMPLE", "antigravity", "../evil", "", "é"])
def test_a_name_never_says_what_is_imported(installed: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_import(module: str) -> None:
        raise AssertionError(f"{module} was imported")

    monkeypatch.setattr("lakebed.registry.importlib.import_module", no_import)
    for registry in REGISTRIES:
        assert registry.name_of(name) is None
        assert registry.find(name, object) is None


# ---------------------------------------------------------------------- the registries themselves


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.group)
def test_every_line_of_the_package_leads_to_a_value_of_that_name(registry: Registry) -> None:
    kinds: dict[str, type[Any]] = {
        "lakebed.base_file_formats": BaseFileFormat,
        "lakebed.indexes": IndexKind,
        "lakebed.lock_providers": LockType,
        "lakebed.storages": StorageScheme,
    }
    for word in registry.built_in:
        found = registry.find(word, kinds[registry.group])
        assert found is not None
        assert found.name == registry.name_of(word)


def test_what_is_registered_last_counts_and_what_is_installed_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry("toys", {"one": "os:sep", "uno": "one"})
    hides = importlib.metadata.EntryPoint("ONE", "os:linesep", "toys")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [hides])
    assert registry.find("UNO", str) == "/"
    assert registry.words == ("one", "uno")
    registry.register("one", "first")
    registry.register("One", "second", also=("eins",))
    assert (registry.find("one", str), registry.find("EINS", str)) == ("second", "second")
    assert registry.names == ("One",)


def test_importing_lakebed_reads_no_entry_points_and_no_object_store_client() -> None:
    code = (
        "import importlib.metadata as m\n"
        "def no(**_): raise AssertionError('entry points were read')\n"
        "m.entry_points = no\n"
        "import sys, lakebed, pyarrow as pa\n"
        "t = lakebed.create('memory://x/t', pa.schema([('id', pa.string())]), record_key='id', index='bucket')\n"
        "assert 'obstore' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd(), check=False)
    assert done.returncode == 0, done.stderr
