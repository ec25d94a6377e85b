"""Log compactions of any stretch, plans that are run late or dropped, cleans planned and run apart, archiving: whatever
the order, the rows are those of a dictionary, and nothing blocks the next plan.

Every seed is one table. The sizes of logs differ, and so does the size up to which one counts as small, so that log
compactions take different stretches in different orders.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from lakebed.errors import ConflictError, InvalidRequest, LakebedError
from lakebed.model.instant import Action, Instant
from lakebed.read.scan import Scan
from lakebed.runner import LocalRunner
from lakebed.table import Table
from tests.unit.services.compaction_cases import KEPT, client_of, slices, sound
from tests.unit.write.tables import make, row, table

ROUNDS = 3
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class Upkept:
    """A table of one file group by commit time, and the rows that it must have."""

    def __init__(self, version: int, seed: int) -> None:
        self.chance = random.Random(f"{version} {seed}")
        log_format = "v2" if version == 10 else "v1"
        self.table: Table = make(
            partition_by=None, num_buckets=1, ordering=None, log_format=log_format, properties=KEPT
        )
        if version == 8:
            self.table.services.downgrade(8)
        self.table._runner = LocalRunner(threads=1)
        self.rows: dict[str, int] = {}
        self.states: dict[str, dict[str, int]] = {}
        self.saved: dict[str, dict[str, int]] = {}
        self.did: list[str] = []
        self.upsert(40)

    # ------------------------------------------------------------------ writes
    def upsert(self, most: int = 12) -> None:
        """Rows of some neighbouring keys, with texts that do not shrink: logs of any size, newer values in each."""
        start, count = self.chance.randrange(30), self.chance.randint(1, most)
        size, value = self.chance.choice([0, 0, 30, 120]), len(self.did)
        keys = [f"k{number:02d}" for number in range(start, start + count)]
        texts = ["".join(self.chance.choices(LETTERS, k=size)) for _ in keys]
        self.table.upsert(table(*(row(key, 1, v=value, txt=text) for key, text in zip(keys, texts, strict=True))))
        self.rows.update(dict.fromkeys(keys, value))
        self.states[self.newest()] = dict(self.rows)

    def delete(self) -> None:
        if self.rows:
            key = self.chance.choice(sorted(self.rows))
            self.table.delete(keys=[key])
            del self.rows[key]
            self.states[self.newest()] = dict(self.rows)

    def newest(self) -> str:
        return client_of(self.table).completed_writes()[-1].requested_time

    # ------------------------------------------------------------------ compactions
    def small(self) -> dict[str, str]:
        sizes = sorted(log.size for file_slice in slices(self.table) for log in file_slice.log_files) or [1]
        size = self.chance.choice([*sizes, sizes[-1] * 2])
        return {"lakebed.log.compaction.small.size": str(size), "hoodie.log.compaction.blocks.threshold": "2"}

    def log_compact(self) -> None:
        planned = self.table.services.plan_compaction("log", self.small())
        self.table.services.run(planned)

    def plan(self) -> None:
        self.table.services.plan_compaction(self.chance.choice(["log", "log", "full", "hybrid"]), self.small())

    def pending(self, *actions: Action) -> list[Instant]:
        return list(client_of(self.table).timeline.pending.of_actions(*actions))

    def run(self) -> None:
        """One plan, any one, once or twice."""
        found = self.pending(Action.COMPACTION, Action.LOG_COMPACTION)
        if found:
            chosen = self.chance.choice(found)
            self.table.services.run(chosen)
            if self.chance.random() < 0.2:
                with pytest.raises(ConflictError):
                    self.table.services.run(chosen)

    def drop_plan(self) -> None:
        found = self.pending(Action.COMPACTION, Action.LOG_COMPACTION)
        if found:
            self.table.services.rollback(self.chance.choice(found))

    def compact(self) -> None:
        if self.chance.random() < 0.3:
            self.table.services.compact()

    # ------------------------------------------------------------------ cleaning, archiving, going back
    def retained(self) -> dict[str, str]:
        if self.chance.random() < 0.3:
            return {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}
        return {"hoodie.clean.commits.retained": str(self.chance.randint(1, 3))}

    def plan_clean(self) -> None:
        self.table.services.plan_clean(self.retained())

    def run_clean(self) -> None:
        found = self.pending(Action.CLEAN)
        if found:
            self.table.services.run(self.chance.choice(found))

    def clean(self) -> None:
        self.table.services.clean(self.retained())

    def archive(self) -> None:
        self.table.services.archive(
            {
                "hoodie.keep.min.commits": "3",
                "hoodie.keep.max.commits": "4",
                "hoodie.clean.commits.retained": "1",
            }
        )

    def savepoint(self) -> None:
        if self.saved:
            return
        try:
            self.saved[self.table.services.savepoint().requested_time] = dict(self.rows)
        except InvalidRequest as error:
            assert "no longer whole" in str(error)

    def delete_savepoint(self) -> None:
        if self.saved:
            self.table.services.delete_savepoint(self.saved.popitem()[0])

    def restore(self) -> None:
        if self.saved and self.chance.random() < 0.5:
            [(name, rows)] = self.saved.items()
            self.table.services.restore(name)
            self.rows = dict(rows)
            self.states = {
                requested_time: rows for requested_time, rows in self.states.items() if requested_time <= name
            }

    # ------------------------------------------------------------------ all of it
    def round(self) -> None:
        """Some writes, some merges of stretches of them, then whatever comes."""
        for _ in range(self.chance.randint(2, 6)):
            self.do(self.chance.choice([self.upsert, self.upsert, self.upsert, self.delete]))
        for _ in range(self.chance.randint(1, 3)):
            self.do(self.log_compact)
        cleaning = [self.plan_clean, self.run_clean, self.clean]
        plans = [self.plan, self.plan, self.run, self.drop_plan, self.compact, self.archive]
        rare = [self.savepoint, self.delete_savepoint, self.restore, self.upsert]
        for _ in range(self.chance.randint(2, 7)):
            self.do(self.chance.choice(self.chance.choice([cleaning, plans, rare])))

    def do(self, action: Callable[[], None]) -> None:
        self.did.append(action.__name__)
        action()
        self.check()

    def check(self) -> None:
        """The rows now, and as of some write: those, or none at all."""
        assert self.read(self.table.refresh().scan()) == self.rows
        requested_time = self.chance.choice(sorted(self.states))
        with suppress(InvalidRequest):
            assert self.read(self.table.scan(as_of=requested_time)) == self.states[requested_time]

    def read(self, scan: Scan) -> dict[str, int]:
        found = scan.select("id", "v").to_arrow()
        return dict(zip(*(found.column(name).to_pylist() for name in ("id", "v")), strict=True))

    def finish(self) -> None:
        """What is pending can be run, in any order, and then nothing is left that archiving would wait for."""
        for instant in self.chance.sample(found := self.pending(*Action), len(found)):
            if instant.action is not Action.SAVEPOINT:
                self.table.services.run(instant)
                self.check()
        self.table.services.compact()
        self.check()
        assert not self.pending(*Action)
        sound(self.table)


def tried(version: int, seed: int, rounds: int = ROUNDS) -> None:
    model = Upkept(version, seed)
    try:
        for _ in range(rounds):
            model.round()
        model.finish()
    except (AssertionError, LakebedError, pa.ArrowException) as error:
        error.add_note(f"version {version}, seed {seed}: {' '.join(model.did)}")
        raise


SEEDS = {8: range(2), 9: range(5, 8), 10: range(10, 20)}


@pytest.mark.parametrize(("version", "seed"), [(version, seed) for version, seeds in SEEDS.items() for seed in seeds])
def test_rows_stay_whatever_is_planned_and_run(version: int, seed: int) -> None:
    tried(version, seed)
