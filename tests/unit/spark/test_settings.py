"""What `format("lakebed")` makes of its options; no Spark runs here."""

from __future__ import annotations

import uuid
import warnings

import pytest

import lakebed
from lakebed.storage.open import open_storage
from tests.unit.write.tables import SCHEMA, row, table

settings = pytest.importorskip("lakebed.spark.source_options", reason="needs pyspark")
WRITE = "hoodie.datasource.write."
KEYS = {
    f"{WRITE}recordkey.field": "id",
    f"{WRITE}partitionpath.field": "p",
    f"{WRITE}precombine.field": "ts",
}
KEYGEN = "org.apache.hudi.keygen."


def written(**options: str) -> lakebed.Table:
    """A table of one row, made as the sink of `format("lakebed")` does."""
    url = f"memory://settings/{uuid.uuid4().hex}"
    return write_again(url, **options)


def write_again(url: str, **options: str) -> lakebed.Table:
    chosen = settings.Settings({"path": url, **KEYS, **options})
    operation = chosen.operation(False)
    chosen.writer(chosen.table(SCHEMA, operation)).write(table(row("a", 86_400_000 * 366)), operation)
    return lakebed.open(url)


def only_row(t: lakebed.Table) -> tuple[str, str]:
    found = t.scan(["_hoodie_record_key", "_hoodie_partition_path"]).to_arrow().to_pylist()
    assert len(found) == 1
    return found[0]["_hoodie_record_key"], found[0]["_hoodie_partition_path"]


def test_the_first_write_makes_the_table() -> None:
    t = written(**{"hoodie.index.type": "bucket", "hoodie.bucket.index.num.buckets": "2"})
    config = t.config
    assert (config.key_fields, config.partition_fields, config.ordering_fields) == (("id",), ("p",), ("ts",))
    assert (config.index_type, config.num_buckets, config.keygen_type) == ("BUCKET", 2, "SIMPLE")
    assert not [key for key in config.properties if key.startswith(f"{WRITE}recordkey")]


def test_a_table_for_real_hudi() -> None:
    options = {
        "hoodie.table.version": "9",
        f"{WRITE}table.type": "COPY_ON_WRITE",
        "hoodie.index.type": "SIMPLE",
        "hoodie.bucket.index.num.buckets": "1",
        "hoodie.table.storage.layout": "default",
        "hoodie.table.name": "orders",
        f"{WRITE}slash.separated.date.partitioning": "true",
    }
    t = write_again(written(**options).url, **options)
    config = t.config
    assert (int(config.version), config.is_mor, config.layout, config.index_type) == (9, False, "default", "SIMPLE")
    assert (t.name, config.properties.get(f"{WRITE}slash.separated.date.partitioning")) == ("orders", "true")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("hoodie.bucket.index.num.buckets", "four", "not a whole number"),
        ("hoodie.index.bucket.engine", "foo", r"hoodie\.index\.bucket\.engine='foo'"),
        ("hoodie.index.type", "BUKET", r"hoodie\.index\.type='BUKET'"),
        ("hoodie.datasource.write.table.type", "MOO", "no table type"),
        ("hoodie.table.storage.layout", "lsm", "layout='lsm' is not known"),
        (f"{WRITE}keygenerator.class", "com.example.Mine", r"com\.example\.Mine.*SimpleKeyGenerator"),
        ("hoodie.table.recordkey.fields", "v", "differ"),
        ("hoodie.parquet.max.file.size", "big", r"hoodie\.parquet\.max\.file\.size='big'"),
        ("hoodie.compact.inline", "perhaps", r"hoodie\.compact\.inline"),
        ("lakebed.memory", "much", r"lakebed\.memory"),
    ],
)
def test_options_that_make_no_table(key: str, value: str, match: str) -> None:
    url = f"memory://settings/{uuid.uuid4().hex}"
    with pytest.raises(lakebed.InvalidRequest, match=match):
        write_again(url, **{key: value})
    assert not list(open_storage(url).list("", recursive=True))


@pytest.mark.parametrize("key", [f"{WRITE}keygenerator.class", "hoodie.table.keygenerator.class"])
def test_key_generators_by_class(key: str) -> None:
    t = written(**{key: KEYGEN + "ComplexKeyGenerator"})
    assert t.config.keygen_type == "COMPLEX"
    assert only_row(t) == ("id:a", "p=a")
    assert only_row(write_again(t.url, **{key: KEYGEN + "ComplexKeyGenerator"})) == ("id:a", "p=a")
    with pytest.raises(lakebed.InvalidRequest, match="key generator is COMPLEX, not SIMPLE"):
        write_again(t.url, **{key: KEYGEN + "SimpleKeyGenerator"})


def test_partition_columns_keep_their_types() -> None:
    options = {
        f"{WRITE}keygenerator.class": KEYGEN + "CustomKeyGenerator",
        f"{WRITE}partitionpath.field": "p:SIMPLE,ts:TIMESTAMP",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy",
    }
    t = written(**options)
    assert t.config.properties["hoodie.table.partition.fields"] == "p:SIMPLE,ts:TIMESTAMP"
    assert t.config.keygen_type == "CUSTOM"
    assert only_row(write_again(t.url, **options)) == ("a", "p=a/ts=1971")


def test_mistyped_options_are_warned_of() -> None:
    t = written()
    for wrong in ("hoodie.parquet.max.file.sise", f"{WRITE}recordkey.feild", "lakebed.memori"):
        with pytest.warns(UserWarning, match=f"unknown option {wrong} is ignored"):
            write_again(t.url, **{wrong: "1"})
        with pytest.warns(UserWarning, match=f"unknown option {wrong} is ignored"):
            settings.Settings({"path": t.url, wrong: "1"}).scan()


def test_known_options_are_not_warned_of_in_any_case() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t = written(**{"Hoodie.Parquet.Max.File.Size": "1MB", "mergeSchema": "true", "lakebed.memory": "64MB"})
        chosen = settings.Settings({"path": t.url, "Lakebed.Filter": "id = 'b'", "lakebed.threads": "1"})
        assert chosen.scan().count() == 0
