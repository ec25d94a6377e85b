"""Partition paths: hive style, escaping, times, and what may not be a folder."""

from __future__ import annotations

import datetime as dt
import re
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidRequest
from lakebed.model.java_time import DatePattern, zone_name
from lakebed.model.partition_path import DEFAULT_PARTITION, PartitionFields, check_paths, escape
from lakebed.model.partition_time import TimeFolders

K = "hoodie.keygen.timebased."


def times(kind: str, output: str = "yyyy/MM/dd", **more: str) -> PartitionFields:
    named = {K + key.replace("__", "."): value for key, value in more.items()}
    properties = {K + "timestamp.type": kind, K + "output.dateformat": output, **named}
    return PartitionFields(fields=("t",), types=("TIMESTAMP",), times=TimeFolders.from_properties(properties))


def paths(fields: PartitionFields, **columns: object) -> list[str]:
    found: list[str] = fields.paths(pa.record_batch(columns)).to_pylist()
    return found


def test_plain_hive_and_several_fields() -> None:
    columns = {"c": ["de", None, ""], "n": [1, 2, None]}
    assert paths(PartitionFields(("c",)), **columns) == ["de", DEFAULT_PARTITION, DEFAULT_PARTITION]
    assert paths(PartitionFields(("c", "n"), hive_style=True), **columns) == [
        "c=de/n=1",
        f"c={DEFAULT_PARTITION}/n=2",
        f"c={DEFAULT_PARTITION}/n={DEFAULT_PARTITION}",
    ]
    assert paths(PartitionFields(()), **columns) == ["", "", ""]


def test_a_slash_nests_folders_unless_it_is_encoded() -> None:
    assert paths(PartitionFields(("c",)), c=["a b/c"]) == ["a b/c"]
    assert paths(PartitionFields(("c",), url_encode=True), c=["a b/c", "x=y%z"]) == ["a b%2Fc", "x%3Dy%25z"]


def test_dates_with_slashes() -> None:
    day = [dt.date(2024, 1, 31)]
    assert paths(PartitionFields(("d",), slash_dates=True), d=day) == ["2024/01/31"]
    assert paths(PartitionFields(("d", "e"), slash_dates=True), d=day, e=[1]) == ["2024-01-31/1"]


@given(st.text(st.characters(codec="utf-8")))
def test_escaping_can_be_undone_and_leaves_no_slash(text: str) -> None:
    escaped = escape(text)
    assert unquote(escaped) == text
    assert not re.search(r"[/:=?*\\#'\"^{\[\]\x00-\x1f]", escaped)


@pytest.mark.parametrize(
    "path", ["..", "a/../b", "/a", "a/", "a//b", ".", "./a", ".hoodie", ".hoodie/metadata", ".hoodie_x", "a\\b", "a\0b"]
)
def test_what_may_not_be_a_folder(path: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be a folder"):
        check_paths(pa.array(["fine", path]))


def test_harmless_dots_are_fine() -> None:
    check_paths(pa.array(["a..b", "1.5", "x/.y", "", "a/b...", None]))


MOMENT = 1_700_302_400_123  # 2023-11-18T10:13:20.123Z


@pytest.mark.parametrize(
    ("kind", "value", "more"),
    [
        ("EPOCHMILLISECONDS", MOMENT, {}),
        ("EPOCHMICROSECONDS", MOMENT * 1000, {}),
        ("UNIX_TIMESTAMP", MOMENT // 1000, {}),
        ("SCALAR", MOMENT // 86_400_000, {"timestamp__scalar__time__unit": "days"}),
        ("SCALAR", MOMENT // 1000, {}),
        ("DATE_STRING", "2023-11-18 10:13:20", {"input__dateformat": "yyyy-MM-dd HH:mm:ss"}),
        ("MIXED", "2023-11-18T10:13:20.123Z", {"input__dateformat": "yyyy-MM-dd,yyyy-MM-dd'T'HH:mm:ss.SSSZ"}),
    ],
)
def test_kinds_of_times(kind: str, value: object, more: dict[str, str]) -> None:
    assert paths(times(kind, **more), t=[value]) == ["2023/11/18"]


def test_patterns_and_zones() -> None:
    for pattern, text in {
        "yyyy-MM-dd'T'HH": "2023-11-18T10",
        "yyyyMMdd-HHmmss.SSS": "20231118-101320.123",
        "yy/M/d/h/a": "23/11/18/10/AM",
        "EEE MMM D": "Sat Nov 322",
        "EEEE, MMMM": "Saturday, November",
        "xxxx-'W'ww-e": "2023-W46-6",
    }.items():
        assert paths(times("EPOCHMILLISECONDS", pattern), t=[MOMENT]) == [text]
    hours = {
        zone: paths(times("EPOCHMILLISECONDS", "dd-HH:mm", timezone=zone), t=[MOMENT])[0]
        for zone in ("GMT", "GMT+8:00", "Asia/Kolkata", "GMT-14")
    }
    assert hours == {"GMT": "18-10:13", "GMT+8:00": "18-18:13", "Asia/Kolkata": "18-15:43", "GMT-14": "17-20:13"}


def test_input_and_output_zones_of_texts() -> None:
    pattern = {"input__dateformat": "yyyy-MM-dd HH:mm,yyyy-MM-dd HH:mmZ"}
    moved = times("DATE_STRING", "dd HH", input__timezone="GMT+8", output__timezone="UTC", **pattern)
    assert paths(moved, t=["2024-01-02 01:30", "2024-01-02 01:30+0000"]) == ["01 17", "02 01"]
    kept = times("DATE_STRING", "dd HH", **pattern)
    assert paths(kept, t=["2024-01-02 01:30+0500", "2024-01-02 01:30"]) == ["02 01", "02 01"]


def test_a_missing_time_is_the_first_one() -> None:
    assert paths(times("EPOCHMILLISECONDS"), t=pa.array([None, MOMENT], pa.int64())) == ["1970/01/01", "2023/11/18"]
    named = times("DATE_STRING", input__dateformat="yyyyMMdd")
    assert paths(named, t=pa.array([None, "20231118"])) == ["1970/01/01", "2023/11/18"]


def test_times_before_1970_and_hive_style() -> None:
    fields = times("UNIX_TIMESTAMP", "yyyy-MM-dd-HH")
    assert paths(fields, t=[-1, 0]) == ["1969-12-31-23", "1970-01-01-00"]
    hive = PartitionFields(
        ("t",), ("TIMESTAMP",), hive_style=True, url_encode=True, times=times("UNIX_TIMESTAMP").times
    )
    assert paths(hive, t=[0]) == ["t=1970%2F01%2F01"]


@pytest.mark.parametrize(
    ("kind", "more", "value", "complaint"),
    [
        ("DATE_STRING", {"input__dateformat": "yyyy-MM-dd"}, "tomorrow", "fit none of yyyy-MM-dd: 'tomorrow'"),
        ("EPOCHMILLISECONDS", {}, "2024", "is text"),
        ("UNIX_TIMESTAMP", {}, 1 << 62, "no time"),
        ("UNIX_TIMESTAMP", {}, 1 << 53, "cannot be formatted"),
        ("UNIX_TIMESTAMP", {}, True, "does not fit"),
    ],
)
def test_bad_times_are_named(kind: str, more: dict[str, str], value: object, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(complaint)):
        paths(times(kind, **more), t=[value])


@pytest.mark.parametrize(
    ("kind", "output", "more"),
    [
        ("DATE_STRING", "yyyy", {}),
        ("SOMETIMES", "yyyy", {}),
        ("SCALAR", "yyyy", {"timestamp__scalar__time__unit": "moons"}),
        ("UNIX_TIMESTAMP", "yyyy QQ", {}),
        ("UNIX_TIMESTAMP", "HHZ", {}),
        ("UNIX_TIMESTAMP", "yyyy'", {}),
        ("UNIX_TIMESTAMP", "yyyy", {"timezone": "Mars/Olympus"}),
    ],
)
def test_bad_settings_are_refused(kind: str, output: str, more: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        times(kind, output, **more)


def test_a_timestamp_field_without_settings() -> None:
    with pytest.raises(InvalidRequest, match=r"hoodie\.keygen\.timebased"):
        paths(PartitionFields(("t",), ("TIMESTAMP",)), t=[1])


@given(
    st.datetimes(timezones=st.just(dt.UTC)),
    st.sampled_from(
        ["yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMddHHmmssSSS", "dd.MM.yyyy hh:mm:ss,SSS a", "yyyy/DDD HH:mm:ss.SSS"]
    ),
)
def test_what_is_written_is_read_again(time: dt.datetime, text: str) -> None:
    time = time.replace(microsecond=time.microsecond // 1000 * 1000)
    pattern = DatePattern.of(text)
    assert pattern.parser().parse(pattern.format(time), dt.UTC) == time


def test_zone_names() -> None:
    assert [zone_name(name) for name in ("gmt", "GMT+8", "UTC-03:30", "Europe/Berlin")] == [
        "UTC",
        "+08:00",
        "-03:30",
        "Europe/Berlin",
    ]


def from_hudi(column: pa.Array, properties: dict[str, str], *, logical: bool = False) -> str:
    folders = TimeFolders.from_properties(
        {K + key: text for key, text in properties.items()}, logical_timestamps=logical
    )
    fields = PartitionFields(("t",), ("TIMESTAMP",), times=folders)
    return paths(fields, t=column)[0]


MILLIS = "yyyy-MM-dd HH:mm:ss.SSS"
READ = {"timestamp.type": "DATE_STRING", "input.dateformat": "yyyy-MM-dd HH:mm,yyyy-MM-dd HH:mmZ"}
MOVED = READ | {"input.timezone": "GMT+8", "output.timezone": "UTC", "output.dateformat": "dd HH:mm"}


@pytest.mark.parametrize(
    ("kind", "value", "properties", "path"),
    [
        (pa.int64(), MOMENT, {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "kk K S SS"}, "10 10 1 12"),
        (pa.int64(), MOMENT, {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "''YYYY''"}, "'2023'"),
        (
            pa.int64(),
            None,
            {"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": MILLIS},
            "1970-01-01 00:00:01.000",
        ),
        (
            pa.string(),
            None,
            {"timestamp.type": "DATE_STRING", "input.dateformat": MILLIS, "output.dateformat": MILLIS},
            "1970-01-01 00:00:00.001",
        ),
        (
            pa.int64(),
            -1,
            {"timestamp.type": "EPOCHMICROSECONDS", "output.dateformat": MILLIS},
            "1970-01-01 00:00:00.000",
        ),
        (pa.float64(), MOMENT / 1000, {"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "ss.SSS"}, "20.000"),
        (
            pa.date32(),
            dt.date(2023, 11, 18),
            {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "days", "output.dateformat": "yyyy/MM/dd"},
            "2023/11/18",
        ),
        (pa.string(), "2024-1-2 1:3", MOVED, "01 17:03"),
        (pa.string(), "2024-01-02 01:30Z", MOVED, "02 01:30"),
        (pa.string(), "2024-01-02 01:30+05:30", MOVED, "01 20:00"),
        (pa.string(), "2024-01-02 01:30+05:30", READ | {"output.dateformat": "dd HH:mm"}, "02 01:30"),
    ],
)
def test_the_same_as_hudis_key_generator(
    kind: pa.DataType, value: object, properties: dict[str, str], path: str
) -> None:
    """Answers of Hudi 1.2.0's own classes."""
    assert from_hudi(pa.array([value], kind), properties) == path


def test_a_stored_timestamp_is_a_number_unless_it_is_logical() -> None:
    stored = pa.array([MOMENT * 1000 + 456], pa.timestamp("us", "UTC"))
    properties = {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "yyyy/MM/dd"}
    assert from_hudi(stored, properties, logical=True) == "2023/11/18"
    assert from_hudi(stored, properties | {"timestamp.type": "EPOCHMICROSECONDS"}) == "2023/11/18"
    with pytest.raises(InvalidRequest, match="cannot be formatted"):
        from_hudi(stored, properties)
