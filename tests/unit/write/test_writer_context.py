"""The one way into a write: what a writer's context holds, what it refuses, and that options are read once."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.config.clustering_options import ClusteringOptions
from lakebed.config.compaction_options import CompactionOptions
from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, TtlOptions
from lakebed.config.write_options import WriteOptions
from lakebed.errors import InvalidRequest
from lakebed.index.kinds import BUCKET
from lakebed.index.options import IndexOptions
from lakebed.runner import SerialRunner
from lakebed.services.after_write import after_write
from lakebed.services.drop_metadata import DROPPING, without_metadata_table
from lakebed.storage.open import open_storage
from lakebed.table import Table
from lakebed.timeline.meta_client import MetaClient
from lakebed.timeline.table_properties import update_properties
from lakebed.txn.options import Concurrency, LockKind, TxnOptions
from lakebed.txn.txn_context import TxnContext
from lakebed.write.operation import Operation
from lakebed.write.writer_context import WriterContext, check_options, writer_context
from tests.unit.write.tables import SCHEMA, make, row, table, values

SIZE = "hoodie.parquet.max.file.size"
GROUPS = (
    WriteOptions,
    IndexOptions,
    TxnOptions,
    CompactionOptions,
    ClusteringOptions,
    CleanOptions,
    ArchiveOptions,
    TtlOptions,
)


def context_of(
    target: Table, opened: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None, **more: Any
) -> WriterContext:
    client = MetaClient.open(open_storage(target.url))
    return writer_context(client, opened or {}, options or {}, **({"default_memory": 1 << 30} | more))


# ---------------------------------------------------------------------- what it holds
def test_a_call_comes_before_open_and_open_before_the_table() -> None:
    own = {SIZE: "1MB", "hoodie.clean.commits.retained": "3", "hoodie.write.lock.wait_time_ms": "100"}
    target = make(properties=own)
    plain = context_of(target)
    assert (plain.write_options.max_file_size, plain.upkeep.cleaning.commits) == (1 << 20, 3)
    assert plain.txn_context.options.lock_wait_ms == 100
    assert plain.properties == {}, "the table's own properties are no options of the caller"
    opened = {SIZE: "2MB", "hoodie.write.lock.wait_time_ms": "200"}
    assert context_of(target, opened).write_options.max_file_size == 2 << 20
    both = context_of(target, opened, {SIZE: "3MB"})
    assert (both.write_options.max_file_size, both.txn_context.options.lock_wait_ms) == (3 << 20, 200)
    assert both.properties == {**opened, SIZE: "3MB"}


def test_memory_is_the_argument_or_an_option_or_the_default() -> None:
    target = make()
    opened, options = {"lakebed.memory": "64MB"}, {"lakebed.memory": "32MB"}
    assert context_of(target, default_memory=7).memory == 7
    assert context_of(target, opened).memory == 64 << 20
    assert context_of(target, opened, options).memory == 32 << 20
    assert context_of(target, opened, options, memory="1MB").memory == 1 << 20
    assert context_of(target, opened, options, memory=5).memory == 5
    with pytest.raises(InvalidRequest, match="not a size"):
        context_of(target, memory="much")


def test_the_index_of_the_table_and_of_the_call() -> None:
    found = context_of(make(num_buckets=5)).index_options
    assert (found.kind, found.num_buckets) == (BUCKET, 5)
    simple = make(index="simple")
    stays = context_of(simple, {"hoodie.simple.index.update.partition.path": "false"})
    assert stays.index_options.simple_moves is False


def test_transactions_are_put_on_top_of_what_is_handed_in() -> None:
    target = make()
    base = TxnContext.of(open_storage(target.url), TxnOptions(lock_provider=LockKind.IN_PROCESS, lock_wait_ms=7))
    found = context_of(target, txn_context=base).txn_context
    assert found.lock is base.lock
    assert found.options == base.options
    optimistic = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    other = context_of(target, optimistic, txn_context=base).txn_context
    assert (other.options.concurrency, other.options.lock_provider) == (Concurrency.OPTIMISTIC, LockKind.IN_PROCESS)


def test_keys_are_made_as_the_options_say() -> None:
    target = make()
    assert not context_of(target).key_generator.allows_ambiguous
    assert context_of(target, {"lakebed.allow.ambiguous.keys": "true"}).key_generator.allows_ambiguous


def test_it_is_a_value() -> None:
    target, runner = make(), SerialRunner()
    client = MetaClient.open(open_storage(target.url))
    found = writer_context(client, {}, {}, default_memory=1, runner=runner)
    assert found.runner is runner
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.memory = 2  # type: ignore[misc]


# ---------------------------------------------------------------------- what it refuses
@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        (SIZE, "big", "max.file.size='big'"),
        ("hoodie.compact.inline", "perhaps", "compact.inline"),
        ("hoodie.clean.commits.retained", "few", "commits.retained"),
        ("hoodie.write.lock.wait_time_ms", "long", "wait_time_ms"),
        ("hoodie.index.type", "BUKET", "index.type='BUKET'"),
        ("hoodie.bloom.index.prune.by.ranges", "perhaps", "prune.by.ranges"),
    ],
)
def test_options_that_cannot_be_read(key: str, value: str, match: str) -> None:
    target = make(index="simple")
    for opened, options in (({key: value}, {}), ({}, {key: value})):
        with pytest.raises(InvalidRequest, match=match):
            context_of(target, opened, options)
    with pytest.raises(InvalidRequest, match=match):
        check_options({key: value})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"hoodie.bucket.index.num.buckets": "7"}, "num.buckets=2, not '7'"),
        ({"hoodie.datasource.write.recordkey.field": "txt"}, "the table has id"),
        ({"hoodie.populate.meta.fields": "false"}, "populate.meta.fields=true, not false"),
    ],
)
def test_options_that_the_table_contradicts(options: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidRequest, match=match):
        context_of(make(), options)


@pytest.mark.parametrize(
    "options", [{"hoodie.index.type": "BUKET"}, {"hoodie.bucket.index.num.buckets": "7"}, {SIZE: "big"}]
)
def test_a_write_that_is_refused_drops_no_metadata_table(options: dict[str, str]) -> None:
    target = make()
    update_properties(open_storage(target.url), {"hoodie.table.metadata.partitions": "files"})
    with pytest.raises(InvalidRequest):
        target.upsert(table(row("a")), options=options, drop_metadata=True)
    assert target.refresh().config.metadata_partitions == ("files",)
    target.upsert(table(row("a")), drop_metadata=True)
    assert not target.refresh().config.metadata_partitions


def test_a_metadata_table_goes_where_somebody_says_so() -> None:
    target = make()
    storage = open_storage(target.url)
    update_properties(storage, {"hoodie.table.metadata.partitions": "files"})
    kept = context_of(target)
    assert without_metadata_table(kept) is kept
    dropped = without_metadata_table(context_of(target, {"lakebed.drop.metadata": "true"}))
    assert not dropped.client.config.metadata_partitions
    update_properties(storage, {DROPPING: "true"})
    assert DROPPING not in without_metadata_table(context_of(target)).client.config.properties


# ---------------------------------------------------------------------- read once
@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[type]:
    """How often each option group was read from properties."""
    counted: Counter[type] = Counter()

    def count(group: Any) -> None:
        inherited = group.from_properties.__func__

        def from_properties(cls: type, properties: Mapping[str, str]) -> Any:
            counted[cls] += 1
            return inherited(cls, properties)

        monkeypatch.setattr(group, "from_properties", classmethod(from_properties))

    for group in GROUPS:
        count(group)
    return counted


ONCE = dict.fromkeys(GROUPS, 1)
TABLES: dict[str, dict[str, Any]] = {
    "bucket": {},
    "consistent": {"index": "consistent_bucket"},
    "simple": {"index": "simple"},
    "global": {"index": "global_simple"},
    "cow": {"index": "bloom", "table_type": "cow"},
}
OPTIONS = {SIZE: "2MB", "hoodie.clean.commits.retained": "3", "hoodie.write.lock.wait_time_ms": "9000"}


@pytest.mark.parametrize("kind", TABLES)
def test_one_upsert_reads_every_group_once(kind: str, read: Counter[type]) -> None:
    target = make(**TABLES[kind])
    for number in range(2):
        read.clear()
        target.upsert(table(row("a", number, v=number), row("b", number, v=number)), options=OPTIONS)
        assert read == ONCE, number
    assert values(target, "id", "v") == [("a", 1), ("b", 1)]


CALLS: dict[str, Any] = {
    "insert without known keys": lambda t: t.insert(
        table(row("a"), row("c")), options={"hoodie.datasource.insert.dup.policy": "drop"}
    ),
    "overwrite": lambda t: t.overwrite(table(row("c"))),
    "update": lambda t: t.update(set={"v": "v + 1"}),
    "delete by condition": lambda t: t.delete(where="v = 0"),
    "delete by key": lambda t: t.delete(keys=["a"]),
    "delete partitions": lambda t: t.delete_partitions(["p=a"]),
    "merge": lambda t: (
        t.merge(table(row("a", 2, v=2)), on="t.id = s.id").when_matched_update(set={"v": "s.v", "ts": "s.ts"}).execute()
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_other_write_does_so_too(name: str, read: Counter[type]) -> None:
    target = make(properties={"hoodie.datasource.write.hive_style_partitioning": "true"})
    target.insert(table(row("a"), row("b")))
    read.clear()
    CALLS[name](target)
    assert read == ONCE


def test_the_source_of_spark_reads_every_group_once(read: Counter[type]) -> None:
    settings = pytest.importorskip("lakebed.spark.source_options", reason="needs pyspark").Settings
    target = make()
    read.clear()
    chosen = settings({"path": target.url, **OPTIONS})
    writer = chosen.writer(chosen.table(SCHEMA, Operation.UPSERT))
    writer.write(table(row("a"), row("b")), Operation.UPSERT)
    after_write(chosen.services(writer.context), writer.context)
    assert read == ONCE
    assert values(target.refresh(), "id") == [("a",), ("b",)]


def test_both_ways_in_make_the_same_context() -> None:
    settings = pytest.importorskip("lakebed.spark.source_options", reason="needs pyspark").Settings
    target = make(properties={SIZE: "1MB"})
    options = {**OPTIONS, "lakebed.memory": "64MB"}
    by_table = target._writer(options, None).context
    by_source = settings({"path": target.url, **options}).writer(MetaClient.open(open_storage(target.url))).context
    for name in ("write_options", "index_options", "upkeep", "memory", "properties"):
        assert getattr(by_table, name) == getattr(by_source, name), name
    assert by_table.txn_context.options == by_source.txn_context.options


def test_options_are_read_again_when_the_table_s_own_changed(read: Counter[type]) -> None:
    """Another writer may set the table's mode meanwhile: what comes after the write has to go by it."""
    target = make()
    writer = target._writer(None, None)
    update_properties(open_storage(target.url), {"hoodie.clean.commits.retained": "2"})
    target.refresh()
    read.clear()
    after_write(target.services, writer.context)
    assert read == {group: 1 for group in GROUPS if group not in (WriteOptions, IndexOptions)}


def test_a_first_write_of_the_source_makes_no_table_for_options_that_only_writes_read(tmp_path: Path) -> None:
    settings = pytest.importorskip("lakebed.spark.source_options", reason="needs pyspark").Settings
    path = tmp_path / uuid.uuid4().hex
    keys = {"hoodie.datasource.write.recordkey.field": "id"}
    chosen = settings({"path": str(path), **keys, "hoodie.bloom.index.prune.by.ranges": "perhaps"})
    with pytest.raises(InvalidRequest, match=r"prune\.by\.ranges"):
        chosen.table(SCHEMA, Operation.UPSERT)
    with pytest.raises(lakebed.TableNotFound):
        lakebed.open(path)
