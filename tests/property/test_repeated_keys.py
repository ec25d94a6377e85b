"""A base file that repeats keys: every way to merge gives what folding its rows, in file order, gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.merge_vector import merge_vectors
from lakebed.merge.record_merger import FunctionMerger, MergeMode, MergeRule, register_merger
from lakebed.merge.runs import Run
from lakebed.merge.sorted_merge import sorted_merge
from lakebed.model import concat
from tests.property.test_merge import (
    FILLING,
    GONE,
    KEY,
    LOOSE,
    RULES,
    SCHEMA,
    TIME,
    UNSENT,
    State,
    Version,
    opener,
    step,
)
from tests.property.test_merge import got as rows_of

FEWER = settings(LOOSE, max_examples=30)
MEMORY = st.sampled_from([1, 600, 4096, 64 << 20])
History = list[tuple[Run, list[dict[str, Any]]]]


@st.composite
def histories(draw: st.DrawFn, *, partial: bool = False) -> History:
    """A base file without any order that says keys twice, and a few logs, sorted or not."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    keys = [f"{chance.choice(['', 'a long prefix '])}{number}" for number in range(draw(st.integers(1, 8)))]
    made: History = []
    for number in range(draw(st.integers(1, 5)) + 1):
        kinds = ["data", "data", "delete"] + (["partial"] if partial else [])
        kind = "data" if number == 0 else chance.choice(kinds)
        own = [chance.choice(keys) for _ in range(chance.randint(0, 12 if number == 0 else 5))]
        is_sorted = number > 0 and chance.random() < 0.5
        if is_sorted:
            own = sorted(set(own))
        present = {name for name in ("s", "n") if chance.random() < 0.5} if kind == "partial" else {"s", "n"}
        rows = [_row(chance, key, kind, number, present) for key in own]
        run = Run(
            age=number,
            is_sorted=is_sorted,
            open=opener(rows, chance.randint(1, 5), kind == "delete", {*present, GONE}),
            is_delete=kind == "delete",
            is_partial=kind == "partial",
            requested_time=f"{number:03d}",
            most_rows=len(rows) if chance.random() < 0.5 else None,
            brings=frozenset({TIME, KEY, "ts", GONE, *present}) if kind == "partial" else None,
        )
        made.append((run, rows))
    return made


def _row(chance: random.Random, key: str, kind: str, number: int, present: set[str]) -> dict[str, Any]:
    row: dict[str, Any] = {KEY: key, "ts": chance.choice([None, 0, 1, 2, 3, 5, 9])}
    if kind == "delete":
        return row
    row[TIME] = f"{chance.choice(range(8)) if number == 0 else number:03d}"
    row[GONE] = chance.choice([False, False, None, True])
    for name in sorted(present):
        row[name] = chance.choice([None, UNSENT, "", "p", "q"] if name == "s" else [None, 0, 1, 2])
    return row


def folded(history: History, rule: MergeRule) -> Counter[tuple[Any, ...]]:
    """While no log speaks of a key its base rows stay; then all of them are versions, the oldest ones."""
    spoken = {row[KEY] for _, rows in history[1:] for row in rows}
    states: dict[str, State] = {}
    found: Counter[tuple[Any, ...]] = Counter()
    for run, rows in history:
        for row in rows:
            if row[KEY] not in spoken:
                found[_values(row)] += 1
            else:
                states[row[KEY]] = step(rule, states.get(row[KEY]), Version(run, row))
    found.update(_values(state.values) for state in states.values() if not state.deleted)
    return found


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in SCHEMA.names)


def got(batches: Iterator[pa.RecordBatch]) -> Counter[tuple[Any, ...]]:
    return Counter(rows_of(batches))


def alive(history: History, rule: MergeRule, memory: int) -> Counter[tuple[Any, ...]]:
    """The rows that merge vectors leave."""
    vectors = merge_vectors([run for run, _ in history], rule, memory=memory)
    assert [vector.rows for vector in vectors] == [len(rows) for _, rows in history]
    dead = [sum(vector.is_dead(at) for at in range(vector.rows)) for vector in vectors]
    assert dead == [vector.dead for vector in vectors]
    return Counter(
        _values(row)
        for (_, rows), vector in zip(history, vectors, strict=True)
        for at, row in enumerate(rows)
        if not vector.is_dead(at)
    )


@pytest.mark.parametrize("rule", RULES[:3], ids=lambda rule: f"{rule.mode}-{len(rule.ordering)}")
@FEWER
@given(history=histories(), memory=MEMORY)
def test_all_merges_agree_where_the_base_repeats_keys(rule: MergeRule, history: History, memory: int) -> None:
    runs, wanted = [run for run, _ in history], folded(history, rule)
    assert got(sorted_merge(runs, rule, SCHEMA, memory=memory)) == wanted
    assert got(hash_merge(runs, rule, SCHEMA, memory=memory)) == wanted
    assert alive(history, rule, memory) == wanted


@pytest.mark.parametrize("rule", FILLING, ids=lambda rule: f"{rule.mode}-{rule.partial_update}")
@FEWER
@given(history=histories(partial=True), memory=MEMORY)
def test_columns_of_repeated_base_rows_mix_alike(rule: MergeRule, history: History, memory: int) -> None:
    runs, wanted = [run for run, _ in history], folded(history, rule)
    assert got(sorted_merge(runs, rule, SCHEMA, memory=memory)) == wanted
    assert got(hash_merge(runs, rule, SCHEMA, memory=memory)) == wanted


@FEWER
@given(history=histories(partial=True), memory=MEMORY)
def test_a_merger_of_ones_own_sees_all_base_rows(history: History, memory: int) -> None:
    def longest(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
        return {**newer, "s": (older["s"] or "") + "|" + (newer["s"] or "")}

    register_merger("test.all", lambda: FunctionMerger(longest))
    rule = MergeRule(MergeMode.CUSTOM, merger="test.all")
    runs = [run for run, _ in history]
    found = got(sorted_merge(runs, rule, SCHEMA, memory=64 << 20))
    assert got(hash_merge(runs, rule, SCHEMA, memory=memory)) == found
    spoken = {row[KEY] for _, rows in history[1:] for row in rows}
    untouched = Counter(_values(row) for row in history[0][1] if row[KEY] not in spoken)
    assert untouched <= found


@pytest.mark.parametrize("rule", [*RULES[:2], FILLING[3]], ids=lambda rule: f"{rule.mode}-{rule.partial_update}")
@FEWER
@given(history=histories(partial=True), memory=MEMORY, most=st.integers(1, 60))
def test_columns_too_large_to_be_joined_change_no_answer(
    rule: MergeRule, history: History, memory: int, most: int
) -> None:
    """Arrow's limit, brought down to some bytes."""
    join = pa.concat_arrays

    def refused(parts: Any) -> pa.Array:
        if concat.wide_type(parts[0].type) != parts[0].type and sum(part.nbytes for part in parts) > most:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return join(parts)

    runs, wanted = [run for run, _ in history], folded(history, rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concat, "concat_arrays", refused)
        patch.setattr(concat, "LARGEST_COLUMN", most)
        assert got(sorted_merge(runs, rule, SCHEMA, memory=memory)) == wanted
        assert got(hash_merge(runs, rule, SCHEMA, memory=memory)) == wanted
