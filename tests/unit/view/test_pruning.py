from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.config.read_options import TableConfig
from lakebed.expression.predicate import ColumnStats, parse_predicate
from lakebed.model.bucket_hash import bucket_id
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogKind
from lakebed.storage.local import LocalStorage
from lakebed.timeline.meta_client import MetaClient
from lakebed.view.file_system_view import FileSystemView
from lakebed.view.partition_values import partition_stats
from lakebed.view.pruning import PruneReport, prune_buckets, prune_by_stats, prune_partitions, wanted_buckets
from tests.conftest import expected

SCHEMA = pa.schema(
    [
        ("_hoodie_record_key", pa.string()),
        ("_hoodie_partition_path", pa.string()),
        ("id", pa.string()),
        ("n", pa.int64()),
        ("country", pa.string()),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("b", pa.int32())])),
    ]
)


def config(**properties: str) -> TableConfig:
    base = {"hoodie.table.name": "x", "hoodie.table.version": "9", "hoodie.table.type": "MERGE_ON_READ"}
    return TableConfig.from_properties(base | properties)


def table(fields: str, keygen: str = "COMPLEX", hive: bool = False, encode: bool = False) -> TableConfig:
    properties = {
        "hoodie.table.partition.fields": fields,
        "hoodie.table.keygenerator.type": keygen,
        "hoodie.datasource.write.hive_style_partitioning": str(hive).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(encode).lower(),
    }
    return config(**properties)


def kept(paths: list[str], where: str, settings: TableConfig) -> list[str]:
    return prune_partitions(paths, parse_predicate(where, SCHEMA), settings, SCHEMA, PruneReport())


def test_plain_and_hive_paths() -> None:
    paths = ["de/2024-01-01", "fr/2024-01-01", "de/2024-02-01"]
    assert kept(paths, "country = 'de'", table("country,day")) == [paths[0], paths[2]]
    assert kept(paths, "country = 'de' and day < '2024-01-15'", table("country,day")) == [paths[0]]
    assert kept(paths, "country = 'de' and n = 3", table("country,day")) == [paths[0], paths[2]]
    assert kept(paths, "country = 'de' or n = 3", table("country,day")) == paths
    hive = ["country=de/day=2024-01-01", "country=fr/day=2024-01-01"]
    assert kept(hive, "country in ('fr', 'it')", table("country,day", hive=True)) == hive[1:]
    assert kept(hive, "country = 'us'", table("country,day", hive=False)) == []
    assert kept(["x=de/day=2024-01-01"], "country = 'us'", table("country,day", hive=True)) == ["x=de/day=2024-01-01"]


def test_encoded_values() -> None:
    paths = ["country=a b%2Fc", "country=x%3Dy%25z"]
    assert kept(paths, "country = 'a b/c'", table("country", hive=True, encode=True)) == paths[:1]
    assert kept(paths, "country = 'x=y%z'", table("country", hive=True, encode=True)) == paths[1:]
    assert kept(["100%25"], "country = '100%25'", table("country")) == ["100%25"]


def test_the_default_partition_is_null_or_empty() -> None:
    paths = ["__HIVE_DEFAULT_PARTITION__", "de"]
    assert kept(paths, "country is null", table("country")) == paths[:1]
    assert kept(paths, "country = ''", table("country")) == paths[:1]
    assert kept(paths, "country is not null", table("country")) == paths
    assert kept(paths, "country = 'de'", table("country")) == paths[1:]
    assert kept(["__HIVE_DEFAULT_PARTITION__", "5"], "n is not null", table("n")) == ["5"]


def test_paths_that_cannot_be_mapped_are_kept() -> None:
    assert kept(["a/b", "a"], "country = 'x'", table("country")) == ["a/b"]
    assert kept(["2024/01/02"], "at = '2024-01-02 00:00:00'", table("at", "TIMESTAMP")) == ["2024/01/02"]
    assert kept(["1704164645678901"], "at = '2024-01-02 00:00:00'", table("at")) == ["1704164645678901"]
    assert kept(["five"], "n = 5", table("n")) == ["five"]
    custom = table("country:SIMPLE,at:TIMESTAMP", "CUSTOM")
    assert kept(["de/2024", "fr/2024"], "country = 'de' and at is null", custom) == ["de/2024"]
    assert kept([""], "country = 'x'", table("")) == [""]


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("n", "-7", -7),
        ("day", "2024-01-02", dt.date(2024, 1, 2)),
        ("ok", "true", True),
        ("price", "1.50", Decimal("1.50")),
        ("country", "5", "5"),
        ("s.b", "3", 3),
    ],
)
def test_values_have_the_type_of_their_column(column: str, text: str, value: Any) -> None:
    assert partition_stats(text, table(column), SCHEMA) == {column: ColumnStats(value, value, 0, 1)}


def test_nested_partition_columns_and_the_path_itself() -> None:
    assert kept(["3", "4"], "s.b = 4", table("s.b")) == ["4"]
    assert kept(["3", "4"], "_hoodie_partition_path = '4'", table("n")) == ["4"]


def test_report_counts_reasons() -> None:
    report = PruneReport()
    predicate = parse_predicate("country = 'de'", SCHEMA)
    prune_partitions(["de", "fr", "it"], predicate, table("country"), SCHEMA, report)
    report.slice("bucket of the key", file_slice("00000001-x"))
    assert report.lines() == ["skipped 2 of 3 partitions by partition values", "skipped 1 slices by bucket of the key"]
    assert report.bytes == 10


def test_golden_hive_table(golden: Callable[[str], Path]) -> None:
    client = MetaClient.open(LocalStorage(golden("cow_hive_v9")))
    schema = pa.schema([("country", pa.string()), ("day", pa.date32())])
    answer = expected("cow_hive_v9")["snapshot"]
    path, country = (answer["columns"].index(c) for c in ("_hoodie_partition_path", "country"))
    partitions = FileSystemView.of(client).partitions()
    for value in {row[country] for row in answer["rows"]}:
        where = "country is null" if value is None else f"country = '{value}'"
        found = prune_partitions(partitions, parse_predicate(where, schema), client.config, schema, PruneReport())
        assert sorted(found) == sorted({row[path] for row in answer["rows"] if row[country] == value})


# Buckets


def file_slice(file_id: str, *logs: str, base: str | None = "b") -> FileSlice:
    group = FileGroupId("p", file_id)
    file = BaseFile(f"p/{base}", 10, group, "20260101000000000", "0-0-0") if base else None
    files = tuple(
        LogFile(f"p/{n}", 1, group, "20260101000000000", 1, "0-0-0", LogKind.LOG, n.endswith("parquet")) for n in logs
    )
    return FileSlice(group, "20260101000000000", file, files)


def buckets(keys: str, keygen: str = "SIMPLE", **more: str) -> TableConfig:
    properties = {
        "hoodie.table.recordkey.fields": keys,
        "hoodie.table.keygenerator.type": keygen,
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "16",
    }
    return config(**(properties | more))


def asked(where: str, settings: TableConfig) -> frozenset[int] | None:
    return wanted_buckets(parse_predicate(where, SCHEMA), settings)


def test_buckets_of_single_keys() -> None:
    def of(key: str) -> int:
        return bucket_id(key, 16, ["id"], ["id"])

    assert asked("id = 'k1'", buckets("id")) == {of("k1")}
    assert asked("id in ('k1', 'k2') and n > 3", buckets("id")) == {of("k1"), of("k2")}
    assert asked("id = 'k1' or id = 'k9'", buckets("id")) == {of("k1"), of("k9")}
    assert asked("_hoodie_record_key = 'k1'", buckets("id")) == {of("k1")}
    assert asked("n = 42", buckets("n")) == {of("42")}
    assert asked("n in (1, 2)", buckets("n")) == {of("1"), of("2")}
    assert asked("id = 'k1'", buckets("id", "COMPLEX")) == {of("k1"), of("id:k1")}
    assert asked("id > 'k1'", buckets("id")) is None
    assert asked("n = 5", buckets("id")) is None
    assert asked("at = '2024-01-01 00:00:00'", buckets("at")) is None


def test_buckets_of_composite_keys() -> None:
    def of(key: str, *hashed: str) -> int:
        return bucket_id(key, 16, hashed or ("id", "n"), ["id", "n"])

    assert asked("id = 'a' and n = 5", buckets("id,n", "COMPLEX")) == {of("id:a,n:5")}
    assert asked("id = 'a'", buckets("id,n", "COMPLEX")) is None
    assert asked("id = 'a,b' and n = 5", buckets("id,n", "COMPLEX")) is None
    only_id = buckets("id,n", "COMPLEX", **{"hoodie.bucket.index.hash.field": "id"})
    assert asked("id = 'a'", only_id) == {of("id:a,n:77", "id")}


def test_other_indexes_are_left_alone() -> None:
    assert asked("id = 'k1'", buckets("id", **{"hoodie.index.bucket.engine": "CONSISTENT_HASHING"})) is None
    plain = config(**{"hoodie.table.recordkey.fields": "id", "hoodie.bucket.index.num.buckets": "4"})
    assert asked("id = 'k1'", plain) is None


def test_golden_bucket_table_keeps_the_slice_of_every_key(golden: Callable[[str], Path]) -> None:
    view = FileSystemView.of(MetaClient.open(LocalStorage(golden("mor_bucket_v9"))))
    slices = [s for p in view.partitions() for s in view.slices(p)]
    answer = expected("mor_bucket_v9")["snapshot"]
    key, path, file = (answer["columns"].index(c) for c in ("id", "_hoodie_partition_path", "_hoodie_file_name"))
    settings = buckets("id", **{"hoodie.bucket.index.num.buckets": "3"})
    report = PruneReport()
    for row in answer["rows"][:20]:
        found = prune_buckets(slices, parse_predicate(f"id = '{row[key]}'", SCHEMA), settings, report)
        ids = {(s.file_group.partition_path, s.file_group.file_id) for s in found}
        assert (row[path], row[file].partition("_")[0]) in ids
        assert len(found) == 2  # one bucket in each of two partitions
    assert report.slices["bucket of the key"] == 20 * 4


def test_file_ids_without_a_bucket_are_kept() -> None:
    strange = [file_slice("abcdefgh-1"), file_slice("00000099-1"), file_slice("x")]
    predicate = parse_predicate("id = 'k1'", SCHEMA)
    assert prune_buckets(strange, predicate, buckets("id"), PruneReport()) == strange


# Statistics


class Stats:
    def __init__(self, files: dict[str, dict[str, ColumnStats]]) -> None:
        self.files = files

    def column_stats(
        self, partition_path: str, file_names: Sequence[str], columns: Sequence[str]
    ) -> Mapping[str, Mapping[str, ColumnStats]]:
        return {name: self.files[name] for name in file_names if name in self.files}


def by_stats(slices: list[FileSlice], where: str, **files: dict[str, ColumnStats]) -> list[FileSlice]:
    return prune_by_stats(slices, parse_predicate(where, SCHEMA), Stats(files), PruneReport())


def test_slices_are_ruled_out_by_all_their_files_together() -> None:
    low, high, mixed = ColumnStats(1, 5, 0, 9), ColumnStats(10, 20, 0, 9), file_slice("f", "log1")
    assert by_stats([mixed], "n = 7", b={"n": low}, log1={"n": high}) == [mixed]  # within the joined bounds
    assert by_stats([mixed], "n = 30", b={"n": low}, log1={"n": high}) == []
    assert by_stats([mixed], "n = 30", b={"n": low}) == [mixed]  # a file without statistics
    assert by_stats([mixed], "n = 30", b={"n": low}, log1={}) == [mixed]
    assert by_stats([mixed], "n is null", b={"n": low}, log1={"n": high}) == []
    assert by_stats([mixed], "n is null", b={"n": low}, log1={"n": ColumnStats(null_count=9, rows=9)}) == [mixed]
    assert by_stats([mixed], "n = 9", b={"n": low}, log1={"n": ColumnStats(null_count=9, rows=9)}) == []
    assert by_stats([mixed], "n = 9", b={"n": low}, log1={"n": ColumnStats("a", "b")}) == [mixed]


def test_a_match_may_be_pieced_together_from_two_files() -> None:
    one = {"n": ColumnStats(1, 1, 0, 1), "id": ColumnStats("x", "x", 0, 1)}
    two = {"n": ColumnStats(2, 2, 0, 1), "id": ColumnStats("y", "y", 0, 1)}
    mixed = file_slice("f", "log1")
    assert by_stats([mixed], "n = 1 and id = 'y'", b=one, log1=two) == [mixed]
