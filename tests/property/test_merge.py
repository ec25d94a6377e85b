"""The vector merges against a fold that a reader can check by eye: one dictionary per key, one version at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.merge.hash_merge import hash_merge
from lakebed.merge.loser_tree import key_bytes
from lakebed.merge.merge_vector import merge_vectors
from lakebed.merge.record_merger import (
    FunctionMerger,
    MergeMode,
    MergeRule,
    Op,
    PartialUpdateMode,
    register_merger,
    why_not_among_logs,
)
from lakebed.merge.runs import OP_COLUMN, Run
from lakebed.merge.sorted_merge import sorted_merge
from tests.unit.merge.textbook_merge import merge_rows

KEY, TIME, GONE = "_hoodie_record_key", "_hoodie_commit_time", "_hoodie_is_deleted"
SCHEMA = pa.schema([(TIME, pa.string()), (KEY, pa.string()), ("ts", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
INPUT = SCHEMA.append(pa.field(GONE, pa.bool_()))
UNSENT = "__unsent"
EVENT, COMMIT = MergeMode.EVENT_TIME, MergeMode.COMMIT_TIME


# ---------------------------------------------------------------- the model
@dataclass
class Version:
    run: Run
    values: dict[str, Any]  # only the columns that are present

    def deleted(self) -> bool:
        return self.run.is_delete or (not self.run.is_base and self.values.get(GONE) is True)

    def ordering(self, rule: MergeRule) -> tuple[int, ...]:
        return tuple(self.values.get(name) or 0 for name in rule.ordering)

    def bare_delete(self, rule: MergeRule) -> bool:
        return self.deleted() and all(self.values.get(name) is None for name in rule.ordering)


@dataclass
class State:
    version: Version  # the one that won last
    values: dict[str, Any]
    deleted: bool


def says_nothing(rule: MergeRule, values: dict[str, Any], name: str) -> bool:
    if name not in values:
        return True
    if rule.partial_update is PartialUpdateMode.IGNORE_DEFAULTS:
        return values[name] is None or values[name] == rule.column_defaults.get(name)
    return rule.partial_update is PartialUpdateMode.FILL_UNAVAILABLE and values[name] == rule.unavailable_value


def wins(rule: MergeRule, state: State, new: Version) -> bool:
    if rule.mode is not EVENT or not rule.ordering:
        return True
    if new.bare_delete(rule) or state.version.bare_delete(rule):
        return True
    old_order, new_order = state.version.ordering(rule), new.ordering(rule)
    if old_order == new_order and state.version.run.is_base and not new.run.is_base:
        own = new.values.get(TIME) or new.run.requested_time
        return own >= state.version.values[TIME]
    return new_order >= old_order


def step(rule: MergeRule, state: State | None, new: Version) -> State:
    if state is not None and not wins(rule, state, new):
        if rule.partial_update and not state.deleted and not new.deleted():
            for name, value in new.values.items():
                fills = rule.partial_update is PartialUpdateMode.IGNORE_DEFAULTS or name in ("s", TIME)
                if fills and says_nothing(rule, state.values, name):
                    state.values[name] = value
        return state
    if new.deleted():
        return State(new, dict(new.values), True)
    if state is None or state.deleted:
        return State(new, dict(new.values), False)
    merged = dict(state.values) if (new.run.is_partial or rule.partial_update) else {}
    for name, value in new.values.items():
        if name not in merged or not says_nothing(rule, new.values, name):
            merged[name] = value
    return State(new, merged, False)


def model(runs: list[tuple[Run, list[dict[str, Any]]]], rule: MergeRule) -> list[tuple[Any, ...]]:
    """Fold key by key; rows come out of the row-by-row merge of the loser tree."""
    streams = [
        [(key_bytes(row[KEY]), Version(run, row)) for row in sorted(rows, key=lambda row: key_bytes(row[KEY]))]
        for run, rows in runs
    ]
    states: dict[bytes, State] = {}
    for key, _, version in merge_rows(streams):
        states[key] = step(rule, states.get(key), version)
    return [
        tuple(state.values.get(name) for name in SCHEMA.names)
        for _, state in sorted(states.items())
        if not state.deleted
    ]


# ---------------------------------------------------------------- runs made up by Hypothesis
ALPHABET = ["", "a", "a\0", "a\0b", "aaaaaaaa", "aaaaaaaab", "aaaaaaaac", "aaaaaaaabb", "\U0001f600", "�", "b", "ключ"]
PAD = ["", "same-prefix-", "x" * 17]


@st.composite
def histories(
    draw: st.DrawFn, *, partial: bool = False, alike: bool = False, base_times: tuple[int, ...] = tuple(range(10))
) -> list[tuple[Run, list[dict[str, Any]]]]:
    """A few runs over a small pool of awkward keys; sizes shrink, the rows come from a seed because that is fast.

    Partial runs that are `alike` bring the same columns, in half of the histories no mark of deleted rows among them.
    """
    count = draw(st.integers(0, 6))
    pool = draw(st.integers(1, len(ALPHABET)))
    longest = draw(st.integers(0, 14))
    chance = random.Random(draw(st.integers(0, 2**32)))
    prefix = chance.choice(PAD)
    keys = [prefix + key for key in chance.sample(ALPHABET, pool)]
    made = []
    shared = {name for name in ("s", "n") if chance.random() < 0.5} | ({GONE} if chance.random() < 0.5 else set())
    for number in range(count):
        is_base = number == 0 and chance.random() < 0.6
        kinds = ["data", "data", "delete"] + (["partial", "partial"] if partial else [])
        kind = "data" if is_base else chance.choice(kinds)
        is_sorted = chance.random() < 0.5
        rows_wanted = chance.randint(0, longest)
        if is_sorted or is_base:
            own = chance.sample(keys, min(rows_wanted, len(keys)))
        else:
            own = [chance.choice(keys) for _ in range(rows_wanted)]
        if is_sorted:
            own.sort(key=key_bytes)
        present = {name for name in ("s", "n") if chance.random() < 0.5} if kind == "partial" else {"s", "n"}
        present = shared if alike and kind == "partial" else {*present, GONE}
        rows: list[dict[str, Any]] = []
        for key in own:
            row: dict[str, Any] = {KEY: key, "ts": chance.choice([None, -1, 0, 1, 2])}
            if kind != "delete":
                row[TIME] = f"{chance.choice(base_times) if is_base else number:03d}"
                if GONE in present:
                    row[GONE] = chance.choice([False, False, None, True])
                for name in sorted(present - {GONE}):
                    row[name] = chance.choice([None, UNSENT, "", "p", "q"] if name == "s" else [None, 0, 1, 2])
            rows.append(row)
        run = Run(
            age=0 if is_base else number + 1,
            is_sorted=is_sorted,
            open=opener(rows, chance.randint(1, 5), kind == "delete", present),
            is_delete=kind == "delete",
            is_partial=kind == "partial",
            requested_time=f"{number:03d}",
            brings=frozenset({TIME, KEY, "ts", *present}) if kind == "partial" else None,
        )
        made.append((run, rows))
    return made


def opener(rows: list[dict[str, Any]], size: int, deletes: bool, present: set[str]) -> Any:
    names = [KEY, "ts"] if deletes else [TIME, KEY, "ts", *sorted(present)]
    schema = pa.schema([INPUT.field(name) for name in names])

    def open_rows(wanted: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), min(size, wanted)):
            part = rows[start : start + min(size, wanted)]
            yield pa.RecordBatch.from_pylist(part, schema=schema)

    return open_rows


def got(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches(batches, SCHEMA)
    table.validate(full=True)
    return [tuple(row.values()) for row in table.to_pylist()]


RULES = [
    MergeRule(COMMIT, ordering=("ts",)),
    MergeRule(EVENT, ordering=("ts",)),
    MergeRule(EVENT),
    MergeRule(EVENT, ordering=("n", "ts")),
]
FILLING = [
    *RULES[:2],
    MergeRule(COMMIT, partial_update=PartialUpdateMode.IGNORE_DEFAULTS),
    MergeRule(EVENT, ordering=("ts",), partial_update=PartialUpdateMode.IGNORE_DEFAULTS, column_defaults={"n": 0}),
    MergeRule(COMMIT, partial_update=PartialUpdateMode.FILL_UNAVAILABLE, unavailable_value=UNSENT),
    MergeRule(EVENT, ordering=("ts",), partial_update=PartialUpdateMode.FILL_UNAVAILABLE, unavailable_value=UNSENT),
]
LOOSE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.mode}-{len(rule.ordering)}")
@LOOSE
@given(runs=histories(), memory=st.sampled_from([1, 4096, 64 << 20]))
def test_sorted_merge_is_the_fold(rule: MergeRule, runs: list[Any], memory: int) -> None:
    rule = replace(rule, ordering=()) if rule.ordering[:1] == ("n",) and any(r.is_delete for r, _ in runs) else rule
    if len(runs) == 1 and runs[0][0].is_base:
        return
    assert got(sorted_merge([run for run, _ in runs], rule, SCHEMA, memory=memory)) == model(runs, rule)


@pytest.mark.parametrize("rule", FILLING, ids=lambda rule: f"{rule.mode}-{rule.partial_update}")
@LOOSE
@given(runs=histories(partial=True), memory=st.sampled_from([1, 64 << 20]))
def test_columns_mix_as_in_the_fold(rule: MergeRule, runs: list[Any], memory: int) -> None:
    if len(runs) == 1 and runs[0][0].is_base:
        return
    assert got(sorted_merge([run for run, _ in runs], rule, SCHEMA, memory=memory)) == model(runs, rule)


@pytest.mark.parametrize("rule", [*RULES[:2], FILLING[3]], ids=lambda rule: f"{rule.mode}-{rule.partial_update}")
@LOOSE
@given(runs=histories(partial=True), memory=st.sampled_from([1, 64 << 20]))
def test_hash_merge_gives_the_same_rows(rule: MergeRule, runs: list[Any], memory: int) -> None:
    if len(runs) == 1 and runs[0][0].is_base:
        return
    rows = got(hash_merge([run for run, _ in runs], rule, SCHEMA, memory=memory))
    assert sorted(rows, key=lambda row: key_bytes(row[1])) == model(runs, rule)


# ---------------------------------------------------------------- log compaction: merging a part first changes nothing
def as_runs(batches: Iterator[pa.RecordBatch], place: Run, brings: frozenset[str] | None = None) -> list[Run]:
    """What a log compaction writes: deletes that something follows, then rows, then the other tombstones."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    keys = [row[KEY] for row in rows]
    before, data, after = [], [], []
    for at, row in enumerate(rows):
        kind = row.pop(OP_COLUMN)
        followed = at + 1 < len(rows) and keys[at + 1] == keys[at]
        if followed:
            assert kind == Op.DELETE
            before.append(row)
        elif kind == Op.ROW:
            data.append(row)
        else:
            row["ts"] = None if kind == Op.DELETE else row["ts"]
            after.append(row)
    for part in (before, data, after):
        own = [key_bytes(row[KEY]) for row in part]
        assert own == sorted(set(own))
    for row in before:
        row["ts"] = None

    def run(rows: list[dict[str, Any]], deletes: bool) -> Run:
        names = [KEY, "ts"] if deletes else [name for name in SCHEMA.names if brings is None or name in brings]
        picked = [{name: row[name] for name in names} for row in rows]
        schema = pa.schema([INPUT.field(name) for name in names])
        batch = pa.RecordBatch.from_pylist(picked, schema=schema)
        made = Run(place.age, True, lambda _: iter([batch]), deletes, requested_time=place.requested_time)
        return made if deletes else replace(made, is_partial=brings is not None, brings=brings)

    return [run(before, True), run(data, False), run(after, True)]


@pytest.mark.parametrize("merge", [sorted_merge, hash_merge], ids=lambda merge: merge.__name__)
@pytest.mark.parametrize("rule", [*RULES[:3], FILLING[2], FILLING[4]], ids=lambda r: f"{r.mode}-{r.partial_update}")
@LOOSE
@given(runs=histories(base_times=(0, 9)), data=st.data())  # deletes keep no commit time of their own
def test_merging_neighbouring_logs_first_changes_nothing(
    merge: Any, rule: MergeRule, runs: list[Any], data: st.DataObject
) -> None:
    ordered = [run for run, _ in runs]
    logs = [number for number, run in enumerate(ordered) if not run.is_base]
    if len(logs) < 2:
        return
    start = data.draw(st.integers(logs[0], logs[-1] - 1))
    end = data.draw(st.integers(start + 2, len(ordered)))
    merged = list(merge(ordered[start:end], rule, SCHEMA, memory=64 << 20, keep_deletes=True))
    compacted = as_runs(iter(merged), ordered[end - 1])
    result = got(sorted_merge([*ordered[:start], *compacted, *ordered[end:]], rule, SCHEMA, memory=64 << 20))
    assert result == model(runs, rule)


@pytest.mark.parametrize("merge", [sorted_merge, hash_merge], ids=lambda merge: merge.__name__)
@pytest.mark.parametrize("rule", RULES[:2], ids=lambda rule: rule.mode)
@settings(LOOSE, max_examples=200)
@given(runs=histories(partial=True, alike=True, base_times=(0, 9)), data=st.data())
def test_folding_partial_logs_first_changes_nothing(
    merge: Any, rule: MergeRule, runs: list[Any], data: st.DataObject
) -> None:
    """Any stretch that may be folded: partial logs of the same columns, by commit time with deletes among them."""
    ordered = [run for run, _ in runs]
    stretches = [
        (start, end)
        for start in range(len(ordered))
        for end in range(start + 2, len(ordered) + 1)
        if any(run.is_partial for run in ordered[start:end])
        and not any(run.is_base for run in ordered[start:end])
        and why_not_among_logs(ordered[start:end], rule) is None
    ]
    if not stretches:
        return
    start, end = data.draw(st.sampled_from(stretches))
    [brings] = {run.brings for run in ordered[start:end] if run.is_partial}
    narrow = pa.schema([field for field in SCHEMA if field.name in brings])
    merged = list(merge(ordered[start:end], rule, narrow, memory=64 << 20, keep_deletes=True))
    compacted = as_runs(iter(merged), ordered[end - 1], brings)
    result = got(sorted_merge([*ordered[:start], *compacted, *ordered[end:]], rule, SCHEMA, memory=64 << 20))
    assert result == model(runs, rule)


@pytest.mark.parametrize("rule", RULES[:2], ids=lambda rule: rule.mode)
@LOOSE
@given(runs=histories(), memory=st.sampled_from([1, 64 << 20]))
def test_merge_vectors_leave_exactly_the_winners(rule: MergeRule, runs: list[Any], memory: int) -> None:
    if len(runs) == 1 and runs[0][0].is_base:
        return
    vectors = merge_vectors([run for run, _ in runs], rule, memory=memory)
    alive = [
        tuple(row.get(name) for name in SCHEMA.names)
        for (run, rows), vector in zip(runs, vectors, strict=True)
        for at, row in enumerate(rows)
        if not vector.is_dead(at)
    ]
    assert [vector.rows for vector in vectors] == [len(rows) for _, rows in runs]
    assert sorted(alive, key=lambda row: key_bytes(row[1])) == model(runs, rule)


@LOOSE
@given(runs=histories(partial=True))
def test_a_python_function_folds_like_the_model(runs: list[Any]) -> None:
    def concatenate(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any] | None:
        if newer["n"] == 2:
            return None
        return {**newer, "s": (older["s"] or "") + (newer["s"] or "")}

    register_merger("test.concatenate", lambda: FunctionMerger(concatenate))
    rule = MergeRule(MergeMode.CUSTOM, merger="test.concatenate")
    if len(runs) == 1 and runs[0][0].is_base:
        return
    states: dict[bytes, dict[str, Any] | None] = {}
    for run, rows in runs:
        for row in rows:
            key, version = key_bytes(row[KEY]), Version(run, row)
            older = states.get(key)
            whole = {name: row.get(name) for name in SCHEMA.names}
            if version.deleted():
                states[key] = None
            elif older is None:
                states[key] = whole
            else:
                if run.is_partial:
                    whole = {name: row[name] if name in row else older[name] for name in SCHEMA.names}
                states[key] = concatenate(older, whole)
    wanted = [tuple(row[name] for name in SCHEMA.names) for _, row in sorted(states.items()) if row is not None]
    assert got(sorted_merge([run for run, _ in runs], rule, SCHEMA, memory=64 << 20)) == wanted


@pytest.mark.parametrize("rule", [*RULES[:3], *FILLING[2:]], ids=lambda rule: f"{rule.mode}-{rule.partial_update}")
@settings(LOOSE, max_examples=60)
@given(runs=histories())
def test_a_log_that_arrives_twice_counts_once(rule: MergeRule, runs: list[Any]) -> None:
    ordered = [run for run, _ in runs]
    if not ordered or ordered[-1].is_base:
        return
    if rule.partial_update is not None:  # a version that lost to a delete may fill the one that came after it
        keys = [row[rule.key] for row in runs[-1][1]]
        ordered_rows = all(row.get(name) is not None for _, rows in runs for row in rows for name in rule.ordering)
        if len(set(keys)) < len(keys) or not ordered_rows:
            return
    twice = got(sorted_merge([*ordered, ordered[-1]], rule, SCHEMA, memory=64 << 20))
    assert twice == got(sorted_merge(ordered, rule, SCHEMA, memory=64 << 20))
