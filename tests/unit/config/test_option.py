"""Declarations of options and what is made from them."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.config.option import (
    FLAG,
    NUMBER,
    SIZE,
    TEXT,
    WORDS,
    bytes_of,
    choice,
    markdown_table,
    nearest_known,
    option,
    options_of,
    read_options,
    to_properties,
    warn_unknown,
)
from lakebed.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Sample:
    name: str = option("hoodie.a.name", TEXT, "x", "A name.")
    parts: tuple[str, ...] = option("hoodie.a.parts", WORDS, (), "Parts.", ("hoodie.a.old.parts", "hoodie.a.older"))
    size: int = option("hoodie.a.size", SIZE, 1024, "A size.")
    count: int = option("hoodie.a.count", NUMBER, 3, "A count.")
    on: bool = option("hoodie.a.on", FLAG, True, "A switch.")
    mode: str = option("hoodie.a.mode", choice({"FAST_ONE": "fast", "SLOW_ONE": "slow"}), "slow", "A mode.")
    made: str = "made"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("512MB", 512 << 20),
        ("512 mib", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("64k", 64 << 10),
        ("7b", 7),
        (" 2T ", 2 << 40),
        (7, 7),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "1,5GB", "1e9", "12 parsecs", "٣", "9" * 40, "9999999999T", -1, True, None, 1.5]
)
def test_texts_that_are_no_sizes(text: str) -> None:
    with pytest.raises(InvalidRequest):
        bytes_of(text)


def test_defaults_aliases_and_blanks() -> None:
    assert Sample(**read_options(Sample, {})) == Sample()
    assert read_options(Sample, {"hoodie.a.older": "a, b,,c"})["parts"] == ("a", "b", "c")
    both = {"hoodie.a.older": "a", "hoodie.a.old.parts": "b", "hoodie.a.parts": "c"}
    assert read_options(Sample, both)["parts"] == ("c",)
    assert read_options(Sample, both | {"hoodie.a.parts": " "})["parts"] == ("b",)
    assert read_options(Sample, {"hoodie.a.count": ""})["count"] == 3


@pytest.mark.parametrize(
    ("key", "text"),
    [("hoodie.a.count", "three"), ("hoodie.a.on", "yes"), ("hoodie.a.mode", "medium"), ("hoodie.a.size", "big")],
)
def test_bad_values_name_the_key_and_the_value(key: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_options(Sample, {key: text})
    assert key in str(caught.value)
    assert text in str(caught.value)


def test_values_that_are_not_text_are_taken_or_refused() -> None:
    assert read_options(Sample, {"hoodie.a.on": False, "hoodie.a.count": 5})["on"] is False  # type: ignore[dict-item]
    with pytest.raises(InvalidRequest):
        read_options(Sample, {"hoodie.a.mode": 5})  # type: ignore[dict-item]


@given(
    st.builds(
        Sample,
        name=st.text(min_size=1).filter(str.strip),
        parts=st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True)).map(tuple),
        size=st.integers(0, 1 << 40),
        count=st.integers(-(10**17), 10**17),
        on=st.booleans(),
        mode=st.sampled_from(["fast", "slow"]),
    )
)
def test_options_survive_their_properties(sample: Sample) -> None:
    properties = to_properties(sample)
    assert Sample(**read_options(Sample, properties)) == sample
    assert set(properties) <= {declared.key for declared in options_of(Sample).values()}


def test_only_what_differs_is_written() -> None:
    assert to_properties(Sample()) == {}
    assert to_properties(Sample(on=False, mode="fast")) == {"hoodie.a.on": "false", "hoodie.a.mode": "FAST_ONE"}


def test_the_documentation_has_a_line_per_option() -> None:
    table = markdown_table(Sample).splitlines()
    assert len(table) == 2 + 6
    assert "`hoodie.a.parts` (also `hoodie.a.old.parts`, `hoodie.a.older`)" in table[3]
    assert "| `SLOW_ONE` |" in table[7]
    assert all(line.replace("\\|", "").count("|") == 5 for line in table)


def test_unknown_keys_are_named_with_the_nearest_known_one() -> None:
    known = {"hoodie.metadata.enable", "hoodie.keygen."}
    assert nearest_known("hoodie.metadata.enabled", known) == "hoodie.metadata.enable"
    assert nearest_known("something.else", known) is None
    with pytest.warns(UserWarning, match=r"hoodie\.metadata\.enabled .*did you mean hoodie\.metadata\.enable\?"):
        assert warn_unknown({"hoodie.metadata.enabled": "1"}, known) == ("hoodie.metadata.enabled",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_unknown(["hoodie.metadata.enable", "hoodie.keygen.timezone", "spark.app"], known) == ()


def test_groups_pickle() -> None:
    assert pickle.loads(pickle.dumps(Sample(name="y"))) == Sample(name="y")
