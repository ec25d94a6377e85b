"""`format("lakebed")`: found by its short name, read and written under Hudi's option names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from tests.golden.rows import rows_of
from tests.spark.tables import SCHEMA, frame, make_table, rows

KEYS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "version",
    "hoodie.bucket.index.num.buckets": "1",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Table:
    return make_table(tmp_path_factory.mktemp("source") / "t")


def load(spark: Any, table: lakebed.Table, **options: str) -> Any:
    named = {key.replace("__", "."): value for key, value in options.items()}
    return spark.read.format("lakebed").options(**named).load(table.url)


def save(data: Any, path: Path, operation: str | None = None, mode: str = "append", **options: str) -> None:
    writer = data.write.format("lakebed").mode(mode).options(**{**KEYS, **options})
    if operation:
        writer = writer.option("hoodie.datasource.write.operation", operation)
    writer.save(str(path))


def test_all_rows_and_types(table: lakebed.Table, spark: Any) -> None:
    ours, theirs = table.scan().to_arrow(), load(spark, table).toArrow()
    assert theirs.schema.names == ours.schema.names
    assert rows_of(theirs, theirs.schema.names) == rows_of(ours, ours.schema.names)


def test_a_schema_chooses_columns(table: lakebed.Table, spark: Any) -> None:
    reader = spark.read.format("lakebed")
    found = reader.schema("small INT, id STRING").load(table.url).toArrow()
    assert rows_of(found, ["small", "id"]) == rows_of(table.scan(["small", "id"]).to_arrow(), ["small", "id"])
    with pytest.raises(Exception, match="is int, not bigint"):
        reader.schema("small BIGINT").load(table.url).collect()
    with pytest.raises(Exception, match="no column 'smol'"):
        reader.schema("smol BIGINT").load(table.url).collect()


def test_queries_by_hudis_option_names(table: lakebed.Table, spark: Any) -> None:
    timeline = table.inspect.timeline().to_pylist()
    start, end = timeline[0]["completion"], timeline[1]["completion"]
    assert load(spark, table, as__of__instant=timeline[0]["instant"]).count() == 60
    query, requested_time, until = (
        "hoodie.datasource.query.type",
        "hoodie.datasource.read.begin.instanttime",
        "hoodie.datasource.read.end.instanttime",
    )
    changes = load(spark, table, **{query: "incremental", requested_time: start, until: end})
    assert changes.count() == table.incremental(start=start, end=end).count() == 20
    assert load(spark, table, **{query: "incremental", requested_time: "earliest"}).count() == table.scan().count()
    assert load(spark, table, **{query: "read_optimized"}).count() == table.scan(query="read_optimized").count()
    assert load(spark, table, lakebed__filter="version = 3").count() == table.scan(filter="version = 3").count()
    with pytest.raises(Exception, match="needs a start"):
        load(spark, table, **{query: "incremental"})
    with pytest.raises(Exception, match="go with an incremental query"):
        load(spark, table, **{requested_time: start})
    with pytest.raises(Exception, match="no table at"):
        spark.read.format("lakebed").load(f"{table.url}-not-there")


def test_filters_of_one_query_are_not_those_of_the_next(table: lakebed.Table, spark: Any) -> None:
    """Spark keeps pushed filters with the frame; a source that took them would lose rows in the second query."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        loaded = load(spark, table)
        assert loaded.where("version = 3").count() == table.scan(filter="version = 3").count()
        assert loaded.count() == table.scan().count()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_operations(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    save(frame(spark, rows(range(40))), path, **{"hoodie.table.name": "orders"})
    made = lakebed.open(path)
    assert made.name == "orders"
    assert made.config.key_fields == ("id",)
    assert made.config.partition_fields == ("part",)
    assert made.config.ordering_fields == ("version",)
    assert rows_of(made.scan().to_arrow(), SCHEMA.names) == rows_of(rows(range(40)), SCHEMA.names)
    save(frame(spark, rows(range(30, 50), 2)).repartition(3), path, "upsert")
    assert lakebed.open(path).scan(filter="version = 2").count() == 20
    save(frame(spark, rows(range(10))), path, "delete")
    assert lakebed.open(path).scan().count() == 40
    save(frame(spark, rows(range(0, 33, 11), 9)), path, "insert_overwrite")
    assert lakebed.open(path).scan(filter="part = 'eu'").count() == 3
    assert lakebed.open(path).scan().count() == 40 - 4 + 3
    save(frame(spark, rows(range(7))), path, mode="overwrite")
    assert rows_of(lakebed.open(path).scan().to_arrow(), SCHEMA.names) == rows_of(rows(range(7)), SCHEMA.names)
    assert [row["action"] for row in made.refresh().inspect.timeline().to_pylist()].count("replacecommit") == 2


def test_options_that_contradict_the_table(tmp_path: Path, spark: Any) -> None:
    path = tmp_path / "t"
    save(frame(spark, rows(range(3))), path)
    with pytest.raises(Exception, match="record key is id, not small"):
        save(frame(spark, rows(range(3))), path, **{"hoodie.datasource.write.recordkey.field": "small"})
    with pytest.raises(Exception, match="there is no operation 'upset'"):
        save(frame(spark, rows(range(3))), path, "upset")
    with pytest.raises(Exception, match="no path was given"):
        frame(spark, rows(range(3))).write.format("lakebed").mode("append").save()
    assert lakebed.open(path).scan().count() == 3


def test_tables_for_real_hudi(tmp_path: Path, spark: Any) -> None:
    options = {
        "hoodie.table.version": "9",
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.index.type": "SIMPLE",
        "hoodie.table.storage.layout": "default",
    }
    save(frame(spark, rows(range(3))), tmp_path / "t", "bulk_insert", **options)
    config = lakebed.open(tmp_path / "t").config
    assert int(config.version) == 9
    assert (config.is_mor, config.layout, config.index_type) == (False, "default", "SIMPLE")


def test_upkeep_follows_a_write(tmp_path: Path, spark: Any) -> None:
    inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
    for version in range(4):
        save(frame(spark, rows(range(6), version)), tmp_path / "t", "upsert", **inline)
    actions = [row["action"] for row in lakebed.open(tmp_path / "t").inspect.timeline().to_pylist()]
    assert "commit" in actions, "logs were compacted"
    with pytest.raises(Exception, match=r"hoodie\.compact\.inline"):
        save(frame(spark, rows(range(6), 9)), tmp_path / "t", "upsert", **{"hoodie.compact.inline": "perhaps"})
    assert lakebed.open(tmp_path / "t").scan(filter="version = 9").count() == 0


def test_a_metadata_table_goes_where_the_options_say_so(golden_copy: Callable[[str], Path], spark: Any) -> None:
    path = golden_copy("cow_simple_v9")
    assert lakebed.open(path).config.has_metadata_table
    scan = lakebed.open(path).scan()
    data = lakebed.read(spark, path).drop(*[name for name in scan.schema.names if name.startswith("_hoodie")])
    writer = data.write.format("lakebed").mode("append").option("hoodie.datasource.write.operation", "upsert")
    with pytest.raises(Exception, match="metadata table"):
        writer.save(str(path))
    before = scan.count()
    writer.option("lakebed.drop.metadata", "true").save(str(path))
    assert not lakebed.open(path).config.has_metadata_table
    assert lakebed.open(path).scan().count() == before


def test_rows_too_many_for_a_message_go_by_file(tmp_path: Path, spark: Any) -> None:
    """Past a megabyte a task leaves its rows beside the table, and nothing of it stays."""
    path = tmp_path / "t"
    many = spark.range(0, 60_000, 1, 2).selectExpr("id", "sha2(cast(id as string), 512) AS text")
    many.write.format("lakebed").mode("append").option("hoodie.datasource.write.recordkey.field", "id").save(str(path))
    made = lakebed.open(path)
    assert made.scan().count() == 60_000
    assert not list((path / ".hoodie").rglob("*.arrow"))
    assert made.scan(filter="id = 59999").to_arrow().column("text")[0].as_py().startswith("f319d41b")


def test_carried_streams(tmp_path: Path) -> None:
    from lakebed.spark.rows_to_driver import INLINE_BYTES, Carrier
    from lakebed.spark.rows_to_driver import rows_of as carried_rows
    from lakebed.storage.open import open_storage

    storage = open_storage(tmp_path)
    batch = rows(range(100)).combine_chunks().to_batches()[0]
    with Carrier(storage, "a/small.arrow", batch.schema) as carrier:
        carrier.add(batch)
        small = carrier.done()
    assert small.path is None
    with Carrier(storage, "a/large.arrow", batch.schema) as carrier:
        for _ in range(INLINE_BYTES // batch.nbytes + 3):
            carrier.add(batch)
        large = carrier.done()
    assert large.path == "a/large.arrow"
    assert (tmp_path / "a/large.arrow").exists()
    found = list(carried_rows(storage, [small, large]))
    assert sum(item.num_rows for item in found) == small.rows + large.rows
    with pytest.raises(ZeroDivisionError), Carrier(storage, "a/broken.arrow", batch.schema) as carrier:
        for number in range(INLINE_BYTES):
            carrier.add(batch)
            _ = 1 // (30_000_000 // batch.nbytes - number)
    assert not (tmp_path / "a/broken.arrow").exists()


def test_sql(tmp_path: Path, spark: Any) -> None:
    """What Spark's SQL can do with a Python source: views, and statements that carry the path."""
    path = tmp_path / "t"
    save(frame(spark, rows(range(6))), path)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING lakebed OPTIONS (path '{path}')")
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 6
    spark.sql("INSERT INTO orders (id, part, version) VALUES ('new', 'eu', 3)")
    found = lakebed.open(path).scan(filter="id = 'new'").to_arrow().to_pylist()
    assert [(row["part"], row["version"], row["small"]) for row in found] == [("eu", 3, None)]


def test_tables_in_the_catalog(tmp_path: Path, spark: Any) -> None:
    """Spark hands no option of a catalog table to a Python source, so every statement brings the path."""
    path = tmp_path / "t"
    save(frame(spark, rows(range(6))).select("id", "part", "version"), path)
    spark.sql("CREATE TABLE orders_there (id STRING, part STRING, version LONG) USING lakebed")
    there = f"orders_there WITH ('path' = '{path}')"
    try:
        assert spark.sql(f"SELECT count(*) FROM {there} WHERE version = 1").collect()[0][0] == 6
        spark.sql(f"INSERT INTO {there} VALUES ('new', 'eu', 3)")
        assert lakebed.open(path).scan().count() == 7
        with pytest.raises(Exception, match="no path was given"):
            spark.sql("SELECT * FROM orders_there").collect()
        with pytest.raises(Exception, match="no path was given"):
            spark.sql(f"CREATE TABLE made USING lakebed OPTIONS (path '{path}') AS SELECT 'a' AS id").collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS orders_there")
        spark.sql("DROP TABLE IF EXISTS made")
    assert lakebed.open(path).scan().count() == 7


def test_a_registered_source(table: lakebed.Table, spark: Any) -> None:
    lakebed.spark.register(spark)
    assert load(spark, table).count() == table.scan().count()
