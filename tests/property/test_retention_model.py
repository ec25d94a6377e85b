"""Random writes, cleans, archiving and compactions: every question about the past is answered exactly or refused.

The model is a dictionary per state: by key its row, and when the write that made the row completed. After each step
`as_of` every earlier state and `incremental` between two of them must give what the dictionaries say, or be refused. A
refusal must have a reason: the files that each state was read from are remembered, and where those of a state and of
all later ones are still there, it must be readable. `LAKEBED_MODEL_SECONDS=600` goes on with further seeds for as long.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

import pytest

from lakebed.config.upkeep_options import ArchiveOptions, CleanOptions, CleanPolicy
from lakebed.errors import ConflictError, InvalidRequest
from lakebed.services.archival import archive
from lakebed.services.cleaning import clean, plan_clean
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.timeline.clock import ManualClock
from lakebed.timeline.meta_client import MetaClient
from tests.simulation.write_cases import KINDS, Row, data, make_table, table_on
from tests.unit.txn.tables import control_of

STEPS = 20
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false", "hoodie.compact.inline": "false"}
TINY = ArchiveOptions(max_commits=3, min_commits=2, batch=2)
COLUMNS = ["id", "ts", "p", "v"]
START_MS = 1_800_000_000_000


@dataclass(frozen=True)
class State:
    """The table after a write or service: rows with the completions of their writes, and the files that hold them."""

    begin: str
    completion: str
    rows: dict[str, tuple[Row, str]]
    files: frozenset[str]

    def since(self, start: str) -> list[Row]:
        return sorted(row for row, done in self.rows.values() if done > start)


class Past:
    """A table under way, and what it held at every completion."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.chance = kind, random.Random(f"{kind} {seed}")
        self.storage, self.clock = MemoryStorage(), ManualClock(START_MS)
        make_table(self.storage, kind)
        self.states: list[State] = []
        self.saved: list[str] = []
        self.number = 0

    @property
    def client(self) -> MetaClient:
        return MetaClient.open(self.storage)

    @property
    def table(self) -> Table:
        return table_on(self.storage, control_of(self.storage, self.clock))

    @property
    def rows(self) -> dict[str, tuple[Row, str]]:
        return self.states[-1].rows if self.states else {}

    # ------------------------------------------------------------------ steps
    def step(self) -> str:
        self.clock.advance(self.chance.choice([10, 1000, 1_800_000]))
        self.number += 1
        names = ["upsert"] * 9 + ["delete", "clean", "clean", "clean", "archive", "archive"]
        if self.states:
            names += ["overwrite", "savepoint", "restore", "rollback", "plan_clean"]
            names += ["cluster"] if self.kind == "cow" else ["compact"] * 3 + ["plan_compaction", "run_compaction"] * 2
        name = self.chance.choice(names)
        return f"{name}: {getattr(self, name)()}"

    def upsert(self) -> str:
        keys = self.chance.sample(range(8), self.chance.randint(1, 3))
        return self.written([self.row(key) for key in keys], keep=True)

    def row(self, key: int) -> Row:
        return (f"k{key}", self.number, f"p{key % 2}", self.number * 100 + key)

    def overwrite(self) -> str:
        return self.written([self.row(self.chance.randrange(8))], keep=False)

    def written(self, rows: list[Row], keep: bool) -> str:
        """Rows put in, or in the place of all of their partitions."""
        table = self.table
        done = (table.upsert if keep else table.overwrite_partitions)(data(rows), options=QUIET)
        gone = set() if keep else {row[2] for row in rows}
        left = {key: known for key, known in self.rows.items() if known[0][2] not in gone}
        self.remember(left | {row[0]: (row, done.completion_time) for row in rows})
        return done.instant

    def delete(self) -> str | None:
        if not self.rows:
            return None
        key = self.chance.choice(sorted(self.rows))
        done = self.table.delete(keys=[{"id": key, "p": self.rows[key][0][2]}], options=QUIET)
        self.remember({other: known for other, known in self.rows.items() if other != key})
        return done.instant

    def compact(self) -> int:
        done = self.table.services.compact(options=QUIET)
        self.remember(self.rows)
        return len(done)

    def cluster(self) -> int:
        done = self.table.services.cluster(QUIET)
        self.remember(self.rows)
        return len(done)

    def plan_compaction(self) -> str | None:
        if self.client.timeline.pending.instants:
            return None
        return str(self.table.services.plan_compaction(options=QUIET).instants)

    def run_compaction(self) -> int:
        pending = self.table.services.pending_compactions()
        self.table.services.run(pending, QUIET)
        self.remember(self.rows)
        return len(pending)

    def policy(self) -> CleanOptions:
        count = self.chance.randint(1, 3)
        return CleanOptions(self.chance.choice(list(CleanPolicy)), commits=count, versions=count, hours=count)

    def clean(self) -> str:
        options = self.policy()
        more = {"incremental": self.chance.random() < 0.3}
        return f"{options.policy} {clean(self.client, control_of(self.storage, self.clock), options, **more)}"

    def plan_clean(self) -> str | None:
        if self.client.timeline.pending.instants:
            return None
        return str(plan_clean(self.client, control_of(self.storage, self.clock), self.policy()))

    def archive(self) -> int:
        return len(archive(self.client, control_of(self.storage, self.clock), TINY))

    def savepoint(self) -> str | None:
        """Of any state that is there, or one is given up."""
        if self.saved and self.chance.random() < 0.5:
            self.table.services.delete_savepoint(self.saved.pop())
            return "deleted"
        state = self.chance.choice(self.states)
        if state.begin in self.saved or self.client.timeline.completed_write(state.begin) is None:
            return None
        try:
            self.table.services.savepoint(instant=state.begin)
        except InvalidRequest as refusal:
            assert not self.must_be_there(state), refusal
            return f"{state.begin} refused"
        except ConflictError:
            assert self.client.timeline.pending.instants, "only what is planned may stand in the way"
            return f"{state.begin} refused, for a clean is planned"
        self.saved.append(state.begin)
        return state.begin

    def restore(self) -> str | None:
        newest = max(self.saved, key=[s.begin for s in self.states].index, default=None)
        if newest is None or self.chance.random() < 0.5:
            return None
        try:
            self.table.services.restore(newest)
        except InvalidRequest as refusal:
            assert "archived" in str(refusal), refusal
            return "refused"
        place = [state.begin for state in self.states].index(newest)
        del self.states[place + 1 :]
        return newest

    def rollback(self) -> str | None:
        """The newest write, if the one before it is known."""
        if len(self.states) < 2:
            return None
        newest, before = self.states[-1], self.states[-2]
        try:
            self.table.services.rollback(newest.begin)
        except InvalidRequest as refusal:
            built_on = newest.begin in self.saved or self.client.timeline.pending.instants
            archived = self.client.timeline.completed_write(newest.begin) is None
            assert built_on or archived or not self.must_be_there(before), refusal
            return f"{newest.begin} refused"
        self.states.pop()
        return newest.begin

    # ------------------------------------------------------------------ what must hold
    def remember(self, rows: dict[str, tuple[Row, str]]) -> None:
        """The state after the newest completed write, unless that is known."""
        done = self.client.timeline.completed.writes.in_completion_order()
        if not done or any(state.begin == done[-1].requested_time for state in self.states):
            return
        plan = table_on(self.storage).scan().plan()
        files = frozenset(file.path for split in plan.splits for file in split.slice.files)
        self.states.append(State(done[-1].requested_time, done[-1].completion_time or "", dict(rows), files))

    def must_be_there(self, state: State) -> bool:
        there = {info.path for info in self.storage.list("", recursive=True)}
        place = self.states.index(state)
        return state.begin in self.saved or all(later.files <= there for later in self.states[place:])

    def check(self, states: int, pairs: int) -> int:
        """Ask about so many states and pairs of them; the questions that were refused."""
        table = table_on(self.storage)
        assert _read(table.scan(columns=COLUMNS)) == sorted(row for row, _ in self.rows.values())
        refused = 0
        for state in self.chance.sample(self.states, min(states, len(self.states))):
            at = self.chance.choice((state.begin, state.completion))
            refused += self.ask(table.scan(columns=COLUMNS, as_of=at), state.since(""), state)
        choices = [(a, b) for a in range(len(self.states)) for b in range(a, len(self.states))]
        for a, b in self.chance.sample(choices, min(pairs, len(choices))):
            start, end = self.states[a].completion, self.states[b]
            refused += self.ask(table.incremental(start, end.completion, columns=COLUMNS), end.since(start), end)
            assert _read(table.incremental(start, columns=COLUMNS)) == self.states[-1].since(start)
        assert _read(table.incremental("0", columns=COLUMNS)) == sorted(row for row, _ in self.rows.values())
        return refused

    def ask(self, scan, wanted: list[Row], end: State) -> bool:  # type: ignore[no-untyped-def]
        try:
            found = _read(scan)
        except InvalidRequest as refusal:
            assert "earliest" in str(refusal), refusal
            assert not self.must_be_there(end), f"refused without need: {scan}: {refusal}"
            return True
        assert found == wanted, scan
        return False


def _read(scan) -> list[Row]:  # type: ignore[no-untyped-def]
    return sorted(tuple(row.values()) for row in scan.to_arrow().to_pylist())


def run(kind: str, seed: int, steps: int = STEPS) -> tuple[int, int, int]:
    """A mix to its end: the steps, the states and the refusals; a failure says how to see it again."""
    past, done, refused = Past(kind, seed), [], 0
    try:
        for _ in range(steps):
            done.append(past.step())
            refused += past.check(states=3, pairs=2)
        past.check(states=1000, pairs=60)
    except BaseException as error:
        error.add_note(f"{kind}, seed {seed}, after\n  " + "\n  ".join(done))
        raise
    return len(done), len(past.states), refused


@pytest.mark.parametrize("kind", KINDS)
def test_the_past_is_exact_or_refused(kind: str) -> None:
    done = [run(kind, seed) for seed in (1, 2, 3)]
    assert max(states for _, states, _ in done) > 5
    assert sum(refused for _, _, refused in done) > 5, "hardly anything was cleaned: the mix is too tame"


def test_more_seeds_for_as_long_as_asked() -> None:
    deadline = time.monotonic() + float(os.environ.get("LAKEBED_MODEL_SECONDS", "0"))
    seed = int(os.environ.get("LAKEBED_MODEL_SEED", "100"))
    steps = 0
    while time.monotonic() < deadline:
        for kind in KINDS:
            steps += run(kind, seed, 60)[0]
        seed += 1
    print(f"{steps} steps")
