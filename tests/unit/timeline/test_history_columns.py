"""The quick ways of asking columns are right for all columns, and take nothing from the caller."""

from __future__ import annotations

import copy
import gc
import pickle
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.model.instant import Action, Instant, State
from lakebed.timeline import history_columns
from lakebed.timeline.clock import comparable
from lakebed.timeline.history_columns import (
    ACTION,
    COMPLETED,
    REQUESTED,
    TIMES_SCHEMA,
    are_times,
    ascends,
    comparable_times,
    in_order,
    instants_of,
    within,
)

digits = st.text("0123456789", min_size=17, max_size=17)
times = digits | st.text("0123456789", min_size=14, max_size=20)
chunked = st.lists(st.lists(times, max_size=4), max_size=4)


def column(chunks: list[list[str]]) -> pa.ChunkedArray:
    """Chunks that are slices, as those of a filtered or cut table are."""
    padded = [pa.array(["x", *texts, "y"], pa.string()).slice(1, len(texts)) for texts in chunks]
    return pa.chunked_array(padded, pa.string())


def table(rows: list[tuple[str, str, str]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.table([pa.array(values, pa.string()) for values in columns], schema=TIMES_SCHEMA)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(times, times, st.sampled_from([str(a) for a in Action])), max_size=20), st.integers(1, 4))
def test_instants_are_those_that_the_constructor_makes(rows: list[tuple[str, str, str]], parts: int) -> None:
    found = instants_of(pa.concat_tables([table(rows[n::parts]) for n in range(parts)]))
    assert sorted(found, key=str) == sorted(
        (Instant(requested_time, Action(word), State.COMPLETED, done) for requested_time, done, word in rows), key=str
    )
    for instant in found:
        assert type(instant.action) is Action and hash(instant) == hash(copy.copy(instant))
        assert pickle.loads(pickle.dumps(instant)) == instant


def test_instants_are_frozen() -> None:
    (instant,) = instants_of(table([("20260101000000000", "20260101000000001", "commit")]))
    with pytest.raises(AttributeError):
        instant.action = Action.CLEAN  # type: ignore[misc]


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_garbage_collector_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, on: bool, fails: bool) -> None:
    seen = []

    def actions(_: object) -> list[Action]:
        seen.append(gc.isenabled())
        if fails:
            raise MemoryError
        return [Action.COMMIT]

    monkeypatch.setattr(history_columns, "_actions_of", actions)
    rows = table([("20260101000000000", "20260101000000001", "commit")])
    before = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        if fails:
            with pytest.raises(MemoryError):
                instants_of(rows)
        else:
            instants_of(rows)
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [False]


@settings(deadline=None, max_examples=60)
@given(chunked)
def test_comparable_times_are_those_of_the_clock(chunks: list[list[str]]) -> None:
    assert comparable_times(column(chunks)).to_pylist() == [comparable(text) for texts in chunks for text in texts]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(digits, max_size=4).map(sorted), max_size=4), st.booleans())
def test_ascending_is_told_across_chunks(chunks: list[list[str]], ordered: bool) -> None:
    if ordered:
        chunks = sorted(chunks)
    flat = [text for texts in chunks for text in texts]
    assert ascends(column(chunks)) == all(a < b for a, b in pairwise(flat))


@pytest.mark.parametrize("text", ["20260101000000", "2026-01-01 00:00", "yesterday at noon"])
def test_times_of_another_shape_are_not_called_ascending(text: str) -> None:
    assert not ascends(column([["00000000000000001"], [text]]))


@settings(deadline=None, max_examples=60)
@given(chunked, st.sampled_from(["", "2026-01-01T00:00", "2026010100000000x", "202601010000000", "9" * 33, "²" * 9]))
def test_what_is_no_time_is_found(chunks: list[list[str]], wrong: str) -> None:
    assert are_times(column(chunks))
    whole = wrong.isascii() and wrong.isdigit() and 14 <= len(wrong) <= 32
    assert are_times(column([*chunks, [wrong]])) == whole


@settings(deadline=None, max_examples=60)
@given(chunked, times, times)
def test_ranges(chunks: list[list[str]], low: str, high: str) -> None:
    begins = column(chunks)
    rows = pa.table({REQUESTED: begins})
    inside = [text for text in begins.to_pylist() if comparable(low) <= comparable(text) <= comparable(high)]
    assert within(rows, REQUESTED, low, high)[REQUESTED].to_pylist() == inside


def test_rows_that_overlap_count_once_and_the_first_stays() -> None:
    older = table([("20260101000000000", "20260101000000005", "commit"), ("20260101000000003", "1" * 17, "clean")])
    newer = table([("20260101000000000", "20260101000000009", "commit"), ("20260101000000000", "2" * 17, "savepoint")])
    found = in_order([older, newer], TIMES_SCHEMA)
    assert list(zip(found[COMPLETED].to_pylist(), found[ACTION].to_pylist(), strict=True)) == [
        ("20260101000000005", "commit"),
        ("2" * 17, "savepoint"),
        ("1" * 17, "clean"),
    ]
