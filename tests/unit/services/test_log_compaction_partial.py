"""Log compaction of partial updates: those of the same columns are folded and stay partial, and no answer changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.compaction_options import CompactionOptions, Strategy
from lakebed.datafile.log_file import open_log_file
from lakebed.format.log.block import LogBlock
from lakebed.merge.record_merger import DIFFERENT_COLUMNS, MergeMode, MergeRule, PartialUpdateMode, why_not_partial
from lakebed.model.files import FileGroupId
from lakebed.services.compaction_strategy import GroupState, LogState, decide, small_run
from lakebed.services.drop_metadata import remove_metadata
from lakebed.table import Table
from lakebed.txn.txn_context import TxnContext
from tests.unit.services.compaction_cases import EASY, KEPT, KINDS, answers, client_of, instants_of, slices, sound
from tests.unit.write.tables import held, make

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int64()))]
)
Values = dict[str, Any]
ALL = pytest.mark.parametrize("kind", KINDS)


def new(kind: str) -> Table:
    return make(**{**KINDS[kind], "schema": SCHEMA, "partition_by": None, "num_buckets": 1, "properties": KEPT})


def whole(target: Table, *rows: Values) -> None:
    target.upsert(pa.Table.from_pylist(list(rows), SCHEMA))


def part(target: Table, *rows: Values) -> None:
    """Updates of the columns that the rows have, by MERGE."""
    names = [name for name in rows[0] if name != "id"]
    source = pa.Table.from_pylist(list(rows), pa.schema([SCHEMA.field(name) for name in ("id", *names)]))
    target.merge(source, on="t.id = s.id").when_matched_update(set={name: f"s.{name}" for name in names}).execute()


def row(ident: str, ts: int = 1, a: int | None = 0, b: str | None = "old", c: Any = (1, 2)) -> Values:
    return {"id": ident, "ts": ts, "a": a, "b": b, "c": list(c)}


def compacted_blocks(target: Table) -> list[LogBlock]:
    storage = client_of(target).storage
    logs = (log for file_slice in slices(target) for log in file_slice.log_files)
    return [block for log in logs for block in open_log_file(storage, log).blocks if block.compacted_times]


def merged_partial(target: Table) -> list[LogBlock]:
    return [block for block in compacted_blocks(target) if block.is_partial]


# ---------------------------------------------------------------------- what is folded
@ALL
def test_updates_of_the_same_columns_become_one_partial_log(kind: str) -> None:
    target = new(kind)
    target.bulk_insert(pa.Table.from_pylist([row(f"k{i}") for i in range(6)], SCHEMA))
    part(target, {"id": "k0", "ts": 2, "a": 20}, {"id": "k1", "ts": 5, "a": 21}, {"id": "k2", "ts": 2, "a": None})
    part(target, {"id": "k0", "ts": 3, "a": None}, {"id": "k1", "ts": 4, "a": 31})
    part(target, {"id": "k3", "ts": 0, "a": 43})
    before = instants_of(target)
    wanted = answers(target, before)
    [done] = target.services.compact("log", options=EASY)
    blocks = merged_partial(target)
    assert [block.requested_time for block in blocks] == [done.requested_time]
    assert blocks[0].compacted_times == tuple(before[1:])
    assert answers(target, before) == wanted
    by_event_time = "commit" not in kind
    found = {one["id"]: (one["ts"], one["a"], one["b"], one["c"]) for one in held(target)}
    assert found["k0"] == (3, None, "old", [1, 2]), "null was brought, the others come from below"
    assert found["k1"] == ((5, 21, "old", [1, 2]) if by_event_time else (4, 31, "old", [1, 2]))
    assert found["k3"] == ((1, 0, "old", [1, 2]) if by_event_time else (0, 43, "old", [1, 2]))
    part(target, {"id": "k0", "ts": 4, "a": 7})
    part(target, {"id": "k0", "ts": 5, "a": 8})
    wanted = answers(target, before)
    target.services.compact("log", options=EASY)
    assert answers(target, before) == wanted
    assert {len(block.compacted_times) for block in merged_partial(target)} == {3, 5}, "merged logs merge on"
    target.services.compact("full")
    assert answers(target, before)["now"] == wanted["now"]
    sound(target)


@ALL
def test_updates_of_different_columns_stay_and_the_plan_says_why(kind: str) -> None:
    target = new(kind)
    target.bulk_insert(pa.Table.from_pylist([row("k0"), row("k1")], SCHEMA))
    for step in range(3):
        part(target, {"id": "k0", "ts": 2 + step, "a": step})
        part(target, {"id": "k1", "ts": 2 + step, "b": f"new {step}"})
    found = target.services.explain_compaction("log", options=EASY)
    assert [one.kind for one in found.decisions] == [None]
    assert DIFFERENT_COLUMNS in found.explain()
    assert target.services.compact("log", options=EASY) == ()
    assert {one["id"]: (one["a"], one["b"]) for one in held(target)} == {"k0": (2, "old"), "k1": (0, "new 2")}


@ALL
def test_deletes_and_whole_rows_between_partial_ones_keep_their_place(kind: str) -> None:
    target = new(kind)
    target.bulk_insert(pa.Table.from_pylist([row("k0"), row("k1")], SCHEMA))
    for step in range(2):
        part(target, {"id": "k0", "ts": 2, "a": 2 + step}, {"id": "k1", "ts": 2, "a": 2 + step})
    target.delete(keys=["k0"])
    whole(target, row("k0", b="again", c=()))
    for step in range(2):
        part(target, {"id": "k0", "ts": 3, "a": 3 + step}, {"id": "k1", "ts": 1, "a": 3 + step})
    before = instants_of(target)
    wanted = answers(target, before)
    while target.services.compact("log", options=EASY):
        assert answers(target, before) == wanted
    assert merged_partial(target)
    first = held(target)[0]
    assert (first["id"], first["a"], first["b"], first["c"]) == ("k0", 4, "again", [])
    sound(target)


def test_partial_blocks_of_real_hudi_are_folded_with_ours(golden_copy: Callable[[str], Path]) -> None:
    """Hudi left Avro blocks, one that brings `v` and one that brings `txt`; ours bring `txt` too."""
    target = lakebed.open(golden_copy("mor_partial_v9"))
    remove_metadata(client_of(target), TxnContext.of(client_of(target).storage))
    target = lakebed.open(target.url)
    source = pa.table({"id": ["k0016", "k0018"], "ts": pa.array([7, 5], pa.int64()), "txt": ["ours", "late"]})
    target.merge(source, on="t.id = s.id").when_matched_update(set={"ts": "s.ts", "txt": "s.txt"}).execute()
    before = instants_of(target)
    wanted = answers(target, before)
    assert target.services.compact("log", options=EASY)
    [block] = merged_partial(target)
    assert block.compacted_times == tuple(before[-2:])
    assert answers(target, before) == wanted
    found = {one["id"]: (one["ts"], one["v"], one["txt"]) for one in held(target, "id", "ts", "v", "txt")}
    assert (found["k0016"], found["k0018"]) == ((7, 16_000, "ours"), (6, 18_000, "new-18"))
    sound(target)


# ---------------------------------------------------------------------- against a dictionary
class Model:
    """A table as a dictionary of rows."""

    def __init__(self, by_event_time: bool) -> None:
        self.rows: dict[str, Values] = {}
        self._by_event_time = by_event_time

    def _wins(self, ident: str, ts: int) -> bool:
        return not self._by_event_time or ident not in self.rows or ts >= self.rows[ident]["ts"]

    def whole(self, *rows: Values) -> None:
        for one in rows:
            if self._wins(one["id"], one["ts"]):
                self.rows[one["id"]] = dict(one)

    def part(self, *rows: Values) -> None:
        for one in rows:
            if one["id"] in self.rows and self._wins(one["id"], one.get("ts", self.rows[one["id"]]["ts"])):
                self.rows[one["id"]].update(one)

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self.rows.pop(key, None)

    def sorted(self) -> list[Values]:
        return sorted(self.rows.values(), key=lambda one: [str(value) for value in one.values()])


def some_value(chance: random.Random, name: str) -> Any:
    if name == "ts":
        return chance.randint(0, 9)
    number = chance.randint(0, 99)
    return None if chance.random() < 0.25 else {"a": number, "b": f"text {number}", "c": [number]}[name]


@pytest.mark.parametrize("seed", range(2))
@ALL
def test_random_updates_hold_what_a_dictionary_holds(kind: str, seed: int) -> None:
    chance = random.Random(f"{kind} {seed}")
    target, model = new(kind), Model("commit" not in kind)
    keys = [f"k{number}" for number in range(8)]
    first = [row(key, chance.randint(0, 5), chance.randint(0, 9)) for key in keys[:6]]
    target.bulk_insert(pa.Table.from_pylist(first, SCHEMA))
    model.whole(*first)
    columns: list[str] = ["a"]
    for step in range(12):
        chosen = chance.sample(keys, chance.randint(1, 4))
        dice = chance.random() if step < 10 else 1
        if dice < 0.1:
            fresh = [{"id": key, **{name: some_value(chance, name) for name in SCHEMA.names[1:]}} for key in chosen]
            whole(target, *fresh)
            model.whole(*fresh)
        elif dice < 0.2:
            target.delete(keys=chosen[:1])
            model.delete(chosen[:1])
        else:
            if dice < 0.4:
                columns = chance.choice([["a"], ["a", "ts"], ["b"], ["b", "c", "ts"], ["c"]])
            known = sorted({*chosen, chance.choice(sorted(model.rows))})
            some = [{"id": key, **{name: some_value(chance, name) for name in columns}} for key in known]
            part(target, *some)
            model.part(*some)
        if step < 10 and chance.random() < 0.25:
            compact(target, model, chance.choice(["log", "hybrid"]))
    while compact(target, model, "log"):
        pass
    assert merged_partial(target), "the last two updates, at least"
    sound(target)


def compact(target: Table, model: Model, strategy: str) -> bool:
    """Whether there was something to compact; the latest answers are the same before and after."""
    latest = instants_of(target)[-4:]
    wanted = answers(target, latest)
    assert held(target) == model.sorted()
    done = target.services.compact(strategy, options=EASY)
    assert answers(target, latest) == wanted
    return bool(done)


# ---------------------------------------------------------------------- the rule
BY_COMMIT = MergeRule()
BY_EVENT = MergeRule(MergeMode.EVENT_TIME, ordering=("ts",), delete_field="gone")


@pytest.mark.parametrize(
    ("rule", "brought", "deletes", "reason"),
    [
        (BY_COMMIT, ["a"], False, None),
        (BY_COMMIT, ["a"], True, None),
        (BY_COMMIT, ["a", "b"], False, "same columns"),
        (BY_COMMIT, ["a", None], False, "same columns"),
        (BY_EVENT, ["a ts"], False, None),
        (BY_EVENT, ["a"], False, "without ordering value"),
        (BY_EVENT, ["a ts"], True, "deletes beside"),
        (BY_EVENT, ["a ts gone"], False, "deletes beside"),
        (BY_EVENT, ["a ts _hoodie_is_deleted"], False, "deletes beside"),
        (MergeRule(partial_update=PartialUpdateMode.IGNORE_DEFAULTS), ["a"], False, "combines rows"),
        (MergeRule(MergeMode.CUSTOM, merger="mine"), ["a"], False, "combines rows"),
    ],
)
def test_which_partial_rows_can_be_folded(
    rule: MergeRule, brought: list[str | None], deletes: bool, reason: str | None
) -> None:
    columns = [None if names is None else frozenset(names.split()) for names in brought]
    found = why_not_partial(rule, columns, deletes=deletes)
    assert found is None if reason is None else reason in (found or "")


def test_stretches_end_where_columns_change() -> None:
    a, b = frozenset("a"), frozenset("b")
    shapes = [None, None, a, a, a, b, a, b]
    logs = tuple(LogState(str(number), 1, brings=brings) for number, brings in enumerate(shapes))
    state = GroupState(FileGroupId("", "f"), 100, logs)
    options = CompactionOptions.from_properties(EASY)
    assert [log.requested_time for log in small_run(state, options)] == ["2", "3", "4"]
    decision = decide(GroupState(FileGroupId("", "f"), 100, logs[4:]), Strategy.LOG, options)
    assert decision.kind is None and DIFFERENT_COLUMNS in decision.reason
