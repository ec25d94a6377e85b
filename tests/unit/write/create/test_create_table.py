"""Making tables: what the first write would refuse is refused before there is a table, and keys are made as asked."""

from __future__ import annotations

import uuid
import warnings
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.schema import RECORD_KEY
from lakebed.storage.open import open_storage
from tests.unit.write.tables import SCHEMA, make, row, table

KEYGEN = "org.apache.hudi.keygen."
CLASS = "hoodie.datasource.write.keygenerator.class"
YEARS = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy",
}


def refused(match: str, schema: Any = SCHEMA, **settings: Any) -> None:
    """Creating is refused, and nothing is there afterwards."""
    url = f"memory://create/{uuid.uuid4().hex}"
    chosen = {"record_key": "id", "ordering": "ts", "partition_by": "p"} | settings
    with pytest.raises(lakebed.InvalidRequest, match=match) as raised:
        lakebed.create(url, schema, **chosen)
    assert "Restore" not in str(raised.value)
    assert not list(open_storage(url).list("", recursive=True))


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("hoodie.table.keygenerator.type", "BOGUS", "key generator BOGUS is not known.*COMPLEX"),
        ("hoodie.table.keygenerator.class", "com.example.Mine", r"com\.example\.Mine.*ComplexKeyGenerator"),
        ("hoodie.table.keygenerator.type", "USER_PROVIDED", "needs a class"),
        ("hoodie.table.keygenerator.type", "NON_PARTITION", "makes no partitions"),
        ("hoodie.table.keygenerator.type", "TIMESTAMP", "nothing says how it is formatted"),
        ("hoodie.table.ordering.fields", "nope", "differ"),
        ("hoodie.table.recordkey.fields", "nope", "differ"),
        ("hoodie.datasource.write.partitionpath.field", "nope", "differ"),
        ("hoodie.index.type", "BUKET", r"hoodie\.index\.type='BUKET'"),
        ("hoodie.index.type", "RECORD_INDEX", "metadata table"),
        ("hoodie.index.bucket.engine", "foo", r"hoodie\.index\.bucket\.engine='foo'"),
        ("hoodie.bucket.index.num.buckets", "four", "not a whole number"),
        ("hoodie.bucket.index.num.buckets", "0", "at least one bucket"),
        ("hoodie.bucket.index.hash.field", "p", "'p'|hash"),
        ("hoodie.table.cdc.enabled", "TRUE", "captures changes"),
        ("hoodie.table.base.file.format", "ORC", "base files are orc"),
        ("hoodie.datasource.write.drop.partition.columns", "true", "lack the partition columns"),
        ("hoodie.parquet.max.file.size", "big", r"hoodie\.parquet\.max\.file\.size='big'"),
        ("hoodie.compact.inline", "perhaps", r"hoodie\.compact\.inline='perhaps'"),
        ("hoodie.write.lock.provider", "mine", r"hoodie\.write\.lock\.provider='mine'"),
        ("hoodie.table.storage.layout", "lsm", "layout='lsm' is not known"),
        ("hoodie.table.type", "MERGE_ON_WRITE", "no table type"),
        ("hoodie.record.merge.mode", "LAST", r"hoodie\.record\.merge\.mode='LAST'"),
        ("hoodie.record.merge.mode", "custom", "needs the name of a merger"),
        ("hoodie.populate.meta.fields", "maybe", r"hoodie\.populate\.meta\.fields='maybe'"),
        ("hoodie.timeline.layout.version", "1", "timeline layout"),
        ("hoodie.table.metadata.partitions", "files", "set by create itself"),
        ("hoodie.table.create.schema", "{}", "set by create itself"),
    ],
)
def test_properties_that_no_write_could_use(key: str, value: str, match: str) -> None:
    refused(match, properties={key: value})


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"ordering": None, "properties": {"hoodie.table.ordering.fields": "nope"}}, "ordering='nope' is no column"),
        ({"record_key": None, "properties": {"hoodie.table.recordkey.fields": "nope"}}, "record_key='nope'"),
        ({"ordering": "m.ts"}, "a field inside a column"),
        ({"ordering": "m"}, "nested column"),
        ({"record_key": "m"}, "nested column"),
        ({"record_key": "m.nope"}, "nope"),
        ({"partition_by": ["p", "ts"], "properties": YEARS}, "ts:TIMESTAMP"),
        ({"partition_by": ["p", "id"], "properties": {CLASS: KEYGEN + "SimpleKeyGenerator"}}, "one partition column"),
        ({"record_key": 5}, "record_key is a column"),
        ({"ordering": ["ts", 5]}, "ordering is a column"),
        ({"num_buckets": "4"}, "out of range"),
        ({"num_buckets": 0}, "out of range"),
        ({"layout": None}, "layout='none' is not known"),
        ({"table_type": "MOR"}, "table_type='MOR' is not known"),
        ({"index": "bucked"}, "index='bucked' is not known"),
        ({"properties": ["a"]}, "a mapping"),
        ({"partition_by": "p:NUMBER"}, "NUMBER is no type"),
        ({"partition_by": "p:SIMPLE", "properties": {CLASS: KEYGEN + "SimpleKeyGenerator"}}, "does not take types"),
        ({"index": "simple", "properties": {"hoodie.index.type": "BLOOM"}}, "differ"),
        ({"num_buckets": 3, "properties": {"hoodie.bucket.index.num.buckets": "4"}}, "differ"),
        ({"properties": {CLASS: KEYGEN + "ComplexKeyGenerator", "hoodie.table.keygenerator.type": "SIMPLE"}}, "differ"),
        (
            {
                "table_type": "mor",
                "properties": {
                    "hoodie.table.type": "COPY_ON_WRITE",
                    "hoodie.index.type": "BUCKET",
                    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
                },
            },
            "merge-on-read",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], match: str) -> None:
    refused(match, SCHEMA.append(pa.field("m", pa.struct([("ts", pa.int64())]))), **settings)


def test_properties_in_place_of_arguments() -> None:
    t = make(
        record_key=None,
        partition_by=None,
        ordering=None,
        num_buckets=None,
        index="simple",
        properties={
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.table.partition.fields": "p",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.table.type": "COPY_ON_WRITE",
            "hoodie.table.storage.layout": "DEFAULT",
            "hoodie.index.type": "SIMPLE",
        },
    )
    config = t.config
    assert (config.key_fields, config.partition_fields, config.ordering_fields) == (("id",), ("p",), ("ts",))
    assert (config.is_mor, config.layout, config.index_type) == (False, "default", "SIMPLE")
    assert "hoodie.datasource.write.recordkey.field" not in config.properties
    t.upsert(table(row("a", 2, v=2)))
    t.upsert(table(row("a", 1, v=1)))
    assert [item["v"] for item in t.scan(["v"]).to_arrow().to_pylist()] == [2]


def keys_of(t: lakebed.Table) -> list[str]:
    t.upsert(table(row("a")))
    t.upsert(table(row("a", 2)))
    return [str(key) for key in t.scan([RECORD_KEY]).to_arrow()[RECORD_KEY].to_pylist()]


@pytest.mark.parametrize(
    ("properties", "kind", "key"),
    [
        ({}, "SIMPLE", "a"),
        ({CLASS: KEYGEN + "ComplexKeyGenerator"}, "COMPLEX", "id:a"),
        ({"hoodie.table.keygenerator.class": KEYGEN + "ComplexAvroKeyGenerator"}, "COMPLEX", "id:a"),
        ({"hoodie.table.keygenerator.type": "complex"}, "COMPLEX", "id:a"),
        ({"hoodie.datasource.write.keygenerator.type": "COMPLEX_AVRO"}, "COMPLEX", "id:a"),
        ({CLASS: KEYGEN + "CustomKeyGenerator"}, "CUSTOM", "a"),
    ],
)
def test_key_generators(properties: dict[str, str], kind: str, key: str) -> None:
    t = make(properties=properties)
    assert t.config.keygen_type == kind
    assert not [name for name in t.config.properties if name.endswith("keygenerator.class")]
    assert keys_of(t) == [key]


def test_custom_key_generators_keep_the_types_of_partition_columns() -> None:
    for settings in (
        {"partition_by": ["p:SIMPLE", "ts:TIMESTAMP"], "properties": YEARS},
        {
            "partition_by": None,
            "properties": {
                CLASS: KEYGEN + "CustomKeyGenerator",
                "hoodie.datasource.write.partitionpath.field": "p,ts:timestamp",
                **YEARS,
            },
        },
    ):
        t = make(**settings)
        assert t.config.properties["hoodie.table.partition.fields"] == "p:SIMPLE,ts:TIMESTAMP"
        t.insert(table(row("a", 86_400_000 * 366)))
        path = t.scan(["_hoodie_partition_path"]).to_arrow().column(0)[0].as_py()
        assert path == "p=a/ts=1971"


def test_registered_key_generators() -> None:
    name = f"com.example.Loud{uuid.uuid4().hex}"
    lakebed.register_key_generator(name.rpartition(".")[2], lambda rows: rows.column("txt"))
    t = make(properties={CLASS: name})
    t.insert(table(row("a", txt="loud")))
    assert t.scan([RECORD_KEY]).to_arrow().column(0).to_pylist() == ["loud"]


def test_unknown_properties_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"hoodie\.parquet\.max\.file\.sise.*did you mean") as found:
        make(properties={"hoodie.parquet.max.file.sise": "1MB"})
    assert found[0].filename.endswith("tables.py"), "the caller's own line is named"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(properties={"hoodie.parquet.max.file.size": "1MB", "own.key": "kept"})


def test_columns_as_sql_text() -> None:
    t = make(
        schema="id string NOT NULL, qty int, at timestamp, tags array<string>",
        partition_by=None,
        ordering="qty",
    )
    data = pa.table({"id": ["a"], "qty": pa.array([1], pa.int32()), "at": pa.array([0], pa.timestamp("us", "UTC"))})
    t.upsert(data.append_column("tags", pa.array([["x", "y"]])))
    assert t.scan(["id", "qty", "tags"]).to_arrow().to_pylist() == [{"id": "a", "qty": 1, "tags": ["x", "y"]}]
    assert t.schema.field("at").type == pa.timestamp("us", "UTC")
    refused("near 'strin'", "id strin, ts int, p int")
