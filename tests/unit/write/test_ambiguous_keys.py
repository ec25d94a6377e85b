"""Different values with one record key or one partition path: refused at every door, unless the writer allows them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table
from tests.unit.write.tables import files, make, values

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int64())])
ALLOW = {"lakebed.allow.ambiguous.keys": "true"}
LOGICAL = {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}
SLASHES = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
PLAIN = {"hoodie.datasource.write.hive_style_partitioning": "false"}
ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
Write = Callable[[Table, pa.Table, dict[str, str]], Any]


def composite(**settings: Any) -> Table:
    return make(schema=SCHEMA, record_key=["a", "b"], partition_by=None, ordering=None, **settings)


def rows(*pairs: tuple[str | None, str | None]) -> pa.Table:
    columns = [[pair[0] for pair in pairs], [pair[1] for pair in pairs], list(range(len(pairs)))]
    return pa.table([pa.array(c, t.type) for c, t in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


DOORS: dict[str, Write] = {
    "upsert": lambda t, data, options: t.upsert(data, options=options),
    "insert": lambda t, data, options: t.insert(data, options=options),
    "bulk_insert": lambda t, data, options: t.bulk_insert(data, options=options),
    "overwrite": lambda t, data, options: t.overwrite(data, options=options),
    "overwrite_partitions": lambda t, data, options: t.overwrite_partitions(data, options=options),
    "delete": lambda t, data, options: t.delete(keys=data, options=options),
    "merge": lambda t, data, options: (
        t.merge(data, on="t.a = s.a and t.b = s.b", options=options)
        .when_matched_update(set={"v": "s.v"})
        .when_not_matched_insert_all()
        .execute()
    ),
}
COLLISIONS = {
    "separator": (("1,b:2", "3"), ("1", "2,b:3")),
    "null": (("__null__", "x"), (None, "x")),
    "empty": (("__empty__", "x"), ("", "x")),
}


@pytest.mark.parametrize("collision", COLLISIONS)
@pytest.mark.parametrize("door", DOORS)
def test_different_composite_keys_do_not_collapse(door: str, collision: str) -> None:
    t = composite()
    t.upsert(rows(("k", "l")))
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match=r"the key column '[ab]' holds .*lakebed\.allow\.ambiguous\.keys"):
        DOORS[door](t, rows(*COLLISIONS[collision]), {})
    assert files(t) == before
    assert values(t, "a", "b") == [("k", "l")]


@pytest.mark.parametrize("collision", COLLISIONS)
@pytest.mark.parametrize("door", ["upsert", "insert", "bulk_insert", "overwrite"])
def test_a_writer_may_allow_what_hudi_does(door: str, collision: str) -> None:
    t = composite()
    DOORS[door](t, rows(*COLLISIONS[collision]), ALLOW)
    assert t.scan().count() == 1, "one record key is one row"
    DOORS["delete"](t, rows(COLLISIONS[collision][0]), ALLOW)
    assert t.scan().count() == 0


def test_a_table_with_such_keys_stays_readable_and_can_be_cleaned() -> None:
    t = composite()
    t.upsert(rows(("1,b:2", "3"), ("__null__", "x"), ("k", "l")), options=ALLOW)
    assert values(t, "a", "b") == [("1,b:2", "3"), ("__null__", "x"), ("k", "l")]
    assert t.scan(filter="a = '1,b:2' and b = '3'").count() == 1
    t.services.compact()
    t.update(set={"v": "v + 1"}, where="a = 'k'")
    with pytest.raises(lakebed.InvalidRequest, match=r"allow\.ambiguous"):
        t.update(set={"v": "v + 1"}, where="b = '3'")
    t.update(set={"v": "v + 1"}, where="b = '3'", options=ALLOW)
    t.delete(where="a = '__null__' or b = '3'")
    assert values(t, "a", "b") == [("k", "l")]


def test_the_table_itself_may_allow_them() -> None:
    t = composite(properties=ALLOW)
    t.upsert(rows(("1,b:2", "3")))
    assert values(t, "a", "b") == [("1,b:2", "3")]


def test_a_delete_by_keys_alone_does_not_hit_the_rows_of_others() -> None:
    t = make(schema=SCHEMA, record_key=["a", "b"], partition_by="v", ordering=None)
    t.upsert(rows(("1", "2,b:3")), options=ALLOW)
    with pytest.raises(lakebed.InvalidRequest, match="the key column 'a' holds '1,b:2'"):
        t.delete(keys=[{"a": "1,b:2", "b": "3"}])
    assert t.scan().count() == 1
    t.delete(keys=[{"a": "1", "b": "2,b:3"}], options=ALLOW)
    assert t.scan().count() == 0


def test_commas_colons_and_underlines_are_values_like_others() -> None:
    pairs = [
        ("Smith, John", "10:20:30"),
        ("x,b", "y:z"),
        (",b", ":"),
        ("b:1", "a:1"),
        ("__null", "null__"),
        ("x,", "b:"),
    ]
    pairs += [("x,c:", ",a:1"), (None, "x"), ("", "x"), ("", "y")]
    t = composite()
    t.upsert(rows(*pairs))
    assert t.scan().count() == len(pairs)


def test_one_key_column_takes_every_text() -> None:
    t = make(schema=SCHEMA, record_key="a", partition_by=None, ordering=None)
    t.upsert(rows(("1,b:2", "x"), ("__null__", "x"), ("__empty__", "x")))
    assert t.scan().count() == 3


def test_a_struct_field_is_a_key_column_like_others() -> None:
    kind = pa.struct([("x", pa.string())])
    schema = pa.schema([("s", kind), ("b", pa.string())])
    t = make(schema=schema, record_key=["s.x", "b"], partition_by=None, ordering=None)
    with pytest.raises(lakebed.InvalidRequest, match=r"the key column 's\.x' holds '1,b:2'"):
        t.upsert(pa.table({"s": pa.array([{"x": "1,b:2"}], kind), "b": ["3"]}))


def test_times_below_a_millisecond_do_not_share_a_key() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    t = make(schema=schema, record_key="at", partition_by=None, ordering=None, properties=LOGICAL)
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    fine = [moment.replace(microsecond=1000), moment.replace(microsecond=2000)]
    t.upsert(pa.table({"at": pa.array(fine, schema.field("at").type), "v": [1, 2]}))
    assert t.scan().count() == 2
    with pytest.raises(lakebed.InvalidRequest, match="finer than a millisecond"):
        t.upsert(pa.table({"at": pa.array([moment.replace(microsecond=1001)], schema.field("at").type), "v": [1]}))


# ---------------------------------------------------------------------- partition paths
def parted(*columns: str, properties: dict[str, str] | None = None, nullable: bool = True, path: Any = None) -> Table:
    schema = pa.schema([("id", pa.string()), *(pa.field(name, pa.string(), nullable) for name in columns)])
    if path is not None:
        return lakebed.create(path, schema, record_key="id", partition_by=columns, num_buckets=1, properties=properties)
    return make(schema=schema, partition_by=list(columns), ordering=None, properties=properties)


def tagged(t: Table, *tuples: tuple[str | None, ...]) -> pa.Table:
    names = t.config.partition_fields
    columns = {name: pa.array([one[at] for one in tuples], pa.string()) for at, name in enumerate(names)}
    return pa.table({"id": ["same"] * len(tuples), **columns})


PATHS: list[tuple[tuple[str, ...], dict[str, str], tuple[str | None, ...], str]] = [
    (("p",), {}, ("",), "empty text"),
    (("p",), PLAIN, ("",), "empty text"),
    (("p",), ENCODED, ("",), "empty text"),
    (("p",), {}, ("__HIVE_DEFAULT_PARTITION__",), "the folder for null"),
    (("p", "q"), PLAIN, ("x/y", "z"), "with '/' in it"),
    (("p", "q"), {}, ("x/q=y", "z"), "with '/q=' in it"),
    (("p", "q"), {}, ("x", "y/q=z"), "with '/q=' in it"),
    (("p",), SLASHES, ("2024/01/02",), "with '/' in it"),
    (("p",), {}, ("a\nb",), "control character"),
    (("p",), {}, ("\x1b[31m",), "control character"),
    (("p",), {}, ("a\x7f",), "control character"),
]


@pytest.mark.parametrize(("columns", "properties", "bad", "match"), PATHS)
def test_values_that_share_a_folder_are_refused(
    columns: tuple[str, ...], properties: dict[str, str], bad: tuple[str | None, ...], match: str
) -> None:
    t = parted(*columns, properties=properties)
    before = files(t)
    with pytest.raises(lakebed.InvalidRequest, match=match) as raised:
        t.upsert(tagged(t, bad))
    assert "lakebed.allow.ambiguous.keys=true" in str(raised.value)
    assert files(t) == before
    with pytest.raises(lakebed.InvalidRequest, match=match):
        t.delete(keys=tagged(t, bad))


def test_the_empty_text_and_null_do_not_share_a_folder() -> None:
    t = parted("p")
    with pytest.raises(lakebed.InvalidRequest, match="holds the empty text, whose folder is that for null"):
        t.insert(tagged(t, (None,), ("",)))
    t.insert(tagged(t, (None,)))
    t.insert(tagged(t, ("",)), options=ALLOW)
    assert values(t) == [("same", "")], "where it is allowed, the two are one row, as Hudi has it"


def test_the_empty_text_has_a_folder_of_its_own_where_null_is_not_allowed() -> None:
    t = parted("p", nullable=False)
    t.upsert(tagged(t, ("",), ("x",)))
    assert values(t, "p") == [("",), ("x",)]


def test_encoded_folders_take_every_text() -> None:
    t = parted("p", "q", properties=ENCODED)
    odd = [("x/q=y", "z"), ("x", "y/q=z"), ("a\nb", "%0A"), ("%2F", "/"), ("\x1b", "\x7f")]
    t.upsert(tagged(t, *odd))
    assert values(t, "p", "q") == sorted(odd)
    assert t.scan(filter="p = '%2F'").count() == 1


def test_one_partition_column_may_hold_slashes() -> None:
    t = parted("p", properties=PLAIN)
    t.upsert(tagged(t, ("2024/01/02",), ("2024/01/03",)))
    assert values(t, "p") == [("2024/01/02",), ("2024/01/03",)]


def test_a_hidden_folder_is_a_partition_for_writes_reads_and_checks(tmp_path: Path) -> None:
    t = parted("p", properties=PLAIN, path=tmp_path / "t")
    t.upsert(tagged(t, (".hidden",), ("x/.deep",), ("plain",)))
    assert values(t, "p") == [(".hidden",), ("plain",), ("x/.deep",)]
    assert t.check() == []
    (tmp_path / "t" / ".spark-staging").mkdir()
    (tmp_path / "t" / ".spark-staging" / "part.parquet").write_bytes(b"scratch")
    assert t.check() == []


def test_a_misnamed_column_names_no_partition() -> None:
    t = parted("p", properties=PLAIN)
    t.upsert(tagged(t, ("eu",)))
    with pytest.raises(lakebed.InvalidRequest, match="no partition 'country=eu'"):
        t.delete_partitions(["country=eu"])
    t.delete_partitions(["p=eu"])
    assert t.scan().count() == 0


# ---------------------------------------------------------------------- in other doors and types
@pytest.mark.parametrize("value", [("1", "2", "x,b:y"), ("1,c:0", "2", "x"), ("1", "2", ",a:3")])
def test_what_only_looks_like_another_column_is_a_value(value: tuple[str, str, str]) -> None:
    """It takes the beginning of the own or of the next column for another reading."""
    schema = pa.schema([(name, pa.string()) for name in "abc"])
    target = make(schema=schema, record_key=["a", "b", "c"], partition_by=None, ordering=None)
    target.upsert(pa.Table.from_pylist([dict(zip("abc", value, strict=True))], schema=schema))
    assert target.scan().to_arrow().select(["a", "b", "c"]).to_pylist() == [dict(zip("abc", value, strict=True))]


@pytest.mark.parametrize("value", [("1,b:", "2", "3"), ("1", "2,b:", "3"), ("1", "2,c:", "3"), ("1", "2", ",c:3")])
def test_what_may_be_read_as_other_columns_is_refused(value: tuple[str, str, str]) -> None:
    schema = pa.schema([(name, pa.string()) for name in "abc"])
    target = make(schema=schema, record_key=["a", "b", "c"], partition_by=None, ordering=None)
    with pytest.raises(lakebed.InvalidRequest, match="same record key"):
        target.upsert(pa.Table.from_pylist([dict(zip("abc", value, strict=True))], schema=schema))


def test_empty_bytes_and_null_do_not_share_a_folder() -> None:
    schema = pa.schema([("a", pa.int64()), ("p", pa.binary())])
    target = make(schema=schema, record_key="a", partition_by="p", ordering=None)
    both = pa.Table.from_pylist([{"a": 1, "p": b""}, {"a": 2, "p": None}, {"a": 3, "p": b"a"}], schema=schema)
    with pytest.raises(lakebed.InvalidRequest, match="empty bytes"):
        target.upsert(both)
    target.upsert(both, options=ALLOW)
    found = {where: target.scan(filter=where).to_arrow()["a"].to_pylist() for where in ("p = X''", "p IS NULL")}
    assert found == {"p = X''": [1], "p IS NULL": [2]}
    assert sorted(target.scan(filter="p != X'62'").to_arrow()["a"].to_pylist()) == [1, 3]


def test_a_merge_meets_empty_texts_of_composite_keys() -> None:
    target = composite()
    target.upsert(rows(("", "x")))
    new = pa.table([["", "y"], ["x", ""], [7, 8]], schema=SCHEMA)
    on = "t.a = s.a AND t.b = s.b"
    target.merge(new, on=on).when_not_matched_insert_all().execute()
    assert sorted(target.scan().to_arrow()["v"].to_pylist()) == [0, 8]
    target.merge(new, on=on).when_matched_delete().execute()
    assert target.scan().to_arrow().num_rows == 0


def test_a_merge_meets_empty_texts_of_a_partition_that_is_never_null() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("p", pa.string(), nullable=False)])
    target = make(schema=schema, record_key="a", partition_by="p", ordering=None)
    target.upsert(pa.Table.from_pylist([{"a": 1, "p": ""}, {"a": 2, "p": "q"}], schema=schema))
    gone = pa.Table.from_pylist([{"a": 1, "p": ""}], schema=schema)
    target.merge(gone, on="t.a = s.a AND t.p = s.p").when_matched_delete().execute()
    assert target.scan().to_arrow()["a"].to_pylist() == [2]
