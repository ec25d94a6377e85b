from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTable
from lakebed.merge.key_index import KeyIndex
from lakebed.merge.keys import Keys, check_ascending, check_keys, heads_of
from lakebed.merge.row_order import order_rows

STRING = pa.string()
TEXT = st.text(st.sampled_from("ab\0é�\U0001f600"), max_size=12)


def heads(row_ranges: list[list[str]], kind: pa.DataType = STRING) -> tuple[np.ndarray, bool]:
    keys = [Keys(pa.array(row_range, kind)) for row_range in row_ranges]
    flat = [key.encode() for row_range in row_ranges for key in row_range]
    made = heads_of(keys, min(flat), max(flat))
    return made.heads, made.exact


@settings(max_examples=100, deadline=None)
@given(keys=st.lists(TEXT, min_size=1, max_size=30), wide=st.booleans())
def test_heads_never_contradict_the_keys(keys: list[str], wide: bool) -> None:
    found, exact = heads([keys], pa.large_string() if wide else pa.string())
    encoded = [key.encode() for key in keys]
    for a, head_a in zip(encoded, found.tolist(), strict=True):
        for b, head_b in zip(encoded, found.tolist(), strict=True):
            assert not (a < b and head_a > head_b)
            assert a != b or head_a == head_b
            assert not exact or (head_a == head_b) == (a == b)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), length=st.integers(8, 40))
def test_keys_of_one_length_keep_their_order_when_only_varying_bytes_are_packed(
    data: st.DataObject, length: int
) -> None:
    places = data.draw(st.sets(st.integers(0, length - 1), max_size=12))
    rows = data.draw(st.lists(st.text("abc", min_size=12, max_size=12), min_size=1, max_size=30))
    keys = []
    for row in rows:
        key = ["-"] * length
        for place, letter in zip(sorted(places), row, strict=False):
            key[place] = letter
        keys.append("".join(key))
    half = len(keys) // 2
    row_ranges = [part for part in (keys[:half], keys[half:]) if part]
    found, exact = heads(row_ranges)
    assert exact or len(places) > 8
    for a, head_a in zip(keys, found.tolist(), strict=True):
        for b, head_b in zip(keys, found.tolist(), strict=True):
            assert not (a < b and head_a > head_b)
            assert not exact or (head_a == head_b) == (a == b)


def test_keys_of_a_slice_at_the_end_of_its_buffer() -> None:
    array = pa.array(["x" * 20, "a", "b", "cc"]).slice(1)
    keys = Keys(array)
    assert [keys[0], keys[-1], len(keys)] == [b"a", b"cc", 3]
    assert keys.count_below(b"b") == 1
    assert keys.count_up_to(b"b") == 2
    assert [int(head) >> 56 for head in keys.heads(0)] == [ord("a"), ord("b"), ord("c")]


def test_a_lie_about_sortedness_is_named() -> None:
    check_ascending(Keys(pa.array(["a", "b"])), b"Z", "f")
    with pytest.raises(CorruptTable, match=r"f: marked as sorted by key, but b'a' comes after b'b'"):
        check_ascending(Keys(pa.array(["b", "a"])), None, "f")
    with pytest.raises(CorruptTable, match="comes after"):
        check_ascending(Keys(pa.array(["a", "a"])), None, "f")
    with pytest.raises(CorruptTable, match="comes after"):
        check_ascending(Keys(pa.array(["a"])), b"a", "f")
    with pytest.raises(CorruptTable, match="no record key"):
        check_keys(pa.array(["a", None]), "f")


FAMILIES = [
    lambda n: f"{n:05d}",
    lambda n: f"tenant:acme,order:{n // 7:06d},line:{n % 7:03d}",
    lambda n: f"user:{n}",
    lambda n: f"{(n * 2654435761) % 2**32:08x}-{n:030d}",
    lambda n: "same head, " + "z" * (n % 5) + str(n),
    lambda n: chr(0x1F600 + n % 40) + chr(0xFFFD - n % 3) + "x" * (n % 9),
]


@settings(max_examples=120, deadline=None)
@given(
    family=st.sampled_from(range(len(FAMILIES))),
    picks=st.lists(st.sets(st.integers(0, 60), max_size=60), min_size=1, max_size=6),
)
def test_row_order_is_by_key_and_then_by_age(family: int, picks: list[set[int]]) -> None:
    sources = [sorted({FAMILIES[family](n) for n in pick}, key=str.encode) for pick in picks]
    flat = [key for source in sources for key in source]
    if not flat:
        return
    ranges, at = [], 0
    for source in sources:
        ranges.append([(at, at + len(source))] if source else [])
        at += len(source)
    array = pa.array(flat)
    encoded = [key.encode() for key in flat]
    made = heads_of([Keys(array)], min(encoded), max(encoded))
    found = order_rows(ranges, [True] * len(sources), made, lambda: array)
    wanted = sorted(range(len(flat)), key=lambda row: (encoded[row], row))
    assert found.order.tolist() == wanted
    assert found.first.tolist() == [at == 0 or encoded[row] != encoded[wanted[at - 1]] for at, row in enumerate(wanted)]


def test_key_index_finds_what_is_there_and_nothing_else() -> None:
    keys = [f"k{n}" * (1 + n % 7) for n in range(3000)] + ["", "\0", "é" * 300]
    index = KeyIndex(pa.array(keys))
    assert index.find(pa.array(keys)).tolist() == list(range(len(keys)))
    assert set(index.find(pa.array(["K1", "k1 ", "\0\0", "é" * 299])).tolist()) == {-1}
    assert KeyIndex(pa.array([], pa.string())).find(pa.array(["a"])).tolist() == [-1]
    assert index.find(pa.array([], pa.string())).tolist() == []


def test_keys_made_to_collide_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.merge.key_index.hash_keys", lambda array, seed: np.zeros(len(array), np.uint64))
    index = KeyIndex(pa.array(["a", "b", "c"]))
    assert index.find(pa.array(["c", "x", "a"])).tolist() == [2, -1, 0]
