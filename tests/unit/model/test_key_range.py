"""Ranges of keys against the plain definition, with keys where UTF-8 and UTF-16 disagree."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.key_range import KeyRange, java_bound, prefix_range

KEYS = st.text(st.sampled_from("ab\u00e9\ud7ff\ue000\ufffd\uffff\U0001f600\U0010ffff"), max_size=3)
RANGES = st.one_of(
    st.builds(KeyRange, st.none() | KEYS, st.none() | KEYS, st.booleans(), st.booleans()),
    st.lists(KEYS, max_size=4).map(KeyRange.of_points),
)


def utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


@given(KEYS, KEYS)
def test_python_orders_strings_as_their_utf8_bytes(a: str, b: str) -> None:
    assert (a < b) == (a.encode() < b.encode())


@given(RANGES, st.lists(KEYS | st.none(), max_size=8))
def test_mask_is_contains(wanted: KeyRange, keys: list[str | None]) -> None:
    mask = wanted.mask(pa.array(keys, pa.string()))
    assert mask.to_pylist() == [key is not None and wanted.contains(key) for key in keys]


@given(RANGES, st.lists(KEYS, max_size=8))
def test_cut_keeps_every_key_of_the_range(wanted: KeyRange, keys: list[str]) -> None:
    keys = sorted(keys)
    start, end = wanted.cut(pa.array(keys, pa.string()))
    inside = [key for key in keys if wanted.contains(key)]
    kept = keys[start:end]
    assert inside == (kept if wanted.points is None else [key for key in kept if wanted.contains(key)])


@given(RANGES, st.lists(KEYS, min_size=1, max_size=8))
def test_overlaps_never_misses(wanted: KeyRange, keys: list[str]) -> None:
    if any(wanted.contains(key) for key in keys):
        assert wanted.overlaps(min(keys), max(keys))
        assert wanted.overlaps(None, max(keys))
        assert wanted.overlaps(min(keys), None)
        assert not wanted.is_empty


def test_overlaps_says_no() -> None:
    assert not KeyRange("b", "c").overlaps("d", "e")
    assert not KeyRange("b", "c", high_inclusive=False).overlaps("c", "e")
    assert not KeyRange.of_points(["a", "z"]).overlaps("b", "y")
    assert not KeyRange.of_points([]).overlaps(None, None)


@given(RANGES, RANGES, KEYS)
def test_intersection_and_union(a: KeyRange, b: KeyRange, key: str) -> None:
    assert a.intersect(b).contains(key) == (a.contains(key) and b.contains(key))
    if a.contains(key) or b.contains(key):
        assert a.union(b).contains(key)


@given(KEYS, KEYS)
def test_prefix(prefix: str, key: str) -> None:
    wanted = prefix_range(prefix)
    if key.startswith(prefix):
        assert wanted.contains(key)
    elif prefix.rstrip("\U0010ffff"):
        assert not wanted.contains(key) or key > prefix


def test_a_plain_prefix_is_exact() -> None:
    assert prefix_range("ab") == KeyRange("ab", "ac", high_inclusive=False)


@given(st.lists(KEYS, min_size=1, max_size=6))
def test_a_java_bound_holds_in_utf8_order(keys: list[str]) -> None:
    low, high = java_bound(min(keys, key=utf16)), java_bound(max(keys, key=utf16))
    for key in keys:
        assert low is None or low <= key
        assert high is None or key <= high
    assert java_bound("plain") == "plain"
    assert java_bound("\ufffd") is None
