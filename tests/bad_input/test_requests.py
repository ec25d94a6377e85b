"""Calls that ask for what cannot be: every one an `InvalidRequest` that says what to write instead."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.expression.predicate import parse_predicate
from tests.bad_input.conftest import refused

Golden = Callable[[str], Path]


@pytest.fixture(scope="module")
def table(golden: Golden) -> lakebed.Table:
    return lakebed.open(golden("mor_avro_v9"))


def test_unknown_columns_name_the_nearest(table: lakebed.Table) -> None:
    with refused(lakebed.InvalidRequest, "no column 'tx'.*Did you mean 'txt'"):
        table.scan(columns=["tx"]).to_arrow()
    with refused(lakebed.InvalidRequest, "no column 'zzzzzz'.*The columns are: _hoodie_commit_time, .*"):
        table.scan().select("id", "zzzzzz").to_arrow()
    with refused(lakebed.InvalidRequest, "requested twice: id"):
        table.scan(columns=["id", "ts", "id"]).to_arrow()


@pytest.mark.parametrize("columns", ["id", b"id", 7, [None], [7], [["id"]]])
def test_columns_of_wrong_types(table: lakebed.Table, columns: Any) -> None:
    with refused(lakebed.InvalidRequest, "."):
        table.scan(columns=columns).to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        "nosuch = 1",
        "ts >",
        "> 3",
        "ts = 'a' 'b'",
        "(ts = 1",
        "ts = 1; drop table x",
        "select 1",
        "ts in (select 1)",
        "",
        "   ",
        "ts = 'abc'",
        "d > 'x'",
        "txt like 3",
        "ts",
        "1",
        "'a'",
        "ts + 1",
        "sum(ts) > 3",
        "nosuchfunction(ts) > 3",
        "txt = date '2026-99-99'",
        "ts > 99999999999999999999999999999999999999999999",
        "id = ?",
        "\0",
        "ts = 1 and",
        "not",
        "id between 'a'",
        "case when ts > 1 then true",
        "a.b.c = 1",
        "💥",
        "--",
        "/* ts = 1",
        "'unclosed",
    ],
)
def test_filters_that_mean_nothing(table: lakebed.Table, text: str) -> None:
    """Only the number too large for any column is a fair question, with no rows as the answer."""
    try:
        table.scan(filter=text).to_arrow()
    except lakebed.InvalidRequest as error:
        assert str(error)
    else:
        assert text in ("ts > 99999999999999999999999999999999999999999999",)


def test_a_filter_nested_too_deep(table: lakebed.Table) -> None:
    for text in ("(" * 5000 + "ts = 1" + ")" * 5000, "not " * 5000 + "ts = 1", "-" * 3000 + "1 = ts"):
        with refused(lakebed.InvalidRequest, "."):
            table.scan(filter=text).to_arrow()


def test_a_very_long_filter_is_fine(table: lakebed.Table) -> None:
    many = " or ".join(f"ts = {i}" for i in range(800))
    assert table.scan(filter=many).count() == table.scan(filter="ts between 0 and 799").count()
    some = ", ".join(f"'k{i}'" for i in range(5000))
    assert table.scan(filter=f"id in ({some})").count() == 0


@pytest.mark.parametrize("where", [7, b"ts = 1", ["ts = 1"], object()])
def test_filters_of_wrong_types(table: lakebed.Table, where: Any) -> None:
    with refused(lakebed.InvalidRequest, "a filter is text"):
        table.scan(filter=where)


def test_a_predicate_made_for_another_table(table: lakebed.Table) -> None:
    other = parse_predicate("elsewhere > 3", pa.schema([("elsewhere", pa.int64())]))
    with refused(lakebed.InvalidRequest, "no column 'elsewhere'"):
        table.scan(filter=other).to_arrow()


@pytest.mark.parametrize("limit", [-1, -(10**30), 2.5, "3", True, [1]])
def test_limits(table: lakebed.Table, limit: Any) -> None:
    with pytest.raises(lakebed.InvalidRequest, match="limit"):
        table.scan(limit=limit)
    with pytest.raises(lakebed.InvalidRequest, match="limit"):
        table.scan().limit(limit)


@pytest.mark.parametrize("memory", ["lots", "", "-1", "1 XB", -5, 0, 1.5, "9" * 30, "NaN", True])
def test_memory(table: lakebed.Table, memory: Any) -> None:
    with pytest.raises(lakebed.InvalidRequest):
        table.scan(memory=memory)


@pytest.mark.parametrize("query", ["snapsho", "", "cdc", "SELECT", None, 3])
def test_queries(table: lakebed.Table, query: Any) -> None:
    with refused(lakebed.InvalidRequest, 'Use one of "snapshot", "read_optimized", or t.incremental'):
        table.scan(query=query)


@pytest.mark.parametrize("options", [7, "x", [("a", "b")]])
def test_options_of_wrong_types(table: lakebed.Table, options: Any) -> None:
    with refused(lakebed.InvalidRequest, "mapping"):
        table.scan(options=options)


@pytest.mark.parametrize(
    "options",
    [
        {"lakebed.threads": "-1"},
        {"lakebed.threads": "many"},
        {"lakebed.batch.rows": "0"},
        {"hoodie.metadata.enable": "perhaps"},
        {"lakebed.read.buffer": "0"},
    ],
)
def test_option_values(table: lakebed.Table, options: dict[str, str]) -> None:
    with pytest.raises(lakebed.InvalidRequest):
        table.scan(options=options)


def test_an_unknown_option_is_said_aloud(table: lakebed.Table) -> None:
    with pytest.warns(UserWarning, match=r"hoodie\.metadata\.enabel is ignored; did you mean hoodie\.metadata\.enable"):
        table.scan(options={"hoodie.metadata.enabel": "false"})


# Times


@pytest.mark.parametrize("time", ["", "yesterday", "2026-13-01", "123", "20261115", 7, 1.5, object()])
def test_times_that_are_none(table: lakebed.Table, time: Any) -> None:
    for call in (table.scan(as_of=time).to_arrow, table.incremental(time).to_arrow):
        try:
            call()
        except lakebed.InvalidRequest as error:
            assert str(error)
        else:
            assert time == "20261115", "a date in the basic form of ISO 8601"


def test_before_the_first_commit(table: lakebed.Table) -> None:
    for time in ("2020-01-01", dt.date(1, 1, 1), dt.datetime(2026, 11, 15, tzinfo=dt.UTC), "00000000000000000"):
        with refused(lakebed.InvalidRequest, r"no commit yet.*earliest instant that can be read is \d{17}"):
            table.scan(as_of=time).to_arrow()


def test_in_the_future_is_now(table: lakebed.Table) -> None:
    assert table.scan(as_of="2999-01-01").to_arrow() == table.scan().to_arrow()
    assert table.incremental("2999-01-01").count() == 0
    assert table.scan(as_of=dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)).count() == 95


def test_ranges(table: lakebed.Table) -> None:
    with refused(lakebed.InvalidRequest, "ends .* before it starts"):
        table.incremental("2026-11-16", "2026-11-15").to_arrow()
    with refused(lakebed.InvalidRequest, "needs a start"):
        table.incremental(None).to_arrow()  # type: ignore[arg-type]
    with refused(lakebed.InvalidRequest, "needs a start"):
        table.scan(query="incremental").to_arrow()
    assert table.incremental("2026-11-15", "2026-11-15").count() == 0, "an empty range is a range"


def test_incremental_without_meta_fields(golden: Golden) -> None:
    with refused(lakebed.InvalidRequest, "keeps no meta fields.*as_of"):
        lakebed.open(golden("cow_virtualkeys_v9")).incremental("0").to_arrow()


def test_instants_that_do_not_exist(table: lakebed.Table) -> None:
    for ask in (table.inspect.commit, table.inspect.body):
        with refused(lakebed.InvalidRequest, r"no instant 20990101000000000.*inspect\.timeline"):
            ask("20990101000000000")
