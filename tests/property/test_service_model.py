"""Random mixes of every write and every table service, against a dictionary.

Services change no answer: after each of them the table reads as before, now and as of every write that is still
retained, and what changed since each of those. Plans are left lying while writes go on, and run later; savepoints are
restored, the newest write is rolled back, versions go up and down. `LAKEBED_MODEL_SECONDS=600` goes on with further
seeds for as long.
"""

from __future__ import annotations

import os
import time

import pytest

import lakebed
from lakebed.model.actions import CleanMetadata
from lakebed.read.kept_vectors import KEPT
from lakebed.runner import LocalRunner
from tests.property.test_write_model import Kind, Workload, pairwise

STEPS = 30
SMALL_LOGS = {
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
SPLIT = {
    "hoodie.parquet.max.file.size": "1000",
    "hoodie.bucket.index.split.threshold": "1.0",
    "hoodie.bucket.index.max.num.buckets": "8",
}
MERGE = {"hoodie.bucket.index.min.num.buckets": "1"}
BY_HAND = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


class Upkeep(Workload):
    """A workload whose table is looked after, in any order."""

    def __init__(self, kind: Kind, seed: int) -> None:
        super().__init__(kind, seed)
        self.oldest = ""
        """When the oldest action completed whose state is retained."""
        self.savepoints: list[tuple[str, int]] = []
        self.reopen()

    def reopen(self) -> None:
        self.table = lakebed.open(self.url, options=BY_HAND)
        self.table._runner = LocalRunner(threads=1)

    @property
    def version(self) -> int:
        return int(self.table.config.version)

    # ------------------------------------------------------------------ one step
    def step(self) -> str:
        if not self.instants or self.chance.random() < 0.5:
            if self.table.services.pending_clusterings():
                self.table.services.run(self.table.services.pending_clusterings())  # writes would be refused
            return super().step()
        names = ["clean", "archive", "savepoint", "restore", "rollback", "versions", "reopen"]
        if self.kind.table_type == "mor":
            names += ["compact", "compact", "plan_compaction", "run_compaction"]
        if self.kind.index != "bucket":
            names += ["cluster", "plan_clustering"]
        name = self.chance.choice(names)
        did = getattr(self, f"serve_{name}")()
        return f"{name} {did}" if did else name

    def serve_reopen(self) -> None:
        self.reopen()

    def serve_compact(self) -> str:
        return " ".join(map(str, self.table.services.compact(self.strategy(), SMALL_LOGS)))

    def serve_plan_compaction(self) -> str:
        return " ".join(map(str, self.table.services.plan_compaction(self.strategy(), SMALL_LOGS).instants))

    def serve_run_compaction(self) -> str | None:
        pending = self.table.services.pending_compactions()
        return str(self.table.services.run(self.chance.choice(pending))) if pending else None

    def strategy(self) -> str:
        return self.chance.choice(["full", "log", "hybrid"])

    def serve_cluster(self) -> str:
        return " ".join(map(str, self.table.services.cluster(self.order())))

    def serve_plan_clustering(self) -> str:
        return " ".join(map(str, self.table.services.plan_clustering(self.order()).instants))

    def order(self) -> dict[str, str]:
        if self.kind.index == "consistent_bucket":
            return self.chance.choice([SPLIT, MERGE])
        if self.kind.layout == "lsm_tree":
            return {}
        columns = self.chance.choice(["v", "id,v", "txt"])
        return {
            "hoodie.clustering.plan.strategy.sort.columns": columns,
            "hoodie.layout.optimize.strategy": self.chance.choice(["linear", "z-order", "hilbert"]),
        }

    def serve_clean(self) -> str:
        policy = self.chance.choice(["KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS"])
        retained = str(self.chance.randint(1, 4))
        done = self.table.services.clean(
            {
                "hoodie.clean.policy": policy,
                "hoodie.clean.commits.retained": retained,
                "hoodie.clean.fileversions.retained": retained,
            }
        )
        for instant in done:
            body = self.table.inspect.body(instant.requested_time)
            assert isinstance(body, CleanMetadata)
            kept = body.earliest_to_retain if policy == "KEEP_LATEST_COMMITS" else ""
            self.forget(kept)
        return f"{policy} {retained} {len(done)}"

    def forget(self, earliest: str = "") -> None:
        """States before this action are gone; without one, all but the newest."""
        known = {
            row["instant"]: row["completion"] or "" for row in self.table.inspect.timeline(history=True).to_pylist()
        }
        self.oldest = max(self.oldest, known.get(earliest) or max(known.values()))

    def serve_archive(self) -> str:
        options = {"hoodie.keep.min.commits": "6", "hoodie.keep.max.commits": "8", "hoodie.clean.commits.retained": "2"}
        return str(len(self.table.services.archive(options)))

    def serve_savepoint(self) -> str | None:
        if self.savepoints and self.chance.random() < 0.4:
            self.table.services.delete_savepoint(self.savepoints.pop(0)[0])
            return "deleted"
        if (self.savepoints and self.savepoints[-1][1] == len(self.instants)) or self.completions[-1] < self.oldest:
            return None
        made = self.table.services.savepoint("model", self.instants[-1])
        self.savepoints.append((made.requested_time, len(self.instants)))
        return made.requested_time

    def serve_restore(self) -> str | None:
        if not self.savepoints or self.chance.random() < 0.5:
            return None
        name, count = self.savepoints[-1]
        self.table.services.restore(name)
        self.truncate(count)
        return name

    def serve_rollback(self) -> str | None:
        """The newest action, if it is a write that nothing protects and nothing was built on."""
        timeline = self.table.inspect.timeline().to_pylist()
        newest = max(timeline, key=lambda row: row["instant"])
        last = self.instants[-1]
        if newest["instant"] != last or len(self.instants) < 2 or self.completions[-1] <= self.oldest:
            return None
        if any(count >= len(self.instants) for _, count in self.savepoints):
            return None
        self.table.services.rollback(last)
        self.truncate(len(self.instants) - 1)
        return last

    def truncate(self, count: int) -> None:
        del self.instants[count:], self.completions[count:], self.model.snapshots[count:]
        self.model.rows = dict(self.model.snapshots[-1])
        self.savepoints = [(name, own) for name, own in self.savepoints if own <= count]

    def serve_versions(self) -> str | None:
        """Between 8, 9 and 10, as it comes; native logs that plans or savepoints hold keep a table at 10."""
        held = self.savepoints or self.table.services.pending_compactions() or self.table.services.pending_clusterings()
        if self.chance.random() < 0.5 or (held and self.version == 10):
            return None
        before = self.version
        to = self.chance.choice([version for version in (8, 9, 10) if version != before])
        if to > before:
            self.table.services.upgrade(to=to)
        else:
            self.table.services.downgrade(to=to)
            if before == 10:
                self.forget()
        self.reopen()
        return f"{before} to {self.version}"

    # ------------------------------------------------------------------ what must hold after each step
    def check(self) -> None:
        table = lakebed.open(self.url)
        self.same(table.scan().to_arrow(), self.model.rows)
        retained = [number for number, completion in enumerate(self.completions) if completion >= self.oldest]
        for number in self.chance.sample(retained, min(2, len(retained))):
            self.same(table.scan(as_of=self.instants[number]).to_arrow(), self.model.snapshots[number])
            if self.kind.meta_fields and number < len(self.instants) - 1:
                self.same(table.incremental(self.completions[number]).to_arrow(), self.model.changed_after(number))


def run(kind: Kind, seed: int, steps: int = STEPS) -> int:
    """A mix to its end; a failure says how to see it again."""
    work = Upkeep(kind, seed)
    done: list[str] = []
    try:
        for _ in range(steps):
            done.append(work.step())
            work.check()
        work.check_files(work.table.refresh())
        assert [finding for finding in lakebed.open(work.url).check() if finding.severity == "error"] == []
    except BaseException as error:
        error.add_note(f"{kind!r}, seed {seed}, after\n  " + "\n  ".join(done))
        raise
    return len(done)


@pytest.fixture(autouse=True)
def kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables here have names of their own, so what reads keep of them is tested along."""
    monkeypatch.setattr(KEPT, "in_memory_stores", True)


@pytest.mark.parametrize("kind", pairwise(5), ids=str)
def test_services_change_no_answer(kind: Kind) -> None:
    assert run(kind, 1) == STEPS


def test_more_seeds_for_as_long_as_asked() -> None:
    deadline = time.monotonic() + float(os.environ.get("LAKEBED_MODEL_SECONDS", "0"))
    seed = int(os.environ.get("LAKEBED_MODEL_SEED", "100"))
    steps = 0
    while time.monotonic() < deadline:
        for kind in pairwise(seed):
            if time.monotonic() < deadline:
                steps += run(kind, seed, 60)
        seed += 1
    print(f"{steps} steps")
